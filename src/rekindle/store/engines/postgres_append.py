"""Appends of several writers as one statement: their sessions' rows, the messages and their words.

The statement also records its transaction. Where nothing has to be set first, it is a transaction of its
own, so that a group commit is one round trip to the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, cast

from rekindle.store.core.engine import Operation, Row, Transaction
from rekindle.store.core.rows import MESSAGE_VALUES, get_search_text, message_to_row
from rekindle.store.core.tables import MESSAGES
from rekindle.store.sessions.requests import SessionDelta, compute_delta, find_requests
from rekindle.store.sessions.sessions import (
    AppendOperation,
    AppendResult,
    collect_tool_names,
)
from rekindle.types import Message

from .words.project_numbers import build_project_number
from .words.vectors import build_vectors

MAX_MESSAGES = 64  # in one statement
# The numbers of rows that statements are made for, so that the server has few of them to prepare.
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MAX_MESSAGES)
_NO_SESSION = 0  # fills up a statement: no session has this number

# One UPDATE for each session: joined with a list, a plan that was made while the table was small could
# read all of it.
_EXTEND_SESSION = (
    """UPDATE sessions SET changes = changes + 1,
    next_position = next_position + ?::bigint, message_count = message_count + ?::bigint,
    tool_call_count = tool_call_count + ?::bigint,
    last_active = CASE WHEN last_active < ?::float8 THEN ?::float8 ELSE last_active END,
    preview = CASE WHEN last_request IS NULL THEN coalesce(?::text, preview, ?::text) ELSE preview END,
    last_request = coalesce(?::text, last_request)
    WHERE num = ?::bigint AND pruned IS NULL RETURNING num, next_position - ?::bigint AS start,
    """
    + f"{build_project_number()} AS project"
)
# Changes of others since the statement began: what they added is not among the ids that it sees.
_COUNT_OTHERS = "changes - 1 - (SELECT changes FROM sessions WHERE num = ?::bigint) AS others"
_EMPTY_SESSION: Row = (0, 0, 0, 0.0, 0.0, None, None, None, _NO_SESSION, 0)
_COLUMNS = MESSAGE_VALUES.split(", ")  # session, position and what follows them
_TYPES = {column.name: column.kind.postgres for column in MESSAGES.columns}
_MESSAGE_TYPES = [*(_TYPES[name] for name in _COLUMNS), "text"]  # and its words
_EMPTY_MESSAGE: Row = (_NO_SESSION, *[None] * (len(_MESSAGE_TYPES) - 1))
_SEPARATOR = "\n"  # between the parts of a long message's words; no word has it
_NO_WORDS = " "  # an empty text would have no parts at all
# A session that is missing or a version that we do not know makes this a division by zero. So does a
# record that is not older: a statement may be read late, after its writer has sent it again.
_RECORD_COMMIT = """INSERT INTO writers (name, number, time)
    SELECT ?::text, ?::bigint / CASE WHEN (SELECT count(*) FROM extended{only}) = ?::bigint
        AND (SELECT version FROM rekindle_version) = ?::bigint{and_new} THEN 1 ELSE 0 END, ?::float8
    ON CONFLICT (name) DO UPDATE SET time = excluded.time,
        number = excluded.number / CASE WHEN writers.number < excluded.number THEN 1 ELSE 0 END"""
_ONLY_UNCHANGED = " WHERE others = 0"
# One look at the index for each message: a join could read the whole table.
_AND_NEW_IDS = """ AND NOT EXISTS (SELECT 1 FROM placed p WHERE (SELECT m.position FROM messages m
        WHERE m.session = p.session AND m.platform_id = p.platform_id LIMIT 1) IS NOT NULL)"""
# Rows of the transaction that the writer recorded last.
_SELECT_STARTS = """SELECT session, min(position) FROM messages
    WHERE session = ANY(?::bigint[]) AND xmin = (SELECT xmin FROM writers WHERE name = ?)
    GROUP BY session"""


class CommitRecord(NamedTuple):
    """What is written about a transaction, and the version of the tables that it expects."""

    writer: str
    number: int
    time: float
    version: int


class StatementShape(NamedTuple):
    """The numbers of sessions and messages of a statement, and whether messages have ids."""

    sessions: int
    messages: int
    has_ids: bool = False


class AppendBatch:
    """Appends that are written with one statement."""

    def __init__(self, operations: Sequence[AppendOperation]) -> None:
        self._places: list[tuple[int, int, int]] = []  # of each append: session, place, messages
        self._rows: list[Row] = []
        by_session: dict[int, list[AppendOperation]] = {}
        counts: dict[int, int] = {}
        for operation in operations:
            num = operation.num
            assert num is not None
            place = counts.get(num, 0)
            self._places.append((num, place, len(operation.messages)))
            self._rows += _build_rows(operation, num, place)
            counts[num] = place + len(operation.messages)
            by_session.setdefault(num, []).append(operation)
        # In one order for all writers, so that no two wait for each other.
        self._deltas = {num: _sum_deltas(by_session[num]) for num in sorted(by_session)}
        self._has_ids = any(_list_ids(operation) for operation in operations)

    def build_params(self, record: CommitRecord) -> tuple[StatementShape, list[Any]]:
        """Return the shape of the statement and its parameters."""
        sessions = [*_iter_session_rows(self._deltas)]
        empty = _EMPTY_SESSION
        if self._has_ids:
            sessions = [(*row, num) for row, num in zip(sessions, self._deltas, strict=True)]
            empty = (*_EMPTY_SESSION, _NO_SESSION)
        shape = StatementShape(
            _choose_size(len(sessions)), _choose_size(len(self._rows)), self._has_ids
        )
        params = [
            *chain.from_iterable(sessions),
            *empty * (shape.sessions - len(sessions)),
            *chain.from_iterable(self._rows),
            *_EMPTY_MESSAGE * (shape.messages - len(self._rows)),
            *(record.writer, record.number, len(sessions), record.version, record.time),
        ]
        return shape, params

    def find_starts(self, tx: Transaction, writer: str) -> Sequence[Row]:
        """Find where the messages are, after the answer to the statement was lost."""
        return tx.run(_SELECT_STARTS, ([*self._deltas], writer))

    def read_results(self, starts: Sequence[Row]) -> list[AppendResult]:
        """Return the result of each append; `starts` has the first new position of each session."""
        first = dict(starts)
        results: list[AppendResult] = []
        for num, place, count in self._places:
            start = first.get(num, 0) + place  # 0: deleted again while we looked for it
            results.append(AppendResult(num, [*range(start, start + count)]))
        return results


class AppendPlan(NamedTuple):
    """Operations that run one by one, then appends that one statement writes."""

    first: Sequence[Operation]
    batch: AppendBatch | None
    order: Sequence[int] | None = None  # which of the results each operation has, if not its own

    def sort_results(self, results: list[Any]) -> list[Any]:
        """Return the results in the order in which the operations came."""
        return results if self.order is None else [results[at] for at in self.order]


def plan_appends(operations: Sequence[Operation]) -> AppendPlan:
    """Take as many of the last operations as possible that one statement can write.

    An append that it cannot write runs before it: it changes nothing that those of other sessions need.
    """
    joined: list[int] = []
    apart: list[int] = []
    apart_sessions: set[str] = set()
    ids: set[tuple[int | None, str]] = set()
    count, at = 0, len(operations)
    while at and isinstance(operation := operations[at - 1], AppendOperation):
        at -= 1
        new_ids = [(operation.num, id) for id in _list_ids(operation)]
        is_new = len({*new_ids}) == len(new_ids) and ids.isdisjoint(new_ids)
        fits = count + len(operation.messages) <= MAX_MESSAGES
        if fits and is_new and operation.session_id not in apart_sessions and _can_join(operation):
            joined.append(at)
            ids.update(new_ids)
            count += len(operation.messages)
        else:
            apart.append(at)
            apart_sessions.add(operation.session_id)
    if not joined:
        return AppendPlan(operations, None)
    batch = AppendBatch([cast(AppendOperation, operations[n]) for n in reversed(joined)])
    numbers = [*range(at), *reversed(apart), *reversed(joined)]
    first = [operations[n] for n in numbers[: len(numbers) - len(joined)]]
    order = sorted(range(len(numbers)), key=numbers.__getitem__) if apart else None
    return AppendPlan(first, batch, order)


def _can_join(operation: AppendOperation) -> bool:
    """Return whether an append needs to read nothing before it writes."""
    if operation.num is None:
        return False
    called: set[str] = set()
    for message in operation.messages:
        called.update(call.id for call in message.tool_calls)
        if message.role == "tool" and not message.name and message.tool_call_id:
            id = message.tool_call_id
            if id not in called and (operation.num, id) not in operation.pending_calls:
                return False
    return True


def _list_ids(operation: AppendOperation) -> list[str]:
    ids = [message.platform_message_id for message in operation.messages]
    return [id for id in ids if id is not None]


def _build_rows(operation: AppendOperation, num: int, place: int) -> Iterator[Row]:
    messages, now = operation.messages, operation.now
    names = collect_tool_names(None, num, messages, operation.pending_calls)
    for index, message in enumerate(messages):
        time = now if message.timestamp is None else message.timestamp
        row = message_to_row(message, num, place + index, time, names[index])
        yield (*row, _join_words(message))


def _join_words(message: Message) -> str:
    return _SEPARATOR.join([part or _NO_WORDS for part in build_vectors(get_search_text(message))])


def _sum_deltas(operations: Sequence[AppendOperation]) -> SessionDelta:
    deltas = [compute_delta(operation.messages, operation.now) for operation in operations]
    if len(deltas) == 1:
        return deltas[0]
    counts, calls, latest, _ = zip(*deltas, strict=True)
    messages = chain.from_iterable(operation.messages for operation in operations)
    return SessionDelta(sum(counts), sum(calls), max(latest), find_requests(messages))


def _iter_session_rows(deltas: Mapping[int, SessionDelta]) -> Iterator[Row]:
    for num, (count, calls, latest, requests) in deltas.items():
        yield (count, count, calls, latest, latest, *requests, num, count)


def _choose_size(count: int) -> int:
    return next(size for size in _SIZES if size >= count)


@lru_cache(maxsize=128)
def build_statement(shape: StatementShape) -> str:
    """Build the statement for these numbers of sessions and messages.

    It returns the first new position of each session, and writes all or nothing: if one of the sessions
    is missing or the tables have another version, it fails with a division by zero. So it does if one
    of the messages' ids is stored already, or if another program has changed one of the sessions at
    the same time, since it may have stored the id.
    """
    sessions, messages, has_ids = shape
    extend = f"{_EXTEND_SESSION}, {_COUNT_OTHERS}" if has_ids else _EXTEND_SESSION
    columns = "num, start, project" + (", others" if has_ids else "")
    record = _RECORD_COMMIT.format(
        only=_ONLY_UNCHANGED if has_ids else "", and_new=_AND_NEW_IDS if has_ids else ""
    )
    updates = [f"extended_{n} AS ({extend})" for n in range(sessions)]
    extended = " UNION ALL ".join(f"SELECT {columns} FROM extended_{n}" for n in range(sessions))
    row = f"({', '.join(f'?::{one}' for one in _MESSAGE_TYPES)})"
    rows = ", ".join([row] * messages)
    values = ", ".join(f"v.{name}" for name in _COLUMNS[2:])
    return f"""WITH {", ".join(updates)}, extended AS ({extended}),
    placed AS (SELECT e.num AS session, e.start + v.position AS position, {values}, v.words, e.project
        FROM (VALUES {rows}) AS v ({MESSAGE_VALUES}, words) JOIN extended e ON e.num = v.session),
    added AS (INSERT INTO messages ({MESSAGE_VALUES})
        SELECT {MESSAGE_VALUES} FROM placed ORDER BY session, position
        RETURNING id, session, position),
    indexed AS (INSERT INTO words (id, part, text, project, session, time) SELECT a.id,
        CASE WHEN strpos(p.words, E'\\n') = 0 THEN 0 ELSE w.part END, w.text::tsvector, p.project,
        p.session, p.time
        FROM added a JOIN placed p ON p.session = a.session AND p.position = a.position,
        unnest(string_to_array(p.words, E'\\n')) WITH ORDINALITY AS w (text, part)),
    recorded AS ({record})
    SELECT num, start FROM extended"""


@lru_cache(maxsize=256)
def number_params(sql: str) -> bytes:
    """Convert `%s` to the server's own numbers of parameters."""
    first, *others = sql.replace("%%", "%").split("%s")
    return (first + "".join(f"${n}{part}" for n, part in enumerate(others, 1))).encode()
