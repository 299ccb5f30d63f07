"""A starting gate for processes that must begin at the same moment, however long each needs to load."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 120
PAUSE_S = 0.01
LEAD_S = 0.5  # long enough that every waiting process has read the moment before it comes
BEGIN = "begin"


def wait(gate: Path, name: str) -> float:
    """Say that `name` is ready, and sleep until the gate opens; return that moment."""
    (gate / f"ready-{name}").touch()
    limit = time.monotonic() + PATIENCE_S
    while not (gate / BEGIN).exists():
        if time.monotonic() > limit:
            raise TimeoutError("the starting gate never opened")
        time.sleep(PAUSE_S)
    begin = float((gate / BEGIN).read_text())
    time.sleep(max(0, begin - time.monotonic()))
    return begin


def open_when_ready(gate: Path, count: int, alive: Callable[[], bool]) -> None:
    """Open the gate once `count` processes wait, or as soon as one of them has died."""
    limit = time.monotonic() + PATIENCE_S
    while len(list(gate.glob("ready-*"))) < count and alive() and time.monotonic() < limit:
        time.sleep(PAUSE_S)
    note = gate / "note"
    note.write_text(str(time.monotonic() + LEAD_S))
    note.rename(gate / BEGIN)  # whole or not there: a reader never sees half a number
