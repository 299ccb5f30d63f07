"""Attacks on the sandbox, run for real behind a wall of our own: nothing gets out."""

from __future__ import annotations

import pytest

from tests.attacks.suite import (
    CASES,
    WAYS,
    Attack,
    find_holes,
    find_missing_requirement,
    list_attacks,
    run_attacks,
)

pytestmark = pytest.mark.slow
SHARDS = 4  # the whole suite in parts that run side by side
_SAMPLE = 23  # every so many attacks in the ordinary run


def _check(way: str, mode: str, attacks: list[Attack]) -> None:
    if problem := find_missing_requirement():
        pytest.skip(problem)
    reports = run_attacks(way, attacks, mode)
    assert {one["mode"] for one in reports} == {mode}
    assert find_holes(reports) == []


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("way", WAYS)
def test_no_attack_of_a_sample_gets_out(way: str) -> None:
    offset = WAYS.index(way)
    _check(way, "bubblewrap", [*list_attacks()[offset::_SAMPLE]])


@pytest.mark.attacks
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize(("mode", "way"), CASES)
def test_no_attack_gets_out(mode: str, way: str, shard: int) -> None:
    _check(way, mode, [*list_attacks()[shard::SHARDS]])
