"""Read the data of the picker. It waits for the store, so it runs outside the event loop."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from rekindle.cli.store_access import refresh_sessions
from rekindle.cli.terminal.text import get_display_name

from .state import PickerRow, Preview, ScopeTotals, TailEntry

if TYPE_CHECKING:
    from rekindle.analytics.usage.pricing import PriceList
    from rekindle.store import Filter, Store
    from rekindle.types import Message, Session

MAX_FOUND = 50  # sessions found by their title, and messages found
MIN_PREFIX = 3  # letters of a word that is still being typed: fewer match too much
_TAIL_MESSAGES = 40
_MAX_DEPTH = 4  # of sub-agents that start sub-agents


class SessionReader:
    """Reads lists, searches, previews and totals of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list_rows(self, where: Filter, offset: int, limit: int) -> list[PickerRow]:
        """Return a part of the list, most recently active first."""
        return self._make_rows(self._store.recent(limit, offset=offset, where=where, fold=True))

    def refresh_store(self) -> list[str]:
        """Import what agents have written since the last time; return what to say about it."""
        return refresh_sessions(self._store)

    def search_rows(
        self, text: str, where: Filter, is_stale: Callable[[], bool]
    ) -> list[PickerRow]:
        """Return the sessions with these words: first those in the title, then those in a message."""
        titled = self._store.search_titles(text, limit=MAX_FOUND, where=where)
        if is_stale():
            return []
        hits = self._store.search(build_query(text), limit=MAX_FOUND, where=where, context=0)
        matches = [(one, "") for one in titled] + [(hit.session, hit.snippet) for hit in hits]
        starters = self._find_starters([session for session, _ in matches])
        found: dict[str, tuple[Session, str]] = {}
        for session, snippet in matches:
            shown = starters.get(session.id, session)
            if shown.archived is None:
                found.setdefault(shown.id, (shown, snippet))
        rows = self._make_rows([session for session, _ in found.values()])
        return [row._replace(snippet=found[row.session.id][1]) for row in rows]

    def _find_starters(self, sessions: Sequence[Session]) -> dict[str, Session]:
        """Return the sessions under which sub-agents are folded, by the ids of the sub-agents."""
        inner = {one.id: one for one in sessions if one.sub_agent and one.parent}
        found: dict[str, Session] = {}
        for _ in range(_MAX_DEPTH):
            parents = self._store.find_sessions([one.parent or "" for one in inner.values()])
            inner = {id: parents[one.parent] for id, one in inner.items() if one.parent in parents}
            found |= inner
            inner = {id: one for id, one in inner.items() if one.sub_agent and one.parent}
            if not inner:
                break
        return found

    def _make_rows(self, sessions: Sequence[Session]) -> list[PickerRow]:
        names = self._store.load_names(sessions)
        return [PickerRow(one, get_display_name(one, names)) for one in sessions]

    def load_preview(self, session: Session) -> Preview:
        """Return the first and the last request of a session, the end of it, and its cost."""
        from rekindle.cli.sessions.sub_agents import merge_sub_agents

        after = session.message_count - _TAIL_MESSAGES - 1  # rewound messages have places too
        tail = self._store.messages(session, after=max(-1, after))
        (folded,) = merge_sub_agents(self._store, [session])
        return Preview(
            cost=folded.total.cost,
            first_request=session.preview or "",
            last_request=session.last_request or "",
            sub_agents=len(folded.sub_agents),
            tail=list_tail_entries(tail[-_TAIL_MESSAGES:]),
        )

    def sum_scope(self, where: Filter) -> ScopeTotals:
        """Return how many sessions a scope has and what they cost since Monday."""
        from rekindle.analytics.usage.report import build_report, to_day
        from rekindle.cli.insights.usage import get_offset

        days = [to_day(day) for day in self._prices.list_changes()]
        since = find_week_start(time.time())
        sums = self._store.sum_usage(get_offset, since=since, where=where, days=days)
        cost = build_report(sums, self._prices, None).total.cost
        return ScopeTotals(self._store.count_sessions(where, fold=True), cost)

    @cached_property
    def _prices(self) -> PriceList:
        from rekindle.cli.insights.usage import load_price_list

        return load_price_list()


def build_query(text: str) -> str:
    """Return the query for what has been typed so far: the last word may go on."""
    word = text.split(" ")[-1]
    is_open = text.count('"') % 2 == 0 and len(word) >= MIN_PREFIX and word[-1].isalnum()
    return f"{text}*" if is_open else text


def find_week_start(now: float) -> float:
    """Return the time at which the week began here: Monday, midnight."""
    today = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    return (today - timedelta(days=today.weekday())).timestamp()


def list_tail_entries(messages: Sequence[Message]) -> list[TailEntry]:
    """Return the texts, with the calls between two texts in one line."""
    entries: list[TailEntry] = []
    calls: list[str] = []
    for message in messages:
        if message.role not in ("user", "assistant"):
            continue
        text = message.text.strip()
        if text:
            entries += _describe_calls(calls)
            calls = []
            entries.append(TailEntry(message.role, text))
        calls += [call.name for call in message.tool_calls]
    return [*entries, *_describe_calls(calls)]


def _describe_calls(names: Sequence[str]) -> list[TailEntry]:
    counts = Counter(names)
    parts = [f"{name} ×{count}" if count > 1 else name for name, count in counts.items()]
    return [TailEntry("call", ", ".join(parts))] if parts else []
