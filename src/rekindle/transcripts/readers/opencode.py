"""OpenCode reader, for its export format, its storage folder and its database.

    opencode export                       one document `{info, messages: [{info, parts}]}`
    storage/session/<project>/<id>.json   the session, with `message/<session>/<id>.json` and
                                          `part/<message>/<id>.json` next to it
    opencode.db                           the same three in tables, for all sessions

The file of a single message or part is recognized but yields nothing: it is read with its session's
file. Messages and parts are parsed by `OpenCodeConversation`.
"""

# pyright: reportUnknownMemberType=false
# apsw's stubs do not type bindings.
from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rekindle.json_fields import JsonObject, as_object, get_text
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.document import iter_elements
from rekindle.transcripts.jsonio.jsonl import MAX_LINE_BYTES, decode_json, read_json_lines
from rekindle.transcripts.jsonio.partial import find_first_element, parse_partial_fields

from .opencode_session import OpenCodeConversation
from .sqlite_file import open_sqlite_file

if TYPE_CHECKING:
    import apsw

# Every SQLite file begins with this name and, five bytes later, three constant bytes.
_SQLITE_HEADER = re.compile(rb"SQLite format 3\0.{5}@  ", re.DOTALL)
# The CREATE statements are at the beginning of a database.
_PART_TABLE = re.compile(rb"""CREATE TABLE [`"]?part[`"]? ?\([^)]*message_id""")
_SELECT_SESSIONS = "SELECT * FROM session ORDER BY time_created, id"
# As bytes: text may not be UTF-8, and one bad row must not lose the others.
_SELECT_MESSAGES = (
    "SELECT id, CAST(data AS BLOB) FROM message WHERE session_id = ? ORDER BY time_created, id"
)
_SELECT_PARTS = "SELECT id, CAST(data AS BLOB) FROM part WHERE message_id = ? ORDER BY id"


def can_read(head: FileHead) -> bool:
    if _SQLITE_HEADER.match(head.data):
        return _PART_TABLE.search(head.data) is not None
    if any(
        _is_export(line) or _is_message(line) or _is_storage_file(line) for line in head.objects
    ):
        return True
    return _is_message(parse_partial_fields(find_first_element(head.data, {"messages"})))


def _is_export(line: JsonObject) -> bool:
    return isinstance(line.get("messages"), list) and "projectID" in as_object(line.get("info"))


def _is_message(line: JsonObject) -> bool:
    info = as_object(line.get("info"))
    return "sessionID" in info and "role" in info and isinstance(line.get("parts", []), list)


def _is_session(line: JsonObject) -> bool:
    id = get_text(line, "id") or ""
    return id.startswith("ses_") and isinstance(line.get("time"), dict) and "title" in line


def _is_storage_file(line: JsonObject) -> bool:
    """Return whether this is a storage file: a session, or a message or part of one."""
    owner = get_text(line, "sessionID") or ""
    return _is_session(line) or (
        owner.startswith("ses_")
        and ("role" in line or "messageID" in line)
        and isinstance(line.get("id"), str)
    )


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    head = FileHead.read(path)
    if _SQLITE_HEADER.match(head.data):
        return _read_database(path)
    if head.has_document_per_line and (
        any(_is_export(line) or _is_message(line) for line in head.line_objects)
        or not head.line_objects
    ):
        return _read_lines(path)
    if any(_is_storage_file(line) for line in head.objects):
        return _read_storage(path)
    return _read_documents(path)


def _read_documents(path: Path) -> Iterator[TranscriptEvent]:
    conversation = OpenCodeConversation(path)
    document = 0
    for element in iter_elements(path, {"messages"}):
        if isinstance(element, UnreadableEntry):
            yield element
            continue
        if element.document != document:
            yield from conversation.finish()
            document, conversation = element.document, OpenCodeConversation(path)
        try:
            value = decode_json(element.data)
        except ValueError as error:
            yield UnreadableEntry(str(path), element.line, f"not JSON: {error}")
            continue
        if element.position is not None:
            yield from conversation.read_entry(value, f"item:{element.position + 1}", element.line)
        elif element.key == "info":
            conversation.update_session(as_object(value))
    yield from conversation.finish()


