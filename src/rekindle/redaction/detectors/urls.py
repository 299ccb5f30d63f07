"""Detects secrets in URLs: passwords, webhooks, signatures, connection strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rekindle.redaction.scanner import (
    NO_SPANS,
    CharRuns,
    LiteralDetectors,
    RedactionSpan,
    ScanInput,
    make_secret_span,
)
from rekindle.redaction.vocabulary.entropy import is_digest, is_placeholder, is_random

_USER_AND_PASSWORD = re.compile(
    r"""[^\s:/@"'`<>\\?\#()\[\]{},]{0,80}:(?P<password>[^\s"'`<>/\\]{1,400})@(?=[\w.\[{$*<-])""",
    re.X,
)
_TOKEN_ONLY = re.compile(r"""(?P<token>[A-Za-z0-9_.~-]{16,400}):?@(?=[\w.-])""")
# A cheap first check: both patterns need an `@`.
_HAS_AT_SIGN = re.compile(r"""[^\s"'`<>/\\@]{1,482}+@""")
_URL_REST = CharRuns(r"""[^\s"'`<>\\)\]}|,]""")
_LONG_PART = re.compile(r"[A-Za-z0-9_-]{16,}")
_PART_IMAGE = bytes(
    97 if (chr(c).isalnum() and c < 128) or chr(c) in "_-" else 32 for c in range(256)
)
_MIN_PART = b"a" * 16
_PICTURE = re.compile(rb"\.(?:png|svg|jpe?g|gif|webp|md|html)\b")
_PARAMETER = CharRuns(r"[A-Za-z0-9%._~+/=-]")
_ORACLE_THIN = re.compile(r"thin:(?P<user>[^\s/@\"']{1,80})/(?P<password>[^\s@\"']{1,200})@", re.I)


def _detect_login(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    return _detect_credentials(scan.text, at + len("://"))


def _detect_escaped_login(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    return _detect_credentials(scan.text, at + len(":\\/\\/"))


def _detect_parameter(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    if scan.text[at - 1 : at] not in ("?", "&", ";"):
        return NO_SPANS
    sign = scan.text.find("=", at, at + 5)
    if sign <= 0:
        return NO_SPANS
    start = sign + 1
    end = _PARAMETER.find_end(scan, start, 2000)
    if end - start < 10 or not is_random(scan.text[start:end], 16):
        return NO_SPANS
    return (make_secret_span(start, end, "url-parameter"),)


def _detect_oracle_thin(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    if (found := _ORACLE_THIN.match(scan.text, at)) and not is_placeholder(found["password"]):
        yield make_secret_span(found.start("password"), found.end("password"), "password")


def _detect_credentials(text: str, at: int) -> Iterable[RedactionSpan]:
    if _HAS_AT_SIGN.match(text, at) is None:
        return NO_SPANS
    if found := _USER_AND_PASSWORD.match(text, at):
        if not is_placeholder(found["password"]):
            return (make_secret_span(found.start("password"), found.end("password"), "password"),)
    elif (found := _TOKEN_ONLY.match(text, at)) and is_random(found["token"], 16):
        return (make_secret_span(found.start("token"), found.end("token"), "token"),)
    return NO_SPANS


def _detect_webhook(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    """Detect a webhook URL, from its first random path segment on: anyone who knows it can post."""
    near = scan.lower[max(0, at - 120) : at]
    scheme = near.rfind(b"//")
    if scheme < 0 or near.find(b" ", scheme) >= 0 or near.find(b"\n", scheme) >= 0:
        return
    end = _URL_REST.find_end(scan, at, 400)
    if _PICTURE.search(scan.lower, at, end):
        return
    if _MIN_PART not in scan.raw[at:end].translate(_PART_IMAGE):
        return
    for part in _LONG_PART.finditer(scan.text, at, end):
        if is_random(part.group(), 16) or is_digest(part.group()):
            yield make_secret_span(part.start(), end, "webhook")
            return


LITERAL_DETECTORS: LiteralDetectors = (
    (b"://", _detect_login),
    (b":\\/\\/", _detect_escaped_login),
    (b"hook", _detect_webhook),
    (b"key", _detect_parameter),
    (b"code=", _detect_parameter),
    (b"thin:", _detect_oracle_thin),
)
