"""Titles, and the line of conversations that continue one another: "Plan", "Plan #2", "Plan #3"."""

from __future__ import annotations

import re
import unicodedata

from rekindle.errors import TitleTaken
from rekindle.store.core.engine import Transaction
from rekindle.types import MAX_TITLE

_NUMBERED = r"(.*\S) #([1-9]\d{0,8})"
_DROPPED = ("Cc", "Cf", "Cs", "Co", "Cn")


def clean(title: str) -> str | None:
    """Return a title without control and zero-width characters, at most 100 long; None if empty."""
    spaced = "".join(" " if char in "\t\n\r\u2028\u2029" else char for char in title[:10_000])
    kept = "".join(char for char in spaced if unicodedata.category(char) not in _DROPPED)
    return " ".join(kept.split())[:MAX_TITLE].strip() or None


def split(title: str) -> tuple[str, int]:
    """Return what a title continues, and its number in that line; the first has number 1."""
    match = re.fullmatch(_NUMBERED, title)
    if match and int(match[2]) > 1:
        return match[1], int(match[2])
    return title, 1


def numbered(base: str, number: int) -> str:
    """Return the title of a line's `number`; a base that is too long is shortened, not the number."""
    if number == 1:
        return base[:MAX_TITLE]
    suffix = f" #{number}"
    return base[: MAX_TITLE - len(suffix)].rstrip() + suffix


def following(tx: Transaction, owner: str, title: str) -> tuple[str, str, int]:
    """Return the next free title after `title` for this owner, its base and its number."""
    base, _ = split(title)
    # A shortened title does not show its whole base; the line knows it.
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
    while is_taken(tx, owner, numbered(base, number)):
        number += 1
    return numbered(base, number), folded, number


def claim(tx: Transaction, owner: str, title: str) -> tuple[str, str, int]:
    """Return `title` itself if it is free, else the next of its line."""
    if is_taken(tx, owner, title):
        return following(tx, owner, title)
    base, number = split(title)
    return title, base.casefold(), number


def is_taken(tx: Transaction, owner: str, title: str) -> bool:
    sql = "SELECT 1 FROM sessions WHERE owner = ? AND title = ? AND pruned IS NULL"
    return bool(tx.run(sql, (owner, title)))


def taken(tx: Transaction, owner: str, title: str) -> TitleTaken:
    free, _, _ = following(tx, owner, title)
    return TitleTaken(f"another session is called {title!r}; free is {free!r}")
