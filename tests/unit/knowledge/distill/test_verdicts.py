from __future__ import annotations

from collections.abc import Sequence

import pytest

from rekindle.knowledge.distill.sentences import UserSentence
from rekindle.knowledge.distill.verdicts import (
    Repeats,
    ScoreComparison,
    compare_scores,
    count_repeats,
    judge_rewording,
    judge_wish,
)
from rekindle.knowledge.notes.records import SessionObservation
from rekindle.knowledge.notes.replay import SessionScore

WISH = "Do not use mocks in database tests."
SAID = "do not use mocks for the tests of a database"


def score(named: int, tokens: int, mended: int = 0) -> SessionScore:
    counts = {"came_true": (named, 9), "mended": (mended, 3)}
    return SessionScore("s", counts, (tokens, 5), 1)


def observe(count: int, alike: Sequence[int] = ()) -> list[SessionObservation]:
    return [
        SessionObservation(f"s{n}", float(n), (0 if n in alike else n + 1,), (), (), ())
        for n in range(count)
    ]


def say(*numbers: int, alike: Sequence[int] = (), standing: bool = False) -> list[UserSentence]:
    return [
        UserSentence(f"s{n}", float(n), (0 if n in alike else n + 1,), SAID, standing)
        for n in numbers
    ]


def test_only_sessions_that_would_have_been_told_something_else_are_compared() -> None:
    before = [score(3, 50), score(2, 50), score(4, 40, 1)]
    after = [score(3, 50), score(2, 44), score(5, 38, 1)]
    assert compare_scores(before, after) == ScoreComparison(2, 7, 8, 100, 92)


@pytest.mark.parametrize(
    ("compared", "outcome", "reason"),
    [
        (ScoreComparison(4, 9, 9, 100, 92), "won", "names the same with 8 fewer tokens in 4 sessions"),
        (ScoreComparison(4, 9, 9, 100, 100), "did not win", "takes 0 more tokens in 4 sessions"),
        (ScoreComparison(4, 9, 9, 90, 100), "did not win", "takes 10 more tokens in 4 sessions"),
        (ScoreComparison(4, 9, 8, 100, 92), "did not win",
         "names 8 instead of 9 that came true in 4 sessions"),
        (ScoreComparison(2, 9, 9, 100, 92), "no evidence", "told in 2 sessions of the replay"),
        (ScoreComparison(), "no evidence", "told in 0 sessions of the replay"),
    ],
)  # fmt: skip
def test_a_rewording_wins_if_it_names_no_less_in_fewer_tokens(
    compared: ScoreComparison, outcome: str, reason: str
) -> None:
    assert judge_rewording(compared) == (outcome, reason, compared.sessions)


@pytest.mark.parametrize(
    ("repeats", "compared", "outcome", "reason"),
    [
        (Repeats(6, 2), ScoreComparison(), "won", "said again in 2 of 6 later sessions"),
        (Repeats(6, 0), ScoreComparison(), "did not win", "said again in 0 of 6 later sessions"),
        (Repeats(2, 2), ScoreComparison(), "no evidence", "could be told in 2 later sessions"),
        (Repeats(), ScoreComparison(), "no evidence", "could be told in 0 later sessions"),
        (Repeats(6, 2), ScoreComparison(6, 9, 8, 1, 2), "did not win",
         "names 8 instead of 9 that came true in 6 later sessions"),
    ],
)  # fmt: skip
def test_a_wish_wins_if_it_was_said_again_and_costs_nothing_that_came_true(
    repeats: Repeats, compared: ScoreComparison, outcome: str, reason: str
) -> None:
    assert judge_wish(repeats, compared) == (outcome, reason, repeats.later)


def test_repetitions_count_only_after_independent_sessions_have_said_it() -> None:
    assert count_repeats(WISH, observe(10), say(1, 3)) == Repeats(6, 0)
    assert count_repeats(WISH, observe(10), say(1, 3, 6, 8)) == Repeats(6, 2)
    assert count_repeats(WISH, observe(10), say(9)) == Repeats(0, 0)


def test_what_is_said_for_every_session_counts_from_the_first_one_on() -> None:
    assert count_repeats(WISH, observe(10), say(1, 6, standing=True)) == Repeats(8, 1)


def test_a_fork_repeats_nothing() -> None:
    alike = (1, 3, 6)
    assert count_repeats(WISH, observe(10, alike), say(*alike, alike=alike)) == Repeats(0, 0)
    forked = say(1, 3, 6, alike=(3, 6))
    assert count_repeats(WISH, observe(10, (3, 6)), forked) == Repeats(6, 0)
