"""Two sessions, or two sets of them, beside each other."""

import random

import pytest

from rekindle.analytics.compare import FISHER, JACKKNIFE, compare_sessions
from rekindle.types import JudgedSession
from tests.unit.analytics.synthetic_sessions import READ, RUN, judged


def many(name: str, count: int, rate: float, seed: int = 1) -> list[JudgedSession]:
    chances = random.Random(seed)
    return [
        judged(f"{name}{number}", [chances.random() < rate for _ in range(40)])
        for number in range(count)
    ]


def test_two_sessions_are_compared_call_by_call() -> None:
    found = compare_sessions(
        [judged("a", [True] * 9 + [False])], [judged("b", [True] * 3 + [False] * 7)]
    )
    assert found.test == FISHER
    assert found.improvement is not None
    assert found.improvement.value == pytest.approx(0.6)
    assert found.improvement.range == pytest.approx((0.1705, 0.8090), abs=5e-5)
    assert found.improvement.p == pytest.approx(0.0198, abs=1e-3)
    assert found.better == "B"


def test_improvement_is_how_much_better_the_second_is() -> None:
    cold, warm = many("cold", 60, 0.12), many("warm", 60, 0.05, seed=2)
    there, back = (
        compare_sessions(cold, warm, ("cold", "warm")),
        compare_sessions(warm, cold, ("warm", "cold")),
    )
    assert there.test == JACKKNIFE
    assert there.improvement is not None
    assert back.improvement is not None
    assert there.improvement.low > 0
    assert there.better == back.better == "warm"
    assert there.improvement.value == pytest.approx(-back.improvement.value)
    assert there.improvement.p is not None
    assert there.improvement.p < 0.01


def test_equal_sets_have_no_better_side() -> None:
    found = compare_sessions(many("a", 40, 0.08), many("b", 40, 0.08, seed=3))
    assert found.better is None
    assert found.improvement is not None
    assert found.improvement.range.contains(0)


def test_a_session_in_both_sets_is_told() -> None:
    sessions = many("a", 12, 0.1)
    found = compare_sessions(sessions, sessions[:8])
    assert found.shared == 8
    assert found.improvement is not None


def test_few_sessions_are_not_enough() -> None:
    found = compare_sessions(many("a", 3, 0.1), many("b", 30, 0.1, seed=2))
    assert not found.enough
    assert found.improvement is None
    assert found.a.rate.errors + found.b.rate.errors > 0


def test_sessions_without_calls_are_not_enough() -> None:
    found = compare_sessions([judged("a", [])], [judged("b", [True])])
    assert not found.enough
    assert found.better is None


def test_another_mix_of_work_is_taken_out() -> None:
    chances = random.Random(4)
    sets: list[list[JudgedSession]] = []
    for name, share in (("a", 0.8), ("b", 0.3)):
        made: list[JudgedSession] = []
        for number in range(80):
            tools = [RUN if chances.random() < share else READ for _ in range(40)]
            failures = [chances.random() < (0.2 if tool is RUN else 0.02) for tool in tools]
            made.append(judged(f"{name}{number}", failures, tools))
        sets.append(made)
    found = compare_sessions(sets[0], sets[1])
    assert found.better == "B"
    assert found.same_mix is not None
    assert found.same_mix.range.contains(0)
