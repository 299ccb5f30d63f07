# ruff: noqa: E501  (a pattern stays on one line)
"""Detects tokens of known providers in long runs of letters and digits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

from rekindle.redaction.scanner import (
    NO_CANDIDATES,
    NO_SPANS,
    Candidates,
    RedactionSpan,
    ScanInput,
    can_start_token,
    find_run_end,
    make_secret_span,
)
from rekindle.redaction.vocabulary.entropy import (
    compute_entropy,
    is_digest,
    is_placeholder,
    is_random,
)
from rekindle.redaction.vocabulary.token_shapes import TOKEN_SHAPE_TABLE

_ALPHABETS = {
    "@end": "(?![A-Za-z0-9])",
    "@a": "[A-Za-z0-9]",
    "@w": "[A-Za-z0-9_-]",
    "@h": "[A-Za-z0-9-]",
    "@x": "[0-9a-f]",
    "@d": "[A-Za-z0-9_=.-]",
    "@b": "[A-Za-z0-9+/=]",
    "@c": "[A-Za-z0-9+/=_-]",
}


class TokenShape(NamedTuple):
    """A provider's token: its kind, its prefix, and the pattern of the rest."""

    kind: str
    prefix: str
    rest: str
    needs_dot: bool  # the run must be followed by a dot
    is_common: bool  # the prefix also occurs in random text

    @property
    def pattern(self) -> re.Pattern[str]:
        return _compile_pattern(self.prefix, self.rest)


@cache
def _compile_pattern(prefix: str, rest: str) -> re.Pattern[str]:
    """Compile a shape on first use; most are never needed, and compiling all of them is slow."""
    for name, alphabet in _ALPHABETS.items():
        rest = rest.replace(name, alphabet)
    return re.compile(re.escape(prefix) + rest)


def _parse_shapes(table: str) -> tuple[TokenShape, ...]:
    rows = (line.split() for line in table.splitlines() if line and not line.startswith("#"))
    return tuple(
        TokenShape(
            kind,
            prefix,
            rest,
            _DOTTED_REST.match(rest) is not None,
            prefix[:-1].isalnum() and len(prefix) < 4,
        )
        for kind, prefixes, rest in rows
        for prefix in prefixes.split(",")
    )


_DOTTED_REST = re.compile(r"@w\{\d+,\d+\}\\\.")
TOKEN_SHAPES = _parse_shapes(TOKEN_SHAPE_TABLE)


_MAX_SPLIT_CHARS = 400  # how far to follow a token that is split over lines

_RUN_CHARS = re.compile(r"[A-Za-z0-9_-]*\Z")
# The characters of tokens: where these end, a token ends or is split.
_TOKEN_CHARS = re.compile(r"[A-Za-z0-9_.%/+=,:-]*+")
_RUN_REST = re.compile(r"[A-Za-z0-9_-]*")
# Where a token is split: a line break, an escaped one, or concatenated strings.
_TOKEN_BREAK = re.compile(
    r"""(?=["' \t\\+.│|║\r\n])"""  # fails fast elsewhere
    r"""(?:["']?[ \t]{0,8}(?:\\|\+|\.|[│|║])?[ \t]{0,8}(?:\r?\n|\\r\\n|\\n)"""
    r"""[ \t]{0,40}(?:\+|\.|>|[│|║#]|//)?[ \t]{0,8}["']?"""
    r"""|["'][ ]{0,4}(?:[+.,&][ ]{0,4}|\|\|[ ]{0,4})?["'])"""
)

# Shapes whose prefix can be part of a run, by its first two letters. The other prefixes end in a
# mark that is not part of a run, so the run begins after them.
_SHAPES_BY_START: dict[str, list[TokenShape]] = {}
_MARKED_SHAPES: list[TokenShape] = []
for _shape in TOKEN_SHAPES:
    if _RUN_CHARS.match(_shape.prefix):
        _SHAPES_BY_START.setdefault(_shape.prefix[:2], []).append(_shape)
    else:
        _MARKED_SHAPES.append(_shape)
_MARKED_PREFIXES = tuple(_shape.prefix for _shape in _MARKED_SHAPES)
_MARK_CHARS = frozenset(_mark[-1] for _mark in _MARKED_PREFIXES)
# Where a token may begin inside a run.
_MARK_IN_RUN = re.compile("[_-]")
_MAX_MARKS = 60  # a token begins near the beginning of a run

