"""What is Slack's own: envelopes, threads, what happened while nobody was connected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from rekindle.errors import InvalidSetting, PlatformError
from rekindle.platforms.slack import SlackPlatform, convert_markdown
from rekindle.testing.networks.slack_server import SlackServer
from rekindle.types import Source
from tests.unit.platforms.stage import hear, play
from tests.waiting import until

pytestmark = [pytest.mark.networks, pytest.mark.slow]

ADA = Source("slack", "DADA", user_id="UADA", user_name="Ada")


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with SlackServer() as running:
        yield running


@pytest.fixture
def connect(server: SlackServer, tmp_path: Path) -> Callable[[], SlackPlatform]:
    return lambda: SlackPlatform(
        server.bot_token, server.app_token, tmp_path, api_url=server.api_url, retry_seconds=0.02
    )


def test_an_envelope_is_confirmed_only_after_its_message_is_acknowledged(
    server: SlackServer, connect: Callable[[], SlackPlatform]
) -> None:
    server.post_text("hello")

    async def act(platform: SlackPlatform) -> None:
        async with aclosing(platform.listen()) as arriving:
            incoming = await anext(arriving)
            assert server.unconfirmed
            await platform.acknowledge(incoming)
            await until(lambda: not server.unconfirmed)

    play(connect, act)


def test_in_a_channel_it_is_addressed_by_a_mention_or_in_its_own_thread(
    server: SlackServer, connect: Callable[[], SlackPlatform]
) -> None:
    server.post_text("just talk", channel="COPS")
    server.post_text("", channel="COPS", raw_text="<@UBOT> a &lt; b, ask <@UADA> in <#COPS>")
    server.post_text("", channel="COPS", raw_text="hey <@UBOT|bot> <https://e.x|x> <!here>")
    server.post_text("more", channel="COPS", thread_ts="1.0", parent_user_id="UBOT")

    async def act(platform: SlackPlatform) -> None:
        heard = await hear(platform, 4)
        assert [(one.message.text, one.is_addressed) for one in heard] == [
            ("just talk", False),
            ("a < b, ask @Ada in #ops", True),
            ("hey @bot x (https://e.x) @here", True),
            ("more", True),
        ]
        source = heard[-1].source
        assert (source.chat_type, source.chat_name, source.user_name) == ("group", "ops", "Ada")
        assert source.thread_id == "1.0"
        await platform.send(source, "answer", "n")
        assert (server.sent[0].channel, server.sent[0].thread) == ("COPS", "1.0")

    play(connect, act)


def test_bots_the_app_itself_and_notices_are_passed_over_and_confirmed(
    server: SlackServer, connect: Callable[[], SlackPlatform]
) -> None:
    server.post_text("loop", bot_id="B2")
    server.post_text("own", user="UBOT")
    server.post_text("joined", subtype="channel_join")
    server.post_event({"type": "reaction_added", "user": "UADA"})
    server.post_text("hello")

    async def act(platform: SlackPlatform) -> None:
        async with aclosing(platform.listen()) as arriving:
            incoming = await anext(arriving)
            assert incoming.message.text == "hello"
            await platform.acknowledge(incoming)
            await until(lambda: not server.unconfirmed)

    play(connect, act)


def test_edits_and_deletions_have_the_id_of_the_message(
    server: SlackServer, connect: Callable[[], SlackPlatform]
) -> None:
    ts = server.post_text("hallo")
    before = {"user": "UADA", "ts": ts, "text": "hallo"}
    changed = {"type": "message", "subtype": "message_changed", "channel": "DADA"}
    server.post_event({**changed, "message": before, "previous_message": before})  # a preview
    server.post_event(
        {**changed, "message": {**before, "text": "hello"}, "previous_message": before}
    )
    server.post_event(
        {
            "type": "message",
            "subtype": "message_deleted",
            "channel": "DADA",
            "deleted_ts": ts,
            "previous_message": before,
        }
    )

    async def act(platform: SlackPlatform) -> None:
        heard = await hear(platform, 3)
        assert [(one.change, one.message.text) for one in heard] == [
            ("new", "hallo"),
            ("edited", "hello"),
            ("deleted", ""),
        ]
        assert {one.message.platform_message_id for one in heard} == {ts}

    play(connect, act)


def test_what_slack_gave_up_on_is_read_from_the_history(
    server: SlackServer, connect: Callable[[], SlackPlatform]
) -> None:
    root = server.post_text("first")
    server.post_text("in a thread", channel="COPS", thread_ts="1699999999.000001")

    async def before(platform: SlackPlatform) -> None:
        await hear(platform, 2)

    play(connect, before)
    server.forgets_events = True
    missed = [f"missed {number}" for number in range(450)]
    for text in missed:
        server.post_text(text)
    server.post_text("reply", channel="COPS", thread_ts="1699999999.000001")
    server.post_text("not mine", bot_id="B9")
    server.forgets_events = False
    server.post_text("live")

    async def after(platform: SlackPlatform) -> None:
        heard = await hear(platform, len(missed) + 2)
        assert [one.message.text for one in heard] == [*missed, "reply", "live"]
        assert root not in {one.message.platform_message_id for one in heard}

    play(connect, after)


def test_events_twice_and_out_of_order_are_each_given_once(
    server: SlackServer, connect: Callable[[], SlackPlatform]
) -> None:
    late = {"type": "message", "channel": "DADA", "user": "UADA", "ts": "1.000001", "text": "late"}
    server.post_text("on time")

    async def act(platform: SlackPlatform) -> None:
        async with aclosing(platform.listen()) as arriving:
            first = await anext(arriving)
            await platform.acknowledge(first)
            event = server.post_event(late)
            second = await anext(arriving)
            await platform.acknowledge(second)
            server.post_event(late, event_id=event)
            server.post_text("last")
            third = await anext(arriving)
            assert [one.message.text for one in (first, second, third)] == [
                "on time",
                "late",
                "last",
            ]

    play(connect, act)


def test_it_connects_anew_when_slack_asks_for_it(
    server: SlackServer, connect: Callable[[], SlackPlatform]
) -> None:
    async def act(platform: SlackPlatform) -> None:
        async with aclosing(platform.listen()) as arriving:
            following = asyncio.ensure_future(anext(arriving))
            await until(lambda: server.connections == 1)
            opened = server.requests.count("apps.connections.open")
            server.ask_to_reconnect()
            await until(lambda: server.requests.count("apps.connections.open") > opened)
            server.post_text("hello")
            assert (await following).message.text == "hello"

    play(connect, act)


def test_a_send_that_lost_its_answer_is_found_by_its_nonce(
    server: SlackServer, connect: Callable[[], SlackPlatform]
) -> None:
    async def act(platform: SlackPlatform) -> None:
        server.loses_answers = True
        for thread in (None, "1.0"):
            with pytest.raises(PlatformError, match="cannot be reached"):
                await platform.send(ADA._replace(thread_id=thread), "hello", f"n{thread}")
        server.loses_answers = False
        again = [
            await platform.send(ADA._replace(thread_id=thread), "hello", f"n{thread}")
            for thread in (None, "1.0")
        ]
        assert again == [one.ts for one in server.sent]

    # The clock of the server stands in the past: what it keeps counts as recent.
    async def recent(platform: SlackPlatform) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rekindle.platforms.slack.time.time", lambda: 1700000000.0)
            await act(platform)

    play(connect, recent)


def test_files_come_in_with_the_token_for_slack_alone(
    server: SlackServer, connect: Callable[[], SlackPlatform], tmp_path: Path
) -> None:
    server.files["F0"] = b"a" * 50
    mine = {"name": "a.png", "mimetype": "image/png", "size": 50}
    elsewhere = {**mine, "url_private": "http://localhost:1/steal"}
    server.post_text(
        "look",
        subtype="file_share",
        files=[{**mine, "url_private": f"{server.url}/files/F0"}, elsewhere],
    )
    (tmp_path / "out.txt").write_bytes(b"content")

    async def act(platform: SlackPlatform) -> None:
        (heard,) = await hear(platform, 1)
        image, other = heard.attachments
        assert (image.name, image.media_type, image.size) == ("a.png", "image/png", 50)
        assert await image.fetch(50) == b"a" * 50
        with pytest.raises(PlatformError, match="larger than 49 bytes"):
            await image.fetch(49)
        with pytest.raises(PlatformError, match="does not store this file"):
            await other.fetch(50)
        await platform.send_file(ADA, tmp_path / "out.txt", "**see**", "n")
        await platform.send_file(ADA, tmp_path / "out.txt", "**see**", "n")
        assert server.uploads == [("*see*", b"content")]

    play(connect, act)


def test_progress_is_a_reaction(server: SlackServer, connect: Callable[[], SlackPlatform]) -> None:
    async def act(platform: SlackPlatform) -> None:
        await platform.show_progress(ADA, "1.0", "working")
        await platform.show_progress(ADA, "1.0", "working")
        assert server.reactions == {("1.0", "eyes")}
        await platform.show_progress(ADA, "1.0", "failed")
        assert server.reactions == {("1.0", "warning")}

    play(connect, act)


def test_a_token_that_is_revoked_is_said_with_what_to_do(
    server: SlackServer, connect: Callable[[], SlackPlatform], tmp_path: Path
) -> None:
    async def act(platform: SlackPlatform) -> None:
        assert (await platform.identify()).name == "rekindle"
        server.app_token = "xapp-other"
        with pytest.raises(PlatformError, match="gateway setup slack") as caught:
            await hear(platform, 1)
        assert caught.value.permanent
        server.bot_token = "xoxb-other"
        attempts: list[Awaitable[object]] = [platform.identify(), platform.send(ADA, "x", "n")]
        for attempt in attempts:
            with pytest.raises(PlatformError, match="gateway setup slack"):
                await attempt

    play(connect, act)
    with pytest.raises(InvalidSetting, match="xoxb-"):
        SlackPlatform("xoxp-1", "xapp-1", tmp_path)


def test_no_text_can_mention_everybody() -> None:
    assert convert_markdown("<!channel> **a** & [b](https://e.x/?a=1&b=2|<!here>)") == (
        "&lt;!channel&gt; *a* &amp; <https://e.x/?a=1&amp;b=2%7C%3C!here%3E|b>"
    )
