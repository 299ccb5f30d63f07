"""Judge what became of stored sessions, and store it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rekindle.errors import NotFound
from rekindle.judging.judge import RULES_VERSION as JUDGE_VERSION
from rekindle.judging.outcomes.outcome import OUTCOME_VERSION, judge_session
from rekindle.store import Filter, Store
from rekindle.store.learning.session_outcomes import UndecidedSession
from rekindle.types import SessionOutcome

from .judged_sessions import RULES_VERSION, judge_sessions, load_judged_session

Progress = Callable[[int, int], None]

VERSION = f"{JUDGE_VERSION}.{OUTCOME_VERSION}"
SESSIONS_PER_COMMIT = 100


def judge_outcomes(
    store: Store,
    where: Filter | None = None,
    *,
    session: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Judge what became of sessions that are new, changed, or judged by other rules; count them."""
    if where is not None:
        where = where._replace(outcome=None)  # it is not known yet
    waiting = store.session_outcomes.find_stale(VERSION, where, session=session)
    if len(waiting) > 1:  # many together, which is faster than one by one
        judge_sessions(store, where or Filter(archived=None))
    total = sum(one.messages for one in waiting)
    done = 0
    batch: list[tuple[UndecidedSession, SessionOutcome]] = []
    for one in waiting:
        try:
            batch.append((one, _judge_stored(store, one.id)))
        except NotFound:
            continue  # deleted meanwhile
        done += one.messages
        if len(batch) >= SESSIONS_PER_COMMIT:
            store.session_outcomes.save(VERSION, batch)
            batch = []
        if progress:
            progress(done, total)
    store.session_outcomes.save(VERSION, batch)
    return len(waiting)


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


def _judge_stored(store: Store, id: str) -> SessionOutcome:
    judged = load_judged_session(store, id)
    return judge_session(judged.session, store.messages(id), judged.calls)
