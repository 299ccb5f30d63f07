"""Detects passwords and keys that code passes to a function."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rekindle.redaction.scanner import (
    NO_SPANS,
    Inspection,
    LiteralDetectors,
    RedactionSpan,
    ScanInput,
    make_secret_span,
)
from rekindle.redaction.vocabulary.entropy import is_placeholder
from rekindle.redaction.vocabulary.secret_names import classify_name

_A = r"""[bBrRuUf@]{0,2}\\{0,3}["'`][^"'`\n\\]{0,80}\\{0,3}["'`]"""  # an argument
_S = r"[ \n]{0,8},[ \n]{0,8}"
_P = r"""[bBrRuUf@]{0,2}\\{0,3}["'`](?P<value>[^"'`\n\\]{4,200})\\{0,3}["'`]"""  # the secret argument
_HEX_KEY = r"""\\{0,3}["'`](?P<value>[0-9A-Fa-f]{32,128})\\{0,3}["'`]"""

# A literal, and the pattern that begins with it.
_CALLS: tuple[tuple[bytes, str], ...] = (
    (b"login", rf"login\([ ]?{_A}{_S}{_P}"),
    (b"auth", rf"auth(?:enticate)?\([ ]?{_A}{_S}{_P}"),
    (b"basicauth", rf"basicauth\([ ]?{_A}{_S}{_P}"),
    (b"auth", rf"authentication\([ ]?{_A}{_S}{_P}"),
    (b"cred", rf"credentials?\([ ]?{_A}{_S}{_P}"),
    (b"ftp(", rf"ftp\([ ]?{_A}{_S}{_A}{_S}{_P}"),
    (b"sql.connect", rf"sql\.connect\([ ]?{_A}{_S}{_A}{_S}{_P}"),
    (b"pass", rf"password\([ ]?{_P}"),
    (b"hashpw", rf"hashpw\([ ]?{_P}"),
    (b"aes.new", rf"aes\.new\([ ]?{_P}"),
    (b"hmac", rf"hmac(?:\.new)?\([ ]?(?:['\"]sha\d{{1,3}}['\"]{_S})?{_P}"),
    (b"jwt", rf"jwt\.(?:sign|encode|verify|decode)\([^\"'`\n()]{{1,80}},[ ]{{0,4}}{_P}"),
    (b"fromhex", rf"fromhex\([ ]?{_HEX_KEY}"),
)


def _make_inspection(expression: str) -> Inspection:
    pattern = re.compile(expression, re.I)

    def inspect(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
        found = pattern.match(scan.text, at)
        if found is None or not _is_secret_argument(found["value"]):
            return NO_SPANS
        return (make_secret_span(found.start("value"), found.end("value"), "password"),)

    return inspect


def _is_secret_argument(value: str) -> bool:
    if is_placeholder(value) or " " in value or value.startswith(("/", "http", "{", "$")):
        return False
    return classify_name(value) is None or any(letter.isdigit() for letter in value)


_SEND_KEYS = re.compile(rf"send_keys\([ ]?{_P}")


def _detect_typed_password(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    """Detect what is typed into the password field of a page."""
    if b"password" not in scan.lower[max(0, at - 60) : at]:
        return NO_SPANS
    if (found := _SEND_KEYS.match(scan.text, at)) and _is_secret_argument(found["value"]):
        return (make_secret_span(found.start("value"), found.end("value"), "password"),)
    return NO_SPANS


LITERAL_DETECTORS: LiteralDetectors = (
    *((stem, _make_inspection(call)) for stem, call in _CALLS),
    (b"send_keys", _detect_typed_password),
)
