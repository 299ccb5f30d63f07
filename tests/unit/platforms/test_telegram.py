"""What is Telegram's own: groups, topics, files, entities, updates that come twice or late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rekindle.errors import InvalidSetting, PlatformError
from rekindle.platforms import PlatformMessage
from rekindle.platforms.telegram import TelegramPlatform, convert_markdown
from rekindle.testing.networks.telegram_server import ADA_USER, TelegramServer
from rekindle.types import Source
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.networks, pytest.mark.slow]

GROUP = {"id": -100500, "type": "supergroup", "title": "Ops", "is_forum": True}
ADA = Source("telegram", "1001", user_id="1001", user_name="Ada")


@pytest.fixture
def server() -> Iterator[TelegramServer]:
    with TelegramServer() as running:
        yield running


@asynccontextmanager
async def connect(server: TelegramServer, folder: Path) -> AsyncIterator[TelegramPlatform]:
    platform = TelegramPlatform(server.token, folder, api_url=server.url, retry_seconds=0.02)
    try:
        yield platform
    finally:
        await platform.close()


def play(
    server: TelegramServer, folder: Path, act: Callable[[TelegramPlatform], Awaitable[None]]
) -> None:
    async def run() -> None:
        async with connect(server, folder) as platform:
            await asyncio.wait_for(act(platform), PATIENCE)

    asyncio.run(run())


async def hear(platform: TelegramPlatform, count: int) -> list[PlatformMessage]:
    heard: list[PlatformMessage] = []
    async with aclosing(platform.listen()) as arriving:
        async for incoming in arriving:
            heard.append(incoming)
            await platform.acknowledge(incoming)
            if len(heard) == count:
                break
    return heard


def test_in_a_group_it_is_addressed_by_name_command_or_reply(
    server: TelegramServer, tmp_path: Path
) -> None:
    def mark(kind: str, offset: int, length: int, **fields: Any) -> list[dict[str, Any]]:
        return [{"type": kind, "offset": offset, "length": length, **fields}]

    bot = {"id": 123456, "is_bot": True, "first_name": "Rekindle"}
    own = {"message_id": 3, "date": 1, "chat": GROUP, "from": bot, "text": "my answer"}
    server.post_text("just talk", chat=GROUP)
    server.post_text("@Rekindle_bot hi", chat=GROUP, entities=mark("mention", 0, 13))
    server.post_text("🙂 ask @rekindle_bot", chat=GROUP, entities=mark("mention", 7, 13))
    server.post_text("/new@rekindle_bot now", chat=GROUP, entities=mark("bot_command", 0, 17))
    server.post_text("/new@other_bot", chat=GROUP, entities=mark("bot_command", 0, 14))
    server.post_text("you", chat=GROUP, entities=mark("text_mention", 0, 3, user=bot))
    server.post_text("why?", chat=GROUP, reply_to_message=own)

    async def act(platform: TelegramPlatform) -> None:
        heard = await hear(platform, 7)
        assert [(one.message.text, one.is_addressed) for one in heard] == [
            ("just talk", False),
            ("hi", True),
            ("🙂 ask @rekindle_bot", True),
            ("/new now", True),
            ("/new@other_bot", False),
            ("you", True),
            ("why?", True),
        ]
        assert heard[-1].quote == "my answer"
        source = heard[0].source
        assert (source.chat_type, source.chat_name, source.user_name) == ("group", "Ops", "Ada")

    play(server, tmp_path, act)


def test_topics_are_threads_both_ways_and_no_replies(
    server: TelegramServer, tmp_path: Path
) -> None:
    root = {
        "message_id": 9, "date": 1, "chat": GROUP, "from": ADA_USER,
        "forum_topic_created": {"name": "Deploys", "icon_color": 1},
    }  # fmt: skip
    server.post_text(
        "go", chat=GROUP, message_thread_id=9, is_topic_message=True, reply_to_message=root
    )

    async def act(platform: TelegramPlatform) -> None:
        (heard,) = await hear(platform, 1)
        assert (heard.source.thread_id, heard.quote, heard.is_addressed) == ("9", "", False)
        await platform.send(heard.source, "done", "n")
        assert server.sent[0].thread == 9

    play(server, tmp_path, act)


def test_files_come_in_when_they_are_asked_for_and_no_larger_than_allowed(
    server: TelegramServer, tmp_path: Path
) -> None:
    small, large = server.add_file(b"a" * 100), server.add_file(b"a" * 5000)
    gone = {"file_id": "none", "file_unique_id": "u", "file_name": "x.pdf", "file_size": 1}
    server.post_text(
        "", caption="look",
        photo=[
            {"file_id": small, "file_unique_id": "s", "width": 1, "height": 1, "file_size": 100},
            {"file_id": large, "file_unique_id": "l", "width": 9, "height": 9, "file_size": 5000},
        ],
    )  # fmt: skip
    server.post_text("", document=gone)

    async def act(platform: TelegramPlatform) -> None:
        photo, document = await hear(platform, 2)
        assert "getFile" not in server.requests
        (image,), (file,) = photo.attachments, document.attachments
        assert (image.name, image.media_type, image.size) == ("photo.jpg", "image/jpeg", 5000)
        assert photo.message.text == "look"
        assert await image.fetch(5000) == b"a" * 5000
        with pytest.raises(PlatformError, match="larger than 4999 bytes"):
            await image.fetch(4999)
        assert file.name == "x.pdf"
        with pytest.raises(PlatformError, match="invalid file_id"):
            await file.fetch(100)

    play(server, tmp_path, act)


def test_a_file_goes_out_with_its_caption(server: TelegramServer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"content")

    async def act(platform: TelegramPlatform) -> None:
        caption = f"**see** {'long ' * 300}"
        await platform.send_file(ADA, tmp_path / "a.txt", caption, "n")
        await platform.send_file(ADA, tmp_path / "a.txt", caption, "n")
        first, *rest = server.sent
        assert first.file == b"content"
        assert first.entities[0]["type"] == "bold"
        assert (
            " ".join([first.text, *(one.text for one in rest)]).split()
            == caption.replace("*", "").split()
        )

    play(server, tmp_path, act)


def test_bots_and_service_messages_are_passed_over_and_confirmed(
    server: TelegramServer, tmp_path: Path
) -> None:
    robot = {"id": 7, "is_bot": True, "first_name": "R"}
    server.post_text("loop", sender=robot)
    server.post_update({"message": server.build_message(chat=GROUP, new_chat_title="x")})
    server.post_text("hello")

    async def act(platform: TelegramPlatform) -> None:
        (heard,) = await hear(platform, 1)
        assert heard.message.text == "hello"

    play(server, tmp_path, act)


def test_updates_twice_out_of_order_and_of_an_unknown_form_do_no_harm(
    server: TelegramServer, tmp_path: Path
) -> None:
    first, second = (server.build_message(text=text) for text in ("one", "two"))
    server.post_update({"message": second}, update_id=42)
    server.post_update({"message": first}, update_id=41)
    server.post_update({"message": second}, update_id=42)
    server.post_update({"message": {"text": "of a later age"}}, update_id=43)

    async def act(platform: TelegramPlatform) -> None:
        heard = await hear(platform, 2)
        assert [one.message.text for one in heard] == ["one", "two"]
        server.post_update({"message": second}, update_id=42)
        server.post_text("low number", entities=None)
        (after,) = await hear(platform, 1)
        assert after.message.text == "low number", "acknowledged ones are not given again"

    play(server, tmp_path, act)


def test_after_a_quiet_week_a_lower_number_is_not_missed(
    server: TelegramServer, tmp_path: Path
) -> None:
    server.post_update({"message": server.build_message(text="high")}, update_id=9000)

    async def act(platform: TelegramPlatform) -> None:
        async with aclosing(platform.listen()) as arriving:
            await platform.acknowledge(await anext(arriving))
            waiting = asyncio.ensure_future(anext(arriving))
            while server.waiting:  # until it is confirmed
                await asyncio.sleep(0.01)
            server.disconnect()
            server.post_update({"message": server.build_message(text="low")}, update_id=5)
            assert (await waiting).message.text == "low"

    play(server, tmp_path, act)


def test_an_edit_has_the_id_of_the_first_message(server: TelegramServer, tmp_path: Path) -> None:
    message = server.build_message(text="hallo")
    server.post_update({"message": message})
    server.post_update({"edited_message": {**message, "text": "hello", "edit_date": 5}})

    async def act(platform: TelegramPlatform) -> None:
        first, edited = await hear(platform, 2)
        assert (first.change, edited.change) == ("new", "edited")
        assert edited.message.text == "hello"
        assert edited.message.platform_message_id == first.message.platform_message_id

    play(server, tmp_path, act)


def test_nothing_is_confirmed_before_it_is_acknowledged(
    server: TelegramServer, tmp_path: Path
) -> None:
    server.post_text("one")
    server.post_text("two")

    async def act(platform: TelegramPlatform) -> None:
        async with aclosing(platform.listen()) as arriving:
            await platform.acknowledge(await anext(arriving))
            await anext(arriving)
        assert server.waiting == 2
        async with connect(server, tmp_path) as another:
            (again,) = await hear(another, 1)
            assert again.message.text == "two"

    play(server, tmp_path, act)


def test_markup_that_is_rejected_is_sent_as_it_was_written(
    server: TelegramServer, tmp_path: Path
) -> None:
    server.rejects_entities = True

    async def act(platform: TelegramPlatform) -> None:
        id = await platform.send(ADA, "**bold**", "n")
        assert server.sent[0].text == "**bold**"
        server.rejects_entities = False
        await platform.edit(ADA, id, "**bold**")
        await platform.edit(ADA, id, "**bold**")  # not modified
        assert (server.sent[0].text, server.sent[0].edits) == ("bold", 1)

    play(server, tmp_path, act)


def test_a_text_is_split_by_what_telegram_counts(server: TelegramServer, tmp_path: Path) -> None:
    async def act(platform: TelegramPlatform) -> None:
        for text in ("🙂" * 5000, "**bold** " * 1000, "```py\n" + "x = '🙂'\n" * 900 + "```"):
            parts = platform.split(text)
            assert len(parts) > 1
            for number, part in enumerate(parts):
                await platform.send(ADA, part, f"{text[:4]}{number}")

    play(server, tmp_path, act)


def test_progress_is_shown_and_its_failure_hurts_nobody(
    server: TelegramServer, tmp_path: Path
) -> None:
    async def act(platform: TelegramPlatform) -> None:
        await platform.show_progress(ADA, "5", "working")
        assert (server.actions, server.reactions) == (["typing"], {5: ["👀"]})
        await platform.show_progress(ADA, "5", "done")
        assert server.reactions == {5: []}
        server.token = "1:revoked"
        await platform.show_progress(ADA, "5", "failed")

    play(server, tmp_path, act)


def test_a_token_that_is_revoked_is_said_with_what_to_do(
    server: TelegramServer, tmp_path: Path
) -> None:
    async def act(platform: TelegramPlatform) -> None:
        assert (await platform.identify()).name == "rekindle_bot"
        server.token = "1:another"
        for attempt in (platform.identify(), platform.send(ADA, "x", "n"), hear(platform, 1)):
            with pytest.raises(PlatformError, match="gateway setup telegram") as caught:
                await attempt
            assert caught.value.permanent
            assert "local-token" not in str(caught.value)

    play(server, tmp_path, act)
    with pytest.raises(InvalidSetting, match="BotFather"):
        TelegramPlatform("nonsense", tmp_path)


def test_an_error_never_shows_the_token(tmp_path: Path) -> None:
    async def act() -> None:
        platform = TelegramPlatform("1:hush", tmp_path, api_url="http://127.0.0.1:1")
        with pytest.raises(PlatformError, match="cannot be reached") as caught:
            await platform.send(ADA, "x", "n")
        assert "hush" not in str(caught.value)
        await platform.close()

    asyncio.run(act())


def test_entities_are_counted_in_utf16_units() -> None:
    shown, entities = convert_markdown("🙂 **fett** [da](https://e.x)")
    assert shown == "🙂 fett da"
    assert [(one.type, one.offset, one.length) for one in entities] == [
        ("bold", 3, 4),
        ("text_link", 8, 2),
    ]