def _read_lines(path: Path) -> Iterator[TranscriptEvent]:
    """Read documents or messages that are on one line each."""
    file_conversation = OpenCodeConversation(path)
    for entry in read_json_lines(path):
        if isinstance(entry, UnreadableEntry):
            yield entry
            continue
        number, line = entry
        if isinstance(line.get("messages"), list):
            conversation = OpenCodeConversation(path)
            conversation.update_session(as_object(line.get("info")))
            for index, raw in enumerate(cast("list[object]", line["messages"]), 1):
                yield from conversation.read_entry(raw, f"item:{index}", number)
            yield from conversation.finish()
        elif _is_message(line):
            yield from file_conversation.read_entry(line, f"line:{number}", number)
        elif "projectID" in line:
            file_conversation.update_session(line)
    yield from file_conversation.finish()


def _read_storage(path: Path) -> Iterator[TranscriptEvent]:
    """Read a session with its messages and parts, file by file."""
    session = yield from _read_object(path)
    if session is None or not _is_session(session):
        return
    conversation = OpenCodeConversation(path)
    conversation.update_session(session)
    id = get_text(session, "id") or ""
    # An older layout has `info`, `message` and `part` inside `session`.
    is_old_layout = path.parent.name == "info"
    root = path.resolve().parent.parent if is_old_layout else path.resolve().parent.parent.parent
    for file in _list_files(root / "message", id):
        info = yield from _read_object(file)
        if info is None:
            continue
        parts: list[JsonObject] = []
        for part_file in _list_files(
            root / "part" / id if is_old_layout else root / "part", file.stem
        ):
            part = yield from _read_object(part_file)
            if part is not None:
                parts.append(part)
        yield from conversation.read_entry({"info": info, "parts": parts}, file.stem, 1)
    yield from conversation.finish()


def _list_files(folder: Path, name: str) -> list[Path]:
    # Ids grow with time, so name order is message order. An id must not lead out of the folder.
    subfolder = folder / name
    return (
        sorted(subfolder.glob("*.json"))
        if subfolder.parent == folder and subfolder.is_dir()
        else []
    )


def _read_object(path: Path) -> Generator[UnreadableEntry, None, JsonObject | None]:
    try:
        if path.stat().st_size > MAX_LINE_BYTES:
            yield UnreadableEntry(str(path), 1, f"file is longer than {MAX_LINE_BYTES >> 20} MiB")
            return None
        value = decode_json(path.read_bytes())
    except OSError as error:
        yield UnreadableEntry(str(path), 1, error.strerror or str(error))
        return None
    except ValueError as error:
        yield UnreadableEntry(str(path), 1, f"not JSON: {error}")
        return None
    if isinstance(value, dict):
        return cast(JsonObject, value)
    yield UnreadableEntry(str(path), 1, f"expected an object, got {type(value).__name__}")
    return None


def _read_database(path: Path) -> Iterator[TranscriptEvent]:
    import apsw

    try:
        with open_sqlite_file(path) as database:
            for session in _iter_sessions(database):
                yield from _read_session(database, path, session)
    except (apsw.Error, UnicodeDecodeError) as error:
        yield UnreadableEntry(str(path), 1, f"cannot read the database: {error}")


def _iter_sessions(database: apsw.Connection) -> Iterator[JsonObject]:
    rows = database.execute(_SELECT_SESSIONS)
    for row in rows:
        names = [name for name, *_ in rows.get_description()]
        columns = dict(zip(names, row, strict=True))
        yield {
            **columns,
            "parentID": columns.get("parent_id"),
            "time": {"created": columns.get("time_created")},
        }


def _read_session(
    database: apsw.Connection, path: Path, session: JsonObject
) -> Iterator[TranscriptEvent]:
    conversation = OpenCodeConversation(path)
    conversation.update_session(session)
    id = get_text(session, "id") or ""
    for message, data in database.execute(_SELECT_MESSAGES, (id,)):
        info = yield from _decode_row(path, "message", message, data)
        if info is None:
            continue
        info.setdefault("sessionID", id)
        parts: list[JsonObject] = []
        for part_id, part_data in database.execute(_SELECT_PARTS, (message,)):
            part = yield from _decode_row(path, "part", part_id, part_data)
            if part is not None:
                parts.append(part)
        yield from conversation.read_entry({"info": info, "parts": parts}, str(message), 1)
    yield from conversation.finish()


def _decode_row(
    path: Path, table: str, id: object, data: object
) -> Generator[UnreadableEntry, None, JsonObject | None]:
    """Decode the JSON of a row and add the id, which has its own column."""
    try:
        value = decode_json(data if isinstance(data, bytes) else b"")
    except ValueError as error:
        yield UnreadableEntry(str(path), 1, f"{table} {id}: not JSON: {error}")
        return None
    return {**as_object(value), "id": id}
