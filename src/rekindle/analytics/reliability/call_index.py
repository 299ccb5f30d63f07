"""An index of all judged calls: counts by session, tool and place, in columns of numbers.

A hundred thousand sessions with some millions of calls take about twenty megabytes, and any selection
of them is summed up without reading the store again. A call that several sessions have, because one
continues or forks another, counts once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rekindle.analytics.insights import POSITION_STARTS
from rekindle.analytics.sample import is_unique_id

NO_WEEK = -1


class IndexedSession(NamedTuple):
    """A session for the index; families are sessions that belong together."""

    num: int
    source: str
    project: str
    model: str
    week: int  # the first day of the week in which it started, or NO_WEEK
    started: float
    parent: int | None
    is_fork: bool


class CallRow(NamedTuple):
    """A call for the index; `failed` is None if it cannot be told, or was refused."""

    session: int
    position: int
    number: int
    tool: str
    outcome: str
    failed: int | None


class RepeatedRow(NamedTuple):
    """A call that an earlier session has too."""

    session: int
    position: int
    number: int
    id: str
    digest: int
    first: int


class CommandRun(NamedTuple):
    """How often a session ran a command."""

    name: str
    failed: int
    calls: int


class NameTable:
    """Names and their numbers."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def add(self, name: str) -> int:
        """Return the number of a name; a new one gets the next."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number

    def find(self, name: str) -> int:
        """Return the number of a name, -1 if there is none."""
        return self._numbers.get(name, -1)


class CountTable:
    """Counts of sessions in columns: the rows of a session are adjacent."""

    def __init__(self, sessions: int) -> None:
        self.start = array("I", bytes(4 * sessions))
        self.stop = array("I", bytes(4 * sessions))
        self.name = array("I")
        self.bucket = array("B")
        self.failed = array("I")
        self.calls = array("I")

    def add(self, session: int, rows: Iterable[tuple[int, int, int, int]]) -> None:
        """Add the rows of a session: name, bucket, failed calls, calls."""
        self.start[session] = len(self.name)
        for name, bucket, failed, calls in rows:
            self.name.append(name)
            self.bucket.append(bucket)
            self.failed.append(failed)
            self.calls.append(calls)
        self.stop[session] = len(self.name)


class CallIndex:
    """Counts of all sessions. Sessions are numbered in the order of their start."""

    def __init__(self, sessions: Iterable[IndexedSession]) -> None:
        self.sources, self.projects, self.models = NameTable(), NameTable(), NameTable()
        self.tools, self.commands = NameTable(), NameTable()
        self.nums = array("q")
        self.source, self.project, self.model = array("I"), array("I"), array("I")
        self.week = array("i")
        self.started = array("d")
        self.is_fork = bytearray()
        self._numbers: dict[int, int] = {}
        self._parents: dict[int, int] = {}
        for one in sessions:
            self._add_session(one)
        self._families: dict[int, int] = {}
        self.calls = CountTable(len(self.nums))
        self.runs = CountTable(len(self.nums))
        # By session, and by its number in the store: position and number.
        self.copies: dict[int, frozenset[tuple[int, int]]] = {}
        self._copies_by_num: dict[int, frozenset[tuple[int, int]]] = {}
        self.refused = self.unknown = self.repeated = 0
        self.order = array("I")

    def _add_session(self, one: IndexedSession) -> None:
        number = len(self.nums)
        self._numbers[one.num] = number
        self.nums.append(one.num)
        self.source.append(self.sources.add(one.source))
        self.project.append(self.projects.add(one.project))
        self.model.append(self.models.add(one.model))
        self.week.append(one.week)
        self.started.append(one.started)
        self.is_fork.append(one.is_fork)
        if one.parent is not None:
            self._parents[number] = one.parent

    # ── building

    def add_repeated(self, rows: Iterable[RepeatedRow]) -> None:
        """Note which calls are copies; call this before `add_calls`."""
        copies: dict[int, set[tuple[int, int]]] = {}
        unclear: dict[tuple[str, int], set[int]] = {}
        forked: list[RepeatedRow] = []
        for row in rows:
            session, first = self._numbers.get(row.session), self._numbers.get(row.first)
            if session is None or first is None:
                continue
            if is_unique_id(row.id):
                copies.setdefault(session, set()).add((row.position, row.number))
                self._join_families(session, first)
            else:
                unclear.setdefault((row.id, row.digest), {row.first}).add(row.session)
                if self.is_fork[session]:
                    forked.append(row)
        for row in forked:
            session = self._numbers[row.session]
            if self._parents.get(session) in unclear[row.id, row.digest]:
                copies.setdefault(session, set()).add((row.position, row.number))
        self.copies = {session: frozenset(found) for session, found in copies.items()}
        self.repeated = sum(map(len, copies.values()))

    def add_calls(self, rows: Iterable[CallRow]) -> None:
        """Count all calls, given in the order of sessions and positions."""
        current, session, place = -1, None, 0
        counts: dict[tuple[int, int], list[int]] = {}
        copies: frozenset[tuple[int, int]] = frozenset()
        for num, position, number, tool, outcome, failed in rows:
            if num != current:
                self._save_calls(session, counts)
                current, session, place, counts = num, self._numbers.get(num), 0, {}
                copies = frozenset() if session is None else self.copies.get(session, frozenset())
            if session is None:
                continue
            place += 1
            if copies and (position, number) in copies:
                continue
            if failed is None:
                self._count_unjudged(outcome)
                continue
            key = self.tools.add(tool), bisect_right(POSITION_STARTS, place) - 1
            cell = counts.get(key)
            if cell is None:
                counts[key] = [failed, 1]
            else:
                cell[0] += failed
                cell[1] += 1
        self._save_calls(session, counts)

    def _count_unjudged(self, outcome: str) -> None:
        if outcome == "refused":
            self.refused += 1
        else:
            self.unknown += 1

    def _save_calls(self, session: int | None, counts: dict[tuple[int, int], list[int]]) -> None:
        if session is not None:
            rows = sorted(counts.items())
            self.calls.add(session, [(*key, cell[0], cell[1]) for key, cell in rows])

    def add_runs(self, num: int, runs: Iterable[CommandRun]) -> None:
        """Add the commands that a session ran; one with copies is left out, as its runs are, too."""
        session = self._numbers.get(num)
        if session is not None and session not in self.copies:
            rows = [(self.commands.add(one.name), 0, one.failed, one.calls) for one in runs]
            self.runs.add(session, rows)

    def finish(self) -> None:
        """Order the sessions by their families; call this last."""
        for session, parent in self._parents.items():
            if (found := self._numbers.get(parent)) is not None:
                self._join_families(session, found)
        families = [self._find_family(session) for session in range(len(self.nums))]
        self.order = array("I", sorted(range(len(families)), key=lambda one: (families[one], one)))
        self.family = array("I", families)
        self._copies_by_num = {self.nums[one]: found for one, found in self.copies.items()}
        self._numbers, self._parents, self._families = {}, {}, {}

    def _join_families(self, one: int, other: int) -> None:
        first, second = self._find_family(one), self._find_family(other)
        if first != second:
            self._families[first] = second

    def _find_family(self, session: int) -> int:
        path: list[int] = []
        while session in self._families:
            path.append(session)
            session = self._families[session]
        for step in path:
            self._families[step] = session
        return session

    # ── reading

    def find_copies(self, num: int) -> frozenset[tuple[int, int]]:
        """Return the calls of a session that an earlier one has, too."""
        return self._copies_by_num.get(num, frozenset())

    def find_since(self, seconds: float) -> int:
        """Return the first session that started at a time or later."""
        return bisect_left(self.started, seconds)

    def list_weeks(self) -> Sequence[int]:
        """Return the weeks with sessions, in order."""
        return sorted({week for week in self.week if week != NO_WEEK})
