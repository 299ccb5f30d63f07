"""What is Discord's own: resuming, the history after a longer outage, threads, nonces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from rekindle.errors import PlatformError
from rekindle.platforms.discord import DiscordPlatform
from rekindle.testing.networks.discord_server import ADA, BOT, ROOM, THREAD, DiscordServer
from rekindle.types import Source
from tests.unit.platforms.stage import play
from tests.waiting import until

pytestmark = [pytest.mark.networks, pytest.mark.slow]

CHAT = Source("discord", "500", user_id="101", user_name="Ada")


@pytest.fixture
def server() -> Iterator[DiscordServer]:
    with DiscordServer() as running:
        yield running


@pytest.fixture
def connect(server: DiscordServer, tmp_path: Path) -> Callable[[], DiscordPlatform]:
    return lambda: DiscordPlatform(
        server.token, tmp_path, api_url=server.api_url, retry_seconds=0.02
    )


class Listening:
    """The messages of a platform, one after the other, each acknowledged."""

    def __init__(self, platform: DiscordPlatform, server: DiscordServer) -> None:
        self._platform, self._server = platform, server

    async def __aenter__(self) -> Listening:
        self._arriving = self._platform.listen()
        self._next = asyncio.ensure_future(anext(self._arriving))
        await until(lambda: self._server.connections)
        return self

    async def take(self, count: int = 1) -> list:  # type: ignore[type-arg]
        heard = []
        for _ in range(count):
            incoming = await self._next
            await self._platform.acknowledge(incoming)
            self._next = asyncio.ensure_future(anext(self._arriving))
            heard.append(incoming)
        return heard

    async def __aexit__(self, *_: object) -> None:
        self._next.cancel()
        await asyncio.gather(self._next, return_exceptions=True)
        await self._arriving.aclose()


def test_in_a_room_it_is_addressed_by_a_mention_or_a_reply(
    server: DiscordServer, connect: Callable[[], DiscordPlatform]
) -> None:
    async def act(platform: DiscordPlatform) -> None:
        async with Listening(platform, server) as listening:
            own = server.build_message("my answer", channel=ROOM, author=BOT)
            server.post_text("just talk", channel=ROOM)
            server.post_text("<@900> hi <@!101> <#600> <:wave:77>", channel=ROOM,
                             mentions=[BOT, ADA], member={"nick": "Lady A"})  # fmt: skip
            server.post_text("why?", channel=ROOM, type=19, referenced_message=own)
            heard = await listening.take(3)
            assert [(one.message.text, one.is_addressed) for one in heard] == [
                ("just talk", False),
                ("hi @Ada #ops :wave:", True),
                ("why?", True),
            ]
            assert heard[2].quote == "my answer"
            source = heard[1].source
            assert (source.chat_type, source.chat_name, source.user_name) == (
                "group",
                "ops",
                "Lady A",
            )

    play(connect, act)


def test_a_thread_belongs_to_its_room_and_is_answered_in_itself(
    server: DiscordServer, connect: Callable[[], DiscordPlatform]
) -> None:
    async def act(platform: DiscordPlatform) -> None:
        async with Listening(platform, server) as listening:
            server.post_text("here", channel=THREAD)
            (heard,) = await listening.take()
            assert (heard.source.chat_id, heard.source.thread_id) == (ROOM, THREAD)
            assert heard.source.chat_name == "ops"
            await platform.send(heard.source, "answer", "n")
            assert server.sent[0].channel == THREAD

    play(connect, act)


def test_a_lost_connection_is_resumed_and_nothing_comes_twice(
    server: DiscordServer, connect: Callable[[], DiscordPlatform]
) -> None:
    async def act(platform: DiscordPlatform) -> None:
        async with Listening(platform, server) as listening:
            server.post_text("one")
            await listening.take()
            server.disconnect()
            server.post_text("two")
            (heard,) = await listening.take()
            assert heard.message.text == "two"
            assert server.resumes == 1

    play(connect, act)


def test_a_session_that_is_gone_is_made_good_by_the_history(
    server: DiscordServer, connect: Callable[[], DiscordPlatform]
) -> None:
    async def act(platform: DiscordPlatform) -> None:
        async with Listening(platform, server) as listening:
            server.post_text("one")
            await listening.take()
        missed = [f"missed {number}" for number in range(250)]
        for text in missed:
            server.post_text(text)
        server.post_text("a bot's", author={**ADA, "bot": True})
        async with Listening(platform, server) as listening:
            heard = await listening.take(250)
            assert [one.message.text for one in heard] == missed
            server.post_text("live")
            assert [one.message.text for one in await listening.take()] == ["live"]

    play(connect, act)


def test_events_twice_late_and_of_bots_do_no_harm(
    server: DiscordServer, connect: Callable[[], DiscordPlatform]
) -> None:
    async def act(platform: DiscordPlatform) -> None:
        async with Listening(platform, server) as listening:
            late, early = server.build_message("late"), server.build_message("early")
            server.post_event("MESSAGE_CREATE", early)
            server.post_event("MESSAGE_CREATE", late)
            server.post_event("MESSAGE_CREATE", early)
            server.post_text("own", author=BOT)
            server.post_text("hook", webhook_id="7")
            server.post_text("", type=7)
            server.post_event("TYPING_START", {"channel_id": "500", "user_id": "101",
                                               "timestamp": 1})  # fmt: skip
            server.post_text("last")
            heard = await listening.take(3)
            assert [one.message.text for one in heard] == ["early", "late", "last"]

    play(connect, act)


def test_edits_and_deletions_have_the_id_of_the_message(
    server: DiscordServer, connect: Callable[[], DiscordPlatform]
) -> None:
    async def act(platform: DiscordPlatform) -> None:
        async with Listening(platform, server) as listening:
            message = server.build_message("hallo")
            server.post_event("MESSAGE_CREATE", message)
            edited = {**message, "content": "hello", "edited_timestamp": message["timestamp"]}
            server.post_event("MESSAGE_UPDATE", {**message, "embeds": []})  # only a preview
            server.post_event("MESSAGE_UPDATE", edited)
            server.post_event("MESSAGE_DELETE", {"id": "77", "channel_id": "500"})  # unknown
            server.post_event("MESSAGE_DELETE", {"id": message["id"], "channel_id": "500"})
            heard = await listening.take(3)
            assert [(one.change, one.message.text) for one in heard] == [
                ("new", "hallo"),
                ("edited", "hello"),
                ("deleted", ""),
            ]
            assert {one.message.platform_message_id for one in heard} == {message["id"]}
            assert {one.source.user_id for one in heard} == {"101"}

    play(connect, act)


def test_a_send_that_lost_its_answer_is_recognized_by_its_nonce(
    server: DiscordServer, connect: Callable[[], DiscordPlatform]
) -> None:
    async def act(platform: DiscordPlatform) -> None:
        server.loses_answers = True
        with pytest.raises(PlatformError, match="cannot be reached"):
            await platform.send(
                CHAT, "hello @everyone", "a nonce that is much too long for Discord"
            )
        server.loses_answers = False
        id = await platform.send(
            CHAT, "hello @everyone", "a nonce that is much too long for Discord"
        )
        (sent,) = server.sent
        assert (sent.id, sent.pings) == (id, False)

    play(connect, act)


def test_files_come_in_and_go_out(
    server: DiscordServer, connect: Callable[[], DiscordPlatform], tmp_path: Path
) -> None:
    server.files["a"] = b"a" * 50
    (tmp_path / "out.txt").write_bytes(b"content")

    async def act(platform: DiscordPlatform) -> None:
        async with Listening(platform, server) as listening:
            server.post_text("look", attachments=[
                {"id": "1", "filename": "a.png", "content_type": "image/png", "size": 50,
                 "url": f"{server.url}/files/a", "proxy_url": f"{server.url}/files/a"},
            ])  # fmt: skip
            (heard,) = await listening.take()
            (image,) = heard.attachments
            assert (image.name, image.media_type, image.size) == ("a.png", "image/png", 50)
            assert await image.fetch(50) == b"a" * 50
            with pytest.raises(PlatformError, match="larger than 49 bytes"):
                await image.fetch(49)
        await platform.send_file(CHAT, tmp_path / "out.txt", "see", "n")
        await platform.send_file(CHAT, tmp_path / "out.txt", "see", "n")
        assert [(one.text, one.files) for one in server.sent] == [("see", [b"content"])]

    play(connect, act)


def test_tables_and_deep_headings_are_written_as_discord_shows_them(
    server: DiscordServer, connect: Callable[[], DiscordPlatform]
) -> None:
    async def act(platform: DiscordPlatform) -> None:
        text = "#### Deep\n|a|b|\n|-|-|\n|1|2|\n```\n#### code\n|a|\n|-|\n```\n**same**"
        await platform.send(CHAT, text, "n")
        assert server.sent[0].text == (
            "**Deep**\n```\n|a|b|\n|-|-|\n|1|2|\n```\n```\n#### code\n|a|\n|-|\n```\n**same**"
        )

    play(connect, act)


def test_a_text_is_split_by_what_is_written_for_it(
    server: DiscordServer, connect: Callable[[], DiscordPlatform]
) -> None:
    async def act(platform: DiscordPlatform) -> None:
        parts = platform.split("|a|b|\n|-|-|\n" + "|1|2|\n" * 332)
        for number, part in enumerate(parts):
            await platform.send(CHAT, part, f"n{number}")
        assert len(server.sent) == len(parts) > 1

    play(connect, act)


def test_progress_is_typing_and_a_reaction(
    server: DiscordServer, connect: Callable[[], DiscordPlatform]
) -> None:
    async def act(platform: DiscordPlatform) -> None:
        await platform.show_progress(CHAT, "5", "working")
        assert "POST /channels/500/typing" in server.requests
        assert server.reactions == {("5", "👀")}
        await platform.show_progress(CHAT, "5", "failed")
        assert server.reactions == {("5", "⚠️")}
        await platform.show_progress(CHAT, "none", "working")

    play(connect, act)


@pytest.mark.parametrize(
    ("code", "said"), [(4014, "Message Content Intent"), (4004, "setup discord")]
)
def test_what_the_gateway_refuses_is_said_with_what_to_do(
    server: DiscordServer, connect: Callable[[], DiscordPlatform], code: int, said: str
) -> None:
    server.close_code = code

    async def act(platform: DiscordPlatform) -> None:
        async with aclosing(platform.listen()) as arriving:
            with pytest.raises(PlatformError, match=said) as caught:
                await anext(arriving)
            assert caught.value.permanent

    play(connect, act)


def test_a_token_that_is_reset_is_said_with_what_to_do(
    server: DiscordServer, connect: Callable[[], DiscordPlatform]
) -> None:
    async def act(platform: DiscordPlatform) -> None:
        assert await platform.identify() == ("900", "rekindle")
        server.token = "another"
        attempts: list[Awaitable[object]] = [platform.identify(), platform.send(CHAT, "x", "n")]
        for attempt in attempts:
            with pytest.raises(PlatformError, match="gateway setup discord") as caught:
                await attempt
            assert caught.value.permanent

    play(connect, act)
