"""Draw the chart of weekly costs and error rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from html import escape
from typing import TYPE_CHECKING

from rekindle.cli.insights.overview import format_duration
from rekindle.cli.insights.render import format_rate
from rekindle.cli.output import format_cost, format_count
from rekindle.pages.plots import Scale, create_scale, format_tick

if TYPE_CHECKING:
    from rekindle.analytics.overview.overview import GroupRow

MAX_WEEKS = 26
_BARS_TOP, _BARS_HEIGHT = 22, 72
_RATES_TOP, _RATES_HEIGHT = 128, 52
_HEIGHT = _RATES_TOP + _RATES_HEIGHT + 26
_STEPS = (1, 2, 2.5, 5, 10)


def render_weeks(weeks: Sequence[GroupRow], find_target: Callable[[str], str]) -> str:
    """Render a bar for the cost of each week above a point for its failures."""
    shown = weeks[-MAX_WEEKS:]
    is_counted = not any(one.cost for one in shown)
    sizes = [one.sessions if is_counted else float(one.cost) for one in shown]
    top = _find_axis_top(max(sizes, default=0.0))
    scale = create_scale(0.0, min(1.0, max((_get_top(one) for one in shown), default=0.0)))
    parts = [*_render_axes(top, scale, is_counted=is_counted)]
    width = 100 / max(1, len(shown))
    every = -(-len(shown) // 13)
    for number, (one, size) in enumerate(zip(shown, sizes, strict=True)):
        x = width * (number + 0.5)
        label = _format_week(one.name) if number % every == 0 else ""
        column = "".join(_render_week(one, size / top if top else 0.0, x, width, scale))
        parts.append(f'<a href="#{find_target(one.name)}">{column}</a>')
        parts.append(f'<text x="{x:.2f}%" y="{_HEIGHT - 6}" text-anchor="middle">{label}</text>')
    described = "; ".join(describe_week(one) for one in shown if one.sessions)
    return (
        f'<svg class="tall weeks" height="{_HEIGHT}" role="img"><title>Cost and failures by week'
        f"</title><desc>{escape(described)}</desc>{''.join(parts)}</svg>"
    )


def describe_week(one: GroupRow) -> str:
    """Describe a week in words."""
    return (
        f"week of {one.name}: {format_count(one.sessions, 'session')},"
        f" {format_duration(one.seconds)}, ${format_cost(one.cost)}, failed {format_rate(one.rate)}"
    )


def _get_top(one: GroupRow) -> float:
    if one.rate.high is None:
        return 0.0
    return min(one.rate.high, 3 * (one.rate.rate or 0.0) + 0.02)


def _find_axis_top(value: float) -> float:
    if value <= 0:
        return 1.0
    size = 10.0 ** (len(f"{int(value)}") - 1) if value >= 1 else 0.1
    return next((step * size for step in _STEPS if step * size >= value), value)


def _format_week(name: str) -> str:
    day = date.fromisoformat(name)
    return f"{day.day} {day:%b}"


def _render_axes(top: float, scale: Scale, *, is_counted: bool) -> Iterator[str]:
    title = "Sessions per week" if is_counted else "Cost per week"
    yield f'<text class="title" x="0" y="12">{title}</text>'
    yield f'<text class="title" x="0" y="{_RATES_TOP - 10}">Calls that failed</text>'
    for share in (0.0, 0.5, 1.0):
        y = _BARS_TOP + _BARS_HEIGHT * (1 - share)
        amount = f"{top * share:,.0f}" if top >= 2 else f"{top * share:.2f}"
        text = amount if is_counted else f"${amount}"
        yield f'<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        yield f'<text x="0" dx="-8" y="{y + 4}" text-anchor="end">{text}</text>'
    for tick in (scale.ticks[0], scale.ticks[-1]):
        y = _to_y(scale, tick)
        yield f'<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        yield f'<text x="0" dx="-8" y="{y + 4}" text-anchor="end">{format_tick(tick)}</text>'


def _to_y(scale: Scale, value: float) -> float:
    return round(_RATES_TOP + _RATES_HEIGHT * (1 - scale.to_percent(value) / 100), 1)


def _render_week(
    one: GroupRow, share: float, x: float, width: float, scale: Scale
) -> Iterator[str]:
    left, wide = x - width * 0.36, width * 0.72
    yield f"<title>{escape(describe_week(one))}</title>"
    yield f'<rect class="hit" x="{x - width / 2:.2f}%" y="0" width="{width:.2f}%" height="{_HEIGHT}"/>'
    if share > 0:
        height = max(2.0, round(_BARS_HEIGHT * share, 1))
        yield f'<rect class="cost" x="{left:.2f}%" y="{_BARS_TOP + _BARS_HEIGHT - height}"'
        yield f' width="{wide:.2f}%" height="{height}" rx="2"/>'
    rate = one.rate
    if rate.rate is None:
        return
    y = _to_y(scale, rate.rate)
    if rate.low is None or rate.high is None:
        yield f'<circle class="few" cx="{x:.2f}%" cy="{y}" r="3.5"/>'
        return
    low, high = _to_y(scale, rate.low), _to_y(scale, rate.high)
    yield f'<line class="range" x1="{x:.2f}%" x2="{x:.2f}%" y1="{low}" y2="{high}"/>'
    yield f'<circle class="rate" cx="{x:.2f}%" cy="{y}" r="4.5"/>'


def render_rate(low: float | None, middle: float | None, high: float | None, top: float) -> str:
    """Render a rate as a bar with its interval as a line, on a scale from zero to `top`."""
    if middle is None or top <= 0:
        return ""
    ends = [round(100 * min(1.0, one / top), 2) for one in (low or middle, middle, high or middle)]
    faint = ' class="faint"' if low is None else ""
    line = "" if low is None else f'<line x1="{ends[0]}%" x2="{ends[2]}%" y1="7" y2="7"/>'
    bar = f'<rect{faint} x="0" y="2" width="{ends[1]}%" height="10" rx="2"/>'
    return f'<svg class="rate" height="14" aria-hidden="true">{bar}{line}</svg>'


def render_share(value: float, top: float) -> str:
    """Render an amount as a bar."""
    share = round(100 * value / top, 2) if top > 0 else 0.0
    bar = f'<rect x="0" y="2" width="{share}%" height="10" rx="2"/>'
    return f'<svg class="share-bar" height="14" aria-hidden="true">{bar}</svg>'
