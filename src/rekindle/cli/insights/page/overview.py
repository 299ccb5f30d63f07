"""Render the overview: what sessions cost, what keeps failing in them and what fixed it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from html import escape
from typing import TYPE_CHECKING

from rekindle.cli.insights.outcomes import format_outcome_rate
from rekindle.cli.insights.overview import (
    describe_project,
    format_duration,
    format_tokens,
)
from rekindle.cli.insights.render import format_rate
from rekindle.cli.output import (
    escape_control_chars,
    format_cost,
    format_count,
    get_display_name,
    to_one_line,
)

from .charts import MAX_WEEKS, render_rate, render_share, render_weeks

if TYPE_CHECKING:
    from rekindle.analytics.cluster_stats import Rate
    from rekindle.analytics.overview.facts import Mend, RedTest, SessionFacts
    from rekindle.analytics.overview.overview import (
        CommandRow,
        GroupRow,
        Overview,
        ToolFailures,
    )

_MAX_COMMANDS, _MAX_TOOLS, _MAX_MENDS, _MAX_RED, _MAX_GROUPS = 20, 12, 12, 6, 20
_SHOWN_FIRST = 6  # rows of a list; the rest is folded
_MAX_SESSIONS = 8  # of a row
_MAX_TITLE = 110
_SCALE_SHARE = 1.35  # of the largest rate on the scale of a list


class OverviewPage:
    """The overview of some sessions as HTML."""

    def __init__(self, found: Overview, redact: Callable[[str], str]) -> None:
        self._found = found
        self._redact = redact
        self._is_single = len(found.projects) < 2

    def _clean(self, text: str) -> str:
        return escape(escape_control_chars(self._redact(text)))

    # ── header

    def render_header(self, name: str) -> Iterator[str]:
        """Yield the title, a sentence that sums all up, and the numbers people ask for first."""
        totals = self._found.totals
        days = f"{_format_day(totals.first)} – {_format_day(totals.last)}" if totals.first else ""
        yield "<header>\n"
        yield '<p class="kicker">Rekindle insights'
        yield f"<span>{days}</span></p>\n" if days else "</p>\n"
        yield f"<h1>{self._clean(name)}</h1>\n"
        yield f'<p class="lead">{self._describe()}</p>\n'
        yield '<nav class="tabs"><a href="#">Overview</a><a href="#statistics">Statistics</a></nav>\n'
        yield f"{''.join(self._render_facts())}</header>\n"

    def _describe(self) -> str:
        """Return the one sentence to read."""
        found, totals = self._found, self._found.totals
        if not totals.sessions:
            return "No sessions yet. Import some with <code>rekindle start</code>."
        said = [f"{format_count(totals.sessions, 'session')}"]
        if totals.projects > 1:
            said[0] += f" in {format_count(totals.projects, 'project')}"
        if totals.rate.rate:
            said.append(f"one in {max(1, round(1 / totals.rate.rate))} calls failed")
        text = ", ".join(said) + "."
        if found.commands:
            row = found.commands[0]
            where = "" if self._is_single else f" in {self._clean(describe_project(row.project))}"
            text += (
                f" <code>{self._clean(row.name)}</code>{where} fails in the most sessions:"
                f" {row.failing_sessions} of {row.rate.sessions}."
            )
        mends = [mend for row in found.commands[:3] for mend in row.mends[:1]]
        if mends:
            text += f" A fix is known for {len(mends)} of the top {min(3, len(found.commands))}."
        return text

    def _render_facts(self) -> Iterator[str]:
        totals, weeks = self._found.totals, sum(1 for one in self._found.weeks if one.sessions)
        yield '<ul class="facts">'
        yield _render_fact(
            f"{totals.sessions:,}",
            "sessions",
            f"in {format_count(weeks, 'week')}, {format_count(totals.agents, 'agent')}",
        )
        untimed = totals.sessions - totals.timed
        yield _render_fact(
            format_duration(totals.seconds),
            "at work",
            f"{untimed:,} without times" if untimed else "without pauses over 15 min",
        )
        yield _render_fact(f"${format_cost(totals.cost)}", "list price", self._describe_tokens())
        rate = totals.rate
        yield _render_fact(
            "–" if rate.rate is None else f"{rate.rate:.1%}",
            "of calls failed",
            _describe_interval(rate) + f" of {rate.calls:,}",
        )
        outcome = totals.outcome
        if outcome is not None and outcome.rate is not None:
            known = outcome.succeeded + outcome.failed
            yield _render_fact(
                f"{outcome.rate:.0%}",
                "of sessions succeeded",
                f"{format_outcome_rate(outcome).partition(' ')[2]} of {known:,} with evidence",
            )
        yield "</ul>\n"

    def _describe_tokens(self) -> str:
        totals = self._found.totals
        used = sum(totals.tokens[:4])
        if totals.unpriced:
            return (
                f"{format_tokens(totals.unpriced)} of {format_tokens(used)} tokens without a price"
            )
        cached = totals.tokens.cache_read / used if used else 0.0
        return f"{format_tokens(used)} tokens, {cached:.0%} from the cache"

    # ── sections

    def render_sections(self) -> Iterator[str]:
        """Yield the sections in the order in which people ask."""
        if not self._found.totals.sessions:
            return
        yield from self._render_weeks()
        yield from self._render_commands()
        yield from self._render_mends()
        yield from self._render_tools()
        if not self._is_single:
            yield from self._render_groups("projects", "Projects", self._found.projects)
        if len(self._found.agents) > 1:
            yield from self._render_groups("agents", "Agents", self._found.agents)
        yield from self._render_costly()
        yield self._render_method()

    def _render_weeks(self) -> Iterator[str]:
        weeks = self._found.weeks[-MAX_WEEKS:]
        if len(weeks) < 2:
            return
        yield '<section id="weeks" class="plain">\n<h2 class="hidden">Week by week</h2>'
        yield f'<div class="chart">{render_weeks(weeks, lambda week: f"w{week}")}</div>'
        yield "<details><summary>Weeks in numbers, with their sessions</summary>"
        for one in reversed(weeks):
            if one.sessions or one.cost:
                name = f"week of {_format_day(date.fromisoformat(one.name))}"
                yield self._render_group(one, name, 0.0, id=f"w{one.name}")
        yield "</details>\n</section>\n"

    def _render_commands(self) -> Iterator[str]:
        rows = self._found.commands[:_MAX_COMMANDS]
        yield '<section id="commands">\n<h2>What keeps failing</h2>\n'
        yield '<p class="note">Commands of your projects, by the number of sessions they failed in.'
        yield " Bar: share of runs that failed; line: its 95% interval.</p>\n"
        if not rows:
            yield "<p>No command of these projects failed.</p>"
        top = _find_top(row.rate for row in rows)
        cells = [self._render_command(row, top) for row in rows]
        yield from _fold_rows(cells, "more commands")
        yield self._render_rest(len(self._found.commands) - len(rows), "command")
        yield "</section>\n"

    def _render_command(self, row: CommandRow, top: float) -> str:
        place = (
            ""
            if self._is_single
            else f"<small>{self._clean(describe_project(row.project))}</small>"
        )
        lines = ""
        if row.example:
            lines += f'<p class="line"><b>last</b><code>{self._clean(row.example)}</code></p>'
        for mend in row.mends[:1]:
            lines += f'<p class="line mend"><b>mended by</b>{self._render_mend_text(mend)}</p>'
        head = f'<span class="name"><code>{self._clean(row.name)}</code>{place}</span>'
        return self._render_failing(row, head, lines, top, "run")

    def _render_failing(
        self, row: CommandRow | ToolFailures, head: str, lines: str, top: float, noun: str
    ) -> str:
        rate = row.rate
        sessions = (
            self._render_session(one.session, f"failed {one.failed} of {one.calls}")
            for one in row.newest[:_MAX_SESSIONS]
        )
        title = f"{rate.errors:,} of {format_count(rate.calls, noun)} failed, {format_rate(rate)}"
        return (
            f'<details class="row"><summary title="{escape(title)}">{head}'
            f'<span class="plot">{render_rate(rate.low, rate.rate, rate.high, top)}</span>'
            f'<span class="num">{_stack_rate(rate)}</span>'
            f'<span class="num">{rate.errors:,} of {rate.calls:,}<small>{noun}s</small></span>'
            f'<span class="num more">{row.failing_sessions:,}<small>of'
            f" {format_count(rate.sessions, 'session')}</small></span>"
            f"{lines and f'<span class=lines>{lines}</span>'}</summary>"
            f"{self._wrap_sessions(sessions, row.failing_sessions)}</details>\n"
        )

    def _render_mends(self) -> Iterator[str]:
        mends, red = self._found.mends[:_MAX_MENDS], self._found.red_tests[:_MAX_RED]
        if not (mends or red):
            return
        yield '<section id="mended">\n<h2>What mended it</h2>\n'
        yield '<p class="note">From the notes of your projects: a command that failed, and what worked'
        yield " soon after. All notes: <code>rekindle lessons</code>.</p>\n"
        yield from _fold_rows([self._render_mend(one) for one in mends], "more fixes")
        if red:
            yield "<h3>Red before any change</h3>\n"
            yield from (self._render_red_test(one) for one in red)
        yield "</section>\n"

    def _render_mend(self, mend: Mend) -> str:
        place = (
            ""
            if self._is_single
            else f"<small>{self._clean(describe_project(mend.project))}</small>"
        )
        head = (
            f'<span class="pair"><code class="was">{self._clean(mend.failed)}</code>'
            f'<span class="then">{self._render_mend_text(mend)}</span>{place}</span>'
        )
        return self._render_known(head, mend.sessions)

    def _render_mend_text(self, mend: Mend) -> str:
        worked = mend.worked
        if worked != mend.failed and worked.endswith(f" && {mend.failed}"):
            before = worked.removesuffix(f" && {mend.failed}")
            return f"<code>{self._clean(before)}</code> before it"
        return f"<code>{self._clean(worked)}</code>"

    def _render_red_test(self, test: RedTest) -> str:
        place = (
            ""
            if self._is_single
            else f"<small>{self._clean(describe_project(test.project))}</small>"
        )
        head = f'<span class="pair"><code>{self._clean(test.name)}</code>{place}</span>'
        return self._render_known(head, test.sessions)

    def _render_known(self, head: str, ids: Sequence[str]) -> str:
        sessions = (self._render_session(id, "") for id in ids[:_MAX_SESSIONS])
        return (
            f'<details class="row known"><summary>{head}<span class="num more">{len(ids):,}'
            f"<small>{'session' if len(ids) == 1 else 'sessions'}</small></span></summary>"
            f"{self._wrap_sessions(sessions, len(ids))}</details>\n"
        )

    def _render_tools(self) -> Iterator[str]:
        rows = self._found.tools[:_MAX_TOOLS]
        if not rows:
            return
        yield '<section id="failing-tools">\n<h2>Tools that fail</h2>\n'
        top = _find_top(row.rate for row in rows)
        yield from _fold_rows([self._render_tool(row, top) for row in rows], "more tools")
        yield self._render_rest(len(self._found.tools) - len(rows), "tool")
        yield "</section>\n"

    def _render_tool(self, row: ToolFailures, top: float) -> str:
        lines = "".join(
            f'<p class="line"><b>{count} of the last {row.inspected}</b>'
            f"<code>{self._clean(label)}</code></p>"
            for label, count in row.problems[:2]
            if count > 1
        )
        head = f'<span class="name"><code>{self._clean(row.name)}</code></span>'
        return self._render_failing(row, head, lines, top, "call")

    # ── groups of sessions

    def _render_groups(self, id: str, title: str, rows: Sequence[GroupRow]) -> Iterator[str]:
        top = max((float(row.cost) for row in rows), default=0.0)
        yield f'<section id="{id}">\n<h2>{title}</h2>\n'
        shown = rows[:_MAX_GROUPS]
        cells = [
            self._render_group(
                row, describe_project(row.name) if id == "projects" else row.name, top
            )
            for row in shown
        ]
        yield from _fold_rows(cells, f"more {id}")
        yield f"{self._render_rest(len(rows) - len(shown), id.removesuffix('s'))}</section>\n"

    def _render_group(self, row: GroupRow, name: str, top: float, id: str = "") -> str:
        bar = render_share(float(row.cost), top) if top else ""
        sessions = (self._render_session(one, "") for one in row.newest[:_MAX_SESSIONS])
        time = format_duration(row.seconds) if row.seconds else "–"
        cost = f"${format_cost(row.cost)}" if row.cost else "–"
        return (
            '<details class="row group"><summary>'
            f'<span class="name">{self._clean(name)}</span><span class="plot">{bar}</span>'
            f'<span class="num">{cost}</span><span class="num">{time}</span>'
            f'<span class="num">{_stack_rate(row.rate)}</span>'
            f'<span class="num more">{row.sessions:,}'
            f"<small>{'session' if row.sessions == 1 else 'sessions'}</small></span></summary>"
            f"{self._wrap_sessions(sessions, row.sessions, id)}</details>\n"
        )

    def _render_costly(self) -> Iterator[str]:
        if not self._found.costly:
            return
        yield '<section id="costly">\n<h2>Most expensive sessions</h2>\n'
        yield '<ul class="sessions">'
        for id in self._found.costly:
            yield self._render_session(id, "")
        yield "</ul></section>\n"

    # ── sessions

    def _wrap_sessions(self, items: Iterable[str], count: int, id: str = "") -> str:
        text = "".join(items)
        left = count - _MAX_SESSIONS
        more = f'<li class="note">… and {left:,} more</li>' if left > 0 else ""
        target = f' id="{escape(id)}"' if id else ""
        return f'<ul class="sessions"{target}>{text}{more}</ul>'

    def _render_session(self, id: str, about: str) -> str:
        facts = self._found.sessions.get(id)
        if facts is None:
            return ""
        session = facts.session
        title = to_one_line(get_display_name(session), _MAX_TITLE)
        return (
            f"<li><b>{self._clean(title)}</b><small>{' · '.join(self._list_facts(facts, about))}"
            f"</small><code>rekindle resume {escape(session.id)}</code></li>"
        )

    def _list_facts(self, facts: SessionFacts, about: str) -> Iterator[str]:
        session = facts.session
        if about:
            yield f'<span class="bad">{about}</span>'
        yield _format_moment(session.started)
        yield self._clean(session.source)
        if not self._is_single and facts.project:
            yield self._clean(describe_project(facts.project))
        if facts.seconds:
            yield format_duration(facts.seconds)
        if facts.cost:
            yield f"${format_cost(facts.cost)}"

    def _render_rest(self, left: int, noun: str) -> str:
        return (
            f'<p class="note">… and {format_count(left, f"more {noun}")}.</p>' if left > 0 else ""
        )

    def _render_method(self) -> str:
        totals = self._found.totals
        repeated = (
            f" {format_count(totals.repeated, 'session')} that repeat the calls of another are left out"
            " of the commands."
            if totals.repeated
            else ""
        )
        return (
            '<section id="counted" class="plain"><h2>How this is counted</h2><p class="note">'
            f"Of {totals.calls:,} calls, {totals.rate.calls:,} have a known outcome; {totals.unknown:,}"
            f" have none and {totals.refused:,} were refused by a person, a hook or a rule: neither are"
            " failures. Intervals are 95%, with whole conversations as the unit; rates of under 20 calls"
            " or 5 sessions have none and are drawn pale. Time is that of the agents at work, without"
            " pauses of more than a quarter of an hour. Cost is what agents report, or else list prices."
            f"{repeated} A session and its calls count in the week it started, its cost when it was"
            ' used.</p><p><a href="#statistics">Statistics behind this: rates by model, length and task,'
            " and claims that are tested →</a></p></section>\n"
        )


def _render_fact(number: str, name: str, more: str) -> str:
    return f"<li><b>{number}</b><span>{name}</span><small>{more}</small></li>"


def _describe_interval(rate: Rate) -> str:
    if rate.low is None or rate.high is None:
        return "too few for an interval,"
    return f"{100 * rate.low:.1f}–{100 * rate.high:.1f}%"


def _stack_rate(rate: Rate) -> str:
    if rate.rate is None:
        return "–"
    if rate.low is None or rate.high is None:
        return f"{rate.rate:.0%}<small>too few</small>"
    return f"{rate.rate:.1%}<small>{100 * rate.low:.0f}–{100 * rate.high:.0f}%</small>"


def _find_top(rates: Iterable[Rate]) -> float:
    """Return the end of a scale on which rates with an interval are long and others fit."""
    known = [rate for rate in rates if rate.high is not None and rate.rate is not None]
    return min(1.0, max((_SCALE_SHARE * (one.rate or 0.0) for one in known), default=1.0) + 0.05)


def _fold_rows(cells: Sequence[str], more: str) -> Iterator[str]:
    """Yield the first rows, and the others folded."""
    yield from cells[:_SHOWN_FIRST]
    rest = cells[_SHOWN_FIRST:]
    if rest:
        yield f'<details class="fold"><summary>{len(rest)} {more}</summary>{"".join(rest)}</details>'


def _format_day(day: date | None) -> str:
    return f"{day.day} {day:%b %Y}" if day else ""


def _format_moment(seconds: float) -> str:
    try:
        return (
            datetime.fromtimestamp(seconds, UTC)
            .astimezone()
            .strftime("%d %b %Y, %H:%M")
            .lstrip("0")
        )
    except (OverflowError, ValueError, OSError):
        return "?"
