"""What people do in rooms: who is let in, who is addressed, and what becomes of their messages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rekindle.errors import PlatformError
from rekindle.platforms import Platform
from rekindle.platforms.matrix import timeline
from rekindle.types import Source
from tests.waiting import until

from .people import Device, Person
from .worlds import MatrixWorld

pytestmark = pytest.mark.parametrize("synapse", ["sqlite"], indirect=True)


def reply_to(event_id: str) -> dict[str, Any]:
    return {"m.relates_to": {"m.in_reply_to": {"event_id": event_id}}}


def edit_of(event_id: str, text: str) -> dict[str, Any]:
    return {
        "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
        "m.new_content": {"msgtype": "m.text", "body": text},
    }


def test_only_admitted_people_can_invite_the_bot(
    matrix: MatrixWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "LONG_POLL_SECONDS", 0.3)
    stranger = Person(matrix.synapse, "mallory", "Mallory")
    trap = stranger.create_room(matrix.bot.id, is_direct=True)
    stranger.say(trap, "let me in")

    async def ignore(platform: Platform) -> None:
        await matrix.enter(platform, matrix.person.create_room(matrix.bot.id, is_direct=True))

    async def accept(platform: Platform) -> None:
        matrix.admitted.add(stranger.id)
        (heard,) = await matrix.hear(platform)
        assert heard.message.text == "let me in", "what was said after the invitation counts"
        assert (heard.source.user_id, heard.source.chat_type) == (stranger.id, "dm")

    matrix.run(ignore)
    joined = f"/_matrix/client/v3/rooms/{trap}/join".replace("!", "%21")
    assert joined not in {path for _, path in matrix.proxy.requests}
    events = stranger.list_events(trap)
    assert all(event["sender"] == stranger.id for event in events), "the bot did nothing there"
    matrix.run(accept)


def test_a_stranger_in_a_room_is_passed_on_as_one_and_causes_nothing_else(
    matrix: MatrixWorld,
) -> None:
    stranger = Person(matrix.synapse, "mallory", "Mallory")
    room = matrix.person.create_room(matrix.bot.id, stranger.id, name="Team")
    stranger.join(room)

    async def act(platform: Platform) -> None:
        await matrix.enter(platform, room)
        mine = matrix.person.say(room, "mine")
        await matrix.hear(platform)
        del matrix.proxy.requests[:]
        stranger.send(
            room, "m.reaction",
            {"m.relates_to": {"rel_type": "m.annotation", "event_id": mine, "key": "👍"}},
        )  # fmt: skip
        stranger.say(room, "* forged", **edit_of(mine, "forged"))
        stranger.say(room, "hello")
        url = stranger.upload(b"trap")
        stranger.say(room, "trap.txt", msgtype="m.file", url=url)
        matrix.person.say(room, "end")
        hello, file, end = await matrix.hear(platform, 3)
        assert (hello.source.user_id, hello.message.text) == (stranger.id, "hello")
        assert (file.source.user_id, end.message.text) == (stranger.id, "end")
        await platform.close()
        done = [path for method, path in matrix.proxy.requests if "/sync" not in path]
        assert all("read_markers" in path for path in done), done
        assert len(done) <= 1, "a stranger's messages are not even marked as read"

    matrix.run(act)


def test_a_group_says_who_speaks_and_to_whom(matrix: MatrixWorld) -> None:
    bob = Person(matrix.synapse, "bob", "Bob")
    matrix.admitted.add(bob.id)
    room = matrix.person.create_room(matrix.bot.id, bob.id, name="Team")
    bob.join(room)

    async def act(platform: Platform) -> None:
        await matrix.enter(platform, room)
        answer = await platform.send(Source("matrix", room), "I said this", "n")
        said = bob.say(room, "among us", **{"m.mentions": {}})
        bob.say(room, "Rekindle: /status", **{"m.mentions": {"user_ids": [matrix.bot.id]}})
        bob.say(room, f"hey {matrix.bot.id}, you")
        bob.say(room, "rekindle the fire", **{"m.mentions": {}})
        bob.say(room, f"> <{matrix.bot.id}> I said this\n\nreally?", **reply_to(answer))
        bob.say(room, "and you, Ada?", **reply_to(said))
        bob.say(room, "in a thread", **{"m.mentions": {}, "m.relates_to": {
            "rel_type": "m.thread", "event_id": answer, "is_falling_back": True,
            "m.in_reply_to": {"event_id": said}}})  # fmt: skip
        bob.say(room, "I am a bot", msgtype="m.notice")
        bob.say(room, "waves", msgtype="m.emote", **{"m.mentions": {}})
        heard = await matrix.hear(platform, 8)
        assert [(one.message.text, one.is_addressed, one.quote) for one in heard] == [
            ("among us", False, ""),
            ("/status", True, ""),
            (f"hey {matrix.bot.id}, you", True, ""),
            ("rekindle the fire", False, ""),
            ("really?", True, "I said this"),
            ("and you, Ada?", False, "among us"),
            ("in a thread", True, ""),
            ("* Bob waves", False, ""),
        ]
        source = heard[0].source
        assert (source.chat_type, source.chat_name, source.user_name) == ("group", "Team", "Bob")
        assert heard[6].source.thread_id == answer
        await platform.send(heard[6].source, "in the thread too", "n2")

    matrix.run(act)
    last = matrix.person.list_events(room)[-1]["content"]
    assert last["m.relates_to"]["rel_type"] == "m.thread"


def test_edits_and_deletions_count_only_by_the_author(matrix: MatrixWorld) -> None:
    bob = Person(matrix.synapse, "bob", "Bob")
    matrix.admitted.add(bob.id)
    room = matrix.person.create_room(matrix.bot.id, bob.id, preset="trusted_private_chat")
    bob.join(room)
    said: list[str] = []

    async def act(platform: Platform) -> None:
        await matrix.enter(platform, room)
        said.append(matrix.person.say(room, "teh answer?"))
        await matrix.hear(platform)

    async def go_on(platform: Platform) -> None:  # it has forgotten who wrote what
        await matrix.begin(platform)
        (original,) = said
        bob.say(room, "* forged", **edit_of(original, "forged"))
        matrix.person.say(room, "* the answer?", **edit_of(original, "the answer?"))
        other = bob.say(room, "by Bob")
        matrix.person.redact(room, other)  # a moderator, not the author
        matrix.person.redact(room, original)
        matrix.person.say(room, "end")
        heard = await matrix.hear(platform, 3)
        assert [
            (one.change, one.message.platform_message_id, one.message.text) for one in heard[:2]
        ] == [("edited", original, "the answer?"), ("deleted", original, "")]
        assert heard[0].source.user_id == matrix.person.id
        assert heard[2].message.text == "end"

    matrix.run(act)
    matrix.run(go_on)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_files_go_both_ways(matrix: MatrixWorld, tmp_path: Path, encrypted: bool) -> None:
    room = matrix.person.create_room(matrix.bot.id, is_direct=True, encrypted=encrypted)
    report = tmp_path / "report.txt"
    report.write_bytes(b"figures" * 100)

    async def act(platform: Platform) -> None:
        await matrix.begin(platform)
        device = await Device(matrix.person, tmp_path / "ada").open()
        await device.say(room, "hello")
        await matrix.hear(platform)
        data = b"\x89PNG" + b"x" * 1000
        await device.send(room, build_file(matrix.person, data, encrypted=encrypted))
        (heard,) = await matrix.hear(platform)
        (file,) = heard.attachments
        assert (file.name, file.media_type, file.size) == ("cat.png", "image/png", len(data))
        assert heard.message.text == "look at this"
        assert await file.fetch(2000) == data
        with pytest.raises(PlatformError, match="larger than 100 bytes"):
            await file.fetch(100)
        target = heard.source
        first = await platform.send_file(target, report, "the report", "f")
        assert await platform.send_file(target, report, "the report", "f") == first
        report.write_bytes(b"x" * 3_000_000)
        with pytest.raises(PlatformError, match=r"(?i)large|size") as caught:
            await platform.send_file(target, report, "", "large")
        assert caught.value.permanent

        async def arrives() -> bool:
            await device.sync(200)
            return "the report" in device.list_texts(room, matrix.bot.id)

        await until(arrives)
        (shown,) = [e for e in device.events if e["content"].get("body") == "the report"]
        assert ("file" in shown["content"]) == encrypted
        assert shown["content"]["filename"] == "report.txt"
        await device.close()

    matrix.run(act)


def build_file(person: Person, data: bytes, *, encrypted: bool) -> dict[str, Any]:
    content: dict[str, Any] = {
        "msgtype": "m.image",
        "body": "look at this",
        "filename": "cat.png",
        "info": {"mimetype": "image/png", "size": len(data)},
    }
    if not encrypted:
        return {**content, "url": person.upload(data)}
    from nio.crypto.attachments import encrypt_attachment

    secret, keys = encrypt_attachment(data)
    return {**content, "file": {**keys, "url": person.upload(secret)}}


def test_progress_is_shown_by_typing_reactions_and_read_markers(matrix: MatrixWorld) -> None:
    room = matrix.person.create_room(matrix.bot.id, is_direct=True)

    def reactions() -> list[str]:
        return [
            event["content"]["m.relates_to"]["key"]
            for event in matrix.person.list_events(room)
            if event["type"] == "m.reaction" and event["content"]
        ]

    def ephemeral() -> list[Any]:
        joined = matrix.person.request("GET", "sync")["rooms"]["join"]
        return joined[room]["ephemeral"]["events"]

    async def act(platform: Platform) -> None:
        await matrix.enter(platform, room)
        said = matrix.person.say(room, "work")
        (heard,) = await matrix.hear(platform)
        await platform.show_progress(heard.source, said, "working")
        assert reactions() == ["👀"]
        await until(
            lambda: (
                [matrix.bot.id]
                in [
                    one["content"].get("user_ids")
                    for one in ephemeral()
                    if one["type"] == "m.typing"
                ]
            )
        )
        await platform.show_progress(heard.source, said, "working")
        await platform.show_progress(heard.source, said, "done")
        assert reactions() == ["✅"]

        async def is_read() -> bool:
            shown = [one["content"] for one in ephemeral() if one["type"] == "m.receipt"]
            return any(matrix.bot.id in one.get(said, {}).get("m.read", {}) for one in shown)

        await until(is_read)
        await platform.show_progress(heard.source, "$unknown", "failed")  # never raises

    matrix.run(act)


def test_long_and_odd_texts_are_split_into_events_that_fit(matrix: MatrixWorld) -> None:
    room = matrix.person.create_room(matrix.bot.id, is_direct=True, encrypted=True)
    texts = ["🙂" * 9_000, '"<&' * 5_000, "> " * 2_000 + "deep", "слово " * 3_000]

    async def act(platform: Platform) -> None:
        await matrix.begin(platform)
        await asyncio.sleep(0)
        matrix.person.say(room, "plain")
        await matrix.hear(platform)
        for number, text in enumerate(texts):
            parts = platform.split(text)
            assert "".join("".join(parts).split()) == "".join(text.split())
            for index, part in enumerate(parts):
                id = await platform.send(Source("matrix", room), part, f"{number}-{index}")
                await platform.edit(Source("matrix", room), id, part)

    matrix.run(act)
