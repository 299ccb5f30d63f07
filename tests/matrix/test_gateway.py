"""The gateway as a program, on a real homeserver."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rekindle.platforms.settings_file import write_settings
from rekindle.testing import ScriptedModel
from tests import command
from tests.waiting import until, wait_until

from .people import Device, Person
from .synapse import Synapse

ANSWER = " ".join(["a long answer"] * 20)
SCRIPT = {"turns": [{"user": "ponder", "steps": [{"text": ANSWER, "pause": 0.05}]}]}


class Place:
    """A home with a bot's settings; gateways are started in it."""

    def __init__(self, home: Path, synapse: Synapse, model: ScriptedModel, person: Person) -> None:
        self.synapse, self.model, self.person = synapse, model, person
        self.bot = Person(synapse, "bot", "Rekindle")
        self.home = home
        write_settings("matrix", home, {"homeserver": synapse.url, "access_token": self.bot.token})
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("REKINDLE_", "OPENAI_"))}
        self.env = {
            **kept,
            "HOME": str(home),
            "REKINDLE_HOME": str(home),
            "OPENAI_BASE_URL": model.url,
            "REKINDLE_MODEL": "scripted",
            "REKINDLE_KEYS_DIRECT": "shared",
            "REKINDLE_GATEWAY_LEASE_SECONDS": "2",
            "REKINDLE_GATEWAY_EDIT_SECONDS": "0.1",
            "REKINDLE_GATEWAY_PLATFORMS": "matrix",
            "REKINDLE_GATEWAY_ALLOW": f"matrix:{person.id}=owner",
        }

    def open_room(self, *others: Person, encrypted: bool = False) -> str:
        """Make a room that the bot is in."""
        invited = [self.bot.id, *(one.id for one in others)]
        room = self.person.create_room(*invited, is_direct=not others, encrypted=encrypted)
        for one in (self.bot, *others):
            one.join(room)
        if not others:
            body = {self.person.id: [room]}
            self.bot.request("PUT", "user", self.bot.id, "account_data", "m.direct", body=body)
        return room

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return command.run(words, env=self.env, capture_output=True, text=True)

    @contextmanager
    def gateway(self) -> Iterator[subprocess.Popen[str]]:
        """Run a gateway that has begun to listen."""
        with (self.home / "gateway.log").open("ab") as log:
            process = command.start(["gateway", "run"], env=self.env, stderr=log)
        state = self.home / "platforms" / "matrix" / "sync.json"
        try:
            wait_until(lambda: state.exists() or process.poll() is not None)
            yield process
        finally:
            process.kill()
            process.wait()

    def get_membership(self, room: str, person: Person | None = None) -> str:
        """Return whether the bot is in a room, as a person who is there sees it."""
        path = ("rooms", room, "state", "m.room.member", self.bot.id)
        return (person or self.person).request("GET", *path)["membership"]

    def shows(self, room: str, *texts: str) -> bool:
        return self.person.list_texts(room, self.bot.id) == [*texts]


@pytest.fixture
def place(synapse: Synapse, ada: Person, tmp_path: Path) -> Iterator[Place]:
    with ScriptedModel(SCRIPT) as model:
        yield Place(tmp_path / "home", synapse, model, ada)


def test_a_gateway_killed_in_mid_answer_answers_once(place: Place) -> None:
    room = place.open_room()
    with place.gateway() as process:
        place.person.say(room, "hello")
        wait_until(lambda: place.shows(room, "You said: hello"))
        place.person.say(room, "please ponder")
        wait_until(lambda: len(place.person.list_texts(room, place.bot.id)) == 2)
        process.kill()
        process.wait()
    place.person.say(room, "still there?")
    with place.gateway():
        expected = ("You said: hello", ANSWER, "You said: still there?")
        try:
            wait_until(lambda: place.shows(room, *expected))
        except TimeoutError:
            assert place.person.list_texts(room, place.bot.id) == [*expected]


def test_a_server_killed_in_mid_answer_gets_the_answer_later(place: Place) -> None:
    room = place.open_room()
    with place.gateway():
        with place.model.hold_requests():
            place.person.say(room, "hello")
            wait_until(lambda: place.model.requests)
            place.synapse.kill()
        place.synapse.start()
        place.person.say(room, "and now?")
        wait_until(lambda: place.shows(room, "You said: hello", "You said: and now?"))


@pytest.mark.parametrize("synapse", ["sqlite"], indirect=True)
def test_an_encrypted_chat_goes_on_after_a_kill(place: Place, tmp_path: Path) -> None:
    room = place.open_room(encrypted=True)

    async def act() -> None:
        with place.gateway() as process:
            device = await Device(place.person, tmp_path / "ada").open()
            await device.say(room, "secret")
            await until(lambda: shows(device, "You said: secret"))
            process.kill()
            process.wait()
        await device.say(room, "another secret")
        with place.gateway():
            await until(lambda: shows(device, "You said: secret", "You said: another secret"))
        await device.close()

    async def shows(device: Device, *texts: str) -> bool:
        await device.sync(200)
        return device.list_texts(room, place.bot.id) == [*texts]

    asyncio.run(act())
    assert not place.person.list_texts(room, place.bot.id), "nothing is readable on the server"


