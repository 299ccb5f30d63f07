"""What all commands of these tests are spared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.certificates import hide_certificates


@pytest.fixture(scope="package", autouse=True)
def no_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Spare every command with a model the reading of all certificates: that takes it longest."""
    with hide_certificates(tmp_path_factory.mktemp("certificates")):
        yield
