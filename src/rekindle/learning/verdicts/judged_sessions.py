"""Judge the calls of stored sessions, and load sessions with their judged calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rekindle.errors import NotFound
from rekindle.judging import call_pairing as judging
from rekindle.judging.judge import RULES_VERSION as JUDGE_VERSION
from rekindle.store import Filter, Store
from rekindle.store.learning.outcomes import JudgedCalls, StaleSession
from rekindle.types import JudgedSession, Message

Progress = Callable[[int, int], None]

RULES_VERSION = str(JUDGE_VERSION)
PAGE_SIZE = 500  # messages per page, which bounds the memory used
CALLS_PER_COMMIT = 2_000  # calls written per transaction
_NO_FILTER = Filter()


def judge_sessions(
    store: Store,
    where: Filter = _NO_FILTER,
    *,
    session: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Judge sessions that are new or were judged by other rules; return the number of calls."""
    waiting = store.find_stale_sessions(RULES_VERSION, where, session=session)
    total = sum(due.messages for due in waiting)
    done = count = 0
    batch: list[JudgedCalls] = []
    for due in waiting:
        try:
            batch.append(_judge_session(store, due))
        except NotFound:
            continue  # pruned meanwhile
        count += len(batch[-1].calls)
        done += due.messages
        if sum(len(each.calls) + 1 for each in batch) >= CALLS_PER_COMMIT:
            store.save_verdicts(RULES_VERSION, batch)
            batch = []
        if progress:
            progress(done, total)
    if batch:
        store.save_verdicts(RULES_VERSION, batch)
    return count


def iter_judged_sessions(
    store: Store, where: Filter = _NO_FILTER, *, progress: Progress | None = None
) -> Iterator[JudgedSession]:
    """Yield judged sessions with their calls, ordered by start."""
    judge_sessions(store, where, progress=progress)
    yield from store.iter_judged_sessions(where)


def load_judged_session(store: Store, session: str) -> JudgedSession:
    """Return one judged session with its calls."""
    judge_sessions(store, session=session)
    for found in store.iter_judged_sessions(session=session):
        return found
    raise NotFound(f"Session not found: {session!r}")


def _judge_session(store: Store, due: StaleSession) -> JudgedCalls:
    watcher = _MessageWatcher(_iter_unjudged_messages(store, due), due.since)
    calls = sorted(judging.judge_calls(due.session, watcher))
    since = judging.find_rejudge_position(calls, watcher.end)
    return JudgedCalls(due, calls, since, (*due.compressions, *watcher.compressions))


def _iter_unjudged_messages(store: Store, due: StaleSession) -> Iterator[Message]:
    after = due.since - 1
    while page := store.messages(due.session, after=after, limit=PAGE_SIZE):
        yield from page
        after = page[-1].position or 0


class _MessageWatcher:
    """Messages on their way to the judge, with compressions noted in passing."""

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
