"""What people do on a network, the suite that every platform passes, against a real Synapse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.test_platform_features import *  # noqa: F403
from tests.contract.test_platform_gateway import *  # noqa: F403

from .people import Person
from .synapse import Synapse
from .worlds import ContractWorld

pytestmark = pytest.mark.parametrize("synapse", ["sqlite"], indirect=True)


@pytest.fixture
def world(synapse: Synapse, ada: Person, tmp_path: Path) -> Iterator[ContractWorld]:
    with ContractWorld(synapse, ada, tmp_path) as made:
        yield made
