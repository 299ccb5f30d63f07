"""Load what insights show: the overview, and the statistics behind it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from rekindle.cli.output import get_display_name, show_progress
from rekindle.cli.session_choice import SessionSelection, select_sessions
from rekindle.errors import StoreReadOnly

from .selection import judge_sessions
from .usage import get_offset, load_price_list

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

    from rekindle.analytics.insights import Insights
    from rekindle.analytics.outcome_rates import OutcomeRate
    from rekindle.analytics.overview.facts import SessionFacts
    from rekindle.analytics.overview.overview import Overview
    from rekindle.analytics.sample import Sample
    from rekindle.parallel import ChunkMapper
    from rekindle.projects import KnownProjects
    from rekindle.store import Filter, Store
    from rekindle.transcripts.parquet.reader import ParquetArchive
    from rekindle.types import JudgedSession, Session


class LoadedInsights(NamedTuple):
    """The parts that were asked for."""

    sessions: int
    overview: Overview | None
    statistics: Insights | None


def load_insights(
    store: Store,
    selection: SessionSelection,
    mapper: ChunkMapper,
    *,
    with_overview: bool,
    with_statistics: bool,
) -> LoadedInsights:
    """Judge the selected sessions and sum them up."""
    from rekindle.analytics.insights import summarize_sample
    from rekindle.analytics.sample import collect_sample

    where = selection.where
    sessions: list[Session] = []
    sample = collect_sample(_keep_sessions(judge_sessions(store, where, mapper), sessions))
    outcomes = _summarize_outcomes(store, where, mapper) if sessions else ()
    overview = None
    if with_overview:
        overview = _compute_overview(store, sample, sessions, selection.known)
        whole = next((one for one in outcomes if one.group == "all"), None)
        overview = overview._replace(totals=overview.totals._replace(outcome=whole))
    statistics = None
    if with_statistics:
        statistics = summarize_sample(sample)._replace(outcomes=outcomes)
    return LoadedInsights(len(sessions), overview, statistics)


def load_archive_insights(
    folder: Path,
    where: Filter,
    mapper: ChunkMapper,
    *,
    with_overview: bool,
    with_statistics: bool,
) -> tuple[LoadedInsights, SessionSelection]:
    """Sum up the sessions of an archive in Parquet.

    The statistics are those of the judged calls in the archive. The overview is computed as that of a
    store, from a temporary one with the messages of the archive.
    """
    import tempfile
    import time
    from pathlib import Path as LocalPath

    from rekindle.transcripts.parquet.reader import open_archive

    with tempfile.TemporaryDirectory(prefix="rekindle-archive-") as temporary:
        scratch = LocalPath(temporary)
        with open_archive(folder, time.time(), temporary=scratch / "sorting") as archive:
            if not with_overview:
                return _load_archive_statistics(archive, where)
            with _copy_archive(archive, scratch / "sessions.db", mapper) as store:
                selection = select_sessions(store, where)
                found = load_insights(
                    store, selection, mapper, with_overview=True, with_statistics=with_statistics
                )
                return found, selection


@contextmanager
def _copy_archive(archive: ParquetArchive, file: Path, mapper: ChunkMapper) -> Generator[Store]:
    """Copy an archive into a new store, and learn from it without looking at other folders."""
    from rekindle.learning.notes.learner import learn_from_sessions
    from rekindle.store import open_store
    from rekindle.transcripts.parquet.store_copy import copy_archive

    with open_store(file, durability="relaxed") as store:
        copy_archive(archive, store)
        with show_progress("Learning") as show:
            learn_from_sessions(
                store, progress=show, mapper=mapper, reads_folders=False, keeps_projects=True
            )
        yield store


def _load_archive_statistics(
    archive: ParquetArchive, where: Filter
) -> tuple[LoadedInsights, SessionSelection]:
    from rekindle.analytics.insights import summarize_sample
    from rekindle.analytics.outcome_rates import summarize_outcomes
    from rekindle.analytics.sample import collect_sample

    known = archive.load_projects()
    if where.project is not None:
        scope = known.find_named_scope(where.project)
        where = where._replace(project=None, projects=scope.keys)
    sessions: list[Session] = []
    sample = collect_sample(_keep_sessions(archive.iter_judged_sessions(where), sessions))
    outcomes = summarize_outcomes(archive.count_outcomes(where)) if sessions else ()
    statistics = summarize_sample(sample)._replace(outcomes=outcomes)
    return LoadedInsights(len(sessions), None, statistics), SessionSelection(where, known)


def learn_new_sessions(store: Store, mapper: ChunkMapper) -> None:
    """Observe new sessions: projects, commands and their fixes come from observations.

    A store that cannot be written, such as a replica, shows what was learned before.
    """
    from rekindle.learning.notes.learner import learn_from_sessions

    with suppress(StoreReadOnly), show_progress("Learning") as show:
        learn_from_sessions(store, progress=show, mapper=mapper)


def _keep_sessions(
    judged: Iterable[JudgedSession], sessions: list[Session]
) -> Iterator[JudgedSession]:
    for one in judged:
        sessions.append(one.session)
        yield one


def _compute_overview(
    store: Store, sample: Sample, sessions: list[Session], known: KnownProjects
) -> Overview:
    from rekindle.analytics.overview.overview import compute_overview
    from rekindle.learning.notes.session_facts import (
        add_problems,
        collect_facts,
        load_known_failures,
    )

    get_project = known.find_session_project
    facts = collect_facts(store, sessions, load_price_list(), get_offset, get_project)
    overview = compute_overview(sample, facts, load_known_failures(store, facts))
    return _fill_overview_names(store, add_problems(store, overview))


def _fill_overview_names(store: Store, overview: Overview) -> Overview:
    from rekindle.cli.session_choice import fill_names

    facts = overview.sessions.values()
    named = {one.id: one for one in fill_names(store, [one.session for one in facts])}
    return overview._replace(
        sessions={
            id: one._replace(session=named[one.session.id]) for id, one in overview.sessions.items()
        }
    )


def _summarize_outcomes(
    store: Store, where: Filter, mapper: ChunkMapper
) -> tuple[OutcomeRate, ...]:
    from rekindle.analytics.outcome_rates import summarize_outcomes
    from rekindle.learning.verdicts.session_outcomes import judge_outcomes

    with suppress(StoreReadOnly), show_progress("Judging sessions") as show:
        judge_outcomes(store, where, progress=show, mapper=mapper)
    return summarize_outcomes(store.session_outcomes.count(where))


def to_json(found: LoadedInsights, name: str) -> dict[str, Any]:
    """Return the overview as JSON values; amounts of money are texts."""
    overview = found.overview
    if overview is None:
        return {}
    named = {id: _facts_to_dict(one) for id, one in overview.sessions.items()}
    totals = overview.totals
    days = {"first": _format_day(totals.first), "last": _format_day(totals.last)}
    return {
        "scope": name,
        **overview._asdict(),
        "totals": {**totals._asdict(), **days},
        "sessions": named,
    }


def _format_day(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


def _facts_to_dict(one: SessionFacts) -> dict[str, Any]:
    session = one.session
    return {
        "title": get_display_name(session),
        "source": session.source,
        "project": one.project or None,
        "started": session.started,
        "seconds": one.seconds,
        "cost": one.cost,
        "messages": session.message_count,
    }
