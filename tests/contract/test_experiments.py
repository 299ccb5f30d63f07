from __future__ import annotations

import pytest

from rekindle import Message, ToolCall
from rekindle.errors import InvalidInput, NotFound
from rekindle.experiments.experiment import Experiment, build_report, normalize_shares
from rekindle.learning.verdicts import judged_sessions
from rekindle.store import Store

TRIAL = Experiment(
    "Trial 1", normalize_shares({"warm": 1, "cold": 1}), "seed", 1000.0, min_effect=0.02
)


def work(store: Store, id: str, failures: int, calls: int, owner: str = "ada") -> None:
    session = store.begin(id=id, owner=owner)
    for number in range(calls):
        failed = number < failures
        store.append(
            session,
            Message("assistant", None, [ToolCall(f"c{number}", "terminal", '{"command": "make"}')]),
            Message(
                "tool",
                "no" if failed else "yes",
                tool_call_id=f"c{number}",
                meta={"exit_code": 2 if failed else 0},
            ),
        )


def test_an_experiment_comes_back_as_it_was_begun(store: Store) -> None:
    store.experiments.start(TRIAL)
    assert store.experiments.get_running() == TRIAL
    assert store.experiments.get("Trial 1") == TRIAL
    ended = store.experiments.stop("Trial 1")
    assert ended.ended is not None
    assert store.experiments.get_running() is None
    assert store.experiments.list_all() == [ended]
    assert store.experiments.stop("Trial 1") == ended


def test_a_second_experiment_waits_for_the_end_of_the_first(store: Store) -> None:
    store.experiments.start(TRIAL)
    with pytest.raises(InvalidInput, match="'Trial 1' is running"):
        store.experiments.start(TRIAL._replace(name="Trial 2"))
    store.experiments.stop("Trial 1")
    with pytest.raises(InvalidInput, match="another name"):
        store.experiments.start(TRIAL)
    store.experiments.start(TRIAL._replace(name="Trial 2"))
    assert [trial.name for trial in store.experiments.list_all()] == ["Trial 2", "Trial 1"]


def test_an_unknown_experiment_is_named_with_those_there_are(store: Store) -> None:
    with pytest.raises(NotFound, match="There are none yet"):
        store.experiments.get("spring")
    store.experiments.start(TRIAL)
    with pytest.raises(NotFound, match="There are: Trial 1"):
        store.experiments.list_assignments("spring")


def test_sessions_count_as_they_were_drawn_by_their_first_calls(store: Store) -> None:
    store.experiments.start(TRIAL._replace(calls=5))
    trial = store.experiments.get("Trial 1")
    for id, arm, failures, calls in (
        ("long", "warm", 2, 8),
        ("short", "cold", 1, 3),
        ("silent", "cold", 0, 0),
    ):
        store.experiments.record_assignment(trial, id, "ada", arm)
        if calls:
            work(store, id, failures, calls)
    store.end("short", "completed")
    judged_sessions.judge_sessions(store)
    found = {one.session: one for one in store.experiments.list_assignments("Trial 1")}
    assert (found["long"].calls, found["long"].errors, found["long"].complete) == (5, 2, True)
    assert (found["short"].calls, found["short"].errors, found["short"].complete) == (3, 1, True)
    assert found["silent"].deleted
    said = build_report(trial, list(found.values()))
    assert [(arm.arm, arm.assigned, arm.counted) for arm in said.arms] == [
        ("warm", 1, 1),
        ("cold", 2, 1),
    ]


def test_a_session_that_goes_on_is_not_counted_before_its_first_calls_are_done(
    store: Store,
) -> None:
    store.experiments.start(TRIAL)
    store.experiments.record_assignment(TRIAL, "new", None, "warm")
    work(store, "new", 0, 4)
    judged_sessions.judge_sessions(store)
    (one,) = store.experiments.list_assignments("Trial 1")
    assert (one.calls, one.complete, one.owner) == (4, False, None)


def test_the_first_draw_of_a_session_stands(store: Store) -> None:
    store.experiments.start(TRIAL)
    store.experiments.record_assignment(TRIAL, "s", "ada", "warm")
    store.experiments.record_assignment(TRIAL, "s", "ada", "cold")
    assert [one.arm for one in store.experiments.list_assignments("Trial 1")] == ["warm"]


def test_a_deleted_session_is_gone_but_was_drawn(store: Store) -> None:
    store.experiments.start(TRIAL)
    store.experiments.record_assignment(TRIAL, "s", "ada", "warm")
    (one,) = store.experiments.list_assignments("Trial 1")
    assert one.deleted
    assert not one.given
