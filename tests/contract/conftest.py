"""PostgreSQL stores in a schema each: hundreds of databases would be gigabytes on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from rekindle import Store, open_store
from tests.conftest import ENGINES, Clock
from tests.servers import Postgres

Schema = Callable[[], str]
Opened = Callable[..., Store]


@pytest.fixture(scope="session")
def schema(postgres: Postgres) -> Schema:
    """Call it for the URL of a new, empty place on the server."""
    url, numbers = postgres.database(), count(1)

    def schema() -> str:
        name = f"store_{next(numbers)}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")  # pyright: ignore
        return f"{url}?options=-csearch_path%3D{name}"

    return schema


@pytest.fixture(params=ENGINES)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store can be opened: a path, then a database URL."""
    if request.param == "sqlite":
        return str(tmp_path / "sessions.db")
    return request.getfixturevalue("schema")()


@pytest.fixture
def another(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Opened]:
    """Open further empty stores of either engine."""
    opened: list[Store] = []

    def another(engine: str = "sqlite") -> Store:
        target = str(tmp_path / f"other{len(opened)}.db")
        if engine != "sqlite":
            target = request.getfixturevalue("schema")()
        opened.append(open_store(target, clock=clock))
        return opened[-1]

    yield another
    for store in opened:
        store.close()
