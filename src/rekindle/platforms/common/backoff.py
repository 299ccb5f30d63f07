"""How long to wait before the next attempt to connect."""

from __future__ import annotations

import asyncio
import random

_MAX_SECONDS = 60.0
_GROWTH = 2.0


class Backoff:
    """Delays that grow with every failure, with some randomness, and start again after a success."""

    def __init__(self, first_seconds: float = 1.0) -> None:
        self._first = first_seconds
        self._next = first_seconds

    def reset(self) -> None:
        """Start again with the first delay."""
        self._next = self._first

    async def wait(self, at_least: float | None = None) -> None:
        """Wait, `at_least` as long as the platform asks."""
        delay = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * _GROWTH, _MAX_SECONDS)
        await asyncio.sleep(max(delay, at_least or 0.0))
