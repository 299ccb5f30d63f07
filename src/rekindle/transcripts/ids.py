"""Ids for what a file gives none."""

from __future__ import annotations

import hashlib
from pathlib import Path

# Some copies have ids masked; a masked id names nothing.
MASKED = frozenset({"", "REDACTED"})


def made_id(kind: str, path: Path, place: str) -> str:
    """An id that the file repeats while it grows, and that no other file gives."""
    return hashed_id(kind, f"{path.resolve()}\n{place}")


def hashed_id(kind: str, words: str) -> str:
    """An id for whatever these words tell apart."""
    return f"{kind}-{hashlib.sha256(words.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
