"""`rekindle usage`: tokens and cost by day, week or month, and by project, model, agent or session."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rekindle.cli.output import (
    Column,
    JsonOption,
    OwnerOption,
    build_number_columns,
    fit_ids,
    format_cost,
    get_display_name,
    print_json,
    print_notice,
    to_one_line,
    write_table,
)
from rekindle.cli.session_choice import (
    FILTER_HELP,
    AllOption,
    SessionSelection,
    fill_names,
    is_filter,
    parse_filter,
    select_sessions,
)
from rekindle.cli.store_access import load_settings, open_for_reading
from rekindle.config.local_time import get_offset as get_offset

if TYPE_CHECKING:
    from rekindle.analytics.usage.pricing import PriceList
    from rekindle.analytics.usage.report import Period, UsageReport, UsageRow, UsageTotal
    from rekindle.projects import KnownProjects
    from rekindle.store import Store
    from rekindle.types import Session, Tokens, Usage, UsageSum

_MAX_KEY_WIDTH, _MIN_BAR_WIDTH, _MAX_BAR_WIDTH = 28, 6, 40
_BLOCKS = " ▏▎▍▌▋▊▉█"
_UNPRICED_MARK = "*"
_NUMBERS = ("input", "cache read", "cache write", "output", "cost $")

_WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[day|week|month] [WHERE]...",
        help=f"One row per day, week or month (default: day, or none with --by). {FILTER_HELP}",
        show_default=False,
    ),
]
_KeyOption = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="One row per project, model, agent or session."),
]
_SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="DAY",
        help="First day: 2026-01-31, 7d, 4w, 3m, 1y, today, yesterday or all.",
        show_default="30 days, 12 weeks or 12 months",
    ),
]


def show_usage(
    words: _WordsArgument = None,
    by: _KeyOption = None,
    since: _SinceOption = None,
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Only sessions of this project.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, help="Maximum number of rows.", show_default="all"),
    ] = None,
    all: AllOption = False,
    owner: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Show tokens and their cost over time.

    The cost is the one that the agent reports, or else that of published prices. Set the price of
    other models in the settings, under [model.prices."<model>"]. In the folder of a project with
    sessions, only those of the project count, unless you pass --all, project=NAME or --by project.

    \b
    Examples:
      rekindle usage
      rekindle usage week --by model
      rekindle usage --by project --since 7d
      rekindle usage day project=api model~opus since=7d
      rekindle usage --by session -n 10
      rekindle usage month --since all --json
    """
    from rekindle.analytics.usage.report import build_report, parse_since, to_day

    key = _choose("--by", by, ("project", "model", "agent", "session"))
    period, terms, days = _split_words(words or [])
    span: Period | None = _choose("period", period, ("day", "week", "month"))
    span = span if span or key else "day"
    first = parse_since(since or days.get("since"), date.today(), span)
    start = datetime(first.year, first.month, first.day).timestamp() if first else None
    end = parse_filter([f"until={days['until']}"]).until if "until" in days else None
    where = parse_filter(terms, owner).with_(project=project)
    with open_for_reading(from_replica=True) as store:
        selection = select_sessions(store, where, every=all or key == "project")
        prices = load_price_list()
        # Without a period, days count only as far as prices changed.
        changes = None if span else [to_day(day) for day in prices.list_changes()]
        sums = store.sum_usage(
            get_offset, by=key, since=start, until=end, where=selection.where, days=changes
        )
        if key == "project":
            sums = join_projects(sums, selection.known)
        report = build_report(sums, prices, span, is_keyed=key is not None)
        shown = report._replace(rows=report.rows[:limit])
        named = _load_named(store, shown.rows) if key == "session" else {}
    if json:
        print_json(_report_to_dict(shown, span, key, first, named))
    elif report.rows:
        _write_report(shown, span, key, named)
        _print_notes(report, len(shown.rows), first)
    else:
        print_notice(_explain_nothing(first, selection))


def join_projects(sums: Iterable[UsageSum], known: KnownProjects) -> list[UsageSum]:
    """Return sums by project with the sessions of a project's folders under its key."""
    return [one._replace(key=known.get_project(one.key)) if one.key else one for one in sums]