# Tokens without a prefix, matched at the start of a run.
_PREFIXLESS_TOKEN = re.compile(
    r"""(?P<mailchimp>[0-9a-f]{32}-us\d{1,2}(?![\w-]))
      | (?P<discord>[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}(?![\w-]))
      | (?P<azure>[A-Za-z0-9]{28,80}(?:AZDO|JQQJ9|ACDb|ACRD|ACYeBjF|ACOG)[A-Za-z0-9]{4,60}={0,2}(?![\w-]))
      | (?P<zhipu>[0-9a-f]{32}\.[A-Za-z0-9]{16}(?![\w-]))
      | (?P<mailgun>[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![\w-]))
      | (?P<ngrok>[123][A-Za-z0-9]{26}_[A-Za-z0-9]{17,25}(?![\w-]))
    """,
    re.X,
)
_MIN_PREFIXLESS_CHARS = 36  # the shortest, except for the one with a dot after the run


def _compile_shape(
    literals: tuple[str, ...], pattern: str
) -> tuple[tuple[str, ...], re.Pattern[str]]:
    return literals, re.compile(pattern)


# Tokens recognized by the text before a run: `123456789:AA…`. Keyed by the character right before
# the run; the literals are a cheap first check.
_BY_PRECEDING_CHAR = {
    ":": _compile_shape(
        (":AA", "1/", "2/", "user:", "-"),
        r"(?P<telegram>(?<!\d)\d{8,12}:AA[A-Za-z0-9_-]{30,40})"
        r"|(?P<asana>[12]/\d{12,20}(?:/\d{12,20})?:[0-9a-f]{32})"
        r"|(?P<dagster>(?<![\w-])user:[0-9a-f]{32}(?![\w-]))"
        r"|(?P<fal>[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}:[0-9a-f]{32}(?![\w-]))"
        r"|(?P<ghost>(?<![\w-])[0-9a-f]{24}:[0-9a-f]{64}(?![\w-]))",
    ),
    ".": _compile_shape(
        ("pat", ".atlasv1.", "k.eyJ"),
        r"(?P<airtable>pat[A-Za-z0-9]{14}\.[0-9a-f]{64})"
        r"|(?P<mapbox>(?<![A-Za-z0-9])[spt]k\.eyJ[A-Za-z0-9_-]{27,200}\.[A-Za-z0-9_-]{20,60})"
        r"|(?P<terraform>[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{40,100})",
    ),
    "$": _compile_shape(
        ("access_token$",), r"(?P<paypal>access_token\$\w{4,12}\$[A-Za-z0-9]{16}\$[0-9a-f]{32})"
    ),
    "!": _compile_shape(("00D",), r"(?P<salesforce>00D[A-Za-z0-9]{12,15}![A-Za-z0-9._]{40,200})"),
    "~": _compile_shape(("Q~",), r"(?P<azure>[A-Za-z0-9_.~-]{3}\dQ~[A-Za-z0-9_.~-]{31,40})"),
}


def detect_tokens(scan: ScanInput) -> Sequence[Candidates]:
    """Detect tokens of known providers."""
    if not scan.runs:
        return NO_CANDIDATES
    return (Candidates([start for start, _ in scan.runs], _check_run, 2.0),)


def _check_run(scan: ScanInput, start: int) -> Iterable[RedactionSpan]:
    return _detect_in_run(scan.text, start, find_run_end(scan, start))


def _detect_in_run(text: str, start: int, end: int) -> Iterable[RedactionSpan]:
    before = text[start - 1 : start]
    if found := _detect_prefixless(text, start, end, before):
        return (found,)
    for at in _find_token_starts(text, start, end):
        for shape in _SHAPES_BY_START.get(text[at : at + 2], ()):
            if text.startswith(shape.prefix, at) and (found := _detect_token(text, at, end, shape)):
                return (found,)
    if before in _MARK_CHARS and text.endswith(_MARKED_PREFIXES, max(0, start - 30), start):
        return list(_detect_marked(text, start, end))
    return NO_SPANS


def _detect_marked(text: str, start: int, end: int) -> Iterator[RedactionSpan]:
    for shape in _MARKED_SHAPES:
        at = start - len(shape.prefix)
        if text.endswith(shape.prefix, max(0, start - 30), start) and can_start_token(text, at):
            found = _detect_token(text, at, end, shape)
            if found is not None:
                yield found


def _find_token_starts(text: str, start: int, end: int) -> list[int]:
    """Return where in a run a token may begin: at its start, after an escape, `_` or `-`."""
    found = [
        at
        for mark in islice(_MARK_IN_RUN.finditer(text, start, end), _MAX_MARKS)
        if text[(at := mark.end()) : at + 2] in _SHAPES_BY_START
    ]
    if text[start] not in "_-":
        found.insert(0, start)
    if start and text[start - 1] in "\\%[u":
        found += [at for at in range(start + 1, min(start + 6, end)) if can_start_token(text, at)]
    return found


