"""Further stores to open in a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from rekindle import Store, open_store
from tests.conftest import Clock
from tests.servers import Postgres

Schema = Callable[[], str]
Opened = Callable[..., Store]


@pytest.fixture(scope="session")
def schema(postgres: Postgres) -> Schema:
    """Call it for the URL of a new, empty schema, which is a place for a store as well."""
    url, numbers = postgres.database(), count(1)

    def schema() -> str:
        name = f"store_{next(numbers)}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")  # pyright: ignore
        return f"{url}?options=-csearch_path%3D{name}"

    return schema


@pytest.fixture
def another(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Opened]:
    """Open further empty stores of either engine."""
    opened: list[Store] = []

    def another(engine: str = "sqlite") -> Store:
        target = str(tmp_path / f"other{len(opened)}.db")
        if engine != "sqlite":
            target = request.getfixturevalue("store_database")()
        opened.append(open_store(target, clock=clock))
        return opened[-1]

    yield another
    for store in opened:
        store.close()
