"""Mining results: candidates for patterns found in sessions, stored next to the messages.

Mining itself happens elsewhere. A session is due when it has changed since it was mined, or was mined
by other rules. The stored data is small: numbers for each candidate and, once per session, the calls
that its candidates consist of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, cast

import msgspec

from rekindle.store.core.engine import Row, StorePart, Transaction
from rekindle.store.core.filter import Filter, build_in_condition
from rekindle.store.core.rows import decode_json
from rekindle.store.core.tables import (
    CALL_TYPE_COUNTS,
    CALLS,
    CANDIDATES,
    MINING_CALLS,
    MINING_RESULTS,
)
from rekindle.store.core.text_encoding import ESCAPE, escape_text, unescape_text
from rekindle.types import JudgedCall, ToolCall

from . import candidate_counts
from .candidate_counts import CandidateCount

BATCH_SIZE = 200  # sessions whose calls are read with one statement
_MAX_LINEAGE = 100  # sessions in a chain of continuations
_TABLES = (CANDIDATES, CALL_TYPE_COUNTS, MINING_CALLS, MINING_RESULTS)


class MiningCandidateSession(NamedTuple):
    """A session that can be mined, with its stored statistics if they are up to date."""

    num: int
    id: str
    source: str
    messages: int
    end_reason: str | None
    # The statistics; without a task the session has to be mined.
    task: str | None
    judged: int
    failed: int
    gain: float | None
    is_escaped: bool
    last_active: float

    @property
    def stats(self) -> SessionStats | None:
        """The statistics of the session, or None if it has to be mined."""
        return (
            None
            if self.task is None
            else SessionStats(self.task, self.judged, self.failed, self.gain)
        )


class SessionStats(NamedTuple):
    """Statistics of a session."""

    task: str
    judged: int
    failed: int
    gain: float | None


class SessionCallRows(NamedTuple):
    """The data of a session to mine: its judged calls and the positions of user messages.

    Next to each verdict is the body of the message that made the call, for `find_tool_call`.
    """

    num: int
    cwd: str | None
    parent: str | None
    changes: int
    calls: list[tuple[JudgedCall, str]]
    user_positions: list[int]


class MiningResult(NamedTuple):
    """The result of mining a session.

    Candidate rows name the session itself as their family; the real one is set when they are saved.
    """

    num: int
    parent: str | None
    changes: int
    stats: SessionStats
    calls: bytes
    candidates: Sequence[Row]
    call_type_counts: Sequence[tuple[str, int, int]]  # call type, calls, failed calls


class CandidateOccurrence(NamedTuple):
    """An occurrence of a candidate in one session."""

    num: int
    session: str
    time: float
    family: int
    location: str
    support: int
    tainted: bool


class MiningResults(StorePart):
    """The stored results of mining. Use `store.mining_results`."""

    def list_candidate_sessions(
        self, rules: str, where: Filter, *, session: str | None = None
    ) -> list[MiningCandidateSession]:
        """Return the matching sessions, or one, newest first, with their stored statistics."""
        condition, params = where.to_sql(self._clock())
        if session is not None:
            condition, params = "s.id = ? AND s.pruned IS NULL", [escape_text(session)]
        rows = self._select(
            "SELECT s.num, s.id, s.source, s.message_count, s.end_reason, m.task, m.judged,"
            " m.failed, m.gain, s.is_escaped, s.last_active"
            " FROM sessions s LEFT JOIN mining_results m"
            " ON m.session = s.num AND m.rules = ? AND m.changes = s.changes"
            f" WHERE {condition}",
            (rules, *params),
        )
        # Faster than ORDER BY: rows are read in storage order.
        rows.sort(key=_get_recency, reverse=True)
        found: list[MiningCandidateSession] = [_new(MiningCandidateSession, row) for row in rows]
        if any(map(_is_escaped, rows)):
            found = [
                one._replace(id=unescape_text(one.id), source=unescape_text(one.source))
                for one in found
            ]
        return found

    def iter_session_calls(self, nums: Sequence[int]) -> Iterator[SessionCallRows]:
        """Yield those of the sessions that exist, with their judged calls, ordered by number."""
        with self._engine.begin_read() as tx:
            for start in range(0, len(nums), BATCH_SIZE):
                yield from _iter_session_calls(tx, sorted(nums[start : start + BATCH_SIZE]))

    def load_ancestors(self, nums: Sequence[int]) -> dict[int, list[int]]:
        """Return the ancestors of sessions, nearest first; a fork has its messages and needs none."""
        found: dict[int, list[int]] = {}
        with self._engine.begin_read() as tx:
            ends = {num: num for num in nums}
            for _ in range(_MAX_LINEAGE):
                parents = dict(
                    tx.run(
                        "SELECT s.num, p.num FROM sessions s JOIN sessions p ON p.id = s.parent WHERE"
                        f" {build_in_condition(set(ends.values()), 's.num')} AND s.forked_at IS NULL"
                        " AND p.pruned IS NULL"
                    )
                )
                ends = {num: parents[end] for num, end in ends.items() if end in parents}
                if not ends:
                    break
                for num, end in ends.items():
                    found.setdefault(num, []).append(end)
        return found

    def save(
        self,
        rules: str,
        results: Sequence[MiningResult],
        *,
        during_commit: Callable[[], None] | None = None,
    ) -> None:
        """Replace the stored results of these sessions.

        `during_commit` runs while they are written, if the engine can; it must not write to the store.
        """

        def write_results(tx: Transaction) -> None:
            _save_results(tx, rules, results)
            if during_commit:
                tx.run_during_commit(during_commit)

        self._write(write_results)

    def count_candidates(
        self, nums: Set[int], min_families: int, limits: Mapping[str, int]
    ) -> tuple[list[CandidateCount], dict[str, tuple[int, int]]]:
        """Return candidates that enough of these sessions have, limited per kind by `limits`.

        Also return how often calls of each tool kind were made and failed.
        """
        with self._engine.begin_read() as tx:
            if candidate_counts.are_counts_current(tx):
                return candidate_counts.count_candidates(tx, nums, min_families, limits)
        self._write(candidate_counts.rebuild_counts)
        with self._engine.begin_read() as tx:
            return candidate_counts.count_candidates(tx, nums, min_families, limits)

    def find_occurrences(
        self, shapes: Sequence[int], nums: Set[int], limit: int
    ) -> dict[int, list[CandidateOccurrence]]:
        """Return the newest occurrences of each candidate."""
        with self._engine.begin_read() as tx:
            found = {shape: _select_occurrences(tx, shape, nums, limit) for shape in shapes}
            sessions = _select_session_ids(tx, {row[0] for rows in found.values() for row in rows})
        return {
            shape: [
                CandidateOccurrence(num, *sessions[num], family, location, support, bool(tainted))
                for num, family, location, support, tainted in rows
            ]
            for shape, rows in found.items()
        }

    def load_calls(self, nums: Sequence[int]) -> dict[int, bytes]:
        """Return the encoded calls that the candidates of these sessions consist of."""
        found: dict[int, bytes] = {}
        with self._engine.begin_read() as tx:
            for start in range(0, len(nums), BATCH_SIZE):
                some = build_in_condition(nums[start : start + BATCH_SIZE])
                found |= {
                    num: bytes(calls)
                    for num, calls in tx.run(
                        f"SELECT session, calls FROM mining_calls WHERE {some}"
                    )
                }
        return found

    def list_tools(self) -> set[str]:
        """Return the names of all tools called in judged sessions."""
        return {unescape_text(tool) for (tool,) in self._select("SELECT DISTINCT tool FROM calls")}

    def clear(self) -> None:
        """Delete all results; they are mined again when needed."""
        self._write(delete_all_results)


def delete_all_results(tx: Transaction) -> None:
    """Delete everything that mining derived from the sessions."""
    for table in _TABLES:
        tx.run(f"DELETE FROM {table.name}")
    candidate_counts.reset_counts(tx)


def _select_occurrences(tx: Transaction, shape: int, wanted: Set[int], limit: int) -> list[Row]:
    """Return rows of the newest sessions in `wanted` that have a candidate."""
    found: list[Row] = []
    before, count = 2**62, limit  # usually all rows are wanted
    while len(found) < limit:
        rows = tx.run(
            "SELECT session, family, location, support, tainted FROM candidates"
            f" WHERE shape = ? AND session < ? ORDER BY session DESC LIMIT {count}",
            (shape, before),
        )
        found += [row for row in rows if row[0] in wanted]
        if len(rows) < count:
            break
        before, count = rows[-1][0], 8 * limit
    return found[:limit]


def _select_session_ids(tx: Transaction, nums: Iterable[int]) -> dict[int, tuple[str, float]]:
    """Return the id and the last activity of sessions, by number."""
    rows = tx.run(
        f"SELECT num, id, last_active FROM sessions WHERE {build_in_condition(nums, 'num')}"
    )
    return {num: (unescape_text(id), time) for num, id, time in rows}


def _iter_session_calls(tx: Transaction, nums: Sequence[int]) -> Iterator[SessionCallRows]:
    condition = build_in_condition(nums)
    # As of the last judging: a session that has grown since then is stale again.
    sessions = tx.run(
        "SELECT s.num, s.cwd, s.parent, coalesce(j.changes, -1) FROM sessions s"
        f" LEFT JOIN judged_sessions j ON j.session = s.num"
        f" WHERE {build_in_condition(nums, 's.num')} ORDER BY s.num"
    )
    sql = f"SELECT {CALLS.list_names()} FROM calls WHERE {condition} ORDER BY session, position, number"
    verdicts = {num: list(rows) for num, rows in groupby(tx.run(sql), key=_get_session_num)}
    message_rows = tx.stream(
        "SELECT session, position, CASE WHEN calls > 0 THEN body END FROM messages"
        f" WHERE {condition} AND rewind IS NULL AND (calls > 0 OR role = 'user')"
        " ORDER BY session, position"
    )
    message_groups = groupby(message_rows, key=_get_session_num)
    group_num, rows = next(message_groups, _NO_GROUP)
    for num, cwd, parent, changes in sessions:
        user_positions: list[int] = []
        bodies: dict[int, str] = {}
        for _, position, body in rows if num == group_num else ():
            if body is None:
                user_positions.append(position)
            else:
                bodies[position] = body
        calls = [
            # The columns of a verdict are the fields of a call, in the same order.
            (_new(JudgedCall, verdict), bodies[verdict[1]])
            for verdict in verdicts.get(num, ())
            if verdict[1] in bodies
        ]
        if num == group_num:
            group_num, rows = next(message_groups, _NO_GROUP)
        yield _new(
            SessionCallRows,
            (num, cwd and unescape_text(cwd), parent, changes, calls, user_positions),
        )


class _ToolCallBody(msgspec.Struct, gc=False):
    """The part of a message's body that is decoded; the rest is skipped."""

    tool_calls: list[tuple[str, str, Any]] = []


