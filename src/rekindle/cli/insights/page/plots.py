"""Plots as inline SVG that fit any width.

Across, everything is in percent of the width, so that a plot gives way and its letters do not; only
bands and curves, which have no letters, are stretched. Each plot says in words what it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, floor
from typing import TYPE_CHECKING, NamedTuple

from rekindle.cli.insights.render import short

if TYPE_CHECKING:
    from rekindle.analytics.cluster_stats import Estimate, Rate
    from rekindle.analytics.compression import Nearby
    from rekindle.analytics.insights import Step

_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
_MOST_TICKS = 5
_UNIT = 1000  # of the stretched parts


class Scale(NamedTuple):
    """Values from left to right, or from bottom to top."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Where a value stands, from 0 to 100; what lies outside stands at the edge."""
        share = (value - self.low) / (self.high - self.low)
        return round(100 * min(1.0, max(0.0, share)), 2)


def scale(low: float, high: float) -> Scale:
    """A scale that holds both, with few and round ticks."""
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 0.005:
        high = low + 0.005
    step = next((step for step in _STEPS if (high - low) / step <= _MOST_TICKS), 0.5)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    ticks = tuple(round(number * step, 6) for number in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], ticks)


def tick_text(value: float, *, signed: bool = False) -> str:
    """`5%`, or `+5` where points are meant."""
    number = f"{100 * value:+.1f}" if signed and value else f"{100 * value:.1f}"
    short = number.removesuffix(".0").replace("-", "−")
    return short if signed else f"{short}%"


# ── a row of a table


def axis(on: Scale, *, signed: bool = False) -> str:
    """The numbers over a column of plots."""
    labels = "".join(
        f'<text x="{on.at(tick)}%" y="12" text-anchor="middle">{tick_text(tick, signed=signed)}</text>'
        for tick in on.ticks
    )
    return f'<svg height="16" aria-hidden="true">{labels}</svg>'


def row(
    on: Scale,
    words: str,
    raw: Estimate | Rate | None,
    fair: Estimate | Rate | None = None,
    claimed: float | None = None,
) -> str:
    """One or two intervals on a scale; `words` say the same to those who do not see it."""
    height = 26 if fair is None else 34
    lines = "".join(
        f'<line class="{"zero" if tick == 0 else "grid"}" x1="{on.at(tick)}%" x2="{on.at(tick)}%"'
        f' y1="0" y2="{height}"/>'
        for tick in on.ticks
    )
    if claimed:
        at = on.at(claimed)
        lines += f'<line class="claimed" x1="{at}%" x2="{at}%" y1="3" y2="{height - 3}"/>'
    middle = height / 2 if fair is None else height / 2 - 7
    marks = _mark(on, raw, middle, "raw") + _mark(on, fair, height / 2 + 7, "fair")
    return f'<svg height="{height}" role="img"><title>{escape(words)}</title>{lines}{marks}</svg>'


def _mark(on: Scale, value: Estimate | Rate | None, y: float, name: str) -> str:
    """An interval with its middle; what has too few calls for one is not drawn."""
    middle = _middle(value)
    if value is None or middle is None or value.low is None or value.high is None:
        return ""
    ends = f'x1="{on.at(value.low)}%" x2="{on.at(value.high)}%"'
    line = f'<line {ends} y1="{y}" y2="{y}"/>'
    return f'<g class="{name}">{line}{_point(on.at(middle), y, name)}</g>'


def _middle(value: Estimate | Rate | None) -> float | None:
    if value is None:
        return None
    middle: float | None = getattr(value, "value", None)
    return middle if middle is not None else getattr(value, "rate", None)


def _point(x: float, y: float, name: str) -> str:
    """A circle for what is raw, a square for what is corrected: colour alone tells not everybody."""
    if name == "raw":
        return f'<circle cx="{x}%" cy="{y}" r="4.5" stroke="none"/>'
    box = f'x="{x}%" y="{y - 4}" width="8" height="8"'
    return f'<rect {box} transform="translate(-4 0)" stroke="none"/>'


