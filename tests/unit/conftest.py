"""A store and a folder of templates, for what stands above both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import Store
from rekindle.learning.library import TemplateLibrary
from tests.certificates import hide_certificates
from tests.new_store import open_new_store


@pytest.fixture(scope="session", autouse=True)
def no_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Spare every model client the reading of all certificates: no unit test speaks TLS."""
    with hide_certificates(tmp_path_factory.mktemp("certificates")):
        yield


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_new_store(tmp_path / "sessions.db") as store:
        yield store


@pytest.fixture
def folder(tmp_path: Path) -> TemplateLibrary:
    return TemplateLibrary(tmp_path / "templates")
