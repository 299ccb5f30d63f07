"""What every platform promises: nothing is lost on the way in, nothing is doubled on the way out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager

import pytest

from rekindle.errors import PlatformError
from rekindle.platforms import Platform, PlatformMessage
from rekindle.routing.key import build_key
from rekindle.testing import ChatServer, MemoryPlatform, NetworkFaults
from tests.contract.network_worlds import NETWORKS
from tests.contract.platform_world import ADA, World, memory
from tests.waiting import PATIENCE


@pytest.fixture(params=[memory, *NETWORKS], ids=lambda make: make.__name__)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with request.param() as made:
        yield made


def play(world: World, act: Callable[[Platform], Awaitable[None]]) -> None:
    async def run() -> None:
        async with connected(world) as platform:
            await asyncio.wait_for(act(platform), PATIENCE)

    asyncio.run(run())


@asynccontextmanager
async def connected(world: World) -> AsyncIterator[Platform]:
    platform = world.connect()
    try:
        yield platform
    finally:
        await platform.close()


async def hear(
    platform: Platform, count: int, *, acknowledge: bool = True
) -> list[PlatformMessage]:
    heard: list[PlatformMessage] = []
    async with aclosing(platform.listen()) as arriving:
        async for incoming in arriving:
            if incoming.message.platform_message_id not in {
                one.message.platform_message_id for one in heard
            }:
                heard.append(incoming)
            if acknowledge:
                await platform.acknowledge(incoming)
            if len(heard) == count:
                return heard
    raise AssertionError("the platform stopped listening")


def test_it_says_what_it_is(world: World) -> None:
    async def act(platform: Platform) -> None:
        assert platform.name == world.chat.platform
        assert platform.limit > 0
        assert isinstance(platform.can_edit, bool)

    play(world, act)


def test_what_people_say_comes_in_order_with_its_source_and_id(world: World) -> None:
    texts = ["one", "two\nlines", "ü 🙂 \u202e", "x" * 3000]

    async def act(platform: Platform) -> None:
        for text in texts:
            world.say(text)
        heard = await hear(platform, len(texts))
        assert [one.message.text for one in heard] == texts
        assert {one.message.role for one in heard} == {"user"}
        assert all(one.message.platform_message_id for one in heard)
        assert {build_key(one.source) for one in heard} == {build_key(world.chat)}

    play(world, act)


def test_what_was_not_acknowledged_is_given_again(world: World) -> None:
    async def act(platform: Platform) -> None:
        world.say("kept?")
        (first,) = await hear(platform, 1, acknowledge=False)
        world.disconnect()
        async with connected(world) as another:
            (again,) = await hear(another, 1)
            assert again == first
            world.say("next")
            (following,) = await hear(another, 1)
            assert following.message.text == "next", "what was acknowledged is not"

    play(world, act)


def test_it_listens_on_after_the_connection_was_lost(world: World) -> None:
    async def act(platform: Platform) -> None:
        world.say("before")
        async with aclosing(platform.listen()) as arriving:
            await platform.acknowledge(await anext(arriving))
            world.disconnect()
            world.say("after")
            while (incoming := await anext(arriving)).message.text != "after":
                await platform.acknowledge(incoming)
            assert incoming.message.text == "after"

    play(world, act)


def test_a_text_arrives_as_it_is_and_gets_an_id(world: World) -> None:
    async def act(platform: Platform) -> None:
        ids = [
            await platform.send(world.chat, text, f"n{number}")
            for number, text in enumerate(["hello", "  *not* <b>markup</b>\n", "🙂" * 10])
        ]
        assert len(set(ids)) == 3
        assert world.seen() == ["hello", "  *not* <b>markup</b>\n", "🙂" * 10]

    play(world, act)


def test_what_is_sent_twice_under_one_nonce_is_shown_once(world: World) -> None:
    async def act(platform: Platform) -> None:
        first = await platform.send(world.chat, "hello", "same")
        assert await platform.send(world.chat, "hello", "same") == first
        async with connected(world) as another:
            assert await another.send(world.chat, "hello", "same") == first
        assert world.seen() == ["hello"]

    play(world, act)


def test_the_longest_text_is_taken_and_a_longer_one_refused(world: World) -> None:
    async def act(platform: Platform) -> None:
        await platform.send(world.chat, "x" * platform.limit, "fits")
        with pytest.raises(PlatformError) as caught:
            await platform.send(world.chat, "x" * (platform.limit + 1), "too long")
        assert caught.value.permanent
        assert len(world.seen()) == 1

    play(world, act)


def test_an_edit_takes_the_place_of_what_was_there(world: World) -> None:
    async def act(platform: Platform) -> None:
        id = await platform.send(world.chat, "half", "n")
        if not platform.can_edit:
            with pytest.raises(PlatformError) as caught:
                await platform.edit(world.chat, id, "half of it")
            assert caught.value.permanent
            return
        await platform.edit(world.chat, id, "half of it")
        await platform.edit(world.chat, id, "all of it")
        assert world.seen() == ["all of it"]

    play(world, act)


def test_a_refusal_says_whether_to_try_again(world: World) -> None:
    async def act(platform: Platform) -> None:
        world.refuse(PlatformError("slow down", retry_after=7.0))
        with pytest.raises(PlatformError, match="slow down") as passing:
            await platform.send(world.chat, "hello", "n")
        assert (passing.value.permanent, passing.value.retry_after) == (False, 7.0)
        world.refuse(PlatformError("blocked", permanent=True))
        with pytest.raises(PlatformError, match="blocked") as lasting:
            await platform.send(world.chat, "hello", "n")
        assert lasting.value.permanent
        world.refuse(None)
        await platform.send(world.chat, "hello", "n")
        assert world.seen() == ["hello"]

    play(world, act)


def test_a_send_that_lost_its_answer_can_be_repeated() -> None:
    with ChatServer(faults=NetworkFaults(lost_after=1.0)) as server:
        platform = MemoryPlatform(server.address)

        async def act() -> None:
            with pytest.raises(PlatformError, match="lost"):
                await platform.send(ADA, "hello", "n")
            server.faults = NetworkFaults()
            await platform.send(ADA, "hello", "n")
            await platform.close()

        asyncio.run(act())
        assert [shown.text for shown in server.list_sent()] == ["hello"]
        assert server.duplicate_count == 1


def test_where_nobody_listens_a_send_fails_by_name() -> None:
    async def act() -> None:
        with pytest.raises(PlatformError, match="memory cannot be reached"):
            await MemoryPlatform("127.0.0.1:1").send(ADA, "x", "n")

    asyncio.run(act())