_decode = msgspec.json.Decoder(_ToolCallBody).decode
_get_session_num = itemgetter(0)
_get_recency = itemgetter(10, 0)
_is_escaped = itemgetter(9)
_NO_GROUP = (None, ())
_new = cast(Any, tuple).__new__  # faster than the constructors, which matters for this many values


def find_tool_call(verdict: JudgedCall, body: str) -> ToolCall | None:
    """Return the tool call that a verdict is about, from the body of its message."""
    calls = _decode_tool_calls(body)
    return _new(ToolCall, calls[verdict.number]) if verdict.number < len(calls) else None


@lru_cache(maxsize=4)
def _decode_tool_calls(body: str) -> list[tuple[str, str, Any]]:
    """Decode the tool calls of a message; cached, because several may be requested in a row."""
    try:
        return _decode(body if ESCAPE not in body else unescape_text(body)).tool_calls
    except (
        msgspec.MsgspecError,
        UnicodeEncodeError,
    ):  # the lenient decoder accepts lone surrogates
        return decode_json(body)["tool_calls"]


def _save_results(tx: Transaction, rules: str, results: Sequence[MiningResult]) -> None:
    candidate_counts.lock_counts(tx)
    existing = {
        num
        for (num,) in tx.run(
            f"SELECT num FROM sessions WHERE {build_in_condition(_list_nums(results), 'num')}"
        )
    }
    kept = [one for one in results if one.num in existing]  # others were deleted in the meantime
    _delete_sessions(tx, _list_nums(kept))
    families = {one.num: _find_family(tx, one.num, one.parent) for one in kept}
    result_rows = [(one.num, rules, one.changes, families[one.num], *one.stats) for one in kept]
    candidates: list[Row] = []
    for one in kept:
        num, family = one.num, families[one.num]
        if family == num:
            candidates += one.candidates
        else:
            candidates += [(num, shape, family, *rest) for _, shape, _, *rest in one.candidates]
    call_type_counts = [
        (one.num, escape_text(call_type), calls, failed)
        for one in kept
        for call_type, calls, failed in one.call_type_counts
    ]
    calls = [(one.num, one.calls) for one in kept]
    for table, rows in zip(
        _TABLES, (candidates, call_type_counts, calls, result_rows), strict=True
    ):
        tx.defer_insert(table.name, table.list_names(), rows)
    for sql in candidate_counts.build_count_updates(tx, families, 1):
        tx.defer_run(sql)


def _delete_sessions(tx: Transaction, nums: Sequence[int]) -> None:
    """Delete the stored results of these sessions."""
    old = candidate_counts.load_families(tx, nums)
    if old:
        for sql in candidate_counts.build_count_updates(tx, old, -1):
            tx.run(sql)
        # A trigger deletes the rows of the other tables.
        tx.run(f"DELETE FROM mining_results WHERE {build_in_condition(old)}")


def _list_nums(results: Sequence[MiningResult]) -> list[int]:
    return [one.num for one in results]


def _find_family(tx: Transaction, num: int, parent: str | None) -> int:
    """Return the number of the first ancestor of a session."""
    for _ in range(_MAX_LINEAGE):
        rows = parent and tx.run("SELECT num, parent FROM sessions WHERE id = ?", (parent,))
        if not rows:
            break
        num, parent = rows[0]
    return num
