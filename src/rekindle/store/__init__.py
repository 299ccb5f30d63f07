"""The store: all SQL of the project, one `Store` API over two engines."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from rekindle.errors import InvalidInput
from rekindle.store.core.filter import Filter

from .store import DAY, Store

if TYPE_CHECKING:
    from pathlib import Path

    from rekindle.store.core.engine import Progress

__all__ = ["Filter", "Store", "open_store", "repair_file"]


def open_store(
    target: str | Path,
    *,
    durability: Literal["full", "relaxed"] = "full",
    readonly: bool = False,
    busy_seconds: float = 30.0,
    active_seconds: float = DAY,
    undo_seconds: float = 7 * DAY,
    clock: Callable[[], float] = time.time,
) -> Store:
    """Open a SQLite file (created if missing) or a `postgresql://` database.

    With `relaxed` durability a crash of the machine may lose the last few moments; a crash of the
    program loses nothing either way.
    """
    if durability not in ("full", "relaxed"):
        raise InvalidInput(f"durability: expected full or relaxed, got {durability!r}")
    location = str(target)
    if location.startswith(("postgresql://", "postgres://")):
        try:
            from rekindle.store.engines.postgres import PostgresEngine as Engine
        except ImportError as error:
            raise InvalidInput(
                f"{error.name} is not installed; install it with: pip install 'rekindle[postgres]'"
            ) from None
    else:
        from rekindle.store.engines.sqlite import SqliteEngine as Engine
    engine = Engine(location, durability=durability, readonly=readonly, busy_seconds=busy_seconds)
    return Store(engine, clock=clock, active_seconds=active_seconds, undo_seconds=undo_seconds)


def repair_file(path: str | Path, progress: Progress | None = None) -> list[str]:
    """Repair a SQLite file, even one too damaged to open, and return what was repaired.

    A file that opens is repaired in place. Otherwise, everything readable is copied into a new file
    under the same name; the damaged file is kept next to it with the suffix `.damaged-` and the time.
    """
    from .recovery import repair_file as repair

    return repair(str(path), progress)
