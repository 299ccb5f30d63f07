"""Signs that a message is being answered: a typing notice, reactions and read markers."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any

from rekindle.errors import PlatformError
from rekindle.platforms import Progress
from rekindle.types import Source

from .account import Account
from .homeserver import build_path, make_transaction_id

logger = logging.getLogger(__name__)

REACTIONS: dict[Progress, str] = {"working": "👀", "done": "✅", "failed": "❌"}
_TYPING_SECONDS = 60
_MAX_REMEMBERED = 1_000


class ProgressSigns:
    """The signs in all rooms. None of them is required, so their failures are only logged."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._homeserver = account.homeserver
        self._reactions: OrderedDict[str, str] = OrderedDict()  # of messages being answered
        self._tasks: set[asyncio.Task[None]] = set()

    async def show(self, target: Source, message_id: str, progress: Progress) -> None:
        """Show the progress of an answer."""
        await self._attempt(self._set_typing(target.chat_id, is_typing=progress == "working"))
        if message_id:
            await self._attempt(self._react(target.chat_id, message_id, progress))

    def mark_read(self, room_id: str, event_id: str) -> None:
        """Mark everything up to a message as read, in the background."""
        task = asyncio.create_task(self._mark_read(room_id, event_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _mark_read(self, room_id: str, event_id: str) -> None:
        body = {"m.fully_read": event_id, "m.read": event_id}
        path = build_path("rooms", room_id, "read_markers")
        await self._attempt(self._homeserver.request("POST", path, body))

    async def _set_typing(self, room_id: str, *, is_typing: bool) -> None:
        body: dict[str, Any] = {"typing": is_typing}
        if is_typing:
            body["timeout"] = _TYPING_SECONDS * 1000
        path = build_path("rooms", room_id, "typing", self._account.user_id)
        await self._homeserver.request("PUT", path, body)

    async def _react(self, room_id: str, message_id: str, progress: Progress) -> None:
        """Add the reaction of a progress; it takes the place of the one before."""
        transaction = make_transaction_id(f"{progress}-{message_id}")
        relation = {
            "rel_type": "m.annotation",
            "event_id": message_id,
            "key": REACTIONS[progress],
        }
        path = build_path("rooms", room_id, "send", "m.reaction", transaction)
        answer = await self._homeserver.request("PUT", path, {"m.relates_to": relation})
        before = self._reactions.pop(message_id, None)
        if before is not None and before != answer["event_id"]:
            path = build_path("rooms", room_id, "redact", before, make_transaction_id(before))
            await self._homeserver.request("PUT", path, {})
        if progress == "working":
            self._reactions[message_id] = str(answer["event_id"])
            if len(self._reactions) > _MAX_REMEMBERED:
                self._reactions.popitem(last=False)

    async def _attempt(self, request: Coroutine[Any, Any, object]) -> None:
        try:
            await request
        except PlatformError as error:
            logger.info("the progress cannot be shown: %s", error)
