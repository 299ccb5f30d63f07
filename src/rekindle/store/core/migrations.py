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
_FILL_TITLES = """
INSERT INTO title_parts SELECT num, split_title(title_base) FROM sessions WHERE title_base IS NOT NULL
"""
# Messages of a large store stay without the number of a project: it would be written anew for minutes.
ADD_WORD_COLUMNS = """
ALTER TABLE words ADD COLUMN IF NOT EXISTS project INTEGER, ADD COLUMN IF NOT EXISTS session BIGINT,
    ADD COLUMN IF NOT EXISTS time DOUBLE PRECISION
"""
FILL_WORD_COLUMNS = """
DO $$ BEGIN
    IF (SELECT coalesce(max(id), 0) FROM words) <= 1000000 AND to_regclass('words_keys') IS NULL THEN
        DROP INDEX IF EXISTS words_ranges;
        DROP INDEX IF EXISTS words_text;
        ALTER TABLE words SET (toast_tuple_target = 8160);
        UPDATE words w SET project = number_project(
            coalesce(s.project, s.repository, 'folder:' || s.cwd), s.num),
            session = s.num, time = m.time, text = w.text || ''::tsvector
        FROM messages m JOIN sessions s ON s.num = m.session WHERE m.id = w.id AND w.project IS NULL;
    END IF;
END $$
"""
_DROP_WORD_INDEXES = """
DROP INDEX IF EXISTS words_ranges;
DROP INDEX IF EXISTS words_text
"""
_TITLES_VERSION, _WORDS_VERSION = 20, 21
_NOTHING = ("-- Other tables have more since this version.",)


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
    for version, parts in _load_engine_parts(engine).items():
        found[version] = ";\n".join(filter(None, (found.get(version), *parts)))
    return dict(sorted(found.items()))


def _load_engine_parts(engine: str) -> dict[int, tuple[str, ...]]:
    """Load what versions changed in one engine only."""
    if engine != "postgres":
        return dict.fromkeys(range(_TITLES_VERSION, ENGINE_VERSION + 1), _NOTHING)
    return {
        _TITLES_VERSION: (
            _NUMBER_PARTS,
            load_title_split(),
            _read_file("postgres_search.sql"),
            _FILL_TITLES,
        ),
        _WORDS_VERSION: (
            ADD_WORD_COLUMNS,
            _read_file("postgres_projects.sql"),
            load_moves(),
            FILL_WORD_COLUMNS,
            _read_file("postgres_words.sql"),
            _DROP_WORD_INDEXES,
        ),
        **dict.fromkeys(range(_WORDS_VERSION + 1, ENGINE_VERSION + 1), _NOTHING),
    }


def load_title_split() -> str:
    """Load the SQL that splits titles into the parts that are indexed."""
    return _read_file("postgres_split.sql")


def load_moves() -> str:
    """Load the SQL that keeps the earlier numbers of the projects of sessions that move."""
    return _read_file("postgres_moves.sql")


def build_schema(engine: str, tables: Sequence[Table] = TABLES) -> str:
    """Build the SQL that creates the tables of a new database."""
    created = [sql for table in tables for sql in table.build_definition(engine)]
    names = ("split", "search", "projects", "moves", "words") if engine == "postgres" else ()
    search = [_read_file(f"postgres_{name}.sql") for name in names]
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