def _split_words(words: list[str]) -> tuple[str | None, list[str], dict[str, str]]:
    """Return the period, the filter terms, and the days that they begin and end with."""
    period = words[0] if words and not is_filter(words[:1]) else None
    terms = words if period is None else words[1:]
    days: dict[str, str] = {}
    others = [] if any(term.startswith("archived=") for term in terms) else ["archived=any"]
    for term in terms:
        name, _, value = term.partition("=")
        if name in ("since", "until"):
            days[name] = value
        else:
            others.append(term)
    return period, others, days


def _explain_nothing(first: date | None, selection: SessionSelection) -> str:
    if first:
        end = selection.suffix if selection.project else ". Show all of it with --since all."
        return f"No usage since {first}{end}"
    return f"No usage yet{selection.suffix}"


def load_price_list() -> PriceList:
    """Load the shipped prices, and the user's own that go before them."""
    from rekindle.analytics.usage.pricing import PriceList
    from rekindle.config.prices import load_price_table

    return PriceList(load_price_table()[1], load_settings().prices)


def fill_costs(store: Store, sessions: Sequence[Session]) -> list[Session]:
    """Return the sessions with the cost of published prices, unless their agents report one."""
    from rekindle.analytics.usage.report import UsageTotal, compute_totals_by_key
    from rekindle.types import replace_fields

    ids = [session.id for session in sessions if not session.cost]
    totals = compute_totals_by_key(store.sum_session_usage(ids, get_offset), load_price_list())
    return [
        replace_fields(one, cost=one.cost or totals.get(one.id, UsageTotal()).cost)
        for one in sessions
    ]


def fill_model_costs(
    store: Store, session: Session, usage: Mapping[str, Usage]
) -> dict[str, Usage]:
    """Return the usage of a session by model with the cost of published prices, if none is known."""
    from rekindle.analytics.usage.report import UsageTotal, compute_totals_by_key

    sums = store.sum_session_usage([session.id], get_offset)
    by_model = [one._replace(key=one.model) for one in sums]
    totals = compute_totals_by_key(by_model, load_price_list())
    return {
        model: used._replace(cost=used.cost or totals.get(model, UsageTotal()).cost)
        for model, used in usage.items()
    }


def total_to_dict(total: UsageTotal) -> dict[str, Any]:
    """Return a total as JSON values; amounts of money are texts."""
    return {
        "tokens": {**total.tokens._asdict(), "cache_write_1h": total.cache_write_1h},
        "cost": _format_amount(total.cost),
        "reported_cost": _format_amount(total.reported_cost),
        "unpriced_tokens": _count_tokens(total.unpriced),
    }


def _choose(name: str, value: str | None, allowed: Sequence[str]) -> Any:
    if value is not None and value not in allowed:
        raise typer.BadParameter(f"{name}: expected {', '.join(allowed)}, got {value!r:.40}")
    return value


def _load_named(store: Store, rows: Iterable[UsageRow]) -> dict[str, Session]:
    """Load the sessions that rows are about, with their names."""
    found = store.find_sessions([row.key for row in rows])
    return {one.id: one for one in fill_names(store, list(found.values()))}


def _report_to_dict(
    report: UsageReport,
    period: Period | None,
    by: Literal["project", "model", "agent", "session"] | None,
    since: date | None,
    named: Mapping[str, Session],
) -> dict[str, Any]:
    from rekindle.config.prices import load_price_table

    rows: list[dict[str, Any]] = []
    for start, key, total in report.rows:
        row: dict[str, Any] = {} if start is None else {period or "": start.isoformat()}
        row |= {} if by is None else {by: key}
        row |= {"title": get_display_name(named[key])} if key in named else {}
        rows.append({**row, **total_to_dict(total)})
    return {
        "period": period,
        "by": by,
        "since": since and since.isoformat(),
        "rows": rows,
        "total": total_to_dict(report.total),
        "unpriced": {model: tokens._asdict() for model, tokens in report.unpriced.items()},
        "prices": [
            {"provider": one.provider, "source": one.source, "checked": one.checked.isoformat()}
            for one in load_price_table()[0]
        ],
    }


# ── table


