"""Tests with the libraries of other frameworks, which take seconds to import."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect these tests only if they are asked for: `pytest tests/frameworks -m frameworks`."""
    is_asked_for = config.getoption("markexpr") in ("frameworks", "litellm")
    return None if is_asked_for or collection_path.name == "conftest.py" else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        is_ours = item.nodeid.startswith("tests/frameworks/")
        # LiteLLM is larger than all the others together.
        if is_ours and item.get_closest_marker("litellm") is None:
            item.add_marker(pytest.mark.frameworks)
