"""Detects random text on the same line as a secret's name: "the new API key for staging → …"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.redaction.scanner import RedactionSpan, ScanInput, make_secret_span

from .entropy import is_digest, is_placeholder, is_random

_MAX_DISTANCE = 60
_RANDOM_IMAGE = bytes(
    97 if chr(c) in "_+/=.!~-" or (chr(c).isalnum() and c < 128) else 32 for c in range(256)
)
_MIN_RANDOM_RUN = b"a" * 16
_RANDOM_START = re.compile(r"[A-Za-z0-9_+/=.!~-](?<![\w/.+-].)[A-Za-z0-9_+/=.!~-]{15}")
_RANDOM_RUN = re.compile(r"[A-Za-z0-9_+/=.!~-]{16,400}(?![\w(/])")


def detect_random_nearby(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    """Detect random text, no digest or path, shortly after a secret's name that ends at `at`."""
    if _MIN_RANDOM_RUN not in scan.raw[at : at + _MAX_DISTANCE + len(_MIN_RANDOM_RUN)].translate(
        _RANDOM_IMAGE
    ):
        return
    text = scan.text
    line = text.find("\n", at, at + _MAX_DISTANCE)
    end = line if line >= 0 else at + _MAX_DISTANCE
    last = (
        end if line >= 0 else end + len(_MIN_RANDOM_RUN) - 1
    )  # lets a run begin within the distance
    while begins := _RANDOM_START.search(text, at, last):
        run = _RANDOM_RUN.match(text, begins.start())
        at = run.end() if run else begins.start() + 1
        if run and _is_random_secret(run.group().rstrip(".=")):
            yield make_secret_span(run.start(), run.end(), "random")


def _is_random_secret(value: str) -> bool:
    if "/" in value or "--" in value or not is_random(value, 16):
        return False
    if is_digest(value) or is_placeholder(value):
        return False
    return any(is_random(piece, 12) for piece in re.split(r"[.=_-]", value))
