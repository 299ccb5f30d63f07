"""A store and a folder of templates, for what stands above both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import Store, open_store
from rekindle.learning.library import TemplateLibrary


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "sessions.db") as store:
        yield store


@pytest.fixture
def folder(tmp_path: Path) -> TemplateLibrary:
    return TemplateLibrary(tmp_path / "templates")
