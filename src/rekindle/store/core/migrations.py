"""Numbered migrations, one folder per engine. The highest number is the schema version of a database."""

from __future__ import annotations

import os
from collections.abc import Callable

from rekindle.errors import StoreTooNew


def load_migrations(engine: str) -> dict[int, str]:
    """Load the SQL of every migration, by number."""
    folder = os.path.join(os.path.dirname(os.path.dirname(__file__)), "migrations", engine)
    found: dict[int, str] = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found[int(name[:4])] = file.read()
    return found


def apply_migrations(engine: str, version: int, apply: Callable[[str], None]) -> None:
    """Apply the migrations that a database of `version` lacks, in order."""
    for number, sql in load_migrations(engine).items():
        if number > version:
            apply(sql)


LATEST_VERSION = 10  # a test compares this with the folder, so opening need not list it
LAST_REINDEX_VERSION = 2  # the last migration that changes the contents of the search index


def refuse_newer(location: str, version: int) -> None:
    """Raise `StoreTooNew` if `version` is newer than this program supports."""
    if version > LATEST_VERSION:
        raise StoreTooNew(
            f"{location} has schema version {version}, this Rekindle supports up to {LATEST_VERSION}:"
            " upgrade Rekindle, or restore a backup from before the upgrade"
        )
