"""What runs now: sessions of every agent, background processes, and the jobs that come next."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from rekindle.analytics.usage.pricing import PriceList
from rekindle.config import Config
from rekindle.processes.from_config import FOLDER, build_limits
from rekindle.processes.operations import ListProcesses
from rekindle.processes.state.offline import OfflineReader
from rekindle.processes.supervisor.registry import create_redactor
from rekindle.processes.types import Process
from rekindle.projects import KnownProjects
from rekindle.store import Filter, Store
from rekindle.store.conversations.jobs import ScheduledJob
from rekindle.web.projects.details import SessionLine, list_sessions

LIVE_SECONDS = 300  # since the last message of a session that goes on
MAX_LIVE, MAX_LATEST, MAX_PROCESSES, MAX_JOBS = 12, 10, 8, 5


class RunningNow(NamedTuple):
    """What runs, or comes next."""

    sessions: list[SessionLine]
    processes: list[Process]
    more_processes: int  # that are not listed
    jobs: list[ScheduledJob]


def load_running(
    store: Store, config: Config, prices: PriceList, known: KnownProjects, now: float
) -> RunningNow:
    """Load what runs now; this reads a few rows of indexes, and the files of live processes."""
    where = Filter(since=now - LIVE_SECONDS, ended="no")
    live = store.recent(MAX_LIVE, where=where, fold=True)
    processes = _read_processes(config)
    jobs = [one for one in store.jobs.list(limit=50) if one.state == "active" and one.next_run]
    return RunningNow(
        sessions=list_sessions(store, live, prices, known),
        processes=processes[:MAX_PROCESSES],
        more_processes=max(0, len(processes) - MAX_PROCESSES),
        jobs=jobs[:MAX_JOBS],
    )


def load_latest(store: Store, prices: PriceList, known: KnownProjects) -> list[SessionLine]:
    """Load the last sessions, without sub-agents."""
    return list_sessions(store, store.recent(MAX_LATEST, fold=True), prices, known)


def _read_processes(config: Config) -> list[Process]:
    """Read the live processes from disk, newest first: a look at a page starts no supervisor."""
    folder = config.home / FOLDER
    if not folder.is_dir():
        return []
    reader = OfflineReader(folder, build_limits(config), _get_redactor())
    return sorted(reader.handle_list(ListProcesses(live=True)), key=lambda one: -one.started)


@cache
def _get_redactor() -> Callable[[str], str]:
    return create_redactor()  # keeps what it has loaded
