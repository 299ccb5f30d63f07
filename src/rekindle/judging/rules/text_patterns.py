"""The format of anchored text patterns, and matching many of them at once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


def split_words(text: str) -> frozenset[str]:
    """Return the distinct words of a text."""
    return frozenset(text.split())


class TextPattern(NamedTuple):
    """A pattern that marks a failure at the position that its table searches.

    `learned_from` names the sources whose transcripts it was derived from; empty means that it
    comes from knowledge of the tool. An evaluation on a source
    can thus exclude what was learned from it.
    """

    name: str
    pattern: str
    kind: str = ""  # empty: classified by the words on the line
    outcome: str = "error"
    confidence: float = 0.95
    command_pattern: str = ""  # only for commands that match this
    learned_from: tuple[str, ...] = ()


def parse_patterns(
    table: str,
    kind: str = "",
    outcome: str = "error",
    confidence: float = 0.95,
    command_pattern: str = "",
    learned_from: tuple[str, ...] = (),
) -> tuple[TextPattern, ...]:
    """Parse a table of `name  pattern` lines."""
    rows = (line.strip().split(maxsplit=1) for line in table.splitlines() if line.strip())
    return tuple(
        TextPattern(name, pattern, kind, outcome, confidence, command_pattern, learned_from)
        for name, pattern in rows
    )


def exclude_source(patterns: Iterable[TextPattern], source: str | None) -> tuple[TextPattern, ...]:
    """Return the patterns that were not learned from `source` alone."""
    return tuple(
        pattern for pattern in patterns if source is None or pattern.learned_from != (source,)
    )


_TOKENS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()|]")


class TextPatterns:
    """Many patterns compiled into one expression."""

    def __init__(self, patterns: Iterable[TextPattern], flags: int = 0, prefix: str = "") -> None:
        # Every alternative gets its own branch, followed by an empty group that identifies it. Most
        # branches then begin with a letter, so the engine can skip them quickly.
        alternatives = [
            (alternative, pattern)
            for pattern in patterns
            for alternative in _split_alternatives(pattern.pattern)
        ]
        self._patterns = [pattern for _, pattern in alternatives]
        joined = "|".join(
            f"{alternative}(?P<w{index}>)" for index, (alternative, _) in enumerate(alternatives)
        )
        self._regex = re.compile(f"{prefix}(?:{joined})", flags) if alternatives else None

    def match(self, text: str) -> TextPattern | None:
        """Return the pattern that matches the beginning of the text."""
        return self._get_pattern(self._regex.match(text)) if self._regex else None

    def search(self, text: str) -> tuple[TextPattern, int] | None:
        """Return the first pattern found in the text, and its position."""
        match = self._regex.search(text) if self._regex else None
        pattern = self._get_pattern(match)
        return (pattern, match.start()) if pattern and match else None

    def _get_pattern(self, match: re.Match[str] | None) -> TextPattern | None:
        if match is None or match.lastgroup is None:
            return None
        return self._patterns[int(match.lastgroup[1:])]


def _split_alternatives(pattern: str) -> list[str]:
    """Split an expression into its alternatives outside all brackets."""
    alternatives, depth, start = list[str](), 0, 0
    for match in _TOKENS.finditer(pattern):
        token = match[0]
        depth += (token == "(") - (token == ")")
        if token == "|" and depth == 0:
            alternatives.append(pattern[start : match.start()])
            start = match.end()
    return [*alternatives, pattern[start:]]
