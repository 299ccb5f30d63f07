"""The table of the proof: counts, intervals, and arms beside each other."""

from __future__ import annotations

from typing import Any

import pytest
from bench.warm.result_tables import compare_arms, compute_mcnemar, group_by_arm, render_section


def row(task: str, arm: str, success: bool, errors: int = 0, first: int = 2, **more: Any) -> Any:
    return {
        "task": task,
        "family": task.split("-")[0],
        "arm": arm,
        "success": success,
        "calls": first,
        "errors": errors,
        "first": first,
        "repeats": 0,
        "tokens_in": 400,
        "tokens_out": 40,
        "seconds": 8.0,
        "given_tokens": 0 if arm == "cold" else 100,
        "given_notes": 0,
        **more,
    }


@pytest.mark.parametrize(
    ("won", "lost", "p"), [(0, 0, 1.0), (5, 0, 0.0625), (8, 1, 0.0390625), (1, 8, 0.0390625)]
)
def test_mcnemars_test_is_exact(won: int, lost: int, p: float) -> None:
    assert compute_mcnemar(won, lost) == pytest.approx(p)


def test_arms_are_compared_on_the_tasks_that_both_did() -> None:
    rows = [row(f"a-{n}", "cold", n < 2, errors=2) for n in range(10)]
    rows += [row(f"a-{n}", "warm", n > 0, errors=n % 2) for n in range(9)]
    one = compare_arms(group_by_arm(rows), "warm", "cold")
    assert (one.tasks, one.won, one.lost) == (9, 7, 1)
    assert one.success is not None
    assert one.errors is not None
    assert one.success.value == pytest.approx(6 / 9)
    assert one.success.low < 6 / 9 < one.success.high
    assert one.errors.value == pytest.approx(4 / 18 - 1)


def test_of_a_task_that_was_run_twice_the_newest_run_counts() -> None:
    done = group_by_arm([row("a-0", "cold", False), row("a-0", "cold", True)])
    assert done["cold"]["a-0"]["success"]


def test_the_family_that_was_never_seen_stands_apart() -> None:
    rows = [
        row(f"{family}-{n}", arm, arm == "warm", given_tokens=given)
        for n in range(6)
        for family in ("log", "papers")
        for arm, given in (("cold", 0), ("warm", 90 if family == "log" else 0))
    ]
    text = render_section(rows, "head")
    known, _, unseen = text.partition("### The family not in the training tasks")
    assert "| warm | 6 of 6 = 100%" in known
    assert "| warm less cold | 6 | " in known
    assert "papers" not in known
    assert "0 of 6 warm sessions got a prelude, as intended" in unseen
    assert "6, 90" in known


def test_calls_that_were_made_once_more_are_told() -> None:
    rows = [row(f"a-{n}", "cold", False, first=4, repeats=3) for n in range(5)]
    assert "| 75% |" in render_section(rows, "")
