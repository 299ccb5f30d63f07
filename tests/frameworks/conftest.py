"""Tests with the libraries of other frameworks, which take seconds to import."""

from __future__ import annotations

from pathlib import Path

import pytest

LARGE = ("litellm", "phoenix")  # each of them larger than all the others together


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect these tests only if they are asked for: `pytest tests/frameworks -m frameworks`."""
    is_asked_for = config.getoption("markexpr") in ("frameworks", *LARGE)
    return None if is_asked_for or collection_path.name == "conftest.py" else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        is_ours = item.nodeid.startswith("tests/frameworks/")
        if is_ours and not any(map(item.get_closest_marker, LARGE)):
            item.add_marker(pytest.mark.frameworks)
