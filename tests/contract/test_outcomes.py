"""What is kept about calls: read back as it was, and renewed where there is something new."""

from __future__ import annotations

from typing import Any

from rekindle import Store
from rekindle.store import Filter
from rekindle.store.learning.outcomes import JudgedCalls
from rekindle.types import JudgedCall
from tests.conftest import Clock
from tests.contract.messages import call, result, started, turns, user


def made(session: str, position: int, **fields: Any) -> JudgedCall:
    known: dict[str, Any] = {
        "number": 0,
        "id": "call_1",
        "tool": "terminal",
        "kind": "terminal",
        "digest": -(2**62),
        "outcome": "ok",
        "failed": False,
        "error_kind": None,
        "fault": None,
        "rule": "exit code",
        "confidence": 0.99,
    }
    return JudgedCall(session=session, position=position, **{**known, **fields})


def keep(store: Store, session: str, *calls: JudgedCall, since: int, rules: str = "1") -> None:
    (due,) = store.find_stale_sessions(rules, session=session)
    store.save_verdicts(rules, [JudgedCalls(due, calls, since, [3])])


def worked(store: Store, **fields: Any) -> str:
    session = store.begin(**fields)
    store.append(session, user("go"), call("terminal"), result("done"))
    return session.id


def test_calls_come_back_as_they_were_judged(store: Store) -> None:
    id = worked(store)
    calls = (
        made(id, 1, duration=1.5, result_position=2),
        made(id, 1, number=1, id="\ud800", tool="a\0b", outcome="unknown", failed=None),
        made(id, 4, outcome="error", failed=True, error_kind="path", fault="agent"),
    )
    keep(store, id, *calls, since=3)
    (judged,) = store.iter_judged_sessions()
    assert judged.session == store.session(id)
    assert judged.calls == calls
    assert judged.compressions == (3,)


def test_messages_are_loaded_by_position_unless_they_were_taken_back(store: Store) -> None:
    session = store.begin()
    store.append(session, user("go"), call("terminal"), result("done"), user("again"))
    store.undo(session)
    found = store.load_messages_at(session.id, [2, 1, 3, 99])
    assert {position: one.role for position, one in found.items()} == {1: "assistant", 2: "tool"}
    assert store.load_messages_at("unknown", [1]) == {}


def test_a_judged_session_is_not_due_until_it_changes_or_the_rules_do(store: Store) -> None:
    id = worked(store)
    assert [due.session for due in store.find_stale_sessions("1")] == [id]
    keep(store, id, made(id, 1), since=3)
    assert store.find_stale_sessions("1") == []
    assert [(due.since, due.compressions) for due in store.find_stale_sessions("2")] == [(0, ())]
    store.append(id, user("more"))
    assert [(due.since, due.compressions) for due in store.find_stale_sessions("1")] == [(3, ())]


def test_what_was_judged_before_stays_and_what_is_judged_again_is_replaced(store: Store) -> None:
    id = worked(store)
    keep(store, id, made(id, 1), made(id, 5, outcome="unknown", failed=None), since=5)
    store.append(id, *turns("more"))
    keep(store, id, made(id, 5, outcome="error", failed=True), since=6)
    (judged,) = store.iter_judged_sessions(session=id)
    assert [(each.position, each.outcome) for each in judged.calls] == [(1, "ok"), (5, "error")]


def test_a_rewind_makes_everything_due_again_and_so_does_taking_it_back(store: Store) -> None:
    id = worked(store)
    for change in (store.undo, store.redo):
        keep(store, id, made(id, 1), since=3)
        change(id)
        assert [due.since for due in store.find_stale_sessions("1")] == [0]


def test_sessions_come_in_the_order_of_their_start_and_as_the_filter_says(store: Store) -> None:
    late = worked(store, started=2_000.0, source="b")
    early = worked(store, started=1_000.0, source="a")
    for id in (late, early):
        keep(store, id, made(id, 1), since=3)
    started(store, started=3_000.0, source="a")
    found = [(each.session.id, len(each.calls)) for each in store.iter_judged_sessions()]
    assert found[:2] == [(early, 1), (late, 1)]
    assert found[2][1] == 0
    assert [each.session.id for each in store.iter_judged_sessions(Filter(source="b"))] == [late]
    assert [due.session for due in store.find_stale_sessions("1", Filter(source="b"))] == []


def test_repair_throws_judgements_away_and_a_purge_takes_them_with_the_session(
    store: Store,
) -> None:
    id = worked(store)
    keep(store, id, made(id, 1), since=3)
    store.repair()
    assert [judged.calls for judged in store.iter_judged_sessions()] == [()]
    assert len(store.find_stale_sessions("1")) == 1
    keep(store, id, made(id, 1), since=3)
    store.end(id, "done")
    store.prune(Filter())
    assert store.purge(older_than=-1) == 1
    assert list(store.iter_judged_sessions()) == []
    assert store.verify() == []


def test_a_session_that_went_away_while_it_was_judged_is_passed_over(store: Store) -> None:
    id = worked(store)
    (due,) = store.find_stale_sessions("1")
    store.end(id, "done")
    store.prune(Filter())
    store.purge(older_than=-1)
    store.save_verdicts("1", [JudgedCalls(due, [made(id, 1)], 3, [])])
    assert list(store.iter_judged_sessions()) == []


def test_sessions_are_found_by_failed_calls_which_are_counted(store: Store) -> None:
    clean, broken, unjudged = worked(store), worked(store), worked(store)
    keep(store, clean, made(clean, 1), since=3)
    failures = [made(broken, 1, number=at, outcome="error", failed=True) for at in range(2)]
    keep(store, broken, *failures, made(broken, 1, number=2, failed=None), since=3)
    assert store.count_errors([clean, broken, unjudged, "missing"]) == {broken: 2}
    assert [one.id for one in store.recent(where=Filter.parse("errors=yes"))] == [broken]
    assert {one.id for one in store.recent(where=Filter.parse("errors=no"))} == {clean, unjudged}


def test_failed_calls_are_counted_by_project_without_what_a_fork_repeats(
    store: Store, clock: Clock
) -> None:
    id = worked(store)
    store.update(id, cwd="/w/api")
    keep(store, id, made(id, 1, failed=True), made(id, 1, number=1, failed=None), since=3)
    fork = store.fork(id).id
    keep(store, fork, made(fork, 1, failed=True), made(fork, 9, kind="bookkeeping"), since=3)
    assert store.count_calls(0.0) == [("folder:/w/api", id, 1, 1, 1)]
    keep(store, fork, made(fork, 1, failed=True), made(fork, 9), since=3, rules="2")
    assert store.count_calls(0.0) == [("folder:/w/api", id, 2, 1, 2)]
    assert store.count_calls(clock.now + 1) == []
