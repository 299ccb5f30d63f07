from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rekindle.transcripts import SessionStarted, SessionUpdated, read_transcript
from rekindle.types import Tokens
from tests.unit.transcripts.conftest import Write, messages

TIME = "2026-03-01T10:00:00.000Z"


def line(type: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": TIME, "type": type, "payload": payload}


def item(type: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": TIME, "type": "response_item", "payload": {"type": type, **payload}}


def event(type: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": TIME, "type": "event_msg", "payload": {"type": type, **payload}}


def said(role: str, text: str, **more: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}], **more)


def ran(call: str, cmd: str = "ls") -> dict[str, Any]:
    return item(
        "function_call", name="exec_command", arguments=json.dumps({"cmd": cmd}), call_id=call
    )


def output(call: str, text: Any) -> dict[str, Any]:
    return item("function_call_output", call_id=call, output=text)


META = line(
    "session_meta",
    id="own-id",
    timestamp=TIME,
    cwd="/repo",
    git={"branch": "topic"},
    forked_from_id="parent-id",
)


def test_the_items_of_an_answer_become_one_message_and_events_are_not_told_twice(
    write: Write,
) -> None:
    path = write(
        META,
        said("developer", "rules"),
        said("user", "<environment_context>\n…"),
        line("turn_context", model="gpt-x", cwd="/repo"),
        event("user_message", message="do it"),
        said("user", "do it"),
        item("reasoning", summary=[{"type": "summary_text", "text": "plan"}], content=None),
        event("agent_message", message="I do."),
        said("assistant", "I do.", phase="commentary"),
        ran("c1"),
        ran("c2"),
        event("token_count", info=None),
        output("c1", "Wall time: 0.5 seconds\nProcess exited with code 0\nOutput:\nx"),
        output("c2", "Wall time: 1.5 seconds\nProcess exited with code 3\nOutput:\nExit code: 9"),
        said("assistant", "Done.", phase="final_answer"),
    )
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "tool", "assistant"]
    assert told[1].content == "I do."
    assert told[1].reasoning == "plan"
    assert [c.id for c in told[1].tool_calls] == ["c1", "c2"]
    assert told[2].meta == {"exit_code": 0, "duration": 0.5}
    assert told[3].meta == {"exit_code": 3, "duration": 1.5}
    assert told[3].name == "exec_command"
    opened = next(e.session for e in read_transcript(path) if isinstance(e, SessionStarted))
    assert (opened.id, opened.parent, opened.cwd) == ("own-id", "parent-id", "/repo")
    assert (opened.git_branch, opened.model, opened.source) == ("topic", "gpt-x", "codex")


def test_a_fork_keeps_its_own_id_though_it_repeats_its_parent(write: Write) -> None:
    path = write(META, line("session_meta", id="parent-id"), said("user", "x"))
    assert [e.session.id for e in read_transcript(path) if isinstance(e, SessionStarted)] == [
        "own-id"
    ]


def test_what_events_and_headers_know_about_a_call_is_kept(write: Write) -> None:
    path = write(
        META,
        *(ran(f"c{n}") for n in range(1, 5)),
        item("custom_tool_call", name="apply_patch", call_id="c5", input="*** Begin Patch"),
        event("exec_command_end", call_id="c1", exit_code=2, duration={"secs": 1, "nanos": 5e8}),
        output("c1", "no header but an event"),
        output("c2", "Wall time: 1.0 seconds\nProcess running with session ID 7\nOutput:\n"),
        output("c3", "exec_command failed: Rejected"),
        output("c4", '{"output":"boo","metadata":{"exit_code":1,"duration_seconds":0.2}}'),
        event("patch_apply_end", call_id="c5", success=False),
        item("custom_tool_call_output", call_id="c5", output="patch failed"),
    )
    metas = [m.meta for m in messages(read_transcript(path)) if m.role == "tool"]
    assert metas == [
        {"exit_code": 2, "duration": 1.5},
        {"duration": 1.0, "running": True},
        {"refused": True},
        {"exit_code": 1, "duration": 0.2},
        {"success": False},
    ]


def test_compaction_and_abort_are_told_by_the_message_after_them(write: Write) -> None:
    path = write(
        META,
        said("user", "one"),
        line("compacted", message="so far", replacement_history=[]),
        said("user", "<turn_aborted>\nThe user interrupted."),
        said("user", "two"),
    )
    told = messages(read_transcript(path))
    assert [m.text for m in told] == ["one", "two"]
    assert told[1].meta == {"compacted": {"summary": "so far"}, "aborted": True}


