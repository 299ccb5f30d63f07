"""Outages: of the connection, of the server, of the bot, of its token."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from rekindle.errors import PlatformError
from rekindle.platforms import Platform
from rekindle.types import Source
from tests.waiting import until

from .people import Person
from .synapse import call
from .worlds import MatrixWorld

SQLITE = pytest.mark.parametrize("synapse", ["sqlite"], indirect=True)


async def collect(matrix: MatrixWorld, platform: Platform, heard: list[str]) -> None:
    async for incoming in platform.listen():
        heard.append(incoming.message.text)
        await platform.acknowledge(incoming)


@SQLITE
def test_all_that_was_said_while_the_bot_was_away_comes_in_order(matrix: MatrixWorld) -> None:
    room = matrix.person.create_room(matrix.bot.id, is_direct=True)
    texts = [f"number {number}" for number in range(120)]  # more than a page

    async def enter(platform: Platform) -> None:
        await matrix.enter(platform, room)

    async def catch_up(platform: Platform) -> None:
        heard = await matrix.hear(platform, len(texts))
        assert [one.message.text for one in heard] == texts
        matrix.person.say(room, "end")
        (end,) = await matrix.hear(platform)
        assert end.message.text == "end"

    matrix.run(enter)
    for text in texts:
        matrix.person.say(room, text)
    matrix.run(catch_up)


def test_a_killed_server_costs_no_message_and_doubles_none(matrix: MatrixWorld) -> None:
    room = matrix.person.create_room(matrix.bot.id, is_direct=True)
    chat = Source("matrix", room)

    async def act(platform: Platform) -> None:
        await matrix.enter(platform, room)
        heard: list[str] = []
        task = asyncio.create_task(collect(matrix, platform, heard))
        matrix.person.say(room, "before")
        await until(lambda: heard == ["before"])
        sent = await platform.send(chat, "answer", "n")
        matrix.synapse.kill()
        try:
            with pytest.raises(PlatformError) as caught:
                await platform.send(chat, "lost?", "n2")
            assert not caught.value.permanent
        finally:
            await asyncio.to_thread(matrix.synapse.start)
        assert await platform.send(chat, "answer", "n") == sent, "it remembers after a restart"
        await platform.send(chat, "lost?", "n2")
        await asyncio.to_thread(matrix.person.say, room, "after")
        await until(lambda: heard == ["before", "after"], lambda: heard)
        assert matrix.person.list_texts(room, matrix.bot.id) == ["answer", "lost?"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    matrix.run(act)


@SQLITE
def test_a_listener_that_gives_up_leaves_the_rest_to_the_next(matrix: MatrixWorld) -> None:
    room = matrix.person.create_room(matrix.bot.id, is_direct=True)

    async def act(platform: Platform) -> None:
        await matrix.enter(platform, room)
        for text in ("one", "two", "three"):
            matrix.person.say(room, text)
        heard = await matrix.hear(platform) + await matrix.hear(platform, 2)
        assert [one.message.text for one in heard] == ["one", "two", "three"]

    matrix.run(act)


@SQLITE
def test_a_token_that_is_not_accepted_any_more_says_what_to_do(matrix: MatrixWorld) -> None:
    matrix.bot.request("POST", "logout", body={})

    async def act(platform: Platform) -> None:
        for use in (matrix.hear(platform), platform.identify()):
            with pytest.raises(PlatformError, match="rekindle gateway setup matrix") as caught:
                await use
            assert caught.value.permanent

    matrix.run(act)


@SQLITE
def test_with_a_password_the_bot_logs_in_again_as_the_same_device(matrix: MatrixWorld) -> None:
    room = matrix.person.create_room(matrix.bot.id, is_direct=True)
    folder = matrix.folder.parent / "by-password"
    login = {"access_token": "", "user": matrix.bot.name, "password": matrix.bot.name}
    matrix.bot.join(room)

    async def act() -> None:
        platform = matrix.connect(folder, **login)
        assert (await platform.identify()).name == "Rekindle"
        await matrix.begin(platform)
        matrix.person.say(room, "one")
        await matrix.hear(platform)
        device = platform._account.device_id  # pyright: ignore
        token = platform._account.homeserver.token  # pyright: ignore
        call(matrix.synapse.url, "POST", "/_matrix/client/v3/logout", {}, token)
        for text in ("two", "three"):
            matrix.person.say(room, text)
            (heard,) = await matrix.hear(platform)
            assert heard.message.text == text
        assert platform._account.device_id == device  # pyright: ignore
        assert platform._account.homeserver.token != token  # pyright: ignore
        query = {"device_keys": {matrix.bot.id: []}}
        keys = matrix.person.request("POST", "keys", "query", body=query)["device_keys"]
        assert device in keys[matrix.bot.id], "others can encrypt for it again"
        await platform.close()

    asyncio.run(act())


@SQLITE
def test_fifty_rooms_at_once(matrix: MatrixWorld) -> None:
    people = [Person(matrix.synapse, "crowd") for _ in range(5)]
    matrix.admitted |= {person.id for person in people}

    async def act(platform: Platform) -> None:
        await matrix.begin(platform)
        with ThreadPoolExecutor(5) as pool:

            def open_rooms(person: Person) -> list[str]:
                rooms = [person.create_room(matrix.bot.id, is_direct=True) for _ in range(10)]
                for number in range(2):
                    for room in rooms:
                        person.say(room, f"{number}")
                return rooms

            work = [asyncio.get_running_loop().run_in_executor(pool, open_rooms, p) for p in people]
            heard = await matrix.hear(platform, 100)
            rooms = dict(zip(people, await asyncio.gather(*work), strict=True))
        by_room: dict[str, list[str]] = {}
        for one in heard:
            by_room.setdefault(one.source.chat_id, []).append(one.message.text)
        assert by_room == {room: ["0", "1"] for own in rooms.values() for room in own}
        await asyncio.gather(*(platform.send(one.source, "answer", f"{one}") for one in heard))

    matrix.run(act)
