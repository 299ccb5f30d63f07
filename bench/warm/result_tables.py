"""Builds the tables of a run: rates with intervals, and comparisons of arms paired by task.

Tasks are the sampling unit and thus the clusters: calls of one task fail together, and each task is run
in every arm. Success is compared by McNemar's exact test on the tasks that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import comb
from typing import Any, NamedTuple

from bench.warm.arms import ARMS
from rekindle.analytics.cluster_stats import (
    ClusterCounts,
    Estimate,
    compute_rate,
    estimate_difference,
)
from rekindle.analytics.statistics import compute_wilson_interval

UNSEEN = ("papers", "hours")  # families without training tasks
Row = Mapping[str, Any]
RowsByArm = Mapping[str, Mapping[str, Row]]  # by arm, by task
CONTRASTS = (
    ("warm", "cold"), ("placebo", "cold"), ("naive", "cold"), ("warm", "placebo"),
    ("warm", "naive"),
)  # fmt: skip


class ArmComparison(NamedTuple):
    """One arm compared with another on the tasks that both ran: `arm` minus `other`."""

    arm: str
    other: str
    tasks: int
    won: int  # tasks that only `arm` did
    lost: int
    p: float  # McNemar's
    success: Estimate | None
    errors: Estimate | None


def group_by_arm(rows: Iterable[Row], arms: Sequence[str] = ARMS) -> RowsByArm:
    """Return the newest row of each task in each arm."""
    found: dict[str, dict[str, Row]] = {arm: {} for arm in arms}
    for row in rows:
        if row["arm"] in found:  # not of an arm that is no longer run
            found[row["arm"]][row["task"]] = row
    return found


def filter_rows(done: RowsByArm, keep: Callable[[Row], bool]) -> RowsByArm:
    return {arm: {t: row for t, row in kept.items() if keep(row)} for arm, kept in done.items()}


def is_unseen(row: Row) -> bool:
    return row["family"] in UNSEEN


def compare_arms(done: RowsByArm, arm: str, other: str) -> ArmComparison:
    """Compare two arms on the tasks that both ran."""
    ours, theirs = done[arm], done[other]
    both = sorted(ours.keys() & theirs.keys())
    won = sum(ours[t]["success"] and not theirs[t]["success"] for t in both)
    lost = sum(theirs[t]["success"] and not ours[t]["success"] for t in both)

    def parts(rows: Mapping[str, Row], top: str, base: str | None) -> ClusterCounts:
        return {t: (float(rows[t][top]), float(rows[t][base]) if base else 1.0) for t in both}

    return ArmComparison(
        arm,
        other,
        len(both),
        won,
        lost,
        compute_mcnemar(won, lost),
        estimate_difference(parts(ours, "success", None), parts(theirs, "success", None)),
        estimate_difference(parts(ours, "errors", "first"), parts(theirs, "errors", "first")),
    )


def compute_mcnemar(won: int, lost: int) -> float:
    """Return the probability of a split at least this uneven if both arms are equally good."""
    count = won + lost
    tail = sum(comb(count, k) for k in range(min(won, lost) + 1))
    return min(1.0, 2 * tail / 2**count)


# -- rendering


def render_section(rows: Iterable[Row], head: str) -> str:
    """Render the section of the results file."""
    done = group_by_arm(rows)
    known, unseen = filter_rows(done, lambda row: not is_unseen(row)), filter_rows(done, is_unseen)
    parts = [
        "## Warm starts with a real model",
        head,
        "### Families in the training tasks",
        render_arms(known),
        "One arm minus another, paired by task:",
        render_contrasts(known),
        "Tasks done, by family:",
        render_families(known),
        "### The family not in the training tasks",
        _render_unseen(unseen),
        render_arms(unseen),
    ]
    return "\n\n".join(parts) + "\n"


def _render_lines(*lines: Sequence[str]) -> str:
    head, *rest = lines
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rest))


def render_arms(done: RowsByArm) -> str:
    """Render a line for each arm."""
    head = (
        "arm", "tasks done", "made the right call", "errors in the first 10 calls", "calls a task",
        "made once more", "tokens in", "tokens out", "seconds", "given: sessions, tokens",
    )  # fmt: skip
    return _render_lines(
        head, *(_render_arm(arm, [*rows.values()]) for arm, rows in done.items() if rows)
    )


def _render_arm(arm: str, rows: Sequence[Row]) -> list[str]:
    count = len(rows)
    good = sum(row["success"] for row in rows)
    low, high = compute_wilson_interval(good, count)
    parts = {row["task"]: (row["errors"], row["first"]) for row in rows}
    rate = compute_rate(parts, count)
    errors = "–" if rate.rate is None else f"{rate.rate:.0%} of {rate.calls}"
    if rate.low is not None and rate.high is not None:
        errors += f" ({rate.low:.0%} to {rate.high:.0%})"
    given = [row["given_tokens"] for row in rows if row["given_tokens"]]
    mean_given = f"{sum(given) / len(given):.0f}" if given else "–"
    calls = sum(row["calls"] for row in rows)
    return [
        arm,
        f"{good} of {count} = {good / count:.0%} ({low:.0%} to {high:.0%})",
        _format_right_calls(rows),
        errors,
        f"{calls / count:.1f}",
        f"{sum(row['repeats'] for row in rows) / calls:.0%}" if calls else "–",
        f"{sum(row['tokens_in'] for row in rows) / count:,.0f}",
        f"{sum(row['tokens_out'] for row in rows) / count:,.0f}",
        f"{sum(row['seconds'] for row in rows) / count:.1f}",
        f"{len(given)}, {mean_given}",
    ]


def _format_right_calls(rows: Sequence[Row]) -> str:
    known = [row["right_call"] for row in rows if row.get("right_call") is not None]
    if not known:
        return "–"
    low, high = compute_wilson_interval(sum(known), len(known))
    return f"{sum(known)} of {len(known)} ({low:.0%} to {high:.0%})"


def render_contrasts(done: RowsByArm, pairs: Sequence[tuple[str, str]] = CONTRASTS) -> str:
    """Render a line for each pair of arms, task by task."""
    lines: list[list[str]] = []
    for arm, other in pairs:
        if not done[arm].keys() & done[other].keys():
            continue
        one = compare_arms(done, arm, other)
        lines.append(
            [
                f"{arm} less {other}",
                str(one.tasks),
                _format_points(one.success),
                f"{one.won}, {one.lost}",
                _format_p(one.p),
                _format_points(one.errors),
                "–" if one.errors is None or one.errors.p is None else _format_p(one.errors.p),
            ]
        )
    head = (
        "", "tasks", "done, points", "only it did, only the other did", "p (McNemar)",
        "errors, points", "p (tasks as clusters)",
    )  # fmt: skip
    return _render_lines(head, *lines)


def _format_points(one: Estimate | None) -> str:
    if one is None:
        return "–"
    return f"{100 * one.value:+.0f} ({100 * one.low:+.0f} to {100 * one.high:+.0f})"


def _format_p(p: float) -> str:
    return "< .001" if p < 0.001 else f"{p:.3f}".lstrip("0")


def render_families(done: RowsByArm) -> str:
    """Render a line for each family with the tasks done in each arm."""
    done = {arm: kept for arm, kept in done.items() if kept}
    names = sorted({row["family"] for kept in done.values() for row in kept.values()})
    lines = [
        [
            name,
            *(
                _format_share(row for row in kept.values() if row["family"] == name)
                for kept in done.values()
            ),
        ]
        for name in names
    ]
    return _render_lines(("family", *done), *lines)


def _format_share(rows: Iterable[Row]) -> str:
    kept = list(rows)
    return f"{sum(row['success'] for row in kept)} of {len(kept)}" if kept else "–"


def _render_unseen(done: RowsByArm) -> str:
    rows = [*done["warm"].values()]
    given = sum(bool(row["given_tokens"]) for row in rows)
    judgment = "although no note was relevant" if given else "as intended"
    return f"{given} of {len(rows)} warm sessions got a prelude, {judgment}."
