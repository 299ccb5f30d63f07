"""Print what sessions cost, what keeps failing in them and what fixed it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rekindle.cli.output import (
    Column,
    StyledText,
    build_number_columns,
    fit_ids,
    format_cost,
    format_count,
    get_display_name,
    print_line,
    to_one_line,
    write_styled,
    write_table,
)

from .outcomes import format_outcome_rate
from .render import format_rate

if TYPE_CHECKING:
    from rekindle.analytics.overview.overview import (
        CommandRow,
        FailureCount,
        GroupRow,
        Overview,
        ToolFailures,
    )

MAX_WEEKS, MAX_COMMANDS, MAX_TOOLS, MAX_MENDS, MAX_GROUPS, MAX_COSTLY = 12, 8, 6, 5, 8, 5
_BAR_WIDTH, _MAX_TITLE = 12, 60
_LEGEND = """\
failed: of the calls whose outcome is known, with 95% intervals clustered by session; too few: under 20
calls or 5 sessions. Refused calls are no failures. Time leaves out pauses of over 15 minutes.
A session: `rekindle sessions show ID`. Every failure: `rekindle calls --failed`.
The statistics behind this: `rekindle insights --statistics`."""


def format_duration(seconds: float) -> str:
    """Format a time at work: `45 s`, `12 min`, `3.4 h`, `61 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 10 else f"{hours:,.0f} h"


def format_tokens(count: int) -> str:
    """Format a number of tokens in a few characters: `1.2k`, `45M`."""
    size = float(count)
    for unit in ("", "k", "M", "G"):
        if size < 999.5 or unit == "G":
            break
        size /= 1000
    return f"{size:.0f}{unit}" if not unit or size >= 99.95 else f"{size:.1f}{unit}"


def describe_project(key: str) -> str:
    """Return the short name of a project; for a folder, the part that distinguishes it from others."""
    from rekindle.projects import FOLDER_PREFIX, shorten_project

    if not key.startswith(FOLDER_PREFIX):
        return shorten_project(key) if key else "(no project)"
    folder = key.removeprefix(FOLDER_PREFIX)
    parts = folder.rstrip("/").split("/")
    return f"…/{'/'.join(parts[-2:])}" if len(parts) > 3 else folder


def describe_mend(failed: str, worked: str) -> str:
    """Describe the fix of a command: a command before it, or instead of it."""
    if worked != failed and worked.endswith(f" && {failed}"):
        return f"`{worked.removesuffix(f' && {failed}')}` before it"
    return f"`{worked}` instead of `{failed}`"


def write_overview(found: Overview, name: str) -> None:
    """Print the overview of a selection of sessions."""
    ids = dict(zip(found.sessions, fit_ids([*found.sessions]), strict=True))
    is_single = len(found.projects) < 2
    write_styled(_format_head(found, name))
    _write_weeks(found.weeks)
    write_styled(_format_commands(found.commands, ids, is_single=is_single))
    write_styled(_format_mends(found, ids, is_single=is_single))
    write_styled(_format_tools(found.tools, ids))
    if not is_single:
        _write_groups("Projects", found.projects, ids, is_project=True)
    if len(found.agents) > 1:
        _write_groups("Agents", found.agents, ids, is_project=False)
    _write_costly(found, ids)
    print_line()
    print_line(_LEGEND)


def _format_head(found: Overview, name: str) -> Iterator[Sequence[StyledText]]:
    totals = found.totals
    days = f"  {totals.first} – {totals.last}" if totals.first else ""
    yield StyledText(name, "bold"), StyledText(days, "dim")
    about = format_count(totals.sessions, "session")
    if totals.projects > 1:
        about += f" in {format_count(totals.projects, 'project')}"
    if totals.agents > 1:
        about += f" of {format_count(totals.agents, 'agent')}"
    yield (StyledText(about),)
    untimed = totals.sessions - totals.timed
    without = f"; {format_count(untimed, 'session')} without times" if untimed else ""
    yield (
        StyledText(f"{format_duration(totals.seconds):<10}", "bold"),
        StyledText(f"at work{without}"),
    )
    tokens = sum(totals.tokens[:4])
    unpriced = f"; {format_tokens(totals.unpriced)} without a price" if totals.unpriced else ""
    cost = f"${format_cost(totals.cost)}"
    yield StyledText(f"{cost:<10}", "bold"), StyledText(f"{format_tokens(tokens)} tokens{unpriced}")
    share = "–" if totals.rate.rate is None else f"{totals.rate.rate:.1%}"
    yield (
        StyledText(f"{share:<10}", "bold"),
        StyledText(
            f"of calls failed: {totals.rate.errors:,} of {totals.rate.calls:,}{_format_range(found)}"
        ),
    )
    outcome = totals.outcome
    if outcome is not None and outcome.rate is not None:
        known = outcome.succeeded + outcome.failed
        share = format_outcome_rate(outcome).partition(" ")
        yield (
            StyledText(f"{share[0]:<10}", "bold"),
            StyledText(
                f"of sessions succeeded: {outcome.succeeded:,} of {known:,} with evidence, 95% interval"
                f" {share[2].strip('()')}%"
            ),
        )
    if totals.refused:
        yield (
            StyledText(f"{totals.refused:<10,}", "bold"),
            StyledText("refused by you, a hook or a rule (`rekindle calls --refused`)"),
        )


def _format_range(found: Overview) -> str:
    rate = found.totals.rate
    if rate.low is None or rate.high is None:
        return ", too few for an interval"
    return f", 95% interval {100 * rate.low:.1f}–{100 * rate.high:.1f}%"


def _write_weeks(weeks: Sequence[GroupRow]) -> None:
    shown = weeks[-MAX_WEEKS:]
    if len(shown) < 2:
        return
    print_line()
    top = max((float(one.cost) for one in shown), default=0.0)
    is_counted = top <= 0
    top = top or max(one.sessions for one in shown)
    columns = (
        Column("week of"),
        *build_number_columns("sessions", "time", "cost $"),
        Column("", style="cyan"),
        Column("failed"),
    )
    rows = [
        (
            one.name,
            f"{one.sessions or ''}",
            format_duration(one.seconds) if one.seconds else "",
            format_cost(one.cost) if one.cost else "",
            _draw_bar(one.sessions if is_counted else float(one.cost), top),
            format_rate(one.rate) if one.sessions else "",
        )
        for one in shown
    ]
    write_table(columns, rows)
    if len(weeks) > len(shown):
        print_line(f"… and {len(weeks) - len(shown)} earlier weeks")


def _draw_bar(value: float, top: float) -> str:
    filled = round(value / top * _BAR_WIDTH) if top > 0 else 0
    mark = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    return mark * (max(1, filled) if value > 0 else 0)


def _format_commands(
    rows: Sequence[CommandRow], ids: Mapping[str, str], *, is_single: bool
) -> Iterator[Sequence[StyledText]]:
    yield ()
    yield (StyledText("What keeps failing", "bold"),)
    if not rows:
        yield (StyledText("  No command of these projects failed.", "dim"),)
    for row in rows[:MAX_COMMANDS]:
        place = "" if is_single else f"  {describe_project(row.project)}"
        yield StyledText(f"  {row.name}", "bold"), StyledText(place, "dim")
        yield (
            StyledText(f"      {_describe_failures(row, 'run')}  "),
            *_list_newest(row.newest, ids),
        )
        if row.example:
            yield StyledText("      last: ", "dim"), StyledText(row.example, "red")
        for mend in row.mends[:1]:
            mended = describe_mend(mend.failed, mend.worked)
            yield StyledText("      mended by: ", "dim"), StyledText(mended, "green")
    yield from _format_rest(len(rows) - MAX_COMMANDS, "command")


def _describe_failures(row: CommandRow | ToolFailures, noun: str) -> str:
    rate = row.rate
    where = f"{row.failing_sessions} of {format_count(rate.sessions, 'session')}"
    return f"{format_rate(rate)}, {rate.errors:,} of {format_count(rate.calls, noun)}, in {where}"


def _list_newest(newest: Iterable[FailureCount], ids: Mapping[str, str]) -> Sequence[StyledText]:
    shown = [ids[one.session] for one in newest if one.session in ids][:2]
    return [StyledText(" ".join(shown), "cyan")]


def _format_mends(
    found: Overview, ids: Mapping[str, str], *, is_single: bool
) -> Iterator[Sequence[StyledText]]:
    if not (found.mends or found.red_tests):
        return
    yield ()
    yield (
        StyledText("What mended it", "bold"),
        StyledText("  (`rekindle lessons` has all notes)", "dim"),
    )
    for mend in found.mends[:MAX_MENDS]:
        place = "" if is_single else f"  {describe_project(mend.project)}"
        yield (
            StyledText(f"  {describe_mend(mend.failed, mend.worked)}", "green"),
            StyledText(f"{place}  {format_count(len(mend.sessions), 'session')}  ", "dim"),
            StyledText(" ".join(ids[one] for one in mend.sessions[:2] if one in ids), "cyan"),
        )
    for test in found.red_tests[:MAX_MENDS]:
        place = "" if is_single else f"  {describe_project(test.project)}"
        yield (
            StyledText(f"  {test.name}"),
            StyledText(f" failed before any change{place}", "dim"),
            StyledText(f"  {format_count(len(test.sessions), 'session')}  ", "dim"),
            StyledText(" ".join(ids[one] for one in test.sessions[:2] if one in ids), "cyan"),
        )


def _format_tools(
    rows: Sequence[ToolFailures], ids: Mapping[str, str]
) -> Iterator[Sequence[StyledText]]:
    if not rows:
        return
    yield ()
    yield (StyledText("Tools that fail", "bold"),)
    for row in rows[:MAX_TOOLS]:
        about = f"  {_describe_failures(row, 'call')}  "
        yield StyledText(f"  {row.name}", "bold"), StyledText(about), *_list_newest(row.newest, ids)
        repeated = [one for one in row.problems[:2] if one[1] > 1]
        for label, count in repeated:
            yield (
                StyledText(f"      {count} of the last {row.inspected}: ", "dim"),
                StyledText(label),
            )
    yield from _format_rest(len(rows) - MAX_TOOLS, "tool")


def _format_rest(left: int, noun: str) -> Iterator[Sequence[StyledText]]:
    if left > 0:
        yield (
            StyledText(f"  … and {format_count(left, f'more {noun}')}; all of them: --json", "dim"),
        )


def _write_groups(
    title: str, rows: Sequence[GroupRow], ids: Mapping[str, str], *, is_project: bool
) -> None:
    print_line()
    columns = (
        Column(title, flexible=True),
        *build_number_columns("sessions", "time", "cost $"),
        Column("failed"),
        Column("newest", style="cyan"),
    )
    cells = [
        (
            describe_project(row.name) if is_project else row.name,
            f"{row.sessions:,}",
            format_duration(row.seconds) if row.seconds else "",
            format_cost(row.cost) if row.cost else "",
            format_rate(row.rate),
            next((ids[one] for one in row.newest if one in ids), ""),
        )
        for row in rows[:MAX_GROUPS]
    ]
    write_table(columns, cells)
    if len(rows) > MAX_GROUPS:
        print_line(f"… and {len(rows) - MAX_GROUPS} more; all of them: --json")


def _write_costly(found: Overview, ids: Mapping[str, str]) -> None:
    shown = [found.sessions[id] for id in found.costly[:MAX_COSTLY] if id in found.sessions]
    if not shown:
        return
    print_line()
    columns = (
        Column("Most expensive sessions", flexible=True),
        *build_number_columns("cost $", "time"),
        Column("id", style="cyan"),
    )
    cells = [
        (
            to_one_line(get_display_name(one.session), _MAX_TITLE),
            format_cost(one.cost),
            format_duration(one.seconds) if one.seconds else "",
            ids[one.session.id],
        )
        for one in shown
    ]
    write_table(columns, cells)
