"""The input of a detector, and its result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from .stems import KNOWN_LITERALS, find_literals


class RedactionSpan(NamedTuple):
    """A stretch of text to redact, its kind, and the mask that replaces it."""

    start: int
    end: int
    kind: str
    mask: str


class ScanInput:
    """A text, and two byte versions of it for fast literal search.

    Both have one byte per character, so positions are the same in all three. `raw` has a question
    mark for every non-ASCII character; `lower` is `raw` in lower case.

    `seen_names` holds the start of each name already inspected, and `last_runs` the last run
    measured for each character class, so that shared work is done once.
    """

    __slots__ = ("_literal_positions", "last_runs", "lower", "raw", "seen_names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.raw = text.encode("ascii", "replace")
        self.lower = self.raw.lower()
        self.seen_names: set[int] = set()
        self.last_runs: dict[CharRuns, tuple[int, int]] = {}
        self._literal_positions: dict[bytes, list[int]] | None = None

    @property
    def literal_positions(self) -> Mapping[bytes, Sequence[int]]:
        """The positions in `lower` of each literal that occurs."""
        if self._literal_positions is None:
            self._literal_positions = find_literals(self.lower)
        return self._literal_positions


class CharRuns:
    """Runs of characters of one class.

    Many names in one long run all ask for its end. It is measured once; otherwise a text made of
    names would cost its length times the longest value.
    """

    __slots__ = ("_pattern",)

    def __init__(self, char_class: str) -> None:
        self._pattern = re.compile(rf"{char_class}*+")

    def find_end(self, scan: ScanInput, at: int, max_chars: int) -> int:
        """Return the end of the run at `at`, at most `max_chars` further on."""
        start, stop = scan.last_runs.get(self, (0, 0))
        if not start <= at < stop:
            found = self._pattern.match(scan.text, at)
            stop = found.end() if found else at
            scan.last_runs[self] = (at, stop)
        return min(stop, at + max_chars)


# A detector scans a whole text. Most only inspect the positions of a literal in lower case; each
# literal is searched for once, however many detectors wait for it.
Detector: TypeAlias = Callable[[ScanInput], Iterable[RedactionSpan]]
LiteralDetector: TypeAlias = Callable[[ScanInput, int], Iterable[RedactionSpan]]
LiteralDetectors: TypeAlias = tuple[tuple[bytes, LiteralDetector], ...]

NO_SPANS: tuple[RedactionSpan, ...] = ()


def make_secret_span(start: int, end: int, kind: str) -> RedactionSpan:
    """Return a span whose mask names the kind of secret."""
    return RedactionSpan(start, end, kind, f"<secret:{kind}>")


def iter_positions(data: bytes, literal: bytes) -> Iterator[int]:
    """Yield the positions of the literal from left to right, without overlap."""
    at = data.find(literal)
    while at >= 0:
        yield at
        at = data.find(literal, at + len(literal))


def combine_detectors(detectors: LiteralDetectors) -> Detector:
    """Combine detectors that wait for literals into one."""
    table: dict[bytes, list[LiteralDetector]] = {}
    for literal, detector in detectors:
        table.setdefault(literal, []).append(detector)
    if unknown := table.keys() - KNOWN_LITERALS:
        raise ValueError(f"unknown literals: {unknown}")
    order = {literal: number for number, literal in enumerate(table)}

    def detect(scan: ScanInput) -> list[RedactionSpan]:
        spans: list[RedactionSpan] = []
        found = scan.literal_positions
        for literal in sorted(found.keys() & order.keys(), key=order.__getitem__):
            matching = table[literal]
            for at in found[literal]:
                for detector in matching:
                    spans.extend(detector(scan, at))
        return spans

    return detect


_ESCAPES = "nrtbf"
_HEX = "0123456789abcdefABCDEF"


def can_start_token(text: str, at: int) -> bool:
    """Return whether a token may begin at `at`.

    A preceding letter would belong to it, unless that letter ends an escape.
    """
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
    return before == "m" and "[" in text[max(0, at - 12) : at - 1]  # the end of a color escape
