"""Judge what became of stored sessions, and store it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from rekindle.errors import NotFound
from rekindle.judging.judge import RULES_VERSION as JUDGE_VERSION
from rekindle.judging.outcomes.outcome import OUTCOME_VERSION, judge_session
from rekindle.parallel import SERIAL, ChunkMapper, group_items
from rekindle.store import Filter, Store
from rekindle.store.learning.session_outcomes import UndecidedSession
from rekindle.types import SessionOutcome

from .judged_sessions import RULES_VERSION, judge_sessions
from .session_readers import StoreReader, WorkReader, can_reach_store, load_sessions

Progress = Callable[[int, int], None]

VERSION = f"{JUDGE_VERSION}.{OUTCOME_VERSION}"
SESSIONS_PER_COMMIT = 100
SECONDS_PER_MESSAGE = 80e-6  # roughly, to read a message and to look at it


class OutcomeWork(NamedTuple):
    """Sessions of which is to be judged what became of them."""

    reader: WorkReader
    sessions: Sequence[UndecidedSession]


def judge_outcomes(
    store: Store,
    where: Filter | None = None,
    *,
    session: str | None = None,
    progress: Progress | None = None,
    mapper: ChunkMapper = SERIAL,
) -> int:
    """Judge what became of sessions that are new, changed, or judged by other rules; count them."""
    if where is not None:
        where = where._replace(outcome=None)  # it is not known yet
    waiting = store.session_outcomes.find_stale(VERSION, where, session=session)
    if not waiting:
        return 0
    judge_sessions(store, where or Filter(archived=None), session=session, mapper=mapper)
    total = sum(one.messages for one in waiting)
    done = 0
    batch: list[tuple[UndecidedSession, SessionOutcome]] = []
    reader = StoreReader(store)
    chunks = [
        chunk.replace_work(OutcomeWork(reader, chunk.work))
        for chunk in group_items(
            waiting,
            lambda one: SECONDS_PER_MESSAGE * (one.messages + 1),
            lambda one: f"session {one.id}",
            workers=mapper.workers,
            chunk_seconds=mapper.chunk_seconds,
        )
    ]
    prepare = None if can_reach_store(mapper, store) else _load_work
    for judged in mapper.map_chunks(judge_outcome_chunk, chunks, prepare=prepare):
        batch += judged
        done += sum(one.messages for one, _ in judged)
        if len(batch) >= SESSIONS_PER_COMMIT:
            store.session_outcomes.save(VERSION, batch)
            batch = []
        if progress:
            progress(done, total)
    store.session_outcomes.save(VERSION, batch)
    return len(waiting)


def judge_outcome_chunk(work: OutcomeWork) -> list[tuple[UndecidedSession, SessionOutcome]]:
    """Judge what became of some sessions; those deleted meanwhile are left out."""
    found: list[tuple[UndecidedSession, SessionOutcome]] = []
    for one in work.sessions:
        with suppress(NotFound):
            judged = work.reader.load_judged(one.id)
            messages = list(work.reader.iter_messages(one.id))
            found.append((one, judge_session(judged.session, messages, judged.calls)))
    return found


def _load_work(work: OutcomeWork) -> OutcomeWork:
    wanted = [(one.id, 0) for one in work.sessions]
    return work._replace(reader=load_sessions(work.reader, wanted, with_verdicts=True))


def judge_chosen_sessions(
    store: Store, ids: Collection[str], progress: Progress | None = None
) -> None:
    """Judge the calls and the outcomes of some sessions, as far as they are not known."""
    every = Filter(archived=None)
    stale = {one.session for one in store.find_stale_sessions(RULES_VERSION, every)}
    undecided = {one.id for one in store.session_outcomes.find_stale(VERSION, every)}
    waiting = sorted(id for id in ids if id in stale or id in undecided)
    for number, id in enumerate(waiting):
        if progress:
            progress(number, len(waiting))
        judge_sessions(store, session=id)
        judge_outcomes(store, session=id)


def load_outcome(store: Store, session: str) -> SessionOutcome:
    """Return what became of a session, judged in its current state."""
    judge_outcomes(store, session=session)
    found = store.session_outcomes.load([session])
    if session not in found:
        raise NotFound(f"Session not found: {session!r:.80}")
    return found[session]
