"""Fixtures for tests of `rekindle matrix` with a real Synapse and a real PostgreSQL.

Synapse is installed by the command itself, with uv from a cache folder: a set-up takes seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers

from .lab import MatrixLab, install_uv


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that only the step for Matrix runs it."""
    for item in items:
        if item.nodeid.startswith("tests/matrix/home/"):
            item.add_marker(pytest.mark.networks)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def uv() -> Path:
    """The folder of a program that installs packages quickly."""
    try:
        return install_uv()
    except servers.Missing as reason:
        warnings.warn(f"A MATRIX SERVER IS NOT TESTED: {reason}", stacklevel=1)
        pytest.skip(str(reason))


@pytest.fixture
def lab(uv: Path) -> Iterator[MatrixLab]:
    """A home of its own, without a server."""
    with MatrixLab(uv) as made:
        yield made


@pytest.fixture
def other_lab(uv: Path) -> Iterator[MatrixLab]:
    """Another machine."""
    with MatrixLab(uv) as made:
        yield made


@pytest.fixture(scope="module")
def running(uv: Path) -> Iterator[MatrixLab]:
    """A server that the tests of a module share."""
    with MatrixLab(uv) as made:
        made.set_up()
        yield made
