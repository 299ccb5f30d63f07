"""Stores to begin with."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from rekindle import open_store


def make_store(target: str | Path) -> None:
    """Have an empty store there, as if made by an earlier command.

    A copy is, since to make a file anew takes twenty times as long. A server has one already.
    """
    if "://" not in str(target):
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_make_empty_file(), target)


@cache
def _make_empty_file() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rekindle-empty-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "sessions.db"
    open_store(file).close()
    return file
