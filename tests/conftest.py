from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rekindle import Store, open_store

from . import far, servers

ENGINES = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def postgres() -> Iterator[servers.Postgres]:
    try:
        server = servers.Postgres()
    except servers.Missing as reason:
        warnings.warn(f"POSTGRESQL IS NOT TESTED: {reason}", stacklevel=1)
        pytest.skip(str(reason))
    yield server
    server.remove()


@pytest.fixture(scope="session")
def podman() -> Iterator[far.Podman]:
    try:
        server = far.Podman()
    except servers.Missing as reason:
        warnings.warn(f"CONTAINERS ARE NOT TESTED: {reason}", stacklevel=1)
        pytest.skip(str(reason))
    yield server
    server.remove()


@pytest.fixture(scope="session")
def sshd() -> Iterator[far.Sshd]:
    try:
        server = far.Sshd()
    except servers.Missing as reason:
        warnings.warn(f"SSH IS NOT TESTED: {reason}", stacklevel=1)
        pytest.skip(str(reason))
    yield server
    server.remove()


@pytest.fixture(params=ENGINES)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store can be opened: a path, then a database URL."""
    if request.param == "sqlite":
        return str(tmp_path / "sessions.db")
    return request.getfixturevalue("postgres").database()


class Clock:
    """A clock that stands still until told."""

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(target: str, clock: Clock) -> Iterator[Store]:
    with open_store(target, clock=clock) as opened:
        yield opened


@pytest.fixture
def reopened(target: str, clock: Clock) -> Iterator[Callable[[], Store]]:
    """Further stores on the same data, as another process would open them."""
    opened: list[Store] = []

    def again() -> Store:
        opened.append(open_store(target, clock=clock))
        return opened[-1]

    yield again
    for other in opened:
        other.close()
