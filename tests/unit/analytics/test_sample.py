"""Which calls count, and once each."""

import pytest

from rekindle.analytics.sample import collect_sample, is_continuation, is_unique_id
from rekindle.types import JudgedCall, JudgedSession, Session
from tests.unit.analytics.synthetic_sessions import call, judged


@pytest.mark.parametrize(
    "call_id",
    [
        "toolu_01A09q90qw90lq917835lq9",
        "call_abc123DEF456ghi789JKL012",
        "chatcmpl-tool-0f3a9c1b7d2e4f60",
        "read_file-1764329584123-0",
        "0198c2f0-1a2b-7c3d-8e4f-000a0b0c0d0e",
        "D681PevKs",
    ],
)
def test_random_ids_tell_one_call_from_another(call_id: str) -> None:
    assert is_unique_id(call_id)


@pytest.mark.parametrize(
    "call_id",
    ["", "1", "call_1", "call_12345", "REDACTED", "functions.read_file:0", "tool-call-17", "step3"],
)
def test_ids_that_count_or_are_masked_do_not(call_id: str) -> None:
    assert not is_unique_id(call_id)


def copied(name: str, ids: list[str], **session: object) -> JudgedSession:
    calls = tuple(
        call(number, number == 0, session=name, id=id, digest=7) for number, id in enumerate(ids)
    )
    made = Session(id=name, message_count=len(ids) * 2, **session)  # pyright: ignore[reportArgumentType]
    return JudgedSession(made, calls)


A, B, C = "toolu_01A09q90qw90lq91", "toolu_01B7xY2kP0aQ9zR4", "toolu_01C3mN8vL5tW1uE6"


def test_a_call_that_a_resumed_session_repeats_counts_once() -> None:
    sample = collect_sample([copied("first", [A, B]), copied("resumed", [A, B, C])])
    assert sample.totals.calls == 5
    assert sample.totals.copies == 2
    assert sample.totals.judged == 3
    assert [len(track.failed) for track in sample.tracks] == [2, 1]
    assert [track.is_whole for track in sample.tracks] == [True, False]
    assert sample.tracks[1].places == [3]
    assert sample.families[0] == sample.families[1]


def test_the_same_id_with_other_arguments_is_another_call() -> None:
    other = copied("second", [A])
    changed = tuple(one._replace(digest=8) for one in other.calls)
    sample = collect_sample([copied("first", [A]), other._replace(calls=changed)])
    assert sample.totals.copies == 0


def test_counting_ids_are_copies_only_in_a_fork_of_that_session() -> None:
    plain = collect_sample([copied("first", ["call_1"]), copied("second", ["call_1"])])
    assert plain.totals.copies == 0
    fork = copied("fork", ["call_1", "call_2"], parent="first", forked_at=3)
    agent = copied("agent", ["call_1"], parent="first")
    found = collect_sample([copied("first", ["call_1"]), agent, fork])
    assert found.totals.copies == 1
    assert [track.is_whole for track in found.tracks] == [True, True, False]


def test_a_repeated_call_inside_one_session_is_no_copy() -> None:
    assert collect_sample([copied("first", [A, A])]).totals.copies == 0


def test_relatives_are_one_family_even_if_the_parent_is_elsewhere() -> None:
    sample = collect_sample(
        [
            judged("one", [False], parent="away"),
            judged("two", [False], parent="away"),
            judged("grandchild", [False], parent="two"),
            judged("stranger", [False]),
        ]
    )
    assert len(set(sample.families[:3])) == 1
    assert sample.families[3] != sample.families[0]


def test_what_is_left_out_is_counted() -> None:
    calls = (
        call(0, True, fault="agent", kind="missing-file"),
        call(1, True, fault="environment"),
        call(2, None, outcome="refused", kind="declined"),
        call(3, True, outcome="expected"),
        call(4, True),
        call(5, False, outcome="expected"),
        call(6, None),
        call(7, False, ("TodoWrite", "bookkeeping")),
    )
    totals = collect_sample([JudgedSession(Session(id="s", message_count=17), calls)]).totals
    assert totals._asdict() == {
        "sessions": 1,
        "with_calls": 1,
        "messages": 17,
        "calls": 8,
        "copies": 0,
        "bookkeeping": 1,
        "unknown": 1,
        "refused": 1,
        "judged": 5,
        "failed": 4,
        "agent": 1,
        "environment": 1,
        "expected": 1,
        "other": 1,
        "not_failed_but_expected": 1,
    }


def test_the_calls_of_the_last_message_are_set_apart() -> None:
    calls: list[JudgedCall] = [call(0), call(1), call(2, position=9), call(3, True, position=9)]
    assert collect_sample([JudgedSession(Session(id="s"), tuple(calls))]).tracks[0].early == 2


def test_a_child_goes_on_after_a_compression_only_if_it_began_when_its_parent_ended() -> None:
    parent = Session(id="p", started=0, ended=100.0, end_reason="compression")
    assert is_continuation(parent, Session(id="c", parent="p", started=100.2))
    assert not is_continuation(parent, Session(id="sub-agent", parent="p", started=40.0))
    assert not is_continuation(parent, Session(id="fork", parent="p", forked_at=3, started=101.0))
    assert not is_continuation(
        parent._replace(end_reason="done"), Session(id="c", parent="p", started=101)
    )
