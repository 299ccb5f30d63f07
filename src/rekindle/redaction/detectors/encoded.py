"""Detects secrets inside base64 or percent-encoding."""

from __future__ import annotations

import re
from binascii import Error, a2b_base64
from collections.abc import Callable, Iterator
from string import ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple
from urllib.parse import unquote

from rekindle.redaction.scanner import (
    CharRuns,
    Detector,
    RedactionSpan,
    ScanInput,
    can_start_token,
    make_secret_span,
)

_BASE64_LITERALS = frozenset((b"base64", b"b64", b"atob("))
_KUBERNETES_SECRET = b"kind: secret"
_MIN_RUN_CHARS = 12
# Maps base64 characters to `a` and the rest to blanks.
_RUN_IMAGE = bytes(
    97 if (chr(c).isalnum() and c < 128) or chr(c) in "+/_-" else 32 for c in range(256)
)
_MIN_RUN = b"a" * _MIN_RUN_CHARS
_MAX_RUN_CHARS = 20_000
_RUN = CharRuns(r"[A-Za-z0-9+/_-]")
_ALPHABET = (ascii_uppercase + ascii_lowercase + digits + "+/").encode()
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
# The first two base64 characters that may decode to text: one byte and the start of the next.
_TEXT_STARTS = frozenset(
    bytes((_ALPHABET[first], _ALPHABET[second]))
    for first in range(64)
    for second in range(64)
    if (first < 32 and second % 16 // 4 != 2) or (first >= 48 and second % 16 // 4 == 2)
)
_MAX_DECODES_PER_RUN = 8  # bounds the cost of a run that repeats a prefix
_ADJACENT_BYTES = bytes(c for c in range(33, 127) if chr(c) not in "\"'`<>&=?/%\\,;(){}[]")
_PERCENT_CODE = r"""%[0-9A-Fa-f]{2}[^\s"'`<>&=?/%]{0,400}"""
_PERCENT_ENCODED = re.compile(rf"{_PERCENT_CODE}(?:{_PERCENT_CODE}){{0,399}}")


class _Base64Prefix(NamedTuple):
    """A prefix of base64 text, the length of the rest, and whether the run must be complete."""

    text: bytes
    min_chars: int
    max_chars: int
    must_be_whole: bool

    def find_end(self, scan: ScanInput, at: int) -> int:
        """Return the end of the base64 text that begins at `at`, or 0 if it is something else."""
        start = at + len(self.text)
        end = _RUN.find_end(scan, start, len(scan.raw))
        if end - start < self.min_chars:
            return 0
        if end - start > self.max_chars:
            return 0 if self.must_be_whole else start + self.max_chars
        stop, is_whole = _find_padding_end(scan.raw, end)
        return stop if is_whole or not self.must_be_whole else 0


_BASE64_PREFIXES = (
    _Base64Prefix(b"eyJ", _MIN_RUN_CHARS, _MAX_RUN_CHARS, True),
    _Base64Prefix(b"LS0tLS1CRUdJTi", 40, 40_000, False),
)


def make_encoded_detector(contains_secret: Callable[[str], bool]) -> Detector:
    """Make a detector that passes decoded text to `contains_secret`."""

    def detect(scan: ScanInput) -> Iterator[RedactionSpan]:
        if _mentions_base64(scan):
            for start, end in _iter_base64_runs(scan):
                if _decodes_to_secret(scan.raw[start:end], contains_secret):
                    yield make_secret_span(start, end, "base64")
        else:
            for prefix in _BASE64_PREFIXES:
                if prefix.text.lower() in scan.literal_positions:
                    yield from _detect_prefixed(scan, prefix, contains_secret)
        for start, end in _iter_percent_encoded(scan):
            if contains_secret(unquote(scan.text[start:end], errors="replace")):
                yield make_secret_span(start, end, "encoded")

    return detect


def _mentions_base64(scan: ScanInput) -> bool:
    """Return whether the text mentions base64."""
    found = scan.literal_positions
    return not _BASE64_LITERALS.isdisjoint(found) or (
        b"secret" in found and _KUBERNETES_SECRET in scan.lower
    )


def _iter_base64_runs(scan: ScanInput) -> Iterator[tuple[int, int]]:
    """Yield complete runs of base64 that are long enough."""
    image = scan.raw.translate(_RUN_IMAGE)
    start = image.find(_MIN_RUN)
    while start >= 0:
        end = image.find(b" ", start)
        end = len(image) if end < 0 else end
        stop, is_whole = _find_padding_end(scan.raw, end)
        if is_whole and end - start <= _MAX_RUN_CHARS:
            yield start, stop
        start = image.find(_MIN_RUN, end)


def _detect_prefixed(
    scan: ScanInput, prefix: _Base64Prefix, contains_secret: Callable[[str], bool]
) -> Iterator[RedactionSpan]:
    """Detect runs of base64 whose prefix identifies them as JSON or a key."""
    run = decodes = done = 0
    for at in scan.literal_positions[prefix.text.lower()]:
        if not (scan.raw.startswith(prefix.text, at) and can_start_token(scan.text, at)):
            continue
        stop, end = prefix.find_end(scan, at), _RUN.find_end(scan, at, len(scan.raw))
        run, decodes = end, (decodes if end == run else 0)
        if stop <= done or decodes == _MAX_DECODES_PER_RUN:
            continue
        decodes += 1
        if _decodes_to_secret(scan.raw[at:stop], contains_secret):
            done = stop
            yield make_secret_span(at, stop, "base64")


def _find_padding_end(raw: bytes, end: int) -> tuple[int, bool]:
    """Return the end of a run's padding, and whether the run is complete."""
    stop = end
    while stop < end + 2 and raw.startswith(b"=", stop):
        stop += 1
    follows = raw[stop : stop + 1]
    return stop, follows != b"=" and follows.translate(_RUN_IMAGE) != b"a"


def _iter_percent_encoded(scan: ScanInput) -> Iterator[tuple[int, int]]:
    """Yield stretches that contain percent-encoded characters."""
    if b"%" not in scan.raw:
        return
    for found in _PERCENT_ENCODED.finditer(scan.text):
        at = found.start()
        chunk = scan.raw[max(0, at - 200) : at]
        yield at - (len(chunk) - len(chunk.rstrip(_ADJACENT_BYTES))), found.end()


def _decodes_to_secret(value: bytes, contains_secret: Callable[[str], bool]) -> bool:
    value = value.rstrip(b"=").translate(_TO_STANDARD)
    if value[:2] not in _TEXT_STARTS:
        return False
    try:
        text = a2b_base64(value + b"===").decode("utf-8")
    except (Error, UnicodeDecodeError):
        return False
    return contains_secret(text)
