"""The calls behind a point: newest first, a page at a time, found through the index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rekindle.analytics.insights import POSITION_STARTS
from rekindle.analytics.reliability.call_index import CallIndex
from rekindle.analytics.reliability.summary import (
    CallChoice,
    find_bucket,
    iter_counts,
    iter_sessions,
)
from rekindle.knowledge.notes.calls import read_forms
from rekindle.learning.verdicts.call_details import CallDetail, load_call_details, load_calls
from rekindle.projects import KnownProjects
from rekindle.store import Store
from rekindle.types import JudgedCall, JudgedSession, Session

from .reliability import IndexedStore

PAGE_SIZE = 50
MAX_PAGE_SESSIONS = 60  # that one page looks at
_SHELL_KINDS = ("terminal", "code")


class SessionCalls(NamedTuple):
    """The calls of one session that a page lists."""

    session: Session
    name: str
    project: str
    details: tuple[CallDetail, ...]


class CallPage(NamedTuple):
    """A page of calls; `next` continues the list, `is_first` tells whether it begins it."""

    sessions: tuple[SessionCalls, ...]
    next: str | None
    is_first: bool


class _Cursor(NamedTuple):
    """Where a page begins: a session in the index by its number in the store, and a call in it."""

    num: int
    skip: int


def parse_cursor(text: str) -> _Cursor | None:
    """Return the place that an address names; anything else is the beginning."""
    num, _, skip = text.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 16 for part in (num, skip)):
        return None
    return _Cursor(int(num), int(skip))


def load_call_page(
    store: Store, indexed: IndexedStore, choice: CallChoice, verdict: str, after: str
) -> CallPage:
    """Load a page of the calls that a choice selects and that ended in some way."""
    index, start = indexed.calls, parse_cursor(after)
    found: list[tuple[JudgedSession, Sequence[JudgedCall]]] = []
    room, following = PAGE_SIZE, None
    looked = 0
    for num in _iter_nums(index, choice, verdict, start):
        if room <= 0 or looked >= MAX_PAGE_SESSIONS:
            following = following or _Cursor(num, 0)
            break
        looked += 1
        judged = _load_session(store, num)
        if judged is None:
            continue
        skip = start.skip if start is not None and start.num == num else 0
        calls = _choose_calls(store, index, num, judged, choice, verdict)[skip:]
        if len(calls) > room:
            following = _Cursor(num, skip + room)
        if calls:
            found.append((judged, calls[:room]))
            room -= len(calls[:room])
        if following is not None:
            break
    next_page = None if following is None else f"{following.num}.{following.skip}"
    return CallPage(_describe_sessions(store, indexed.known, found), next_page, start is None)


def _iter_nums(
    index: CallIndex, choice: CallChoice, verdict: str, start: _Cursor | None
) -> Iterator[int]:
    """Yield the numbers of the sessions with such calls, the newest first, from the start on."""
    is_there = start is None
    for session in reversed([*iter_sessions(index, choice)]):
        num = index.nums[session]
        is_there = is_there or (start is not None and num == start.num)
        if is_there and any(
            _has_verdict(failed, calls, verdict)
            for _, _, failed, calls in iter_counts(index, choice, session)
        ):
            yield num


def _has_verdict(failed: int, calls: int, verdict: str) -> bool:
    return {"failed": failed, "worked": calls - failed}.get(verdict, calls) > 0


def _load_session(store: Store, num: int) -> JudgedSession | None:
    ids = store.call_columns.load_ids([num])
    return next(iter(store.iter_judged_sessions(session=ids[num])), None) if num in ids else None


def _choose_calls(
    store: Store,
    index: CallIndex,
    num: int,
    judged: JudgedSession,
    choice: CallChoice,
    verdict: str,
) -> list[JudgedCall]:
    """Return the calls of a session that a choice selects, the newest first."""
    bucket = None if choice.position is None else find_bucket(choice.position)
    copies = index.find_copies(num)
    chosen: list[JudgedCall] = []
    place = 0
    for call in judged.calls:
        if call.kind == "bookkeeping":
            continue
        place += 1
        if call.failed is None or (call.position, call.number) in copies:
            continue
        if verdict in ("failed", "worked") and call.failed != (verdict == "failed"):
            continue
        if choice.tool is not None and call.tool != choice.tool:
            continue
        if bucket is None or _is_in_bucket(place, bucket):
            chosen.append(call)
    if choice.command is not None:
        chosen = _choose_runs(store, judged.session, chosen, choice.command)
    return chosen[::-1]


def _is_in_bucket(place: int, bucket: int) -> bool:
    if bucket < 0:
        return False
    ends = (*POSITION_STARTS, place + 1)
    return ends[bucket] <= place < max(ends[bucket + 1], ends[bucket] + 1)


def _choose_runs(
    store: Store, session: Session, calls: Sequence[JudgedCall], command: str
) -> list[JudgedCall]:
    """Return the calls that run a command."""
    shell = [call for call in calls if call.kind in _SHELL_KINDS]
    made = load_calls(store, session.id, shell)
    return [
        one
        for one, call in zip(shell, made, strict=True)
        if call and any(form.key == command for form in read_forms(call, session.cwd or ""))
    ]


def _describe_sessions(
    store: Store,
    known: KnownProjects,
    found: Sequence[tuple[JudgedSession, Sequence[JudgedCall]]],
) -> tuple[SessionCalls, ...]:
    names = store.load_names([judged.session for judged, _ in found])
    described: list[SessionCalls] = []
    for judged, calls in found:
        session = judged.session
        project = known.find_session_project(session)
        described.append(
            SessionCalls(
                session,
                session.title or names.get(session.id) or session.id,
                known.get_name(project) if project else "",
                tuple(load_call_details(store, session, calls)),
            )
        )
    return tuple(described)
