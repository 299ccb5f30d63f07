"""Say to people who install Rekindle that some sessions start without notes."""

from __future__ import annotations

from rekindle.cli.output import print_line
from rekindle.cli.store_access import load_settings


def print_control_share() -> None:
    """Print how many sessions start without notes, and how to turn that off; nothing if none do."""
    warm = load_settings().warm
    if warm.enabled and warm.control_share > 0:
        print_line(
            f"{_format_share(warm.control_share)} without notes, to measure whether they help;"
            " `warm.control_share = 0` turns it off."
        )


def _format_share(share: float) -> str:
    of = round(1 / share)
    if of > 1 and abs(share * of - 1) < 0.005:
        return f"1 in {of:,} sessions starts"
    return f"{share:.0%} of the sessions start"
