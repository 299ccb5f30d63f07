"""Collect the calls that count, each once, from judged sessions.

Bookkeeping tools, calls without a verdict, and copies are left out and counted. A session that was
resumed or forked repeats the calls of an earlier one; a call with the same id and arguments as one in
an earlier session is that call. Only ids that cannot coincide by chance are trusted (`toolu_01Ab…`, not
`call_1`), except between a fork and the session it was forked from.

Sessions that continue, fork or work for each other form one *family*: they are not independent.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rekindle.types import JudgedCall, JudgedSession, Session

from .profile import classify_fault, classify_task

# Random ids switch between letter cases and digits often.
_CHARACTER_CLASS_CHANGES = re.compile(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]")
_TIMESTAMP = re.compile(r"[0-9]{12}")
_MIN_UNIQUE_LENGTH, _MIN_CHANGES = 9, 4
_CLOCK_TOLERANCE = 1.0  # second: parent and child read the clock separately


class SessionTrack(NamedTuple):
    """A session, reduced to its calls that count; the lists run in parallel."""

    id: str
    source: str
    model: str
    messages: int
    calls: int  # without bookkeeping, including copies and unknown ones
    task: str
    is_whole: bool  # it does not repeat the calls of another session
    kinds: list[int]  # indexes in `Sample.kinds`
    failed: list[int]
    places: list[int]  # numbers among all calls of the session, from 1
    positions: list[int]  # of the messages that make the calls
    early: int  # calls before the last message that makes calls: see `claims`
    compressions: tuple[int, ...]


class Totals(NamedTuple):
    """The totals, including what was left out."""

    sessions: int
    with_calls: int
    messages: int
    calls: int
    copies: int
    bookkeeping: int
    unknown: int
    refused: int  # by a person, a hook or a rule: neither worked nor failed
    judged: int
    failed: int
    agent: int  # failed by the agent's own mistake
    environment: int  # failed by the network, a limit, a missing service
    expected: int  # a failing test, a check that says no
    other: int  # failed, and the fault is unclear
    not_failed_but_expected: int  # such as a search without a hit


class Sample(NamedTuple):
    """All sessions, and the tables they share."""

    tracks: list[SessionTrack]
    families: list[str]  # of each track
    kinds: list[tuple[str, str]]  # tool and kind of work
    totals: Totals
    errors: Counter[str]  # kinds of errors
    faults: list[int]  # the agent's own errors, by kind of call
    continued: list[tuple[int, int]]  # pairs of tracks: the second continues the first


def collect_sample(sessions: Iterable[JudgedSession]) -> Sample:
    """Collect sessions, given in the order of their start."""
    builder = _SampleBuilder()
    for judged in sessions:
        builder.add(judged)
    return builder.build()


def is_unique_id(call_id: str) -> bool:
    """Return whether two calls with this id must be the same call."""
    if len(call_id) < _MIN_UNIQUE_LENGTH:
        return False
    return (
        len(_CHARACTER_CLASS_CHANGES.findall(call_id)) >= _MIN_CHANGES
        or _TIMESTAMP.search(call_id) is not None
    )


def is_continuation(parent: Session, child: Session) -> bool:
    """Return whether the child continues its parent after a compression (no fork or sub-agent)."""
    return (
        parent.end_reason == "compression"
        and child.parent == parent.id
        and child.forked_at is None
        and (parent.ended is None or child.started >= parent.ended - _CLOCK_TOLERANCE)
    )


class _SampleBuilder:
    def __init__(self) -> None:
        self._tracks: list[SessionTrack] = []
        self._numbers: dict[str, int] = {}
        self._kinds: dict[tuple[str, str], int] = {}
        self._faults: Counter[int] = Counter()
        self._first_sessions: dict[
            tuple[str, int], str
        ] = {}  # by call: the session that has it first
        self._sessions_by_call: dict[
            tuple[str, int], set[str]
        ] = {}  # the same for ambiguous ids: all of them
        self._family_parents: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._compressed: dict[str, Session] = {}
        self._continued: dict[str, int] = {}

    def add(self, judged: JudgedSession) -> None:
        session, calls, compressions = judged
        counts = self._counts
        counts["sessions"] += 1
        counts["messages"] += session.message_count
        counts["calls"] += len(calls)
        counts["with_calls"] += bool(calls)
        self._link_session(session)
        self._numbers[session.id] = len(self._tracks)
        self._tracks.append(self._build_track(session, calls, compressions))

    def _link_session(self, session: Session) -> None:
        if session.end_reason == "compression":
            self._compressed[session.id] = session
        if session.parent:
            self._join_families(session.id, session.parent)
            parent = self._compressed.get(session.parent)
            if parent and is_continuation(parent, session):
                self._continued.setdefault(parent.id, len(self._tracks))

    def _build_track(
        self, session: Session, calls: Sequence[JudgedCall], compressions: tuple[int, ...]
    ) -> SessionTrack:
        counts, first_sessions, numbers, id = (
            self._counts,
            self._first_sessions,
            self._kinds,
            session.id,
        )
        kinds: list[int] = []
        failed: list[int] = []
        places: list[int] = []
        positions: list[int] = []
        ordinal = copies = 0
        for call in calls:
            if call.kind == "bookkeeping":
                counts["bookkeeping"] += 1
                continue
            ordinal += 1
            first_session = first_sessions.setdefault((call.id, call.digest), id)
            if first_session != id and self._is_copy(session, call, first_session):
                copies += 1
            elif call.failed is None:
                counts["refused" if call.outcome == "refused" else "unknown"] += 1
            else:
                kind = numbers.setdefault((call.tool, call.kind), len(numbers))
                kinds.append(kind)
                failed.append(1 if call.failed else 0)
                places.append(ordinal)
                positions.append(call.position)
                if call.failed or call.outcome == "expected":
                    self._count_failure(call, kind)
        counts["copies"] += copies
        counts["judged"] += len(failed)
        counts["failed"] += sum(failed)
        early = bisect_left(positions, positions[-1]) if positions else 0
        model, length = session.model or "unknown", session.message_count
        return SessionTrack(
            id, session.source, model, length, ordinal, classify_task(calls), not copies,
            kinds, failed, places, positions, early, compressions,
        )  # fmt: skip

    def _count_failure(self, call: JudgedCall, kind: int) -> None:
        """Count a call that failed, or that was expected to fail."""
        if not call.failed:
            self._counts["not_failed_but_expected"] += 1
            return
        fault = classify_fault(call)
        self._counts[fault] += 1
        self._errors[call.error_kind or call.outcome] += 1
        if fault == "agent":
            self._faults[kind] += 1

    def _is_copy(self, session: Session, call: JudgedCall, first_session: str) -> bool:
        """Return whether this is the call that an earlier session already has."""
        if is_unique_id(call.id):
            self._join_families(session.id, first_session)
            return True
        others = self._sessions_by_call.setdefault((call.id, call.digest), {first_session})
        is_copy = session.forked_at is not None and session.parent in others
        others.add(session.id)
        return is_copy

    def _join_families(self, one: str, other: str) -> None:
        first, second = self._find_family(one), self._find_family(other)
        if first != second:
            self._family_parents[first] = second

    def _find_family(self, session: str) -> str:
        """Return the session that represents the family, and shorten the path to it."""
        path: list[str] = []
        while session in self._family_parents:
            path.append(session)
            session = self._family_parents[session]
        for step in path:
            self._family_parents[step] = session
        return session

    def build(self) -> Sample:
        counts = self._counts
        return Sample(
            self._tracks,
            [self._find_family(track.id) for track in self._tracks],
            list(self._kinds),
            Totals(*(counts[name] for name in Totals._fields)),
            self._errors,
            [self._faults[kind] for kind in range(len(self._kinds))],
            [(self._numbers[parent], child) for parent, child in self._continued.items()],
        )