def _write_report(
    report: UsageReport, period: Period | None, by: str | None, named: Mapping[str, Session]
) -> None:
    from rekindle.analytics.usage.report import UsageRow, fill_gaps

    is_terminal = sys.stdout.isatty()
    rows = report.rows
    if is_terminal and period and by is None:
        rows = [*fill_gaps(rows, period)]
    keys = _render_keys(rows, by, named) if by else None
    columns = [Column(period)] if period else []
    columns += [Column(by, style="cyan", flexible=True)] if by else []
    columns += build_number_columns(*_NUMBERS)
    cells: list[list[str]] = []
    for index, row in enumerate([*rows, UsageRow(None, "", report.total)]):
        is_total = index == len(rows)
        label = row.start.isoformat() if row.start else ""
        labels = [label[:7] if period == "month" else label] if period else []
        labels += [keys[index] if not is_total else ""] if keys is not None else []
        labels = ["total", *labels[1:]] if is_total else labels
        cells.append([*labels, *_render_numbers(row.total)])
    width = _measure_bar([[column.title for column in columns], *cells]) if is_terminal else 0
    if width >= _MIN_BAR_WIDTH and len(rows) > 1:
        columns.append(Column("", style="cyan"))
        bars = [*_draw_bars(rows, width), ""]
        cells = [[*line, bar] for line, bar in zip(cells, bars, strict=True)]
    write_table(columns, cells)


def _render_keys(rows: Sequence[UsageRow], by: str, named: Mapping[str, Session]) -> list[str]:
    is_terminal = sys.stdout.isatty()
    if by == "session":
        short = fit_ids([row.key for row in rows])
        titles = [get_display_name(named[row.key]) if row.key in named else "" for row in rows]
        return [f"{id} {title}" for id, title in zip(short, titles, strict=True)]
    keys = [row.key or "(unknown)" for row in rows]
    if not is_terminal:
        return keys
    if by == "project":
        from rekindle.projects import shorten_project

        keys = [shorten_project(key) for key in keys]
    return [to_one_line(key, _MAX_KEY_WIDTH) for key in keys]


def _render_numbers(total: UsageTotal) -> list[str]:
    tokens = total.tokens
    counts = (tokens.input, tokens.cache_read, tokens.cache_write, tokens.output)
    if not (any(counts) or total.cost):
        return [""] * len(_NUMBERS)
    mark = _UNPRICED_MARK if any(total.unpriced) else ""
    cost = "" if mark and not total.cost else format_cost(total.cost)
    return [*map(_format_tokens, counts), f"{cost}{mark}"]


def _format_tokens(count: int) -> str:
    """Format a number of tokens in a few characters for a terminal, or in full for a pipe."""
    from .overview import format_tokens

    if not sys.stdout.isatty():
        return f"{count}"
    return format_tokens(count)


def _measure_bar(lines: Sequence[Sequence[str]]) -> int:
    """Return the width that is left next to a table, if its keys keep their width."""
    from rich.cells import cell_len

    widths = [min(max(map(cell_len, column)), 48) for column in zip(*lines, strict=True)]
    return min(_MAX_BAR_WIDTH, get_terminal_size().columns - sum(widths) - 2 * len(widths))


def _draw_bars(rows: Sequence[UsageRow], width: int) -> list[str]:
    """Draw a bar for the cost of each row, or for its tokens if no cost is known."""
    sizes = [row.total.cost for row in rows]
    if not any(sizes):
        sizes = [Decimal(_count_tokens(row.total.tokens)) for row in rows]
    largest = max(sizes) or Decimal(1)
    if "utf" not in (sys.stdout.encoding or "").lower():
        return ["#" * int(size / largest * width) for size in sizes]
    eighths = [int(size / largest * width * 8) for size in sizes]
    return [(_BLOCKS[8] * (one // 8) + _BLOCKS[one % 8]).rstrip() for one in eighths]


def _print_notes(report: UsageReport, shown: int, since: date | None) -> None:
    from rekindle.config.prices import load_price_table

    if shown < len(report.rows):
        print_notice(f"{shown} of {len(report.rows)} rows: use --limit {shown * 2} for more.")
    if report.unpriced:
        names = ", ".join(name or "unknown model" for name in report.unpriced)
        print_notice(
            f"{_UNPRICED_MARK} Without a known price: {names}."
            ' Set it under [model.prices."<model>"] in the settings.'
        )
    dates = ", ".join(f"{one.provider} {one.checked}" for one in load_price_table()[0])
    period = f"Since {since}; show more with --since. " if since else ""
    print_notice(f"{period}Published prices in US dollars: {dates}.")


def _format_amount(cost: Decimal) -> str:
    return f"{cost.normalize():f}" if cost else "0"


def _count_tokens(tokens: Tokens) -> int:
    return tokens.input + tokens.output + tokens.cache_read + tokens.cache_write
