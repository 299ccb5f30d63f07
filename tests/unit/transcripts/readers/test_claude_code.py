from __future__ import annotations

from pathlib import Path
from typing import Any

from rekindle.transcripts import (
    SessionStarted,
    SessionUpdated,
    UnreadableEntry,
    detect_format,
    read_transcript,
)
from rekindle.types import Message, Tokens, UsageEntry
from tests.unit.transcripts.conftest import Claude, Write, call, messages, said, thought


def test_lines_of_one_answer_become_one_message(write: Write) -> None:
    c = Claude()
    path = write(
        c.prompt("hello"),
        c.answer("msg_1", thought("hm")),
        c.answer("msg_1", said("I look.")),
        c.answer("msg_1", call("t1", command="ls")),
        c.result("t1", "a.txt"),
        c.answer("msg_1", call("t2", command="pwd")),
        c.result("t2", "/work"),
    )
    told = messages(read_transcript(path))
    assert [message.role for message in told] == ["user", "assistant", "tool", "tool"]
    answer = told[1]
    assert answer.reasoning == "hm"
    assert answer.content == "I look."
    assert [(c.id, c.name, c.arguments) for c in answer.tool_calls] == [
        ("t1", "Bash", {"command": "ls"}),
        ("t2", "Bash", {"command": "pwd"}),
    ]
    assert [m.tool_call_id for m in told[2:]] == ["t1", "t2"]
    assert told[2].name == "Bash"


def test_an_answer_goes_on_after_another_answer_and_after_a_prompt(write: Write) -> None:
    c = Claude()
    path = write(
        c.answer("msg_1", said("one")),
        c.answer("msg_2", said("two")),
        c.answer("msg_1", call("t1")),
        c.result("t1", "done"),
        c.prompt("typed meanwhile"),
        c.answer("msg_2", call("t2")),
        c.result("t2", "done too"),
    )
    told = messages(read_transcript(path))
    assert [m.platform_message_id for m in told if m.role == "assistant"] == ["msg_1", "msg_2"]
    assert [m.text for m in told] == ["one", "done", "two", "done too", "typed meanwhile"]


def test_usage_counts_once_per_answer_and_the_last_line_is_right(write: Write) -> None:
    c = Claude()
    path = write(
        c.answer("msg_1", said("a"), output=1),
        c.answer("msg_1", call("t1"), output=25),
        c.answer("msg_2", said("b"), output=5),
    )
    learned = [event for event in read_transcript(path) if isinstance(event, SessionUpdated)]
    assert learned[0].session.tokens == Tokens(input=6, output=30, cache_read=200)


def used(written: int, hourly: int, model: str = "claude-x") -> dict[str, Any]:
    return {
        "id": f"msg_{model}_{written}",
        "role": "assistant",
        "model": model,
        "content": [said("x")],
        "usage": {
            "input_tokens": 3,
            "output_tokens": 5,
            "cache_read_input_tokens": 200_000,
            "cache_creation_input_tokens": written,
            "cache_creation": {"ephemeral_1h_input_tokens": hourly},
        },
    }


def read_entries(path: Path) -> list[UsageEntry]:
    (end,) = [event for event in read_transcript(path) if isinstance(event, SessionUpdated)]
    return [*end.usage]


def test_entries_tell_when_which_model_used_what_and_what_was_cached_for_an_hour(
    write: Write,
) -> None:
    c = Claude()
    path = write(
        c.prompt("hello"),
        c.line("assistant", used(10, 4), timestamp="2026-03-01T10:14:59.999Z"),
        c.line("assistant", used(20, 99), timestamp="2026-03-01T10:00:00Z"),
        c.line("assistant", used(30, 0, "claude-y"), timestamp="2026-03-01T10:15:00Z"),
    )
    quarter = 1772359200 // 900
    common = {"input": 3, "output": 5, "cache_read": 200_000}
    assert read_entries(path) == [
        UsageEntry(
            quarter,
            "claude-x",
            Tokens(input=6, output=10, cache_read=400_000, cache_write=30),
            cache_write_1h=24,
            above=200_000,
        ),
        UsageEntry(quarter + 1, "claude-y", Tokens(**common, cache_write=30), above=200_000),
    ]


def test_an_answer_that_is_continued_later_counts_once(write: Write) -> None:
    c = Claude()
    others = [c.answer(f"msg_{n}", said(str(n)), output=0) for n in range(2, 6)]
    again = c.answer("msg_1", call("t9"), output=12)
    path = write(c.answer("msg_1", said("1"), output=10), *others, again)
    (entry,) = read_entries(path)
    assert entry.tokens == Tokens(input=5 * 3, output=12, cache_read=5 * 100)


