"""Draw a project's weeks: how often calls failed, what they cost, how many sessions there were."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import NamedTuple

from rekindle.analytics.overview.overview import GroupRow
from rekindle.pages.plots import PlotPoint, Svg, format_amount, render_bars, render_line
from rekindle.web.addresses import build_list_url

MAX_WEEKS = 26


class WeekPlots(NamedTuple):
    """The plots, and the weeks behind them, newest first, each with an address."""

    reliability: Svg
    cost: Svg
    sessions: Svg
    weeks: tuple[tuple[GroupRow, str], ...]


def draw_weeks(weeks: Sequence[GroupRow], project: str) -> WeekPlots | None:
    """Draw the last weeks; None if there are none."""
    shown = weeks[-MAX_WEEKS:]
    if not shown:
        return None
    rates: list[PlotPoint] = []
    costs: list[PlotPoint] = []
    counts: list[PlotPoint] = []
    links = [build_week_url(week, project) for week in shown]
    for week, link in zip(shown, links, strict=True):
        label, rate = week.name[5:], week.rate
        words = f"Week of {week.name}: no judged calls"
        if rate.rate is not None:
            words = f"Week of {week.name}: {rate.rate:.1%} of {rate.calls:,} calls failed"
        if rate.range is not None:
            words += f", {rate.range.low:.1%} to {rate.range.high:.1%}"
        rates.append(PlotPoint(label, rate.rate, rate.low, rate.high, words, link))
        words = f"Week of {week.name}: ${week.cost:,.2f}"
        costs.append(PlotPoint(label, float(week.cost), words=words, href=link))
        words = f"Week of {week.name}: {week.sessions:,} sessions"
        counts.append(PlotPoint(label, float(week.sessions), words=words, href=link))
    return WeekPlots(
        reliability=render_line("Failed calls by week", rates),
        cost=render_bars("Cost by week", costs, format_value=_format_dollars, color="c3"),
        sessions=render_bars("Sessions by week", counts, format_value=format_amount, color="c2"),
        weeks=tuple(reversed([*zip(shown, links, strict=True)])),
    )


def build_week_url(week: GroupRow, project: str) -> str:
    """Return the address of a week's sessions in the list of sessions."""
    last = date.fromisoformat(week.name) + timedelta(days=6)
    return build_list_url(project, since=week.name, until=last.isoformat())


def _format_dollars(value: float) -> str:
    return f"${format_amount(value)}"
