"""Random text in the same line as a secret's name: "the new API key for staging → …"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.redaction.scanner import Look, Span, secret

from .entropy import is_digest, is_placeholder, is_random

_REACH = 60
_IMAGE = bytes(
    97 if chr(c) in "_+/=.!~-" or (chr(c).isalnum() and c < 128) else 32 for c in range(256)
)
_LONG = b"a" * 16
_BEGINS = re.compile(r"[A-Za-z0-9_+/=.!~-](?<![\w/.+-].)[A-Za-z0-9_+/=.!~-]{15}")
_RUN = re.compile(r"[A-Za-z0-9_+/=.!~-]{16,400}(?![\w(/])")


def nearby(look: Look, at: int) -> Iterator[Span]:
    """What is random, no digest and no path, shortly behind a secret's name that ends here."""
    if _LONG not in look.raw[at : at + _REACH + len(_LONG)].translate(_IMAGE):
        return
    text = look.text
    line = text.find("\n", at, at + _REACH)
    end = line if line >= 0 else at + _REACH
    last = end if line >= 0 else end + len(_LONG) - 1  # of a run that begins within reach
    while begins := _BEGINS.search(text, at, last):
        run = _RUN.match(text, begins.start())
        at = run.end() if run else begins.start() + 1
        if run and _is_secret(run.group().rstrip(".=")):
            yield secret(run.start(), run.end(), "random")


def _is_secret(value: str) -> bool:
    if "/" in value or "--" in value or not is_random(value, 16):
        return False
    if is_digest(value) or is_placeholder(value):
        return False
    return any(is_random(piece, 12) for piece in re.split(r"[.=_-]", value))
