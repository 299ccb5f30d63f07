"""What users asked for in a session: its first and last request, kept in its row for lists.

A row's `preview` is the first request; until there is one, a minor message stands in for it, such as
a command of the interface. `last_request` stays NULL until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rekindle.errors import StoreDamaged
from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.rows import MESSAGE_COLUMNS, row_to_message
from rekindle.store.core.text_encoding import replace_unstorable
from rekindle.types import Message

# How many of a session's first and last user messages are read to find its requests again.
_MESSAGES_READ = 16
_SESSIONS_PER_BATCH = 500
_RANKED = (
    f"SELECT m.session AS num, {MESSAGE_COLUMNS},"
    " row_number() OVER (PARTITION BY m.session ORDER BY m.position) AS rank_first,"
    " row_number() OVER (PARTITION BY m.session ORDER BY m.position DESC) AS rank_last"
    " FROM messages m WHERE m.role = 'user' AND m.rewind IS NULL"
)
_SELECT_USER_MESSAGES = (
    f"SELECT * FROM ({_RANKED} AND m.session >= ? AND m.session <= ?) r"
    f" WHERE rank_first <= {_MESSAGES_READ} OR rank_last <= {_MESSAGES_READ} ORDER BY num, position"
)
_SET_REQUESTS = (
    "UPDATE sessions SET changes = changes + 1, preview = ?, last_request = ?"
    " WHERE num = ? AND (preview IS DISTINCT FROM ? OR last_request IS DISTINCT FROM ?)"
)


class Requests(NamedTuple):
    """The first and last request in some messages, and what stands in for the first."""

    first: str | None = None
    minor: str | None = None
    last: str | None = None

    @property
    def preview(self) -> str | None:
        """What a new session with these messages is known by."""
        return self.first or self.minor


NO_REQUESTS = Requests()


def find_requests(messages: Iterable[Message]) -> Requests:
    """Find the requests in messages of one session, in order."""
    asked = [message for message in messages if message.role == "user" and not message.rewound]
    if not asked:
        return NO_REQUESTS
    minor = None
    for index, message in enumerate(asked):
        first, is_minor = _find_request(message)
        if first and not is_minor:
            # What lies between the first and the last request need not be read.
            others = map(_find_request, reversed(asked[index + 1 :]))
            last = next((line for line, is_minor in others if line and not is_minor), first)
            return Requests(first, minor, last)
        minor = minor or first
    return Requests(minor=minor)


class SessionDelta(NamedTuple):
    """What messages add to the row of their session."""

    messages: int
    calls: int
    latest: float
    requests: Requests


def compute_delta(messages: Sequence[Message], now: float) -> SessionDelta:
    """Compute what these messages add; messages without a time count as sent now."""
    times = [now if message.timestamp is None else message.timestamp for message in messages]
    calls = sum([len(message.tool_calls) for message in messages])
    return SessionDelta(len(messages), calls, max(times), find_requests(messages))


def _find_request(message: Message) -> tuple[str | None, bool]:
    """Return what a message asks for, if anything, and whether it is minor."""
    from rekindle.judging.outcomes.requests import extract_request  # only writers need it

    request = extract_request(message.text)
    if request is None:
        return None, False
    return replace_unstorable(request.text), request.is_minor


def refresh_requests(tx: Transaction, num: int) -> None:
    """Find the requests of a session again, after messages were removed or restored."""
    _refresh_range(tx, num, num, [num])


def refresh_all_requests(tx: Transaction) -> None:
    """Find the requests of all sessions again."""
    nums = [num for (num,) in tx.run("SELECT num FROM sessions ORDER BY num")]
    for start in range(0, len(nums), _SESSIONS_PER_BATCH):
        batch = nums[start : start + _SESSIONS_PER_BATCH]
        _refresh_range(tx, batch[0], batch[-1], batch)


def _refresh_range(tx: Transaction, first: int, last: int, nums: Sequence[int]) -> None:
    found: dict[int, list[Message]] = {num: [] for num in nums}
    for num, *columns, _, _ in tx.run(_SELECT_USER_MESSAGES, (first, last)):
        if num in found and (message := _read_message(tuple(columns))):
            found[num].append(message)
    rows: list[Row] = []
    for num, messages in found.items():
        requests = find_requests(messages)
        values = (requests.preview, requests.last)
        rows.append((*values, num, *values))
    tx.run_many(_SET_REQUESTS, rows)


def _read_message(row: Row) -> Message | None:
    try:
        return row_to_message(row)
    except (StoreDamaged, ValueError, TypeError):
        return None  # `verify` reports it
