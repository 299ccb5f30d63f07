"""Build the index of all judged calls from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date
from typing import TypeVar

from rekindle.analytics.reliability.call_index import (
    NO_WEEK,
    CallIndex,
    CommandRun,
    IndexedSession,
    RepeatedRow,
)
from rekindle.analytics.usage.report import find_start, to_date, to_day
from rekindle.learning.verdicts.judged_sessions import judge_sessions
from rekindle.store import Store
from rekindle.store.learning.call_columns import REPEATED_PARTS

from .session_facts import load_commands

T = TypeVar("T")
GetDay = Callable[[float], date]
Progress = Callable[[str, int, int], None]

UNKNOWN_MODEL = "unknown"
_REPORT_ROWS = 10_000
_BATCH_SIZE = 500  # sessions whose commands are read at once


def build_call_index(store: Store, get_day: GetDay, progress: Progress) -> CallIndex:
    """Judge what is new, and index the calls of all sessions that are not archived.

    `get_day` returns the local day of a time. Commands are those of sessions that were learned from.
    """
    judge_sessions(store, progress=lambda done, total: progress("Judging calls", done, total))
    index = CallIndex(_iter_sessions(store, get_day))
    index.add_repeated(_iter_repeated(store, progress))
    index.add_calls(_watch_rows(store.call_columns.iter_calls(), "Counting calls", progress))
    for start in range(0, len(index.nums), _BATCH_SIZE):
        progress("Counting commands", start, len(index.nums))
        ids = store.call_columns.load_ids(index.nums[start : start + _BATCH_SIZE])
        commands = load_commands(store, [*ids.values()])
        for num, id in ids.items():
            runs = (
                CommandRun(one.name, one.failed, one.worked + one.failed)
                for one in commands.get(id, ())
                if one.worked + one.failed
            )
            index.add_runs(num, runs)
    index.finish()
    return index


def _iter_sessions(store: Store, get_day: GetDay) -> Iterator[IndexedSession]:
    known = store.load_projects()
    weeks: dict[int, int] = {}
    for one in store.call_columns.iter_sessions():
        week = NO_WEEK
        if one.last_active > one.started:  # else its transcript has no times
            quarter = int(one.started // 900)  # every zone is off by whole quarters
            if quarter not in weeks:
                weeks[quarter] = to_day(find_start(get_day(one.started), "week"))
            week = weeks[quarter]
        yield IndexedSession(
            num=one.num,
            source=one.source,
            project=known.get_project(one.project) if one.project else "",
            model=one.model or UNKNOWN_MODEL,
            week=week,
            started=one.started,
            parent=one.parent,
            is_fork=one.is_fork,
        )


def _iter_repeated(store: Store, progress: Progress) -> Iterator[RepeatedRow]:
    for part in range(REPEATED_PARTS):
        progress("Comparing sessions", part, REPEATED_PARTS)
        yield from store.call_columns.iter_repeated(part)


def _watch_rows(rows: Iterable[T], step: str, progress: Progress) -> Iterator[T]:
    """Yield rows, and report now and then: a report is where a computation can be stopped."""
    for number, row in enumerate(rows):
        if number % _REPORT_ROWS == 0:
            progress(step, 0, 0)
        yield row


def get_local_day(seconds: float) -> date:
    """Return the local day of a time, within what the calendar can hold."""
    try:
        return date.fromtimestamp(seconds)
    except (OverflowError, ValueError, OSError):
        return to_date(0)
