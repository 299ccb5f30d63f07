"""The form in which anchored texts are written down, and how many of them are asked at once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


def words(text: str) -> frozenset[str]:
    """The words of a text, each once."""
    return frozenset(text.split())


class Wording(NamedTuple):
    """A text that failure begins with, at the place where the table that holds it looks.

    `after` names the sources whose transcripts it was written after; empty means that it comes
    from knowing the tool. An evaluation on a source can so leave out what was learned from it.
    """

    name: str
    pattern: str
    kind: str = ""  # empty: told by the words on the line
    outcome: str = "error"
    confidence: float = 0.95
    where: str = ""  # only for commands that match this
    after: tuple[str, ...] = ()


def wordings(
    table: str,
    kind: str = "",
    outcome: str = "error",
    confidence: float = 0.95,
    where: str = "",
    after: tuple[str, ...] = (),
) -> tuple[Wording, ...]:
    """A table of `name  pattern`, one to a line."""
    rows = (line.strip().split(maxsplit=1) for line in table.splitlines() if line.strip())
    return tuple(
        Wording(name, pattern, kind, outcome, confidence, where, after) for name, pattern in rows
    )


def without(known: Iterable[Wording], source: str | None) -> tuple[Wording, ...]:
    """The wordings that do not stand on this source alone."""
    return tuple(wording for wording in known if source is None or wording.after != (source,))


_SIGNS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()|]")


class Wordings:
    """Many wordings as one expression."""

    def __init__(self, known: Iterable[Wording], flags: int = 0, before: str = "") -> None:
        # Each way to say it is an alternative of its own, with its mark behind it: then most begin
        # with a letter, and the engine passes over them without trying.
        ways = [(way, said) for said in known for way in _ways(said.pattern)]
        self._said_by = [said for _, said in ways]
        joined = "|".join(f"{way}(?P<w{index}>)" for index, (way, _) in enumerate(ways))
        self._one = re.compile(f"{before}(?:{joined})", flags) if ways else None

    def match(self, text: str) -> Wording | None:
        """The wording that the text begins with."""
        return self._said(self._one.match(text)) if self._one else None

    def search(self, text: str) -> tuple[Wording, int] | None:
        """The first place where one of the wordings stands."""
        match = self._one.search(text) if self._one else None
        said = self._said(match)
        return (said, match.start()) if said and match else None

    def _said(self, match: re.Match[str] | None) -> Wording | None:
        if match is None or match.lastgroup is None:
            return None
        return self._said_by[int(match.lastgroup[1:])]


def _ways(pattern: str) -> list[str]:
    """The alternatives of an expression, as far as they stand outside all brackets."""
    ways, depth, start = list[str](), 0, 0
    for match in _SIGNS.finditer(pattern):
        sign = match[0]
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and depth == 0:
            ways.append(pattern[start : match.start()])
            start = match.end()
    return [*ways, pattern[start:]]
