from __future__ import annotations

from collections.abc import Sequence

import pytest

from rekindle.errors import StoreTooNew
from rekindle.store.core.columns import Index, Table, TableColumn
from rekindle.store.core.migrations import (
    LAST_FILE,
    LATEST_VERSION,
    OLDEST_COMPATIBLE,
    apply_migrations,
    build_schema,
    load_migrations,
    refuse_newer,
)
from rekindle.store.core.tables import DERIVED_VALUES, DROPPED_TABLES, TABLES

ENGINES = pytest.mark.parametrize("engine", ["sqlite", "postgres"])


@ENGINES
def test_the_latest_version_is_the_highest_number_of_a_migration(engine: str) -> None:
    assert list(load_migrations(engine)) == list(range(1, LATEST_VERSION + 1))
    assert all(sql.strip() for sql in load_migrations(engine).values())


@ENGINES
def test_an_upgrade_applies_what_is_lacking_in_order(engine: str) -> None:
    every = list(load_migrations(engine).values())
    for version in range(1, LATEST_VERSION + 1):
        applied: list[str] = []
        apply_migrations(engine, version, applied.append)
        assert applied == every[version:]


@ENGINES
def test_a_new_database_is_created_from_the_tables(engine: str) -> None:
    applied: list[str] = []
    apply_migrations(engine, 0, applied.append)
    assert applied == [build_schema(engine)]


def test_what_is_newer_is_refused() -> None:
    for version in range(LATEST_VERSION + 1):
        refuse_newer("here", version)
    with pytest.raises(StoreTooNew, match=f"here has schema version {LATEST_VERSION + 1}"):
        refuse_newer("here", LATEST_VERSION + 1)


def test_an_older_program_goes_on_if_the_newer_one_said_so() -> None:
    refuse_newer("here", LATEST_VERSION + 2, LATEST_VERSION)
    with pytest.raises(StoreTooNew):
        refuse_newer("here", LATEST_VERSION + 2, LATEST_VERSION + 1)


def find_breaking(tables: Sequence[Table]) -> set[int]:
    """Return the versions whose migrations do more than to add what older programs can ignore."""
    found = {*DROPPED_TABLES, *DERIVED_VALUES, *range(1, LAST_FILE + 1)}
    for table in tables:
        for part in table.parts:
            is_required = isinstance(part, TableColumn) and not part.null and part.default is None
            is_unique = not isinstance(part, TableColumn) and part.unique
            if part.since > table.since and (is_required or is_unique):
                found.add(part.since)
    return found


def test_all_versions_after_the_oldest_compatible_one_only_add() -> None:
    assert max(find_breaking(TABLES)) <= OLDEST_COMPATIBLE <= LATEST_VERSION
    later = TABLES[0].extend(Index("later", "id", unique=True, since=LATEST_VERSION + 1))
    assert LATEST_VERSION + 1 in find_breaking([later])
