"""Numbered migrations. The highest number is the schema version of a database.

A migration is an SQL file in the folder of its engine, or is built from the columns and indexes that
name its number in `tables`. A new database is created from the tables, without migrations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from rekindle.errors import StoreTooNew

from .columns import Table
from .tables import DERIVED_VALUES, DROPPED_TABLES, ENGINE_VERSION, TABLES

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "migrations")
LAST_FILE = 10  # the last migration in a file; a test compares this with the folders
LATEST_VERSION = max(
    ENGINE_VERSION, *(part.since for table in TABLES for part in (table, *table.parts))
)
# Programs of this version and later work on the latest schema, since all migrations after it only add:
# tables, columns with a default or without a value, and indexes that are not unique. A migration that
# does more raises it to its own number; a test looks for those that do.
OLDEST_COMPATIBLE = 18
LAST_REINDEX_VERSION = 2  # the last migration that changes the contents of the search index
REQUESTS_VERSION = 13  # the migration after which the requests of all sessions are found
# The parts of long messages were counted from 0 before. The new index serves older programs, too.
_NUMBER_PARTS = """
UPDATE words SET part = -1 - part WHERE id IN (SELECT id FROM words WHERE part > 0);
UPDATE words SET part = -part WHERE part < 0
"""
_FILL_RANGES = """
DROP INDEX IF EXISTS words_text;
INSERT INTO title_parts SELECT num, split_title(title_base) FROM sessions WHERE title_base IS NOT NULL
"""


def load_migrations(engine: str, tables: Sequence[Table] = TABLES) -> dict[int, str]:
    """Load or build the SQL of every migration, by number."""
    names = sorted(os.listdir(os.path.join(_FOLDER, engine)))
    found = {int(name[:4]): _read_file(engine, name) for name in names}
    versions = {part.since for table in tables for part in (table, *table.parts)}
    for version in sorted(one for one in versions if one > LAST_FILE):
        dropped = [f"DROP TABLE IF EXISTS {name}" for name in DROPPED_TABLES.get(version, ())]
        if dropped and engine == "postgres":
            dropped.append("DROP FUNCTION IF EXISTS mining_results_deleted")
        added = [sql for table in tables for sql in table.build_migration(engine, version)]
        found[version] = ";\n".join([*dropped, *added, *DERIVED_VALUES.get(version, ())])
    if engine == "postgres":
        ranges = (_NUMBER_PARTS, _read_file("postgres_search.sql"), _FILL_RANGES)
    else:
        ranges = ("-- Only PostgreSQL has more since this version.",)
    added = filter(None, (found.get(ENGINE_VERSION), *ranges))
    found[ENGINE_VERSION] = ";\n".join(added)
    return dict(sorted(found.items()))


def build_schema(engine: str, tables: Sequence[Table] = TABLES) -> str:
    """Build the SQL that creates the tables of a new database."""
    created = [sql for table in tables for sql in table.build_definition(engine)]
    search = [_read_file("postgres_search.sql")] if engine == "postgres" else []
    return ";\n".join([*created, _read_file(f"{engine}.sql"), *search])


def _read_file(*path: str) -> str:
    with open(os.path.join(_FOLDER, *path), encoding="utf-8") as file:
        return file.read()


def apply_migrations(engine: str, version: int, apply: Callable[[str], None]) -> None:
    """Create the tables of a new database (version 0), or apply the migrations that it lacks."""
    if version == 0:
        apply(build_schema(engine))
        return
    for number, sql in load_migrations(engine).items():
        if number > version:
            apply(sql)


def refuse_newer(location: str, version: int, oldest: int | None = None) -> None:
    """Raise `StoreTooNew` if `version` is newer than this program supports.

    `oldest` is the oldest version whose programs can use the database, as its newest program said.
    """
    if version > LATEST_VERSION and (oldest is None or oldest > LATEST_VERSION):
        raise StoreTooNew(
            f"{location} has schema version {version}, this Rekindle supports up to {LATEST_VERSION}:"
            " upgrade Rekindle, or restore a backup from before the upgrade"
        )
