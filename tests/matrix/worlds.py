"""A bot on a homeserver, and the people around it: the world of the platform's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

from rekindle.errors import PlatformError
from rekindle.platforms import Platform, PlatformMessage
from rekindle.platforms.matrix import PLATFORM
from rekindle.types import Source
from tests.waiting import PATIENCE

from .people import Person
from .proxy import FaultProxy
from .synapse import Synapse


class MatrixWorld:
    """A bot that is reached through a proxy, and one admitted person."""

    def __init__(self, synapse: Synapse, person: Person, folder: Path) -> None:
        self.synapse, self.person = synapse, person
        self.bot = Person(synapse, "bot", "Rekindle")
        self.folder = folder / "state"
        self.proxy = FaultProxy(synapse.url)
        self.admitted = {person.id}
        self.platforms: list[Platform] = []

    def __enter__(self) -> MatrixWorld:
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
    """The world of the suite that every platform passes: one direct chat."""

    def __init__(self, synapse: Synapse, person: Person, folder: Path) -> None:
        super().__init__(synapse, person, folder)
        self.room = person.create_room(self.bot.id, is_direct=True)
        self.chat = Source("matrix", self.room, user_id=person.id, user_name="Ada")

        async def enter(platform: Platform) -> None:
            await self.enter(platform, self.room)

        self.run(enter)

    def say(self, text: str) -> None:
        self.person.say(self.room, text)

    def seen(self) -> list[str]:
        return self.person.list_texts(self.room, self.bot.id)

    def disconnect(self) -> None:
        self.proxy.disconnect()

    def refuse(self, error: PlatformError | None) -> None:
        self.proxy.refusal = error
