"""Judging what the store holds: everything once, then only what is new."""

from __future__ import annotations

import time

import pytest

from rekindle import Message, Store, ToolCall
from rekindle.judging import judge
from rekindle.learning import miner
from rekindle.redaction.redactor import Redactor
from tests.contract.messages import answer, user


def asked(id: str, command: str = "make") -> Message:
    return Message("assistant", tool_calls=[ToolCall(id, "terminal", {"command": command})])


def came(id: str, text: str, code: int = 0) -> Message:
    return Message("tool", text, tool_call_id=id, name="terminal", meta={"exit_code": code})


def verdicts(store: Store) -> list[tuple[str, str]]:
    return [
        (call.id, call.outcome) for one in miner.iter_judged_sessions(store) for call in one.calls
    ]


def test_calls_are_judged_once_and_kept(store: Store) -> None:
    session = store.begin()
    store.append(session, user("go"), asked("a"), came("a", "done"), asked("b"), came("b", "", 2))
    assert miner.judge_sessions(store) == 2
    assert miner.judge_sessions(store) == 0
    assert verdicts(store) == [("a", "ok"), ("b", "error")]


def test_only_what_is_new_is_judged_again(store: Store) -> None:
    session = store.begin()
    store.append(session, user("go"), *(m for n in "abcdef" for m in (asked(n), came(n, "fine"))))
    miner.judge_sessions(store)
    store.append(session, answer("so far"), asked("g"))
    assert miner.judge_sessions(store) == 1
    assert verdicts(store)[-1] == ("g", "unknown")
    store.append(session, came("g", "", 1))
    assert miner.judge_sessions(store) == 1, "the call that waited, and no other"
    assert verdicts(store)[-1] == ("g", "error")
    store.rename(session.id, "another name")
    assert miner.judge_sessions(store) == 0
    assert len(verdicts(store)) == 7


def test_other_rules_judge_everything_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    session = store.begin()
    store.append(session, user("go"), asked("a"), came("a", "done"))
    assert miner.judge_sessions(store) == 1
    monkeypatch.setattr(miner, "RULES_VERSION", f"{judge.RULES_VERSION}+")
    assert miner.judge_sessions(store) == 1


def test_what_was_undone_does_not_count(store: Store) -> None:
    session = store.begin()
    store.append(session, user("go"), asked("a"), came("a", "", 1))
    store.append(session, user("again"), asked("b"), came("b", "done"))
    miner.judge_sessions(store)
    store.undo(session)
    assert verdicts(store) == [("a", "error")]
    store.redo(session)
    assert verdicts(store) == [("a", "error"), ("b", "ok")]


def test_a_long_session_is_read_in_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(miner, "PAGE_SIZE", 3)
    monkeypatch.setattr(miner, "CALLS_PER_COMMIT", 4)
    for name in "xy":
        session = store.begin(id=name)
        store.append(session, user("go"), *(asked(f"{name}{n}") for n in range(10)))
        store.append(session, *(came(f"{name}{n}", "fine") for n in range(10)))
    assert miner.judge_sessions(store) == 20
    assert {verdict for _, verdict in verdicts(store)} == {"ok"}


def test_a_compression_is_found_where_the_history_was_replaced(store: Store) -> None:
    session = store.begin()
    store.append(session, user("go"), asked("a"), came("a", "done"))
    store.append(session, Message("user", "on", meta={"compacted": {"summary": "…"}}), asked("b"))
    assert miner.load_judged_session(store, session.id).compressions == (3,)
    store.append(session, came("b", "done"))
    assert miner.load_judged_session(store, session.id).compressions == (3,)


def test_a_pattern_tells_the_request_that_a_yes_was_said_to(store: Store) -> None:
    for name in "xy":
        session = store.begin(id=name)
        store.append(session, user("Build the manual of the crane"), answer("With make?"))
        for _ in range(3):
            store.append(session, user("Or paint the fence"), answer("Which colour?"))
            store.undo(session)
        run = "make manual STRICT=1"
        store.append(session, user("yes please"), asked(name, run), came(name, "built"))
        store.append(session, answer("Built."), user("Count the boats in the harbour"))
    wanted = miner.MiningFilter(min_messages=1)
    found = miner.mine_sessions(store, Redactor(), wanted, now=time.time()).patterns
    assert {one.asked for one in found} == {"Build the manual of the crane"}
