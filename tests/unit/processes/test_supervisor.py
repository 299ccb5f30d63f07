from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import cast

import pytest

from rekindle.errors import ProcessStartFailed
from rekindle.processes.supervisor.registry import ProcessRegistry
from rekindle.processes.supervisor.supervisor import Supervisor


def fail(number: int) -> ProcessStartFailed:
    error = ProcessStartFailed("cannot start")
    error.__cause__ = OSError(number, "why")
    return error


@pytest.mark.parametrize(
    ("number", "is_needed", "stops"),
    [
        (errno.EMFILE, False, True),
        (errno.ENFILE, False, True),
        (errno.EMFILE, True, False),
        (errno.ENOENT, False, False),
    ],
)
def test_one_that_can_open_no_more_files_makes_room_for_another(
    number: int, is_needed: bool, stops: bool
) -> None:
    async def check() -> bool:
        registry = cast("ProcessRegistry", SimpleNamespace(is_needed=is_needed))
        supervisor = Supervisor(registry, 1.0)
        supervisor.check_open_files(fail(number))
        return supervisor.stopping.is_set()

    assert asyncio.run(check()) is stops
