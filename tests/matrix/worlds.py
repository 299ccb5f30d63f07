"""A bot on a homeserver, and the people around it: the world of the platform's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self

from rekindle.errors import PlatformError
from rekindle.platforms import Feature, Platform, PlatformMessage
from rekindle.platforms.matrix import PLATFORM
from rekindle.types import Source
from tests.contract.platform_world import Upload
from tests.waiting import PATIENCE

from .people import Person, show_texts
from .proxy import FaultProxy
from .synapse import Synapse, fetch_bytes


class MatrixWorld:
    """A bot that is reached through a proxy, and one admitted person."""

    def __init__(self, synapse: Synapse, person: Person, folder: Path) -> None:
        self.synapse, self.person = synapse, person
        self.bot = Person(synapse, "bot", "Rekindle")
        self.folder = folder / "state"
        self.proxy = FaultProxy(synapse.url)
        self.admitted = {person.id}
        self.platforms: list[Platform] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.proxy.close()

    def connect(self, folder: Path | None = None, **settings: str) -> Platform:
        values = {"homeserver": self.proxy.url, "access_token": self.bot.token, **settings}
        platform = PLATFORM.connect(values, folder or self.folder)
        platform.use_admission(self._admit)
        return platform

    async def _admit(self, source: Source) -> bool:
        return source.user_id in self.admitted

    def run(self, act: Callable[[Platform], Awaitable[None]]) -> None:
        """Do something with a platform that is closed afterwards."""

        async def do() -> None:
            platform = self.connect()
            try:
                await asyncio.wait_for(act(platform), PATIENCE)
            finally:
                await platform.close()

        asyncio.run(do())

    async def hear(self, platform: Platform, count: int = 1) -> list[PlatformMessage]:
        """Wait for some messages, and acknowledge them."""
        heard: list[PlatformMessage] = []
        async with aclosing(platform.listen()) as arriving:
            async for incoming in arriving:
                heard.append(incoming)
                await platform.acknowledge(incoming)
                if len(heard) == count:
                    break
        return heard

    async def enter(self, platform: Platform, room: str, person: Person | None = None) -> None:
        """Have the bot accept its invitation to a room, and see that it listens there."""
        await self.begin(platform)
        (one,) = await self._hear_greeting(platform, room, person or self.person)
        assert one.source.chat_id == room

    async def begin(self, platform: Platform) -> None:
        """Start from now: what was said before the first start is not answered."""
        await platform.send(Source("matrix", self.own_room()), "begin", "begin")

    def own_room(self) -> str:
        if not hasattr(self, "_own_room"):
            self._own_room = self.bot.create_room()
        return self._own_room

    async def _hear_greeting(
        self, platform: Platform, room: str, person: Person
    ) -> list[PlatformMessage]:
        person.say(room, "greeting")
        return await self.hear(platform)


class ContractWorld(MatrixWorld):
    """The world of the suite that every platform passes: a direct chat, and a group if it is used."""

    can_edit = True
    lacks: frozenset[Feature] = frozenset()
    limits_rate = True

    def __init__(self, synapse: Synapse, person: Person, folder: Path) -> None:
        super().__init__(synapse, person, folder)
        self.room = person.create_room(self.bot.id, is_direct=True)
        self.chat = Source("matrix", self.room, user_id=person.id, user_name="Ada")
        self._group: str | None = None
        self._thread = ""  # a message of the group on which there is a thread

        async def enter(platform: Platform) -> None:
            await self.enter(platform, self.room)

        self.run(enter)
        del self.proxy.positions[:]

    def say(self, text: str) -> str:
        return self.person.say(self.room, text)

    def seen(self) -> list[str]:
        files = {one["event_id"] for one in self._list_files()}
        events = self.person.list_events(self.room)
        return show_texts([one for one in events if one["event_id"] not in files], self.bot.id)

    def revoke(self) -> None:
        self.bot.request("POST", "logout", body={})
        self.proxy.disconnect()

    def say_in_group(self, text: str, *, mentions: bool = False, thread: bool = False) -> str:
        room, bob = self._enter_group()
        content: dict[str, Any] = {"m.mentions": {}}
        if mentions:
            text, content = f"Rekindle: {text}", {"m.mentions": {"user_ids": [self.bot.id]}}
        if thread:
            self._thread = self._thread or bob.say(room, "a thread", **{"m.mentions": {}})
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": self._thread}
        return bob.say(room, text, **content)

    def _enter_group(self) -> tuple[str, Person]:
        """Make the group when it is first used; the bot joins as nobody can begin without it."""
        if self._group is None:
            self.bob = Person(self.synapse, "bob", "Bob")
            self.admitted.add(self.bob.id)
            self._group = self.person.create_room(self.bot.id, self.bob.id, name="Ops")
            self.bot.join(self._group)
            self.bob.join(self._group)
        return self._group, self.bob

    def say_as_bot(self, text: str) -> None:
        self.person.say(self.room, text, msgtype="m.notice")

    def reply(self, text: str, to: str) -> None:
        relation = {"m.in_reply_to": {"event_id": to}}
        self.person.say(self.room, text, **{"m.relates_to": relation})

    def edit(self, id: str, text: str) -> None:
        relation = {"rel_type": "m.replace", "event_id": id}
        new = {"msgtype": "m.text", "body": text}
        self.person.say(self.room, f"* {text}", **{"m.relates_to": relation, "m.new_content": new})

    def delete(self, id: str) -> None:
        self.person.redact(self.room, id)

    def send_file(self, file: Upload) -> None:
        kind = "m.image" if file.media_type.startswith("image/") else "m.file"
        info = {"mimetype": file.media_type, "size": len(file.data)}
        url = self.person.upload(file.data)
        about = {"msgtype": kind, "filename": file.name, "info": info, "url": url}
        self.person.say(self.room, file.caption, **about)

    def repeat(self, id: str) -> None:
        self.proxy.rewind()

    def say_swapped(self, first: str, second: str) -> None:
        """A homeserver puts what it gets into an order."""
        self.say(second)
        self.say(first)

    def limit_uploads(self, max_bytes: int) -> None:
        assert max_bytes == 2_000_000  # the limit of every Synapse of the tests

    def seen_files(self) -> list[bytes]:
        path = "/_matrix/client/v1/media/download/"
        found: list[bytes] = []
        for event in self._list_files():
            address = event["content"]["url"].removeprefix("mxc://")
            found.append(fetch_bytes(self.synapse.url + path + address, self.person.token))
        return found

    def seen_in_group(self, *, thread: bool = False) -> list[str]:
        events = self.person.list_events(self._enter_group()[0])
        root = self._thread if thread else None
        return show_texts([one for one in events if _get_root(one) == root], self.bot.id)

    def _list_files(self) -> list[dict[str, Any]]:
        events = self.person.list_events(self.room)
        return [one for one in events if "info" in one["content"] and one["sender"] == self.bot.id]

    def disconnect(self) -> None:
        self.proxy.disconnect()

    def refuse(self, error: PlatformError | None) -> None:
        self.proxy.refusal = error


def _get_root(event: Mapping[str, Any]) -> str | None:
    relation = event["content"].get("m.relates_to", {})
    return relation.get("event_id") if relation.get("rel_type") == "m.thread" else None
