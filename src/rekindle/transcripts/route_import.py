"""Import the conversations of an older gateway, so that they go on where they stopped.

Its folder has an index, `sessions.json`, with the current session of each chat. Routes that the store
already has are live and stay as they are, so importing twice is safe.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rekindle.errors import InvalidInput
from rekindle.json_fields import JsonObject, as_object, get_text
from rekindle.routing.key import parse_key
from rekindle.routing.source import from_json
from rekindle.store import Store
from rekindle.types import Route, Source

from .detect import FileHead
from .events import UnreadableEntry
from .readers.hermes import (
    INDEX_NAME,
    is_index,
    iter_index_entries,
    parse_entry_tokens,
    parse_local_time,
)

_UNKNOWN_CHAT = "unknown"  # until the next message from there


class RouteImportReport(NamedTuple):
    """How many routes were made, were live already, or have no session; and what is invalid."""

    made: int = 0
    known: int = 0
    empty: int = 0
    problems: tuple[UnreadableEntry, ...] = ()


def import_routes(
    store: Store, paths: Iterable[str | Path], make_key: Callable[[Source, str], str]
) -> RouteImportReport:
    """Make routes of the entries in the indexes among some files and folders.

    Import the sessions first. `make_key` returns the key of a conversation from its source and the
    key that it had.
    """
    made = known = empty = 0
    problems: list[UnreadableEntry] = []
    for index in _find_indexes(paths):
        for entry in iter_index_entries(index):
            if isinstance(entry, UnreadableEntry):  # the import of the sessions reports it
                continue
            try:
                result = store.routes.restore(_entry_to_route(entry, make_key))
            except InvalidInput as error:
                problems.append(_describe_problem(index, entry, str(error)))
                continue
            made += result == "new"
            known += result == "known"
            empty += result == "no session"
    return RouteImportReport(made, known, empty, tuple(problems))


def _find_indexes(paths: Iterable[str | Path]) -> Iterator[Path]:
    for path in _walk_paths(paths):
        try:
            if is_index(FileHead.read(path)):
                yield path
        except OSError:
            continue  # reported by the import of the sessions


def _walk_paths(paths: Iterable[str | Path]) -> Iterator[Path]:
    """Yield the files with the name of an index, by the names in folders alone."""
    for path in map(Path, paths):
        if path.name == INDEX_NAME and path.is_file():
            yield path
        for folder, _, names in os.walk(path):
            if INDEX_NAME in names:
                yield Path(folder, INDEX_NAME)


def _entry_to_route(entry: JsonObject, make_key: Callable[[Source, str], str]) -> Route:
    old_key = get_text(entry, "session_key") or ""
    source = _parse_origin(entry, old_key)
    key = make_key(source, old_key)
    created = parse_local_time(entry.get("created_at"))
    updated = parse_local_time(entry.get("updated_at"))
    if created is None and updated is None:
        raise InvalidInput("neither created_at nor updated_at is a time")
    created = updated if created is None else created
    assert created is not None
    return Route(
        key=key,
        session=get_text(entry, "session_id") or "",
        origin=source,
        display_name=" ".join((get_text(entry, "display_name") or "").split()),
        created=created,
        updated=max(created, updated or created),
        tokens=parse_entry_tokens(entry),
        owner=old_key if old_key and old_key != key else None,
    )


def _parse_origin(entry: JsonObject, old_key: str) -> Source:
    """Return where a conversation takes place: its origin, else what its key and entry say."""
    origin = as_object(entry.get("origin"))
    known = {"platform": get_text(entry, "platform"), "chat_type": get_text(entry, "chat_type")}
    try:
        parts = parse_key(old_key)
    except InvalidInput:
        parts = None
    if parts is not None:
        known["platform"] = known["platform"] or parts.platform
        known["chat_type"] = known["chat_type"] or parts.chat_type
        known["chat_id"] = parts.chat or _UNKNOWN_CHAT
        known["thread_id"], known["user_id"] = parts.thread, parts.user
    return from_json({**known, **{name: value for name, value in origin.items() if value}})


def _describe_problem(index: Path, entry: JsonObject, reason: str) -> UnreadableEntry:
    key = get_text(entry, "session_key") or ""
    return UnreadableEntry(str(index), 0, f"conversation {key!r:.80}: {reason}")
