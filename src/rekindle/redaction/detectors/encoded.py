"""Secrets inside an encoding: base64 that is meant to be decoded, percent-encoded text."""

from __future__ import annotations

import re
from binascii import Error, a2b_base64
from collections.abc import Callable, Iterator
from string import ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple
from urllib.parse import unquote

from rekindle.redaction.scanner import Look, Rule, Runs, Span, opens, secret

_DECODING = frozenset((b"base64", b"b64", b"atob("))
_KIND = b"kind: secret"
_LEAST = 12
# An image in which a run of base64 is a row of `a`.
_IMAGE = bytes(97 if (chr(c).isalnum() and c < 128) or chr(c) in "+/_-" else 32 for c in range(256))
_NEEDLE = b"a" * _LEAST
_LONGEST = 20_000
_RUN = Runs(r"[A-Za-z0-9+/_-]")
_ORDER = (ascii_uppercase + ascii_lowercase + digits + "+/").encode()
_STANDARD = bytes.maketrans(b"-_", b"+/")
# The first two letters of base64 that may decode to text: one byte and the beginning of another.
_TEXT = frozenset(
    bytes((_ORDER[first], _ORDER[second]))
    for first in range(64)
    for second in range(64)
    if (first < 32 and second % 16 // 4 != 2) or (first >= 48 and second % 16 // 4 == 2)
)
_TRIES = 8  # in one run: whoever writes a mark again and again shall not make us decode each rest
_BESIDE = bytes(c for c in range(33, 127) if chr(c) not in "\"'`<>&=?/%\\,;(){}[]")
_CODE = r"""%[0-9A-Fa-f]{2}[^\s"'`<>&=?/%]{0,400}"""
_PERCENT = re.compile(rf"{_CODE}(?:{_CODE}){{0,399}}")


class _Mark(NamedTuple):
    """What base64 begins with, and how much must and may follow; `whole` if no less than all."""

    letters: bytes
    least: int
    most: int
    whole: bool

    def end(self, look: Look, at: int) -> int:
        """Where it ends that begins here, 0 where it is something else."""
        start = at + len(self.letters)
        end = _RUN.end(look, start, len(look.raw))
        if end - start < self.least:
            return 0
        if end - start > self.most:
            return 0 if self.whole else start + self.most
        stop, is_whole = _padded(look.raw, end)
        return stop if is_whole or not self.whole else 0


_MARKS = (_Mark(b"eyJ", _LEAST, _LONGEST, True), _Mark(b"LS0tLS1CRUdJTi", 40, 40_000, False))


def wrapped(holds: Callable[[str], bool]) -> Rule:
    """A rule that asks `holds` whether there is a secret in what is decoded."""

    def rule(look: Look) -> Iterator[Span]:
        if _is_decoding(look):
            for start, end in _runs(look):
                if _tells(look.raw[start:end], holds):
                    yield secret(start, end, "base64")
        else:
            for mark in _MARKS:
                if mark.letters.lower() in look.places:
                    yield from _marked(look, mark, holds)
        for start, end in _encoded(look):
            if holds(unquote(look.text[start:end], errors="replace")):
                yield secret(start, end, "encoded")

    return rule


def _is_decoding(look: Look) -> bool:
    """Does the text speak of base64?"""
    found = look.places
    return not _DECODING.isdisjoint(found) or (b"secret" in found and _KIND in look.low)


def _runs(look: Look) -> Iterator[tuple[int, int]]:
    """All runs of base64 that are long enough and end as it ends."""
    image = look.raw.translate(_IMAGE)
    start = image.find(_NEEDLE)
    while start >= 0:
        end = image.find(b" ", start)
        end = len(image) if end < 0 else end
        stop, is_whole = _padded(look.raw, end)
        if is_whole and end - start <= _LONGEST:
            yield start, stop
        start = image.find(_NEEDLE, end)


def _marked(look: Look, mark: _Mark, holds: Callable[[str], bool]) -> Iterator[Span]:
    """Runs of base64 that say by their first letters what they are: JSON, or a key."""
    run = tries = done = 0
    for at in look.places[mark.letters.lower()]:
        if not (look.raw.startswith(mark.letters, at) and opens(look.text, at)):
            continue
        stop, end = mark.end(look, at), _RUN.end(look, at, len(look.raw))
        run, tries = end, (tries if end == run else 0)
        if stop <= done or tries == _TRIES:
            continue
        tries += 1
        if _tells(look.raw[at:stop], holds):
            done = stop
            yield secret(at, stop, "base64")


def _padded(raw: bytes, end: int) -> tuple[int, bool]:
    """Where the padding of a run ends, and whether the run is whole, as nothing else follows."""
    stop = end
    while stop < end + 2 and raw.startswith(b"=", stop):
        stop += 1
    follows = raw[stop : stop + 1]
    return stop, follows != b"=" and follows.translate(_IMAGE) != b"a"


def _encoded(look: Look) -> Iterator[tuple[int, int]]:
    """Stretches with percent-encoded characters in them."""
    if b"%" not in look.raw:
        return
    for found in _PERCENT.finditer(look.text):
        at = found.start()
        chunk = look.raw[max(0, at - 200) : at]
        yield at - (len(chunk) - len(chunk.rstrip(_BESIDE))), found.end()


def _tells(value: bytes, holds: Callable[[str], bool]) -> bool:
    value = value.rstrip(b"=").translate(_STANDARD)
    if value[:2] not in _TEXT:
        return False
    try:
        text = a2b_base64(value + b"===").decode("utf-8")
    except (Error, UnicodeDecodeError):
        return False
    return holds(text)
