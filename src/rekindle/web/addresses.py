"""The addresses of projects and sessions, whatever their names contain."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from urllib.parse import quote, urlencode

from rekindle.errors import NotFound
from rekindle.pages.text import replace_surrogates
from rekindle.projects import KnownProjects, matches_project

_ENCODED_MARK = "~"  # before a name that is no part of a path as it is


def build_project_url(project: str, tab: str = "", **query: str) -> str:
    """Return the address of a project's page."""
    path = quote(project, safe="/:@") if _is_plain(project) else _encode_name(project)
    fields = {"tab": tab, **query} if tab else query
    return f"/projects/{path}" + (f"?{urlencode(fields)}" if fields else "")


def _is_plain(project: str) -> bool:
    """Return whether browsers and servers leave a name as it is: dots would be resolved."""
    parts = project.split("/")
    return (
        project.isprintable()
        and not project.startswith(_ENCODED_MARK)
        and "%" not in project
        and not any(part in ("", ".", "..") for part in parts)
    )


def _encode_name(project: str) -> str:
    data = urlsafe_b64encode(project.encode("utf-8", "surrogatepass"))
    return _ENCODED_MARK + data.decode().rstrip("=")


def _decode_name(text: str) -> str:
    data = text.removeprefix(_ENCODED_MARK)
    try:
        return urlsafe_b64decode(data + "=" * (-len(data) % 4)).decode("utf-8", "surrogatepass")
    except ValueError:
        return text


def build_list_url(project: str, **fields: str) -> str:
    """Return the address of the list of a project's sessions."""
    return "/sessions?" + urlencode({"project": project, **fields}, errors="replace")


def build_session_url(session: str, position: int | None = None) -> str:
    """Return the address of a session's transcript, or of a message in it."""
    path = f"/sessions/{quote(replace_surrogates(session), safe='')}"
    return path if position is None else f"{path}?at={position}#m{position}"


def find_project(known: KnownProjects, name: str) -> str:
    """Return the key of the project that an address names, or that a person means by a short name."""
    projects = known.projects
    for one in (name, _decode_name(name) if name.startswith(_ENCODED_MARK) else name):
        if one in projects:
            return one
    found = [one for one in projects if matches_project(one, name)]
    if len(found) == 1:
        return found[0]
    raise NotFound(f"Project not found: {name!r:.200}. The list of projects has their names.")
