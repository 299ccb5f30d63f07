"""What tests of platforms have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from rekindle.platforms import Platform, PlatformMessage
from tests.waiting import PATIENCE

P = TypeVar("P", bound=Platform)


def play(connect: Callable[[], P], act: Callable[[P], Awaitable[None]]) -> None:
    """Let a platform that is connected act, and close it."""

    async def run() -> None:
        platform = connect()
        try:
            await asyncio.wait_for(act(platform), PATIENCE)
        finally:
            await platform.close()

    asyncio.run(run())


async def hear(
    platform: Platform, count: int, *, acknowledge: bool = True
) -> list[PlatformMessage]:
    heard: list[PlatformMessage] = []
    async with aclosing(platform.listen()) as arriving:
        async for incoming in arriving:
            heard.append(incoming)
            if acknowledge:
                await platform.acknowledge(incoming)
            if len(heard) == count:
                break
    return heard