def test_tokens_are_the_last_total_and_cached_input_is_counted_apart(write: Write) -> None:
    def tokens(n: int) -> dict[str, Any]:
        total = {"input_tokens": 100 * n, "cached_input_tokens": 60 * n, "output_tokens": 7 * n}
        return event("token_count", info={"total_token_usage": total})

    path = write(
        META,
        said("user", "x"),
        tokens(1),
        tokens(2),
        event("thread_name_updated", thread_name="A name"),
    )
    learned = next(e.session for e in read_transcript(path) if isinstance(e, SessionUpdated))
    assert learned.tokens == Tokens(input=80, output=14, cache_read=120)
    assert learned.title == "A name"


def count(number: int, at: str = TIME, prompt: int = 100) -> dict[str, Any]:
    """What Codex counted after so many calls of the same size."""
    total = {"input_tokens": 100 * number, "cached_input_tokens": 60 * number, "output_tokens": 7}
    info = {"total_token_usage": total, "last_token_usage": {"input_tokens": prompt}}
    return {**event("token_count", info=info), "timestamp": at}


def read_usage(path: Path) -> dict[tuple[str, int], int]:
    (end,) = [event for event in read_transcript(path) if isinstance(event, SessionUpdated)]
    return {(entry.model, entry.above): entry.tokens.cache_read for entry in end.usage}


def test_each_call_counts_for_the_model_of_its_turn_and_a_repeated_total_not_at_all(
    write: Write,
) -> None:
    path = write(
        line("session_meta", id="own-id", timestamp=TIME),
        said("user", "x"),
        line("turn_context", model="small"),
        count(1),
        count(1),
        line("turn_context", model="large"),
        count(2, prompt=272_001),
        count(4),
        event("token_count", info=None),
    )
    assert read_usage(path) == {("small", 0): 60, ("large", 272_000): 60, ("large", 0): 120}


def test_a_total_that_starts_again_is_counted_from_there(write: Write) -> None:
    path = write(line("session_meta", id="own-id"), said("user", "x"), count(3), count(1))
    assert read_usage(path) == {("", 0): 180 + 60}


def test_a_fork_counts_only_the_calls_after_its_parents_history(write: Write) -> None:
    meta = line("session_meta", id="019d-5", timestamp=TIME, forked_from_id="019d-1")
    path = write(
        meta,
        event("task_started", turn_id="019d-2"),
        said("user", "x"),
        count(3),
        count(4, "2026-03-01T10:00:09Z"),
        event("task_started", turn_id="019d-6"),
        count(5),
    )
    (end,) = [one for one in read_transcript(path) if isinstance(one, SessionUpdated)]
    assert end.session.tokens.cache_read == 300, "as Codex says"
    assert read_usage(path) == {("", 0): 60}


def test_a_fork_without_ids_of_turns_counts_what_was_written_later(write: Write) -> None:
    path = write(META, said("user", "x"), count(3), count(5, "2026-03-01T10:00:03Z"))
    assert read_usage(path) == {("", 0): 120}
    untouched = write(META, said("user", "x"), count(3), name="untouched.jsonl")
    assert read_usage(untouched) == {("", 0): 0}, "known, so that it does not count as a whole"


def test_a_rollout_without_its_first_line_goes_by_the_name_of_its_file(write: Write) -> None:
    path = write(said("user", "x"), said("assistant", "y"), name="rollout-7.jsonl")
    assert [e.session.id for e in read_transcript(path) if isinstance(e, SessionStarted)] == [
        "rollout-7"
    ]


def test_a_command_that_newer_versions_record_as_an_item_has_its_exit_code(write: Write) -> None:
    command = {"type": "CommandExecution", "id": "c1", "exit_code": 127, "status": "failed"}
    prompt = {"type": "UserMessage", "id": "i1", "content": [{"type": "text", "text": "do it"}]}
    path = write(
        META,
        {**said("user", "do it"), "ordinal": 1},
        event("item_completed", item=prompt),
        ran("c1"),
        event("item_completed", item=command),
        output("c1", "not found"),
    )
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool"]
    assert told[2].meta == {"exit_code": 127}
