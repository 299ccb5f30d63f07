"""Secrets in addresses: passwords, webhooks, signatures, connection strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .chance import is_digest, is_placeholder, is_random
from .spans import Look, Span, Stems, secret

_USER = re.compile(
    r"""[^\s:/@"'`<>\\?\#()\[\]{},]{0,80}:(?P<password>[^\s"'`<>/\\]{1,400})@(?=[\w.\[{$*<-])""",
    re.X,
)
_ALONE = re.compile(r"""(?P<token>[A-Za-z0-9_.~-]{16,400}):?@(?=[\w.-])""")
_REST = re.compile(r"""[^\s"'`<>\\)\]}|,]{1,400}""")
_PART = re.compile(r"[A-Za-z0-9_-]{16,}")
_PARAMETER = re.compile(r"[A-Za-z0-9%._~+/=-]{10,2000}")
_THIN = re.compile(r"thin:(?P<user>[^\s/@\"']{1,80})/(?P<password>[^\s@\"']{1,200})@", re.I)


def _address(look: Look, at: int) -> Iterable[Span]:
    return _login(look.text, at + len("://"))


def _escaped(look: Look, at: int) -> Iterable[Span]:
    return _login(look.text, at + len(":\\/\\/"))


def _parameter(look: Look, at: int) -> Iterator[Span]:
    if look.text[at - 1 : at] not in ("?", "&", ";"):
        return
    sign = look.text.find("=", at, at + 5)
    if sign > 0 and (found := _PARAMETER.match(look.text, sign + 1)) and is_random(found[0], 16):
        yield secret(found.start(), found.end(), "url-parameter")


def _thin(look: Look, at: int) -> Iterator[Span]:
    if (found := _THIN.match(look.text, at)) and not is_placeholder(found["password"]):
        yield secret(found.start("password"), found.end("password"), "password")


def _login(text: str, at: int) -> Iterator[Span]:
    if found := _USER.match(text, at):
        if not is_placeholder(found["password"]):
            yield secret(found.start("password"), found.end("password"), "password")
    elif (found := _ALONE.match(text, at)) and is_random(found["token"], 16):
        yield secret(found.start("token"), found.end("token"), "token")


def _webhook(look: Look, at: int) -> Iterator[Span]:
    """From the first random part of the path on: who knows the address may post."""
    near = look.low[max(0, at - 120) : at]
    scheme = near.rfind(b"//")
    if scheme < 0 or near.find(b" ", scheme) >= 0 or near.find(b"\n", scheme) >= 0:
        return
    if rest := _REST.match(look.text, at):
        for part in _PART.finditer(rest.group()):
            if is_random(part.group(), 16) or is_digest(part.group()):
                yield secret(at + part.start(), rest.end(), "webhook")
                return


STEMS: Stems = (
    (b"://", _address),
    (b":\\/\\/", _escaped),
    (b"hook", _webhook),
    (b"key", _parameter),
    (b"code=", _parameter),
    (b"thin:", _thin),
)
