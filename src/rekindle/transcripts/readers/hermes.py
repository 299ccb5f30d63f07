"""Hermes: the database `state.db`, and the files that its older versions wrote.

    state.db              SQLite, tables `sessions` and `messages`; every version adds columns
    <session id>.jsonl    one message per line; what is known of the session stands beside it in
    sessions.json         the index of chats: key -> entry with session id, local times, tokens
    session_<id>.json     one session as a document

The same session may lie in several of them, and Hermes rewrites the rows of a session when somebody
takes a message back: a message is therefore known by what it says, and by how often that was said
before. `active` is 0 for a row that was taken back, which is left out, and for one that a summary
replaced (`compacted`), which is told: it happened. After such a summary Hermes writes the newest
messages once more; these copies are left out. A compression that opens a new session is seen in
`parent_session_id`.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's own stubs leave the type of a blob open.
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

from rekindle.json_fields import Record, count, number, present, record, records, seconds, text
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event, Learned, Opened
from rekindle.transcripts.jsonio.document import pieces
from rekindle.transcripts.jsonio.jsonl import decode
from rekindle.transcripts.jsonio.jsonl import records as lines_of
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall, replace

from .sqlite_file import opened

if TYPE_CHECKING:
    import apsw

SOURCE = "hermes"
INDEX = "sessions.json"

_DATABASE = b"SQLite format 3\0"
_TABLES = (b"tool_call_id", b"parent_session_id", b"end_reason")
_HERMES_ID = re.compile(r"\d{8}_\d{6}(?:_[\w-]+)?")
_ENTRY = re.compile(rb'^\{\s*"[^"]{1,999}"\s*:\s*\{[^{}]{0,4000}?"session_(?:key|id)"')
_ROLES = ("user", "assistant", "tool", "function")
_KNOWN_ROLES = (*_ROLES, "system", "developer", "session_meta")
_DOCUMENT = {"messages", "message_count", "system_prompt", "tools"}
_PLATFORM = re.compile(r"[A-Za-z][\w.-]{0,63}")
_SUMMARY = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:")
# How the database keeps a content that is not plain text.
_ENCODED = "\0json:"
_SESSION = (
    *("id", "session_key", "user_id", "model", "parent_session_id", "title", "cwd", "git_branch"),
    *("started_at", "ended_at", "end_reason", "input_tokens", "output_tokens"),
    *("cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
    *("estimated_cost_usd", "actual_cost_usd"),
)
_MESSAGE = (
    *("role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp", "finish_reason"),
    *("reasoning", "reasoning_content", "active", "compacted", "_compressed_summary"),
)
_SCANNED = 4 << 20


def sniff(head: Head) -> bool:
    if head.data.startswith(_DATABASE):
        return _is_state(head)
    if head.is_binary:
        return False
    if _is_index(head) or _is_document(head):
        return True
    if head.path is None or not any(line.get("role") in _KNOWN_ROLES for line in head.records):
        return False
    return bool(_HERMES_ID.fullmatch(head.path.stem)) or head.path.stem in _entries(head.path)


def read(path: Path) -> Iterator[Event]:
    head = Head.of(path)
    if head.data.startswith(_DATABASE):
        return _read_database(path)
    if _is_index(head):
        return _check_index(path)
    if _is_document(head):
        return _read_document(path)
    return _read_lines(path)


def _is_state(head: Head) -> bool:
    """Whether the tables are those of Hermes. The newest may stand in the log alone."""
    if all(name in head.data for name in _TABLES):
        return True
    if head.path is None:
        return False
    with head.path.open("rb") as file:
        found = file.read(_SCANNED)
    log = Path(f"{head.path}-wal")
    if log.is_file():
        with log.open("rb") as file:
            found += file.read(_SCANNED)
    return all(name in found for name in _TABLES)


def _is_index(head: Head) -> bool:
    if head.path is not None and head.path.name == INDEX:
        beside = (path.stem for path in head.path.parent.glob("*.jsonl"))
        if any(_HERMES_ID.fullmatch(stem) for stem in beside):
            return True  # however damaged it is
    return _ENTRY.match(head.data) is not None and b'"session_key"' in head.data


def _is_document(head: Head) -> bool:
    first = head.records[0] if head.records else {}
    return {"session_id", "session_start"} <= first.keys() and not _DOCUMENT.isdisjoint(first)


# -- what all of them share ---------------------------------------------------------------------


class _Thread:
    """One session as far as it is read."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.opened = False
        self.said: dict[str, int] = {}
        self.names: dict[str, str] = {}
        self.marks: dict[str, JSON] = {}
        self.repeating = False
        self.replaced = False
        self.times: set[tuple[str, float | None]] = set()

    def take(self, said: Record) -> Iterator[Event]:
        """One message as Hermes keeps it; bookkeeping gives nothing."""
        role = said.get("role")
        if role not in _ROLES:
            if role == "session_meta" and not self.session.model:
                self.session = replace(self.session, model=text(said, "model"))
            return
        if said.get("active") == 0 and not said.get("compacted"):
            return
        if self._is_summary(said):
            self.marks["compacted"] = {"summary": _plain(_content(said.get("content")))}
            self.repeating = True
            return
        message = self._message(said, "tool" if role == "function" else cast(str, role))
        if self._is_copy(message, replaced=bool(said.get("compacted"))):
            return
        id = message.platform_message_id or ""
        nth = self.said[id] = self.said.get(id, 0) + 1
        message = replace(
            message,
            platform_message_id=f"{id}:{nth}" if nth > 1 else id,
            meta=present({**(message.meta or {}), **self.marks}),
        )
        self.marks = {}
        if not self.opened:
            self.opened = True
            started = self.session.started or message.timestamp or 0.0
            self.session = replace(self.session, started=started)
            yield Opened(self.session)
        yield message

    def finish(self) -> Iterator[Event]:
        if self.opened:
            yield Learned(self.session)

    def _is_summary(self, said: Record) -> bool:
        if said.get("tool_calls") or said.get("role") not in ("user", "assistant"):
            return False
        content = said.get("content")
        begins = isinstance(content, str) and content.lstrip().startswith(_SUMMARY)
        return begins or said.get("_compressed_summary") == 1

    def _is_copy(self, message: Message, *, replaced: bool) -> bool:
        """Whether the message was only written once more, beside the summary of what it ended."""
        id = message.platform_message_id or ""
        # Rows that were replaced come first; what follows them may repeat the last of them.
        self.repeating = (self.repeating or (self.replaced and not replaced)) and id in self.said
        if not (self.replaced or replaced or self.times):
            return self.repeating
        self.replaced = replaced
        exact = message.timestamp is not None and (id, message.timestamp) in self.times
        self.times.add((id, message.timestamp))
        return self.repeating or exact

    def _message(self, said: Record, role: str) -> Message:
        content = _content(said.get("content"))
        calls = _calls(said.get("tool_calls")) if role == "assistant" else ()
        answers = text(said, "tool_call_id") if role == "tool" else None
        self.names.update((call.id, call.name) for call in calls)
        known = self.names.pop(answers, None) if answers else None
        return Message(
            role=role,
            content=content,
            tool_calls=calls,
            tool_call_id=answers,
            name=(text(said, "tool_name", "name") or known) if role == "tool" else None,
            reasoning=text(said, "reasoning", "reasoning_content"),
            finish_reason=text(said, "finish_reason"),
            platform_message_id=_digest(role, content, answers, calls),
            meta=_facts(content) if role == "tool" else None,
            timestamp=_time(said.get("timestamp")),
        )


