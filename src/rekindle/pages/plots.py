"""Plots as inline SVG that fit any width, for every page: no scripts, no inline styles.

Horizontal positions are percentages of the width, so that plots scale but their text does not; only
bands and sparklines, which carry no text, are stretched. A plot has a title and says its values in
words. A point with an address is a link to what is behind it, and its words are its hint. Colors are
classes (`c1` … `c6`); `PLOT_STYLE` gives them their tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

_TICK_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
_MAX_TICKS = 5
_STRETCHED_UNITS = 1000  # width of the view box of stretched parts
_TOP, _LABELS_HEIGHT = 8, 22  # free space above a plot, and for the labels under it
_MINOR = ' class="minor"'  # a label that is left out where there is little room
_MAX_LABELS = 9  # that fit beside each other on a phone

PLOT_STYLE = """
.graph{display:block;width:100%;overflow:visible}
.graph text{fill:var(--soft);font-size:11px;font-family:var(--sans);font-variant-numeric:tabular-nums}
.graph .grid{stroke:var(--line)}.graph .zero{stroke:var(--soft);stroke-opacity:.6}
.graph .mark{stroke:var(--soft);stroke-dasharray:2 3}
.graph .hit{fill:transparent}
.graph a{color:inherit}.graph a:hover .hit{fill:var(--ink);fill-opacity:.06}
.graph a:focus-visible{outline:none}.graph a:focus-visible .hit{stroke:var(--link);stroke-width:2}
.graph .band{fill-opacity:.15}.graph .range{stroke-width:2;stroke-linecap:round;stroke-opacity:.55}
.graph .bar{fill-opacity:.8}.graph a:hover .bar{fill-opacity:1}.graph .bar.few{fill-opacity:.3}
.graph .whisker{stroke:var(--ink);stroke-opacity:.65;stroke-width:1.5}
.graph .point{stroke:var(--card);stroke-width:1.5}
.graph .point.few{fill:var(--card);stroke:currentColor}
.plot-frame{padding:0 .4rem 0 2.9rem;margin:0}
.plot-key{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none;margin:.4rem 0 0;padding:0;
font-size:var(--tiny);color:var(--soft)}
.plot-key svg{display:inline-block;width:22px;height:12px;vertical-align:-2px;margin-right:.4rem}
.graph.spark{width:7rem;height:1.5rem;display:inline-block;vertical-align:middle}
.forest{font-size:.88rem}.forest th,.forest td{padding:.18rem .7rem .18rem 0;vertical-align:middle}
.forest thead :is(th,td){font-size:var(--tiny);font-weight:600;color:var(--soft);vertical-align:bottom}
.forest tbody tr{border-top:1px solid var(--line)}
.forest tbody th{font-weight:500;overflow-wrap:anywhere}
.forest tbody th a{color:var(--ink);text-decoration:none}
.forest tbody th a:hover{text-decoration:underline}
.forest .num a{color:inherit;text-decoration-color:var(--line)}
.forest .cell{width:42%;min-width:5.5rem;padding-right:1.4rem}
.forest td.num:last-child,.forest th.num:last-child{padding-right:0}
.forest .num{white-space:nowrap}.forest td.cell{padding-top:0;padding-bottom:0}
.forest small{color:var(--soft);font-weight:400;font-size:var(--tiny)}.forest th small{display:block}
.forest td small{display:inline-block;min-width:5.2em;margin-left:.3rem}
.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}
.c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}
@media (max-width:48rem){.forest .cell{width:34%;padding-right:.8rem}
.forest td,.forest th{padding-right:.45rem}
.forest td small{display:block;margin:0}.graph .minor{display:none}.plot-frame{padding-left:2.4rem}}
""".strip()


class Svg(str):
    """Markup that was built from escaped parts: templates insert it as it is."""

    def __html__(self) -> str:
        return str(self)


class Scale(NamedTuple):
    """A scale from left to right or from bottom to top."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def to_percent(self, value: float) -> float:
        """Map a value to 0–100; values outside the scale are clamped to its ends."""
        share = (value - self.low) / (self.high - self.low)
        return round(100 * min(1.0, max(0.0, share)), 2)


