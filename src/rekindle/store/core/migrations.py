"""Numbered migrations, one folder for each engine. Their number is the version of a database."""

from __future__ import annotations

import os
from collections.abc import Callable

from rekindle.errors import StoreTooNew


def migrations(engine: str) -> dict[int, str]:
    """The SQL of every migration by its number."""
    folder = os.path.join(os.path.dirname(os.path.dirname(__file__)), "migrations", engine)
    found: dict[int, str] = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found[int(name[:4])] = file.read()
    return found


def upgrade(engine: str, version: int, apply: Callable[[str], None]) -> None:
    """Apply what a database of `version` lacks, in order."""
    for number, sql in migrations(engine).items():
        if number > version:
            apply(sql)


LATEST = 9  # a test holds this against the folder, so that opening need not list it
INDEXED = 2  # the last one that changes what the search index holds


def refuse_newer(location: str, version: int) -> None:
    """Raise if `version` is from the future."""
    if version > LATEST:
        raise StoreTooNew(
            f"{location} has version {version}, this Rekindle knows versions up to {LATEST}:"
            " upgrade Rekindle, or open a backup from before the upgrade"
        )