def _digest(role: str, content: Content, answers: str | None, calls: tuple[ToolCall, ...]) -> str:
    body = content if isinstance(content, str) else json.dumps(content or "", sort_keys=True)
    parts = (role, body, answers or "", *(f"{call.id} {call.name}" for call in calls))
    said = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(said, digest_size=12).hexdigest()


def _content(value: object) -> Content:
    if isinstance(value, str) and value.startswith(_ENCODED):
        try:
            value = decode(value.removeprefix(_ENCODED).encode("utf-8", "replace"))
        except ValueError:
            pass
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return records(cast(object, value))
    return json.dumps(value)


def _plain(content: Content) -> str:
    return Message(role="user", content=content).text


def _calls(given: object) -> tuple[ToolCall, ...]:
    if isinstance(given, str):
        try:
            given = decode(given.encode("utf-8", "replace"))
        except ValueError:
            return ()
    return tuple(_call(call, index) for index, call in enumerate(records(given)))


def _call(call: Record, index: int) -> ToolCall:
    function = record(call.get("function")) or call
    given = function.get("arguments")
    arguments = given if isinstance(given, (str, dict)) else json.dumps(given) if given else ""
    id = text(call, "id", "call_id") or f"call:{index}"
    return ToolCall(id, text(function, "name") or "", cast("str | Record", arguments))


