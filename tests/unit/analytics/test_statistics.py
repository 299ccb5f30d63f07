"""Intervals and tests of shares, against values from tables and exact sums."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.analytics.statistics import (
    Interval,
    combine_intervals,
    compute_fisher_p_value,
    compute_newcombe_interval,
    compute_t_p_value,
    compute_t_quantile,
    compute_wilson_interval,
)


@pytest.mark.parametrize(
    ("freedom", "reach"),
    [(1, 12.7062), (2, 4.30265), (5, 2.57058), (10, 2.22814), (30, 2.04227), (1000, 1.96234)],
)
def test_student_quantiles_are_those_of_the_tables(freedom: float, reach: float) -> None:
    assert compute_t_quantile(freedom) == pytest.approx(reach, rel=1e-5)


def test_quantiles_agree_with_the_tail_they_cut_off() -> None:
    for freedom in (1, 1.5, 3, 12.3, 29.9, 30, 30.1, 77, 5000):
        assert compute_t_p_value(compute_t_quantile(freedom), freedom) == pytest.approx(
            0.05, abs=2e-6
        )


def test_student_becomes_normal_with_many_clusters() -> None:
    assert compute_t_quantile(math.inf) == pytest.approx(1.959964, abs=1e-6)
    assert compute_t_quantile(1e6) == pytest.approx(1.959964, abs=1e-4)
    assert compute_t_p_value(1.959964, math.inf) == pytest.approx(0.05, abs=1e-6)


@given(st.floats(1, 500), st.floats(0, 30))
def test_the_tail_falls_as_t_grows(freedom: float, t: float) -> None:
    assert 0 <= compute_t_p_value(t + 0.5, freedom) <= compute_t_p_value(t, freedom) <= 1 + 1e-12


def test_freedom_between_whole_numbers_lies_between() -> None:
    assert compute_t_quantile(4) > compute_t_quantile(4.5) > compute_t_quantile(5)


def test_wilson_is_the_published_interval() -> None:
    # Newcombe (1998): 81 of 263, and 0 of 20.
    assert compute_wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert compute_wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


@given(st.integers(0, 400), st.integers(1, 400))
def test_wilson_holds_the_share_and_stays_between_0_and_1(errors: int, calls: int) -> None:
    errors = min(errors, calls)
    found = compute_wilson_interval(errors, calls)
    assert 0 <= found.low <= errors / calls <= found.high <= 1


def test_no_calls_say_nothing() -> None:
    assert compute_wilson_interval(0, 0) == Interval(0.0, 1.0)
    assert compute_newcombe_interval(0, 0, 1, 2) == Interval(-1.0, 1.0)


def test_newcombe_is_the_published_interval() -> None:
    # Newcombe (1998), method 10, pairs 56/70 - 48/80 and 9/10 - 3/10.
    assert compute_newcombe_interval(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert compute_newcombe_interval(9, 10, 3, 10) == pytest.approx((0.1705, 0.8090), abs=5e-5)


def test_a_factor_scales_the_second_side_of_a_difference() -> None:
    a, b = Interval(0.1, 0.3), Interval(0.05, 0.15)
    plain, scaled = combine_intervals(0.2, a, 0.1, b), combine_intervals(0.2, a, 0.1, b, 1.2)
    assert (plain.low + plain.high) / 2 == pytest.approx(0.1)
    assert (scaled.low + scaled.high) / 2 == pytest.approx(0.08)
    assert scaled.high - scaled.low > plain.high - plain.low


def test_fisher_is_the_exact_sum_over_all_tables() -> None:
    for a_calls, b_calls in ((3, 4), (8, 5), (12, 12)):
        for a, b in product(range(a_calls + 1), range(b_calls + 1)):
            assert compute_fisher_p_value(a, a_calls, b, b_calls) == pytest.approx(
                _by_hand(a, a_calls, b, b_calls)
            ), (a, a_calls, b, b_calls)


def _by_hand(a: int, a_calls: int, b: int, b_calls: int) -> float:
    errors = a + b
    ways = {
        k: math.comb(a_calls, k) * math.comb(b_calls, errors - k)
        for k in range(max(0, errors - b_calls), min(errors, a_calls) + 1)
    }
    return sum(way for way in ways.values() if way <= ways[a]) / sum(ways.values())


def test_the_lady_tasting_tea() -> None:
    assert compute_fisher_p_value(3, 4, 1, 4) == pytest.approx(0.4857, abs=1e-4)
