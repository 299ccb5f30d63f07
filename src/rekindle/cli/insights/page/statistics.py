"""Render the statistics behind the overview: rates with intervals, and claims that are tested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from rekindle.cli.insights.render import (
    format_difference,
    format_estimate,
    format_percent,
    format_rate,
)
from rekindle.cli.output import escape_control_chars, format_count
from rekindle.pages.plots import Scale, create_scale, render_axis

from . import plots

if TYPE_CHECKING:
    from rekindle.analytics.claims import Claim, ClaimReading
    from rekindle.analytics.cluster_stats import Estimate, Rate
    from rekindle.analytics.insights import Insights, SessionGroupRow
    from rekindle.analytics.sample import Totals

_MAX_ROWS = 25
_CHIP_STYLES = {
    "supported": ("yes", "✓"),
    "absent": ("yes", "✓"),
    "not supported": ("no", "✕"),
    "present": ("no", "!"),
}
_SECTION_IDS = (
    "claims",
    "positions",
    "lengths",
    "tasks",
    "tools",
    "sources",
    "models",
    "compression",
)


def render_statistics(found: Insights) -> Iterator[str]:
    """Yield the statistics piece by piece, with all foreign names escaped."""
    yield from _render_header(found)
    yield from _render_faults(found)
    yield from _render_claims(found.claims)
    yield from _render_positions(found)
    yield from _render_groups(
        "lengths", "By session length", "messages", found.lengths, _LENGTHS_NOTE
    )
    yield from _render_groups("tasks", "By task", "task", found.tasks, _TASKS_NOTE)
    yield from _render_tools(found)
    yield from _render_groups("sources", "By source", "source", found.sources, _SOURCES_NOTE)
    yield from _render_lengths_by_source(found)
    yield from _render_groups("models", "By model", "model", found.models, _MODELS_NOTE)
    yield from _render_compression(found)
    yield _METHOD_SECTION


# ── header


def _render_header(found: Insights) -> Iterator[str]:
    totals, rate = found.totals, found.rate
    yield "<h2>How reliable are tool calls?</h2>\n"
    yield f'<p class="lead">{format_count(totals.sessions, "session")}: how often calls fail, where, and'
    yield " whether that changes over a session.</p>\n"
    yield '<ul class="facts">'
    yield _render_fact(format_percent(rate.rate), "of judged calls failed", _format_interval(rate))
    yield _render_fact(f"{totals.judged:,}", "calls judged", f"of {totals.calls:,} in all")
    yield _render_fact(f"{totals.sessions:,}", "sessions", f"{totals.with_calls:,} with calls")
    yield _render_fact(
        f"{totals.unknown:,}", "calls unknown", "no evidence; not counted as success"
    )
    yield "</ul>\n<nav>"
    yield "".join(f'<a href="#{part}">{part}</a>' for part in _SECTION_IDS)
    yield "</nav>\n"


def _render_fact(number: str, name: str, more: str) -> str:
    return f"<li><b>{number}</b><span>{name}</span><span>{more}</span></li>"


def _format_interval(rate: Rate) -> str:
    if rate.low is None or rate.high is None:
        return "too few calls for an interval"
    return f"95% interval {100 * rate.low:.1f}–{100 * rate.high:.1f}%"


def _render_faults(found: Insights) -> Iterator[str]:
    totals = found.totals
    parts = _list_faults(totals)
    classes = ("fa", "fb", "fd", "fe")
    yield '<section id="whose">\n<h2>Errors by fault</h2>\n'
    yield f"<p>{totals.failed:,} of {format_count(totals.judged, 'judged call')} failed.</p>"
    yield plots.render_shares([(name, count) for name, count, _ in parts], classes)
    yield '<div class="two"><table><tbody>'
    for (name, count, about), colour in zip(parts, classes, strict=True):
        share = count / totals.failed if totals.failed else 0.0
        yield f'<tr><th scope="row"><span class="dot {colour}"></span>{name}<small>{about}</small>'
        yield f'</th><td class="num">{count:,}<small>{share:.0%}</small></td></tr>'
    yield "</tbody></table>\n<table><tbody>"
    for name, count in list(found.errors.items())[:8]:
        share = count / totals.failed
        yield f'<tr><th scope="row">{_escape_text(name)}</th><td class="num">{count:,}'
        yield f"<small>{share:.0%}</small></td></tr>"
    yield "</tbody></table></div>\n"
    yield f'<p class="note">Excluded: {totals.unknown:,} calls without evidence of their outcome,'
    yield f" {totals.refused:,} that a person, a hook or a rule refused, {totals.bookkeeping:,} of"
    yield f" bookkeeping tools, and {totals.copies:,} copies in resumed and forked sessions."
    yield f" {totals.not_failed_but_expected:,} calls had a negative result (a"
    yield " search without a match): they did not fail.</p>\n</section>\n"


def _list_faults(totals: Totals) -> Sequence[tuple[str, int, str]]:
    return (
        ("agent", totals.agent, "wrong arguments, paths, edits, code"),
        ("environment", totals.environment, "network, limits, time, missing services"),
        ("expected", totals.expected, "a failing test or check"),
        ("other", totals.other, "cause unknown"),
    )


# ── claims


def _render_claims(claims: Sequence[Claim]) -> Iterator[str]:
    yield '<section id="claims">\n<h2>Claims, tested</h2>\n'
    yield "<p>Each claim is tested as stated, and then with the confounders removed that could make"
    yield " it look true. It holds only if every reading supports it.</p>"
    yield plots.render_legend(("raw", "difference in percentage points, 95% interval"))
    yield '<p class="note">The dashed line marks the claimed difference (37% of the rate). A reading'
    yield " is <b>not supported</b> only if its interval excludes it.</p>"
    for claim in claims:
        yield f'<div class="claim"><p><b>{escape(claim.text)}</b></p>{_render_chip(claim.verdict)}'
        yield from _render_readings(claim.readings, "Readings", "verdict")
        yield from _render_readings(claim.traps, "Possible confounders", "trap")
        yield "</div>\n"
    yield "</section>\n"


def _render_readings(readings: Sequence[ClaimReading], title: str, last: str) -> Iterator[str]:
    scale = _create_difference_scale([reading.difference for reading in readings])
    yield f"<h3>{title}</h3>"
    yield '<table class="rows readings"><thead><tr><th scope="col">reading</th>'
    yield f'<th scope="col" class="plot">{render_axis(scale, signed=True)}</th>'
    yield f'<th scope="col">difference</th><th scope="col">from</th><th scope="col">{last}</th>'
    yield "</tr></thead><tbody>"
    for reading in readings:
        words = f"{reading.name}: {format_difference(reading.difference)} points"
        plot = plots.render_intervals(scale, words, reading.difference, claimed=reading.claimed)
        yield f'<tr><th scope="row">{escape(reading.name)}<small>{escape(reading.about)}</small>'
        yield f'</th><td class="plot">{plot}</td><td data-label="difference in points">'
        yield f"{_stack_interval(format_difference(reading.difference))}</td>"
        yield f'<td class="from">{_render_sides(reading)}</td>'
        yield f"<td>{_render_chip(reading.verdict)}</td></tr>"
    yield "</tbody></table>"


def _render_sides(reading: ClaimReading) -> str:
    lines = (
        f'<div><span class="wide">{label}: {format_rate(rate)}</span>'
        f"<small>{format_count(rate.sessions, 'session')},"
        f" {format_count(rate.calls, 'call')}</small></div>"
        for label, rate in zip(reading.sides, (reading.before, reading.after), strict=True)
    )
    return "".join(lines)


def _stack_interval(text: str) -> str:
    """Put the interval of `−1.2 [−2.4, +0.1]` on a separate line."""
    value, _, rest = text.partition(" ")
    return f"<b>{value}</b>" + (
        f"<small>{rest.strip('()[]').replace(', ', ' to ')}</small>" if rest else ""
    )


def _render_chip(verdict: str) -> str:
    name, mark = _CHIP_STYLES.get(verdict, ("few", "·"))
    return f'<span class="chip {name}">{mark} {escape(verdict)}</span>'


def _create_difference_scale(differences: Sequence[Estimate | None]) -> Scale:
    known = [each for each in differences if each]
    low = min((each.low for each in known), default=-0.01)
    high = max((each.high for each in known), default=0.01)
    reach = max(0.01, -low, high)
    return create_scale(max(low, -reach) - reach * 0.08, min(high, reach) + reach * 0.08)


# ── by call number


def _render_positions(found: Insights) -> Iterator[str]:
    if not found.positions:
        return
    yield '<section id="positions">\n<h2>By call number</h2>\n'
    yield "<p>The curve mixes two effects: how later calls differ, and which sessions last that long."
    yield " The squares use only sessions that got that far and compare each of their tools with"
    yield " itself in the first ten calls.</p>"
    yield plots.render_legend(
        ("raw", "all calls, with interval"), ("fair", "first rate plus change within sessions")
    )
    yield plots.render_positions(found.positions)
    yield '<p class="note">Horizontal axis: call number, each step from the number shown to the'
    yield " next; hollow points have too few calls. Bars: sessions that got that far.</p>"
    yield "<details><summary>Show numbers</summary>"
    yield '<table class="rows"><thead><tr><th scope="col">calls</th><th scope="col">error rate</th>'
    yield '<th scope="col">errors</th><th scope="col">sessions</th>'
    yield '<th scope="col">change since the first 10, same session and tool</th></tr></thead><tbody>'
    for step in found.positions:
        last = f"–{step.last}" if step.last else " and later"
        yield f'<tr><th scope="row">{step.first}{last}</th>'
        yield f'<td data-label="error rate">{_stack_interval(format_rate(step.rate))}</td>'
        yield f'<td data-label="errors">{step.rate.errors:,} of {step.rate.calls:,}</td>'
        yield f'<td data-label="sessions">{step.sessions:,}</td>'
        yield '<td data-label="change, same tool">'
        yield f"{_stack_interval(format_difference(step.change))}</td></tr>"
    yield "</tbody></table></details>\n</section>\n"


# ── groups of sessions

_LENGTHS_NOTE = (
    "Long sessions are not a random sample: they are the ones worth continuing. “Late − early”"
    " compares each session with itself."
)
_TASKS_NOTE = "A session belongs to a task type if over 60% of its calls do."
_SOURCES_NOTE = "Agents differ in their tools; the squares reweight them to the same mix of work."
_MODELS_NOTE = "As with sources: models are used for different work."


def _render_groups(
    id: str, title: str, label: str, rows: Sequence[SessionGroupRow], about: str
) -> Iterator[str]:
    if not rows:
        return
    shown = rows[:_MAX_ROWS]
    scale = _create_rate_scale([row.rate for row in shown], [row.same_mix for row in shown])
    yield f'<section id="{id}">\n<h2>{title}</h2>\n<p>{escape(about)}</p>'
    yield plots.render_legend(("raw", "observed"), ("fair", "at the mix of all sessions"))
    yield f'<table class="rows"><thead><tr><th scope="col">{label}</th>'
    yield f'<th scope="col" class="plot">{render_axis(scale)}</th><th scope="col">error rate</th>'
    yield '<th scope="col">at the same mix</th><th scope="col">late − early</th>'
    yield '<th scope="col">same tool</th><th scope="col" class="num">from</th></tr></thead><tbody>'
    for row in shown:
        words = (
            f"{row.name}: {format_rate(row.rate)}, at the same mix {format_estimate(row.same_mix)}"
        )
        plot = plots.render_intervals(scale, words, row.rate, row.same_mix)
        yield f'<tr><th scope="row">{_escape_text(row.name)}</th><td class="plot">{plot}</td>'
        yield f'<td data-label="error rate">{_stack_interval(format_rate(row.rate))}</td>'
        yield f'<td data-label="at the same mix">{_stack_interval(format_estimate(row.same_mix))}</td>'
        yield f'<td data-label="late − early">{_stack_interval(format_difference(row.change))}</td>'
        yield f'<td data-label="… same tool">{_stack_interval(format_difference(row.same_tool))}</td>'
        yield f'<td class="num" data-label="from">{_render_sample_size(row.rate)}</td></tr>'
    yield f"</tbody></table>{_render_remaining_count(len(rows) - _MAX_ROWS)}\n</section>\n"


def _create_rate_scale(rates: Sequence[Rate], fair: Sequence[Estimate | None] = ()) -> Scale:
    """Create a scale for intervals; rates of a few calls have none and must not stretch it."""
    highs = [rate.high for rate in rates if rate.high is not None]
    highs += [each.high for each in fair if each]
    return create_scale(0.0, max(highs or [rate.rate or 0.0 for rate in rates]))


def _render_sample_size(rate: Rate) -> str:
    errors = f"{rate.errors:,} of {rate.calls:,}"
    return f"{errors}<small>{format_count(rate.sessions, 'session')}</small>"


def _render_lengths_by_source(found: Insights) -> Iterator[str]:
    cells = found.lengths_by_source
    if len({cell.source for cell in cells}) < 2:
        return
    scale = _create_rate_scale([cell.rate for cell in cells])
    yield '<section id="lengths-by-source">\n<h2>By source and length</h2>\n'
    yield "<p>A trend over all sources need not hold within any of them.</p>"
    yield '<table class="rows"><thead><tr><th scope="col">source, messages</th>'
    yield f'<th scope="col" class="plot">{render_axis(scale)}</th><th scope="col">error rate</th>'
    yield '<th scope="col" class="num">from</th></tr></thead><tbody>'
    for cell in cells:
        name = f"{_escape_text(cell.source)}<small>{cell.length}</small>"
        words = f"{cell.source}, {cell.length} messages: {format_rate(cell.rate)}"
        yield f'<tr><th scope="row">{name}</th>'
        yield f'<td class="plot">{plots.render_intervals(scale, words, cell.rate)}</td>'
        yield f'<td data-label="error rate">{_stack_interval(format_rate(cell.rate))}</td>'
        yield f'<td class="num" data-label="from">{_render_sample_size(cell.rate)}</td></tr>'
    yield "</tbody></table>\n</section>\n"


def _render_tools(found: Insights) -> Iterator[str]:
    if not found.tools:
        return
    shown = found.tools[:_MAX_ROWS]
    scale = _create_rate_scale([tool.rate for tool in shown])
    yield '<section id="tools">\n<h2>By tool</h2>\n'
    yield '<table class="rows"><thead><tr><th scope="col">tool</th>'
    yield f'<th scope="col" class="plot">{render_axis(scale)}</th><th scope="col">error rate</th>'
    yield '<th scope="col" class="num">agent errors</th><th scope="col" class="num">from</th>'
    yield "</tr></thead><tbody>"
    for tool in shown:
        words = f"{tool.name}: {format_rate(tool.rate)}"
        yield f'<tr><th scope="row">{_escape_text(tool.name)}'
        yield f"<small>{_escape_text(tool.kind)}</small></th>"
        yield f'<td class="plot">{plots.render_intervals(scale, words, tool.rate)}</td>'
        yield f'<td data-label="error rate">{_stack_interval(format_rate(tool.rate))}</td>'
        yield f'<td class="num" data-label="agent errors">{tool.agent:,}</td>'
        yield f'<td class="num" data-label="from">{_render_sample_size(tool.rate)}</td></tr>'
    yield f"</tbody></table>{_render_remaining_count(len(found.tools) - _MAX_ROWS)}\n</section>\n"


def _render_compression(found: Insights) -> Iterator[str]:
    around = found.compression
    yield '<section id="compression">\n<h2>Before and after compression</h2>\n'
    if not around.compressions:
        yield "<p>No session here was compressed.</p>\n</section>\n"
        return
    yield f"<p>{format_count(around.compressions, 'compression')}; up to 20 calls on each side, in steps"
    yield " of five.</p>"
    yield plots.render_compression(around.steps)
    yield '<table class="rows"><thead><tr><th scope="col">calls</th><th scope="col">error rate</th>'
    yield '<th scope="col">errors</th><th scope="col">compressions</th></tr></thead><tbody>'
    named = [("just before", around.before), ("just after", around.after)]
    named += [
        (f"{step.first} to {step.last}".replace("-", "−"), step.rate) for step in around.steps
    ]
    for name, rate in named:
        yield f'<tr><th scope="row">{name}</th>'
        yield f'<td data-label="error rate">{_stack_interval(format_rate(rate))}</td>'
        yield f'<td data-label="errors">{rate.errors:,} of {rate.calls:,}</td>'
        yield f'<td data-label="compressions">{rate.sessions:,}</td></tr>'
    yield "</tbody></table>"
    if around.change:
        yield f"<p>Change across a compression: <b>{format_difference(around.change)}</b> points;"
        yield f" within the same tool: <b>{format_difference(around.same_tool)}</b>.</p>\n</section>\n"
    else:
        yield "<p>Not enough data to detect a change.</p>\n</section>\n"


def _render_remaining_count(left: int) -> str:
    return f'<p class="note">… and {left:,} more.</p>' if left > 0 else ""


def _escape_text(text: str) -> str:
    return escape(escape_control_chars(text))


_METHOD_SECTION = """<section id="method">
<h2>How to read this</h2>
<dl>
<dt>Error</dt><dd>A call that did not do what it was asked to: a non-zero exit, an error. A search that
ran and found nothing is not an error, nor is a call that was refused. Calls without evidence are
unknown: they are counted, but excluded from every rate.</dd>
<dt>Interval</dt><dd>Contains the true rate in 95 of 100 such samples. Failures within a conversation
are correlated, so conversations are the unit: each is left out in turn to see how much the number
moves (jackknife). “Too few” means under 20 calls or 5 sessions.</dd>
<dt>At the same mix</dt><dd>The rate these sessions would have if they used tools in the same proportions
as all sessions.</dd>
<dt>Late − early</dt><dd>The last fifth of the calls compared with the first, within each session. The
last message with calls is excluded, since an error there may be why the session ended. “Same tool”
compares each tool with itself within a session.</dd>
<dt>Survivorship</dt><dd>Sessions that go well last longer. If long sessions were already better in
their first ten calls, their length is not the cause.</dd>
</dl>
</section>
"""
