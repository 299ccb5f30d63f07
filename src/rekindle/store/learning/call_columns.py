"""Read the verdicts of all calls in narrow columns: an index of them is built from millions of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rekindle.analytics.reliability.call_index import CallRow, RepeatedRow
from rekindle.store.core.engine import StorePart
from rekindle.store.core.filter import PROJECT_KEY, build_in_condition
from rekindle.store.core.text_encoding import unescape_text

REPEATED_PARTS = 16  # a power of two: compared part by part, calls take little memory
# Sessions that insights count: neither deleted nor archived.
_COUNTED = "s.pruned IS NULL AND s.archived IS NULL"
_SELECT_SESSIONS = (
    f"SELECT s.num, s.source, {PROJECT_KEY}, s.model, s.started, s.last_active, p.num, s.forked_at"
    f" FROM sessions s LEFT JOIN sessions p ON p.id = s.parent WHERE {_COUNTED}"
    " ORDER BY s.started, s.num"
)
_SELECT_CALLS = (
    "SELECT session, position, number, tool, outcome, failed FROM calls"
    " WHERE tool_kind <> 'bookkeeping' ORDER BY session, position, number"
)
_SELECT_REPEATED = (
    "SELECT session, position, number, id, digest, first FROM (SELECT c.session, c.position,"
    " c.number, c.id, c.digest, first_value(c.session) OVER (PARTITION BY c.id, c.digest"
    f" ORDER BY s.started, s.num) AS first FROM calls c JOIN sessions s ON s.num = c.session"
    f" WHERE c.tool_kind <> 'bookkeeping' AND (c.digest & {REPEATED_PARTS - 1}) = ? AND {_COUNTED}"
    ") AS every WHERE session <> first"
)
_BATCH_SIZE = 5_000  # sessions whose ids are read with one statement


class SessionColumns(NamedTuple):
    """What groups the calls of a session."""

    num: int
    source: str
    project: str | None  # the key it is stored under
    model: str | None
    started: float
    last_active: float
    parent: int | None
    is_fork: bool


class CallReader(StorePart):
    """The verdicts of a store in columns. Use `store.call_columns`."""

    def iter_sessions(self) -> Iterator[SessionColumns]:
        """Yield the sessions that count, in order of their start."""
        shared: dict[str, str] = {}
        with self._engine.begin_read() as tx:
            for num, source, project, model, started, last, parent, forked in tx.stream(
                _SELECT_SESSIONS
            ):
                yield SessionColumns(
                    num=num,
                    source=_get_shared(source, shared) or "",
                    project=_get_shared(project, shared),
                    model=_get_shared(model, shared),
                    started=started,
                    last_active=last,
                    parent=parent,
                    is_fork=forked is not None,
                )

    def iter_calls(self) -> Iterator[CallRow]:
        """Yield all calls in the order of sessions and positions, without bookkeeping."""
        shared: dict[str, str] = {}
        with self._engine.begin_read() as tx:
            for session, position, number, tool, outcome, failed in tx.stream(_SELECT_CALLS):
                name = _get_shared(tool, shared) or ""
                yield CallRow(session, position, number, name, outcome, failed)

    def iter_repeated(self, part: int) -> Iterator[RepeatedRow]:
        """Yield the calls that an earlier session has too, of one of the `REPEATED_PARTS`."""
        with self._engine.begin_read() as tx:
            rows = tx.stream(_SELECT_REPEATED, (part,))
            for session, position, number, id, digest, first in rows:
                yield RepeatedRow(session, position, number, unescape_text(id), digest, first)

    def load_ids(self, nums: Sequence[int]) -> dict[int, str]:
        """Return the ids of sessions by their numbers."""
        found: dict[int, str] = {}
        for start in range(0, len(nums), _BATCH_SIZE):
            among = build_in_condition(nums[start : start + _BATCH_SIZE], "s.num")
            rows = self._select(f"SELECT s.num, s.id FROM sessions s WHERE {among}")
            found |= {num: unescape_text(id) for num, id in rows}
        return found


def _get_shared(text: str | None, shared: dict[str, str]) -> str | None:
    """Return one object for equal texts."""
    if text is None:
        return None
    found = shared.get(text)
    if found is None:
        found = shared[text] = unescape_text(text)
    return found
