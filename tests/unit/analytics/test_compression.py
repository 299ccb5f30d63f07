"""Right before and right after a compression."""

import random

import pytest

from rekindle.analytics.claims import NOT_ENOUGH
from rekindle.analytics.compression import (
    KEPT,
    NOT_KEPT,
    check_compressions,
    find_compressions,
    find_conversation_chain,
    summarize_compressions,
)
from rekindle.analytics.groups import group_sessions, number_tools
from rekindle.analytics.sample import collect_sample
from rekindle.types import JudgedSession, Session
from tests.unit.analytics.synthetic_sessions import judged


def at(calls: int) -> int:
    """The position of the message before which `calls` calls were made."""
    return 2 * calls


def test_a_session_is_cut_where_its_history_was_replaced() -> None:
    one = judged("s", [False] * 30, compressions=(at(10), at(25)))
    found = [(cut.before[1:], cut.after[1:]) for cut in find_compressions(collect_sample([one]))]
    assert found == [((0, 10), (10, 25)), ((10, 25), (25, 30))]


def test_a_call_between_two_compressions_is_near_one_of_them() -> None:
    one = judged("s", [False] * 40, compressions=(at(10), at(21)))
    first, second = (cut.get_nearby_windows() for cut in find_compressions(collect_sample([one])))
    assert (first[0][1:], first[1][1:]) == ((0, 10), (10, 16))
    assert (second[0][1:], second[1][1:]) == ((16, 21), (21, 40))


def test_a_child_continues_its_parent() -> None:
    parent = judged("p", [True] * 4, end_reason="compression")
    child = judged("c", [False] * 6, parent="p")
    (cut,) = find_compressions(collect_sample([parent, child]))
    assert cut.in_child
    assert (cut.before.compute_rate().rate, cut.after.compute_rate().rate) == (1.0, 0.0)


def test_a_conversation_without_compression_says_so() -> None:
    found = check_compressions([judged("s", [False] * 30)])
    assert not found.has_compression
    assert found.proficiency_preserved is None


def test_an_error_rate_within_20_percent_is_kept() -> None:
    failures = [n % 10 == 0 for n in range(100)] + [n % 9 == 0 for n in range(100)]
    found = check_compressions([judged("s", failures, compressions=(at(100),))])
    assert found.has_compression
    assert found.proficiency_preserved is True
    assert found.verdict == NOT_ENOUGH  # 10% of 100 against 12% of 100 is not sure
    assert found.together is not None
    assert found.together.excess is not None
    assert found.together.excess.value == pytest.approx(0.12 - 1.2 * 0.10)


def test_enough_calls_make_it_sure() -> None:
    chances = random.Random(3)
    for rate, verdict in ((0.10, KEPT), (0.30, NOT_KEPT)):
        before = [chances.random() < 0.15 for _ in range(3000)]
        after = [chances.random() < rate for _ in range(3000)]
        parent = judged("p", before, end_reason="compression")
        found = check_compressions([parent, judged("c", after, parent="p")])
        assert found.verdict == verdict
        assert found.proficiency_preserved is (verdict == KEPT)


def test_the_calls_right_after_are_compared_with_those_right_before() -> None:
    failures = [False] * 60 + [True] * 15 + [False] * 60
    found = check_compressions([judged("s", failures, compressions=(at(60),))]).together
    assert found is not None
    assert (found.near_before.errors, found.near_before.calls) == (0, 20)
    assert (found.near_after.errors, found.near_after.calls) == (15, 20)
    assert found.near_difference is not None
    assert found.near_difference.low > 0.4
    assert found.near_difference.p is not None
    assert found.near_difference.p < 0.001


def test_several_compressions_are_told_one_by_one_and_together() -> None:
    one = judged("s", [n % 5 == 0 for n in range(90)], compressions=(at(30), at(60)))
    found = check_compressions([one])
    assert len(found.compressions) == 2
    assert found.together is not None
    assert (found.together.before.calls, found.together.after.calls) == (30, 60)
    assert found.together.near_before.calls == 20 + 15


def test_all_compressions_of_many_sessions_are_added_up() -> None:
    chances = random.Random(5)
    sessions: list[JudgedSession] = []
    for number in range(120):
        calm = [chances.random() < 0.05 for _ in range(40)]
        worse = [chances.random() < 0.25 for _ in range(5)]
        sessions.append(judged(f"s{number}", [*calm, *worse, *calm], compressions=(at(40),)))
    sample = collect_sample(sessions)
    found = summarize_compressions(group_sessions(sample, number_tools(sample)))
    assert found.compressions == 120
    assert (found.before.calls, found.after.calls) == (2400, 2400)
    assert [(step.first, step.last) for step in found.steps] == [
        (-20, -16), (-15, -11), (-10, -6), (-5, -1), (1, 5), (6, 10), (11, 15), (16, 20),
    ]  # fmt: skip
    worst = max(found.steps, key=lambda step: step.rate.rate or 0)
    assert (worst.first, worst.last) == (1, 5)
    assert found.change is not None
    assert found.same_tool is not None
    assert found.change.low > 0
    assert found.change.value == pytest.approx(found.same_tool.value)


def test_the_chain_of_a_conversation_leaves_forks_and_sub_agents_out() -> None:
    first = Session(id="a", started=0, ended=10, end_reason="compression")
    second = Session(id="b", parent="a", started=10, ended=20, end_reason="compression")
    third = Session(id="c", parent="b", started=20.5)
    fork = Session(id="f", parent="b", forked_at=2, started=15)
    agent = Session(id="g", parent="b", started=12)
    lineage = [first, second, agent, fork, third]
    for session in (first, second, third):
        assert [one.id for one in find_conversation_chain(lineage, session)] == ["a", "b", "c"]
    assert find_conversation_chain(lineage, agent) == [agent]
