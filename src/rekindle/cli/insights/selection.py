"""The sessions that a command of this group looks at, judged."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rekindle.cli.output import show_progress
from rekindle.cli.session_choice import is_filter, parse_filter, select_sessions
from rekindle.errors import NotFound, StoreReadOnly

if TYPE_CHECKING:
    from rekindle.parallel import ChunkMapper
    from rekindle.store import Filter, Store
    from rekindle.types import JudgedSession


@contextmanager
def disable_gc() -> Generator[None]:
    """Disable garbage collection: judging allocates many acyclic values; this halves the run time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def judge_session(store: Store, name: str, owner: str | None) -> JudgedSession:
    """Return the named session with its judged calls."""
    from rekindle.learning.verdicts import judged_sessions

    return judged_sessions.load_judged_session(store, store.resolve(name, owner=owner).id)


def judge_sessions(
    store: Store, where: Filter, mapper: ChunkMapper | None = None
) -> Iterator[JudgedSession]:
    """Yield the sessions that match a filter with their judged calls, in order of their start.

    In a store that cannot be written, such as a replica, only those that were judged before.
    """
    from rekindle.learning.verdicts import judged_sessions
    from rekindle.parallel import SERIAL

    with suppress(StoreReadOnly), show_progress("Judging") as show:
        judged_sessions.judge_sessions(store, where, progress=show, mapper=mapper or SERIAL)
    yield from store.iter_judged_sessions(where)


def judge_selection(
    store: Store, words: list[str], owner: str | None, *, every: bool = True
) -> Iterable[JudgedSession]:
    """Judge the named session, or all sessions that match a filter, of this project or `every`."""
    if words and not is_filter(words):
        return [judge_session(store, " ".join(words), owner)]
    where = select_sessions(store, parse_filter(words, owner), every=every).where
    found = judge_sessions(store, where)
    if not words:
        return found
    first = next(found, None)
    if first is None:
        raise NotFound(f"No sessions match {' '.join(words)}")
    return _prepend_session(first, found)


def _prepend_session(
    first: JudgedSession, rest: Iterator[JudgedSession]
) -> Iterator[JudgedSession]:
    yield first
    yield from rest
