from __future__ import annotations

from decimal import Decimal
from typing import Any

from rekindle.transcripts import SessionStarted, SessionUpdated, read_transcript
from rekindle.types import Tokens
from tests.unit.transcripts.conftest import Write, messages

HEADER = {
    "type": "session",
    "id": "own",
    "timestamp": "2026-03-01T10:00:00Z",
    "cwd": "/repo",
    "modelId": "model-a",
}


def entry(role: str, content: Any = None, at: int = 0, **more: Any) -> dict[str, Any]:
    said = {"role": role, "content": content, **more}
    if at:
        said["timestamp"] = 1_772_359_200_000 + at
    return {"type": "message", "timestamp": "2026-03-01T10:00:01Z", "message": said}


def said(value: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": value}]


def called(*calls: str) -> list[dict[str, Any]]:
    return [
        {"type": "toolCall", "id": call, "name": "bash", "arguments": {"command": call}}
        for call in calls
    ]


def result(call: str, value: str, *, failed: bool = False, **more: Any) -> dict[str, Any]:
    return entry(
        "toolResult", said(value), toolCallId=call, toolName="bash", isError=failed, **more
    )


def node(id: str, parent: str | None, line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "id": id, "parentId": parent}


def test_entries_become_prompts_answers_and_results(write: Write) -> None:
    usage = {"input": 3, "output": 5, "cacheRead": 100, "cacheWrite": 7, "cost": {"total": 0.25}}
    thinking = {"type": "thinking", "thinking": "plan"}
    path = write(
        HEADER,
        entry("user", "do it"),
        {"type": "thinking_level_change", "timestamp": "", "thinkingLevel": "high"},
        entry(
            "assistant",
            [thinking, *said("I do."), *called("c1", "c2")],
            model="model-a",
            stopReason="toolUse",
            usage=usage,
        ),
        result("c1", "out"),
        result("c2", "bad\n\nCommand exited with code 2", failed=True),
        entry("assistant", said("Done."), model="model-b", stopReason="stop", usage=usage),
        entry("custom", "an extension says", customType="x"),
        {"type": "session_info", "name": "A name"},
    )
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "tool", "assistant"]
    assert (told[1].content, told[1].reasoning) == ("I do.", "plan")
    assert [call.id for call in told[1].tool_calls] == ["c1", "c2"]
    assert told[2].meta == {"is_error": False}
    assert told[3].meta == {"is_error": True, "exit_code": 2}
    assert (told[3].name, told[3].tool_call_id) == ("bash", "c2")
    assert told[4].meta == {"model": "model-b"}
    learned = next(e.session for e in read_transcript(path) if isinstance(e, SessionUpdated))
    assert learned.tokens == Tokens(input=6, output=10, cache_read=200, cache_write=14)
    assert (learned.cost, learned.title) == (Decimal("0.50"), "A name")
    assert (learned.id, learned.model, learned.cwd) == ("own", "model-a", "/repo")


def test_a_command_the_user_ran_is_a_prompt_in_the_words_the_model_gets(write: Write) -> None:
    path = write(
        HEADER,
        entry("bashExecution", command="ls", output="a\n", exitCode=0),
        entry("bashExecution", command="rg x", output="", exitCode=1),
        entry("bashExecution", command="sleep 9", output="", exitCode=None, cancelled=True),
    )
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user"] * 3
    assert told[0].content == "Ran `ls`\n```\na\n\n```"
    assert told[1].content == "Ran `rg x`\n(no output)\n\nCommand exited with code 1"
    assert told[2].content == "Ran `sleep 9`\n(no output)\n\n(command cancelled)"
    assert [m.meta for m in told] == [
        {"command": "ls", "exit_code": 0},
        {"command": "rg x", "exit_code": 1},
        {"command": "sleep 9", "interrupted": True},
    ]


def test_an_answer_that_was_stopped_is_kept_and_told_by_the_message_after_it(write: Write) -> None:
    path = write(
        HEADER,
        entry("assistant", [], stopReason="aborted", errorMessage="Request was aborted."),
        entry("user", "again"),
        entry("assistant", [], stopReason="error", errorMessage="429 slow down"),
    )
    stopped, again, failed = messages(read_transcript(path))
    assert (stopped.finish_reason, stopped.content) == ("aborted", None)
    assert again.meta == {"aborted": True}
    assert failed.meta == {"error": "429 slow down", "api_error": True}


def test_a_compaction_is_told_by_the_message_after_it(write: Write) -> None:
    path = write(
        HEADER,
        entry("user", "one"),
        {"type": "compaction", "summary": "so far", "tokensBefore": 9, "firstKeptEntryIndex": 1},
        entry("user", "two"),
    )
    assert messages(read_transcript(path))[1].meta == {
        "compacted": {"summary": "so far", "tokens_before": 9}
    }


def test_a_branch_in_the_tree_is_read_after_what_it_left(write: Write) -> None:
    path = write(
        {**HEADER, "version": 3},
        node("e1", None, entry("user", "ask", at=1)),
        node("e2", "e1", entry("assistant", said("first try"), at=2)),
        node("e3", "e1", {"type": "branch_summary", "fromId": "e2", "summary": "did not work"}),
        node("e4", "e3", entry("assistant", said("second try"), at=3)),
    )
    told = messages(read_transcript(path))
    assert [m.text for m in told] == ["ask", "first try", "second try"]
    assert told[1].meta is None
    assert told[2].meta == {"branched": {"from": "e1", "summary": "did not work"}}


def test_messages_keep_their_ids_when_pi_gives_an_old_file_new_ones(write: Write) -> None:
    lines = [entry("user", "a", at=1), entry("assistant", called("c1"), at=2), result("c1", "x")]
    before = [m.platform_message_id for m in messages(read_transcript(write(HEADER, *lines)))]
    nodes = [node(f"e{n}", f"e{n - 1}", line) for n, line in enumerate(lines)]
    after = [m.platform_message_id for m in messages(read_transcript(write(HEADER, *nodes)))]
    assert before == after
    assert len(set(before)) == 3


def test_the_parent_is_named_in_the_path_of_its_file(write: Write) -> None:
    for field in ("branchedFrom", "parentSession"):
        origin = "/home/x/.pi/agent/sessions/--x--/2026-03-01T09-00-00-000Z_the-parent.jsonl"
        path = write({**HEADER, field: origin}, entry("user", "x"))
        opened = next(e.session for e in read_transcript(path) if isinstance(e, SessionStarted))
        assert (opened.id, opened.parent) == ("own", "the-parent")


def test_masked_ids_are_matched_by_their_order(write: Write) -> None:
    path = write(
        HEADER,
        entry("assistant", called("REDACTED", "REDACTED"), at=1),
        result("REDACTED", "one", at=2),
        result("REDACTED", "two", at=3),
    )
    answer, *results = messages(read_transcript(path))
    made = [call.id for call in answer.tool_calls]
    assert [m.tool_call_id for m in results] == made
    assert len(set(made)) == 2
    assert len({m.platform_message_id for m in (answer, *results)}) == 3
