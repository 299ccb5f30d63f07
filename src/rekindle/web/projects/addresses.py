"""The addresses of projects and sessions, whatever their names contain."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from rekindle.errors import NotFound
from rekindle.projects import KnownProjects, matches_project
from rekindle.transcripts.export.common import replace_surrogates


def build_project_url(project: str, tab: str = "", **query: str) -> str:
    """Return the address of a project's page."""
    text = replace_surrogates(project)
    # A browser would resolve these parts as those of a path.
    is_odd = any(part in ("", ".", "..") for part in text.split("/")[1:])
    path = quote(text, safe="" if is_odd else "/:@")
    fields = {"tab": tab, **query} if tab else query
    return f"/projects/{path}" + (f"?{urlencode(fields)}" if fields else "")


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
    if name in projects:
        return name
    found = [one for one in projects if replace_surrogates(one) == name]
    found = found or [one for one in projects if matches_project(one, name)]
    if len(found) == 1:
        return found[0]
    raise NotFound(f"Project not found: {name!r:.200}. The list of projects has their names.")
