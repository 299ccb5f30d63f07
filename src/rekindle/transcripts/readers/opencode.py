"""OpenCode, in the places where it keeps its sessions or gives them away.

    opencode export                       one document `{info, messages: [{info, parts}]}`
    storage/session/<project>/<id>.json   the session, with `message/<session>/<id>.json` and
                                          `part/<message>/<id>.json` beside it
    opencode.db                           the same three in tables, for all sessions

The file of a message or of a part is known as one of OpenCode's, and tells nothing by itself: it
is read with the file of its session. What messages and parts say is in `opencode_session.py`.
"""

# pyright: reportUnknownMemberType=false
# The types of apsw leave the kinds of bindings open.
from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rekindle.json_fields import Record, record, text
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event
from rekindle.transcripts.jsonio.document import pieces
from rekindle.transcripts.jsonio.jsonl import LONGEST_LINE, decode
from rekindle.transcripts.jsonio.jsonl import records as lines_of
from rekindle.transcripts.jsonio.partial import fields_so_far, opening

from .opencode_session import Conversation
from .sqlite_file import opened

if TYPE_CHECKING:
    import apsw

# How every SQLite file begins: a name, and five bytes later three that never differ.
_DATABASE = re.compile(rb"SQLite format 3\0.{5}@  ", re.DOTALL)
# The statements that made the tables stand at the beginning of a database.
_PART_TABLE = re.compile(rb"""CREATE TABLE [`"]?part[`"]? ?\([^)]*message_id""")
_SESSIONS = "SELECT * FROM session ORDER BY time_created, id"
# As bytes: text in a database need not be UTF-8, and one bad row must not cost the others.
_MESSAGES = (
    "SELECT id, CAST(data AS BLOB) FROM message WHERE session_id = ? ORDER BY time_created, id"
)
_PARTS = "SELECT id, CAST(data AS BLOB) FROM part WHERE message_id = ? ORDER BY id"


def sniff(head: Head) -> bool:
    if _DATABASE.match(head.data):
        return _PART_TABLE.search(head.data) is not None
    if any(_is_export(line) or _is_message(line) or _is_kept(line) for line in head.records):
        return True
    return _is_message(fields_so_far(opening(head.data, {"messages"})))


def _is_export(line: Record) -> bool:
    return isinstance(line.get("messages"), list) and "projectID" in record(line.get("info"))


def _is_message(line: Record) -> bool:
    info = record(line.get("info"))
    return "sessionID" in info and "role" in info and isinstance(line.get("parts", []), list)


def _is_session(line: Record) -> bool:
    id = text(line, "id") or ""
    return id.startswith("ses_") and isinstance(line.get("time"), dict) and "title" in line


def _is_kept(line: Record) -> bool:
    """Whether this is a file of the storage: a session, or a message or part of one."""
    owner = text(line, "sessionID") or ""
    return _is_session(line) or (
        owner.startswith("ses_")
        and ("role" in line or "messageID" in line)
        and isinstance(line.get("id"), str)
    )


def read(path: Path) -> Iterator[Event]:
    head = Head.of(path)
    if _DATABASE.match(head.data):
        return _read_database(path)
    if head.is_lines and any(_is_export(line) or _is_message(line) for line in head.lines):
        return _read_lines(path)
    if any(_is_kept(line) for line in head.records):
        return _read_storage(path)
    return _read_documents(path)


def _read_documents(path: Path) -> Iterator[Event]:
    one = Conversation(path)
    document = 0
    for piece in pieces(path, {"messages"}):
        if isinstance(piece, Damage):
            yield piece
            continue
        if piece.document != document:
            yield from one.finish()
            document, one = piece.document, Conversation(path)
        try:
            value = decode(piece.data)
        except ValueError as error:
            yield Damage(str(path), piece.line, f"not JSON: {error}")
            continue
        if piece.item is not None:
            yield from one.take(value, f"item:{piece.item + 1}", piece.line)
        elif piece.key == "info":
            one.learn(record(value))
    yield from one.finish()


