"""What a rule looks at, and what it answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from .stems import KNOWN, places


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

    `names` are the beginnings of the names that were looked at, and `runs` the last run that was
    measured of each kind, so that what belongs to many places is done once for all of them.
    """

    __slots__ = ("_places", "low", "names", "raw", "runs", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.raw = text.encode("ascii", "replace")
        self.low = self.raw.lower()
        self.names: set[int] = set()
        self.runs: dict[Runs, tuple[int, int]] = {}
        self._places: dict[bytes, list[int]] | None = None

    @property
    def places(self) -> Mapping[bytes, Sequence[int]]:
        """Where the literals of `stems.py` stand in `low`; those that do not are left out."""
        if self._places is None:
            self._places = places(self.low)
        return self._places


class Runs:
    """Stretches of characters of one kind.

    Where names stand in one long run, each of them asks how far it goes on. It is measured once,
    else a text that is nothing but names would cost its length times the longest value.
    """

    __slots__ = ("_pattern",)

    def __init__(self, kind: str) -> None:
        self._pattern = re.compile(rf"{kind}*+")

    def end(self, look: Look, at: int, most: int) -> int:
        """Where the run that goes on here ends, `most` characters from here at the latest."""
        start, stop = look.runs.get(self, (0, 0))
        if not start <= at < stop:
            found = self._pattern.match(look.text, at)
            stop = found.end() if found else at
            look.runs[self] = (at, stop)
        return min(stop, at + most)


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
    if unknown := table.keys() - KNOWN:
        raise ValueError(f"stems.py has no {unknown}")
    order = {stem: number for number, stem in enumerate(table)}

    def rule(look: Look) -> list[Span]:
        spans: list[Span] = []
        found = look.places
        for stem in sorted(found.keys() & order.keys(), key=order.__getitem__):
            rules = table[stem]
            for at in found[stem]:
                for one in rules:
                    spans.extend(one(look, at))
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
