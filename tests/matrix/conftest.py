"""Fixtures for tests with a real Synapse, on SQLite and on PostgreSQL.

Synapse is installed when a test first needs it (synapse.py). Without it the tests are skipped, with a
warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers

from .people import Person
from .synapse import Synapse
from .worlds import MatrixWorld


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that only the step for Matrix runs it."""
    for item in items:
        if item.nodeid.startswith("tests/matrix/"):
            is_image = item.path.name == "test_containers.py"  # it builds images, for minutes
            item.add_marker(pytest.mark.containers if is_image else pytest.mark.networks)


def _start(folder: Path, database: str | None = None) -> Synapse:
    try:
        return Synapse(folder, database)
    except servers.Missing as reason:
        warnings.warn(f"MATRIX IS NOT TESTED: {reason}", stacklevel=1)
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def sqlite_synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    server = _start(tmp_path_factory.mktemp("synapse"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres_synapse(
    tmp_path_factory: pytest.TempPathFactory, postgres: servers.Postgres
) -> Iterator[Synapse]:
    database = postgres.database()
    server = _start(tmp_path_factory.mktemp("synapse"), database)
    yield server
    server.stop()
    postgres.drop(database)


@pytest.fixture(params=["sqlite", "postgresql"])
def synapse(request: pytest.FixtureRequest) -> Synapse:
    """A running server, which other tests use too."""
    name = "sqlite_synapse" if request.param == "sqlite" else "postgres_synapse"
    return request.getfixturevalue(name)


@pytest.fixture
def ada(synapse: Synapse) -> Person:
    return Person(synapse, "ada", "Ada")


@pytest.fixture
def matrix(synapse: Synapse, ada: Person, tmp_path: Path) -> Iterator[MatrixWorld]:
    """A bot that Ada is admitted to, and nobody else."""
    with MatrixWorld(synapse, ada, tmp_path) as made:
        yield made
