"""Ids for what a file gives none."""

from __future__ import annotations

import hashlib
from pathlib import Path

# Some copies have ids masked; a masked id names nothing.
MASKED = frozenset({"", "REDACTED"})


def made_id(kind: str, path: Path | str, place: str) -> str:
    """An id that the file repeats while it grows, and that no other file gives.

    A path that is text is resolved already: each time that would look at every folder above it.
    """
    whole = path if isinstance(path, str) else path.resolve()
    return hashed_id(kind, f"{whole}\n{place}")


def hashed_id(kind: str, words: str) -> str:
    """An id for whatever these words tell apart."""
    return f"{kind}-{hashlib.sha256(words.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
