"""Finds the tokens of `providers.py`: in runs of letters and digits that are long enough."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .chance import entropy, is_digest, is_placeholder, is_random
from .providers import SHAPES, Shape
from .spans import Look, Span, opens, secret

_LEAST = 20  # what providers issue is at least as long
_RUN = bytes.maketrans(
    bytes(range(256)),
    bytes(0x61 if (chr(c).isalnum() and c < 128) or chr(c) in "_-" else 0x20 for c in range(256)),
)
_NEEDLE = b"a" * _LEAST
_REACH = 600  # a token that is split over lines is looked for as far as this

_INSIDE = re.compile(r"[A-Za-z0-9_-]*\Z")
_STARTS = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]")
_END = re.compile(r"[A-Za-z0-9_-]*")
# Where a token is broken: the end of a line, an escaped one, two strings that are put together.
_BREAK = re.compile(
    r"""["']?[ \t]{0,8}(?:\\|\+|\.)?[ \t]{0,8}(?:\r?\n|\\r\\n|\\n)"""
    r"""[ \t]{0,40}(?:\+|\.|>)?[ \t]{0,8}["']?"""
    r"""|["'][ ]{0,4}\+[ ]{0,4}["']"""
)

# By the first two letters, for those that a run may begin with; the others end in a mark that is
# no part of a run, so the run begins behind them.
_BY_START: dict[str, list[Shape]] = {}
_MARKED: list[Shape] = []
for _shape in SHAPES:
    if _INSIDE.match(_shape.prefix):
        _BY_START.setdefault(_shape.prefix[:2], []).append(_shape)
    else:
        _MARKED.append(_shape)
_MARKS = tuple(_shape.prefix for _shape in _MARKED)

# Tokens without first letters of their own. Each is tried where a run begins.
_WHOLE = re.compile(
    r"""(?P<mailchimp>[0-9a-f]{32}-us\d{1,2}(?![\w-]))
      | (?P<discord>[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}(?![\w-]))
      | (?P<azure>[A-Za-z0-9]{40,80}(?:AZDO|JQQJ9|ACDb|ACRD)[A-Za-z0-9]{4,30}={0,2}(?![\w-]))
    """,
    re.X,
)
# What stands before a run makes it a token: `123456789:AA…`. By the character right before it.
_BEFORE = {
    ":": re.compile(
        r"(?P<telegram>(?<!\d)\d{8,12}:AA[A-Za-z0-9_-]{30,40})"
        r"|(?P<asana>[12]/\d{12,20}(?:/\d{12,20})?:[0-9a-f]{32})"
    ),
    ".": re.compile(
        r"(?P<airtable>pat[A-Za-z0-9]{14}\.[0-9a-f]{64})"
        r"|(?P<terraform>[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{40,100})"
    ),
    "$": re.compile(r"(?P<paypal>access_token\$\w{4,12}\$[A-Za-z0-9]{16}\$[0-9a-f]{32})"),
    "!": re.compile(r"(?P<salesforce>00D[A-Za-z0-9]{12,15}![A-Za-z0-9._]{40,200})"),
    "~": re.compile(r"(?P<azure>[A-Za-z0-9_.~-]{3}\dQ~[A-Za-z0-9_.~-]{31,40})"),
}


def tokens(look: Look) -> Iterator[Span]:
    """Tokens of known providers."""
    image = look.raw.translate(_RUN)
    start = image.find(_NEEDLE)
    while start >= 0:
        end = image.find(b" ", start)
        end = len(image) if end < 0 else end
        if _is_name(look.raw[start:end]):
            start = image.find(_NEEDLE, end)
            continue
        for found in _in_run(look.text, start, end):
            yield found
            end = max(end, found.end)
        start = image.find(_NEEDLE, end)


def _is_name(run: bytes) -> bool:
    """Words in small letters or in capitals, without a digit: `a_long_name_of_something`."""
    letters = run.replace(b"_", b"").replace(b"-", b"")
    return letters.isalpha() and (letters.islower() or (letters.isupper() and letters != run))


