"""What a client says to show who it is: Authorization, bearers, cookies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .chance import is_placeholder, is_random
from .files import is_login
from .spans import Look, Span, Stems, secret

_GAP = r"(?:[ \t]|%20|\+|\\t){1,4}"
_BEARER = re.compile(rf"bearer{_GAP}[\"'`]?([A-Za-z0-9._~+/=%-]{{8,4000}})", re.I)
_BASIC = re.compile(rf"basic{_GAP}([A-Za-z0-9+/_-]{{8,2000}}={{0,2}})", re.I)
_HEADER = re.compile(
    r"""authorization(?:\\{0,7}["']\]?)?[ \t]{0,4}(?::|=>?|,|%3[Aa])[ \t]{0,4}(?:%20)?
        \\{0,7}["'`]?
        (?P<scheme>(?:bearer|basic|token|digest|apikey|api-key|key|bot|negotiate|ntlm|hawk|oauth|splunk
           |sso-key|genie-?key|klaviyo-api-key|discogs|aws4-hmac-sha256|aws|sharedkey(?:lite)?)[ ]{1,4})?
        (?P<value>[^\s"'`\\<>][^"'`\n\\]{3,4000})""",
    re.X | re.I,
)
_ANSWER = re.compile(r"response=\W{0,6}([0-9a-f]{16,128})")  # of a digest
_COOKIE = re.compile(
    r"""cookie(?:\\{0,7}["']\]?)?[ \t]{0,4}(?::|=|[ ])[ \t]{0,4}\\{0,7}["'`]?
        (?P<value>[\w.!$%*+^|~-]{1,80}=[^"'`\n\\\s;,]{4,4000}(?:;[ ]?[^"'`\n\\;]{1,4000}){0,60})""",
    re.X | re.I,
)


def _bearer(look: Look, at: int) -> Iterator[Span]:
    if (found := _BEARER.match(look.text, at)) and _is_token(found[1]):
        yield secret(found.start(1), found.end(1), "bearer")


def _basic(look: Look, at: int) -> Iterator[Span]:
    if (found := _BASIC.match(look.text, at)) and is_login(found[1]):
        yield secret(found.start(1), found.end(1), "basic-auth")


def _authorization(look: Look, at: int) -> Iterator[Span]:
    found = _HEADER.match(look.text, at)
    if found is None:
        return
    if one := _credentials(found):
        yield one
    is_digest = (found["scheme"] or "").lower().startswith("digest")
    if is_digest and (answer := _ANSWER.search(look.text, found.end(), found.end() + 1000)):
        yield secret(answer.start(1), answer.end(1), "authorization")


def _cookie(look: Look, at: int) -> Iterator[Span]:
    if found := _COOKIE.match(look.text, at):
        yield secret(found.start("value"), found.end("value"), "cookie")


def _is_token(value: str) -> bool:
    value = value.rstrip(".")
    return not is_placeholder(value) and (
        is_random(value, 8) or (len(value) > 19 and not value.isalpha())
    )


def _credentials(found: re.Match[str]) -> Span | None:
    value = found["value"]
    if is_placeholder(value):
        return None
    if found["scheme"]:
        if found["scheme"].strip().lower() not in ("digest", "aws4-hmac-sha256", "hawk", "oauth"):
            value = value.split(" ")[0]
        if not any(letter.isdigit() for letter in value) and len(value) < 20:
            return None
    else:
        value = value.split(" ")[0].rstrip(",;")
        if not is_random(value, 8):
            return None
    start = found.start("value")
    return secret(start, start + len(value), "authorization")


STEMS: Stems = (
    (b"bearer", _bearer),
    (b"basic", _basic),
    (b"auth", _authorization),
    (b"cookie", _cookie),
)
