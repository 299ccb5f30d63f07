"""Finds the literals that rules wait for, most of them in one sweep over a text.

Searching for forty literals one by one is what redaction would mostly do. Most of them have a
letter in them that text seldom has, as `token`, `cookie` and `hook` have a `k`. One pattern stops
at these letters alone and sees what stands around them; only the others are searched for alone.
"""

from __future__ import annotations

import re

_STEMS = (
    "pass", "pw", "psk", "secret", "token", "key", "cred", "auth", "cookie", "sess", "sig",
    "mnemonic", "phrase", "private-lines", "bearer", "basic", "://", ":\\/\\/", "hook", "code=",
    "thin:", "echo ", "login", "identified ", "from-literal", "/p:", "net us", "sqlplus", "kv put",
    "http-basic.", "--body", ":5432:", ":*:", "$ansible_vault", "phone", "tel:", "home", "users",
    "base64", "b64", "atob(", "eyj", "ls0tls1crudjti",
)  # fmt: skip
KNOWN = frozenset(stem.encode() for stem in _STEMS)
# Letters at which the sweep stops, the seldom ones first: a literal is known by the first it has.
# More of them do not pay: a stop costs as much as searching some fifty letters for one literal.
_SELDOM = "j*qv6wk/ghbpuc"


def _around(stem: str, at: int) -> str:
    """What stands around this letter of a literal, cheap to see, so that the sweep can go on."""
    before, behind = re.escape(stem[:at]), re.escape(stem[at + 1 :])
    if any(letter in _SELDOM for letter in stem[at + 1 :]):
        behind = f"(?={behind})"  # the sweep may have to stop there too
        return behind + (f"(?<={before}.)" if before else "")
    return behind + (f"(?<={re.escape(stem)})" if before else "")


def _by_letter() -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for stem in _STEMS:
        if letter := next((letter for letter in _SELDOM if letter in stem), ""):
            found.setdefault(letter, []).append((stem, stem.index(letter)))
    return found


def _stop(letter: str, stems: list[tuple[str, int]]) -> str:
    around = sorted((_around(stem, at) for stem, at in stems), key=lambda one: one[0] == "(")
    return f"{re.escape(letter)}(?:{'|'.join(around)})"


_LETTERS = _by_letter()
_SWEEP = re.compile(
    "|".join(_stop(letter, stems) for letter, stems in reversed(_LETTERS.items())).encode()
)
_AT_LETTER = {
    ord(letter): tuple((stem.encode(), at) for stem, at in stems)
    for letter, stems in _LETTERS.items()
}
_ALONE = tuple(stem.encode() for stem in _STEMS if not set(stem) & set(_SELDOM))


def places(low: bytes) -> dict[bytes, list[int]]:
    """Where the literals stand, from left to right, each without overlap."""
    found: dict[bytes, list[int]] = {}
    for stop in _SWEEP.finditer(low):
        letter = stop.start()
        for stem, offset in _AT_LETTER[low[letter]]:
            at = letter - offset
            if at >= 0 and low.startswith(stem, at):
                known = found.setdefault(stem, [])
                if not known or at >= known[-1] + len(stem):
                    known.append(at)
    for stem in _ALONE:
        at = low.find(stem)
        if at >= 0:
            known = found[stem] = []
            while at >= 0:
                known.append(at)
                at = low.find(stem, at + len(stem))
    return found
