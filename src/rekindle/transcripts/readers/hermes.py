"""Hermes reader: the database `state.db`, and the files of older versions.

    state.db              SQLite, tables `sessions` and `messages`; every version adds columns
    <session id>.jsonl    one message per line; session details are next to it in
    sessions.json         the index of chats: key -> entry with session id, local times, tokens
    session_<id>.json     one session as a document

The same session may be in several of them, and Hermes rewrites a session's rows when a message is
undone. A message is therefore identified by its content and by how often that content occurred before.
`active` is 0 for a row that was undone, which is skipped, and for one that a summary replaced
(`compacted`), which is kept. After such a summary Hermes writes the newest messages again; these copies
are skipped. A compression that opens a new session is linked by `parent_session_id`.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs do not type blobs.
from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rekindle.json_fields import (
    JsonObject,
    as_count,
    as_number,
    as_object,
    as_objects,
    drop_none,
    get_text,
    parse_timestamp,
)
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.jsonl import decode_json, read_json_lines
from rekindle.transcripts.jsonio.stream import iter_elements
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall, replace_fields

from .session_builder import (
    SessionBuilder,
    add_meta,
    decode_text,
    parse_cost,
    parse_exit_code,
    parse_tokens,
    to_arguments,
)
from .sqlite_file import iter_schema_bytes, open_sqlite_file

if TYPE_CHECKING:
    import apsw

SOURCE = "hermes"
INDEX_NAME = "sessions.json"

_SQLITE_HEADER = b"SQLite format 3\0"
_COLUMN_MARKERS = (b"tool_call_id", b"parent_session_id", b"end_reason")
_HERMES_ID = re.compile(r"\d{8}_\d{6}(?:_[\w-]+)?")
_INDEX_ENTRY = re.compile(rb'^\{\s*"[^"]{1,999}"\s*:\s*\{[^{}]{0,4000}?"session_(?:key|id)"')
_ROLES = ("user", "assistant", "tool", "function")
_KNOWN_ROLES = (*_ROLES, "system", "developer", "session_meta")
_DOCUMENT_FIELDS = {"messages", "message_count", "system_prompt", "tools"}
_PLATFORM = re.compile(r"[A-Za-z][\w.-]{0,63}")
_SUMMARY_PREFIXES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:")
# Prefix of content that is not plain text in the database.
_JSON_PREFIX = "\0json:"
_TOKEN_COLUMNS = (
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
    "reasoning_tokens",
)
_SESSION_COLUMNS = (
    *("id", "session_key", "user_id", "model", "parent_session_id", "title", "cwd", "git_branch"),
    *("started_at", "ended_at", "end_reason", *_TOKEN_COLUMNS),
    *("estimated_cost_usd", "actual_cost_usd"),
)
_MESSAGE_COLUMNS = (
    *("role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp", "finish_reason"),
    *("reasoning", "reasoning_content", "active", "compacted", "_compressed_summary"),
)


def can_read(head: FileHead) -> bool:
    if head.data.startswith(_SQLITE_HEADER):
        return _is_state_database(head)
    if head.is_binary:
        return False
    if is_index(head) or _is_document(head):
        return True
    if head.path is None or not any(line.get("role") in _KNOWN_ROLES for line in head.objects):
        return False
    return bool(_HERMES_ID.fullmatch(head.path.stem)) or head.path.stem in _load_index_entries(
        head.path
    )


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    head = FileHead.read(path)
    if head.data.startswith(_SQLITE_HEADER):
        return _read_database(path)
    if is_index(head):
        return _read_index(path)
    if _is_document(head):
        return _read_document(path)
    return _read_lines(path)


def _is_state_database(head: FileHead) -> bool:
    """Return whether the database has Hermes's tables, which may be only in the WAL."""
    if all(name in head.data for name in _COLUMN_MARKERS):
        return True
    if head.path is None:
        return False
    missing = set(_COLUMN_MARKERS)
    for data in iter_schema_bytes(head.path):
        missing -= {name for name in missing if name in data}
    return not missing


def is_index(head: FileHead) -> bool:
    """Return whether a file is an index of chats."""
    if head.path is not None and head.path.name == INDEX_NAME:
        stems = (path.stem for path in head.path.parent.glob("*.jsonl"))
        if any(_HERMES_ID.fullmatch(stem) for stem in stems):
            return True  # even if it is corrupt
    return _INDEX_ENTRY.match(head.data) is not None and b'"session_key"' in head.data


def _is_document(head: FileHead) -> bool:
    first = head.objects[0] if head.objects else {}
    return {"session_id", "session_start"} <= first.keys() and not _DOCUMENT_FIELDS.isdisjoint(
        first
    )


