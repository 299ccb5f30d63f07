"""How often calls fail: the index of the store, what a request selects of it, and what is shown."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request

from rekindle.analytics.overview.facts import Mend
from rekindle.analytics.reliability.call_index import CallIndex
from rekindle.analytics.reliability.summary import (
    CallChoice,
    ReliabilitySummary,
    iter_sessions,
    summarize_calls,
)
from rekindle.analytics.usage.report import to_date, to_day
from rekindle.errors import InvalidInput
from rekindle.learning.notes.call_index import build_call_index, get_local_day
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.learning.notes.session_facts import MAX_PROJECTS, load_project_failures
from rekindle.projects import KnownProjects
from rekindle.store.store_executor import StoreExecutor
from rekindle.web.computed import ComputedValue, ComputedValues, Report
from rekindle.web.context import get_context

PERIODS = {"7d": 7, "30d": 30, "90d": 90, "1y": 365}  # days
FIELDS = ("project", "agent", "model", "tool", "command", "week", "position", "since")
VERDICTS = ("failed", "worked", "all")
MAX_MENDS = 12
MAX_LEARNED = 20_000  # sessions of a store whose server learns from them
_MAX_TEXT = 300


class IndexedStore(NamedTuple):
    """The calls of a store, and its projects."""

    calls: CallIndex
    known: KnownProjects


class ReliabilityPage(NamedTuple):
    """What the page shows of a choice."""

    choice: CallChoice
    summary: ReliabilitySummary
    mends: tuple[Mend, ...]


# ── the choice in the address


def parse_choice(fields: Mapping[str, str], now: float) -> CallChoice:
    """Return which calls a query selects; raise `InvalidInput` if it makes no sense."""
    texts = {name: text[:_MAX_TEXT] for name in FIELDS if (text := fields.get(name, ""))}
    week, position, since = (texts.pop(name, None) for name in ("week", "position", "since"))
    return CallChoice(
        **texts,
        week=None if week is None else to_day(_parse_day(week)),
        position=None if position is None else _parse_place(position),
        since=None if since is None else _parse_since(since, now),
    )


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"week {text!r:.80}: expected a date like 2026-01-26") from None


def _parse_place(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise InvalidInput(f"position {text!r:.80}: expected a number")
    return int(text)


def _parse_since(text: str, now: float) -> float:
    if text not in PERIODS:
        raise InvalidInput(f"since {text!r:.80}: expected one of {', '.join(PERIODS)}")
    # From the start of a day, so that the same question has the same answer for a day.
    return (now // 86_400 - PERIODS[text]) * 86_400


def build_address(path: str, fields: Mapping[str, str], **changes: str | None) -> str:
    """Return an address with the fields of a query, some of them changed or, with None, left out."""
    merged: dict[str, str | None] = {name: fields.get(name) for name in FIELDS}
    kept = {name: text for name, text in {**merged, **changes}.items() if text}
    return f"{path}?{urlencode(kept, errors='replace')}" if kept else path


def format_week(name: str) -> str:
    """Return the Monday of a week as a date for an address."""
    return to_date(int(name)).isoformat()


def build_project_names(known: KnownProjects, keys: Sequence[str]) -> dict[str, str]:
    """Return the names of projects; those that share one are named by what is above them, too."""
    names = {key: known.get_name(key) for key in keys}
    counts = Counter(names.values())
    return {
        key: "/".join(key.split("/")[-2:]) if counts[name] > 1 else name
        for key, name in names.items()
    }


# ── computing


class ReliabilityReports:
    """The reports of a server: the index is shared by everybody who looks."""

    def __init__(self, executor: StoreExecutor) -> None:
        self._store = executor.store
        self.values = ComputedValues(executor)

    async def load_index(self) -> ComputedValue[IndexedStore]:
        """Return the index of the store, as far as it is known."""
        return await self.values.get("index", self._build_index)

    async def load_page(
        self, index: ComputedValue[IndexedStore], choice: CallChoice
    ) -> ComputedValue[ReliabilityPage]:
        """Return what the page shows of a choice."""
        known = index.value
        assert known is not None
        return await self.values.get(
            ("page", choice), lambda _: self._build_page(known.calls, choice), stamp=index.time
        )

    async def learn(self, index: IndexedStore) -> ComputedValue[bool] | None:
        """Learn from new sessions without waiting: commands and what mended them come from it.

        In a large store that takes long and much memory: it is left to `rekindle watch`.
        """
        if len(index.calls.nums) > MAX_LEARNED:
            return None
        return await self.values.get("learning", self._learn, wait=0)

    def _build_index(self, report: Report) -> IndexedStore:
        calls = build_call_index(self._store, get_local_day, report)
        return IndexedStore(calls, self._store.load_projects())

    def _learn(self, report: Report) -> bool:
        found = learn_from_sessions(
            self._store, progress=lambda done, total: report("Learning from sessions", done, total)
        )
        if found.sessions:
            self.values.mark_old("index")
        return True

    def _build_page(self, index: CallIndex, choice: CallChoice) -> ReliabilityPage:
        summary = summarize_calls(index, choice)
        projects = [row.name for row in summary.groups["project"] if row.name]
        mends = self._load_mends(index, choice, projects[:MAX_PROJECTS])
        return ReliabilityPage(choice, summary, mends)

    def _load_mends(
        self, index: CallIndex, choice: CallChoice, projects: list[str]
    ) -> tuple[Mend, ...]:
        if choice.tool is not None or choice.position is not None:
            return ()
        found = load_project_failures(self._store, projects, _AllSessions()).mends
        if choice.since is not None or choice.agent or choice.model or choice.week is not None:
            ids = self._load_session_ids(index, choice)
            found = [one for one in found if not ids.isdisjoint(one.sessions)]
        if choice.command is not None:
            found = [one for one in found if one.command == choice.command]
        return tuple(found[:MAX_MENDS])

    def _load_session_ids(self, index: CallIndex, choice: CallChoice) -> set[str]:
        nums = [index.nums[session] for session in iter_sessions(index, choice)]
        return {*self._store.call_columns.load_ids(nums).values()}


class _AllSessions:
    """A collection that contains every session."""

    def __contains__(self, _: object) -> bool:
        return True


def get_reports(request: Request) -> ReliabilityReports:
    """Return the reports of the server that answers a request."""
    state = request.app.state
    if not hasattr(state, "reliability"):
        state.reliability = ReliabilityReports(get_context(request).executor)
    return state.reliability


def get_now() -> float:
    """Return the time that periods are seen from."""
    return time.time()
