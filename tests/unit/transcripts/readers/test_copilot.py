from __future__ import annotations

from typing import Any

from rekindle.transcripts import SessionStarted, SessionUpdated, read_transcript
from rekindle.types import Tokens
from tests.unit.transcripts.conftest import Write, messages


class Log:
    """Writes events as Copilot does, a second apart."""

    def __init__(self) -> None:
        self.count = 0

    def event(self, type: str, agent: str | None = None, **data: Any) -> dict[str, Any]:
        self.count += 1
        line = {
            "type": type,
            "data": data,
            "id": f"event-{self.count}",
            "timestamp": f"2026-03-01T10:00:{self.count:02}.000Z",
            "parentId": f"event-{self.count - 1}" if self.count > 1 else None,
        }
        return {**line, "agentId": agent} if agent else line

    def start(self) -> dict[str, Any]:
        context = {"cwd": "/repo", "branch": "topic"}
        return self.event(
            "session.start", sessionId="own", startTime="2026-03-01T09:59:59Z", context=context
        )

    def answer(self, id: str, text: str, *calls: str, **data: Any) -> dict[str, Any]:
        requests = [
            {"toolCallId": call, "name": "bash", "arguments": {"command": call}} for call in calls
        ]
        return self.event(
            "assistant.message", messageId=id, content=text, toolRequests=requests, **data
        )

    def done(self, call: str, text: str, **data: Any) -> dict[str, Any]:
        return self.event(
            "tool.execution_complete",
            **{"toolCallId": call, "success": True, "result": {"content": text}, **data},
        )


def test_events_become_prompts_answers_and_results(write: Write) -> None:
    log = Log()
    path = write(
        log.start(),
        log.event("session.model_change", newModel="model-a"),
        log.event("system.message", role="system", content="rules"),
        log.event("user.message", content="do it", transformedContent="<reminder>do it"),
        log.event("hook.start", hookType="preToolUse", input={}),
        log.answer("m1", "I do.", "c1", "c2", reasoningText="plan", model="model-a"),
        log.event("tool.execution_start", toolCallId="c1", toolName="bash", arguments={}),
        log.event("tool.execution_start", toolCallId="c2", toolName="bash", arguments={}),
        log.done("c2", "two"),
        log.done("c1", "one"),
        log.answer("m2", "Done.", model="model-b", outputTokens=7),
        log.event("system.notification", content="<system_notification>"),
    )
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "tool", "assistant"]
    assert told[0].content == "do it"
    assert (told[1].content, told[1].reasoning) == ("I do.", "plan")
    assert [call.arguments for call in told[1].tool_calls] == [{"command": "c1"}, {"command": "c2"}]
    assert [(m.tool_call_id, m.name, m.content) for m in told[2:4]] == [
        ("c2", "bash", "two"),
        ("c1", "bash", "one"),
    ]
    assert told[3].meta == {"is_error": False, "duration": 3.0}
    assert told[4].meta == {"model": "model-b"}
    opened = next(e.session for e in read_transcript(path) if isinstance(e, SessionStarted))
    assert (opened.id, opened.model, opened.cwd) == ("own", "model-a", "/repo")
    assert (opened.git_branch, opened.source) == ("topic", "copilot")


def test_success_is_about_the_tool_and_the_exit_code_about_the_command(write: Write) -> None:
    log = Log()
    calls = [f"c{n}" for n in range(7)]
    refused = {"message": "no", "code": "rejected"}
    path = write(
        log.start(),
        log.answer("m", "", *calls),
        log.done("c0", "boom\n<shellId: 4 completed with exit code 2>"),
        log.done("c1", "fine\n<exited with exit code 0>"),
        log.done("c2", "cat says <exited with exit code 3>\nand goes on"),
        log.done("c3", "<command with shellId: 5 is still running after 30 seconds. Use more.>"),
        log.done(
            "c4", "", success=False, result=None, error={"message": "gone", "code": "failure"}
        ),
        log.done("c5", "", success=False, result=None, error=refused),
        log.event("permission.completed", toolCallId="c6", result={"kind": "denied-by-rules"}),
        log.done("c6", "", success=False, result=None, error={"message": "denied"}),
    )
    results = [m for m in messages(read_transcript(path)) if m.role == "tool"]
    metas = [{k: v for k, v in (m.meta or {}).items() if k != "duration"} for m in results]
    assert metas == [
        {"is_error": False, "exit_code": 2},
        {"is_error": False, "exit_code": 0},
        {"is_error": False},
        {"is_error": False, "running": True},
        {"is_error": True, "error": "failure"},
        {"is_error": True, "error": "rejected", "refused": True},
        {"is_error": True, "refused": True, "denial": "denied-by-rules"},
    ]
    assert [m.content for m in results[4:]] == ["gone", "no", "denied"]


