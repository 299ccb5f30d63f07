"""Sessions and playbooks as resources: `rekindle://session/ID` and `rekindle://playbook/PROJECT`."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from rekindle.errors import InvalidInput, NotFound
from rekindle.projects import shorten_project
from rekindle.types import Session

from .access import Library
from .notes import quote_playbook
from .sessions import format_moment, format_title, quote_session
from .tools import MAX_MESSAGES
from .uris import SCHEME, decode_name, make_playbook_uri, make_session_uri

PAGE_SIZE = 50
MAX_PLAYBOOKS = 50
_MAX_URI_CHARS = 4_000
_MAX_NUMBER_DIGITS = 9


class ListedResource(NamedTuple):
    """A resource in a list."""

    uri: str
    name: str
    description: str


class ResourcePage(NamedTuple):
    """A page of the list, and the cursor of the next one."""

    resources: list[ListedResource]
    next_cursor: str | None


def list_resources(library: Library, cursor: str | None) -> ResourcePage:
    """List playbooks, then sessions from the newest on."""
    offset = 0 if cursor is None else _read_number("cursor", cursor)
    found = [] if offset else [_list_playbook(library, one) for one in _list_projects(library)]
    sessions = library.store.recent(PAGE_SIZE + 1, offset=offset, where=library.filter)
    found += [_list_session(library, one) for one in sessions[:PAGE_SIZE]]
    more = len(sessions) > PAGE_SIZE
    return ResourcePage(found, str(offset + PAGE_SIZE) if more else None)


def _list_projects(library: Library) -> list[str]:
    if library.project is not None:
        return [library.project]
    return [project for project, _, _ in library.store.observations.list_projects()][:MAX_PLAYBOOKS]


def _list_playbook(library: Library, project: str) -> ListedResource:
    name = library.quoter.clean_line(shorten_project(project), 120)
    description = f"What sessions learned in {name}: commands, fixes and files"
    return ListedResource(make_playbook_uri(project), f"Playbook of {name}", description)


def _list_session(library: Library, session: Session) -> ListedResource:
    title = format_title(session, library.quoter)
    source = library.quoter.clean_line(session.source, 40)
    description = f"Past session of {source}, {format_moment(session.last_active)}"
    return ListedResource(make_session_uri(session.id), title, description)


def read_resource(library: Library, uri: str) -> str:
    """Return the text of a resource; raise `NotFound` for one that is unknown or not visible."""
    missing = NotFound(f"Resource not found: {library.quoter.clean_line(uri, 120)}")
    try:
        parts = urlsplit(uri[:_MAX_URI_CHARS])
    except ValueError:
        raise missing from None
    name = decode_name(parts.path.removeprefix("/"))
    if parts.scheme != SCHEME or not name or len(uri) > _MAX_URI_CHARS:
        raise missing
    if parts.netloc == "session":
        after = parse_qs(parts.query).get("after", [""])[-1]
        position = _read_number("after", after) if after else None
        return quote_session(library, library.get_session(name), position, MAX_MESSAGES)
    if parts.netloc == "playbook" and _is_known_project(library, name):
        return quote_playbook(library, name)
    raise missing


def _is_known_project(library: Library, project: str) -> bool:
    if library.project is not None:
        return project == library.project
    return any(project == known for known, _, _ in library.store.observations.list_projects())


def _read_number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_NUMBER_DIGITS):
        raise InvalidInput(f"{name}: expected a number that this server gave")
    return int(text)