def _read_lines(path: Path) -> Iterator[Event]:
    """Documents that stand on one line each, or messages that do."""
    whole = Conversation(path)
    for entry in lines_of(path):
        if isinstance(entry, Damage):
            yield entry
            continue
        number, line = entry
        if isinstance(line.get("messages"), list):
            one = Conversation(path)
            one.learn(record(line.get("info")))
            for index, said in enumerate(cast("list[object]", line["messages"]), 1):
                yield from one.take(said, f"item:{index}", number)
            yield from one.finish()
        elif _is_message(line):
            yield from whole.take(line, f"line:{number}", number)
        elif "projectID" in line:
            whole.learn(line)
    yield from whole.finish()


def _read_storage(path: Path) -> Iterator[Event]:
    """A session with its messages and parts, file by file."""
    session = yield from _read_object(path)
    if session is None or not _is_session(session):
        return
    one = Conversation(path)
    one.learn(session)
    id = text(session, "id") or ""
    # An older storage keeps `info`, `message` and `part` inside of `session`.
    old = path.parent.name == "info"
    root = path.resolve().parent.parent if old else path.resolve().parent.parent.parent
    for file in _files(root / "message", id):
        info = yield from _read_object(file)
        if info is None:
            continue
        parts: list[Record] = []
        for place in _files(root / "part" / id if old else root / "part", file.stem):
            part = yield from _read_object(place)
            if part is not None:
                parts.append(part)
        yield from one.take({"info": info, "parts": parts}, file.stem, 1)
    yield from one.finish()


def _files(folder: Path, name: str) -> list[Path]:
    # Ids grow with time, so names in order are messages in order. An id is no way out of the folder.
    inside = folder / name
    return sorted(inside.glob("*.json")) if inside.parent == folder and inside.is_dir() else []


def _read_object(path: Path) -> Generator[Damage, None, Record | None]:
    try:
        if path.stat().st_size > LONGEST_LINE:
            yield Damage(str(path), 1, f"longer than {LONGEST_LINE >> 20} MiB")
            return None
        value = decode(path.read_bytes())
    except OSError as error:
        yield Damage(str(path), 1, error.strerror or str(error))
        return None
    except ValueError as error:
        yield Damage(str(path), 1, f"not JSON: {error}")
        return None
    if isinstance(value, dict):
        return cast(Record, value)
    yield Damage(str(path), 1, f"expected an object, got {type(value).__name__}")
    return None


def _read_database(path: Path) -> Iterator[Event]:
    import apsw

    try:
        with opened(path) as database:
            for session in _sessions(database):
                yield from _read_session(database, path, session)
    except (apsw.Error, UnicodeDecodeError) as error:
        yield Damage(str(path), 1, f"not a database that can be read: {error}")


def _sessions(database: apsw.Connection) -> Iterator[Record]:
    rows = database.execute(_SESSIONS)
    for row in rows:
        names = [name for name, *_ in rows.get_description()]
        about = dict(zip(names, row, strict=True))
        yield {
            **about,
            "parentID": about.get("parent_id"),
            "time": {"created": about.get("time_created")},
        }


def _read_session(database: apsw.Connection, path: Path, session: Record) -> Iterator[Event]:
    one = Conversation(path)
    one.learn(session)
    id = text(session, "id") or ""
    for message, data in database.execute(_MESSAGES, (id,)):
        info = yield from _row(path, "message", message, data)
        if info is None:
            continue
        info.setdefault("sessionID", id)
        parts: list[Record] = []
        for name, told in database.execute(_PARTS, (message,)):
            part = yield from _row(path, "part", name, told)
            if part is not None:
                parts.append(part)
        yield from one.take({"info": info, "parts": parts}, str(message), 1)
    yield from one.finish()


def _row(
    path: Path, table: str, id: object, data: object
) -> Generator[Damage, None, Record | None]:
    """The JSON of a row, together with the id that stands in a column of its own."""
    try:
        value = decode(data if isinstance(data, bytes) else b"")
    except ValueError as error:
        yield Damage(str(path), 1, f"{table} {id}: not JSON: {error}")
        return None
    return {**record(value), "id": id}