def test_the_chunks_of_one_response_are_one_answer(write: Write) -> None:
    log = Log()
    chunks = {"apiCallId": "r1", "chunkCount": 2}
    path = write(
        log.start(),
        log.answer("m1", "first", reasoningText="a", chunkIndex=0, outputTokens=5, **chunks),
        log.answer("m2", "", "c1", reasoningText="b", chunkIndex=1, outputTokens=5, **chunks),
        log.done("c1", "out"),
    )
    answer, result = messages(read_transcript(path))
    assert (answer.content, answer.reasoning) == ("first", "a\n\nb")
    assert [call.id for call in answer.tool_calls] == ["c1"]
    assert result.tool_call_id == "c1"
    learned = next(e.session for e in read_transcript(path) if isinstance(e, SessionUpdated))
    assert learned.tokens.output == 5


def test_a_sub_agent_is_a_session_of_its_own(write: Write) -> None:
    log = Log()
    path = write(
        log.start(),
        log.event("user.message", content="go"),
        log.answer("m1", "", "task"),
        log.event("subagent.started", "a7", toolCallId="task", agentName="explore"),
        log.event("assistant.message", "a7", messageId="m2", content="searching"),
        log.answer("m3", "older way", parentToolCallId="older"),
        log.done("task", "found"),
    )
    events = list(read_transcript(path))
    opened = [e.session for e in events if isinstance(e, SessionStarted)]
    assert [s.id for s in opened] == ["own", "agent-a7@own", "agent-older@own", "own"]
    assert [s.parent for s in opened] == [None, "own", "own", None]
    assert messages(events)[-1].meta == {"is_error": False, "agent": "explore"}


def test_what_the_harness_says_in_the_users_name_is_no_message(write: Write) -> None:
    log = Log()
    path = write(
        log.start(),
        log.event("user.message", content="typed"),
        log.event("user.message", content="skill text", source="skill-pdf"),
        log.event("user.message", content="go on", isAutopilotContinuation=True),
        log.event("tool.user_requested", toolCallId="u1", toolName="bash", arguments={}),
        log.done("u1", "listing\n<exited with exit code 0>"),
    )
    told = messages(read_transcript(path))
    assert [(m.role, m.content) for m in told] == [
        ("user", "typed"),
        ("user", "listing\n<exited with exit code 0>"),
    ]
    assert told[1].tool_call_id is None


def test_abort_compaction_and_shutdown_are_told(write: Write) -> None:
    log = Log()
    usage = {"inputTokens": 100, "cacheReadTokens": 60, "cacheWriteTokens": 10, "outputTokens": 9}
    path = write(
        log.start(),
        log.event("abort", reason="user_initiated"),
        log.event(
            "session.compaction_complete",
            success=True,
            summaryContent="so far",
            preCompactionTokens=8,
        ),
        log.event("user.message", content="go on"),
        log.event(
            "session.shutdown", shutdownType="routine", modelMetrics={"model-a": {"usage": usage}}
        ),
    )
    (prompt,) = messages(read_transcript(path))
    assert prompt.meta == {
        "aborted": True,
        "compacted": {"trigger": None, "tokens_before": 8, "summary": "so far"},
    }
    learned = next(e.session for e in read_transcript(path) if isinstance(e, SessionUpdated))
    assert learned.tokens == Tokens(input=30, output=9, cache_read=60, cache_write=10)
    assert learned.end_reason == "routine"
    assert learned.ended is not None


def test_masked_ids_are_matched_by_their_order(write: Write) -> None:
    log = Log()
    path = write(
        log.start(),
        log.answer("m1", "", "REDACTED", "REDACTED"),
        log.done("REDACTED", "one"),
        log.done("REDACTED", "two"),
    )
    answer, *results = messages(read_transcript(path))
    made = [call.id for call in answer.tool_calls]
    assert len(set(made)) == 2
    assert [m.tool_call_id for m in results] == made
    assert [m.content for m in results] == ["one", "two"]


def test_a_log_without_its_beginning_goes_by_its_folder(write: Write) -> None:
    path = write(Log().event("user.message", content="x"), name="abc-1/events.jsonl")
    assert [e.session.id for e in read_transcript(path) if isinstance(e, SessionStarted)] == [
        "abc-1"
    ]
