"""Matrix as a platform."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from rekindle.errors import PlatformError
from rekindle.platforms import AdmissionCheck, BotIdentity, Platform, PlatformMessage, Progress
from rekindle.platforms.splitting import split_text
from rekindle.types import Source

from .account import Account, MatrixSettings
from .cross_signing import sign_device
from .encryption import Encryption
from .events import MESSAGE, Event, EventReader
from .homeserver import build_path, make_transaction_id
from .invites import Invites
from .markdown import MAX_CONTENT_BYTES, build_content, build_edit, measure_content
from .media import upload_file
from .progress import ProgressSigns
from .timeline import SyncAnswer, Timeline, Undecrypted

logger = logging.getLogger(__name__)

LIMIT = 10_000
_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 60.0
_KEY_IS_MISSING = (
    "I cannot read a message of {name}, because its key has not reached me. I will answer when it"
    " does. If it does not, please send the message again."
)


class MatrixPlatform(Platform):
    """A bot's account on a homeserver, with end-to-end encryption."""

    name = "matrix"
    limit = LIMIT
    can_edit = True

    def __init__(self, settings: MatrixSettings, folder: Path) -> None:
        self._settings = settings
        self._account = account = Account(settings, folder)
        self._encryption = Encryption(account)
        self._timeline = Timeline(account, self._encryption)
        self._invites = Invites(account)
        self._signs = ProgressSigns(account)
        self._reader = EventReader("", account.homeserver, self._find_event)
        self._starting = asyncio.Lock()
        self._is_started = False
        self._unread: SyncAnswer | None = None  # not yet turned into messages
        self._is_closed = False

    async def listen(self) -> AsyncGenerator[PlatformMessage]:
        """Yield what people say, reconnecting until closed; raise PlatformError if that is useless."""
        async with self._account.state.lock():
            for incoming in self._timeline.list_unacknowledged():  # of a listener that gave up
                yield incoming
            delay = _RETRY_SECONDS
            while not self._is_closed:
                try:
                    messages = await self._receive()
                except PlatformError as error:
                    if error.permanent:
                        raise
                    delay = max(delay, error.retry_after or 0.0)
                    logger.warning("matrix: %s; retrying in %g s", error, delay)
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, _MAX_RETRY_SECONDS)
                    continue
                delay = _RETRY_SECONDS
                for incoming in messages:
                    yield incoming

    async def acknowledge(self, incoming: PlatformMessage) -> None:
        """Confirm that a message is stored; the place in the timeline moves on after the last one."""
        self._timeline.acknowledge(incoming)
        source, event_id = incoming.source, incoming.message.platform_message_id
        is_direct = source.chat_type == "dm"
        if event_id and await self._invites.is_admitted(
            source.chat_id, source.user_id or "", is_direct=is_direct
        ):
            self._signs.mark_read(source.chat_id, event_id)

    async def send(self, target: Source, text: str, nonce: str) -> str:
        """Send a text; the homeserver recognizes the nonce, also after a restart of either side."""
        if len(text) > self.limit:
            raise PlatformError(f"a message has at most {self.limit} characters", permanent=True)
        content = build_content(text, self._message_type)
        return await self._send_content(target, content, make_transaction_id(nonce))

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        """Replace the text of a sent message."""
        content = build_edit(text, self._message_type, message_id)
        await self._put_event(target.chat_id, content, uuid4().hex)

    async def send_file(self, target: Source, file: Path, caption: str, nonce: str) -> str:
        """Send a file, encrypted where the room is."""
        await self._start()
        encrypts = self._encryption.is_encrypted(target.chat_id)
        content = await upload_file(self._account.homeserver, file, encrypts=encrypts)
        if caption:
            content["body"] = caption[: self.limit]
        return await self._send_content(target, content, make_transaction_id(nonce))

    async def show_progress(self, target: Source, message_id: str, progress: Progress) -> None:
        """Show a typing notice, and a reaction to the message."""
        if self._is_started:
            await self._signs.show(target, message_id, progress)

    async def identify(self) -> BotIdentity:
        """Return the bot's user id and name; raise PlatformError if its token is not accepted."""
        if not self._is_started:
            await self._account.open()
        return BotIdentity(self._account.user_id, await self._account.find_display_name())

    def use_admission(self, admits: AdmissionCheck) -> None:
        """Take the check for whose invitations to accept."""
        self._invites.admits = admits

    def split(self, text: str) -> Sequence[str]:
        """Split a text into parts that fit into one event each, formatted and encrypted."""

        def measure(part: str) -> int:
            size = measure_content(build_content(part, self._message_type))
            # In characters, of which the limit stands for the largest content.
            return max(len(part), -(-size * LIMIT // MAX_CONTENT_BYTES))

        return split_text(text, self.limit, measure)

    async def close(self) -> None:
        self._is_closed = True
        await self._signs.close()
        await self._encryption.close()
        await self._account.homeserver.close()

    @property
    def _message_type(self) -> str:
        return f"m.{self._settings.message_type}"

    async def _start(self) -> None:
        """Log in, load the keys and get to know the rooms; once, by whoever needs it first."""
        async with self._starting:
            if self._is_started:
                return
            await self._account.open()
            await self._encryption.open()
            self._timeline.load()
            await self._invites.load()
            self._reader = EventReader(
                self._account.user_id, self._account.homeserver, self._find_event
            )
            self._reader.use_name(await self._account.find_display_name())
            self._unread = await self._timeline.sync()
            await self._maintain_keys(is_new=True)
            self._is_started = True

    async def _receive(self) -> list[PlatformMessage]:
        """Wait for the next sync and return its messages; what fails is repeated without a loss."""
        await self._start()
        if self._unread is None:
            await self._maintain_keys(is_new=self._account.has_new_login)
            await self._invites.accept_admitted()
            await self._report_undecrypted(self._timeline.take_unreported())
            self._unread = await self._timeline.sync()
        self._invites.add(self._unread.answer)
        self._reader.direct_rooms = self._invites.direct_rooms
        messages: list[PlatformMessage] = []
        for room_id, event in await self._timeline.list_events(self._unread):
            room = self._encryption.rooms.get(room_id)
            if room is not None and (message := await self._reader.read(room, event)):
                messages.append(message)
        self._unread = None
        self._timeline.add_batch(messages)
        return messages

    async def _maintain_keys(self, *, is_new: bool) -> None:
        """Keep the keys of the device on the homeserver, signed if the login is new."""
        await self._encryption.maintain()
        if is_new:
            await sign_device(self._account, self._encryption.build_device_keys())

    async def _send_content(self, target: Source, content: dict[str, Any], transaction: str) -> str:
        if target.thread_id:
            content["m.relates_to"] = {
                "rel_type": "m.thread",
                "event_id": target.thread_id,
                "is_falling_back": True,  # the reply is for clients that show no threads
                "m.in_reply_to": {"event_id": target.thread_id},
            }
        return await self._put_event(target.chat_id, content, transaction)

    async def _put_event(self, room_id: str, content: dict[str, Any], transaction: str) -> str:
        await self._start()
        kind, sent = MESSAGE, content
        if measure_content(content) > MAX_CONTENT_BYTES * 4 // 3:
            raise PlatformError("the message is too large for an event", permanent=True)
        if self._encryption.is_encrypted(room_id):
            kind, sent = await self._encryption.encrypt(room_id, MESSAGE, content)
        elif room_id not in self._encryption.rooms:
            await self._check_unencrypted(room_id)
        path = build_path("rooms", room_id, "send", kind, transaction)
        answer = await self._account.homeserver.request("PUT", path, sent)
        return str(answer["event_id"])

    async def _check_unencrypted(self, room_id: str) -> None:
        """Make sure that nothing goes unencrypted to a room that no sync has brought yet."""
        path = build_path("rooms", room_id, "state", "m.room.encryption")
        try:
            await self._account.homeserver.request("GET", path)
        except PlatformError as error:
            if error.permanent and "M_NOT_FOUND" in str(error):
                return
            raise
        raise PlatformError(f"{room_id} is encrypted, and its members are not known yet")

    async def _find_event(self, room_id: str, event_id: str) -> Event | None:
        path = build_path("rooms", room_id, "event", event_id)
        try:
            event = await self._account.homeserver.request("GET", path)
        except PlatformError as error:
            if not error.permanent:
                raise
            return None  # deleted, invented, or from before the bot was there
        return self._encryption.decrypt(event, room_id) or event

    async def _report_undecrypted(self, overdue: Sequence[Undecrypted]) -> None:
        """Tell admitted people that their messages cannot be read, once for each key."""
        reported: set[tuple[str, str]] = set()
        for one in overdue:
            room = self._encryption.rooms.get(one.room_id)
            sender = str(one.event.get("sender"))
            if room is None or (one.room_id, sender) in reported:
                continue
            reported.add((one.room_id, sender))
            is_direct = self._reader.is_direct(room)
            if not await self._invites.is_admitted(one.room_id, sender, is_direct=is_direct):
                continue
            session = str(one.event.get("content", {}).get("session_id"))
            text = _KEY_IS_MISSING.format(name=room.user_name(sender) or sender)
            source = self._reader.build_source(room, sender)
            try:
                await self.send(source, text, f"undecrypted-{session}")
            except PlatformError as error:
                logger.warning("cannot say that a message is unreadable: %s", error)
