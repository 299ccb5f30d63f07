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

    @contextmanager
    def gateway(self) -> Iterator[subprocess.Popen[str]]:
        """Run a gateway that has begun to listen."""
        process = command.start(["gateway", "run"], env=self.env, stderr=subprocess.DEVNULL)
        state = self.home / "platforms" / "matrix" / "sync.json"
        try:
            wait_until(lambda: state.exists() or process.poll() is not None)
            yield process
        finally:
            process.kill()
            process.wait()

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
