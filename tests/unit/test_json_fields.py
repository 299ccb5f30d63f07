from __future__ import annotations

import pytest

from rekindle.json_fields import as_count, as_number, parse_timestamp


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7, 7), (7.9, 7), (-1, 0), (True, 0), ("7", 0), (None, 0), (2**53, 0), (10**400, 0)],
)
def test_a_count_is_a_whole_number_that_a_column_holds(value: object, expected: int) -> None:
    assert as_count(value) == expected


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 10**400, -(10**400)])
def test_what_is_no_finite_number_counts_as_absent(value: float) -> None:
    assert as_count(value) == 0
    assert as_number(value) is None
    assert parse_timestamp(value) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-03-01T10:00:00Z", 1_772_359_200.0),
        ("2026-03-01T10:00:00", 1_772_359_200.0),
        ("2026-03-01T12:00:00+02:00", 1_772_359_200.0),
        (1_772_359_200, 1_772_359_200.0),
        (1_772_359_200_000, 1_772_359_200.0),
        ("yesterday", None),
        (0, None),
    ],
)
def test_a_moment_is_read_in_utc_seconds_however_it_is_written(
    value: object, expected: float | None
) -> None:
    assert parse_timestamp(value) == expected
