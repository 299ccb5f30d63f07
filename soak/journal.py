"""What a writer was promised, kept where `kill -9` cannot take it back.

A line goes out with one `os.write` after the store has answered: once that call is made, the line is
the kernel's and outlives the process. So a line says at most what was promised, never more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: something about to be sent, something acknowledged, or an error.

    `what` is `sending` (a platform message, before the call), `appended`, `redelivered`, `undone`,
    `forked` or `error`. `begun` and `ended` are the system's monotonic clock around the call.
    """

    what: str
    session: str = ""
    tokens: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()
    begun: float = 0.0
    ended: float = 0.0
    child: str = ""
    number: int = 0
    detail: str = ""


class Journal:
    """The journal of one life of one writer."""

    def __init__(self, folder: Path, slot: int, life: int) -> None:
        path = folder / f"{slot}-{life}.journal"
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def write(self, entry: Entry) -> None:
        os.write(self._file, msgspec.json.encode(entry) + b"\n")


def entries(folder: Path, slot: int | None = None) -> Iterator[Entry]:
    """Every line of every life, or of one writer's lives."""
    decoder = msgspec.json.Decoder(Entry)
    paths = folder.glob(f"{'*' if slot is None else slot}-*.journal")
    for path in sorted(paths, key=lambda path: [int(part) for part in path.stem.split("-")]):
        with path.open("rb") as lines:
            yield from map(decoder.decode, lines)
