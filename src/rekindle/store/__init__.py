"""All SQL of the project: one `Store`, two engines."""

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

    With `relaxed` durability a crash of the machine may cost the last moments, never more; a crash of
    the program costs nothing either way.
    """
    if durability not in ("full", "relaxed"):
        raise InvalidInput(f"durability: expected full or relaxed, got {durability!r}")
    where = str(target)
    if where.startswith(("postgresql://", "postgres://")):
        from rekindle.store.engines.postgres import PostgresEngine as Engine
    else:
        from rekindle.store.engines.sqlite import SqliteEngine as Engine
    engine = Engine(where, durability=durability, readonly=readonly, busy_seconds=busy_seconds)
    return Store(engine, clock=clock, active_seconds=active_seconds, undo_seconds=undo_seconds)


def repair_file(path: str | Path, progress: Progress | None = None) -> list[str]:
    """Repair a SQLite file, also one too damaged to open; say what was mended.

    One that opens is repaired in place. Of one that does not, everything readable is brought into a
    new file under its name; the damaged one stays beside it, with `.damaged-` and the time.
    """
    from .recovery import repair_file as repair

    return repair(str(path), progress)
