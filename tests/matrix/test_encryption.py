"""End-to-end encryption: with other clients, more devices, lost keys, and a room encrypted later."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from rekindle.errors import PlatformError
from rekindle.platforms import Platform
from rekindle.platforms.matrix import timeline
from rekindle.types import Source
from tests.waiting import until

from .people import ENCRYPTION, Device
from .worlds import MatrixWorld

SQLITE = pytest.mark.parametrize("synapse", ["sqlite"], indirect=True)


async def read_until(device: Device, room: str, sender: str, texts: list[str]) -> None:
    async def check() -> bool:
        await device.sync(200)
        return device.list_texts(room, sender) == texts

    await until(check, lambda: device.list_texts(room, sender))


def test_both_sides_read_each_other_over_a_restart(matrix: MatrixWorld, tmp_path: Path) -> None:
    room = matrix.person.create_room(matrix.bot.id, is_direct=True, encrypted=True)
    chat = Source("matrix", room)

    async def begin(platform: Platform) -> None:
        await matrix.begin(platform)
        device = await Device(matrix.person, tmp_path / "ada").open()
        await device.say(room, "secret one")
        (heard,) = await matrix.hear(platform)
        assert (heard.message.text, heard.source.chat_type) == ("secret one", "dm")
        sent = await platform.send(chat, "**answer** one", "n1")
        await platform.edit(chat, sent, "answer one, edited")
        await read_until(device, room, matrix.bot.id, ["answer one, edited"])
        await device.close()

    async def go_on(platform: Platform) -> None:
        device = await Device(matrix.person, tmp_path / "ada").open()
        await device.say(room, "secret two")
        (heard,) = await matrix.hear(platform)
        assert heard.message.text == "secret two"
        await platform.send(chat, "answer two", "n2")
        await platform.send(chat, "answer two", "n2")
        await read_until(device, room, matrix.bot.id, ["answer one, edited", "answer two"])
        await device.close()

    matrix.run(begin)
    matrix.run(go_on)
    kinds = [event["type"] for event in matrix.person.list_events(room)]
    assert "m.room.message" not in kinds
    assert kinds.count("m.room.encrypted") == 5, "a repeated nonce sends nothing"
    for file in matrix.folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


@SQLITE
def test_every_device_of_either_side_can_read_and_only_people_are_answered(
    matrix: MatrixWorld, tmp_path: Path
) -> None:
    room = matrix.person.create_room(matrix.bot.id, is_direct=True, encrypted=True)
    chat = Source("matrix", room)

    async def act(platform: Platform) -> None:
        await matrix.begin(platform)
        first = await Device(matrix.person, tmp_path / "first").open()
        await first.say(room, "from the first")
        (heard,) = await matrix.hear(platform)
        await platform.send(chat, "to one device", "n1")
        second = await Device(matrix.person, tmp_path / "second").open(second=True)
        other_bot = await Device(matrix.bot, tmp_path / "bot").open(second=True)
        await other_bot.say(room, "from the other device of the bot")
        await second.say(room, "from the second")
        (heard,) = await matrix.hear(platform)
        assert heard.message.text == "from the second", "the bot does not answer itself"
        await platform.send(chat, "to all devices", "n2")
        for device in (first, second, other_bot):

            async def reads(device: Device = device) -> bool:
                await device.sync(200)
                return "to all devices" in device.list_texts(room, matrix.bot.id)

            await until(reads)
            await device.close()

    matrix.run(act)


@SQLITE
def test_a_room_that_is_encrypted_later_gets_no_plain_answers_any_more(
    matrix: MatrixWorld, tmp_path: Path
) -> None:
    room = matrix.person.create_room(matrix.bot.id, is_direct=True)
    chat = Source("matrix", room)

    async def act(platform: Platform) -> None:
        await matrix.enter(platform, room)
        await platform.send(chat, "plain", "n1")
        matrix.person.request("PUT", "rooms", room, "state", "m.room.encryption", body=ENCRYPTION)
        device = await Device(matrix.person, tmp_path / "ada").open()
        await device.say(room, "now in private")
        (heard,) = await matrix.hear(platform)
        assert heard.message.text == "now in private"
        await platform.send(chat, "privately", "n2")
        await read_until(device, room, matrix.bot.id, ["plain", "privately"])
        await device.close()

    matrix.run(act)
    assert matrix.person.list_texts(room, matrix.bot.id) == ["plain"], "others see no more"


@SQLITE
def test_a_message_whose_key_comes_late_is_read_then_and_said_once_to_be_missing(
    matrix: MatrixWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "KEY_GRACE_SECONDS", 0.0)
    monkeypatch.setattr(timeline, "LONG_POLL_SECONDS", 0.3)
    room = matrix.person.create_room(matrix.bot.id, is_direct=True, encrypted=True)

    async def lose_keys(device: Device) -> list[dict[str, object]]:
        """Say something encrypted without sending the key, and return the messages with it."""
        client = device.client
        await device.sync()
        if missing := client.get_missing_sessions(room):
            await client.keys_claim(missing)
        users = list(client.rooms[room].users)
        kept = list(
            client.olm.share_group_session_parallel(room, users, ignore_unverified_devices=True)
        )
        client.olm.outbound_group_sessions[room].shared = True
        for text in ("first riddle", "second riddle"):
            await device.say(room, text)
        return [messages for _, messages in kept]

    withheld: list[dict[str, object]] = []

    async def miss(platform: Platform) -> None:
        await matrix.begin(platform)
        device = await Device(matrix.person, tmp_path / "ada").open()
        await device.say(room, "readable")
        await matrix.hear(platform)
        device.client.invalidate_outbound_session(room)
        withheld.extend(await lose_keys(device))
        await device.say(room, "still a riddle")
        task = asyncio.create_task(matrix.hear(platform))

        async def is_told() -> bool:
            await device.sync(200)
            return bool(device.list_texts(room, matrix.bot.id))

        await until(is_told)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        (told,) = device.list_texts(room, matrix.bot.id)
        assert "key has not reached me" in told
        await device.close()

    async def find(platform: Platform) -> None:
        for messages in withheld:
            path = ("sendToDevice", "m.room.encrypted", "late")
            matrix.person.request("PUT", *path, body=messages)
        heard = await matrix.hear(platform, 3)
        assert [one.message.text for one in heard] == [
            "first riddle", "second riddle", "still a riddle",
        ]  # fmt: skip

    matrix.run(miss)
    matrix.run(find)

    async def check(platform: Platform) -> None:
        await matrix.begin(platform)
        matrix.person.say(room, "not encrypted at all")
        (heard,) = await matrix.hear(platform)
        assert heard.message.text == "not encrypted at all", "what was read is not given again"

    matrix.run(check)
    kinds = [(e["type"], e["sender"]) for e in matrix.person.list_events(room)]
    assert kinds.count(("m.room.encrypted", matrix.bot.id)) == 1


@SQLITE
def test_lost_device_keys_are_not_silently_replaced(matrix: MatrixWorld, tmp_path: Path) -> None:
    async def act(platform: Platform) -> None:
        await matrix.begin(platform)
        another = matrix.connect(tmp_path / "empty")
        with pytest.raises(PlatformError, match=r"keys of the device .* are not in") as caught:
            await matrix.hear(another)
        assert caught.value.permanent
        await another.close()

    matrix.run(act)


@SQLITE
def test_the_account_vouches_for_its_device(matrix: MatrixWorld) -> None:
    def query() -> dict[str, Any]:
        body = {"device_keys": {matrix.bot.id: []}}
        return matrix.person.request("POST", "keys", "query", body=body)

    matrix.run(matrix.begin)
    first = query()
    (signing_key,) = first["self_signing_keys"][matrix.bot.id]["keys"]
    (device,) = first["device_keys"][matrix.bot.id].values()
    assert signing_key in device["signatures"][matrix.bot.id]
    matrix.run(matrix.begin)
    assert query() == first
    (matrix.folder / "signing.json").write_text('{"master": "damaged"}')
    matrix.run(matrix.begin)
    assert query() == first, "keys that are not ours are not replaced"


@SQLITE
def test_keys_restored_from_a_backup_do_not_stop_the_bot(matrix: MatrixWorld) -> None:
    room = matrix.person.create_room(matrix.bot.id, is_direct=True)
    keys = matrix.folder / "keys.db"

    def claim_keys() -> None:
        device = matrix.bot.request("GET", "account", "whoami")["device_id"]
        body = {"one_time_keys": {matrix.bot.id: {device: "signed_curve25519"}}}
        for _ in range(10):
            matrix.person.request("POST", "keys", "claim", body=body)

    async def enter(platform: Platform) -> None:
        await matrix.enter(platform, room)

    async def listen(platform: Platform) -> None:
        for text in ("one", "two", "three"):
            claim_keys()
            matrix.person.say(room, text)
            (heard,) = await matrix.hear(platform)
            assert heard.message.text == text

    matrix.run(enter)
    backup = keys.read_bytes()
    matrix.run(listen)
    keys.write_bytes(backup)
    matrix.run(listen)