def key(*names: tuple[str, str]) -> str:
    """What the marks mean."""
    items = "".join(
        f'<li><svg aria-hidden="true" class="{name}"><line x1="0" x2="100%" y1="6" y2="6"'
        f' stroke-width="2"/>{_point(50, 6, name)}</svg>{escape(words)}</li>'
        for name, words in names
    )
    return f'<ul class="key">{items}</ul>'


# ── over the course of a session

_HIGH, _LOW, _LEFT = 210, 62, 9.0  # the curve, the bars under it, and room for the numbers


def positions(steps: Sequence[Step]) -> str:
    """The error rate by call number, and under it how many sessions got that far."""
    shown = [step for step in steps if step.rate.rate is not None]
    if not shown:
        return ""
    base = shown[0].rate.rate or 0.0
    tops = [step.rate.high or step.rate.rate or 0.0 for step in shown]
    tops += [base + step.change.high for step in shown if step.change]
    on = scale(0.0, min(max(tops), 3 * max(step.rate.rate or 0.0 for step in shown) + 0.02))
    parts = [_grid(on), _band([step.rate for step in shown], on)]
    most = max(step.alive for step in shown)
    width = (100 - _LEFT) / len(shown)
    for number, step in enumerate(shown):
        x = _LEFT + width * (number + 0.5)
        parts += _curve(shown, number, x, width, on)
        parts += _fair(step, base, x + width / 8, on)
        parts += _alive(step, x, width, most)
    said = "; ".join(_said(step) for step in shown)
    return (
        f'<svg class="tall" height="{_HIGH + _LOW + 44}" role="img">'
        "<title>Error rate by call number, with the sessions that got that far</title>"
        f"<desc>{escape(said)}</desc>{''.join(parts)}</svg>"
    )


def _said(step: Step) -> str:
    return f"from call {step.first}: {step.rate.rate or 0:.1%}, {step.alive} sessions"


def _y(on: Scale, value: float) -> float:
    return round(_HIGH - on.at(value) / 100 * (_HIGH - 10), 1)


def _grid(on: Scale) -> str:
    return "".join(
        f'<line class="grid" x1="{_LEFT}%" x2="100%" y1="{_y(on, tick)}" y2="{_y(on, tick)}"/>'
        f'<text x="{_LEFT - 1}%" y="{_y(on, tick) + 4}" text-anchor="end">{tick_text(tick)}</text>'
        for tick in on.ticks
    )


def _band(rates: Sequence[Rate], on: Scale) -> str:
    """The intervals as one band, stretched over the plot."""
    points: list[tuple[float, float, float]] = []
    for number, rate in enumerate(rates):
        if rate.low is not None and rate.high is not None:
            x = _UNIT * (number + 0.5) / len(rates)
            points.append((round(x, 1), _y(on, rate.low), _y(on, rate.high)))
    upper = " ".join(f"{x},{high}" for x, _, high in points)
    lower = " ".join(f"{x},{low}" for x, low, _ in reversed(points))
    box = f'viewBox="0 0 {_UNIT} {_HIGH}" preserveAspectRatio="none"'
    place = f'x="{_LEFT}%" y="0" width="{100 - _LEFT}%" height="{_HIGH}"'
    return f'<svg {place} {box}><polygon class="band" points="{upper} {lower}"/></svg>'


def _curve(shown: Sequence[Step], number: int, x: float, width: float, on: Scale) -> Iterator[str]:
    """A point, and the line to the next; a hollow one where there are too few calls."""
    rate = shown[number].rate
    y = _y(on, rate.rate or 0.0)
    if rate.range is None:
        yield f'<circle class="hollow" cx="{x:.2f}%" cy="{y}" r="3.5"/>'
        return
    after = shown[number + 1].rate if number + 1 < len(shown) else None
    if after and after.range:
        ends = f'y1="{y}" y2="{_y(on, after.rate or 0.0)}"'
        yield f'<g class="raw"><line x1="{x:.2f}%" x2="{x + width:.2f}%" {ends}/></g>'
    yield f'<g class="raw">{_point(round(x, 2), y, "raw")}</g>'


