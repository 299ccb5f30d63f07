"""What can be learned from stored sessions: reads the store, asks `warm/`, keeps the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .errors import NotFound
from .store import Filter, Store
from .store.outcomes import Due, Verdicts
from .types import Judged, Message
from .warm import calls as judging
from .warm import outcome

Progress = Callable[[int, int], None]

RULES = str(outcome.RULES_VERSION)
PAGE = 500  # messages read at a time: a session of any length costs the same memory
TOGETHER = 2_000  # calls kept in one transaction
_EVERYTHING = Filter()


def judge(
    store: Store,
    where: Filter = _EVERYTHING,
    *,
    session: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Judge what is new or was judged by other rules; how many calls that were."""
    waiting = store.due(RULES, where, session=session)
    total = sum(due.messages for due in waiting)
    done = count = 0
    batch: list[Verdicts] = []
    for due in waiting:
        try:
            batch.append(_verdicts(store, due))
        except NotFound:
            continue  # pruned meanwhile
        count += len(batch[-1].calls)
        done += due.messages
        if sum(len(each.calls) + 1 for each in batch) >= TOGETHER:
            store.keep_verdicts(RULES, batch)
            batch = []
        if progress:
            progress(done, total)
    if batch:
        store.keep_verdicts(RULES, batch)
    return count


def judged(
    store: Store, where: Filter = _EVERYTHING, *, progress: Progress | None = None
) -> Iterator[Judged]:
    """Sessions with their calls, judged as they are now, in the order of their start."""
    judge(store, where, progress=progress)
    yield from store.judged(where)


def judged_session(store: Store, session: str) -> Judged:
    """One session with its calls."""
    judge(store, session=session)
    for found in store.judged(session=session):
        return found
    raise NotFound(f"no session {session!r}")


def _verdicts(store: Store, due: Due) -> Verdicts:
    watched = _Watched(_messages(store, due), due.since)
    calls = sorted(judging.judged(due.session, watched))
    since = judging.resume_at(calls, watched.end)
    return Verdicts(due, calls, since, (*due.compressions, *watched.compressions))


def _messages(store: Store, due: Due) -> Iterator[Message]:
    after = due.since - 1
    while page := store.messages(due.session, after=after, limit=PAGE):
        yield from page
        after = page[-1].position or 0


class _Watched:
    """Messages on their way to the judge, and what else is to be seen in them."""

    def __init__(self, messages: Iterable[Message], end: int) -> None:
        self._messages = messages
        self.end = end
        self.compressions: list[int] = []

    def __iter__(self) -> Iterator[Message]:
        for message in self._messages:
            position = message.position or 0
            self.end = position + 1
            if message.meta and message.meta.get("compacted"):
                self.compressions.append(position)
            yield message
