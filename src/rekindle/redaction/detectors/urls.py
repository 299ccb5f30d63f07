"""Secrets in addresses: passwords, webhooks, signatures, connection strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rekindle.redaction.scanner import NOTHING, Look, Runs, Span, Stems, secret

from .entropy import is_digest, is_placeholder, is_random

_USER = re.compile(
    r"""[^\s:/@"'`<>\\?\#()\[\]{},]{0,80}:(?P<password>[^\s"'`<>/\\]{1,400})@(?=[\w.\[{$*<-])""",
    re.X,
)
_ALONE = re.compile(r"""(?P<token>[A-Za-z0-9_.~-]{16,400}):?@(?=[\w.-])""")
# Either of them has this: nothing but the end of the host, and a sign behind it.
_AT = re.compile(r"""[^\s"'`<>/\\@]{1,482}+@""")
_REST = Runs(r"""[^\s"'`<>\\)\]}|,]""")
_PART = re.compile(r"[A-Za-z0-9_-]{16,}")
_PARTS = bytes(97 if (chr(c).isalnum() and c < 128) or chr(c) in "_-" else 32 for c in range(256))
_LONG = b"a" * 16
_PARAMETER = Runs(r"[A-Za-z0-9%._~+/=-]")
_THIN = re.compile(r"thin:(?P<user>[^\s/@\"']{1,80})/(?P<password>[^\s@\"']{1,200})@", re.I)


def _address(look: Look, at: int) -> Iterable[Span]:
    return _login(look.text, at + len("://"))


def _escaped(look: Look, at: int) -> Iterable[Span]:
    return _login(look.text, at + len(":\\/\\/"))


def _parameter(look: Look, at: int) -> Iterable[Span]:
    if look.text[at - 1 : at] not in ("?", "&", ";"):
        return NOTHING
    sign = look.text.find("=", at, at + 5)
    if sign <= 0:
        return NOTHING
    start = sign + 1
    end = _PARAMETER.end(look, start, 2000)
    if end - start < 10 or not is_random(look.text[start:end], 16):
        return NOTHING
    return (secret(start, end, "url-parameter"),)


def _thin(look: Look, at: int) -> Iterator[Span]:
    if (found := _THIN.match(look.text, at)) and not is_placeholder(found["password"]):
        yield secret(found.start("password"), found.end("password"), "password")


def _login(text: str, at: int) -> Iterable[Span]:
    if _AT.match(text, at) is None:
        return NOTHING
    if found := _USER.match(text, at):
        if not is_placeholder(found["password"]):
            return (secret(found.start("password"), found.end("password"), "password"),)
    elif (found := _ALONE.match(text, at)) and is_random(found["token"], 16):
        return (secret(found.start("token"), found.end("token"), "token"),)
    return NOTHING


def _webhook(look: Look, at: int) -> Iterator[Span]:
    """From the first random part of the path on: who knows the address may post."""
    near = look.low[max(0, at - 120) : at]
    scheme = near.rfind(b"//")
    if scheme < 0 or near.find(b" ", scheme) >= 0 or near.find(b"\n", scheme) >= 0:
        return
    end = _REST.end(look, at, 400)
    if _LONG not in look.raw[at:end].translate(_PARTS):
        return
    for part in _PART.finditer(look.text, at, end):
        if is_random(part.group(), 16) or is_digest(part.group()):
            yield secret(part.start(), end, "webhook")
            return


STEMS: Stems = (
    (b"://", _address),
    (b":\\/\\/", _escaped),
    (b"hook", _webhook),
    (b"key", _parameter),
    (b"code=", _parameter),
    (b"thin:", _thin),
)