def _detect_prefixless(text: str, start: int, end: int, before: str) -> RedactionSpan | None:
    is_long_enough = end - start >= _MIN_PREFIXLESS_CHARS or text.startswith(".", end)
    if is_long_enough and (found := _PREFIXLESS_TOKEN.match(text, start)) and found.lastgroup:
        return make_secret_span(start, found.end(), found.lastgroup)
    if before not in _BY_PRECEDING_CHAR:
        return None
    literals, pattern = _BY_PRECEDING_CHAR[before]
    begin, stop = max(0, start - 64), start + 320
    if all(text.find(literal, begin, stop) < 0 for literal in literals):
        return None
    found = pattern.search(text, begin, stop)
    return (
        make_secret_span(found.start(), found.end(), found.lastgroup or "token") if found else None
    )


def _detect_token(text: str, at: int, end: int, shape: TokenShape) -> RedactionSpan | None:
    """Return the token of this shape at `at`, in a run that ends at `end` or is split."""
    if shape.is_common and text[at - 1 : at] in ("+", "/"):
        return None  # inside base64
    lacks_dot = shape.needs_dot and not text.startswith(
        ".", end
    )  # the shape needs a dot after the run
    if not lacks_dot and (found := shape.pattern.match(text, at, at + 9000)):
        rest = text[at + len(shape.prefix) : found.end()]
        stop = _extend_token(text, max(end, found.end()))
    elif end - at > _MAX_SPLIT_CHARS or not _is_split(text, at):
        return None
    else:
        window = text[at : at + _MAX_SPLIT_CHARS]
        if shape.needs_dot and "." not in window:
            return None
        joined, ends = _join_pieces(window)
        if len(ends) < 2 or not (found := shape.pattern.match(joined)):
            return None
        rest = joined[len(shape.prefix) : found.end()]
        stop = at + _map_position(found.end(), ends)
    if is_placeholder(rest) or not _is_random_enough(shape.prefix, rest):
        return None
    return make_secret_span(at, stop, shape.kind)


def _is_split(text: str, at: int) -> bool:
    """Return whether the token's characters end at a break."""
    found = _TOKEN_CHARS.match(text, at, at + _MAX_SPLIT_CHARS)
    end = found.end() if found else at
    return _TOKEN_BREAK.match(text, end) is not None or (
        text[end - 1] in ".+" and _TOKEN_BREAK.match(text, end - 1) is not None
    )


_WEAK_PREFIXES = frozenset(("s.", "00", "sk-", "pa-", "st."))  # also common in ordinary text


def _is_random_enough(prefix: str, rest: str) -> bool:
    """Return whether the prefix is long enough, or the rest random enough, for a token."""
    if len(prefix) >= 8:
        return any(letter.isdigit() for letter in rest) or len(set(rest)) > 8
    if prefix not in _WEAK_PREFIXES and rest[:20].isalnum() and not rest[:20].isalpha():
        return True
    if is_digest(rest) or (len(prefix) >= 5 and not rest.islower() and len(set(rest)) > 8):
        return True
    if len(prefix) > 1 and rest.isupper() and rest.isalnum():
        return compute_entropy(rest) >= 2.8 and (len(prefix) > 3 or not rest.isalpha())
    return is_random(rest) or is_random(rest[:40])


def _extend_token(text: str, end: int) -> int:
    """Return the end of a token that continues on the next lines, each of them random."""
    for _ in range(64):
        gap = _TOKEN_BREAK.match(text, end)
        if gap is None or gap.end() == end:
            return end
        following = _RUN_REST.match(text, gap.end())
        if following is None:
            return end
        stop = following.end()
        closes = text[stop : stop + 1] in ("", "\n", "\r", '"', "'", "\\")
        if not closes or not is_random(following.group(), 10):
            return end
        end = stop
    return end


def _join_pieces(window: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the window without its breaks, and the end of each piece in both texts."""
    pieces: list[str] = []
    ends: list[tuple[int, int]] = []
    size = at = 0
    for gap in islice(_TOKEN_BREAK.finditer(window), 12):
        pieces.append(window[at : gap.start()])
        size += gap.start() - at
        ends.append((size, gap.start()))
        at = gap.end()
    pieces.append(window[at:])
    ends.append((size + len(window) - at, len(window)))
    return "".join(pieces), ends


def _map_position(joined: int, ends: list[tuple[int, int]]) -> int:
    """Map a position in the joined window to the original window."""
    for size, end in ends:
        if joined <= size:
            return end - (size - joined)
    return ends[-1][1]