def test_what_a_fork_repeats_of_its_parent_is_not_its_own_usage(write: Write) -> None:
    c = Claude()
    origin = {"forkedFrom": {"sessionId": "parent", "messageUuid": "u"}}
    path = write(
        c.prompt("go", **origin),
        c.answer("msg_1", said("x"), **origin),
        c.answer("msg_2", said("y"), output=7),
    )
    (end,) = [event for event in read_transcript(path) if isinstance(event, SessionUpdated)]
    assert end.session.tokens == Tokens(input=6, output=17, cache_read=200)
    assert [entry.tokens for entry in end.usage] == [Tokens(input=3, output=7, cache_read=100)]


def test_answers_that_a_resumed_session_wrote_again_are_not_told_again(write: Write) -> None:
    c = Claude()
    first = [c.prompt("go"), c.answer("msg_1", said("x"), call("t1")), c.result("t1", "r")]
    again = [c.answer("msg_1", said("x"), call("t1")), c.result("t1", "r")]
    between = [c.answer(f"msg_{n}", said(str(n))) for n in range(2, 6)]
    told = messages(read_transcript(write(*first, *between, *again)))
    assert [m.text for m in told] == ["go", "x", "r", "2", "3", "4", "5"]


def test_a_call_of_an_answer_that_is_long_over_is_kept(write: Write) -> None:
    c = Claude()
    others = [c.answer(f"msg_{n}", said(str(n))) for n in range(2, 6)]
    told = messages(
        read_transcript(write(c.answer("msg_1", said("1")), *others, c.answer("msg_1", call("t9"))))
    )
    assert told[-1].platform_message_id == "msg_1+t9"
    assert told[-1].tool_calls[0].id == "t9"


def test_injected_lines_progress_and_bookkeeping_are_no_messages(write: Write) -> None:
    c = Claude()
    path = write(
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        c.prompt("Caveat: …", isMeta=True),
        c.prompt("real"),
        c.line("progress", None, data={"type": "agent_progress"}),
        c.line("system", None, subtype="turn_duration", durationMs=5),
        c.line("queue-operation", None),
    )
    assert [m.text for m in messages(read_transcript(path))] == ["real"]


def test_a_sub_agent_is_a_session_of_its_own_below_its_parent(write: Write) -> None:
    c = Claude("parent-id")
    path = write(
        c.prompt("spawn one"),
        c.answer("msg_1", call("t1", "Task")),
        c.prompt("do it", isSidechain=True, agentId="a1"),
        c.answer("msg_s", said("did it"), isSidechain=True, agentId="a1"),
        c.result("t1", "did it", toolUseResult={"agentId": "a1", "totalDurationMs": 1500}),
    )
    events = list(read_transcript(path))
    opened = {e.session.id: e.session for e in events if isinstance(e, SessionStarted)}
    assert set(opened) == {"parent-id", "agent-a1@parent-id"}
    assert opened["agent-a1@parent-id"].parent == "parent-id"
    whose: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, SessionStarted):
            current = event.session.id
        elif isinstance(event, Message):
            whose.setdefault(current, []).append(event.text)
    assert whose == {
        "parent-id": ["spawn one", "", "did it"],
        "agent-a1@parent-id": ["do it", "did it"],
    }
    result = next(m for m in messages(events) if m.role == "tool")
    assert result.meta == {"is_error": False, "agent": "a1", "duration": 1.5}


def test_old_sidechains_without_agent_ids_are_told_apart_by_their_roots(write: Write) -> None:
    c = Claude()
    side = {"isSidechain": True}
    path = write(
        c.prompt("one", uuid="r1", **side),
        c.prompt("two", uuid="r2", **side),
        c.answer("m1", said("to one"), uuid="r1a", parentUuid="r1", **side),
        c.answer("m2", said("to two"), uuid="r2a", parentUuid="r2", **side),
    )
    opened = {e.session.id for e in read_transcript(path) if isinstance(e, SessionStarted)}
    assert opened == {f"sidechain-r1@{c.session}", f"sidechain-r2@{c.session}"}


def test_a_compaction_is_told_by_the_message_after_it(write: Write) -> None:
    c = Claude()
    about = {"trigger": "auto", "preTokens": 167000}
    path = write(
        c.answer("msg_1", said("before")),
        c.line("system", None, subtype="compact_boundary", compactMetadata=about),
        c.prompt("what happened so far", isCompactSummary=True),
        c.prompt("go on"),
    )
    told = messages(read_transcript(path))
    assert [m.text for m in told] == ["before", "go on"]
    assert told[1].meta == {
        "compacted": {
            "trigger": "auto",
            "tokens_before": 167000,
            "summary": "what happened so far",
        }
    }


