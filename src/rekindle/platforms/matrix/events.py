"""Read the events of a room: messages, edits and deletions, with sender and addressee."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from rekindle.platforms import Change, PlatformMessage
from rekindle.types import Message, Source

from .homeserver import HomeserverClient
from .media import FILE_TYPES, read_attachment, read_caption

Event: TypeAlias = Mapping[str, Any]
EventFinder: TypeAlias = Callable[[str, str], Awaitable[Event | None]]

MESSAGE = "m.room.message"
ENCRYPTED = "m.room.encrypted"
REDACTION = "m.room.redaction"
MEMBER = "m.room.member"
_MAX_KNOWN = 5_000  # messages remembered, so that replies to them need no request
_MAX_QUOTE_CHARS = 2_000


class KnownMessage(NamedTuple):
    """What is remembered of a message."""

    sender: str
    text: str
    thread: str | None = None


class EventReader:
    """Turns events into messages. `find_event` gets an event from the homeserver, decrypted."""

    def __init__(self, user_id: str, homeserver: HomeserverClient, find_event: EventFinder) -> None:
        self.user_id = user_id
        self.direct_rooms: set[str] = set()
        self._homeserver = homeserver
        self._find_event = find_event
        self._pattern = re.compile(re.escape(user_id))
        self._known: OrderedDict[str, KnownMessage] = OrderedDict()

    def use_name(self, name: str) -> None:
        """Take the display name by which people may address the bot."""
        names = "|".join(map(re.escape, filter(None, {self.user_id, name})))
        self._pattern = re.compile(rf"(?<!\w)@?(?:{names})(?!\w)", re.IGNORECASE)

    async def read(self, room: Any, event: Event) -> PlatformMessage | None:
        """Return the message that an event stands for, or None if it stands for none."""
        sender, content = str(event.get("sender", "")), get_object(event, "content")
        if event.get("type") == REDACTION:
            return await self._read_redaction(room, event)
        if event.get("type") != MESSAGE or "state_key" in event:
            return None
        relation = get_object(content, "m.relates_to")
        text = _read_text(content, room, sender)
        if relation.get("rel_type") != "m.replace":
            known = KnownMessage(sender, text, get_thread(relation))
            self._remember(str(event.get("event_id")), known)
        # Other bots send notices, and must not be answered: they might answer in turn.
        if sender == self.user_id or content.get("msgtype") == "m.notice" or not content:
            return None
        if relation.get("rel_type") == "m.replace":
            return await self._read_edit(room, event, str(relation.get("event_id")))
        attachment = read_attachment(content, self._homeserver)
        if not text and attachment is None:
            return None
        quoted = await self._find_quoted(room, relation)
        is_addressed, text = await self._check_address(room, content, relation, quoted, text)
        return self._build(
            room, event, KnownMessage(sender, text, get_thread(relation)), str(event["event_id"])
        )._replace(
            is_addressed=is_addressed,
            attachments=(attachment,) if attachment else (),
            quote=quoted.text[:_MAX_QUOTE_CHARS] if quoted else "",
        )

    async def _read_edit(self, room: Any, event: Event, original: str) -> PlatformMessage | None:
        """Read the edit of a message by its author; edits by others are ignored."""
        known = await self._find_message(room, original)
        sender = str(event["sender"])
        content = get_object(get_object(event, "content"), "m.new_content")
        text = _read_text(content, room, sender)
        if known is None or known.sender != sender or not text:
            return None
        relation = {"rel_type": "m.thread", "event_id": known.thread} if known.thread else {}
        is_addressed, text = await self._check_address(room, content, relation, None, text)
        known = known._replace(text=text)
        self._remember(original, known)
        edited = self._build(room, event, known, original, change="edited")
        return edited._replace(is_addressed=is_addressed)

    async def _read_redaction(self, room: Any, event: Event) -> PlatformMessage | None:
        """Read the deletion of a message by its author."""
        redacted = event.get("redacts") or get_object(event, "content").get("redacts")
        sender = str(event.get("sender", ""))
        if not isinstance(redacted, str) or sender == self.user_id:
            return None
        known = await self._find_message(room, redacted)
        if known is None or known.sender != sender:
            return None
        known = known._replace(text="")
        self._remember(redacted, known)
        return self._build(room, event, known, redacted, change="deleted")

    async def _find_quoted(self, room: Any, relation: Mapping[str, Any]) -> KnownMessage | None:
        """Find the message that is replied to. In threads, old clients see replies that are none."""
        replied = get_object(relation, "m.in_reply_to").get("event_id")
        if relation.get("is_falling_back") is True or not isinstance(replied, str):
            return None
        return await self._find_message(room, replied)

    async def _check_address(
        self,
        room: Any,
        content: Mapping[str, Any],
        relation: Mapping[str, Any],
        quoted: KnownMessage | None,
        text: str,
    ) -> tuple[bool, str]:
        """Return whether a message is addressed to the bot, and its text without the address."""
        mentioned = get_object(content, "m.mentions").get("user_ids")
        is_mentioned = isinstance(mentioned, list) and self.user_id in mentioned
        if "m.mentions" not in content:  # an old client, or none
            is_mentioned = self._pattern.search(text) is not None
        beginning = self._pattern.match(text.lstrip())
        rest = text.lstrip()[beginning.end() :] if beginning else text
        if beginning and (is_mentioned or rest.startswith((":", ","))):
            return True, rest.lstrip(":, ")
        if self.is_direct(room) or len(room.users) <= 2:
            return True, text
        if is_mentioned or (quoted is not None and quoted.sender == self.user_id):
            return True, text
        thread = get_thread(relation)
        root = await self._find_message(room, thread) if thread else None
        return root is not None and root.sender == self.user_id, text

    def is_direct(self, room: Any) -> bool:
        """Return whether only the bot and one person can read a room."""
        is_private = room.join_rule in ("invite", "knock", "private")
        return room.room_id in self.direct_rooms and is_private and len(room.users) <= 2

    def build_source(self, room: Any, user_id: str, thread: str | None = None) -> Source:
        """Build the source of what someone does in a room."""
        is_direct = self.is_direct(room)
        return Source(
            "matrix",
            room.room_id,
            chat_name=room.named_room_name(),
            chat_type="dm" if is_direct else "group",
            user_id=user_id,
            user_name=room.user_name(user_id) or user_id,
            thread_id=thread,
            chat_topic=room.topic or None,
        )

    def _build(
        self, room: Any, event: Event, message: KnownMessage, id: str, change: Change = "new"
    ) -> PlatformMessage:
        moment = event.get("origin_server_ts")
        return PlatformMessage(
            self.build_source(room, message.sender, message.thread),
            Message(
                "user",
                message.text,
                platform_message_id=id,
                timestamp=moment / 1000 if isinstance(moment, int) else None,
            ),
            change=change,
        )

    def _remember(self, event_id: str, message: KnownMessage) -> None:
        self._known[event_id] = message
        self._known.move_to_end(event_id)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)

    async def _find_message(self, room: Any, event_id: str) -> KnownMessage | None:
        known = self._known.get(event_id)
        if known is None and (event := await self._find_event(room.room_id, event_id)):
            sender, content = str(event.get("sender", "")), get_object(event, "content")
            thread = get_thread(get_object(content, "m.relates_to"))
            known = KnownMessage(sender, _read_text(content, room, sender), thread)
            self._remember(event_id, known)
        return known


def get_object(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a field that must be an object; an empty one if it is none."""
    found = value.get(name)
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def list_objects(value: Mapping[str, Any], name: str) -> list[Event]:
    """Return a field that must be a list of objects, without whatever is none."""
    found = value.get(name)
    items = cast(list[Any], found) if isinstance(found, list) else []
    return [cast(Event, item) for item in items if isinstance(item, dict)]


def get_thread(relation: Mapping[str, Any]) -> str | None:
    """Return the first message of the thread that a relation names."""
    root = relation.get("event_id")
    return root if relation.get("rel_type") == "m.thread" and isinstance(root, str) else None


def _read_text(content: Mapping[str, Any], room: Any, sender: str) -> str:
    body = content.get("body")
    if not isinstance(body, str):
        return ""
    if content.get("msgtype") in FILE_TYPES:
        return read_caption(content)
    if content.get("msgtype") == "m.emote":
        return f"* {room.user_name(sender) or sender} {body}"
    is_reply = "m.in_reply_to" in get_object(content, "m.relates_to")
    return _strip_fallback(body) if is_reply else body


def _strip_fallback(body: str) -> str:
    """Remove the quote that older clients put before a reply."""
    if not body.startswith(("> <@", "> * <@")):
        return body
    lines = body.split("\n")
    count = next((i for i, line in enumerate(lines) if not line.startswith(">")), len(lines))
    return "\n".join(lines[count:]).removeprefix("\n")
