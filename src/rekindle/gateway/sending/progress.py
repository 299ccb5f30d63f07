"""Show people that their message is being answered, on platforms that can."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rekindle.errors import PlatformError
from rekindle.platforms import Platform, Progress
from rekindle.store.conversations.inbox import InboundMessage

logger = logging.getLogger(__name__)

REPEAT_SECONDS = 4.0  # typing notices expire after about five
_MAX_SECONDS = 10.0  # of one notice
_closing: set[asyncio.Task[None]] = set()  # the last notices, which nobody waits for


@asynccontextmanager
async def show_progress(platform: Platform | None, inbound: InboundMessage) -> AsyncGenerator[None]:
    """Show that a message is being answered, until the block ends; failures affect nothing."""
    id = inbound.message.platform_message_id
    if platform is None or id is None:
        yield
        return
    ended = asyncio.Event()
    task = asyncio.create_task(_keep_showing(platform, inbound, id, ended))
    progress: Progress = "failed"
    try:
        yield
        progress = "done"
    finally:
        ended.set()
        last = asyncio.create_task(_send_last_notice(task, platform, inbound, id, progress))
        _closing.add(last)
        last.add_done_callback(_closing.discard)


async def _keep_showing(
    platform: Platform, inbound: InboundMessage, id: str, ended: asyncio.Event
) -> None:
    while not ended.is_set():
        await _send_notice(platform, inbound, id, "working")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPEAT_SECONDS):
                await ended.wait()


async def _send_last_notice(
    showing: asyncio.Task[None],
    platform: Platform,
    inbound: InboundMessage,
    id: str,
    progress: Progress,
) -> None:
    """Send the last notice after the others: one that is cut off may be shown, and for good."""
    await asyncio.wait([showing])
    await _send_notice(platform, inbound, id, progress)


async def _send_notice(
    platform: Platform, inbound: InboundMessage, id: str, progress: Progress
) -> None:
    try:
        async with asyncio.timeout(_MAX_SECONDS):
            await platform.show_progress(inbound.source, id, progress)
    except (PlatformError, TimeoutError) as error:
        logger.debug("progress not shown: %s", error)
    except Exception:  # a notice is optional: it must never affect the answer
        logger.exception("progress not shown")
