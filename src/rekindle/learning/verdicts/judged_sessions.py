"""Judge the calls of stored sessions, and load sessions with their judged calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from rekindle.errors import NotFound
from rekindle.judging import call_pairing as judging
from rekindle.judging.judge import RULES_VERSION as JUDGE_VERSION
from rekindle.parallel import SERIAL, ChunkMapper, group_items
from rekindle.store import Filter, Store
from rekindle.store.learning.outcomes import JudgedCalls, StaleSession
from rekindle.types import JudgedSession, Message

from .session_readers import StoreReader, WorkReader, can_reach_store, load_sessions

Progress = Callable[[int, int], None]

RULES_VERSION = str(JUDGE_VERSION)
SECONDS_PER_MESSAGE = 30e-6  # roughly, to read a message and to judge its calls
CALLS_PER_COMMIT = 2_000  # calls written per transaction
_NO_FILTER = Filter()


class JudgingWork(NamedTuple):
    """Sessions whose calls are to be judged."""

    reader: WorkReader
    sessions: Sequence[StaleSession]


def judge_sessions(
    store: Store,
    where: Filter = _NO_FILTER,
    *,
    session: str | None = None,
    progress: Progress | None = None,
    mapper: ChunkMapper = SERIAL,
) -> int:
    """Judge sessions that are new or were judged by other rules; return the number of calls."""
    waiting = store.find_stale_sessions(RULES_VERSION, where, session=session)
    total = sum(due.messages for due in waiting)
    done = count = 0
    batch: list[JudgedCalls] = []
    reader = StoreReader(store)
    chunks = [
        chunk.replace_work(JudgingWork(reader, chunk.work))
        for chunk in group_items(
            waiting,
            lambda due: SECONDS_PER_MESSAGE * (due.messages - due.since + 1),
            lambda due: f"session {due.session}",
            workers=mapper.workers,
            chunk_seconds=mapper.chunk_seconds,
        )
    ]
    prepare = None if can_reach_store(mapper, store) else _load_work
    for judged in mapper.map_chunks(judge_chunk, chunks, prepare=prepare):
        batch += judged
        count += sum(len(one.calls) for one in judged)
        done += sum(one.stale_session.messages for one in judged)
        if sum(len(each.calls) + 1 for each in batch) >= CALLS_PER_COMMIT:
            store.save_verdicts(RULES_VERSION, batch)
            batch = []
        if progress:
            progress(done, total)
    if batch:
        store.save_verdicts(RULES_VERSION, batch)
    return count


def judge_chunk(work: JudgingWork) -> list[JudgedCalls]:
    """Judge the calls of some sessions; those deleted meanwhile are left out."""
    found: list[JudgedCalls] = []
    for due in work.sessions:
        with suppress(NotFound):
            found.append(_judge_session(work.reader, due))
    return found


def _load_work(work: JudgingWork) -> JudgingWork:
    wanted = [(due.session, due.since) for due in work.sessions]
    return work._replace(reader=load_sessions(work.reader, wanted, with_verdicts=False))


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


def _judge_session(reader: WorkReader, due: StaleSession) -> JudgedCalls:
    watcher = _MessageWatcher(reader.iter_messages(due.session, due.since), due.since)
    calls = sorted(judging.judge_calls(due.session, watcher))
    since = judging.find_rejudge_position(calls, watcher.end)
    return JudgedCalls(due, calls, since, (*due.compressions, *watcher.compressions))


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
