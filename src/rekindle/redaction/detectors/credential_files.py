"""Lines of files in which programs keep passwords: netrc, pgpass, shadow, docker, kube."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Iterable, Iterator

from rekindle.redaction.scanner import NOTHING, AtStem, Look, Runs, Span, Stems, secret

from .entropy import is_placeholder

_GAP = r"(?:[ \t]|\r?\n|\\n|\\t){1,20}"
_NETRC = re.compile(
    rf"login{_GAP}\S{{1,120}}{_GAP}password{_GAP}(?P<value>(?:\\[^nrt]|[^\s\"'\\]){{1,200}})"
)
_PGPASS = re.compile(
    r":(?:5432|5433|6432|\*):[^:\s]{1,80}:[^:\s]{1,80}:(?P<value>(?:\\[^n]|[^\s\"'\\]){2,200})"
)
# A line of a shadow or htpasswd file keeps the name and loses the hash.
_CRYPT = re.compile(
    r"\$(?:[156y]|2[abxy]|apr1|argon2\w{1,2}|sha1|scrypt|pbkdf2-\w+|\d{4,7})\$[^\s\"'`:,;\\]{12,400}"
)
_NPM = re.compile(r"auth[ ]?=[ ]?[\"']?(?=[A-Za-z0-9+/=_-]{6})")
_BASE64 = Runs(r"[A-Za-z0-9+/=_-]")
_DOCKER = re.compile(
    r"""auth\\{0,7}["'][ ]?:[ ]?\\{0,7}["'](?P<value>[A-Za-z0-9+/]{6,2000}={0,2})"""
)
_KEY_DATA = re.compile(
    r"key-data\\{0,7}[\"']?:[ ]*\\{0,7}[\"']?(?P<value>[A-Za-z0-9+/]{40,20000}={0,2})"
)
_VAULT = re.compile(
    r"\$ANSIBLE_VAULT;[^\n\\]{3,60}(?P<value>(?:(?:\r?\n|\\n)[ \t]{0,20}[0-9a-f]{2,80}){1,2000})"
)


def _line(pattern: re.Pattern[str], kind: str) -> AtStem:
    def rule(look: Look, at: int) -> Iterable[Span]:
        found = pattern.match(look.text, at)
        if found is None or is_placeholder(found["value"]):
            return NOTHING
        return (secret(found.start("value"), found.end("value"), kind),)

    return rule


def _npm(look: Look, at: int) -> Iterable[Span]:
    found = _NPM.match(look.text, at)
    if found is None:
        return NOTHING
    start = found.end()
    end = _BASE64.end(look, start, 2000)
    return NOTHING if is_placeholder(look.text[start:end]) else (secret(start, end, "npm"),)


def _docker(look: Look, at: int) -> Iterable[Span]:
    if (found := _DOCKER.match(look.text, at)) and is_login(found["value"]):
        return (secret(found.start("value"), found.end("value"), "docker"),)
    return NOTHING


def hashes(look: Look) -> Iterator[Span]:
    """Hashes of passwords, and encrypted vaults: all of them begin with a dollar."""
    if b"$" in look.raw:
        for found in _CRYPT.finditer(look.text):
            yield secret(found.start(), found.end(), "password-hash")


def is_login(value: str) -> bool:
    """Name and password in base64."""
    try:
        return b":" in b64decode(value + "=" * (-len(value) % 4))
    except (Error, ValueError):
        return False


STEMS: Stems = (
    (b"login", _line(_NETRC, "password")),
    (b":5432:", _line(_PGPASS, "password")),
    (b":*:", _line(_PGPASS, "password")),
    (b"auth", _npm),
    (b"auth", _docker),
    (b"key", _line(_KEY_DATA, "private-key")),
    (b"$ansible_vault", _line(_VAULT, "vault")),
)
