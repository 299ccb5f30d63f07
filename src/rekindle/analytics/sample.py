"""From judged sessions to the calls that count, once each.

Left out, and counted: bookkeeping tools, calls that nothing speaks about, and copies. A session that
was resumed or forked repeats the calls of an earlier one; a call with the same id and the same
arguments as one in an earlier session is that call. Only ids that cannot be alike by chance tell
(`toolu_01Ab…`, not `call_1`), except between a fork and the session it was forked from.

Sessions that continue, fork or work for each other are one *family*: they are not independent.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rekindle.types import Call, Judged, Session

from .profile import fault_of, task_of

# Letters and digits change places often in what a machine drew at random.
_CHANGES = re.compile(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]")
_MOMENT = re.compile(r"[0-9]{12}")
_SHORTEST, _FEWEST_CHANGES = 9, 4
_SAME_MOMENT = 1.0  # second: clocks of a parent and its child are not read at once


class Track(NamedTuple):
    """A session, reduced to its calls that count; the lists go together."""

    id: str
    source: str
    model: str
    messages: int
    calls: int  # without bookkeeping, with those that were left out
    task: str
    is_whole: bool  # begins itself, and does not repeat another session
    kinds: list[int]  # tool and kind of work, as a number in `Sample.kinds`
    failed: list[int]
    places: list[int]  # among all calls of the session, from 1
    positions: list[int]  # of the messages that make the calls
    early: int  # how many come before the last message that calls: see `claims`
    compressions: tuple[int, ...]


class Totals(NamedTuple):
    """What there is, and what was left out."""

    sessions: int
    with_calls: int
    messages: int
    calls: int
    copies: int
    bookkeeping: int
    unknown: int
    judged: int
    failed: int
    agent: int  # of those that failed: the agent's own mistakes
    environment: int  # … the network, a limit, a missing service
    refused: int  # … the user or the harness said no
    expected: int  # … a test that fails, a check that says no
    other: int  # … nothing tells whose fault it was
    not_failed_but_expected: int  # a search without a hit


class Sample(NamedTuple):
    """All sessions, and what they have in common."""

    tracks: list[Track]
    families: list[str]  # of each track
    kinds: list[tuple[str, str]]  # tool and kind of work
    totals: Totals
    errors: Counter[str]  # kinds of errors
    faults: list[int]  # the agent's own errors, by kind of call
    continued: list[tuple[int, int]]  # tracks of which the second goes on after a compression


def gather(sessions: Iterable[Judged]) -> Sample:
    """Take in sessions, in the order of their start."""
    gathering = _Gathering()
    for judged in sessions:
        gathering.add(judged)
    return gathering.sample()


def is_telling(call_id: str) -> bool:
    """Can two calls have this id only because they are the same call?"""
    if len(call_id) < _SHORTEST:
        return False
    return len(_CHANGES.findall(call_id)) >= _FEWEST_CHANGES or _MOMENT.search(call_id) is not None


def goes_on(parent: Session, child: Session) -> bool:
    """Is the child the conversation of its parent after a compression, and no fork or sub-agent?"""
    return (
        parent.end_reason == "compression"
        and child.parent == parent.id
        and child.forked_at is None
        and (parent.ended is None or child.started >= parent.ended - _SAME_MOMENT)
    )


class _Gathering:
    def __init__(self) -> None:
        self._tracks: list[Track] = []
        self._numbers: dict[str, int] = {}
        self._kinds: dict[tuple[str, str], int] = {}
        self._faults: Counter[int] = Counter()
        self._seen: dict[tuple[str, int], str] = {}  # calls, and where they were first
        self._alike: dict[tuple[str, int], set[str]] = {}  # … and where else, if ids do not tell
        self._relatives: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._compressed: dict[str, Session] = {}
        self._continued: dict[str, int] = {}

    def add(self, judged: Judged) -> None:
        session, calls, compressions = judged
        counts = self._counts
        counts["sessions"] += 1
        counts["messages"] += session.message_count
        counts["calls"] += len(calls)
        counts["with_calls"] += bool(calls)
        self._relate(session)
        self._numbers[session.id] = len(self._tracks)
        self._tracks.append(self._track(session, calls, compressions))

    def _relate(self, session: Session) -> None:
        if session.end_reason == "compression":
            self._compressed[session.id] = session
        if session.parent:
            self._join(session.id, session.parent)
            parent = self._compressed.get(session.parent)
            if parent and goes_on(parent, session):
                self._continued.setdefault(parent.id, len(self._tracks))

    def _track(
        self, session: Session, calls: Sequence[Call], compressions: tuple[int, ...]
    ) -> Track:
        counts, seen, numbers, id = self._counts, self._seen, self._kinds, session.id
        kinds: list[int] = []
        failed: list[int] = []
        places: list[int] = []
        positions: list[int] = []
        place = copies = 0
        for call in calls:
            if call.work == "bookkeeping":
                counts["bookkeeping"] += 1
                continue
            place += 1
            where = seen.setdefault((call.id, call.digest), id)
            if where != id and self._is_copy(session, call, where):
                copies += 1
            elif call.failed is None:
                counts["unknown"] += 1
            else:
                kind = numbers.setdefault((call.tool, call.work), len(numbers))
                kinds.append(kind)
                failed.append(1 if call.failed else 0)
                places.append(place)
                positions.append(call.position)
                if call.failed or call.outcome == "expected":
                    self._note(call, kind)
        counts["copies"] += copies
        counts["judged"] += len(failed)
        counts["failed"] += sum(failed)
        early = bisect_left(positions, positions[-1]) if positions else 0
        model, length = session.model or "unknown", session.message_count
        return Track(
            id, session.source, model, length, place, task_of(calls), not copies,
            kinds, failed, places, positions, early, compressions,
        )  # fmt: skip

    def _note(self, call: Call, kind: int) -> None:
        """Count what is told apart about a call that failed, or said no."""
        if not call.failed:
            self._counts["not_failed_but_expected"] += 1
            return
        whose = fault_of(call)
        self._counts[whose] += 1
        self._errors[call.error_kind or call.outcome] += 1
        if whose == "agent":
            self._faults[kind] += 1

    def _is_copy(self, session: Session, call: Call, where: str) -> bool:
        """Is this the call that was in another session first?"""
        if is_telling(call.id):
            self._join(session.id, where)
            return True
        others = self._alike.setdefault((call.id, call.digest), {where})
        is_copy = session.forked_at is not None and session.parent in others
        others.add(session.id)
        return is_copy

    def _join(self, one: str, other: str) -> None:
        first, second = self._family(one), self._family(other)
        if first != second:
            self._relatives[first] = second

    def _family(self, session: str) -> str:
        """The session that stands for the family; the way to it is made short."""
        way: list[str] = []
        while session in self._relatives:
            way.append(session)
            session = self._relatives[session]
        for step in way:
            self._relatives[step] = session
        return session

    def sample(self) -> Sample:
        counts = self._counts
        return Sample(
            self._tracks,
            [self._family(track.id) for track in self._tracks],
            list(self._kinds),
            Totals(*(counts[name] for name in Totals._fields)),
            self._errors,
            [self._faults[kind] for kind in range(len(self._kinds))],
            [(self._numbers[parent], child) for parent, child in self._continued.items()],
        )
