from __future__ import annotations

import pytest

from rekindle.errors import StoreTooNew
from rekindle.store.core.migrations import (
    LATEST_VERSION,
    apply_migrations,
    build_schema,
    load_migrations,
    refuse_newer,
)

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