def test_what_the_protocol_says_about_a_result_is_kept(write: Write) -> None:
    c = Claude()
    path = write(
        c.answer("msg_1", call("t1"), call("t2"), call("t3")),
        c.result("t1", "Exit code 127\nnot found", error=True, toolUseResult="Error: …"),
        c.result("t2", "ok", toolUseResult={"stdout": "ok", "interrupted": True}),
        c.result("t3", "no", error=True, toolDenialKind="user"),
    )
    metas = [m.meta for m in messages(read_transcript(path)) if m.role == "tool"]
    assert metas == [
        {"is_error": True, "exit_code": 127},
        {"is_error": False, "interrupted": True},
        {"is_error": True, "denial": "user"},
    ]


def test_the_title_is_that_of_a_summary_of_a_line_in_this_file(write: Write) -> None:
    c = Claude()
    first = c.prompt("x")
    path = write(
        {"type": "summary", "summary": "of another session", "leafUuid": "elsewhere"},
        {"type": "summary", "summary": "of this one", "leafUuid": first["uuid"]},
        first,
    )
    learned = [e for e in read_transcript(path) if isinstance(e, SessionUpdated)]
    assert [e.session.title for e in learned] == ["of this one"]
    write({"type": "summary", "summary": "newer", "leafUuid": first["uuid"]}, append=True)
    assert [e.session.title for e in read_transcript(path) if isinstance(e, SessionUpdated)] == [
        "newer"
    ]
    custom = {"type": "custom-title", "customTitle": "mine", "sessionId": c.session}
    made_up = {"type": "ai-title", "aiTitle": "theirs", "sessionId": c.session}
    write(custom, made_up, append=True)
    assert [e.session.title for e in read_transcript(path) if isinstance(e, SessionUpdated)] == [
        "mine"
    ]


def test_the_session_knows_where_and_when_it_was(write: Write) -> None:
    c = Claude("an-id")
    learned = [
        e for e in read_transcript(write(c.answer("m", said("x")))) if isinstance(e, SessionUpdated)
    ]
    session = learned[0].session
    assert (session.id, session.source, session.model) == ("an-id", "claude-code", "claude-x")
    assert (session.cwd, session.git_branch, session.started) == ("/work", "main", 1772359201.5)


def test_damaged_lines_are_located_and_the_others_survive(write: Write) -> None:
    c = Claude()
    path = write(
        "// a comment is no damage",
        "",
        c.prompt("one"),
        '{"type": "user", "message": {"content": "cut in the mid',
        "[1, 2]",
        c.prompt("two \u2028 is no end of a line"),
        b'{"type":"user","sessionId":"' + c.session.encode() + b'","uuid":"u9",'
        b'"message":{"content":"half an emoji \\ud83d, a bad byte \xff"}}',
    )
    assert detect_format(path) is not None
    events = list(read_transcript(path))
    assert [(e.line, e.file) for e in events if isinstance(e, UnreadableEntry)] == [
        (4, str(path)),
        (5, str(path)),
    ]
    texts = [m.text for m in messages(events)]
    assert texts == [
        "one",
        "two \u2028 is no end of a line",
        "half an emoji \ud83d, a bad byte \ufffd",
    ]


def test_orphans_masked_ids_and_pictures_come_through(write: Write) -> None:
    c = Claude()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0"}}
    path = write(
        c.result("nobody-asked", "an orphan"),
        c.result("REDACTED", "first"),
        c.result("REDACTED", "second"),
        c.prompt([said("look"), image]),
    )
    told = messages(read_transcript(path))
    assert [m.text for m in told] == ["an orphan", "first", "second", "look"]
    assert len({m.platform_message_id for m in told}) == 4
    assert told[3].content[1] == {
        "type": "image_url",
        "image_url": {"url": "data:image/gif;base64,R0"},
    }


def test_a_result_is_told_whatever_stands_beside_it(write: Write) -> None:
    c = Claude()
    beside: list[object] = ["Error: no", ["part"], 7, 0.5, True, None, {"durationMs": 1500}]
    lines = [{**c.result(f"t{n}", "done"), "toolUseResult": it} for n, it in enumerate(beside)]
    told = messages(read_transcript(write(*lines)))
    assert [message.text for message in told] == ["done"] * len(beside)
    assert (told[-1].meta or {}).get("duration") == 1.5


