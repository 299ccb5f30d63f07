"""What is WhatsApp's own: signed webhooks that wait, the 24-hour window, media."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import aiohttp
import pytest

from rekindle.errors import InvalidSetting, PlatformError
from rekindle.platforms.whatsapp import WhatsAppPlatform, WhatsAppSettings, convert_markdown
from rekindle.testing.networks.whatsapp_server import WhatsAppServer, build_signature
from rekindle.types import Source
from tests.contract.network_worlds import WhatsApp
from tests.unit.platforms.stage import hear, play
from tests.waiting import until

ADA = Source("whatsapp", "491701", user_id="491701", user_name="Ada")


@pytest.fixture
def server() -> Iterator[WhatsAppServer]:
    with WhatsAppServer() as running:
        yield running


@pytest.fixture
def connect(server: WhatsAppServer, tmp_path: Path) -> Callable[[], WhatsAppPlatform]:
    world = WhatsApp(server, tmp_path / "state")
    return lambda: world.connect()  # type: ignore[return-value]


def test_a_webhook_is_answered_only_after_its_message_is_acknowledged(
    server: WhatsAppServer, connect: Callable[[], WhatsAppPlatform]
) -> None:
    server.post_text("hello")

    async def act(platform: WhatsAppPlatform) -> None:
        async with aclosing(platform.listen()) as arriving:
            incoming = await anext(arriving)
            assert server.waiting == 1
            assert 200 not in server.statuses
            await platform.acknowledge(incoming)
            await until(lambda: not server.waiting)
            assert server.statuses == [200]

    play(connect, act)


def test_only_what_meta_signed_comes_in(
    server: WhatsAppServer, connect: Callable[[], WhatsAppPlatform]
) -> None:
    body = json.dumps({"entry": []}).encode()

    async def act(platform: WhatsAppPlatform) -> None:
        async with aclosing(platform.listen()) as arriving:
            following = asyncio.ensure_future(anext(arriving))
            await until(lambda: _answers(server))
            for signature in ("", "sha256=00", build_signature(body, "other"), "sha256=ü"):
                assert await server.send_webhook(body, signature) == 403
            assert await server.send_webhook(body, build_signature(body, server.secret)) == 200
            for odd in (b"", b"[]", b"{", b'{"entry": [{"changes": 5}]}'):
                assert await server.send_webhook(odd, build_signature(odd, server.secret)) == 200
            async with aiohttp.ClientSession() as session:
                for token, status, text in (("verify", 200, "42"), ("guess", 403, "")):
                    query = {
                        "hub.mode": "subscribe",
                        "hub.verify_token": token,
                        "hub.challenge": "42",
                    }
                    async with session.get(server.webhook_url, params=query) as answer:
                        assert (answer.status, await answer.text()) == (status, text)
            server.post_text("signed")
            assert (await following).message.text == "signed"

    play(connect, act)


async def _answers(server: WhatsAppServer) -> bool:
    return await server.send_webhook(b"", "") == 403


def test_several_messages_twice_and_of_other_numbers_are_each_given_once(
    server: WhatsAppServer, connect: Callable[[], WhatsAppPlatform]
) -> None:
    def text(id: str) -> dict[str, object]:
        return {"from": "491701", "id": id, "type": "text", "text": {"body": id}}

    both = {"messages": [text("a"), text("b")]}
    server.post_value(both)
    server.post_value({"messages": [text("x")]}, number="other")
    server.post_value({"messages": [{**text("r"), "type": "reaction", "reaction": {}}]})
    server.post_value(both)
    server.post_text("last", context={"id": "a"})

    async def act(platform: WhatsAppPlatform) -> None:
        heard = await hear(platform, 3)
        assert [one.message.text for one in heard] == ["a", "b", "last"]
        assert heard[2].quote == "a"
        assert heard[2].source == ADA

    play(connect, act)


def test_the_24_hour_window_is_said_plainly(
    server: WhatsAppServer, connect: Callable[[], WhatsAppPlatform]
) -> None:
    async def act(platform: WhatsAppPlatform) -> None:
        server.error_code = 131047
        with pytest.raises(PlatformError, match="within 24 hours") as caught:
            await platform.send(ADA, "hello", "n")
        assert caught.value.permanent
        server.error_code = 131056
        with pytest.raises(PlatformError) as limited:
            await platform.send(ADA, "hello", "n")
        assert (limited.value.permanent, limited.value.retry_after) == (False, 6.0)
        server.error_code = 131016
        with pytest.raises(PlatformError) as passing:
            await platform.send(ADA, "hello", "n")
        assert not passing.value.permanent

    play(connect, act)


def test_a_report_of_delivery_tells_of_a_send_that_lost_its_answer(
    server: WhatsAppServer, connect: Callable[[], WhatsAppPlatform]
) -> None:
    async def act(platform: WhatsAppPlatform) -> None:
        server.loses_answers = True
        with pytest.raises(PlatformError, match="cannot be reached"):
            await platform.send(ADA, "hello", "n")
        server.loses_answers = False
        (sent,) = server.sent
        report = {"id": sent.id, "status": "sent", "biz_opaque_callback_data": sent.nonce}
        server.post_value({"statuses": [report]})
        server.post_text("next")
        await hear(platform, 1)
        assert await platform.send(ADA, "hello", "n") == sent.id
        assert len(server.sent) == 1

    play(connect, act)


def test_files_come_in_and_go_out(
    server: WhatsAppServer, connect: Callable[[], WhatsAppPlatform], tmp_path: Path
) -> None:
    server.files["m1"] = b"a" * 50
    image = {"id": "m1", "mime_type": "image/jpeg", "caption": "look"}
    server.post_message({"type": "image", "image": image})
    server.post_message({"type": "document", "document": {"id": "gone", "filename": "a.pdf"}})
    (tmp_path / "out.txt").write_bytes(b"content")

    async def act(platform: WhatsAppPlatform) -> None:
        photo, document = await hear(platform, 2)
        (one,), (other,) = photo.attachments, document.attachments
        assert (photo.message.text, one.name, one.media_type) == ("look", "image.jpg", "image/jpeg")
        assert await one.fetch(50) == b"a" * 50
        with pytest.raises(PlatformError, match="larger than 49 bytes"):
            await one.fetch(49)
        assert other.name == "a.pdf"
        with pytest.raises(PlatformError, match="Unsupported get request"):
            await other.fetch(50)
        await platform.send_file(ADA, tmp_path / "out.txt", "**see**", "n")
        await platform.send_file(ADA, tmp_path / "out.txt", "**see**", "n")
        assert [(one.text, one.file) for one in server.sent] == [("*see*", b"content")]

    play(connect, act)


def test_progress_marks_as_read_and_an_edit_is_refused(
    server: WhatsAppServer, connect: Callable[[], WhatsAppPlatform]
) -> None:
    async def act(platform: WhatsAppPlatform) -> None:
        assert platform.is_always_shared
        await platform.show_progress(ADA, "wamid.1", "working")
        await platform.show_progress(ADA, "wamid.1", "done")
        assert server.read == ["wamid.1"]
        with pytest.raises(PlatformError, match="cannot edit") as caught:
            await platform.edit(ADA, "wamid.1", "x")
        assert caught.value.permanent

    play(connect, act)


def test_a_token_that_expired_is_said_with_what_to_do(
    server: WhatsAppServer, connect: Callable[[], WhatsAppPlatform], tmp_path: Path
) -> None:
    async def act(platform: WhatsAppPlatform) -> None:
        assert await platform.identify() == ("555000", "Rekindle")
        server.token = "another"
        attempts: list[Awaitable[object]] = [platform.identify(), platform.send(ADA, "x", "n")]
        for attempt in attempts:
            with pytest.raises(PlatformError, match="gateway setup whatsapp") as caught:
                await attempt
            assert caught.value.permanent
            assert "local-access-token" not in str(caught.value)

    play(connect, act)
    with pytest.raises(InvalidSetting, match="listen"):
        WhatsAppPlatform(WhatsAppSettings("t", "1", "s", "v", listen="here"), tmp_path)


def test_markdown_is_written_in_whatsapps_own_way() -> None:
    assert convert_markdown("**b** *i* ~~s~~ [l](https://e.x) <https://e.x>\n- a") == (
        "*b* _i_ ~s~ l (https://e.x) https://e.x\n• a"
    )
