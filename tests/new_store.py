"""New stores for tests, as copies of one that is made once: to make one takes forty times as long."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rekindle import Store, open_store


def open_new_store(target: str | Path, **options: Any) -> Store:
    """Open a store as `open_store` does; where there is no file yet, begin with a copy."""
    if "://" not in str(target) and not Path(target).exists():
        Path(target).write_bytes(_read_empty_store())
    return open_store(target, **options)


@cache
def _read_empty_store() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "sessions.db"
        open_store(file).close()
        return file.read_bytes()
