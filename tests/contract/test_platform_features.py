"""What people do on a network and how the platform tells it: files, groups, threads, replies, edits.

Where a network lacks something, its platform must say so, and what is done instead is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from rekindle.errors import PlatformError
from rekindle.platforms import Platform, PlatformMessage
from rekindle.types import Source
from tests.contract.irc_world import irc
from tests.contract.network_worlds import NETWORKS
from tests.contract.platform_world import Upload, World, memory
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.networks

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
REPORT = Upload("report.csv", "text/csv", b"a,b\n1,2\n" * 40, "the figures")
PHOTO = Upload("photo.png", "image/png", PNG, "what is this?")
CODE = "Before.\n\n```python\n" + "print('a line of code')\n" * 900 + "```\n\nAfter."


@pytest.fixture(params=[memory, *NETWORKS, irc], ids=lambda make: make.__name__)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with request.param() as made:
        yield made


class Ear:
    """Listens beside other things, and acknowledges what it hears."""

    def __init__(self, platform: Platform) -> None:
        self.heard: list[PlatformMessage] = []
        self._platform = platform

    async def listen(self) -> None:
        async with aclosing(self._platform.listen()) as arriving:
            async for incoming in arriving:
                self.heard.append(incoming)
                await self._platform.acknowledge(incoming)

    async def wait(self, count: int) -> list[PlatformMessage]:
        await until(lambda: len(self.heard) >= count, lambda: self.heard)
        return self.heard

    @property
    def texts(self) -> list[str]:
        return [one.message.text for one in self.heard]


@asynccontextmanager
async def listening(world: World) -> AsyncIterator[tuple[Platform, Ear]]:
    """A platform that is connected: what is said at first was heard."""
    platform = world.connect()
    ear = Ear(platform)
    task = asyncio.create_task(ear.listen())
    try:
        await world_is_ready(world, ear)
        yield platform, ear
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await platform.close()


async def world_is_ready(world: World, ear: Ear) -> None:
    if "replay" in world.lacks:
        await until(lambda: getattr(world, "is_ready")())  # noqa: B009
    world.say("hello")
    await ear.wait(1)
    ear.heard.clear()


def play(world: World, act: Callable[[Platform, Ear], Awaitable[None]]) -> None:
    async def run() -> None:
        async with listening(world) as (platform, ear):
            await asyncio.wait_for(act(platform, ear), PATIENCE)

    asyncio.run(run())


def test_it_declares_what_its_network_lacks(world: World) -> None:
    async def act() -> None:
        platform = world.connect()
        assert platform.lacks == world.lacks
        await platform.close()

    asyncio.run(act())


@pytest.mark.parametrize("file", [REPORT, PHOTO], ids=["file", "image"])
def test_a_file_is_described_at_once_and_fetched_up_to_a_size(world: World, file: Upload) -> None:
    async def act(platform: Platform, ear: Ear) -> None:
        world.send_file(file)
        if "files" in world.lacks:
            world.say("after")
            await ear.wait(1)
            assert ear.texts == ["after"]
            return
        (heard,) = await ear.wait(1)
        assert heard.message.text == file.caption
        (attachment,) = heard.attachments
        assert attachment.media_type in (file.media_type, "image/jpeg")
        assert Path(attachment.name).suffix in (Path(file.name).suffix, ".jpg")
        assert attachment.size in (len(file.data), None)
        assert await attachment.fetch(len(file.data)) == file.data
        with pytest.raises(PlatformError, match="larger than") as caught:
            await attachment.fetch(len(file.data) - 1)
        assert caught.value.permanent

    play(world, act)


@pytest.mark.parametrize("name", ["report.csv", "photo.png"])
def test_a_file_is_sent_once_with_its_caption(world: World, name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(PNG)

    async def act(platform: Platform, ear: Ear) -> None:
        if "files" in world.lacks:
            with pytest.raises(PlatformError, match="cannot send files") as caught:
                await platform.send_file(world.chat, file, "look", "f")
            assert caught.value.permanent
            return
        first = await platform.send_file(world.chat, file, "look", "f")
        assert first
        assert await platform.send_file(world.chat, file, "look", "f") == first
        assert world.seen_files() == [PNG]

    play(world, act)


def test_a_file_that_is_too_large_for_the_network_is_refused_for_good(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "large.bin"
    file.write_bytes(b"x" * 3_000_000)

    async def act(platform: Platform, ear: Ear) -> None:
        world.limit_uploads(2_000_000)
        for path in (file, tmp_path / "missing.bin"):
            with pytest.raises(PlatformError) as caught:
                await platform.send_file(world.chat, path, "look", f"{path}")
            assert caught.value.permanent
        await platform.send(world.chat, "but this is", "n")
        await until(world.seen)
        assert (world.seen_files(), world.seen()) == ([], ["but this is"])

    play(world, act)


def test_an_edit_or_deletion_names_the_message_and_its_author(world: World) -> None:
    async def act(platform: Platform, ear: Ear) -> None:
        edited, deleted = world.say("teh first"), world.say("the second")
        await ear.wait(2)
        world.edit(edited, "the first")
        world.delete(deleted)
        world.say("last")
        await until(lambda: "last" in ear.texts, lambda: ear.heard)
        changes = [
            (one.change, one.message.platform_message_id, one.message.text, one.source.user_id)
            for one in ear.heard
            if one.change != "new"
        ]
        user = ear.heard[0].source.user_id
        expected = []
        if "edits" not in world.lacks:
            expected.append(("edited", edited, "the first", user))
        if "deletions" not in world.lacks:
            expected.append(("deleted", deleted, "", user))
        assert changes == expected
        assert [one.message.text for one in ear.heard if one.change == "new"] == [
            "teh first", "the second", "last",
        ]  # fmt: skip

    play(world, act)


def test_a_reply_brings_what_it_replies_to(world: World) -> None:
    async def act(platform: Platform, ear: Ear) -> None:
        to = world.say("the statement")
        await ear.wait(1)
        world.reply("why?", to)
        _, reply = await ear.wait(2)
        assert reply.message.text == "why?"
        assert reply.quote == ("" if "quotes" in world.lacks else "the statement")
        assert ear.heard[0].quote == ""

    play(world, act)


def test_in_a_group_everyone_has_a_name_and_only_a_mention_addresses_the_bot(world: World) -> None:
    async def act(platform: Platform, ear: Ear) -> None:
        world.say_in_group("among us")
        world.say_in_group("what do you think?", mentions=True)
        if "groups" in world.lacks:  # and nothing said there may be answered in private
            world.say("in private")
            await ear.wait(1)
            assert ear.texts == ["in private"]
            return
        among, asked = await ear.wait(2)
        assert [one.is_addressed for one in (among, asked)] == [False, True]
        assert asked.message.text == "what do you think?"
        for one in (among, asked):
            assert (one.source.chat_type, one.source.user_name) == ("group", "Bob")
            assert one.source.chat_name
            assert one.source.chat_id != world.chat.chat_id
            assert one.source.user_id != world.chat.user_id
        await platform.send(asked.source, "as you wish", "n")
        await until(world.seen_in_group)
        assert (world.seen_in_group(), world.seen()) == (["as you wish"], [])

    play(world, act)


def test_a_thread_is_told_apart_and_answered_in_place(world: World) -> None:
    async def act(platform: Platform, ear: Ear) -> None:
        if "threads" in world.lacks:  # the answer is shown in the chat itself
            await platform.send(world.chat._replace(thread_id="77"), "here", "n")
            await until(lambda: world.seen() == ["here"], world.seen)
            return
        world.say_in_group("aside", mentions=True, thread=True)
        world.say_in_group("aloud", mentions=True)
        await until(lambda: {"aside", "aloud"} <= {*ear.texts}, lambda: ear.heard)
        found: dict[str, Source] = {one.message.text: one.source for one in ear.heard}
        assert found["aside"].thread_id
        assert found["aloud"].thread_id is None
        assert found["aside"].chat_id == found["aloud"].chat_id
        await platform.send(found["aside"], "answer aside", "n1")
        await platform.send(found["aloud"], "answer aloud", "n2")
        await until(lambda: world.seen_in_group(thread=True) and world.seen_in_group())
        assert world.seen_in_group(thread=True) == ["answer aside"]
        assert world.seen_in_group() == ["answer aloud"]

    play(world, act)


def test_bots_are_not_heard(world: World) -> None:
    async def act(platform: Platform, ear: Ear) -> None:
        world.say_as_bot("beep")
        await platform.send(world.chat, "of our own", "n")
        world.say("from a person")
        await ear.wait(1)
        assert ear.texts == ["from a person"]

    play(world, act)


def test_updates_out_of_order_are_neither_lost_nor_doubled(world: World) -> None:
    async def act(platform: Platform, ear: Ear) -> None:
        world.say_swapped("one", "two")
        await ear.wait(2)
        world.disconnect()
        if "replay" in world.lacks:
            await until(lambda: getattr(world, "is_ready")())  # noqa: B009
        world.say("three")
        await until(lambda: "three" in ear.texts, lambda: ear.heard)
        assert sorted(ear.texts) == ["one", "three", "two"]

    play(world, act)
    if "replay" in world.lacks:
        return

    async def listen_again(platform: Platform, ear: Ear) -> None:
        world.say("four")
        await ear.wait(1)
        assert ear.texts == ["four"], "what was acknowledged is not given again"

    play(world, listen_again)


def test_long_text_is_split_so_that_every_part_is_taken_and_code_stays_code(world: World) -> None:
    async def act(platform: Platform, ear: Ear) -> None:
        parts = platform.split(CODE)
        for number, part in enumerate(parts):
            await platform.send(world.chat, part, f"n{number}")
        await until(lambda: "After." in "\n".join(world.seen()), world.seen)
        shown = "\n".join(world.seen())
        assert shown.count("print('a line of code')") == 900
        if platform.limit > 500:  # a line of a few hundred bytes has no room for blocks
            assert len(parts) > 1
            for part in parts:
                assert part.count("```") % 2 == 0, part

    play(world, act)
