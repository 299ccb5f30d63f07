"""Detects private keys in all their formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rekindle.redaction.scanner import (
    NO_SPANS,
    LiteralDetectors,
    RedactionSpan,
    ScanInput,
    make_secret_span,
)

_BEGIN_MARKER = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}\Z")
_END_MARKER = re.compile(r"-{4,5} ?END [A-Z0-9 ]{0,40}\Z")
_COMPLETE_END_MARKER = re.compile(r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
# The lines of a key whose end is missing. Line breaks may be escaped repeatedly.
_BODY_LINES = re.compile(
    r"(?:[ \t]{0,20}(?:[A-Za-z][A-Za-z-]{2,30}: [^\n\\]{1,120}|[A-Za-z0-9+/=_%-]{0,200})"
    r"(?:\r?\n|\\{1,8}r?n|\\{1,8}r\\{1,8}n|\Z|(?=[\"'`]))){0,2000}"
)
_BASE64_BYTES = bytes(c for c in range(128) if chr(c).isalnum()) + b"+/="
_LINE_BREAK = re.compile(rb"(?:\r?\n|(?<!\\)\\{1,8}n)[ \t]{0,20}\Z")
_PUTTY_KEY = re.compile(
    r"private-lines: ?\d{1,4}(?:\r?\n|\\{1,8}n)"
    r"(?P<value>(?:[ \t]{0,20}[A-Za-z0-9+/=]{1,80}(?:\r?\n|\\{1,8}n|\Z|(?=[\"'`]))){1,400})",
    re.I,
)
_MAX_KEY_CHARS = 40_000


def _detect_private_key(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    """Detect a private key: complete, or without its beginning or end."""
    at -= len("private ")
    return (
        _detect_pem_key(scan, at) if scan.lower.startswith(b"private key", max(0, at)) else NO_SPANS
    )


def _detect_pem_key(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    text = scan.text
    before = text[max(0, at - 60) : at]
    if begin := _BEGIN_MARKER.search(before):
        yield make_secret_span(
            at - len(before) + begin.start(), _find_key_end(text, at), "private-key"
        )
    elif end := _END_MARKER.search(before):
        stop = at - len(before) + end.start()
        start = _find_body_start(scan.raw, max(0, stop - 8_000), stop)
        if start < stop:
            yield make_secret_span(start, stop, "private-key")


def _detect_putty_key(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    if found := _PUTTY_KEY.match(scan.text, at):
        yield make_secret_span(found.start("value"), found.end("value"), "private-key")


def _find_body_start(raw: bytes, lower_bound: int, stop: int) -> int:
    """Return the start of the key lines that end at `stop`, walking up line by line."""
    start = at = stop
    while gap := _LINE_BREAK.search(raw, max(lower_bound, at - 32), at):
        line = raw[max(lower_bound, gap.start() - 201) : gap.start()]
        size = len(line) - len(line.rstrip(_BASE64_BYTES))
        if size < 20:
            break
        start = gap.start() - min(size, 200)
        at = gap.start() - size
        if line[-size:].startswith(b"n") and raw[max(lower_bound, at - 1) : at] == b"\\":
            if size <= 20:
                break
            at += 1  # the end of an escape
        if at < gap.start() - 200:
            break
    return start


def _find_key_end(text: str, at: int) -> int:
    """Return the end of the key that begins at `at`."""
    body = text.find("-", at + 11)
    while text[body : body + 1] == "-":
        body += 1
    following = text.find("BEGIN", at, at + _MAX_KEY_CHARS)  # a key does not contain another one
    limit = following if following >= 0 else at + _MAX_KEY_CHARS
    if stop := _COMPLETE_END_MARKER.search(text, at, limit):
        return stop.end()
    lines = _BODY_LINES.match(text, body, limit)
    return max(body, lines.end() if lines else body)


LITERAL_DETECTORS: LiteralDetectors = (
    (b"key", _detect_private_key),
    (b"private-lines", _detect_putty_key),
)
