"""What a client says to show who it is: Authorization, bearers, cookies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rekindle.redaction.scanner import NOTHING, Look, Runs, Span, Stems, secret

from .credential_files import is_login
from .entropy import is_placeholder, is_random

_GAP = r"(?:[ \t]|%20|\+|\\t){1,4}"
_BEARER = re.compile(rf"bearer{_GAP}[\"'`]?(?=[A-Za-z0-9._~+/=%-]{{8}})", re.I)
_TOKEN = Runs(r"[A-Za-z0-9._~+/=%-]")
_BASIC = re.compile(rf"basic{_GAP}([A-Za-z0-9+/_-]{{8,2000}}={{0,2}})", re.I)
_HEADER = re.compile(
    r"""authorization(?:\\{0,7}["']\]?)?[ \t]{0,4}(?::|=>?|,|%3[Aa])[ \t]{0,4}(?:%20)?
        \\{0,7}["'`]?
        (?P<scheme>(?:bearer|basic|token|digest|apikey|api-key|key|bot|negotiate|ntlm|hawk|oauth|splunk
           |sso-key|genie-?key|klaviyo-api-key|discogs|aws4-hmac-sha256|aws|sharedkey(?:lite)?)[ ]{1,4})?
        (?=[^\s"'`\\<>][^"'`\n\\]{3})""",
    re.X | re.I,
)
_TO_THE_QUOTE = Runs(r"[^\"'`\n\\]")
_ANSWER = re.compile(r"response=\W{0,6}([0-9a-f]{16,128})")  # of a digest
_COOKIE = re.compile(
    r"""cookie(?:\\{0,7}["']\]?)?[ \t]{0,4}(?::|=|[ ])[ \t]{0,4}\\{0,7}["'`]?
        (?P<value>[\w.!$%*+^|~-]{1,80}=[^"'`\n\\\s;,]{4,4000}(?:;[ ]?[^"'`\n\\;]{1,4000}){0,60})""",
    re.X | re.I,
)


def _bearer(look: Look, at: int) -> Iterable[Span]:
    found = _BEARER.match(look.text, at)
    if found is None:
        return NOTHING
    start = found.end()
    end = _TOKEN.end(look, start, 4000)
    return (secret(start, end, "bearer"),) if _is_token(look.text[start:end]) else NOTHING


def _basic(look: Look, at: int) -> Iterable[Span]:
    if (found := _BASIC.match(look.text, at)) and is_login(found[1]):
        return (secret(found.start(1), found.end(1), "basic-auth"),)
    return NOTHING


def _authorization(look: Look, at: int) -> Iterable[Span]:
    if not look.low.startswith(b"authorization", at):
        return NOTHING
    found = _HEADER.match(look.text, at)
    if found is None:
        return NOTHING
    start = found.end()
    end = _TO_THE_QUOTE.end(look, start, 4001)
    scheme = (found["scheme"] or "").strip().lower()
    spans = list(_credentials(look.text[start:end], start, scheme))
    if scheme == "digest" and (answer := _ANSWER.search(look.text, end, end + 1000)):
        spans.append(secret(answer.start(1), answer.end(1), "authorization"))
    return spans


def _cookie(look: Look, at: int) -> Iterable[Span]:
    if found := _COOKIE.match(look.text, at):
        return (secret(found.start("value"), found.end("value"), "cookie"),)
    return NOTHING


def _is_token(value: str) -> bool:
    value = value.rstrip(".")
    return not is_placeholder(value) and (
        (len(value) > 19 and not value.isalpha()) or is_random(value, 8)
    )


def _credentials(value: str, start: int, scheme: str) -> Iterator[Span]:
    if is_placeholder(value):
        return
    if scheme:
        if scheme not in ("digest", "aws4-hmac-sha256", "hawk", "oauth"):
            value = value.partition(" ")[0]
        if len(value) < 20 and not any(letter.isdigit() for letter in value):
            return
    else:
        value = value.partition(" ")[0].rstrip(",;")
        if not is_random(value, 8):
            return
    yield secret(start, start + len(value), "authorization")


STEMS: Stems = (
    (b"bearer", _bearer),
    (b"basic", _basic),
    (b"auth", _authorization),
    (b"cookie", _cookie),
)
