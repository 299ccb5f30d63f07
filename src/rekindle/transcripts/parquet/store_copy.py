"""Copy an archive in Parquet into a store, so that all that reads a store can read the archive.

The copy is for reading: it has the sessions of the archive with their messages, projects and usage.
What was learned from them and how they were judged is derived from the messages again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from rekindle.store import Store
from rekindle.store.core.rows import encode_json
from rekindle.store.core.text_encoding import unescape_text
from rekindle.types import Session, to_json_value

from .reader import ParquetArchive
from .tables import TOKEN_COLUMNS, row_to_session

_MESSAGE_FIELDS = (
    "role", "tool_call_id", "name", "reasoning", "finish_reason", "platform_message_id",
)  # fmt: skip
_REWIND = 1  # of the messages that were removed; the archive does not say by which one
Rows = Iterator[dict[str, Any]]


def copy_archive(archive: ParquetArchive, store: Store) -> int:
    """Copy all sessions of an archive into a store; return how many there are."""
    return store.load(_iter_lines(archive)).sessions


def _iter_lines(archive: ParquetArchive) -> Iterator[bytes]:
    """Yield the sessions as the lines that a store loads."""
    messages = _GroupedRows(archive.iter_rows("messages"))
    usage = _GroupedRows(archive.iter_rows("usage"))
    for row in archive.iter_rows("sessions"):
        session = row_to_session(row)
        yield _encode_line("session", to_json_value(session))
        yield from _iter_message_lines(session, messages.take(row["id"]))
        for used in usage.take(row["id"]):
            yield _make_usage_line(used)


class _GroupedRows:
    """The rows of a table by session, in the order of the sessions."""

    def __init__(self, rows: Rows) -> None:
        self._groups = groupby(rows, key=lambda row: row["session"])
        self._next = next(self._groups, None)

    def take(self, session: str) -> Iterable[dict[str, Any]]:
        """Return the rows of the next session; none if it has no rows."""
        if self._next is None or self._next[0] != session:
            return ()
        rows = list(self._next[1])
        self._next = next(self._groups, None)
        return rows


def _iter_message_lines(session: Session, rows: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    removed = 0
    for row in rows:
        if row["rewound"]:
            removed += 1
        yield _encode_line("message", _make_message(session, row))
    if removed:
        rewind = {"id": _REWIND, "kind": "undo", "since": 0, "messages": removed}
        yield _encode_line("rewind", {**rewind, "time": session.last_active})


def _make_message(session: Session, row: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: _unescape_value(row[name]) for name in _MESSAGE_FIELDS}
    parts = row["parts"]
    fields["content"] = _unescape_value(row["content"]) if parts is None else json.loads(parts)
    fields["tool_calls"] = json.loads(row["tool_calls"] or "[]")
    fields["meta"] = None if row["meta"] is None else json.loads(row["meta"])
    fields |= {"timestamp": row["timestamp"], "position": row["position"]}
    if row["rewound"]:
        fields["rewind"] = _REWIND
    if session.parent and session.forked_at is not None and row["position"] < session.forked_at:
        fields["copied_from"] = [session.parent, row["position"]]
    return fields


def _make_usage_line(row: Mapping[str, Any]) -> bytes:
    tokens = {name.removesuffix("_tokens"): row[name] for name in TOKEN_COLUMNS}
    fields = {"model": _unescape_value(row["model"]), "tokens": tokens, "cost": row["cost"]}
    if row["quarter"] is None:
        return _encode_line("usage", fields)
    times = {name: row[name] for name in ("quarter", "cache_write_1h", "above")}
    return _encode_line("usage_entry", fields | times)


def _encode_line(kind: str, fields: Mapping[str, Any]) -> bytes:
    return encode_json({"type": kind, **fields}).encode() + b"\n"


def _unescape_value(value: Any) -> Any:
    return unescape_text(value) if isinstance(value, str) else value
