"""The plots that only the page of insights has; `rekindle.pages.plots` has those of every page.

Horizontal positions are percentages of the width, so that plots scale but their text does not; only
bands and curves, which carry no text, are stretched. Each plot has a text alternative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from rekindle.cli.insights.render import abbreviate_count
from rekindle.pages.plots import Scale, create_scale, format_tick

if TYPE_CHECKING:
    from rekindle.analytics.cluster_stats import Estimate, Rate
    from rekindle.analytics.compression import NearbyRate
    from rekindle.analytics.insights import PositionRow

_BAND_UNITS = 1000  # width of the view box of stretched parts


# ── table rows


def render_intervals(
    scale: Scale,
    words: str,
    raw: Estimate | Rate | None,
    fair: Estimate | Rate | None = None,
    claimed: float | None = None,
) -> str:
    """Render one or two intervals on a scale; `words` is the text alternative."""
    height = 26 if fair is None else 34
    lines = "".join(
        f'<line class="{"zero" if tick == 0 else "grid"}"'
        f' x1="{scale.to_percent(tick)}%" x2="{scale.to_percent(tick)}%"'
        f' y1="0" y2="{height}"/>'
        for tick in scale.ticks
    )
    if claimed:
        claimed_x = scale.to_percent(claimed)
        lines += (
            f'<line class="claimed" x1="{claimed_x}%" x2="{claimed_x}%" y1="3" y2="{height - 3}"/>'
        )
    middle = height / 2 if fair is None else height / 2 - 7
    marks = _render_interval(scale, raw, middle, "raw") + _render_interval(
        scale, fair, height / 2 + 7, "fair"
    )
    return f'<svg height="{height}" role="img"><title>{escape(words)}</title>{lines}{marks}</svg>'


def _render_interval(scale: Scale, value: Estimate | Rate | None, y: float, name: str) -> str:
    """Render an interval with its middle, or nothing if there were too few calls for one."""
    middle = _get_middle(value)
    if value is None or middle is None or value.low is None or value.high is None:
        return ""
    ends = f'x1="{scale.to_percent(value.low)}%" x2="{scale.to_percent(value.high)}%"'
    line = f'<line {ends} y1="{y}" y2="{y}"/>'
    return f'<g class="{name}">{line}{_render_point(scale.to_percent(middle), y, name)}</g>'


def _get_middle(value: Estimate | Rate | None) -> float | None:
    if value is None:
        return None
    middle: float | None = getattr(value, "value", None)
    return middle if middle is not None else getattr(value, "rate", None)


def _render_point(x: float, y: float, name: str) -> str:
    """Render a circle for raw values and a square for corrected ones, not relying on colour alone."""
    if name == "raw":
        return f'<circle cx="{x}%" cy="{y}" r="4.5" stroke="none"/>'
    box = f'x="{x}%" y="{y - 4}" width="8" height="8"'
    return f'<rect {box} transform="translate(-4 0)" stroke="none"/>'


def render_legend(*names: tuple[str, str]) -> str:
    """Render the legend of the marks."""
    items = "".join(
        f'<li><svg aria-hidden="true" class="{name}"><line x1="0" x2="100%" y1="6" y2="6"'
        f' stroke-width="2"/>{_render_point(50, 6, name)}</svg>{escape(words)}</li>'
        for name, words in names
    )
    return f'<ul class="key">{items}</ul>'


# ── by call number

_CURVE_HEIGHT, _BARS_HEIGHT, _LABELS_WIDTH = (
    210,
    62,
    9.0,
)  # heights of curve and bars; percent for labels


def render_positions(steps: Sequence[PositionRow]) -> str:
    """Render the error rate by call number, above the number of sessions that got that far."""
    shown = [step for step in steps if step.rate.rate is not None]
    if not shown:
        return ""
    base = shown[0].rate.rate or 0.0
    tops = [step.rate.high or step.rate.rate or 0.0 for step in shown]
    tops += [base + step.change.high for step in shown if step.change]
    scale = create_scale(
        0.0, min(max(tops), 3 * max(step.rate.rate or 0.0 for step in shown) + 0.02)
    )
    parts = [_render_grid(scale), _render_band([step.rate for step in shown], scale)]
    most = max(step.sessions for step in shown)
    width = (100 - _LABELS_WIDTH) / len(shown)
    for number, step in enumerate(shown):
        x = _LABELS_WIDTH + width * (number + 0.5)
        parts += _render_curve_point(shown, number, x, width, scale)
        parts += _render_corrected_point(step, base, x + width / 8, scale)
        parts += _render_session_bar(step, x, width, most)
    description = "; ".join(_describe_step(step) for step in shown)
    return (
        f'<svg class="tall" height="{_CURVE_HEIGHT + _BARS_HEIGHT + 44}" role="img">'
        "<title>Error rate by call number and number of sessions that got that far</title>"
        f"<desc>{escape(description)}</desc>{''.join(parts)}</svg>"
    )


def _describe_step(step: PositionRow) -> str:
    return f"from call {step.first}: {step.rate.rate or 0:.1%}, {step.sessions} sessions"


def _to_y(scale: Scale, value: float) -> float:
    return round(_CURVE_HEIGHT - scale.to_percent(value) / 100 * (_CURVE_HEIGHT - 10), 1)


def _render_grid(scale: Scale) -> str:
    return "".join(
        f'<line class="grid" x1="{_LABELS_WIDTH}%" x2="100%"'
        f' y1="{_to_y(scale, tick)}" y2="{_to_y(scale, tick)}"/>'
        f'<text x="{_LABELS_WIDTH - 1}%" y="{_to_y(scale, tick) + 4}" text-anchor="end">'
        f"{format_tick(tick)}</text>"
        for tick in scale.ticks
    )


def _render_band(rates: Sequence[Rate], scale: Scale) -> str:
    """Render the intervals as one band, stretched over the plot."""
    points: list[tuple[float, float, float]] = []
    for number, rate in enumerate(rates):
        if rate.low is not None and rate.high is not None:
            x = _BAND_UNITS * (number + 0.5) / len(rates)
            points.append((round(x, 1), _to_y(scale, rate.low), _to_y(scale, rate.high)))
    upper = " ".join(f"{x},{high}" for x, _, high in points)
    lower = " ".join(f"{x},{low}" for x, low, _ in reversed(points))
    box = f'viewBox="0 0 {_BAND_UNITS} {_CURVE_HEIGHT}" preserveAspectRatio="none"'
    position = f'x="{_LABELS_WIDTH}%" y="0" width="{100 - _LABELS_WIDTH}%" height="{_CURVE_HEIGHT}"'
    return f'<svg {position} {box}><polygon class="band" points="{upper} {lower}"/></svg>'


def _render_curve_point(
    shown: Sequence[PositionRow], number: int, x: float, width: float, scale: Scale
) -> Iterator[str]:
    """Render a point and the line to the next; a hollow point if there are too few calls."""
    rate = shown[number].rate
    y = _to_y(scale, rate.rate or 0.0)
    if rate.range is None:
        yield f'<circle class="hollow" cx="{x:.2f}%" cy="{y}" r="3.5"/>'
        return
    after = shown[number + 1].rate if number + 1 < len(shown) else None
    if after and after.range:
        ends = f'y1="{y}" y2="{_to_y(scale, after.rate or 0.0)}"'
        yield f'<g class="raw"><line x1="{x:.2f}%" x2="{x + width:.2f}%" {ends}/></g>'
    yield f'<g class="raw">{_render_point(round(x, 2), y, "raw")}</g>'


def _render_corrected_point(
    step: PositionRow, base: float, x: float, scale: Scale
) -> Iterator[str]:
    """Render the first rate plus the change within sessions."""
    if step.change is None:
        return
    low, high = (_to_y(scale, base + value) for value in step.change.range)
    yield f'<g class="fair"><line x1="{x:.2f}%" x2="{x:.2f}%" y1="{low}" y2="{high}"/>'
    yield f"{_render_point(round(x, 2), _to_y(scale, base + step.change.value), 'fair')}</g>"


def _render_session_bar(step: PositionRow, x: float, width: float, most: int) -> Iterator[str]:
    top, height = _CURVE_HEIGHT + 40, max(1.0, round(step.sessions / most * _BARS_HEIGHT, 1))
    left = x - width * 0.4
    yield f'<text x="{x:.2f}%" y="{_CURVE_HEIGHT + 18}" text-anchor="middle">{step.first:,}</text>'
    yield f'<rect class="alive" x="{left:.2f}%" y="{top + _BARS_HEIGHT - height}"'
    yield f' width="{width * 0.8:.2f}%" height="{height}" rx="2"/>'
    y = top + _BARS_HEIGHT - height - 4
    yield f'<text x="{x:.2f}%" y="{y}" text-anchor="middle">{abbreviate_count(step.sessions)}</text>'


# ── around a compression


def render_compression(steps: Sequence[NearbyRate]) -> str:
    """Render the error rate of the calls before and after compressions."""
    known = [step for step in steps if step.rate.rate is not None]
    if not known:
        return ""
    tops = [step.rate.high or step.rate.rate or 0.0 for step in known]
    scale = create_scale(0.0, max(tops))
    width = (100 - _LABELS_WIDTH) / len(steps)
    middle = _LABELS_WIDTH + (100 - _LABELS_WIDTH) / 2
    parts = [
        _render_grid(scale),
        f'<line class="claimed" x1="{middle}%" x2="{middle}%" y1="0" y2="{_CURVE_HEIGHT}"/>',
    ]
    for number, step in enumerate(steps):
        x = _LABELS_WIDTH + width * (number + 0.5)
        text = f"{step.first}".replace("-", "−") if step.first < 0 else f"+{step.last}"
        parts.append(
            f'<text x="{x:.2f}%" y="{_CURVE_HEIGHT + 18}" text-anchor="middle">{text}</text>'
        )
        parts += _render_whisker(step.rate, x, scale)
    parts.append(
        f'<text x="{middle}%" y="{_CURVE_HEIGHT + 36}" text-anchor="middle">compression</text>'
    )
    description = "; ".join(f"{one.first} to {one.last}: {one.rate.rate or 0:.1%}" for one in known)
    return (
        f'<svg class="tall" height="{_CURVE_HEIGHT + 42}" role="img">'
        "<title>Error rate of the calls before and after a compression</title>"
        f"<desc>{escape(description)}</desc>{''.join(parts)}</svg>"
    )


def _render_whisker(rate: Rate, x: float, scale: Scale) -> Iterator[str]:
    if rate.rate is None:
        return
    yield '<g class="raw">'
    if rate.low is not None and rate.high is not None:
        low, high = _to_y(scale, rate.low), _to_y(scale, rate.high)
        yield f'<line x1="{x:.2f}%" x2="{x:.2f}%" y1="{low}" y2="{high}"/>'
    yield f"{_render_point(round(x, 2), _to_y(scale, rate.rate), 'raw')}</g>"


# ── parts of a whole


def render_shares(parts: Sequence[tuple[str, int]], names: Sequence[str]) -> str:
    """Render the parts of a whole side by side; `names` are their CSS classes."""
    whole = sum(count for _, count in parts)
    if not whole:
        return ""
    description = ", ".join(f"{label} {count:,} ({count / whole:.0%})" for label, count in parts)
    x, boxes = 0.0, list[str]()
    for (_, count), name in zip(parts, names, strict=False):
        width = 100 * count / whole
        boxes.append(f'<rect class="{name}" x="{x:.2f}%" width="{width:.2f}%" height="22"/>')
        x += width
    return (
        f'<svg class="share" role="img"><title>{escape(description)}</title>{"".join(boxes)}</svg>'
    )
