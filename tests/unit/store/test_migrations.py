from __future__ import annotations

import pytest

from rekindle.errors import StoreTooNew
from rekindle.store.core.migrations import LATEST, migrations, refuse_newer, upgrade

ENGINES = pytest.mark.parametrize("engine", ["sqlite", "postgres"])


@ENGINES
def test_the_latest_version_is_the_highest_number_in_the_folder(engine: str) -> None:
    assert list(migrations(engine)) == list(range(1, LATEST + 1))
    assert all(sql.strip() for sql in migrations(engine).values())


@ENGINES
def test_an_upgrade_applies_what_is_lacking_in_order(engine: str) -> None:
    every = list(migrations(engine).values())
    for version in range(LATEST + 1):
        applied: list[str] = []
        upgrade(engine, version, applied.append)
        assert applied == every[version:]


def test_what_is_newer_is_refused() -> None:
    for version in range(LATEST + 1):
        refuse_newer("here", version)
    with pytest.raises(StoreTooNew, match=f"here has version {LATEST + 1}"):
        refuse_newer("here", LATEST + 1)
