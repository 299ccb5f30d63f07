"""`rekindle profile`, `compare`, `compress-check` and `insights`: how reliable calls are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    JsonOption,
    OwnerOption,
    print_json,
    print_line,
    print_notice,
)
from rekindle.cli.session_choice import (
    AllOption,
    FilterArgument,
    SessionArgument,
    SessionSelection,
    parse_filter,
    select_sessions,
)
from rekindle.cli.store_access import open_for_reading
from rekindle.files import write_new_file

from .loading import (
    LoadedInsights,
    learn_new_sessions,
    load_archive_insights,
    load_insights,
    to_json,
)
from .mapping import JobsOption, SchedulerOption, open_work_mapper
from .selection import disable_gc, judge_selection, judge_session

if TYPE_CHECKING:
    from rekindle.parallel import ChunkMapper
    from rekindle.store import Filter

ParquetOption = Annotated[
    Path | None,
    typer.Option(
        "--parquet",
        metavar="DIR",
        help="Read an export in Parquet instead of the store.",
        show_default=False,
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write a self-contained page with plots."),
]


def profile(name: SessionArgument, owner: OwnerOption = None, json: JsonOption = False) -> None:
    """Show the statistics of a session: errors, tools, kind of work, improvement over time.

    \b
    Examples:
      rekindle profile 'My Project'
      rekindle profile 20260105_1403 --json
    """
    from rekindle.analytics import profile as profiles

    with open_for_reading() as store:
        found = profiles.build_profile(judge_session(store, name, owner))
    if json:
        print_json(found)
    else:
        from .render import write_profile

        write_profile(found)


_SideArgument = Annotated[
    str,
    typer.Argument(help="Session, or a filter in quotes.", show_default=False),
]


def compare(
    a: _SideArgument, b: _SideArgument, owner: OwnerOption = None, json: JsonOption = False
) -> None:
    """Compare the error rates of two sessions or two sets of sessions.

    \b
    Examples:
      rekindle compare 'My Project' 'My Project #2'
      rekindle compare 'source=codex messages>30' 'source=claude-code messages>30'
      rekindle compare arm=cold arm=warm --json
    """
    from rekindle.analytics import compare as comparing

    with open_for_reading() as store:
        found = comparing.compare_sessions(
            list(judge_selection(store, [a], owner)),
            list(judge_selection(store, [b], owner)),
            (a, b),
        )
    if json:
        print_json(found)
    else:
        from .render import write_comparison

        write_comparison(found)


def compress_check(
    name: SessionArgument, owner: OwnerOption = None, json: JsonOption = False
) -> None:
    """Check whether a conversation kept its proficiency when it was compressed.

    Compares error rates before and after, and just before with just after, over all compressions of
    the session and of those it continues or that continue it.

    \b
    Examples:
      rekindle compress-check 'My Project'
    """
    from rekindle.analytics import compression

    with open_for_reading() as store:
        session = store.resolve(name, owner=owner)
        chain = compression.find_conversation_chain(store.lineage(session, owner=owner), session)
        found = compression.check_compressions(
            [judge_session(store, one.id, owner) for one in chain]
        )
    if json:
        print_json(found)
    else:
        from .render import write_compression_check

        write_compression_check(found)


def show_insights(
    where: FilterArgument = None,
    all: AllOption = False,
    statistics: Annotated[
        bool,
        typer.Option("--statistics", help="Rates by tool, model and length, with tested claims."),
    ] = False,
    html: HtmlOption = None,
    parquet: ParquetOption = None,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
    owner: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Show what sessions cost, what keeps failing in them, and what mended it.

    In the folder of a project with sessions, only those of the project count, unless you pass --all or
    project=NAME. The page of --html contains the statistics too. Sessions that are new are judged on
    all cores, or with --scheduler on a Dask cluster. With --parquet, all sessions come from files that
    `rekindle sessions export -f parquet` has written, and the store is not opened.

    \b
    Examples:
      rekindle insights
      rekindle insights --all since=2026-01-01
      rekindle insights --html insights.html
      rekindle insights --statistics source=claude-code
      rekindle insights --all --scheduler tcp://10.0.0.5:8786
      rekindle insights --parquet archive/ source=codex
    """
    if html is not None and not html.expanduser().absolute().parent.is_dir():
        raise typer.BadParameter(f"folder not found: {html.parent}")
    terms = parse_filter(where, owner)
    parts = {
        "with_overview": html is not None or not statistics,
        "with_statistics": html is not None or statistics,
    }
    with open_work_mapper(jobs, scheduler) as mapper:
        if parquet is not None:
            folder = parquet.expanduser()
            found, selection = load_archive_insights(folder, terms, mapper, **parts)
        else:
            found, selection = _load_from_store(terms, all, mapper, **parts)
    if not found.sessions:
        print_notice(
            "No matching sessions."
            if where or owner or selection.project or parquet
            else "No sessions yet. Import some with `rekindle start`."
        )
    name = _describe_selection(selection, terms, where)
    if html is not None:
        _write_page(found, name, html.expanduser())
    if json:
        print_json(found.statistics if statistics else to_json(found, name))
    elif html is not None:
        print_line(f"Wrote {html.expanduser()}")
    elif found.sessions:
        _print_insights(found, name)


def _load_from_store(
    terms: Filter, every: bool, mapper: ChunkMapper, *, with_overview: bool, with_statistics: bool
) -> tuple[LoadedInsights, SessionSelection]:
    with open_for_reading(from_replica=True) as store, disable_gc():
        if with_overview:
            learn_new_sessions(store, mapper)
        selection = select_sessions(store, terms, every=every)
        found = load_insights(
            store,
            selection,
            mapper,
            with_overview=with_overview,
            with_statistics=with_statistics,
        )
    return found, selection


def _describe_selection(selection: SessionSelection, terms: Filter, words: list[str] | None) -> str:
    """Return the title of a selection: its project, or all projects, and the other filter terms."""
    others = [word for word in words or () if not word.startswith("project=")]
    name = selection.project or terms.project or "all projects"
    return ", ".join([name, *others])


def _print_insights(found: LoadedInsights, name: str) -> None:
    if found.overview is not None:
        from .overview import write_overview

        write_overview(found.overview, name)
    elif found.statistics is not None:
        from .outcomes import write_outcomes
        from .render import write_insight, write_legend

        write_insight(found.statistics)
        write_outcomes(found.statistics.outcomes)
        write_legend()


def _write_page(found: LoadedInsights, name: str, file: Path) -> None:
    from rekindle.redaction.redactor import Redactor

    from .page import render_page

    if found.overview is None or found.statistics is None:
        return
    redact = Redactor().redact_text
    page = render_page(found.overview, found.statistics, name, redact)
    write_new_file(file, "".join(page))