class PlotPoint(NamedTuple):
    """A value with its interval; without one there is too little data, and the point is hollow."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    words: str = ""  # the point as a sentence, for its hint
    href: str = ""  # what is behind it

    @property
    def is_certain(self) -> bool:
        return self.low is not None and self.high is not None


class ForestRow(NamedTuple):
    """A row of a forest plot: a point, the text of its value, and more cells."""

    point: PlotPoint
    text: str
    interval: str = ""
    cells: tuple[str, ...] = ()
    note: str = ""  # under the name
    narrow: str = ""  # where the name leads, if not to what is behind the point


def create_scale(low: float, high: float, *, least: float = 0.005) -> Scale:
    """Create a scale that includes zero and both values, with few and round ticks."""
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low < least:
        high = low + least
    step = next(step for step in _iter_steps() if (high - low) / step <= _MAX_TICKS)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    ticks = tuple(round(number * step, 6) for number in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], ticks)


def _iter_steps() -> Iterator[float]:
    yield from _TICK_STEPS
    size = 1.0
    while True:
        yield from (size, 2 * size, 5 * size)
        size *= 10


def fit_scale(points: Sequence[PlotPoint], *, least: float = 0.005) -> Scale:
    """Create a scale for points.

    Wide intervals, and values too uncertain to have one, do not flatten the others: they may end at
    the edge.
    """
    certain = [point for point in points if point.is_certain]
    values = [point.value for point in certain or points if point.value is not None]
    reach = 3 * max(map(abs, values), default=0.0) + 4 * least
    highs = [*values, *(min(point.high, reach) for point in points if point.high is not None)]
    lows = [*values, *(max(point.low, -reach) for point in points if point.low is not None)]
    return create_scale(min(lows, default=0.0), max(highs, default=0.0), least=least)


def format_tick(value: float, *, signed: bool = False) -> str:
    """Format a tick: `5%`, or `+5` for points."""
    number = f"{100 * value:+.1f}" if signed and value else f"{100 * value:.1f}"
    text = number.removesuffix(".0").replace("-", "−")
    return text if signed else f"{text}%"


def format_points(value: float) -> str:
    """Format a difference in percentage points."""
    return format_tick(value, signed=True)


def format_amount(value: float) -> str:
    """Format a count or a sum shortly."""
    for suffix, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:,.3g}"


# ── frames


def _wrap_plot(title: str, points: Sequence[PlotPoint], height: float, parts: Sequence[str]) -> Svg:
    """Return a whole plot. With links in it, it is a group: a picture may hold nothing to press."""
    described = "; ".join(_describe_point(point) for point in points if point.value is not None)
    role = "group" if any(point.href for point in points) else "img"
    return Svg(
        f'<div class="plot-frame"><svg class="graph" height="{height:g}" role="{role}"'
        f' aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"<desc>{escape(described)}</desc>{''.join(parts)}</svg></div>"
    )


def _describe_point(point: PlotPoint) -> str:
    return point.words or f"{point.label}: {point.value:g}"


def _link_point(point: PlotPoint, shapes: str) -> str:
    words = escape(_describe_point(point)) if point.value is not None else escape(point.label)
    inner = f"<title>{words}</title>{shapes}"
    if not point.href:
        return f"<g>{inner}</g>"
    return f'<a href="{escape(point.href)}" aria-label="{words}">{inner}</a>'


def _render_grid(
    scale: Scale, height: float, format_value: Callable[[float], str]
) -> Iterator[str]:
    for tick in scale.ticks:
        y = _to_y(scale, tick, height)
        name = "zero" if tick == 0 else "grid"
        yield f'<line class="{name}" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        yield f'<text x="0" dx="-8" y="{y + 4:g}" text-anchor="end">{escape(format_value(tick))}</text>'


def _render_labels(points: Sequence[PlotPoint], height: float) -> Iterator[str]:
    every = max(1, -(-len(points) // _MAX_LABELS))
    width = 100 / max(1, len(points))
    for number, point in enumerate(points):
        if number % every == 0:
            x = width * (number + 0.5)
            yield f'<text x="{x:.2f}%" y="{height + _TOP + 16:g}" text-anchor="middle">'
            yield f"{escape(point.label)}</text>"


def _to_y(scale: Scale, value: float, height: float) -> float:
    return round(_TOP + height * (1 - scale.to_percent(value) / 100), 1)


def _render_hit(x: float, width: float, height: float) -> str:
    """Render the invisible column that makes a point easy to press."""
    return (
        f'<rect class="hit" x="{x - width / 2:.2f}%" y="{_TOP}" width="{width:.2f}%"'
        f' height="{height:g}"/>'
    )


# ── lines and bars


def render_line(
    title: str,
    points: Sequence[PlotPoint],
    *,
    color: str = "c1",
    height: float = 150,
    scale: Scale | None = None,
    format_value: Callable[[float], str] = format_tick,
    mark: float | None = None,
) -> Svg:
    """Render a line with its intervals as a band; the line stops where data is missing or too little."""
    scale = scale or fit_scale(points)
    width = 100 / max(1, len(points))
    parts = [*_render_grid(scale, height, format_value)]
    if mark is not None:
        y = _to_y(scale, mark, height)
        parts.append(f'<line class="mark" x1="0" x2="100%" y1="{y}" y2="{y}"/>')
    parts += [f'<g class="{color}">', *_render_band(points, scale, height)]
    parts += _render_segments(points, scale, height)
    for number, point in enumerate(points):
        x = width * (number + 0.5)
        shapes = _render_hit(x, width, height)
        if point.value is not None:
            few = "" if point.is_certain else " few"
            y = _to_y(scale, point.value, height)
            shapes += (
                f'<circle class="point{few}" cx="{x:.2f}%" cy="{y}" r="4.5" fill="currentColor"/>'
            )
        parts.append(_link_point(point, shapes))
    parts += ["</g>", *_render_labels(points, height)]
    return _wrap_plot(title, points, height + _TOP + _LABELS_HEIGHT, parts)


def _render_segments(points: Sequence[PlotPoint], scale: Scale, height: float) -> Iterator[str]:
    width = 100 / max(1, len(points))
    for number, (one, other) in enumerate(pairwise(points)):
        if one.value is None or other.value is None:
            continue
        if one.is_certain and other.is_certain:
            ends = f'x1="{width * (number + 0.5):.2f}%" x2="{width * (number + 1.5):.2f}%"'
            heights = [_to_y(scale, value, height) for value in (one.value, other.value)]
            ends += f' y1="{heights[0]}" y2="{heights[1]}"'
            yield f'<line {ends} stroke="currentColor" stroke-width="1.5"/>'


def _render_band(points: Sequence[PlotPoint], scale: Scale, height: float) -> Iterator[str]:
    """Render the intervals as bands over unbroken runs of points, stretched over the plot."""
    runs: list[list[tuple[float, float, float]]] = [[]]
    for number, point in enumerate(points):
        if point.low is None or point.high is None:
            runs.append([])
            continue
        x = round(_STRETCHED_UNITS * (number + 0.5) / len(points), 1)
        low, high = _to_y(scale, point.low, height), _to_y(scale, point.high, height)
        runs[-1].append((x, low, high))
    full = height + _TOP
    yield f'<svg y="0" width="100%" height="{full:g}" viewBox="0 0 {_STRETCHED_UNITS} {full:g}"'
    yield ' preserveAspectRatio="none">'
    for run in runs:
        if len(run) == 1:
            x, low, high = run[0]
            size = f'width="6" height="{max(1.0, low - high):g}"'
            yield f'<rect class="band" x="{x - 3}" y="{high}" {size} fill="currentColor"/>'
        elif run:
            upper = " ".join(f"{x},{high}" for x, _, high in run)
            lower = " ".join(f"{x},{low}" for x, low, _ in reversed(run))
            yield f'<polygon class="band" points="{upper} {lower}" fill="currentColor"/>'
    yield "</svg>"


def render_bars(
    title: str,
    points: Sequence[PlotPoint],
    *,
    color: str = "c2",
    height: float = 120,
    scale: Scale | None = None,
    format_value: Callable[[float], str] = format_tick,
) -> Svg:
    """Render bars from zero, with their intervals as lines; pale where data is too little for one."""
    scale = scale or fit_scale(points)
    width = 100 / max(1, len(points))
    parts = [*_render_grid(scale, height, format_value), f'<g class="{color}">']
    with_intervals = any(point.is_certain for point in points)
    for number, point in enumerate(points):
        x = width * (number + 0.5)
        shapes = _render_hit(x, width, height)
        if point.value is not None:
            few = " few" if with_intervals and not point.is_certain else ""
            shapes += _render_bar(point, x, width, few, scale, height)
        parts.append(_link_point(point, shapes))
    parts += ["</g>", *_render_labels(points, height)]
    return _wrap_plot(title, points, height + _TOP + _LABELS_HEIGHT, parts)


def _render_bar(
    point: PlotPoint, x: float, width: float, few: str, scale: Scale, height: float
) -> str:
    value = point.value or 0.0
    ends = sorted((_to_y(scale, 0.0, height), _to_y(scale, value, height)))
    size = max(2.0 if value else 0.0, ends[1] - ends[0])
    top = ends[1] - size if value >= 0 else ends[0]
    bar = (
        f'<rect class="bar{few}" x="{x - width * 0.36:.2f}%" y="{top:g}" width="{width * 0.72:.2f}%"'
        f' height="{size:g}" rx="2" fill="currentColor"/>'
    )
    if point.low is None or point.high is None:
        return bar
    low, high = _to_y(scale, point.low, height), _to_y(scale, point.high, height)
    whisker = f'x1="{x:.2f}%" x2="{x:.2f}%" y1="{low}" y2="{high}"'
    return f'{bar}<line class="whisker" {whisker}/>'


# ── rows


def render_axis(
    scale: Scale, *, signed: bool = False, format_value: Callable[[float], str] | None = None
) -> Svg:
    """Render the tick labels above a column of plots."""
    show = format_value or (format_points if signed else format_tick)
    zero = scale.ticks.index(0.0) if 0.0 in scale.ticks else 0
    labels = "".join(
        f'<text x="{scale.to_percent(tick)}%" y="12" text-anchor="middle"'
        f"{_MINOR if (number - zero) % 2 else ''}>{escape(show(tick))}</text>"
        for number, tick in enumerate(scale.ticks)
    )
    return Svg(f'<svg class="graph" height="16" aria-hidden="true">{labels}</svg>')


def render_whisker(
    scale: Scale,
    point: PlotPoint,
    *,
    color: str = "c1",
    mark: float | None = None,
    height: float = 26,
) -> Svg:
    """Render one value with its interval on a scale, for a cell of a table."""
    lines = "".join(
        f'<line class="{"zero" if tick == 0 else "grid"}" x1="{scale.to_percent(tick)}%"'
        f' x2="{scale.to_percent(tick)}%" y1="0" y2="{height:g}"/>'
        for tick in scale.ticks
    )
    if mark is not None:
        x = scale.to_percent(mark)
        lines += f'<line class="mark" x1="{x}%" x2="{x}%" y1="0" y2="{height:g}"/>'
    shapes = f'<rect class="hit" width="100%" height="{height:g}" fill-opacity="0"/>'
    middle = height / 2
    if point.low is not None and point.high is not None:
        ends = f'x1="{scale.to_percent(point.low)}%" x2="{scale.to_percent(point.high)}%"'
        shapes += (
            f'<line class="range" {ends} y1="{middle:g}" y2="{middle:g}" stroke="currentColor"/>'
        )
    if point.value is not None:
        few = "" if point.is_certain else " few"
        x = scale.to_percent(point.value)
        shapes += (
            f'<circle class="point{few}" cx="{x}%" cy="{middle:g}" r="4.5" fill="currentColor"/>'
        )
    words = escape(_describe_point(point) if point.value is not None else point.label)
    role = "group" if point.href else "img"
    return Svg(
        f'<svg class="graph {color}" height="{height:g}" role="{role}" aria-label="{words}">{lines}'
        f"{_link_point(point, shapes)}</svg>"
    )


def render_forest(
    title: str,
    rows: Sequence[ForestRow],
    *,
    names: Sequence[str] = ("", "", ""),
    color: str = "c1",
    scale: Scale | None = None,
    format_value: Callable[[float], str] = format_tick,
    mark: float | None = None,
) -> Svg:
    """Render a table of values with their intervals on one scale.

    `names` are the headers: of the rows, of the values, and of their further cells.
    """
    scale = scale or fit_scale([row.point for row in rows])
    first, second, *others = names
    heads = "".join(
        f'<th scope="col" class="num">{escape(name)}</th>' for name in (second, *others)
    )
    axis = render_axis(scale, format_value=format_value)
    head = f'<th scope="col">{escape(first)}</th><td class="cell">{axis}</td>{heads}'
    body = "".join(_render_forest_row(row, scale, color, mark) for row in rows)
    return Svg(
        f'<table class="forest" aria-label="{escape(title)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _render_forest_row(row: ForestRow, scale: Scale, color: str, mark: float | None) -> str:
    point = row.point
    name = escape(point.label)
    if target := row.narrow or point.href:
        name = f'<a href="{escape(target)}">{name}</a>'
    text = escape(row.text)
    if row.narrow and point.href:
        text = f'<a href="{escape(point.href)}" title="{escape(_describe_point(point))}">{text}</a>'
    note = f"<small>{escape(row.note)}</small>" if row.note else ""
    plot = render_whisker(scale, point._replace(href=""), color=color, mark=mark)
    if point.href:  # keys and screen readers use the text: the picture is for the pointer
        plot = f'<a href="{escape(point.href)}" tabindex="-1" aria-hidden="true">{plot}</a>'
    interval = f"<small>{escape(row.interval)}</small>" if row.interval else ""
    cells = "".join(f'<td class="num">{escape(text)}</td>' for text in row.cells)
    return (
        f'<tr><th scope="row">{name}{note}</th><td class="cell">{plot}</td>'
        f'<td class="num">{text}{interval}</td>{cells}</tr>'
    )


# ── small ones


def render_sparkline(
    title: str, values: Sequence[float | None], *, color: str = "c1", height: float = 24
) -> Svg:
    """Render a line without axes, to stand in a row of text; missing values break it."""
    known = [value for value in values if value is not None]
    if not known:
        return Svg("")
    scale = Scale(min(0.0, *known), max([*known, 1e-9]), ())
    step = 100 / max(1, len(values) - 1) if len(values) > 1 else 0.0
    runs: list[list[str]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            y = 2 + (height - 4) * (1 - scale.to_percent(value) / 100)
            runs[-1].append(f"{number * step:.1f},{y:.1f}")
    lines = "".join(
        f'<polyline points="{" ".join(run if len(run) > 1 else run * 2)}" fill="none"'
        ' stroke="currentColor" stroke-width="1.5" stroke-linecap="round"'
        ' vector-effect="non-scaling-stroke"/>'
        for run in runs
        if run
    )
    return Svg(
        f'<svg class="graph spark {color}" viewBox="0 0 100 {height:g}" preserveAspectRatio="none"'
        f' role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>{lines}</svg>'
    )


def render_key(*entries: tuple[str, str]) -> Svg:
    """Render the legend of the colors: a class and its words each."""
    items = "".join(
        f'<li><svg class="graph {color}" aria-hidden="true"><line class="range" x1="0" x2="100%"'
        ' y1="6" y2="6" stroke="currentColor"/>'
        f'<circle cx="50%" cy="6" r="4" fill="currentColor"/></svg>{escape(words)}</li>'
        for color, words in entries
    )
    return Svg(f'<ul class="plot-key">{items}</ul>')
