"""Which sessions a command speaks of."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.errors import RekindleError

if TYPE_CHECKING:
    from rekindle.store import Filter

WHERE_HELP = (
    "Terms that must all hold: source=telegram owner=ada model=gpt title~word idle>30d "
    "messages<5 calls>10 ended=yes since=2026-01-01 until=2026-02-01 archived=any …"
)


def complete_name(incomplete: str) -> list[tuple[str, str]]:
    """Recent sessions for the shell to complete, with their titles beside them."""
    from .output import name_of
    from .store_access import reading

    try:
        with reading() as store:
            recent = store.recent(200)
    except (RekindleError, OSError):
        return []
    return [(one.id, name_of(one)) for one in recent if one.id.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        help="A session's id, the beginning of one, or a title.",
        autocompletion=complete_name,
        show_default=False,
    ),
]
Where = Annotated[
    list[str] | None, typer.Argument(metavar="[WHERE]...", help=WHERE_HELP, show_default=False)
]


def parse_where(words: list[str] | None, owner: str | None = None) -> Filter:
    """The filter that the words of a command line make."""
    from rekindle.store import Filter

    return Filter.parse(" ".join(map(_as_terms, words or ()))).with_(owner=owner)


def is_filter(words: list[str]) -> bool:
    """Do these words read as terms of a filter, rather than as the name of a session?"""
    return all(re.match(r"[a-z]+(=|~|[<>]=?)\S", term) for term in " ".join(words).split())


def _as_terms(word: str) -> str:
    """Keep a word of the command line together, unless it is a whole filter itself."""
    is_whole = '"' in word or (len(word.split()) > 1 and is_filter([word]))
    return word if is_whole else shlex.quote(word)
