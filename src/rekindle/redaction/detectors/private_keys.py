"""Secrets of several lines: private keys in all their forms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rekindle.redaction.scanner import NOTHING, Look, Span, Stems, secret

_BEGIN = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}\Z")
_END = re.compile(r"-{4,5} ?END [A-Z0-9 ]{0,40}\Z")
_STOP = re.compile(r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
# What a key's lines are made of, where its end is cut off. Breaks may be escaped, several times over.
_LINES = re.compile(
    r"(?:[ \t]{0,20}(?:[A-Za-z][A-Za-z-]{2,30}: [^\n\\]{1,120}|[A-Za-z0-9+/=_%-]{0,200})"
    r"(?:\r?\n|\\{1,8}r?n|\\{1,8}r\\{1,8}n|\Z|(?=[\"'`]))){0,2000}"
)
_ALPHABET = bytes(c for c in range(128) if chr(c).isalnum()) + b"+/="
_BREAK = re.compile(rb"(?:\r?\n|(?<!\\)\\{1,8}n)[ \t]{0,20}\Z")
_PUTTY = re.compile(
    r"private-lines: ?\d{1,4}(?:\r?\n|\\{1,8}n)"
    r"(?P<value>(?:[ \t]{0,20}[A-Za-z0-9+/=]{1,80}(?:\r?\n|\\{1,8}n|\Z|(?=[\"'`]))){1,400})",
    re.I,
)
_LONGEST = 40_000


def _block(look: Look, at: int) -> Iterable[Span]:
    """A private key: whole, without its end, or without its beginning."""
    at -= len("private ")
    return _key(look, at) if look.low.startswith(b"private key", max(0, at)) else NOTHING


def _key(look: Look, at: int) -> Iterator[Span]:
    text = look.text
    before = text[max(0, at - 60) : at]
    if begin := _BEGIN.search(before):
        yield secret(at - len(before) + begin.start(), _end(text, at), "private-key")
    elif end := _END.search(before):
        stop = at - len(before) + end.start()
        start = _tail(look.raw, max(0, stop - 8_000), stop)
        if start < stop:
            yield secret(start, stop, "private-key")


def _putty(look: Look, at: int) -> Iterator[Span]:
    if found := _PUTTY.match(look.text, at):
        yield secret(found.start("value"), found.end("value"), "private-key")


def _tail(raw: bytes, least: int, stop: int) -> int:
    """Where the lines of a key begin of which the last one ends here, going up line by line."""
    start = at = stop
    while gap := _BREAK.search(raw, max(least, at - 32), at):
        line = raw[max(least, gap.start() - 201) : gap.start()]
        size = len(line) - len(line.rstrip(_ALPHABET))
        if size < 20:
            break
        start = gap.start() - min(size, 200)
        at = gap.start() - size
        if line[-size:].startswith(b"n") and raw[max(least, at - 1) : at] == b"\\":
            if size <= 20:
                break
            at += 1  # the end of an escape
        if at < gap.start() - 200:
            break
    return start


def _end(text: str, at: int) -> int:
    """Where the key that begins here ends."""
    body = text.find("-", at + 11)
    while text[body : body + 1] == "-":
        body += 1
    following = text.find("BEGIN", at, at + _LONGEST)  # no key has another one in it
    limit = following if following >= 0 else at + _LONGEST
    if stop := _STOP.search(text, at, limit):
        return stop.end()
    lines = _LINES.match(text, body, limit)
    return max(body, lines.end() if lines else body)


STEMS: Stems = ((b"key", _block), (b"private-lines", _putty))
