"""What many sessions show, as one page that needs nothing but itself: no script, no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from rekindle.cli.insights.render import percent, points, rate_text, share_text
from rekindle.cli.output import counted, printable

from . import plots
from .style import STYLE

if TYPE_CHECKING:
    from rekindle.analytics.claims import Claim, Reading
    from rekindle.analytics.cluster_stats import Estimate, Rate
    from rekindle.analytics.insights import Insight, Row
    from rekindle.analytics.sample import Totals

_MOST = 25
_CHIPS = {
    "supported": ("yes", "✓"),
    "absent": ("yes", "✓"),
    "not supported": ("no", "✕"),
    "present": ("no", "!"),
}
_PARTS = ("claims", "positions", "lengths", "tasks", "tools", "sources", "models", "compression")


def render(found: Insight, where: str = "") -> Iterator[str]:
    """The page, piece by piece. Names that others wrote are escaped."""
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>What became of the calls</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n"
    )
    yield from _head(found, where)
    yield "<main>\n"
    yield from _whose(found)
    yield from _claims(found.claims)
    yield from _positions(found)
    yield from _rows("lengths", "By session length", "messages", found.lengths, _LENGTHS)
    yield from _rows("tasks", "By task", "task", found.tasks, _TASKS)
    yield from _tools(found)
    yield from _rows("sources", "By source", "source", found.sources, _SOURCES)
    yield from _lengths_by_source(found)
    yield from _rows("models", "By model", "model", found.models, _MODELS)
    yield from _compression(found)
    yield _METHOD
    yield "</main>\n<footer>Made by Rekindle from the sessions in its store. Nothing here was sent"
    yield " anywhere.</footer>\n</body>\n</html>\n"


# ── at the top


def _head(found: Insight, where: str) -> Iterator[str]:
    totals, rate = found.totals, found.rate
    yield "<header>\n<h1>What became of the calls</h1>\n"
    chosen = f", chosen by <b>{_safe(where)}</b>" if where else ""
    yield f'<p class="lead">{counted(totals.sessions, "session")} of AI agents{chosen}: how often'
    yield " their tool calls fail, where, and whether that changes as a session goes on.</p>\n"
    yield '<ul class="facts">'
    yield _fact(percent(rate.rate), "of judged calls failed", _range(rate))
    yield _fact(f"{totals.judged:,}", "calls judged", f"of {totals.calls:,} in all")
    yield _fact(f"{totals.sessions:,}", "sessions", f"{totals.with_calls:,} with calls")
    yield _fact(f"{totals.unknown:,}", "calls unknown", "nothing speaks: not counted as success")
    yield "</ul>\n<nav>"
    yield "".join(f'<a href="#{part}">{part}</a>' for part in _PARTS)
    yield "</nav>\n</header>\n"


def _fact(number: str, name: str, more: str) -> str:
    return f"<li><b>{number}</b><span>{name}</span><span>{more}</span></li>"


def _range(rate: Rate) -> str:
    if rate.low is None or rate.high is None:
        return "too few to say how sure"
    return f"95% interval {100 * rate.low:.1f}–{100 * rate.high:.1f}%"


def _whose(found: Insight) -> Iterator[str]:
    totals = found.totals
    parts = _faults(totals)
    classes = ("fa", "fb", "fc", "fd", "fe")
    yield '<section id="whose">\n<h2>Whose errors</h2>\n'
    yield f"<p>Of {counted(totals.judged, 'judged call')} {totals.failed:,} failed.</p>"
    yield plots.shares([(name, count) for name, count, _ in parts], classes)
    yield '<div class="two"><table><tbody>'
    for (name, count, about), colour in zip(parts, classes, strict=True):
        share = count / totals.failed if totals.failed else 0.0
        yield f'<tr><th scope="row"><span class="dot {colour}"></span>{name}<small>{about}</small>'
        yield f'</th><td class="num">{count:,}<small>{share:.0%}</small></td></tr>'
    yield "</tbody></table>\n<table><tbody>"
    for name, count in list(found.errors.items())[:8]:
        share = count / totals.failed
        yield f'<tr><th scope="row">{_safe(name)}</th><td class="num">{count:,}'
        yield f"<small>{share:.0%}</small></td></tr>"
    yield "</tbody></table></div>\n"
    yield f'<p class="note">Left out: {totals.unknown:,} calls that nothing speaks about,'
    yield f" {totals.bookkeeping:,} of bookkeeping tools, and {totals.copies:,} copies that resumed"
    yield f" and forked sessions repeat. {totals.not_failed_but_expected:,} calls ran and said no (a"
    yield " search without a hit): they did not fail.</p>\n</section>\n"


def _faults(totals: Totals) -> Sequence[tuple[str, int, str]]:
    return (
        ("agent", totals.agent, "wrong arguments, paths, edits, code"),
        ("environment", totals.environment, "network, limits, time, missing services"),
        ("refused", totals.refused, "the user or the harness said no"),
        ("expected", totals.expected, "a failing test, a check that says no"),
        ("other", totals.other, "nothing tells whose"),
    )


# ── claims


def _claims(claims: Sequence[Claim]) -> Iterator[str]:
    yield '<section id="claims">\n<h2>The claims, tested</h2>\n'
    yield "<p>Each claim is read as it is made, and then without the things that can make it look"
    yield " true. It stands only if every reading supports it.</p>"
    yield plots.key(("raw", "difference in percentage points, 95% interval"))
    yield '<p class="note">The dashed mark is a difference as large as claimed (37% of the rate). A'
    yield " reading is <b>not supported</b> only if its interval leaves that out.</p>"
    for claim in claims:
        yield f'<div class="claim"><p><b>{escape(claim.text)}</b></p>{_chip(claim.verdict)}'
        yield from _readings(claim.readings, "Readings", "verdict")
        yield from _readings(claim.traps, "What could make it look true", "trap")
        yield "</div>\n"
    yield "</section>\n"


def _readings(readings: Sequence[Reading], title: str, last: str) -> Iterator[str]:
    on = _difference_scale([reading.difference for reading in readings])
    yield f"<h3>{title}</h3>"
    yield '<table class="rows readings"><thead><tr><th scope="col">reading</th>'
    yield f'<th scope="col" class="plot">{plots.axis(on, signed=True)}</th>'
    yield f'<th scope="col">difference</th><th scope="col">from</th><th scope="col">{last}</th>'
    yield "</tr></thead><tbody>"
    for reading in readings:
        words = f"{reading.name}: {points(reading.difference)} points"
        plot = plots.row(on, words, reading.difference, claimed=reading.claimed)
        yield f'<tr><th scope="row">{escape(reading.name)}<small>{escape(reading.about)}</small>'
        yield f'</th><td class="plot">{plot}</td><td data-label="difference in points">'
        yield f"{_stacked(points(reading.difference))}</td>"
        yield f'<td class="from">{_both(reading)}</td>'
        yield f"<td>{_chip(reading.verdict)}</td></tr>"
    yield "</tbody></table>"


def _both(reading: Reading) -> str:
    lines = (
        f'<div><span class="wide">{label}: {rate_text(rate)}</span>'
        f"<small>{counted(rate.sessions, 'session')}, {counted(rate.calls, 'call')}</small></div>"
        for label, rate in zip(reading.sides, (reading.before, reading.after), strict=True)
    )
    return "".join(lines)


def _stacked(text: str) -> str:
    """`−1.2 [−2.4, +0.1]`, the interval on a line of its own."""
    value, _, rest = text.partition(" ")
    return f"<b>{value}</b>" + (
        f"<small>{rest.strip('()[]').replace(', ', ' to ')}</small>" if rest else ""
    )


def _chip(verdict: str) -> str:
    name, mark = _CHIPS.get(verdict, ("few", "·"))
    return f'<span class="chip {name}">{mark} {escape(verdict)}</span>'


def _difference_scale(differences: Sequence[Estimate | None]) -> plots.Scale:
    known = [each for each in differences if each]
    low = min((each.low for each in known), default=-0.01)
    high = max((each.high for each in known), default=0.01)
    reach = max(0.01, -low, high)
    return plots.scale(max(low, -reach) - reach * 0.08, min(high, reach) + reach * 0.08)


# ── over the course of a session


def _positions(found: Insight) -> Iterator[str]:
    if not found.positions:
        return
    yield '<section id="positions">\n<h2>By call number</h2>\n'
    yield "<p>The curve mixes two things: what calls are like later on, and which sessions are still"
    yield " there. The squares take only sessions that got that far, and compare each of their tools"
    yield " with itself in their first ten calls.</p>"
    yield plots.key(
        ("raw", "all calls, with their interval"), ("fair", "the first rate, and the change in it")
    )
    yield plots.positions(found.positions)
    yield '<p class="note">Across: the number of the call, each step from the number shown to the'
    yield " next; hollow where there are too few. Bars: the sessions that got that far.</p>"
    yield "<details><summary>The numbers</summary>"
    yield '<table class="rows"><thead><tr><th scope="col">calls</th><th scope="col">error rate</th>'
    yield '<th scope="col">errors</th><th scope="col">sessions alive</th>'
    yield '<th scope="col">change since the first 10, same session and tool</th></tr></thead><tbody>'
    for step in found.positions:
        last = f"–{step.last}" if step.last else " and on"
        yield f'<tr><th scope="row">{step.first}{last}</th>'
        yield f'<td data-label="error rate">{_stacked(rate_text(step.rate))}</td>'
        yield f'<td data-label="errors">{step.rate.errors:,} of {step.rate.calls:,}</td>'
        yield f'<td data-label="sessions alive">{step.alive:,}</td>'
        yield f'<td data-label="change, same tool">{_stacked(points(step.change))}</td></tr>'
    yield "</tbody></table></details>\n</section>\n"


# ── groups of sessions

_LENGTHS = (
    "Long sessions are not a sample of all: they are those that were worth going on with. “Late −"
    " early” compares each session with itself."
)
_TASKS = "A task is of a kind when over 60% of its calls are."
_SOURCES = (
    "Agents differ in their tools; the squares give all of them the same mix of kinds of work."
)
_MODELS = "As for sources: people use models for different things."


def _rows(id: str, title: str, label: str, rows: Sequence[Row], about: str) -> Iterator[str]:
    if not rows:
        return
    shown = rows[:_MOST]
    on = _rate_scale([row.rate for row in shown], [row.same_mix for row in shown])
    yield f'<section id="{id}">\n<h2>{title}</h2>\n<p>{escape(about)}</p>'
    yield plots.key(("raw", "as it is"), ("fair", "at the mix of all sessions"))
    yield f'<table class="rows"><thead><tr><th scope="col">{label}</th>'
    yield f'<th scope="col" class="plot">{plots.axis(on)}</th><th scope="col">error rate</th>'
    yield '<th scope="col">at the same mix</th><th scope="col">late − early</th>'
    yield '<th scope="col">same tool</th><th scope="col" class="num">from</th></tr></thead><tbody>'
    for row in shown:
        words = f"{row.name}: {rate_text(row.rate)}, at the same mix {share_text(row.same_mix)}"
        plot = plots.row(on, words, row.rate, row.same_mix)
        yield f'<tr><th scope="row">{_safe(row.name)}</th><td class="plot">{plot}</td>'
        yield f'<td data-label="error rate">{_stacked(rate_text(row.rate))}</td>'
        yield f'<td data-label="at the same mix">{_stacked(share_text(row.same_mix))}</td>'
        yield f'<td data-label="late − early">{_stacked(points(row.change))}</td>'
        yield f'<td data-label="… same tool">{_stacked(points(row.same_tool))}</td>'
        yield f'<td class="num" data-label="from">{_size(row.rate)}</td></tr>'
    yield f"</tbody></table>{_more(len(rows) - _MOST)}\n</section>\n"


def _rate_scale(rates: Sequence[Rate], fair: Sequence[Estimate | None] = ()) -> plots.Scale:
    """A scale for intervals; a rate of a few calls has none, and must not stretch it."""
    highs = [rate.high for rate in rates if rate.high is not None]
    highs += [each.high for each in fair if each]
    return plots.scale(0.0, max(highs or [rate.rate or 0.0 for rate in rates]))


def _size(rate: Rate) -> str:
    errors = f"{rate.errors:,} of {rate.calls:,}"
    return f"{errors}<small>{counted(rate.sessions, 'session')}</small>"


def _lengths_by_source(found: Insight) -> Iterator[str]:
    cells = found.lengths_by_source
    if len({cell.source for cell in cells}) < 2:
        return
    on = _rate_scale([cell.rate for cell in cells])
    yield '<section id="lengths-by-source">\n<h2>By source and length</h2>\n'
    yield "<p>What holds for all sources together need not hold in any of them.</p>"
    yield '<table class="rows"><thead><tr><th scope="col">source, messages</th>'
    yield f'<th scope="col" class="plot">{plots.axis(on)}</th><th scope="col">error rate</th>'
    yield '<th scope="col" class="num">from</th></tr></thead><tbody>'
    for cell in cells:
        name = f"{_safe(cell.source)}<small>{cell.length}</small>"
        words = f"{cell.source}, {cell.length} messages: {rate_text(cell.rate)}"
        yield f'<tr><th scope="row">{name}</th>'
        yield f'<td class="plot">{plots.row(on, words, cell.rate)}</td>'
        yield f'<td data-label="error rate">{_stacked(rate_text(cell.rate))}</td>'
        yield f'<td class="num" data-label="from">{_size(cell.rate)}</td></tr>'
    yield "</tbody></table>\n</section>\n"


def _tools(found: Insight) -> Iterator[str]:
    if not found.tools:
        return
    shown = found.tools[:_MOST]
    on = _rate_scale([tool.rate for tool in shown])
    yield '<section id="tools">\n<h2>By tool</h2>\n'
    yield '<table class="rows"><thead><tr><th scope="col">tool</th>'
    yield f'<th scope="col" class="plot">{plots.axis(on)}</th><th scope="col">error rate</th>'
    yield '<th scope="col" class="num">the agent’s own</th><th scope="col" class="num">from</th>'
    yield "</tr></thead><tbody>"
    for tool in shown:
        words = f"{tool.name}: {rate_text(tool.rate)}"
        yield f'<tr><th scope="row">{_safe(tool.name)}<small>{_safe(tool.work)}</small></th>'
        yield f'<td class="plot">{plots.row(on, words, tool.rate)}</td>'
        yield f'<td data-label="error rate">{_stacked(rate_text(tool.rate))}</td>'
        yield f'<td class="num" data-label="the agent’s own">{tool.agent:,}</td>'
        yield f'<td class="num" data-label="from">{_size(tool.rate)}</td></tr>'
    yield f"</tbody></table>{_more(len(found.tools) - _MOST)}\n</section>\n"


def _compression(found: Insight) -> Iterator[str]:
    around = found.compression
    yield '<section id="compression">\n<h2>Before and after compression</h2>\n'
    if not around.compressions:
        yield "<p>No session here was compressed.</p>\n</section>\n"
        return
    yield f"<p>{counted(around.compressions, 'compression')}; up to 20 calls to each side, in steps"
    yield " of five.</p>"
    yield plots.around(around.steps)
    yield '<table class="rows"><thead><tr><th scope="col">calls</th><th scope="col">error rate</th>'
    yield '<th scope="col">errors</th><th scope="col">compressions</th></tr></thead><tbody>'
    named = [("right before", around.before), ("right after", around.after)]
    named += [
        (f"{step.first} to {step.last}".replace("-", "−"), step.rate) for step in around.steps
    ]
    for name, rate in named:
        yield f'<tr><th scope="row">{name}</th>'
        yield f'<td data-label="error rate">{_stacked(rate_text(rate))}</td>'
        yield f'<td data-label="errors">{rate.errors:,} of {rate.calls:,}</td>'
        yield f'<td data-label="compressions">{rate.sessions:,}</td></tr>'
    yield "</tbody></table>"
    if around.change:
        yield f"<p>Change over a compression: <b>{points(around.change)}</b> points; each tool with"
        yield f" itself: <b>{points(around.same_tool)}</b>.</p>\n</section>\n"
    else:
        yield "<p>Not enough data to tell a change.</p>\n</section>\n"


def _more(left: int) -> str:
    return f'<p class="note">… and {left:,} more.</p>' if left > 0 else ""


def _safe(text: str) -> str:
    return escape(printable(text))


_METHOD = """<section id="method">
<h2>How to read this</h2>
<dl>
<dt>An error</dt><dd>a call that did not do what it was asked: a non-zero exit, a refusal, an error.
A search that ran and found nothing has not failed. Calls that nothing speaks about are unknown: they
are counted, and left out of every rate.</dd>
<dt>An interval</dt><dd>holds the true rate in 95 of 100 such samples. Calls of one conversation fail
together, so conversations are what is counted, not calls: each is left out in turn to see how much
the number moves. “Too few” means under 20 calls or 5 sessions.</dd>
<dt>At the same mix</dt><dd>what the rate would be if these sessions used the tools in the proportions
of all sessions.</dd>
<dt>Late − early</dt><dd>the last fifth of the calls against the first, each session with itself. The
last message that calls is left out, since an error there may be why the session ended. “Same tool”
compares each tool of a session with itself.</dd>
<dt>Survivors</dt><dd>sessions that go well go on. If those that became long were better in their first
ten calls already, their length did not make them so.</dd>
</dl>
</section>
"""
