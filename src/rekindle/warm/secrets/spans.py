"""What a rule looks at, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias


class Span(NamedTuple):
    """A stretch of text that must go, what it is, and what stands there instead."""

    start: int
    end: int
    kind: str
    mask: str


class Look:
    """A text, and two images of it in bytes in which literals are found fast.

    Both images have one byte per character, so that positions are the same in all three. `raw` has
    a question mark where a character is not ASCII; `low` is `raw` in small letters.
    """

    __slots__ = ("low", "raw", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.raw = text.encode("ascii", "replace")
        self.low = self.raw.lower()


# A rule looks at a whole text. Most only look where a stem stands, a literal in small letters;
# each stem is searched for once, whatever number of rules wait for it.
Rule: TypeAlias = Callable[[Look], Iterable[Span]]
AtStem: TypeAlias = Callable[[Look, int], Iterable[Span]]
Stems: TypeAlias = tuple[tuple[bytes, AtStem], ...]

NOTHING: tuple[Span, ...] = ()


def secret(start: int, end: int, kind: str) -> Span:
    """A stretch whose mask says what kind of secret stood there."""
    return Span(start, end, kind, f"<secret:{kind}>")


def hits(image: bytes, literal: bytes) -> Iterator[int]:
    """Where the literal stands, from left to right, without overlap."""
    at = image.find(literal)
    while at >= 0:
        yield at
        at = image.find(literal, at + len(literal))


def where_they_stand(stems: Stems) -> Rule:
    """One rule out of many that wait for stems."""
    table: dict[bytes, list[AtStem]] = {}
    for stem, waiting in stems:
        table.setdefault(stem, []).append(waiting)
    pairs = tuple(table.items())

    def rule(look: Look) -> list[Span]:
        spans: list[Span] = []
        low = look.low
        for stem, rules in pairs:
            at = low.find(stem)
            while at >= 0:
                for one in rules:
                    spans.extend(one(look, at))
                at = low.find(stem, at + len(stem))
        return spans

    return rule


_ESCAPES = "nrtbf"
_HEX = "0123456789abcdefABCDEF"


def opens(text: str, at: int) -> bool:
    """May a token begin here? A letter before it belongs to it, unless an escape ends with it."""
    if at == 0:
        return True
    before = text[at - 1]
    if not (before.isascii() and before.isalnum()):
        return True
    if at >= 2 and text[at - 2] == "\\" and before in _ESCAPES:
        return True
    if at >= 3 and text[at - 3] == "%" and before in _HEX and text[at - 2] in _HEX:
        return True
    if at >= 6 and text[at - 6 : at - 4] == "\\u":
        return True
    return before == "m" and "[" in text[max(0, at - 12) : at - 1]  # the end of a colour
