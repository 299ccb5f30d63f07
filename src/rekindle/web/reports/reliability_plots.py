"""Draw the reliability of a choice: every point leads to the calls behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple

from rekindle.analytics.cluster_stats import MIN_CALLS, MIN_SESSIONS, Rate
from rekindle.analytics.insights import POSITION_STARTS
from rekindle.analytics.reliability.summary import GroupRate, ReliabilitySummary, Trend
from rekindle.analytics.usage.report import to_date
from rekindle.pages.plots import (
    ForestRow,
    PlotPoint,
    Svg,
    format_tick,
    render_bars,
    render_forest,
    render_line,
)

from .reliability import build_address, format_week

MAX_ROWS = 10
MAX_ALL_ROWS = 200
PAGE, CALLS = "/reliability", "/reliability/calls"
TOO_FEW = f"too few: an interval takes {MIN_CALLS} calls in {MIN_SESSIONS} sessions"
_MAX_EMPTY_WEEKS = 8
_EMPTY = Rate(0, 0, 0)


class Panel(NamedTuple):
    """One block of the page."""

    id: str
    title: str
    note: str
    plot: Svg
    shown: int = 0
    total: int = 0


def format_rate(rate: Rate) -> str:
    """Format a rate: `4.2%`."""
    if rate.rate is None:
        return "–"
    return f"{rate.rate:.1%}" if 0 < rate.rate < 0.1 else f"{rate.rate:.0%}"


def format_interval(rate: Rate) -> str:
    """Format the interval of a rate: `3.1–5.6%`; nothing if it has none."""
    if rate.low is None or rate.high is None:
        return ""
    digits = 1 if rate.high < 0.1 else 0
    return f"{100 * rate.low:.{digits}f}–{100 * rate.high:.{digits}f}%"


def describe_rate(rate: Rate) -> str:
    """Describe a rate in words."""
    if rate.rate is None:
        return "no judged calls"
    interval = format_interval(rate)
    certainty = f"95% interval {interval}" if interval else TOO_FEW
    return f"{format_rate(rate)} failed, {rate.errors:,} of {rate.calls:,} calls; {certainty}"


def _to_point(label: str, rate: Rate, href: str, name: str = "") -> PlotPoint:
    words = f"{name or label}: {describe_rate(rate)}"
    return PlotPoint(label, rate.rate, rate.low, rate.high, words, href if rate.calls else "")


# ── over time and over a session


def draw_weeks(summary: ReliabilitySummary, fields: Mapping[str, str]) -> Panel:
    """Draw the rate of each week."""
    weeks = _fill_weeks(summary.groups["week"])
    points = [
        _to_point(
            _format_day(to_date(int(one.name))),
            one.rate,
            build_address(CALLS, fields, week=format_week(one.name), verdict="failed"),
            f"week of {format_week(one.name)}",
        )
        for one in weeks
    ]
    note = "Calls that failed, by the week in which their session started."
    plot = render_line("Calls that failed by week", points, mark=summary.rate.rate)
    return Panel("weeks", "By week", note, plot)


def _fill_weeks(weeks: Sequence[GroupRate]) -> list[GroupRate]:
    """Add the weeks without calls between others, unless they are many."""
    filled: list[GroupRate] = []
    for one in weeks:
        if filled:
            missing = range(int(filled[-1].name) + 7, int(one.name), 7)
            filled += [GroupRate(str(week), _EMPTY) for week in missing[:_MAX_EMPTY_WEEKS]]
        filled.append(one)
    return filled


def _format_day(day: date) -> str:
    return f"{day.day} {day:%b}"


def draw_positions(summary: ReliabilitySummary, fields: Mapping[str, str]) -> Panel:
    """Draw the rate by the place of a call in its session."""
    points = [
        _to_point(
            one.name,
            one.rate,
            build_address(CALLS, fields, position=one.name, verdict="failed"),
            _describe_place(int(one.name)),
        )
        for one in summary.groups["position"]
    ]
    note = "Calls that failed, by their number in the session: 1 to 10, 11 to 20, and so on."
    plot = render_bars("Calls that failed by their number in the session", points)
    return Panel("positions", "By position in the session", note, plot)


def _describe_place(first: int) -> str:
    place = POSITION_STARTS.index(first)
    if place + 1 == len(POSITION_STARTS):
        return f"call {first} and later"
    return f"calls {first} to {POSITION_STARTS[place + 1] - 1}"


# ── groups


class _PanelText(NamedTuple):
    """How a dimension is shown."""

    title: str
    head: str
    note: str


_GROUPINGS = {
    "tool": _PanelText("By tool", "Tool", "The tools with the most failures first."),
    "command": _PanelText(
        "By command", "Command", "Commands of a project; what every session runs is left out."
    ),
    "project": _PanelText("By project", "Project", "The projects with the most failures first."),
    "model": _PanelText(
        "By model", "Model", "Models are given different work: a difference is no comparison."
    ),
    "agent": _PanelText("By agent", "Agent", "Agents judge and report failures differently."),
}


def draw_groups(
    dimension: str,
    summary: ReliabilitySummary,
    fields: Mapping[str, str],
    labels: Mapping[str, str],
    limit: int = MAX_ROWS,
) -> Panel:
    """Draw a table of the groups of a dimension, with a rate and its interval each."""
    title, head, note = _GROUPINGS[dimension]
    groups = [one for one in summary.groups[dimension] if one.name]
    rows = [_build_row(dimension, one, fields, labels) for one in groups[:limit]]
    plot = render_forest(
        f"Calls that failed {title.lower()}",
        rows,
        names=(head, "Failed", "Calls"),
        mark=summary.rate.rate,
        format_value=format_tick,
    )
    return Panel(f"{dimension}s", title, note, plot, len(rows), len(groups))


def _build_row(
    dimension: str, one: GroupRate, fields: Mapping[str, str], labels: Mapping[str, str]
) -> ForestRow:
    calls = build_address(CALLS, fields, **{dimension: one.name}, verdict="failed")
    narrow = build_address(PAGE, fields, **{dimension: one.name})
    point = _to_point(labels.get(one.name, one.name), one.rate, calls)
    return ForestRow(
        point,
        format_rate(one.rate),
        format_interval(one.rate) or "too few",
        (f"{one.rate.calls:,}",),
        narrow=narrow,
    )


# ── the trend in words


def describe_trend(trend: Trend | None) -> tuple[str, str]:
    """Return what became of the rate lately, and whether that is good, bad or unclear."""
    if trend is None or trend.change is None:
        return "Too few calls to tell whether it changes.", ""
    low, high = sorted((abs(trend.change.low), abs(trend.change.high)))
    if not trend.is_clear:
        words = f"{format_rate(trend.now)} now, {format_rate(trend.before)} before"
        return f"No clear change over the last {trend.weeks} weeks with calls: {words}.", ""
    word, kind = ("fewer", "good") if trend.change.value < 0 else ("more", "bad")
    reach = f"{100 * low:.1f} to {100 * high:.1f} points"
    return f"{reach} {word} failures in the last {trend.weeks} weeks than before.", kind