def _facts(content: Content) -> dict[str, JSON] | None:
    """What the terminal says beside its output: results of a command are JSON of this shape."""
    if not isinstance(content, str) or '"exit_code"' not in content:
        return None
    try:
        told = record(decode(content.encode("utf-8", "replace")))
    except ValueError:
        return None
    code = told.get("exit_code")
    if "output" not in told or not isinstance(code, int) or isinstance(code, bool):
        return None
    return present({"exit_code": code if abs(code) < 2**53 else None, "error": text(told, "error")})


def _time(value: object) -> float | None:
    """UTC seconds; a written time without a zone is that of the machine Hermes ran on."""
    if not isinstance(value, str):
        return seconds(value)
    try:
        return seconds(datetime.fromisoformat(value).timestamp())
    except (ValueError, OverflowError, OSError):
        return None


def _tokens(about: Record) -> Tokens:
    tokens = Tokens(
        input=count(about.get("input_tokens")),
        output=count(about.get("output_tokens")),
        cache_read=count(about.get("cache_read_tokens")),
        cache_write=count(about.get("cache_write_tokens")),
        reasoning=count(about.get("reasoning_tokens")),
    )
    # Some entries know the sum alone.
    return tokens if any(tokens) else Tokens(input=count(about.get("total_tokens")))


def _cost(about: Record) -> Decimal:
    told = number(about.get("actual_cost_usd")) or number(about.get("estimated_cost_usd"))
    return Decimal(str(told)) if told and 0 < told < 1e9 else Decimal(0)


# -- the files ----------------------------------------------------------------------------------


def _read_lines(path: Path) -> Iterator[Event]:
    thread = _Thread(_session_of(path.stem, _entries(path).get(path.stem) or {}))
    for entry in lines_of(path):
        if isinstance(entry, Damage):
            yield entry
            continue
        number, line = entry
        if text(line, "role") is None:
            yield Damage(str(path), number, "expected a message with a role")
        else:
            yield from thread.take(line)
    yield from thread.finish()


def _read_document(path: Path) -> Iterator[Event]:
    thread = _Thread(Session(id=path.stem.removeprefix("session_"), source=SOURCE))
    for piece in pieces(path, {"messages"}):
        if isinstance(piece, Damage):
            yield piece
            continue
        try:
            value = decode(piece.data)
        except ValueError as error:
            yield Damage(str(path), piece.line, f"{piece.key}: not JSON: {error}")
            continue
        if piece.item is not None:
            yield from thread.take(record(value))
        elif not thread.opened and isinstance(value, str) and value:
            if piece.key == "session_id":
                thread.session = replace(thread.session, id=value)
            elif piece.key == "model":
                thread.session = replace(thread.session, model=value)
            elif piece.key == "session_start":
                thread.session = replace(thread.session, started=_time(value) or 0.0)
    yield from thread.finish()


def _session_of(id: str, entry: Record) -> Session:
    platform = text(entry, "platform") or text(record(entry.get("origin")), "platform") or ""
    key = text(entry, "session_key")
    title = " ".join((text(entry, "display_name") or "").split())
    # The name of a chat without one is its number.
    named = any(letter.isalpha() for letter in title) and title not in (key, id)
    return Session(
        id=id,
        source=platform if _PLATFORM.fullmatch(platform) else SOURCE,
        owner=key,
        user=text(record(entry.get("origin")), "user_id"),
        title=title if named else None,
        started=_time(entry.get("created_at")) or 0.0,
        tokens=_tokens(entry),
        cost=_cost(entry),
    )


def _check_index(path: Path) -> Iterator[Event]:
    """The index is read with each of its sessions; on its own it has only damage to tell."""
    found = False
    for entry in _index(path):
        found = True
        if isinstance(entry, Damage):
            yield entry
    if not found and Head.of(path).data != b"{}":
        yield Damage(str(path), 1, "expected an object of sessions")


def _entries(path: Path) -> dict[str, Record]:
    """The entries by session id, of the index beside this file."""
    index = path.parent / INDEX
    try:
        about = index.stat()
        return _kept_entries(index, about.st_mtime_ns, about.st_size)
    except OSError:
        return {}


@lru_cache(maxsize=2)
def _kept_entries(index: Path, time: int, size: int) -> dict[str, Record]:
    # A folder has one index and thousands of sessions: it is read once, until it changes.
    entries = (entry for entry in _index(index) if not isinstance(entry, Damage))
    return {id: entry for entry in entries if (id := text(entry, "session_id"))}