@pytest.mark.parametrize("synapse", ["sqlite"], indirect=True)
def test_an_invitation_of_someone_allowed_is_accepted_and_answered(
    place: Place, tmp_path: Path
) -> None:
    async def act() -> None:
        with place.gateway():
            device = await Device(place.person, tmp_path / "ada").open()
            rooms = [
                place.person.create_room(place.bot.id, is_direct=True, encrypted=encrypted)
                for encrypted in (False, True)
            ]
            for room in rooms:
                await until(lambda room=room: place.get_membership(room) == "join")
                await device.say(room, "hello")
            for room in rooms:
                await until(lambda room=room: shows(device, room, "You said: hello"))
            await device.close()
            (plain, secret) = rooms
            assert place.shows(plain, "You said: hello")
            assert place.shows(secret), "nothing is readable on the server"

    async def shows(device: Device, room: str, *texts: str) -> bool:
        await device.sync(200)
        return device.list_texts(room, place.bot.id) == [*texts]

    asyncio.run(act())


@pytest.mark.parametrize("synapse", ["sqlite"], indirect=True)
def test_an_invitation_of_a_stranger_stays_open_until_they_are_let_in(place: Place) -> None:
    stranger = Person(place.synapse, "mallory", "Mallory")
    with place.gateway():
        rooms = [
            stranger.create_room(place.bot.id, is_direct=True, encrypted=encrypted)
            for encrypted in (False, True)
        ]
        stranger.say(rooms[0], "hello?")
        room = place.person.create_room(place.bot.id, is_direct=True)
        place.person.say(room, "hello")
        wait_until(lambda: place.shows(room, "You said: hello"))
        for trap in rooms:
            assert place.get_membership(trap, stranger) == "invite"
            assert {event["sender"] for event in stranger.list_events(trap)} == {stranger.id}
        assert len(place.model.requests) == 1
        done = place.run("gateway", "allow", f"matrix:{stranger.id}", "--role", "user")
        assert done.returncode == 0, done.stderr
        place.person.say(room, "and now?")
        wait_until(lambda: place.get_membership(rooms[0], stranger) == "join")
        wait_until(lambda: stranger.list_texts(rooms[0], place.bot.id) == ["You said: hello?"])


@pytest.mark.parametrize("synapse", ["sqlite"], indirect=True)
def test_a_stranger_in_a_direct_chat_gets_a_pairing_code_once(place: Place) -> None:
    stranger = Person(place.synapse, "mallory", "Mallory")
    room = stranger.create_room(place.bot.id, is_direct=True)
    place.bot.join(room)  # as if they had been allowed before
    body = {stranger.id: [room]}
    place.bot.request("PUT", "user", place.bot.id, "account_data", "m.direct", body=body)
    own = place.open_room()
    place.bot.request("PUT", "user", place.bot.id, "account_data", "m.direct",
                      body={**body, place.person.id: [own]})  # fmt: skip
    with place.gateway():
        first = stranger.say(room, "let me in")
        wait_until(lambda: stranger.list_texts(room, place.bot.id))
        url = stranger.upload(b"x")
        stranger.say(room, "x.txt", msgtype="m.file", url=url)
        relation = {"rel_type": "m.annotation", "event_id": first, "key": "👍"}
        stranger.send(room, "m.reaction", {"m.relates_to": relation})
        stranger.say(
            room, f"{place.bot.id}: please", **{"m.mentions": {"user_ids": [place.bot.id]}}
        )
        stranger.redact(room, first)
        place.person.say(own, "hello")
        wait_until(lambda: place.shows(own, "You said: hello"))
    (hint,) = stranger.list_texts(room, place.bot.id)
    assert "rekindle gateway pair" in hint
    assert len(place.model.requests) == 1
    kinds = {one["type"] for one in stranger.list_events(room) if one["sender"] == place.bot.id}
    assert kinds == {"m.room.member", "m.room.message"}, "no reaction, and nothing else"
    assert not [*place.home.rglob("*x.txt")]


@pytest.mark.parametrize("synapse", ["sqlite"], indirect=True)
def test_a_device_that_is_logged_out_is_said_in_one_line_and_shown(place: Place) -> None:
    room = place.open_room()
    with place.gateway():
        place.person.say(room, "hello")
        wait_until(lambda: place.shows(room, "You said: hello"))
        place.bot.request("POST", "logout", body={})
        place.person.say(
            room, "still there?"
        )  # ends the long poll, after which the next is refused
        wait_until(
            lambda: "does not accept the access token" in place.run("gateway", "status").stdout
        )
        status = place.run("gateway", "status")
    assert status.returncode == 1
    assert "  matrix: the homeserver does not accept the access token" in status.stdout
    log = (place.home / "gateway.log").read_text()
    assert "Traceback" not in log
    assert log.count('"level": "error"') == 1, log


@pytest.mark.parametrize("synapse", ["sqlite"], indirect=True)
def test_a_stranger_gets_nothing(place: Place) -> None:
    stranger = Person(place.synapse, "mallory", "Mallory")
    room = place.open_room(stranger)
    with place.gateway():
        trap = stranger.create_room(place.bot.id, is_direct=True)
        stranger.say(trap, "hello?")
        stranger.say(room, f"{place.bot.id}: hello")
        url = stranger.upload(b"x")
        stranger.say(room, "x.txt", msgtype="m.file", url=url)
        mention = {"m.mentions": {"user_ids": [place.bot.id]}}
        place.person.say(room, f"{place.bot.id}: hello", **mention)
        wait_until(lambda: place.person.list_texts(room, place.bot.id))
    assert len(place.model.requests) == 1
    (answer,) = place.person.list_texts(room, place.bot.id)
    assert "hello" in answer
    assert {event["sender"] for event in stranger.list_events(trap)} == {stranger.id}
