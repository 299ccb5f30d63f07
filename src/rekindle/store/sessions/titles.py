"""Titles, and the series of conversations that continue one another: "Plan", "Plan #2", "Plan #3"."""

from __future__ import annotations

import re
import unicodedata

from rekindle.errors import TitleTaken
from rekindle.store.core.engine import Transaction
from rekindle.types import MAX_TITLE_CHARS

_NUMBERED = r"(.*\S) #([1-9]\d{0,8})"
_DROPPED_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn")


def clean_title(title: str) -> str | None:
    """Return a title without control and zero-width characters, at most 100 long; None if empty."""
    spaced = "".join(" " if char in "\t\n\r\u2028\u2029" else char for char in title[:10_000])
    kept = "".join(char for char in spaced if unicodedata.category(char) not in _DROPPED_CATEGORIES)
    return " ".join(kept.split())[:MAX_TITLE_CHARS].strip() or None


def split_title(title: str) -> tuple[str, int]:
    """Return the base of a title and its number in the series; the first has number 1."""
    match = re.fullmatch(_NUMBERED, title)
    if match and int(match[2]) > 1:
        return match[1], int(match[2])
    return title, 1


def format_numbered_title(base: str, number: int) -> str:
    """Return the title with this number in a series; shorten a base that is too long, not the number."""
    if number == 1:
        return base[:MAX_TITLE_CHARS]
    suffix = f" #{number}"
    return base[: MAX_TITLE_CHARS - len(suffix)].rstrip() + suffix


def find_next_title(tx: Transaction, owner: str, title: str) -> tuple[str, str, int]:
    """Return the next free title after `title` for this owner, its base and its number."""
    base, _ = split_title(title)
    # A shortened title does not contain its whole base; the stored row does.
    known = tx.run(
        "SELECT title_base FROM sessions WHERE owner = ? AND title = ? AND pruned IS NULL",
        (owner, title),
    )
    folded = known[0][0] if known else base.casefold()
    highest = tx.run(
        "SELECT title_number FROM sessions WHERE title_base = ? AND owner = ? AND title IS NOT NULL"
        " ORDER BY title_number DESC LIMIT 1",
        (folded, owner),
    )
    number = highest[0][0] + 1 if highest else 2
    while is_title_taken(tx, owner, format_numbered_title(base, number)):
        number += 1
    return format_numbered_title(base, number), folded, number


def claim_title(tx: Transaction, owner: str, title: str) -> tuple[str, str, int]:
    """Return `title` itself if it is free, else the next of its series."""
    if is_title_taken(tx, owner, title):
        return find_next_title(tx, owner, title)
    base, number = split_title(title)
    return title, base.casefold(), number


def is_title_taken(tx: Transaction, owner: str, title: str) -> bool:
    """Return whether a session of this owner has this title."""
    sql = "SELECT 1 FROM sessions WHERE owner = ? AND title = ? AND pruned IS NULL"
    return bool(tx.run(sql, (owner, title)))


def build_taken_error(tx: Transaction, owner: str, title: str) -> TitleTaken:
    """Build the error for a title that is taken, suggesting a free one."""
    free, _, _ = find_next_title(tx, owner, title)
    return TitleTaken(f"another session has the title {title!r}; {free!r} is free")
