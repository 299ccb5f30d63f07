"""Render what became of sessions: how many succeeded, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rekindle.cli.output import Column, build_number_columns, print_line, write_table

if TYPE_CHECKING:
    from rekindle.analytics.outcome_rates import OutcomeRate

_MAX_ROWS = 8  # per group


def write_outcomes(rates: Sequence[OutcomeRate]) -> None:
    """Print how many sessions succeeded, in all, by source and by project."""
    if not any(one.succeeded + one.failed for one in rates):
        return
    print_line()
    print_line("What became of sessions")
    columns = (
        Column("", flexible=True),
        *build_number_columns("succeeded", "failed", "unknown"),
        Column("succeeded, of those known"),
    )
    chosen = [one for group in ("all", "source", "project") for one in _choose_rates(rates, group)]
    write_table(
        columns,
        [
            (
                one.name or "all",
                f"{one.succeeded:,}",
                f"{one.failed:,}",
                f"{one.unknown:,}",
                format_outcome_rate(one),
            )
            for one in chosen
        ],
    )


def _choose_rates(rates: Sequence[OutcomeRate], group: str) -> list[OutcomeRate]:
    known = [rate for rate in rates if rate.group == group and rate.succeeded + rate.failed]
    return known[:_MAX_ROWS]


def format_outcome_rate(one: OutcomeRate) -> str:
    """Format the share that succeeded with its interval, `84% (77–89)`, or that too few are known."""
    if one.rate is None or one.low is None or one.high is None:
        return "no evidence"
    return f"{one.rate:.0%} ({100 * one.low:.0f}–{100 * one.high:.0f})"
