"""A record of what the store acknowledged, which survives `kill -9`.

Each line is written with one `os.write` after the store has acknowledged: from then on it belongs to the
kernel and outlives the process. A journal may miss the last acknowledgement, but never has one too many.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec


class JournalEntry(msgspec.Struct, frozen=True, omit_defaults=True):
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
    """The journal of one process of a writer."""

    def __init__(self, folder: Path, slot: int, life: int) -> None:
        path = folder / f"{slot}-{life}.journal"
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def write(self, entry: JournalEntry) -> None:
        os.write(self._file, msgspec.json.encode(entry) + b"\n")


def read_entries(folder: Path, slot: int | None = None) -> Iterator[JournalEntry]:
    """Yield the lines of all journals, or of the journals of one writer."""
    decoder = msgspec.json.Decoder(JournalEntry)
    paths = folder.glob(f"{'*' if slot is None else slot}-*.journal")
    for path in sorted(paths, key=lambda path: [int(part) for part in path.stem.split("-")]):
        with path.open("rb") as lines:
            yield from map(decoder.decode, lines)
