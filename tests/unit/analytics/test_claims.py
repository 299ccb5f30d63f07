"""The claims, on sessions that were made by a known rule: what is not so must not be said."""

from collections.abc import Iterable

import pytest

from rekindle.analytics.claims import (
    ABSENT,
    NOT_ENOUGH,
    NOT_SUPPORTED,
    PRESENT,
    SUPPORTED,
    Claim,
    combine_verdicts,
    evaluate_claims,
    judge_difference,
)
from rekindle.analytics.cluster_stats import Estimate, Rate
from rekindle.analytics.groups import group_sessions, number_tools
from rekindle.analytics.sample import collect_sample
from rekindle.types import JudgedSession
from tests.counts import choose_count
from tests.unit.analytics.synthetic_sessions import EDIT, RUN, drifting, judged, learning, survivors

pytestmark = pytest.mark.slow


def weigh(sessions: Iterable[JudgedSession]) -> dict[str, Claim]:
    sample = collect_sample(sessions)
    return {
        claim.name: claim for claim in evaluate_claims(group_sessions(sample, number_tools(sample)))
    }


def verdicts(claim: Claim) -> dict[str, str]:
    return {reading.name: reading.verdict for reading in (*claim.readings, *claim.traps)}


def test_sessions_that_end_after_an_error_only_look_as_if_long_ones_were_better() -> None:
    claim = weigh(survivors(1, 1500, lambda _: 0.08))["long-sessions"]
    assert verdicts(claim) == {
        "as claimed": SUPPORTED,
        "same tool mix": SUPPORTED,
        "same session": NOT_SUPPORTED,
        "same session and tool": NOT_SUPPORTED,
        "beyond the head start": NOT_SUPPORTED,
        "survivors": ABSENT,  # all sessions have the same chance
        "the end": PRESENT,
    }
    assert claim.verdict == NOT_SUPPORTED


def test_good_sessions_that_go_on_only_look_as_if_they_had_learned() -> None:
    claim = weigh(survivors(2, 1500, lambda chances: chances.betavariate(1.2, 12)))["long-sessions"]
    found = verdicts(claim)
    assert found["as claimed"] == SUPPORTED
    assert found["survivors"] == PRESENT
    assert found["same session"] == NOT_SUPPORTED
    assert found["beyond the head start"] == NOT_SUPPORTED
    assert claim.verdict == NOT_SUPPORTED
    raw = claim.readings[0]
    assert raw.before.rate is not None
    assert raw.after.rate is not None
    assert raw.before.rate > 1.5 * raw.after.rate  # as large as the claim itself


@pytest.mark.parametrize(("task", "name"), [("code", "code-improve"), ("file", "file-degrade")])
def test_another_mix_of_tools_is_not_called_learning(task: str, name: str) -> None:
    claim = weigh(drifting(7, 500, task))[name]
    found = verdicts(claim)
    assert found.pop("the end") != PRESENT
    assert found == {
        "as claimed": SUPPORTED,
        "same tool mix": NOT_SUPPORTED,
        "same session and tool": NOT_SUPPORTED,
        "the mix": PRESENT,
    }
    assert claim.verdict == NOT_SUPPORTED


def test_sessions_that_really_learn_are_found() -> None:
    found = weigh(learning(4, 500))
    assert set(verdicts(found["long-sessions"]).values()) == {SUPPORTED, ABSENT}
    assert found["long-sessions"].verdict == SUPPORTED
    assert found["code-improve"].verdict == SUPPORTED


def test_sessions_that_really_get_worse_are_found() -> None:
    found = weigh(learning(5, 500, EDIT, way=1))
    assert found["file-degrade"].verdict == SUPPORTED
    assert found["long-sessions"].verdict == NOT_SUPPORTED


def test_a_correction_errs_as_rarely_as_its_interval_says() -> None:
    wrong = {"same session": 0, "same session and tool": 0, "beyond the head start": 0}
    for seed in range(choose_count(24, 60)):
        claim = weigh(survivors(seed, 250, lambda chances: chances.betavariate(1.2, 12)))
        for reading in claim["long-sessions"].readings:
            if reading.name in wrong:
                wrong[reading.name] += reading.verdict == SUPPORTED
    # 2.5% promised: in 24 tries four or more have a chance of one in three hundred, in 60 tries six
    # or more one of one in five hundred.
    assert max(wrong.values()) <= choose_count(3, 5)


def test_few_sessions_are_not_enough_data() -> None:
    found = weigh(learning(4, 12))
    assert {claim.verdict for claim in found.values()} == {NOT_ENOUGH}
    assert {claim.verdict for claim in weigh([]).values()} == {NOT_ENOUGH}


def test_sessions_without_errors_are_not_enough_data() -> None:
    calm = [judged(f"s{n}", [False] * (30 + n), [RUN] * (30 + n)) for n in range(60)]
    assert {claim.verdict for claim in weigh(calm).values()} == {NOT_ENOUGH}


def test_each_reading_says_what_it_stands_on() -> None:
    for claim in weigh(learning(4, 60)).values():
        for reading in (*claim.readings, *claim.traps):
            assert reading.about
            assert len(reading.sides) == 2
            for side in (reading.before, reading.after):
                assert (side.calls == 0) is (side.rate is None)


RATE = Rate(90, 1000, 50, 0.09)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.05, -0.01, SUPPORTED),
        (-0.02, 0.01, NOT_SUPPORTED),  # leaves out 3.3 points fewer
        (-0.05, 0.01, NOT_ENOUGH),  # holds nothing, and as much as claimed
        (0.01, 0.05, NOT_SUPPORTED),  # the other way
    ],
)
def test_a_verdict_asks_for_zero_and_for_as_much_as_claimed(
    low: float, high: float, verdict: str
) -> None:
    fewer = Estimate((low + high) / 2, low, high)
    more = Estimate(-(low + high) / 2, -high, -low)
    assert judge_difference(fewer, RATE, RATE, -1) == verdict
    assert judge_difference(more, RATE, RATE, 1) == verdict


def test_a_verdict_asks_for_sessions_and_errors() -> None:
    sure = Estimate(-0.03, -0.05, -0.01)
    assert judge_difference(sure, RATE, RATE._replace(sessions=9), -1) == NOT_ENOUGH
    assert (
        judge_difference(sure, RATE._replace(errors=4), RATE._replace(errors=5), -1) == NOT_ENOUGH
    )
    assert judge_difference(None, RATE, RATE, -1) == NOT_ENOUGH


def test_a_claim_stands_only_if_every_reading_supports_it() -> None:
    assert combine_verdicts([SUPPORTED, SUPPORTED]) == SUPPORTED
    assert combine_verdicts([SUPPORTED, NOT_SUPPORTED, NOT_ENOUGH]) == NOT_SUPPORTED
    assert combine_verdicts([SUPPORTED, NOT_ENOUGH]) == NOT_ENOUGH
