"""Judging what the store holds: everything once, then only what is new."""

from __future__ import annotations

import pytest

from rekindle import Message, Store, ToolCall
from rekindle.judging import judge
from rekindle.learning.verdicts import judged_sessions, session_readers
from tests.contract.messages import answer, user


def asked(id: str, command: str = "make") -> Message:
    return Message("assistant", tool_calls=[ToolCall(id, "terminal", {"command": command})])


def came(id: str, text: str, code: int = 0) -> Message:
    return Message("tool", text, tool_call_id=id, name="terminal", meta={"exit_code": code})


def verdicts(store: Store) -> list[tuple[str, str]]:
    return [
        (call.id, call.outcome)
        for one in judged_sessions.iter_judged_sessions(store)
        for call in one.calls
    ]


def test_calls_are_judged_once_and_kept(store: Store) -> None:
    session = store.begin()
    store.append(session, user("go"), asked("a"), came("a", "done"), asked("b"), came("b", "", 2))
    assert judged_sessions.judge_sessions(store) == 2
    assert judged_sessions.judge_sessions(store) == 0
    assert verdicts(store) == [("a", "ok"), ("b", "error")]


def test_only_what_is_new_is_judged_again(store: Store) -> None:
    session = store.begin()
    store.append(session, user("go"), *(m for n in "abcdef" for m in (asked(n), came(n, "fine"))))
    judged_sessions.judge_sessions(store)
    store.append(session, answer("so far"), asked("g"))
    assert judged_sessions.judge_sessions(store) == 1
    assert verdicts(store)[-1] == ("g", "unknown")
    store.append(session, came("g", "", 1))
    assert judged_sessions.judge_sessions(store) == 1, "the call that waited, and no other"
    assert verdicts(store)[-1] == ("g", "error")
    store.rename(session.id, "another name")
    assert judged_sessions.judge_sessions(store) == 0
    assert len(verdicts(store)) == 7


def test_other_rules_judge_everything_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    session = store.begin()
    store.append(session, user("go"), asked("a"), came("a", "done"))
    assert judged_sessions.judge_sessions(store) == 1
    monkeypatch.setattr(judged_sessions, "RULES_VERSION", f"{judge.RULES_VERSION}+")
    assert judged_sessions.judge_sessions(store) == 1


def test_what_was_undone_does_not_count(store: Store) -> None:
    session = store.begin()
    store.append(session, user("go"), asked("a"), came("a", "", 1))
    store.append(session, user("again"), asked("b"), came("b", "done"))
    judged_sessions.judge_sessions(store)
    store.undo(session)
    assert verdicts(store) == [("a", "error")]
    store.redo(session)
    assert verdicts(store) == [("a", "error"), ("b", "ok")]


def test_a_long_session_is_read_in_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_readers, "PAGE_SIZE", 3)
    monkeypatch.setattr(judged_sessions, "CALLS_PER_COMMIT", 4)
    for name in "xy":
        session = store.begin(id=name)
        store.append(session, user("go"), *(asked(f"{name}{n}") for n in range(10)))
        store.append(session, *(came(f"{name}{n}", "fine") for n in range(10)))
    assert judged_sessions.judge_sessions(store) == 20
    assert {verdict for _, verdict in verdicts(store)} == {"ok"}


def test_a_compression_is_found_where_the_history_was_replaced(store: Store) -> None:
    session = store.begin()
    store.append(session, user("go"), asked("a"), came("a", "done"))
    store.append(session, Message("user", "on", meta={"compacted": {"summary": "…"}}), asked("b"))
    assert judged_sessions.load_judged_session(store, session.id).compressions == (3,)
    store.append(session, came("b", "done"))
    assert judged_sessions.load_judged_session(store, session.id).compressions == (3,)
