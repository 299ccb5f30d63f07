"""How long a test waits for what another thread or process is to bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

# Waiting costs nothing when all is well. Only a test that would fail anyway waits this long; a
# machine that is busy with other things for a minute must not fail one.
PATIENCE = 120.0


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:.0f} s")
        time.sleep(0.02)
