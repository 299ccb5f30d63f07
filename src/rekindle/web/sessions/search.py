"""Search as one types: in titles and in messages, with a bound on the work of a keystroke.

A word that is still being typed stands for all words that begin with it. In a large store these are
found slowly, so that a keystroke looks for short beginnings in titles alone; what the messages have is
asked for once the person pauses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from rekindle.store import Filter
from rekindle.store.core.search_query import MATCH_MARKS
from rekindle.types import Hit, Session

from .rows import ListPage, MessageHit, RowLoader, SessionRow

MAX_FOUND = 30  # sessions found by their title, and in all
MAX_HITS = 60  # messages
QUICK_FOUND, QUICK_HITS = 12, 24  # while a person types: as many as a screen shows
HITS_PER_SESSION = 3
MIN_PREFIX = 3  # letters of a word that is still being typed: fewer match too much
QUICK_PREFIX = 6  # from this length on, a beginning is looked up at once
_MAX_DEPTH = 4  # of sub-agents that start sub-agents
_MARKED = re.compile(f"{MATCH_MARKS[0]}([^{''.join(MATCH_MARKS)}]*){MATCH_MARKS[1]}")


def search_sessions(
    loader: RowLoader,
    text: str,
    where: Filter,
    is_stale: Callable[[], bool] = lambda: False,
    *,
    is_thorough: bool = True,
) -> ListPage:
    """Return the sessions with these words: first those in the title, then those in a message.

    Unless it is thorough, it is quick: a screen full, and in messages only whole words and long
    beginnings of words.
    """
    most, most_hits = (MAX_FOUND, MAX_HITS) if is_thorough else (QUICK_FOUND, QUICK_HITS)
    titled = loader.store.search_titles(text, limit=most, where=where)
    if is_stale():
        return ListPage([])
    query, is_complete = build_query(text, MIN_PREFIX if is_thorough else QUICK_PREFIX)
    hits = loader.store.search(query, limit=most_hits, where=where, context=0)
    if is_stale():
        return ListPage([])
    starters = _find_starters(loader, [*titled, *(hit.session for hit in hits)])
    found: dict[str, Session] = {}
    messages: dict[str, list[MessageHit]] = {}
    for session in titled:
        shown = starters.get(session.id, session)
        found.setdefault(shown.id, shown)
    for hit in hits:
        shown = starters.get(hit.session.id, hit.session)
        if shown.id in found or len(found) < most:
            found.setdefault(shown.id, shown)
            messages.setdefault(shown.id, []).append(_build_hit(hit))
    rows = loader.build_rows([*found.values()][:most])
    return ListPage(
        [_add_hits(row, text, messages.get(row.session.id, [])) for row in rows],
        is_partial=not is_thorough and (not is_complete or len(found) >= most),
    )


def build_query(text: str, min_prefix: int) -> tuple[str, bool]:
    """Return the query for what has been typed so far, and whether it finds all that it stands for."""
    word = text.split(" ")[-1]
    is_open = text.count('"') % 2 == 0 and len(word) >= MIN_PREFIX and word[-1].isalnum()
    if is_open and len(word) >= min_prefix:
        return f"{text}*", True
    return text, not is_open


def _find_starters(loader: RowLoader, sessions: Sequence[Session]) -> dict[str, Session]:
    """Return the sessions under which sub-agents are shown, by the ids of the sub-agents."""
    inner = {one.id: one for one in sessions if one.sub_agent and one.parent}
    found: dict[str, Session] = {}
    for _ in range(_MAX_DEPTH):
        if not inner:
            break
        parents = loader.store.find_sessions([one.parent or "" for one in inner.values()])
        parents = {id: one for id, one in parents.items() if one.pruned is None}
        inner = {id: parents[one.parent] for id, one in inner.items() if one.parent in parents}
        found |= inner
        inner = {id: one for id, one in inner.items() if one.sub_agent and one.parent}
    return found


def _build_hit(hit: Hit) -> MessageHit:
    position = hit.message.position or 0
    return MessageHit(hit.session.id, position, hit.message.role, mark_snippet(hit.snippet))


def _add_hits(row: SessionRow, text: str, hits: Sequence[MessageHit]) -> SessionRow:
    return row._replace(shown_name=mark_words(row.name, text), hits=tuple(hits[:HITS_PER_SESSION]))


def mark_snippet(snippet: str) -> Markup:
    """Return a snippet as HTML with its matches marked."""
    parts = _MARKED.split(snippet)  # every second part is a match
    return Markup("").join(
        Markup("<mark>{}</mark>").format(part) if at % 2 else escape(part)
        for at, part in enumerate(parts)
    )


def mark_words(text: str, query: str) -> Markup:
    """Return a text as HTML with the words of a query marked wherever they occur."""
    words = sorted(set(query.replace('"', " ").split()), key=len, reverse=True)
    if not words:
        return escape(text)
    parts = re.split(f"({'|'.join(map(re.escape, words[:20]))})", text, flags=re.IGNORECASE)
    return Markup("").join(
        Markup("<mark>{}</mark>").format(part) if at % 2 else escape(part)
        for at, part in enumerate(parts)
    )
