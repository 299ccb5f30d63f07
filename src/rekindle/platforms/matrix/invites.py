"""Invitations: those of people who may talk are accepted, the others are left alone.

An invitation stays open until the person who sent it is admitted, also over restarts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from rekindle.errors import PlatformError
from rekindle.platforms import AdmissionCheck
from rekindle.types import Source

from .account import Account
from .events import MEMBER, get_object, list_objects
from .homeserver import build_path

logger = logging.getLogger(__name__)

_MAX_OPEN = 200
_DIRECT = "m.direct"
_ONLY_INVITES = json.dumps({
    "room": {"timeline": {"limit": 1}, "state": {"types": []}, "ephemeral": {"types": []},
             "account_data": {"types": []}},
    "presence": {"types": []},
    "account_data": {"types": []},
})  # fmt: skip


class _Invite(NamedTuple):
    inviter: str
    is_direct: bool


class Invites:
    """The open invitations, and which rooms are direct chats."""

    def __init__(self, account: Account) -> None:
        self.admits: AdmissionCheck | None = None
        self._account = account
        self._homeserver = account.homeserver
        self._open: dict[str, _Invite] = {}
        self._direct: dict[str, list[str]] = {}  # users and their rooms

    @property
    def direct_rooms(self) -> set[str]:
        """The rooms that were begun as direct chats."""
        return {room for rooms in self._direct.values() for room in rooms}

    async def load(self) -> None:
        """Load the direct chats, and the invitations that an earlier run left open."""
        path = build_path("user", self._account.user_id, "account_data", _DIRECT)
        try:
            content = await self._homeserver.request("GET", path)
        except PlatformError as error:
            if not error.permanent:
                raise
            content = {}  # there are none
        self._take_direct(content)
        query = {"filter": _ONLY_INVITES}
        self.add(await self._homeserver.request("GET", build_path("sync"), query=query))

    def add(self, answer: dict[str, Any]) -> None:
        """Take the invitations that a sync brought, and which chats are direct by now."""
        for event in list_objects(get_object(answer, "account_data"), "events"):
            if event.get("type") == _DIRECT:
                self._take_direct(get_object(event, "content"))
        rooms = get_object(answer, "rooms")
        for room_id in (*get_object(rooms, "leave"), *get_object(rooms, "join")):
            self._open.pop(room_id, None)
        for room_id, info in get_object(rooms, "invite").items():
            for event in list_objects(get_object(info, "invite_state"), "events"):
                if event.get("type") == MEMBER and event.get("state_key") == self._account.user_id:
                    is_direct = get_object(event, "content").get("is_direct") is True
                    self._open[room_id] = _Invite(str(event.get("sender")), is_direct)
        while len(self._open) > _MAX_OPEN:
            del self._open[next(iter(self._open))]

    async def accept_admitted(self) -> None:
        """Join the rooms that admitted people invited the bot to."""
        for room_id, invite in list(self._open.items()):
            if not await self.is_admitted(room_id, invite.inviter, is_direct=invite.is_direct):
                continue
            del self._open[room_id]
            try:
                await self._homeserver.request("POST", build_path("rooms", room_id, "join"), {})
            except PlatformError as error:
                if not error.permanent:
                    self._open[room_id] = invite
                    raise
                logger.warning("cannot join %s: %s", room_id, error)
                continue
            logger.info("joined %s, invited by %s", room_id, invite.inviter)
            if invite.is_direct:
                await self._record_direct(room_id, invite.inviter)

    async def is_admitted(self, room_id: str, user_id: str, *, is_direct: bool) -> bool:
        """Return whether someone may talk to the bot."""
        chat_type = "dm" if is_direct else "group"
        source = Source("matrix", room_id, chat_type=chat_type, user_id=user_id, user_name=user_id)
        return self.admits is not None and await self.admits(source)

    def _take_direct(self, content: Mapping[str, Any]) -> None:
        self._direct = {
            user: [str(room) for room in cast(list[Any], rooms)]
            for user, rooms in content.items()
            if isinstance(rooms, list)
        }

    async def _record_direct(self, room_id: str, user_id: str) -> None:
        """Record a direct chat on the homeserver, as every client of the account does."""
        self._direct.setdefault(user_id, []).append(room_id)
        path = build_path("user", self._account.user_id, "account_data", _DIRECT)
        try:
            await self._homeserver.request("PUT", path, self._direct)
        except PlatformError as error:
            logger.warning("cannot record that %s is a direct chat: %s", room_id, error)
