"""Select the sessions that a command works on."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.errors import RekindleError

if TYPE_CHECKING:
    from rekindle.store import Filter

FILTER_HELP = (
    "Filter terms; all must match: source=telegram owner=ada model=gpt title~word idle>30d "
    "messages<5 calls>10 ended=yes since=2026-01-01 until=2026-02-01 archived=any …"
)


def complete_session(incomplete: str) -> list[tuple[str, str]]:
    """List recent sessions and their titles for shell completion."""
    from .output import escape_control_chars, get_display_name
    from .store_access import open_for_reading

    try:
        with open_for_reading() as store:
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