def _fair(step: Step, base: float, x: float, on: Scale) -> Iterator[str]:
    """What the first rate becomes by the change inside sessions."""
    if step.change is None:
        return
    low, high = (_y(on, base + value) for value in step.change.range)
    yield f'<g class="fair"><line x1="{x:.2f}%" x2="{x:.2f}%" y1="{low}" y2="{high}"/>'
    yield f"{_point(round(x, 2), _y(on, base + step.change.value), 'fair')}</g>"


def _alive(step: Step, x: float, width: float, most: int) -> Iterator[str]:
    top, height = _HIGH + 40, max(1.0, round(step.alive / most * _LOW, 1))
    left = x - width * 0.4
    yield f'<text x="{x:.2f}%" y="{_HIGH + 18}" text-anchor="middle">{step.first:,}</text>'
    yield f'<rect class="alive" x="{left:.2f}%" y="{top + _LOW - height}" width="{width * 0.8:.2f}%"'
    yield f' height="{height}" rx="2"/>'
    y = top + _LOW - height - 4
    yield f'<text x="{x:.2f}%" y="{y}" text-anchor="middle">{short(step.alive)}</text>'


# ── around a compression


def around(steps: Sequence[Nearby]) -> str:
    """The error rate in the calls before and after compressions."""
    known = [step for step in steps if step.rate.rate is not None]
    if not known:
        return ""
    tops = [step.rate.high or step.rate.rate or 0.0 for step in known]
    on = scale(0.0, max(tops))
    width = (100 - _LEFT) / len(steps)
    middle = _LEFT + (100 - _LEFT) / 2
    parts = [
        _grid(on),
        f'<line class="claimed" x1="{middle}%" x2="{middle}%" y1="0" y2="{_HIGH}"/>',
    ]
    for number, step in enumerate(steps):
        x = _LEFT + width * (number + 0.5)
        text = f"{step.first}".replace("-", "−") if step.first < 0 else f"+{step.last}"
        parts.append(f'<text x="{x:.2f}%" y="{_HIGH + 18}" text-anchor="middle">{text}</text>')
        parts += _whisker(step.rate, x, on)
    parts.append(f'<text x="{middle}%" y="{_HIGH + 36}" text-anchor="middle">compression</text>')
    said = "; ".join(f"{one.first} to {one.last}: {one.rate.rate or 0:.1%}" for one in known)
    return (
        f'<svg class="tall" height="{_HIGH + 42}" role="img">'
        "<title>Error rate by the number of calls before and after a compression</title>"
        f"<desc>{escape(said)}</desc>{''.join(parts)}</svg>"
    )


def _whisker(rate: Rate, x: float, on: Scale) -> Iterator[str]:
    if rate.rate is None:
        return
    yield '<g class="raw">'
    if rate.low is not None and rate.high is not None:
        low, high = _y(on, rate.low), _y(on, rate.high)
        yield f'<line x1="{x:.2f}%" x2="{x:.2f}%" y1="{low}" y2="{high}"/>'
    yield f"{_point(round(x, 2), _y(on, rate.rate), 'raw')}</g>"


# ── parts of a whole


def shares(parts: Sequence[tuple[str, int]], names: Sequence[str]) -> str:
    """Parts of a whole side by side; `names` are their classes."""
    whole = sum(count for _, count in parts)
    if not whole:
        return ""
    said = ", ".join(f"{label} {count:,} ({count / whole:.0%})" for label, count in parts)
    x, boxes = 0.0, list[str]()
    for (_, count), name in zip(parts, names, strict=False):
        width = 100 * count / whole
        boxes.append(f'<rect class="{name}" x="{x:.2f}%" width="{width:.2f}%" height="22"/>')
        x += width
    return f'<svg class="share" role="img"><title>{escape(said)}</title>{"".join(boxes)}</svg>'
