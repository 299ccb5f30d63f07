"""Makes processes start at the same moment, however long each needs to load."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 120
PAUSE_S = 0.01
LEAD_S = 0.5  # long enough that every waiting process has read the moment before it comes
BEGIN = "begin"


def wait_for_start(gate: Path, name: str) -> float:
    """Report that `name` is ready and sleep until the common start; return its time."""
    (gate / f"ready-{name}").touch()
    limit = time.monotonic() + PATIENCE_S
    while not (gate / BEGIN).exists():
        if time.monotonic() > limit:
            raise TimeoutError("the other processes never became ready")
        time.sleep(PAUSE_S)
    begin = float((gate / BEGIN).read_text())
    time.sleep(max(0, begin - time.monotonic()))
    return begin


def open_when_ready(gate: Path, count: int, alive: Callable[[], bool]) -> None:
    """Start all processes when `count` of them wait, or as soon as one has died."""
    limit = time.monotonic() + PATIENCE_S
    while len(list(gate.glob("ready-*"))) < count and alive() and time.monotonic() < limit:
        time.sleep(PAUSE_S)
    note = gate / "note"
    note.write_text(str(time.monotonic() + LEAD_S))
    note.rename(gate / BEGIN)  # atomic: a reader never sees half a number
