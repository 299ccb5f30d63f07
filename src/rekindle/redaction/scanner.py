"""The input of a detector, its result, and the search of a text by all detectors.

A detector finds the positions that deserve a closer look in one fast pass; the inspection of each is
bounded and comes later. So the work is known before it is done. A long text that would cost too much
is not inspected where its positions are densest: those stretches are masked as a whole. Ordinary text
stays far below the limit.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple, TypeAlias

from .stems import KNOWN_LITERALS, LONG_TEXT, WINDOW_BITS, WindowGuard, find_literals


class RedactionSpan(NamedTuple):
    """A stretch of text to redact, its kind, and the mask that replaces it."""

    start: int
    end: int
    kind: str
    mask: str


_MASK = re.compile(rb"<secret:[\w.:-]{1,80}>")


class ScanInput:
    """A text, and two byte versions of it for fast literal search.

    Both have one byte per character, so positions are the same in all three. `raw` has a question
    mark for every non-ASCII character, and blanks for masks; `lower` is `raw` in lower case.

    `seen_names` holds the start of each name already inspected, and `last_runs` the last run
    measured for each character class, so that shared work is done once. `crowded` holds the windows
    of a long text in which something occurs so often that the search for it was given up.
    `table_ends` says how far the rows of a table were read, by its shape and the secret in its column.
    """

    __slots__ = (
        "_digit_image", "_literal_positions", "_runs", "crowded", "last_runs", "lower",
        "raw", "seen_names", "table_ends", "text",
    )  # fmt: skip

    def __init__(self, text: str) -> None:
        if not text.isascii():
            text = _normalize_chars(text)
        self.text = text
        raw = text.encode("ascii", "replace")
        if b"<secret:" in raw:
            raw = _MASK.sub(lambda found: b" " * len(found.group()), raw)
        self.raw = raw
        self.lower = raw.lower()
        self.seen_names: set[int] = set()
        self.last_runs: dict[CharRuns, tuple[int, int]] = {}
        self.crowded: set[int] = set()
        self.table_ends: dict[tuple[object, ...], int] = {}
        self._literal_positions: dict[bytes, list[int]] | None = None
        self._runs: list[tuple[int, int]] | None = None
        self._digit_image: bytes | None = None

    @property
    def literal_positions(self) -> Mapping[bytes, Sequence[int]]:
        """The positions in `lower` of each literal that occurs."""
        if self._literal_positions is None:
            self._literal_positions = find_literals(self.lower, self.crowded)
        return self._literal_positions

    @property
    def digit_image(self) -> bytes:
        """The text with `d` for digits, `A` for capitals, `-` for blanks and hyphens.

        The signs `+().:` stay, everything else is a blank.
        """
        if self._digit_image is None:
            self._digit_image = self.raw.translate(_DIGIT_IMAGE)
        return self._digit_image

    @property
    def runs(self) -> Sequence[tuple[int, int]]:
        """The start and end of each long run of letters, digits, `_` and `-` that is no name."""
        if self._runs is None:
            self._runs = _find_runs(self.raw, self.crowded)
            if self.crowded:
                self.skip_windows(self.crowded)
        return self._runs

    def skip_windows(self, windows: Set[int]) -> None:
        """Search no further in these windows: they are masked as a whole."""
        self.crowded |= windows
        if self._runs is not None:
            self._runs = [run for run in self._runs if run[0] >> WINDOW_BITS not in windows]


# Signs and blanks of other scripts and keyboards, which mean the same.
_SAME_SIGNS = {
    "\xa0": " ", "\u2007": " ", "\u202f": " ", "\u3000": " ", "：": ":", "＝": "=", "“": '"', "”": '"',
    "„": '"', "‘": "'", "’": "'", "＠": "@", "→": ">", "⇒": ">",
}  # fmt: skip


def _normalize_chars(text: str) -> str:
    """Replace foreign signs by ASCII signs, one by one, so that positions stay the same."""
    for foreign, sign in _SAME_SIGNS.items():
        if foreign in text:
            text = text.replace(foreign, sign)
    return text


_RUN_END = re.compile(rb"[A-Za-z0-9_-]*+")


def find_run_end(scan: ScanInput, start: int) -> int:
    """Return the end of the run of letters, digits, `_` and `-` that begins at `start`."""
    found = _RUN_END.match(scan.raw, start)
    return found.end() if found else start


# Words without digits, joined in any way: `a_long_name`, `TheLongName`.
_NAME = re.compile(rb"(?:[A-Z]?[a-z]{3,}|[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]{1,2}(?=[_A-Z-])|[_-])*+\Z")


# Half of such a token may have no digits.
_TOKEN_STARTS = frozenset(
    (b"ghp_", b"gho_", b"ghs_", b"ghu_", b"gith", b"xoxb", b"xoxp", b"sk-a", b"sk-p")
)


def _find_runs(raw: bytes, crowded: set[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    image = raw.translate(_RUN_IMAGE)
    guard = WindowGuard(crowded) if len(raw) >= LONG_TEXT else None
    start = image.find(_MIN_RUN)
    while start >= 0:
        end = image.find(b" ", start)
        end = len(image) if end < 0 else end
        if raw[start : start + 4] in _TOKEN_STARTS or not _NAME.match(raw, start, end):
            runs.append((start, end))
            if guard:
                end = guard.advance(start, end)
        start = image.find(_MIN_RUN, end)
    return runs


_DIGIT_IMAGE = bytes(
    100 if chr(c) in "0123456789"
    else 65 if 65 <= c <= 90
    else 45 if chr(c) in " -"
    else c if chr(c) in "+().:" else 32
    for c in range(256)
)  # fmt: skip
_MIN_RUN = b"a" * 20  # providers issue no shorter tokens
_RUN_IMAGE = bytes(
    97 if (chr(c).isalnum() and c < 128) or chr(c) in "_-" else 32 for c in range(256)
)


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


Inspection: TypeAlias = Callable[[ScanInput, int], Iterable[RedactionSpan]]


class Candidates(NamedTuple):
    """Positions that deserve a closer look, how to look, and what one look costs."""

    positions: Sequence[int]
    inspect: Inspection
    cost: float = 1.0


Detector: TypeAlias = Callable[[ScanInput], Sequence[Candidates]]
# Most detectors inspect the positions of a literal in lower case; each is searched for once,
# however many detectors wait for it.
LiteralDetectors: TypeAlias = tuple[tuple[bytes, Inspection], ...]

NO_SPANS: tuple[RedactionSpan, ...] = ()
NO_CANDIDATES: tuple[Candidates, ...] = ()


def make_secret_span(start: int, end: int, kind: str) -> RedactionSpan:
    """Return a span whose mask names the kind of secret."""
    return RedactionSpan(start, end, kind, f"<secret:{kind}>")


def find_positions(scan: ScanInput, data: bytes, literal: bytes) -> list[int]:
    """Return the positions of the literal from left to right, without overlap."""
    found: list[int] = []
    at = data.find(literal)
    if len(data) < LONG_TEXT:
        while at >= 0:
            found.append(at)
            at = data.find(literal, at + len(literal))
        return found
    guard = WindowGuard(scan.crowded)
    while at >= 0:
        found.append(at)
        at = data.find(literal, guard.advance(at, at + len(literal)))
    return found


def find_matches(scan: ScanInput, pattern: re.Pattern[str]) -> list[int]:
    """Return where the pattern matches, from left to right, without overlap."""
    text = scan.text
    if len(text) < LONG_TEXT:
        return [match.start() for match in pattern.finditer(text)]
    found: list[int] = []
    guard = WindowGuard(scan.crowded)
    match = pattern.search(text)
    while match:
        found.append(match.start())
        match = pattern.search(
            text, guard.advance(match.start(), max(match.end(), match.start() + 1))
        )
    return found


def make_literal_detector(detectors: LiteralDetectors) -> Detector:
    """Combine the inspections of literals into one detector that works in the order given."""
    table: dict[bytes, list[Inspection]] = {}
    for literal, inspect in detectors:
        table.setdefault(literal, []).append(inspect)
    if unknown := table.keys() - KNOWN_LITERALS:
        raise ValueError(f"unknown literals: {unknown}")
    order = {literal: number for number, literal in enumerate(table)}

    def detect(scan: ScanInput) -> Sequence[Candidates]:
        found = scan.literal_positions
        if not found:
            return NO_CANDIDATES
        return [
            Candidates(found[literal], inspect, 0.1 if number else 1.0)
            for literal in sorted(found.keys() & order.keys(), key=order.__getitem__)
            for number, inspect in enumerate(table[literal])
        ]

    return detect


# ── the search

_MIN_WORK = 40_000  # inspections in any text, however short
_CHARS_PER_INSPECTION = 64  # beyond that; ordinary text has one in 110 characters
_EDGE = re.compile(r"\S{0,400}+[A-Za-z0-9+/=_-]*+")  # encoded text has no end before its run's


def find_spans(text: str, detectors: Iterable[Detector]) -> list[RedactionSpan]:
    """Return all findings, and the stretches that would cost too much to inspect."""
    scan = ScanInput(text)
    work: list[Candidates] = []
    limit = max(_MIN_WORK, len(text) // _CHARS_PER_INSPECTION)
    most = 2 * limit
    total = 0.0
    for detector in detectors:
        found = detector(scan)
        work += found
        total += _sum_costs(found)
        if total > most and len(text) >= LONG_TEXT:
            # Not by chance: less of such a text is worth a look.
            limit = max(_MIN_WORK // 2, most // 6)
            scan.skip_windows(_find_dense_windows(work, scan.crowded, limit))
            work = _leave_out(work, scan.crowded)
            total = _sum_costs(work)
    if not work and not scan.crowded:
        return []
    dense = _find_dense_windows(work, scan.crowded, limit)
    spans = _mask_windows(text, dense) if dense else []
    if dense:
        work = _leave_out(work, dense)
    if len(text) >= LONG_TEXT:
        return spans + _scan_long_text(scan, work)
    for positions, inspect, _ in work:
        done = 0
        for at in positions:
            if at < done:
                continue
            for span in inspect(scan, at):
                spans.append(span)
                done = span.end
    return spans


# Beyond this number of findings, a window of a long text is a list of secrets.
_MAX_FINDINGS_PER_WINDOW = 40.0
# Beyond this number of findings, the whole text is one, and each window may have only a few more.
_MAX_FINDINGS = 5_000.0
_CHARS_PER_FINDING = 1_000  # in a text that is longer than ever expected
_MAX_LATE_FINDINGS_PER_WINDOW = 4.0
_LOOK_COST = 0.2  # of a close look that finds nothing
_UNLIMITED_KINDS = frozenset(("home", "mail", "user"))  # lists of files and people are ordinary


def _scan_long_text(scan: ScanInput, work: Iterable[Candidates]) -> list[RedactionSpan]:
    """Inspect a long text; mask windows with too many secrets as a whole, and look no further there."""
    spans: list[RedactionSpan] = []
    counts: defaultdict[int, float] = defaultdict(float)
    full: set[int] = set()
    left = max(_MAX_FINDINGS, len(scan.text) / _CHARS_PER_FINDING)
    limit = _MAX_FINDINGS_PER_WINDOW
    for positions, inspect, _ in work:
        done = 0
        for at in positions:
            window = at >> WINDOW_BITS
            if at < done or window in full:
                continue
            found = inspect(scan, at)
            if found is NO_SPANS:  # seen at a glance
                continue
            count = _LOOK_COST
            for span in found:
                spans.append(span)
                done = span.end
                count = 0.0 if span.kind in _UNLIMITED_KINDS else 1.0
            counts[window] += count
            if count == 1.0:
                left -= 1.0
                if left < 0.0:
                    limit = _MAX_LATE_FINDINGS_PER_WINDOW
            if counts[window] > limit and (
                count == 1.0 or counts[window] > _MAX_FINDINGS_PER_WINDOW
            ):
                full.add(window)
    return spans + _mask_windows(scan.text, full)


def _sum_costs(work: Iterable[Candidates]) -> float:
    total = 0.0
    for positions, _, cost in work:
        total += cost * len(positions)
    return total


def _find_dense_windows(
    work: Sequence[Candidates], crowded: Set[int], limit: float
) -> frozenset[int]:
    """Return the windows with the most positions, so many that the rest is within the limit."""
    total = _sum_costs(work)
    if total <= limit:
        return frozenset(crowded)
    lists: dict[int, tuple[Sequence[int], float]] = {}  # several inspections share their positions
    for positions, _, cost in work:
        lists[id(positions)] = (positions, cost + lists.get(id(positions), (positions, 0.0))[1])
    costs: defaultdict[int, float] = defaultdict(float)
    for positions, cost in lists.values():
        for window, count in Counter([at >> WINDOW_BITS for at in positions]).items():
            costs[window] += count * cost
    dense = set(crowded)
    total -= sum(costs[window] for window in crowded)
    for window in sorted(costs.keys() - crowded, key=costs.__getitem__, reverse=True):
        if total <= limit:
            break
        dense.add(window)
        total -= costs[window]
    return frozenset(dense)


def _leave_out(work: Iterable[Candidates], dense: Set[int]) -> list[Candidates]:
    """Return the candidates outside of the dense windows."""
    kept: dict[int, list[int]] = {}
    for positions, _, _ in work:
        if id(positions) not in kept:
            kept[id(positions)] = [at for at in positions if at >> WINDOW_BITS not in dense]
    return [found._replace(positions=kept[id(found.positions)]) for found in work]


def _mask_windows(text: str, windows: Iterable[int]) -> list[RedactionSpan]:
    """Mask windows as a whole, up to the next blank."""
    spans: list[RedactionSpan] = []
    for window in sorted(windows):
        start, end = window << WINDOW_BITS, min(len(text), (window + 1) << WINDOW_BITS)
        if spans and end <= spans[-1].end:
            continue
        edge = _EDGE.match(text, end)
        end = edge.end() if edge else end
        if spans and start <= spans[-1].end:
            spans[-1] = spans[-1]._replace(end=max(end, spans[-1].end))
        else:
            spans.append(make_secret_span(start, end, "dense"))
    return spans


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