def _index(path: Path) -> Iterator[Record | Damage]:
    for piece in pieces(path, ()):
        if isinstance(piece, Damage):
            yield piece
            continue
        if piece.key is None or piece.key.startswith("_"):
            continue
        try:
            entry = record(decode(piece.data))
        except ValueError as error:
            yield Damage(str(path), piece.line, f"{piece.key!r:.80}: not JSON: {error}")
            continue
        if text(entry, "session_id") is None:
            yield Damage(str(path), piece.line, f"{piece.key!r:.80}: expected a session_id")
        else:
            yield {"session_key": piece.key, **entry}


# -- the database -------------------------------------------------------------------------------


def _read_database(path: Path) -> Iterator[Event]:
    import apsw

    try:
        with opened(path) as connection:
            yield from _Database(connection, path).events()
    except (apsw.Error, UnicodeDecodeError) as error:
        yield Damage(str(path), 1, f"not a database that can be read: {error}")


class _Database:
    """The sessions of a database, one after the other, each message read when its turn comes."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self.connection = connection
        self.path = path
        connection.execute("PRAGMA trusted_schema = OFF")
        self.session_columns = self._columns("sessions", _SESSION)
        self.message_columns = self._columns("messages", _MESSAGE)

    def events(self) -> Iterator[Event]:
        for table, columns, needed in (
            ("sessions", self.session_columns, {"id"}),
            ("messages", self.message_columns, {"role", "content"}),
        ):
            if not needed <= {*columns}:
                yield Damage(str(self.path), 1, f"table {table}: missing, or not that of Hermes")
                return
        listed = f"SELECT rowid, {_raw(self.session_columns)} FROM sessions"
        of_session = "(SELECT id FROM sessions WHERE rowid = ?)"
        for row, *values in self.connection.execute(listed):
            about = dict(zip(self.session_columns, map(_value, values), strict=True))
            yield from self._messages(of_session, row, _session_in(about))
        orphans = (
            "SELECT DISTINCT session_id FROM messages WHERE session_id NOT IN"
            " (SELECT id FROM sessions WHERE id IS NOT NULL)"
        )
        for (id,) in self.connection.execute(orphans):
            yield from self._messages("?", id, _session_in({"id": _value(id)}))

    def _columns(self, table: str, wanted: tuple[str, ...]) -> list[str]:
        # A view or a virtual table under this name could run anything.
        query = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?"
        for (sql,) in self.connection.execute(query, (table,)):
            if not str(sql).lstrip().upper().startswith("CREATE VIRTUAL"):
                found = {row[1] for row in self.connection.execute(f"PRAGMA table_info({table})")}
                return [name for name in wanted if name in found]
        return []

    def _messages(self, owner: str, key: str | int, session: Session) -> Iterator[Event]:
        import apsw

        thread = _Thread(session)
        row = 0
        rows = f"SELECT rowid FROM messages WHERE session_id = {owner} ORDER BY rowid"
        try:
            for (row,) in self.connection.execute(rows, (key,)):
                said = self._message(row)
                if text(said, "role") is None:
                    yield Damage(str(self.path), max(1, row), f"message {row}: expected a role")
                else:
                    yield from thread.take(said)
        except apsw.Error as error:
            yield Damage(str(self.path), max(1, row), f"session {session.id}, after {row}: {error}")
        yield from thread.finish()

    def _message(self, row: int) -> Record:
        query = f"SELECT {_raw(self.message_columns)} FROM messages WHERE rowid = ?"
        for values in self.connection.execute(query, (row,)):
            return dict(zip(self.message_columns, map(_value, values), strict=True))
        return {}


def _raw(columns: list[str]) -> str:
    """The columns with texts as bytes: one text that is not UTF-8 must not cost its row."""
    return ", ".join(
        f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END"
        for name in columns
    )


def _value(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _session_in(row: Record) -> Session:
    id = str(row.get("id") or "unnamed")
    parent = text(row, "parent_session_id")
    return Session(
        id=id,
        source=SOURCE,
        owner=text(row, "session_key"),
        user=text(row, "user_id"),
        model=text(row, "model"),
        title=text(row, "title"),
        parent=parent if parent != id else None,
        started=_time(row.get("started_at")) or 0.0,
        ended=_time(row.get("ended_at")),
        end_reason=text(row, "end_reason"),
        cwd=text(row, "cwd"),
        git_branch=text(row, "git_branch"),
        tokens=_tokens(row),
        cost=_cost(row),
    )