def test_lines_that_repeat_messages_for_bookkeeping_are_not_messages(write: Write) -> None:
    claude = Claude()
    prompt = claude.prompt("do it")
    blob = {"role": "user", "content": [{"type": "text", "text": "do it"}]}
    session = {"sessionId": claude.session}
    path = write(
        {"type": "queue-operation", "operation": "enqueue", "content": "do it", **session},
        {**claude.line("attachment", None), "attachment": {"type": "hook_success"}},
        prompt,
        {"type": "api-request-shape", "shape": {"system": []}, **session},
        {"type": "api-request-blob", "hash": "h", "message": blob, **session},
        {"type": "api-request", "id": "r", **session},
        claude.answer("m1", said("Done.")),
        {"type": "last-prompt", "lastPrompt": "do it", **session},
        {"type": "tools-used", "tools": [], **session},
        {"type": "cost-state", "totalCostUSD": 0.1, **session},
    )
    assert [m.content for m in messages(read_transcript(path))] == ["do it", "Done."]


def test_what_a_harness_told_the_model_is_kept_beside_the_next_message(write: Write) -> None:
    claude = Claude()
    path = write(
        claude.prompt("Base directory for this skill: /x", isMeta=True),
        {**claude.line("attachment", None), "attachment": {"type": "file", "content": ["run x"]}},
        claude.prompt("do it"),
        claude.answer("m1", said("Done.")),
    )
    first, answer = messages(read_transcript(path))
    assert first.content == "do it"
    told = ["Base directory for this skill: /x", "file\nrun x"]
    assert (first.meta or {}).get("injected") == told
    assert "injected" not in (answer.meta or {})


def read_branches(write: Write, *lines: Any) -> tuple[list[str], frozenset[str]]:
    """The ids of a file's messages in order, and of those on branches left behind."""
    events = [*read_transcript(write(*lines))]
    ids = [one.platform_message_id or "" for one in events if isinstance(one, Message)]
    (updated,) = [one for one in events if isinstance(one, SessionUpdated)]
    return ids, updated.abandoned


def test_a_prompt_that_was_edited_and_its_answer_are_left_behind(
    write: Write,
) -> None:
    c = Claude("s")
    first = c.prompt("start")
    reply = c.answer("m1", said("ok"), parentUuid=first["uuid"])
    old = c.prompt("old way", parentUuid=reply["uuid"])
    old_reply = c.answer("m2", call("t1"), parentUuid=old["uuid"])
    old_result = c.result("t1", "x", parentUuid=old_reply["uuid"])
    note = c.line("system", None, subtype="turn_duration", parentUuid=reply["uuid"])
    new = c.prompt("new way", parentUuid=note["uuid"])
    new_reply = c.answer("m3", said("done"), parentUuid=new["uuid"])
    ids, left = read_branches(write, first, reply, old, old_reply, old_result, note, new, new_reply)
    assert ids == [first["uuid"], "m1", old["uuid"], "m2", "t1", new["uuid"], "m3"]
    assert left == {old["uuid"], "m2", "t1"}


def test_parallel_calls_and_prompts_beside_answers_are_no_branches(
    write: Write,
) -> None:
    c = Claude("s")
    first = c.prompt("start")
    one = c.answer("m1", call("t1"), parentUuid=first["uuid"])
    two = c.answer("m1", call("t2"), parentUuid=one["uuid"])
    result = c.result("t1", "x", parentUuid=one["uuid"])
    other = c.result("t2", "y", parentUuid=two["uuid"])
    aside = c.prompt("/exit", parentUuid=other["uuid"])
    reply = c.answer("m2", said("done"), parentUuid=other["uuid"])
    assert read_branches(write, first, one, two, result, other, aside, reply)[1] == frozenset()


def test_a_copied_prompt_and_a_cleared_context_leave_nothing_behind(
    write: Write,
) -> None:
    c = Claude("s")
    first = c.prompt("start")
    reply = c.answer("m1", said("ok"), parentUuid=first["uuid"])
    asked = c.prompt("go on", parentUuid=reply["uuid"])
    copy = c.prompt("go on", parentUuid=reply["uuid"], timestamp=asked["timestamp"])
    fresh = c.prompt("Implement the following plan: x")
    done = c.answer("m2", said("done"), parentUuid=fresh["uuid"])
    assert read_branches(write, first, reply, asked, copy, fresh, done)[1] == frozenset()


def test_a_compaction_continues_the_branch_before_it(write: Write) -> None:
    c = Claude("s")
    first = c.prompt("start")
    reply = c.answer("m1", said("ok"), parentUuid=first["uuid"])
    old = c.prompt("old", parentUuid=reply["uuid"])
    new = c.prompt("new", parentUuid=reply["uuid"])
    boundary = c.line("system", None, subtype="compact_boundary", logicalParentUuid=new["uuid"])
    done = c.answer("m2", said("done"), parentUuid=boundary["uuid"])
    assert read_branches(write, first, reply, old, new, boundary, done)[1] == {old["uuid"]}
