"""Finds the tokens of `providers.py`: in runs of letters and digits that are long enough."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rekindle.redaction.scanner import NOTHING, Look, Span, opens, secret

from .entropy import entropy, is_digest, is_placeholder, is_random
from .providers import SHAPES, Shape

_LEAST = 20  # what providers issue is at least as long
_RUN = bytes.maketrans(
    bytes(range(256)),
    bytes(0x61 if (chr(c).isalnum() and c < 128) or chr(c) in "_-" else 0x20 for c in range(256)),
)
_NEEDLE = b"a" * _LEAST
_REACH = 600  # a token that is split over lines is looked for as far as this

_INSIDE = re.compile(r"[A-Za-z0-9_-]*\Z")
# What tokens are made of: where this ends, a token does, or is broken.
_TOKEN = re.compile(r"[A-Za-z0-9_.%/+=,:-]*+")
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
_LAST = frozenset(_mark[-1] for _mark in _MARKS)
_SECOND = {
    first: "".join(sorted(start[1] for start in _BY_START if start[0] == first))
    for first in sorted({start[0] for start in _BY_START})
}
# Where in a run a token may begin, other than at its start.
_STARTS = re.compile(
    "[_-](?=" + "|".join(f"{first}[{second}]" for first, second in _SECOND.items()) + ")"
)

# Tokens without first letters of their own. Each is tried where a run begins.
_WHOLE = re.compile(
    r"""(?P<mailchimp>[0-9a-f]{32}-us\d{1,2}(?![\w-]))
      | (?P<discord>[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}(?![\w-]))
      | (?P<azure>[A-Za-z0-9]{40,80}(?:AZDO|JQQJ9|ACDb|ACRD)[A-Za-z0-9]{4,30}={0,2}(?![\w-]))
    """,
    re.X,
)
_LEAST_WHOLE = 36  # the shortest of them, but for the one in which a dot follows the run


def _shaped(literals: tuple[str, ...], pattern: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    return literals, re.compile(pattern)


# What stands before a run makes it a token: `123456789:AA…`. By the character right before it, with
# what every such token has in it, which is looked for first.
_BEFORE = {
    ":": _shaped(
        (":AA", "1/", "2/"),
        r"(?P<telegram>(?<!\d)\d{8,12}:AA[A-Za-z0-9_-]{30,40})"
        r"|(?P<asana>[12]/\d{12,20}(?:/\d{12,20})?:[0-9a-f]{32})",
    ),
    ".": _shaped(
        ("pat", ".atlasv1."),
        r"(?P<airtable>pat[A-Za-z0-9]{14}\.[0-9a-f]{64})"
        r"|(?P<terraform>[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{40,100})",
    ),
    "$": _shaped(
        ("access_token$",), r"(?P<paypal>access_token\$\w{4,12}\$[A-Za-z0-9]{16}\$[0-9a-f]{32})"
    ),
    "!": _shaped(("00D",), r"(?P<salesforce>00D[A-Za-z0-9]{12,15}![A-Za-z0-9._]{40,200})"),
    "~": _shaped(("Q~",), r"(?P<azure>[A-Za-z0-9_.~-]{3}\dQ~[A-Za-z0-9_.~-]{31,40})"),
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


def _in_run(text: str, start: int, end: int) -> Iterable[Span]:
    before = text[start - 1 : start]
    if found := _whole(text, start, end, before):
        return (found,)
    for at in _candidates(text, start, end):
        for shape in _BY_START.get(text[at : at + 2], ()):
            if text.startswith(shape.prefix, at) and (found := _token(text, at, end, shape)):
                return (found,)
    if before in _LAST and text.endswith(_MARKS, max(0, start - 24), start):
        return list(_marked(text, start, end))
    return NOTHING


def _marked(text: str, start: int, end: int) -> Iterator[Span]:
    for shape in _MARKED:
        at = start - len(shape.prefix)
        if text.endswith(shape.prefix, max(0, start - 24), start) and opens(text, at):
            found = _token(text, at, end, shape)
            if found is not None:
                yield found


def _candidates(text: str, start: int, end: int) -> list[int]:
    """Where in a run a token may begin: at its start, behind an escape, behind `_` or `-`."""
    found = [mark.end() for mark in _STARTS.finditer(text, start, end)]
    if text[start] not in "_-":
        found.insert(0, start)
    if start and text[start - 1] in "\\%[u":
        found += [at for at in range(start + 1, min(start + 6, end)) if opens(text, at)]
    return found


def _whole(text: str, start: int, end: int, before: str) -> Span | None:
    may_be = end - start >= _LEAST_WHOLE or text.startswith(".", end)
    if may_be and (found := _WHOLE.match(text, start)) and found.lastgroup:
        return secret(start, found.end(), found.lastgroup)
    if before not in _BEFORE:
        return None
    literals, pattern = _BEFORE[before]
    begin, stop = max(0, start - 64), start + 320
    if all(text.find(literal, begin, stop) < 0 for literal in literals):
        return None
    found = pattern.search(text, begin, stop)
    return secret(found.start(), found.end(), found.lastgroup or "token") if found else None


def _token(text: str, at: int, end: int, shape: Shape) -> Span | None:
    """The token of that shape which begins here, in a run that ends there, or goes on below."""
    dotted = shape.dotted and not text.startswith(".", end)  # it has a dot where the run ends
    if not dotted and (found := shape.pattern.match(text, at, at + 9000)):
        rest = text[at + len(shape.prefix) : found.end()]
        stop = _more(text, max(end, found.end()))
    elif end - at > _REACH or not _is_broken(text, at):
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


def _is_broken(text: str, at: int) -> bool:
    """Is there a break right behind the characters of a token?"""
    found = _TOKEN.match(text, at, at + _REACH)
    end = found.end() if found else at
    return _BREAK.match(text, end) is not None or (
        text[end - 1] in ".+" and _BREAK.match(text, end - 1) is not None
    )


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
