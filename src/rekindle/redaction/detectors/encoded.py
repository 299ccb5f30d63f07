"""Detects secrets inside base64, base32, hexadecimal, percent-encoding, and other escapes."""

from __future__ import annotations

import re
from base64 import b32decode
from binascii import Error, a2b_base64, a2b_hex
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from urllib.parse import unquote

from rekindle.redaction.scanner import (
    NO_SPANS,
    Candidates,
    Detector,
    Inspection,
    RedactionSpan,
    ScanInput,
    find_matches,
    find_positions,
    find_run_end,
    make_secret_span,
)

ContainsSecret = Callable[[str], bool]

_MAX_RUN_CHARS = 40_000  # a longer text is removed without a look at it
_DECODE_COST = 8.0  # what was decoded is searched by all detectors
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_TEXT_BYTES = bytes(range(32, 127)) + b"\t\n\r"
_TEXT_OR_NULL = _TEXT_BYTES + b"\0"
_HEX_BYTES = b"0123456789abcdef"
_HEX_RUN = re.compile(rb"(?:0x)?((?:[0-9a-f]{2}){8,20000}|(?:[0-9A-F]{2}){8,20000})(?![0-9A-Za-z])")
_BASE32_RUN = re.compile(rb"[A-Z2-7]{16,4000}(?![0-9A-Za-z])")
_MAX_DECODES_PER_RUN = 8  # bounds the cost of a run that repeats a prefix
_EMBEDDED = re.compile(rb"eyJ|LS0tLS1CRUdJTi")  # base64 of JSON, and of a key
_ADJACENT_BYTES = bytes(c for c in range(33, 127) if chr(c) not in "\"'`<>&=?/%\\,;(){}[]")
_PERCENT_CODE = r"""%[0-9A-Fa-f]{2}[^\s"'`<>&=?/%]{0,400}"""
_PERCENT_ENCODED = re.compile(rf"{_PERCENT_CODE}(?:{_PERCENT_CODE}){{0,399}}")


def make_encoded_detector(contains_secret: ContainsSecret) -> Detector:
    """Make a detector that passes decoded text to `contains_secret`."""
    inspect_run = _make_run_inspection(contains_secret)
    inspect_percent = _make_percent_inspection(contains_secret)
    inspect_escapes = _make_escape_inspection(contains_secret)

    def detect(scan: ScanInput) -> Sequence[Candidates]:
        found: list[Candidates] = []
        raw = scan.raw
        if scan.runs and (runs := _find_text_runs(scan)):
            found.append(Candidates(runs, inspect_run, _DECODE_COST))
        if b"%" in raw and (codes := find_matches(scan, _PERCENT_ENCODED)):
            found.append(Candidates(codes, inspect_percent, _DECODE_COST))
        if (b"\\" in raw or b"&#" in raw or b"[1" in raw) and (escapes := _find_escapes(scan)):
            found.append(Candidates(escapes, inspect_escapes, _DECODE_COST))
        return found

    return detect


# ── base64, base32 and hexadecimal


def _find_text_runs(scan: ScanInput) -> list[int]:
    """Return where runs of letters and digits begin that may decode to text."""
    raw = scan.raw
    return [start for start, end in scan.runs if _may_decode(raw, start, end)]


def _may_decode(raw: bytes, start: int, end: int) -> bool:
    """Return whether the first characters of a run decode to text, or it embeds what does."""
    head = raw[start : start + 16]
    if head.islower():
        return not head.translate(None, _HEX_BYTES)
    if head.isupper() and head.isalnum():
        return True
    try:
        first = a2b_base64(head[:12].translate(_TO_STANDARD))
    except Error:
        return False
    if first.translate(None, _TEXT_OR_NULL):
        return end - start > 32 and _EMBEDDED.search(raw, start, end) is not None
    return True


def _make_run_inspection(contains_secret: ContainsSecret) -> Inspection:
    def inspect(scan: ScanInput, start: int) -> Iterable[RedactionSpan]:
        end = find_run_end(scan, start)
        stop = _find_padding_end(scan.raw, end)
        if end - start > _MAX_RUN_CHARS:
            is_text = _decode_base64(scan.raw[start:stop]) or _decode_hex(scan.raw[start:stop])
            return (make_secret_span(start, stop, "encoded"),) if is_text else NO_SPANS
        for at, text in _iter_decoded(scan.raw, start, stop):
            if contains_secret(text):
                return (make_secret_span(at, stop, "encoded"),)
        return NO_SPANS

    return inspect


def _find_padding_end(raw: bytes, end: int) -> int:
    stop = end
    while stop < end + 6 and raw.startswith(b"=", stop):
        stop += 1
    return stop


def _iter_decoded(raw: bytes, start: int, stop: int) -> Iterator[tuple[int, str]]:
    """Yield the texts that a run decodes to, each with its position."""
    value = raw[start:stop]
    if text := _decode_base64(value):
        yield start, text
    if found := _HEX_RUN.match(value):
        if text := _decode_hex(found[1]):
            yield start, text
    elif (found := _BASE32_RUN.match(value)) and (text := _decode_base32(found.group())):
        yield start, text
    for count, embedded in enumerate(_EMBEDDED.finditer(value)):
        if count == _MAX_DECODES_PER_RUN:
            break
        if embedded.start() and (text := _decode_base64(value[embedded.start() :])):
            yield start + embedded.start(), text


