"""Rates over sessions: what the estimators are, and that their intervals keep what they promise."""

import random
from math import sqrt

import pytest

from rekindle.analytics.cluster_stats import (
    compute_rate,
    compute_rate_interval,
    estimate_difference,
    estimate_ratio,
    estimate_standardized_rate,
    estimate_stratified_difference,
    subtract_estimates,
    to_estimate,
)
from rekindle.analytics.statistics import compute_wilson_interval
from tests.counts import choose_count

Part = list[float]
TRIES = choose_count(150, 400)


def sessions(
    seed: int, count: int, rate: float, likeness: float, size: tuple[int, int] = (5, 80)
) -> dict[str, Part]:
    """Sessions with rates of their own around `rate`, of very different sizes."""
    chances = random.Random(seed)
    weight = (1 - likeness) / likeness
    made: dict[str, Part] = {}
    for number in range(count):
        own = chances.betavariate(rate * weight, (1 - rate) * weight)
        calls = round(chances.lognormvariate(3, 0.7))
        calls = min(max(calls, size[0]), size[1])
        made[f"{seed}.{number}"] = [sum(chances.random() < own for _ in range(calls)), calls]
    return made


def test_sessions_of_one_call_each_give_the_interval_of_independent_calls() -> None:
    parts = {str(number): [float(number < 30), 1.0] for number in range(300)}
    measured = estimate_ratio(parts)
    assert measured is not None
    found = compute_rate_interval(measured, [1.0] * 300)
    assert found == pytest.approx(compute_wilson_interval(30, 300), abs=2e-3)


def test_calls_that_fail_together_make_the_interval_wider() -> None:
    apart = {str(n): [2.0, 20.0] for n in range(40)}
    together = {str(n): [20.0 if n < 4 else 0.0, 20.0] for n in range(40)}
    narrow, wide = compute_rate(apart, 40), compute_rate(together, 40)
    assert narrow.rate == wide.rate == pytest.approx(0.1)
    assert narrow.range is not None
    assert wide.range is not None
    assert wide.range.high - wide.range.low > 3 * (narrow.range.high - narrow.range.low)


def test_one_session_that_outweighs_all_others_makes_the_interval_very_wide() -> None:
    parts = {str(n): [1.0, 10.0] for n in range(10)} | {"giant": [50.0, 5000.0]}
    found = compute_rate(parts, 11)
    assert found.range is not None
    assert found.range.high > 0.3


def test_no_error_in_few_long_sessions_proves_less_than_in_many_short_ones() -> None:
    few, many = (
        compute_rate({str(n): [0.0, size] for n in range(count)}, count)
        for count, size in ((5, 200.0), (500, 2.0))
    )
    assert few.low == many.low == 0.0
    assert few.high is not None
    assert many.high is not None
    assert few.high > 3 * many.high > 0


def test_too_few_calls_or_sessions_get_a_rate_without_an_interval() -> None:
    assert compute_rate({str(n): [1.0, 2.0] for n in range(9)}, 9)[3:] == (0.5, None, None)
    assert compute_rate({str(n): [1.0, 50.0] for n in range(4)}, 4)[3:] == (0.02, None, None)
    assert compute_rate({}, 0)[3:] == (None, None, None)


@pytest.mark.parametrize(("count", "rate"), [(12, 0.08), (60, 0.06), (60, 0.3)])
def test_an_interval_of_a_rate_holds_the_truth_as_often_as_it_says(count: int, rate: float) -> None:
    held = 0
    for seed in range(TRIES):
        found = compute_rate(sessions(seed, count, rate, 0.1), count).range
        assert found is not None
        held += found.contains(rate)
    # 95% promised; three standard errors of 400 tries are 3.3 points.
    assert 0.917 <= held / TRIES <= 0.99


@pytest.mark.slow
def test_an_interval_of_a_difference_holds_the_truth_as_often_as_it_says() -> None:
    held = 0
    for seed in range(TRIES):
        a, b = sessions(seed, 25, 0.09, 0.1), sessions(seed + 1000, 40, 0.06, 0.1)
        found = estimate_difference(a, b)
        assert found is not None
        held += found.range.contains(0.03)
    assert 0.917 <= held / TRIES <= 0.99


def test_intervals_that_took_calls_as_independent_would_not() -> None:
    held = 0
    for seed in range(200):
        parts = sessions(seed, 60, 0.06, 0.1).values()
        errors, calls = sum(part[0] for part in parts), sum(part[1] for part in parts)
        held += compute_wilson_interval(errors, calls).contains(0.06)
    assert held / 200 < 0.85


def test_a_difference_over_shared_sessions_knows_that_they_are_shared() -> None:
    parts = sessions(1, 50, 0.1, 0.3)
    shifted = {name: [errors + 1, calls] for name, (errors, calls) in parts.items()}
    paired = estimate_difference(shifted, parts)
    alone = estimate_difference({f"x{name}": part for name, part in shifted.items()}, parts)
    assert paired is not None
    assert alone is not None
    assert paired.value == pytest.approx(alone.value)
    assert paired.high - paired.low < 0.3 * (alone.high - alone.low)


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = [3.0, 5.0, 8.0, 1.0, 9.0, 4.0]
    measured = estimate_ratio({str(n): [value, 1.0] for n, value in enumerate(values)})
    assert measured is not None
    mean = sum(values) / 6
    error = sqrt(sum((value - mean) ** 2 for value in values) / 5 / 6)
    assert sqrt(measured.variance) == pytest.approx(error)
    assert measured.freedom == pytest.approx(5)


def test_standardising_takes_the_mix_out_and_nothing_else() -> None:
    # Both groups fail at 20% with tool 0 and at 2% with tool 1, in opposite proportions.
    mostly = {str(n): {0: [16.0, 80.0], 1: [0.4, 20.0]} for n in range(10)}
    rarely = {str(n): {0: [4.0, 20.0], 1: [1.6, 80.0]} for n in range(10)}
    even = {0: 1.0, 1: 1.0}
    a, b = estimate_standardized_rate(mostly, even), estimate_standardized_rate(rarely, even)
    assert a is not None
    assert b is not None
    assert a.value == b.value == pytest.approx(0.11)
    assert estimate_standardized_rate(mostly, {0: 1.0, 2: 1.0}) is None


def test_strata_are_never_compared_with_each_other() -> None:
    # The second stratum fails much more and is later more often; inside each nothing changes.
    cells = [("a", 1.0, 10.0, 9.0, 90.0), ("b", 45.0, 90.0, 5.0, 10.0)]
    found = estimate_stratified_difference(cells)
    assert found is not None
    assert found.value == pytest.approx(0.0)
    assert estimate_stratified_difference([("a", 1.0, 5.0, 0.0, 0.0)]) is None


def test_without_a_spread_there_is_no_interval() -> None:
    still = estimate_ratio({str(n): [0.0, 10.0] for n in range(20)})
    assert still is not None
    assert to_estimate(still) is None
    assert to_estimate(None) is None
    assert to_estimate(subtract_estimates(still, still)) is None
