"""What was found in sessions: candidates for patterns, kept beside the messages.

Nothing here mines. A session is due when it has changed since it was looked through, or other rules
did it. What is kept is small: numbers for each candidate, and once for each session the calls that
its candidates are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, cast

import msgspec

from rekindle.store.core.engine import Engine, Row, Transaction
from rekindle.store.core.filter import Filter, among
from rekindle.store.core.rows import decode_json
from rekindle.store.core.text_encoding import ESCAPE, escape, unescape
from rekindle.types import Call, ToolCall

from . import candidate_counts
from .candidate_counts import Tally

TOGETHER = 200  # sessions whose calls are read with one statement
_LONGEST_LINE = 100  # of sessions that go on from one another
_CALLS = (
    "session, position, number, id, tool, work, digest, outcome, failed, error_kind, fault, rule,"
    " confidence, duration, answered"
)


_TABLES = ("candidates", "attempts", "mined_calls", "mined")
_MINED = "session, rules, changes, family, task, judged, failed, gain"
_MINED_CALLS = "session, calls"
_CANDIDATES = "session, shape, family, kind, place, support, tainted"
_ATTEMPTS = "session, work, calls, failed"


class Pending(NamedTuple):
    """A session that may be learned from, with what is known of it already, if that is of today."""

    num: int
    id: str
    source: str
    messages: int
    end_reason: str | None
    # The facts; without a task it is to be looked through.
    task: str | None
    judged: int
    failed: int
    gain: float | None
    is_escaped: bool
    last_active: float

    @property
    def known(self) -> Facts | None:
        return None if self.task is None else Facts(self.task, self.judged, self.failed, self.gain)


class Facts(NamedTuple):
    """What a session was like."""

    task: str
    judged: int
    failed: int
    gain: float | None


class Deal(NamedTuple):
    """A session as it is looked through: what became of its calls, and when users spoke.

    Beside each verdict stands the message that made the call, for `call_of`.
    """

    num: int
    cwd: str | None
    parent: str | None
    changes: int
    calls: list[tuple[Call, str]]
    users: list[int]


class Findings(NamedTuple):
    """What looking through a session gave.

    Candidates are rows, with the session itself for its family, which is found when they are kept.
    """

    num: int
    parent: str | None
    changes: int
    facts: Facts
    calls: bytes
    candidates: Sequence[Row]
    attempts: Sequence[tuple[str, int, int]]  # a sort of calls, how many, how many failed


class Place(NamedTuple):
    """A candidate in one session."""

    num: int
    session: str
    time: float
    family: int
    place: str
    support: int
    tainted: bool


class Mined:
    """The store's memory of what was mined. Use `store.mined`."""

    def __init__(
        self,
        engine: Engine,
        write: Callable[[Callable[[Transaction], Any]], Any],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._write = write
        self._clock = clock

    def pending(self, rules: str, where: Filter, *, session: str | None = None) -> list[Pending]:
        """Sessions that a filter finds, or one, the newest first, with what is known of them."""
        condition, params = where.sql(self._clock())
        if session is not None:
            condition, params = "s.id = ? AND s.pruned IS NULL", [escape(session)]
        with self._engine.reading() as tx:
            rows = tx.run(
                "SELECT s.num, s.id, s.source, s.message_count, s.end_reason, m.task, m.judged,"
                " m.failed, m.gain, s.is_escaped, s.last_active"
                " FROM sessions s LEFT JOIN mined m"
                " ON m.session = s.num AND m.rules = ? AND m.changes = s.changes"
                f" WHERE {condition}",
                (rules, *params),
            )
        rows.sort(key=_newest, reverse=True)  # in the order of the rows they are read much faster
        found: list[Pending] = [_new(Pending, row) for row in rows]
        if any(map(_is_escaped, rows)):
            found = [
                one._replace(id=unescape(one.id), source=unescape(one.source)) for one in found
            ]
        return found

    def deals(self, nums: Sequence[int]) -> Iterator[Deal]:
        """Those of the sessions that are there, with the calls that were judged, by their numbers."""
        with self._engine.reading() as tx:
            for start in range(0, len(nums), TOGETHER):
                yield from _deals(tx, sorted(nums[start : start + TOGETHER]))

    def lines(self, nums: Sequence[int]) -> dict[int, list[int]]:
        """The sessions that some of these go on from, the nearest first; a fork has all it needs."""
        found: dict[int, list[int]] = {}
        with self._engine.reading() as tx:
            ends = {num: num for num in nums}
            for _ in range(_LONGEST_LINE):
                parents = dict(
                    tx.run(
                        "SELECT s.num, p.num FROM sessions s JOIN sessions p ON p.id = s.parent WHERE"
                        f" {among(set(ends.values()), 's.num')} AND s.forked_at IS NULL"
                        " AND p.pruned IS NULL"
                    )
                )
                ends = {num: parents[end] for num, end in ends.items() if end in parents}
                if not ends:
                    break
                for num, end in ends.items():
                    found.setdefault(num, []).append(end)
        return found

    def keep(
        self,
        rules: str,
        findings: Sequence[Findings],
        *,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Put what was found in place of what was known about these sessions.

        `meanwhile` is done, where the engine can, while it is written; it must not write itself.
        """

        def work(tx: Transaction) -> None:
            _keep(tx, rules, findings)
            if meanwhile:
                tx.meanwhile(meanwhile)

        self._write(work)

    def tally(
        self, nums: Set[int], least: int, most: Mapping[str, int]
    ) -> tuple[list[Tally], dict[str, tuple[int, int]]]:
        """Candidates that enough of these sessions had, of each kind at `most` so many.

        And how often calls of each sort were made and failed.
        """
        with self._engine.reading() as tx:
            if candidate_counts.are_true(tx):
                return candidate_counts.tallied(tx, nums, least, most)
        self._write(candidate_counts.renew)
        with self._engine.reading() as tx:
            return candidate_counts.tallied(tx, nums, least, most)

    def places(self, shapes: Sequence[int], nums: Set[int], most: int) -> dict[int, list[Place]]:
        """Where candidates were found: the newest sessions of each."""
        with self._engine.reading() as tx:
            found = {shape: _places(tx, shape, nums, most) for shape in shapes}
            named = _named(tx, {row[0] for rows in found.values() for row in rows})
        return {
            shape: [
                Place(num, *named[num], family, place, support, bool(tainted))
                for num, family, place, support, tainted in rows
            ]
            for shape, rows in found.items()
        }

    def calls(self, nums: Sequence[int]) -> dict[int, bytes]:
        """The calls that the candidates of these sessions are made of."""
        found: dict[int, bytes] = {}
        with self._engine.reading() as tx:
            for start in range(0, len(nums), TOGETHER):
                some = among(nums[start : start + TOGETHER])
                found |= {
                    num: bytes(calls)
                    for num, calls in tx.run(f"SELECT session, calls FROM mined_calls WHERE {some}")
                }
        return found

    def tools(self) -> set[str]:
        """The names of all tools that were ever called, in sessions that were judged."""
        with self._engine.reading() as tx:
            return {unescape(tool) for (tool,) in tx.run("SELECT DISTINCT tool FROM calls")}

    def forget(self) -> None:
        """Throw everything away; it is found anew when it is asked for."""
        self._write(forget)


def forget(tx: Transaction) -> None:
    """Throw everything away that is derived from the sessions."""
    for table in _TABLES:
        tx.run(f"DELETE FROM {table}")
    candidate_counts.forget(tx)


def _places(tx: Transaction, shape: int, wanted: Set[int], most: int) -> list[Row]:
    """The newest sessions that had a candidate, of those that count."""
    found: list[Row] = []
    before, count = 2**62, most  # mostly all of them count
    while len(found) < most:
        rows = tx.run(
            "SELECT session, family, place, support, tainted FROM candidates"
            f" WHERE shape = ? AND session < ? ORDER BY session DESC LIMIT {count}",
            (shape, before),
        )
        found += [row for row in rows if row[0] in wanted]
        if len(rows) < count:
            break
        before, count = rows[-1][0], 8 * most
    return found[:most]


def _named(tx: Transaction, nums: Iterable[int]) -> dict[int, tuple[str, float]]:
    """The ids of sessions, and when they were active last."""
    rows = tx.run(f"SELECT num, id, last_active FROM sessions WHERE {among(nums, 'num')}")
    return {num: (unescape(id), time) for num, id, time in rows}


def _deals(tx: Transaction, nums: Sequence[int]) -> Iterator[Deal]:
    some = among(nums)
    # As of what was judged: a session that has grown since then is due again.
    sessions = tx.run(
        "SELECT s.num, s.cwd, s.parent, coalesce(j.changes, -1) FROM sessions s"
        f" LEFT JOIN judged j ON j.session = s.num WHERE {among(nums, 's.num')} ORDER BY s.num"
    )
    sql = f"SELECT {_CALLS} FROM calls WHERE {some} ORDER BY session, position, number"
    verdicts = {num: list(rows) for num, rows in groupby(tx.run(sql), key=_first)}
    spoken = tx.stream(
        "SELECT session, position, CASE WHEN calls > 0 THEN body END FROM messages"
        f" WHERE {some} AND rewind IS NULL AND (calls > 0 OR role = 'user')"
        " ORDER BY session, position"
    )
    said = groupby(spoken, key=_first)
    speaker, rows = next(said, _NOBODY)
    for num, cwd, parent, changes in sessions:
        users: list[int] = []
        made: dict[int, str] = {}
        for _, position, body in rows if num == speaker else ():
            if body is None:
                users.append(position)
            else:
                made[position] = body
        calls = [
            # The columns of a verdict are the fields of a call, in their order.
            (_new(Call, verdict), made[verdict[1]])
            for verdict in verdicts.get(num, ())
            if verdict[1] in made
        ]
        if num == speaker:
            speaker, rows = next(said, _NOBODY)
        yield _new(Deal, (num, cwd and unescape(cwd), parent, changes, calls, users))


class _Body(msgspec.Struct, gc=False):
    """What is looked for in the body of a message; the rest is passed over."""

    tool_calls: list[tuple[str, str, Any]] = []


_decode = msgspec.json.Decoder(_Body).decode
_first = itemgetter(0)
_newest = itemgetter(10, 0)
_is_escaped = itemgetter(9)
_NOBODY = (None, ())
_new = cast(Any, tuple).__new__  # so many are made that the constructors would count


def call_of(verdict: Call, body: str) -> ToolCall | None:
    """The call that a verdict is about, out of the message that made it."""
    calls = _made(body)
    return _new(ToolCall, calls[verdict.number]) if verdict.number < len(calls) else None


@lru_cache(maxsize=4)
def _made(body: str) -> list[tuple[str, str, Any]]:
    """The calls of a message, of which several may be asked for one after the other."""
    try:
        return _decode(body if ESCAPE not in body else unescape(body)).tool_calls
    except (
        msgspec.MsgspecError,
        UnicodeEncodeError,
    ):  # the lenient way reads what UTF-8 cannot say
        return decode_json(body)["tool_calls"]


def _keep(tx: Transaction, rules: str, findings: Sequence[Findings]) -> None:
    candidate_counts.hold(tx)
    there = {
        num for (num,) in tx.run(f"SELECT num FROM sessions WHERE {among(_nums(findings), 'num')}")
    }
    kept = [one for one in findings if one.num in there]  # others were deleted meanwhile
    _drop(tx, _nums(kept))
    families = {one.num: _family(tx, one.num, one.parent) for one in kept}
    looked = [(one.num, rules, one.changes, families[one.num], *one.facts) for one in kept]
    candidates: list[Row] = []
    for one in kept:
        num, family = one.num, families[one.num]
        if family == num:
            candidates += one.candidates
        else:
            candidates += [(num, shape, family, *rest) for _, shape, _, *rest in one.candidates]
    attempts = [
        (one.num, escape(work), calls, failed)
        for one in kept
        for work, calls, failed in one.attempts
    ]
    tx.insert_last("mined", _MINED, looked)
    tx.insert_last("mined_calls", _MINED_CALLS, [(one.num, one.calls) for one in kept])
    tx.insert_last("candidates", _CANDIDATES, candidates)
    tx.insert_last("attempts", _ATTEMPTS, attempts)
    for sql in candidate_counts.changes(tx, families, 1):
        tx.run_last(sql)


def _drop(tx: Transaction, nums: Sequence[int]) -> None:
    """Take out what is known of these sessions."""
    old = candidate_counts.families_of(tx, nums)
    if old:
        for sql in candidate_counts.changes(tx, old, -1):
            tx.run(sql)
        tx.run(f"DELETE FROM mined WHERE {among(old)}")  # the rest goes with it


def _nums(findings: Sequence[Findings]) -> list[int]:
    return [one.num for one in findings]


def _family(tx: Transaction, num: int, parent: str | None) -> int:
    """The first session of the line that this one goes on."""
    for _ in range(_LONGEST_LINE):
        rows = parent and tx.run("SELECT num, parent FROM sessions WHERE id = ?", (parent,))
        if not rows:
            break
        num, parent = rows[0]
    return num