# -- shared by all containers -------------------------------------------------------------------


class _HermesThread(SessionBuilder):
    """One session being read."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.occurrences: dict[str, int] = {}
        self.is_repeating = False
        self.was_replaced = False
        self.seen_times: set[tuple[str, float | None]] = set()

    def read_entry(self, raw: JsonObject) -> Iterator[TranscriptEvent]:
        """Read one raw message; bookkeeping yields nothing."""
        role = raw.get("role")
        if role not in _ROLES:
            if role == "session_meta":
                self.fill_fields(model=get_text(raw, "model"))
            return
        if raw.get("active") == 0 and not raw.get("compacted"):
            return
        if self._is_summary(raw):
            summary = Message(role="user", content=_parse_content(raw.get("content"))).text
            self.pending_meta["compacted"] = {"summary": summary}
            self.is_repeating = True
            return
        message = self._parse_message(raw, "tool" if role == "function" else cast(str, role))
        if self._is_copy(message, is_replaced=bool(raw.get("compacted"))):
            return
        id = message.platform_message_id or ""
        nth = self.occurrences[id] = self.occurrences.get(id, 0) + 1
        message = replace_fields(message, platform_message_id=f"{id}:{nth}" if nth > 1 else id)
        if not self.is_started:
            self.fill_fields(started=message.timestamp)
        yield from self.append_message(add_meta(message, self.pop_pending_meta()))

    def _is_summary(self, raw: JsonObject) -> bool:
        if raw.get("tool_calls") or raw.get("role") not in ("user", "assistant"):
            return False
        content = raw.get("content")
        begins = isinstance(content, str) and content.lstrip().startswith(_SUMMARY_PREFIXES)
        return begins or raw.get("_compressed_summary") == 1

    def _is_copy(self, message: Message, *, is_replaced: bool) -> bool:
        """Return whether the message is only repeated after a summary."""
        id = message.platform_message_id or ""
        # Replaced rows come first; the rows after them may repeat the last of them.
        self.is_repeating = (
            self.is_repeating or (self.was_replaced and not is_replaced)
        ) and id in self.occurrences
        if not (self.was_replaced or is_replaced or self.seen_times):
            return self.is_repeating
        self.was_replaced = is_replaced
        is_exact = message.timestamp is not None and (id, message.timestamp) in self.seen_times
        self.seen_times.add((id, message.timestamp))
        return self.is_repeating or is_exact

    def _parse_message(self, raw: JsonObject, role: str) -> Message:
        content = _parse_content(raw.get("content"))
        calls = (*_parse_tool_calls(raw.get("tool_calls")),) if role == "assistant" else ()
        call_id = get_text(raw, "tool_call_id") if role == "tool" else None
        self.tool_names.update((call.id, call.name) for call in calls)
        call_name = self.tool_names.pop(call_id, None) if call_id else None
        return Message(
            role=role,
            content=content,
            tool_calls=calls,
            tool_call_id=call_id,
            name=(get_text(raw, "tool_name", "name") or call_name) if role == "tool" else None,
            reasoning=get_text(raw, "reasoning", "reasoning_content"),
            finish_reason=get_text(raw, "finish_reason"),
            platform_message_id=_make_message_id(role, content, call_id, calls),
            meta=_parse_result_meta(content) if role == "tool" else None,
            timestamp=parse_local_time(raw.get("timestamp")),
        )


def _make_message_id(
    role: str, content: Content, call_id: str | None, calls: tuple[ToolCall, ...]
) -> str:
    body = content if isinstance(content, str) else json.dumps(content or "", sort_keys=True)
    parts = (role, body, call_id or "", *(f"{call.id} {call.name}" for call in calls))
    identity = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(identity, digest_size=12).hexdigest()


def _parse_content(value: object) -> Content:
    if isinstance(value, str) and value.startswith(_JSON_PREFIX):
        try:
            value = decode_json(value.removeprefix(_JSON_PREFIX).encode("utf-8", "replace"))
        except ValueError:
            pass
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return as_objects(cast(object, value))
    return json.dumps(value)


def _parse_tool_calls(given: object) -> Iterator[ToolCall]:
    for index, call in enumerate(as_objects(decode_text(given))):
        function = as_object(call.get("function")) or call
        id = get_text(call, "id", "call_id") or f"call:{index}"
        arguments = to_arguments(function.get("arguments") or "")
        yield ToolCall(id, get_text(function, "name") or "", arguments)


def _parse_result_meta(content: Content) -> dict[str, JSON] | None:
    """Parse the metadata of a terminal result, which is JSON with `output` and `exit_code`."""
    if not isinstance(content, str) or '"exit_code"' not in content:
        return None
    output = as_object(decode_text(content))
    code = output.get("exit_code")
    if "output" not in output or not isinstance(code, int) or isinstance(code, bool):
        return None
    return drop_none({"exit_code": parse_exit_code(code), "error": get_text(output, "error")})


def parse_local_time(value: object) -> float | None:
    """Return UTC seconds; a time without a zone is local to the machine that ran Hermes."""
    if not isinstance(value, str):
        return parse_timestamp(value)
    try:
        return parse_timestamp(datetime.fromisoformat(value).timestamp())
    except (ValueError, OverflowError, OSError):
        return None


def parse_entry_tokens(metadata: JsonObject) -> Tokens:
    """Return the tokens of an entry."""
    tokens = parse_tokens(metadata, *_TOKEN_COLUMNS)
    # Some entries have only the total.
    return tokens if any(tokens) else Tokens(input=as_count(metadata.get("total_tokens")))


def _find_cost(metadata: JsonObject) -> Decimal:
    actual = as_number(metadata.get("actual_cost_usd"))
    return parse_cost(actual or metadata.get("estimated_cost_usd"))


# -- the files ----------------------------------------------------------------------------------


def _read_lines(path: Path) -> Iterator[TranscriptEvent]:
    thread = _HermesThread(
        _entry_to_session(path.stem, _load_index_entries(path).get(path.stem) or {})
    )
    for entry in read_json_lines(path):
        if isinstance(entry, UnreadableEntry):
            yield entry
        elif get_text(entry[1], "role") is None:
            yield UnreadableEntry(str(path), entry[0], "expected a message with a role")
        else:
            yield from thread.read_entry(entry[1])
    yield from thread.finish()


def _read_document(path: Path) -> Iterator[TranscriptEvent]:
    thread = _HermesThread(Session(id=path.stem.removeprefix("session_"), source=SOURCE))
    for element in iter_elements(path, {"messages"}):
        if isinstance(element, UnreadableEntry):
            yield element
            continue
        value = element.value
        if element.position is not None:
            yield from thread.read_entry(as_object(value))
        elif not thread.is_started and isinstance(value, str) and value:
            if element.key == "session_id":
                thread.set_fields(id=value)
            elif element.key == "model":
                thread.set_fields(model=value)
            elif element.key == "session_start":
                thread.set_fields(started=parse_local_time(value) or 0.0)
    yield from thread.finish()


def _entry_to_session(id: str, entry: JsonObject) -> Session:
    platform = (
        get_text(entry, "platform") or get_text(as_object(entry.get("origin")), "platform") or ""
    )
    key = get_text(entry, "session_key")
    title = " ".join((get_text(entry, "display_name") or "").split())
    # A chat without a name has its number as the name.
    has_title = any(letter.isalpha() for letter in title) and title not in (key, id)
    return Session(
        id=id,
        source=platform if _PLATFORM.fullmatch(platform) else SOURCE,
        owner=key,
        user=get_text(as_object(entry.get("origin")), "user_id"),
        title=title if has_title else None,
        started=parse_local_time(entry.get("created_at")) or 0.0,
        tokens=parse_entry_tokens(entry),
        cost=_find_cost(entry),
    )


def _read_index(path: Path) -> Iterator[TranscriptEvent]:
    """Report errors in the index; its entries are read with their sessions."""
    found = False
    for entry in iter_index_entries(path):
        found = True
        if isinstance(entry, UnreadableEntry):
            yield entry
    if not found and FileHead.read(path).data != b"{}":
        yield UnreadableEntry(str(path), 1, "expected an object of sessions")


def _load_index_entries(path: Path) -> dict[str, JsonObject]:
    """Return the entries of the index next to this file, by session id."""
    index = path.parent / INDEX_NAME
    try:
        status = index.stat()
        return _load_cached_entries(index, status.st_mtime_ns, status.st_size)
    except OSError:
        return {}


@lru_cache(maxsize=2)
def _load_cached_entries(index: Path, mtime: int, size: int) -> dict[str, JsonObject]:
    # Cached until it changes: a folder has one index for thousands of sessions.
    entries = (
        entry for entry in iter_index_entries(index) if not isinstance(entry, UnreadableEntry)
    )
    return {id: entry for entry in entries if (id := get_text(entry, "session_id"))}


def iter_index_entries(path: Path) -> Iterator[JsonObject | UnreadableEntry]:
    """Yield the entries of an index, and what cannot be read."""
    for element in iter_elements(path, ()):
        if isinstance(element, UnreadableEntry):
            yield element
            continue
        if element.key is None or element.key.startswith("_"):
            continue
        entry = as_object(element.value)
        if get_text(entry, "session_id") is None:
            reason = f"{element.key!r:.80}: expected a session_id"
            yield UnreadableEntry(str(path), element.line, reason)
        else:
            yield {"session_key": element.key, **entry}


# -- the database -------------------------------------------------------------------------------


def _read_database(path: Path) -> Iterator[TranscriptEvent]:
    import apsw

    try:
        with open_sqlite_file(path) as connection:
            yield from _HermesDatabase(connection, path).read_events()
    except (apsw.Error, UnicodeDecodeError) as error:
        yield UnreadableEntry(str(path), 1, f"cannot read the database: {error}")


class _HermesDatabase:
    """The sessions of a database, with messages loaded one at a time."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self.connection = connection
        self.path = path
        connection.execute("PRAGMA trusted_schema = OFF")
        self.session_columns = self._list_columns("sessions", _SESSION_COLUMNS)
        self.message_columns = self._list_columns("messages", _MESSAGE_COLUMNS)

    def read_events(self) -> Iterator[TranscriptEvent]:
        """Yield the events of all sessions."""
        for table, columns, needed in (
            ("sessions", self.session_columns, {"id"}),
            ("messages", self.message_columns, {"role", "content"}),
        ):
            if not needed <= {*columns}:
                reason = f"table {table} is missing or not from Hermes"
                yield UnreadableEntry(str(self.path), 1, reason)
                return
        query = f"SELECT rowid, {_select_raw_columns(self.session_columns)} FROM sessions"
        id_query = "(SELECT id FROM sessions WHERE rowid = ?)"
        for row, *values in self.connection.execute(query):
            metadata = dict(zip(self.session_columns, map(_decode_value, values), strict=True))
            yield from self._read_session(id_query, row, _row_to_session(metadata))
        orphan_query = (
            "SELECT DISTINCT session_id FROM messages WHERE session_id NOT IN"
            " (SELECT id FROM sessions WHERE id IS NOT NULL)"
        )
        for (id,) in self.connection.execute(orphan_query):
            yield from self._read_session("?", id, _row_to_session({"id": _decode_value(id)}))

    def _list_columns(self, table: str, wanted: tuple[str, ...]) -> list[str]:
        # A view or virtual table of this name could run arbitrary code.
        query = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?"
        for (sql,) in self.connection.execute(query, (table,)):
            if not str(sql).lstrip().upper().startswith("CREATE VIRTUAL"):
                found = {row[1] for row in self.connection.execute(f"PRAGMA table_info({table})")}
                return [name for name in wanted if name in found]
        return []

    def _read_session(
        self, owner: str, key: str | int, session: Session
    ) -> Iterator[TranscriptEvent]:
        import apsw

        thread = _HermesThread(session)
        row = 0
        rows = f"SELECT rowid FROM messages WHERE session_id = {owner} ORDER BY rowid"
        try:
            for (row,) in self.connection.execute(rows, (key,)):
                raw = self._load_message(row)
                if get_text(raw, "role") is None:
                    yield UnreadableEntry(
                        str(self.path), max(1, row), f"message {row}: expected a role"
                    )
                else:
                    yield from thread.read_entry(raw)
        except apsw.Error as error:
            yield UnreadableEntry(
                str(self.path), max(1, row), f"session {session.id}, after {row}: {error}"
            )
        yield from thread.finish()

    def _load_message(self, row: int) -> JsonObject:
        query = f"SELECT {_select_raw_columns(self.message_columns)} FROM messages WHERE rowid = ?"
        for values in self.connection.execute(query, (row,)):
            return dict(zip(self.message_columns, map(_decode_value, values), strict=True))
        return {}


def _select_raw_columns(columns: list[str]) -> str:
    """Return SQL that selects text columns as bytes, so that invalid UTF-8 does not lose a row."""
    return ", ".join(
        f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END"
        for name in columns
    )


def _decode_value(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _row_to_session(row: JsonObject) -> Session:
    id = str(row.get("id") or "unnamed")
    parent = get_text(row, "parent_session_id")
    return Session(
        id=id,
        source=SOURCE,
        owner=get_text(row, "session_key"),
        user=get_text(row, "user_id"),
        model=get_text(row, "model"),
        title=get_text(row, "title"),
        parent=parent if parent != id else None,
        started=parse_local_time(row.get("started_at")) or 0.0,
        ended=parse_local_time(row.get("ended_at")),
        end_reason=get_text(row, "end_reason"),
        cwd=get_text(row, "cwd"),
        git_branch=get_text(row, "git_branch"),
        tokens=parse_entry_tokens(row),
        cost=_find_cost(row),
    )