def _decode_base64(value: bytes) -> str:
    value = value.rstrip(b"=").translate(_TO_STANDARD)
    if len(value) % 4 == 1:
        value = value[:-1]
    try:
        return _to_text(a2b_base64(value + b"=="))
    except Error:
        return ""


def _decode_hex(value: bytes) -> str:
    try:
        return _to_text(a2b_hex(value[: len(value) // 2 * 2]))
    except Error:
        return ""


def _decode_base32(value: bytes) -> str:
    try:
        return _to_text(b32decode(value + b"=" * (-len(value) % 8)))
    except Error:
        return ""


def _to_text(data: bytes) -> str:
    """Return the bytes as text, also if they are UTF-16, or nothing if they are not text."""
    if b"\0" in data:
        data = data[::2] if not data[1::2].strip(b"\0") else b"\xff"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() or not data.translate(None, _TEXT_BYTES) else ""


# ── percent-encoding


def _make_percent_inspection(contains_secret: ContainsSecret) -> Inspection:
    def inspect(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
        found = _PERCENT_ENCODED.match(scan.text, at)
        if found is None:
            return NO_SPANS
        chunk = scan.raw[max(0, at - 200) : at]
        start = at - (len(chunk) - len(chunk.rstrip(_ADJACENT_BYTES)))
        if contains_secret(unquote(scan.text[start : found.end()], errors="replace")):
            return (make_secret_span(start, found.end(), "encoded"),)
        return NO_SPANS

    return inspect


# ── escapes of single characters: \x67 \147 \u0067 &#103;, and lists of their codes

_ONE_ESCAPE = (
    r"(?:\\{1,4}(?:x[2-7][0-9A-Fa-f]|u00[2-7][0-9A-Fa-f]|[01][0-7]{2})|&\#x?[0-9A-Fa-f]{2,3};)"
)
_ESCAPED = re.compile(rf"""{_ONE_ESCAPE}(?:{_ONE_ESCAPE}|[\w"':=. /+@!$*?\#-]){{5,2000}}+""", re.X)
_ESCAPE = re.compile(_ONE_ESCAPE, re.X)
_CODE = r"(?:3[2-9]|[4-9]\d|1[01]\d|12[0-6])"
_CODES = re.compile(rf"\[(?:{_CODE},[ ]?){{11,2000}}+{_CODE}?")
_NAME_BEFORE = re.compile(r"[\w-]{1,40}[ \"']{0,2}[:=]?[ \"']{0,2}\Z")


def _find_escapes(scan: ScanInput) -> list[int]:
    """Return where stretches of escaped characters begin."""
    raw, found = scan.raw, list[int]()
    if b"\\x" in raw or b"\\u00" in raw or b"\\1" in raw or b"&#" in raw:
        found += find_matches(scan, _ESCAPED)
    if b"[1" in raw:
        found += [at for at in find_positions(scan, raw, b"[1") if _CODES.match(scan.text, at)]
    return found


def _make_escape_inspection(contains_secret: ContainsSecret) -> Inspection:
    def inspect(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
        if found := _CODES.match(scan.text, at):
            codes = found.group()[1:].rstrip(", ").split(",")
            text = "".join(chr(int(code)) for code in codes)
        elif found := _ESCAPED.match(scan.text, at):
            before = _NAME_BEFORE.search(scan.text, max(0, at - 40), at)
            text = (before.group() if before else "") + _decode_escapes(found.group())
        else:
            return NO_SPANS
        return (
            (make_secret_span(at, found.end(), "encoded"),) if contains_secret(text) else NO_SPANS
        )

    return inspect


_REPEATED_BACKSLASHES = re.compile(r"\\{2,4}(?=[xu01])")
_ENTITY = re.compile(r"&\#x?[0-9A-Fa-f]{2,3};")


def _decode_escapes(text: str) -> str:
    """Return the text that stands in escapes."""
    if "&#" in text:
        text = _ENTITY.sub(_decode_entity, text)
    if "\\" not in text:
        return text
    text = _REPEATED_BACKSLASHES.sub(r"\\", text)
    try:
        return text.encode("latin-1", "replace").decode("unicode_escape")
    except UnicodeDecodeError:  # a backslash at the end, or an escape that is cut
        return _ESCAPE.sub(_decode_escape, text)


def _decode_entity(found: re.Match[str]) -> str:
    return _parse_entity(found.group())


@lru_cache(4096)
def _parse_entity(entity: str) -> str:
    digits = entity[2:-1]
    is_decimal = digits.isdigit() and not digits.startswith("x")
    return chr(int(digits, 10) if is_decimal else int(digits.removeprefix("x"), 16))


def _decode_escape(found: re.Match[str]) -> str:
    code = found.group().lstrip("\\")
    if code.startswith("&"):
        return code
    return chr(int(code[1:], 16)) if code[0] in "xu" else chr(int(code, 8))
