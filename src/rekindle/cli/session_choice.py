"""Select the sessions that a command works on."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from rekindle.errors import RekindleError
from rekindle.types import replace_fields

from .output import escape_control_chars, get_display_name, print_notice

if TYPE_CHECKING:
    from rekindle.projects import KnownProjects
    from rekindle.store import Filter, Store
    from rekindle.types import Session

FILTER_HELP = (
    "Filter terms; all must match: project=api branch=main source=telegram owner=ada model~opus "
    "title~word since=7d until=yesterday idle>30d messages<5 calls>10 ended=yes archived=any …"
)
AllOption = Annotated[
    bool, typer.Option("--all", "-a", help="Include all projects, not only the current one.")
]


def complete_session(incomplete: str) -> list[tuple[str, str]]:
    """List recent sessions and their titles for shell completion."""
    from .store_access import open_for_reading

    try:
        with open_for_reading(refresh=False) as store:
            recent = store.recent(200)
    except (RekindleError, OSError):
        return []
    return [
        (one.id, escape_control_chars(get_display_name(one)))
        for one in recent
        if one.id.startswith(incomplete) and one.id.isprintable()  # the shell shows it as it is
    ]


SessionArgument = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        help="Session id, id prefix, or title.",
        autocompletion=complete_session,
        show_default=False,
    ),
]
FilterArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[WHERE]...", help=FILTER_HELP, show_default=False)
]

SessionOrFilterArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[WHAT]...", help=f"Session or filter. {FILTER_HELP}"),
]


class SessionSelection(NamedTuple):
    """The sessions that a command reads.

    `project` names the one that they were limited to because the user is in its folder, if any.
    """

    where: Filter
    known: KnownProjects
    project: str | None = None

    @property
    def suffix(self) -> str:
        """What to add to a notice that nothing was found."""
        if self.project is None:
            return "."
        # On a terminal, a note has said so already.
        hint = "" if sys.stderr.isatty() else " Use --all for every project."
        return f" in {self.project}.{hint}"

    def list_names(self, sessions: Iterable[Session]) -> list[str]:
        """Return the short names of the projects of sessions."""
        projects = map(self.known.find_session_project, sessions)
        return [self.known.get_name(one) if one else "" for one in projects]


def select_sessions(store: Store, where: Filter, *, every: bool = True) -> SessionSelection:
    """Find the project that a filter names, or unless `every`, the one of the current folder.

    A note on a terminal says to which project the sessions were limited. Only projects with
    sessions of the filter's owner are found, if it has one.
    """
    known = store.load_projects(owner=where.owner)
    if where.project is not None:
        scope = known.find_named_scope(where.project)
        return SessionSelection(replace_fields(where, project=None, projects=scope.keys), known)
    folder = None if every else _get_current_folder()
    scope = folder and known.find_folder_scope(folder)
    if not scope:
        return SessionSelection(where, known)
    if not scope.keys:
        _print_note(f"No sessions of {scope.name} yet. These are from every project.")
        return SessionSelection(where, known)
    _print_note(f"Sessions of {scope.name}. Use --all for every project.")
    return SessionSelection(replace_fields(where, projects=scope.keys), known, scope.name)


def fill_names(store: Store, sessions: Sequence[Session]) -> list[Session]:
    """Return sessions with what to call them in place of their titles."""
    names = store.load_names(sessions)
    return [replace_fields(one, title=get_display_name(one, names)) for one in sessions]


def _get_current_folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was deleted
        return None


def _print_note(text: str) -> None:
    if sys.stderr.isatty():
        print_notice(text)


def split_terms(text: str) -> tuple[str, list[str]]:
    """Split a search into what to find and the filter terms among its words."""
    from rekindle.store.core.filter import is_term

    tokens = re.findall(r'[^\s"]*"[^"]*"?|\S+', text)
    terms = [token for token in tokens if is_term(token)]
    return " ".join(token for token in tokens if token not in terms), terms


def parse_filter(words: list[str] | None, owner: str | None = None) -> Filter:
    """Parse the words of a command line into a filter."""
    from rekindle.store import Filter

    return Filter.parse(" ".join(map(_quote_word, words or ()))).with_(owner=owner)


def is_filter(words: list[str]) -> bool:
    """Return whether the words are filter terms rather than the name of a session."""
    return all(re.match(r"[a-z]+(=|~|[<>]=?)\S", term) for term in " ".join(words).split())


def _quote_word(word: str) -> str:
    """Quote a word of the command line, unless it is a whole filter itself."""
    is_whole = '"' in word or (len(word.split()) > 1 and is_filter([word]))
    return word if is_whole else shlex.quote(word)
