"""Secrets inside an encoding: base64 that is meant to be decoded, percent-encoded text."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from .spans import Look, Rule, Span, hits, opens, secret

_DECODING = (b"base64", b"b64", b"atob(", b"kind: secret")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{12,20000}={0,2}(?![A-Za-z0-9+/_=-])")
_JSON = re.compile(r"eyJ[A-Za-z0-9+/_-]{12,20000}={0,2}(?![A-Za-z0-9+/_=-])")
_PEM = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/_-]{40,40000}={0,2}")
_BESIDE = bytes(c for c in range(33, 127) if chr(c) not in "\"'`<>&=?/%\\,;(){}[]")
_PERCENT = re.compile(r"""(?:%[0-9A-Fa-f]{2}[^\s"'`<>&=?/%]{0,400}){1,400}""")


def wrapped(holds: Callable[[str], bool]) -> Rule:
    """A rule that asks `holds` whether there is a secret in what is decoded."""

    def rule(look: Look) -> Iterator[Span]:
        if any(word in look.low for word in _DECODING):
            for found in _BASE64.finditer(look.text):
                if _tells(found.group(), holds):
                    yield secret(found.start(), found.end(), "base64")
        else:
            for mark, pattern in ((b"eyJ", _JSON), (b"LS0tLS1CRUdJTi", _PEM)):
                for at in hits(look.raw, mark):
                    if not opens(look.text, at):
                        continue
                    if (found := pattern.match(look.text, at)) and _tells(found.group(), holds):
                        yield secret(at, found.end(), "base64")
        for found in _encoded(look):
            if holds(unquote(look.text[found[0] : found[1]], errors="replace")):
                yield secret(*found, "encoded")

    return rule


def _encoded(look: Look) -> Iterator[tuple[int, int]]:
    """Stretches with percent-encoded characters in them."""
    at = look.raw.find(b"%")
    while at >= 0:
        end = at + 1
        if found := _PERCENT.match(look.text, at):
            chunk = look.raw[max(0, at - 200) : at]
            end = found.end()
            yield at - (len(chunk) - len(chunk.rstrip(_BESIDE))), end
        at = look.raw.find(b"%", end)


def _tells(value: str, holds: Callable[[str], bool]) -> bool:
    value = value.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        text = b64decode(value + "=" * (-len(value) % 4)).decode("utf-8")
    except (Error, UnicodeDecodeError, ValueError):
        return False
    return holds(text)