def _in_run(text: str, start: int, end: int) -> Iterator[Span]:
    if found := _whole(text, start):
        yield found
        return
    for at in _candidates(text, start, end):
        for shape in _BY_START.get(text[at : at + 2], ()):
            if text.startswith(shape.prefix, at) and (found := _token(text, at, end, shape)):
                yield found
                return
    before = text[max(0, start - 24) : start]
    if before.endswith(_MARKS):
        for shape in _MARKED:
            at = start - len(shape.prefix)
            if before.endswith(shape.prefix) and opens(text, at):
                found = _token(text, at, end, shape)
                if found is not None:
                    yield found


def _candidates(text: str, start: int, end: int) -> Iterator[int]:
    """Where in a run a token may begin: at its start, behind an escape, behind `_` or `-`."""
    for word in _STARTS.finditer(text, start, end):
        yield word.start()
    if start and text[start - 1] in "\\%[u":
        yield from (at for at in range(start + 1, min(start + 6, end)) if opens(text, at))


def _whole(text: str, start: int) -> Span | None:
    if (found := _WHOLE.match(text, start)) and found.lastgroup:
        return secret(start, found.end(), found.lastgroup)
    shape = _BEFORE.get(text[start - 1]) if start else None
    if shape and (found := shape.search(text, max(0, start - 64), start + 320)):
        return secret(found.start(), found.end(), found.lastgroup or "token")
    return None


def _token(text: str, at: int, end: int, shape: Shape) -> Span | None:
    """The token of that shape which begins here, in a run that ends there, or goes on below."""
    if found := shape.pattern.match(text, at, at + 9000):
        rest = text[at + len(shape.prefix) : found.end()]
        stop = _more(text, max(end, found.end()))
    elif end - at > _REACH:
        return None
    else:
        window = text[at : at + _REACH]
        joined, ends = _joined(window)
        if len(ends) < 2 or not (found := shape.pattern.match(joined)):
            return None
        rest = joined[len(shape.prefix) : found.end()]
        stop = at + _place(found.end(), ends)
    if is_placeholder(rest) or not _is_drawn(shape.prefix, rest):
        return None
    return secret(at, stop, shape.kind)


_FAINT = frozenset(("s.", "00", "sk-", "pa-", "st."))  # ordinary text has them too


def _is_drawn(prefix: str, rest: str) -> bool:
    """Long first letters speak for themselves; after short ones the rest must be random."""
    if len(prefix) >= 8:
        return any(letter.isdigit() for letter in rest) or len(set(rest)) > 8
    if prefix not in _FAINT and rest[:20].isalnum() and not rest[:20].isalpha():
        return True
    if is_digest(rest) or (len(prefix) >= 5 and not rest.islower() and len(set(rest)) > 8):
        return True
    if len(prefix) > 1 and rest.isupper() and rest.isalnum():
        return entropy(rest) >= 2.8 and (len(prefix) > 3 or not rest.isalpha())
    return is_random(rest) or is_random(rest[:40])


def _more(text: str, end: int) -> int:
    """The end of a token whose rest stands on the next lines, each of them random and nothing else."""
    for _ in range(64):
        gap = _BREAK.match(text, end)
        if gap is None or gap.end() == end:
            return end
        following = _END.match(text, gap.end())
        if following is None:
            return end
        stop = following.end()
        closes = text[stop : stop + 1] in ("", "\n", "\r", '"', "'", "\\")
        if not closes or not is_random(following.group(), 10):
            return end
        end = stop
    return end


def _joined(window: str) -> tuple[str, list[tuple[int, int]]]:
    """The window without its breaks, and for each piece where it ends: there, and in the window."""
    pieces: list[str] = []
    ends: list[tuple[int, int]] = []
    size = at = 0
    for gap in _BREAK.finditer(window):
        pieces.append(window[at : gap.start()])
        size += gap.start() - at
        ends.append((size, gap.start()))
        at = gap.end()
    pieces.append(window[at:])
    ends.append((size + len(window) - at, len(window)))
    return "".join(pieces), ends


def _place(joined: int, ends: list[tuple[int, int]]) -> int:
    """Where a place in the joined window is in the window itself."""
    for size, end in ends:
        if joined <= size:
            return end - (size - joined)
    return ends[-1][1]
