"""The place in the timeline: which events are new, and which of them wait for their keys.

The sync token is saved when every message before it was acknowledged, so after a crash the
homeserver gives the others again. Where it leaves events out because there were too many, they are
fetched. A message that cannot be decrypted is kept with the token until its key arrives.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from rekindle.errors import PlatformError
from rekindle.platforms import PlatformMessage

from .account import Account
from .encryption import Encryption
from .events import ENCRYPTED, MEMBER, Event, get_object, list_objects
from .homeserver import build_path

logger = logging.getLogger(__name__)

STATE_NAME = "sync.json"
LONG_POLL_SECONDS = 30.0
KEY_GRACE_SECONDS = 30.0  # until the sender is told that a key is missing
_KEEP_SECONDS = 7 * 86_400.0
_MAX_UNDECRYPTED = 200
_PAGE_SIZE = 100
_MAX_PAGES = 200  # of a gap: 20,000 events
_FILTER = json.dumps({
    "room": {"timeline": {"limit": _PAGE_SIZE}, "ephemeral": {"types": []}},
    "presence": {"types": []},
})  # fmt: skip


class Undecrypted(NamedTuple):
    """A message whose key has not arrived."""

    room_id: str
    event: Event
    since: float
    is_reported: bool = False

    @property
    def event_id(self) -> str:
        return str(self.event.get("event_id"))


class SyncAnswer(NamedTuple):
    """What a sync brought that began at the token `since`."""

    since: str
    answer: dict[str, Any]


class _Batch(NamedTuple):
    token: str
    unacknowledged: list[PlatformMessage]


class Timeline:
    """All rooms' events, from where the last run of the bot stopped."""

    def __init__(self, account: Account, encryption: Encryption) -> None:
        self._account = account
        self._homeserver = account.homeserver
        self._encryption = encryption
        self._token = ""  # how far we have read
        self._saved_token = ""  # how far everything was acknowledged
        self._batches: deque[_Batch] = deque()
        self._undecrypted: list[Undecrypted] = []
        self._decrypted_late: set[str] = set()  # by the last sync
        self._in_flight: set[str] = set()  # decrypted late, and not yet acknowledged
        self._is_first = True  # in this run

    def load(self) -> None:
        """Load the place where the last run stopped, if it was that of the same device."""
        saved = self._account.state.read(STATE_NAME)
        self._undecrypted = []
        if saved.get("user_id") != self._account.user_id:
            return
        self._token = self._saved_token = str(saved.get("token") or "")
        if saved.get("device_id") != self._account.device_id:
            return
        for entry in cast(list[Any], saved.get("undecrypted") or []):
            try:
                self._undecrypted.append(Undecrypted(*entry))
            except TypeError:
                logger.warning("a message that was to be decrypted later is damaged")

    async def sync(self) -> SyncAnswer:
        """Wait for news, and return them. The first sync of a run brings all rooms with their state."""
        query = {"filter": _FILTER}
        if self._token:
            query["since"] = self._token
        if self._is_first:
            query["full_state"] = "true"
        else:
            query["timeout"] = str(int(LONG_POLL_SECONDS * 1000))
        answer = await self._homeserver.request(
            "GET", build_path("sync"), query=query, seconds=LONG_POLL_SECONDS + 60
        )
        await self._encryption.process_sync(answer)
        since, self._token = self._token, str(answer["next_batch"])
        self._is_first = False
        return SyncAnswer(since, answer)

    async def list_events(self, synced: SyncAnswer) -> list[tuple[str, Event]]:
        """Return the new events of all rooms, oldest first within each, with their rooms."""
        found: list[tuple[str, Event]] = []
        found += self._retry_undecrypted()
        if not synced.since:  # whatever was said before the first start is not for us
            return found
        for room_id, info in get_object(get_object(synced.answer, "rooms"), "join").items():
            timeline = get_object(info, "timeline")
            events = list_objects(timeline, "events")
            if timeline.get("limited") and self._find_own_join(events) is None:
                position = str(timeline.get("prev_batch") or "")
                events = await self._fill_gap(room_id, position, synced.since) + events
            for event in self._skip_before_invite(events):
                if event.get("type") != ENCRYPTED:
                    found.append((room_id, event))
                elif decrypted := self._encryption.decrypt(event, room_id):
                    found.append((room_id, decrypted))
                else:
                    await self._add_undecrypted(room_id, event)
        return found

    def add_batch(self, messages: Sequence[PlatformMessage]) -> None:
        """Take the messages of the last sync; its token is saved when all are acknowledged."""
        late, self._decrypted_late = self._decrypted_late, set()
        self._in_flight |= late
        self._drop_undecrypted(late - {str(one.message.platform_message_id) for one in messages})
        self._batches.append(_Batch(self._token, list(messages)))
        self._advance()

    def list_unacknowledged(self) -> list[PlatformMessage]:
        """Return what was received in this run and not yet acknowledged, in order."""
        return [incoming for batch in self._batches for incoming in batch.unacknowledged]

    def acknowledge(self, incoming: PlatformMessage) -> None:
        """Take a message as acknowledged, and save the place if it was the last one before it."""
        for batch in self._batches:
            if incoming in batch.unacknowledged:
                batch.unacknowledged.remove(incoming)
                self._drop_undecrypted(
                    {str(incoming.message.platform_message_id)} & self._in_flight
                )
                break
        self._advance()

    def take_unreported(self) -> list[Undecrypted]:
        """Return the messages whose keys are overdue; each is returned once."""
        now = time.time()
        overdue = [
            one
            for one in self._undecrypted
            if not one.is_reported and not 0 <= now - one.since < KEY_GRACE_SECONDS
        ]
        if overdue:
            self._undecrypted = [
                one._replace(is_reported=one.is_reported or one in overdue)
                for one in self._undecrypted
                if 0 <= now - one.since < _KEEP_SECONDS
            ]
            self._save()
        return overdue

    async def _fill_gap(self, room_id: str, position: str, since: str) -> list[Event]:
        """Fetch the events that a sync left out, oldest first."""
        pages: list[list[Event]] = []
        while position and len(pages) < _MAX_PAGES:
            query = {"dir": "b", "from": position, "to": since, "limit": str(_PAGE_SIZE)}
            path = build_path("rooms", room_id, "messages")
            try:
                answer = await self._homeserver.request("GET", path, query=query)
            except PlatformError as error:
                if not error.permanent:
                    raise
                logger.warning("a gap in %s cannot be filled: %s", room_id, error)
                break
            chunk = list_objects(answer, "chunk")
            pages.append(chunk)
            end = str(answer.get("end") or "")
            if not chunk or end == position or self._find_own_join(chunk) is not None:
                break
            position = end
        return [event for page in reversed(pages) for event in reversed(page)]

    def _skip_before_invite(self, events: list[Event]) -> list[Event]:
        """Skip messages from before the bot's invitation, if it was just invited."""
        joined = self._find_own_join(events)
        if joined is None:
            return events
        for index in range(joined - 1, -1, -1):
            if self._get_own_membership(events[index]) == "invite":
                return events[index:]
        return events[joined:]

    def _find_own_join(self, events: Sequence[Event]) -> int | None:
        for index, event in enumerate(events):
            before = get_object(get_object(event, "unsigned"), "prev_content")
            if self._get_own_membership(event) == "join" and before.get("membership") != "join":
                return index
        return None

    def _get_own_membership(self, event: Event) -> str | None:
        if event.get("type") != MEMBER or event.get("state_key") != self._account.user_id:
            return None
        return str(get_object(event, "content").get("membership"))

    async def _add_undecrypted(self, room_id: str, event: Event) -> None:
        known = {one.event_id for one in self._undecrypted}
        if event.get("event_id") in known or event.get("sender") == self._account.user_id:
            return
        logger.warning("%s: the key of a message has not arrived yet", room_id)
        self._undecrypted.append(Undecrypted(room_id, event, time.time()))
        del self._undecrypted[:-_MAX_UNDECRYPTED]
        try:
            await self._encryption.request_key(event, room_id)
        except PlatformError as error:
            logger.warning("the key of a message cannot be asked for: %s", error)

    def _retry_undecrypted(self) -> list[tuple[str, Event]]:
        """Return the messages that can be decrypted now; they are kept until acknowledged."""
        found: list[tuple[str, Event]] = []
        self._decrypted_late = set()
        for one in self._undecrypted:
            if one.event_id not in self._in_flight and (
                event := self._encryption.decrypt(one.event, one.room_id)
            ):
                self._decrypted_late.add(one.event_id)
                found.append((one.room_id, event))
        return found

    def _drop_undecrypted(self, event_ids: set[str]) -> None:
        self._undecrypted = [one for one in self._undecrypted if one.event_id not in event_ids]
        self._in_flight -= event_ids

    def _advance(self) -> None:
        token = self._saved_token
        while self._batches and not self._batches[0].unacknowledged:
            token = self._batches.popleft().token
        if token != self._saved_token:
            self._saved_token = token
            self._save()

    def _save(self) -> None:
        self._account.state.write(
            STATE_NAME,
            {
                "user_id": self._account.user_id,
                "device_id": self._account.device_id,
                "token": self._saved_token,
                "undecrypted": self._undecrypted,
            },
        )
