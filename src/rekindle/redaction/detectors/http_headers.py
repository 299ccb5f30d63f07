"""Detects HTTP credentials: Authorization headers, bearer tokens, cookies."""

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
from rekindle.redaction.vocabulary.entropy import is_placeholder, is_random
from rekindle.redaction.vocabulary.secret_names import TOKEN
from rekindle.redaction.vocabulary.secret_values import is_given_secret

from .credential_files import is_base64_login

_GAP = r"(?:[ \t]|%20|\+|\\t){1,4}"
_BEARER = re.compile(rf"bearer{_GAP}[\"'`]?(?=[A-Za-z0-9._~+/=%-]{{8}})", re.I)
_QUOTED_BEARER = re.compile(r"bearer[ ]([\w.!#^*+/-]{4,80})(?P<quote>[\"'`])", re.I)
_TOKEN = CharRuns(r"[A-Za-z0-9._~+/=%-]")
_BASIC = re.compile(rf"basic{_GAP}([A-Za-z0-9+/_-]{{8,2000}}={{0,2}})", re.I)
_AUTHORIZATION = re.compile(
    r"""authorization(?:\\{0,7}["']\]?)?[ \t]{0,4}(?::|=>?|,|%3[Aa])[ \t]{0,4}(?:%20)?
        \\{0,7}["'`]?
        (?P<scheme>(?:bearer|basic|token|digest|apikey|api-key|key|bot|negotiate|ntlm|hawk|oauth|splunk
           |sso-key|genie-?key|klaviyo-api-key|discogs|aws4-hmac-sha256|aws|sharedkey(?:lite)?)[ ]{1,4})?
        (?=[^\s"'`\\<>][^"'`\n\\]{3})""",
    re.X | re.I,
)
_UNTIL_QUOTE = CharRuns(r"[^\"'`\n\\]")
_DIGEST_RESPONSE = re.compile(r"response=\W{0,6}([0-9a-f]{16,128})")  # of digest authentication
_COOKIE = re.compile(
    r"""cookie(?:\\{0,7}["']\]?)?[ \t]{0,4}(?::|=|[ ])[ \t]{0,4}\\{0,7}["'`]?
        (?P<value>[\w.!$%*+^|~-]{1,80}=[^"'`\n\\\s;,]{4,4000}(?:;[ ]?[^"'`\n\\;]{1,4000}){0,60})""",
    re.X | re.I,
)


def _detect_bearer(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    found = _BEARER.match(scan.text, at)
    if found is None:
        return _detect_quoted_bearer(scan, at)
    start = found.end()
    end = _TOKEN.find_end(scan, start, 4000)
    if _is_token(scan.text[start:end]):
        return (make_secret_span(start, end, "bearer"),)
    return _detect_quoted_bearer(scan, at)


def _detect_quoted_bearer(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    """Detect any word behind `Bearer` if both are a quoted text of their own."""
    found = _QUOTED_BEARER.match(scan.text, at)
    if found and scan.text[at - 1 : at] == found["quote"] and is_given_secret(TOKEN, found[1]):
        return (make_secret_span(found.start(1), found.end(1), "bearer"),)
    return NO_SPANS


def _detect_basic(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    if (found := _BASIC.match(scan.text, at)) and is_base64_login(found[1]):
        return (make_secret_span(found.start(1), found.end(1), "basic-auth"),)
    return NO_SPANS


def _detect_authorization(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    if not scan.lower.startswith(b"authorization", at):
        return NO_SPANS
    found = _AUTHORIZATION.match(scan.text, at)
    if found is None:
        return NO_SPANS
    start = found.end()
    end = _UNTIL_QUOTE.find_end(scan, start, 4001)
    scheme = (found["scheme"] or "").strip().lower()
    spans = list(_detect_credentials(scan.text[start:end], start, scheme))
    if scheme == "digest" and (response := _DIGEST_RESPONSE.search(scan.text, end, end + 1000)):
        spans.append(make_secret_span(response.start(1), response.end(1), "authorization"))
    return spans


def _detect_cookie(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    if found := _COOKIE.match(scan.text, at):
        return (make_secret_span(found.start("value"), found.end("value"), "cookie"),)
    return NO_SPANS


def _is_token(value: str) -> bool:
    value = value.rstrip(".")
    return not is_placeholder(value) and (
        (len(value) > 19 and not value.isalpha()) or is_random(value, 8)
    )


def _detect_credentials(value: str, start: int, scheme: str) -> Iterator[RedactionSpan]:
    if is_placeholder(value):
        return
    if scheme:
        if scheme not in ("digest", "aws4-hmac-sha256", "hawk", "oauth"):
            value = value.partition(" ")[0]
        is_word = len(value) < 20 and not any(letter.isdigit() for letter in value)
        if is_word and (scheme == "digest" or not is_given_secret(TOKEN, value)):
            return
    else:
        value = value.partition(" ")[0].rstrip(",;")
        if not is_random(value, 8):
            return
    yield make_secret_span(start, start + len(value), "authorization")


LITERAL_DETECTORS: LiteralDetectors = (
    (b"bearer", _detect_bearer),
    (b"basic", _detect_basic),
    (b"auth", _detect_authorization),
    (b"cookie", _detect_cookie),
)
