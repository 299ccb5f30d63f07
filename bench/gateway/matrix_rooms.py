"""Matrix: many rooms on a real Synapse, while the server and the gateway are killed.

People write in their direct chats with the bot, some of them at the same time; half of the rooms are
encrypted. Server and gateway are each killed and restarted twice. Every message must be answered once,
in the order of the messages in its room. The model is scripted and answers immediately.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests import servers
from tests.matrix.people import Device, Person
from tests.matrix.synapse import ApiError, Synapse

from bench import report
from bench.environments import ROOT
from bench.runner import Figures
from rekindle.platforms.settings_file import write_settings
from rekindle.testing import ScriptedModel

ROOMS, EACH, PEOPLE = 50, 20, 10
RESTARTS = 2
PATIENCE_S = 1_800


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="few rooms; writes no results file")
    parser.add_argument("--seed", type=int, default=1, help="determines who writes when")
    parser.add_argument("--engine", choices=("sqlite", "postgresql"), default="postgresql")


def run(args: argparse.Namespace) -> None:
    logging.getLogger("nio").setLevel(logging.ERROR)  # every request to a killed server times out
    rooms, each = (6, 5) if args.quick else (ROOMS, EACH)
    with TemporaryDirectory(prefix="rekindle-matrix-") as name, open_database(args.engine) as url:
        figures = measure_rooms(Path(name), url, rooms, each, args.seed)
    text = build_page(figures, args.engine)
    print(text)
    if not args.quick:
        report.write_section("matrix", text)


@contextmanager
def open_database(engine: str) -> Any:
    if engine == "sqlite":
        yield None
        return
    with servers.postgres() as server:
        yield server.database()


def measure_rooms(folder: Path, url: str | None, rooms: int, each: int, seed: int) -> Figures:
    synapse = Synapse(folder / "synapse", url)
    try:
        with ScriptedModel({"otherwise": [{"text": "<{user}>"}]}) as model:
            return RoomCrowd(folder, synapse, model, rooms, each, seed).run()
    finally:
        synapse.stop()


class RoomCrowd:
    """The people, their rooms, and the gateway that answers them."""

    def __init__(
        self, folder: Path, synapse: Synapse, model: ScriptedModel, rooms: int, each: int, seed: int
    ) -> None:
        self.folder, self.synapse, self.model, self.each = folder, synapse, model, each
        self.rng = random.Random(seed)
        self.bot = Person(synapse, "bot", "Rekindle")
        people = [Person(synapse, "someone") for _ in range(min(PEOPLE, rooms))]
        self.encrypted: set[str] = set()
        self.rooms = self._open_rooms(people, rooms)
        self.devices = Devices(folder / "devices")
        self.said = Counter[str]()
        self.lock = threading.Lock()
        self.gateway = self._start_gateway()

    def _open_rooms(self, people: list[Person], count: int) -> dict[str, Person]:
        direct: dict[str, list[str]] = {}
        rooms: dict[str, Person] = {}
        for number in range(count):
            person = people[number % len(people)]
            is_encrypted = (number + number // len(people)) % 2 == 1
            room = person.create_room(self.bot.id, is_direct=True, encrypted=is_encrypted)
            if is_encrypted:
                self.encrypted.add(room)
            self.bot.join(room)
            direct.setdefault(person.id, []).append(room)
            rooms[room] = person
        self.bot.request("PUT", "user", self.bot.id, "account_data", "m.direct", body=direct)
        return rooms

    def _start_gateway(self) -> subprocess.Popen[bytes]:
        home = self.folder / "home"
        write_settings(
            "matrix", home, {"homeserver": self.synapse.url, "access_token": self.bot.token}
        )
        kept = {n: v for n, v in os.environ.items() if not n.startswith("REKINDLE_")}
        env = {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "REKINDLE_HOME": str(home),
            "OPENAI_BASE_URL": self.model.url,
            "OPENAI_API_KEY": "none",
            "REKINDLE_MODEL": "scripted",
            "REKINDLE_KEYS_DIRECT": "shared",
            "REKINDLE_GATEWAY_LEASE_SECONDS": "5",
            "REKINDLE_GATEWAY_PLATFORMS": "matrix",
            "REKINDLE_GATEWAY_ALLOW": "matrix:*=owner",
        }
        command = [sys.executable, "-m", "rekindle.cli", "gateway", "run", "--quiet"]
        with (self.folder / "gateway.log").open("ab") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def run(self) -> Figures:
        try:
            state = self.folder / "home" / "platforms" / "matrix" / "sync.json"
            wait_for(state.exists, 120)
            self.devices.open([self.rooms[room] for room in self.encrypted])
            return self._run_rooms()
        finally:
            self.devices.close()
            self.gateway.kill()
            self.gateway.wait()

    def _run_rooms(self) -> Figures:
        total = len(self.rooms) * self.each
        order = [room for room in self.rooms for _ in range(self.each)]
        self.rng.shuffle(order)
        steps = 2 * RESTARTS
        points = [total * number // (steps + 1) for number in range(1, steps + 1)]
        begun = time.monotonic()
        # Each room has one speaker, so its messages are ordered; rooms run in parallel.
        speakers = {room: ThreadPoolExecutor(1) for room in self.rooms}
        gate = threading.Semaphore(4)
        for room in order:
            speakers[room].submit(self._say, room, gate)
        for number, point in enumerate(points):
            wait_for(lambda point=point: self.said.total() >= point, PATIENCE_S)
            print(f"  {self.said.total()} said, {time.monotonic() - begun:.0f} s", flush=True)
            if number % 2:
                self.gateway.kill()
                self.gateway.wait()
                self.gateway = self._start_gateway()
            else:
                self.synapse.kill()
                self.synapse.start()
        for speaker in speakers.values():
            speaker.shutdown(wait=True)
        said = time.monotonic() - begun
        print(f"  {self.said.total()} said, {said:.0f} s", flush=True)
        wait_for(lambda: self._count_answers() >= total, PATIENCE_S, pause=2.0)
        seconds = time.monotonic() - begun
        time.sleep(5.0)  # for an answer too many
        count = {"rooms": len(self.rooms), "encrypted": len(self.encrypted)}
        return {**self._check_answers(), "said_s": said, "seconds": seconds, **count}

    def _say(self, room: str, gate: threading.Semaphore) -> None:
        """Send the next message to a room until the server accepts it, which it does once."""
        text, transaction = f"m{self.said[room]}", uuid.uuid4().hex
        path = ("rooms", room, "send", "m.room.message", transaction)
        while True:
            try:
                with gate:
                    body = {"msgtype": "m.text", "body": text}
                    if room in self.encrypted:
                        self.devices.say(self.rooms[room], room, body, transaction)
                    else:
                        self.rooms[room].request("PUT", *path, body=body)
                break
            except (OSError, ApiError, ValueError, AssertionError):
                time.sleep(0.5)
        with self.lock:
            self.said[room] += 1

    def _count_answers(self) -> int:
        return sum(len(texts) for texts in self._list_answers().values())

    def _list_answers(self) -> dict[str, list[str]]:
        self.devices.sync()
        return {
            room: self.devices.list_texts(person, room, self.bot.id)
            if room in self.encrypted
            else person.list_texts(room, self.bot.id)
            for room, person in self.rooms.items()
        }

    def _check_answers(self) -> Figures:
        wanted = [f"<m{number}>" for number in range(self.each)]
        answers = self._list_answers()
        lost = sum(len(set(wanted) - set(texts)) for texts in answers.values())
        doubled = sum(len(texts) - len(set(texts)) for texts in answers.values())
        for room, texts in answers.items():
            if texts != wanted:
                print(f"  {room}: {texts}")
        return {
            "messages": self.said.total(),
            "answers": sum(map(len, answers.values())),
            "lost": lost,
            "doubled": doubled,
            "reordered": sum(
                [text for text in wanted if text in texts] != list(dict.fromkeys(texts))
                for texts in answers.values()
            ),
            "model_calls": len(self.model.requests),
        }


class Devices:
    """The clients of the people in encrypted rooms, on a separate thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._devices: dict[str, Device] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def open(self, people: list[Person]) -> None:
        """Log in. The bot's device must already be known, so that it gets the keys."""
        for person in people:
            if person.id not in self._devices:
                device = Device(person, self._folder / person.name)
                self._devices[person.id] = self._run(device.open())
                self._locks[person.id] = asyncio.Lock()

    def say(self, person: Person, room: str, content: dict[str, Any], transaction: str) -> None:
        async def say() -> None:
            async with self._locks[person.id]:
                await self._devices[person.id].send(room, content, transaction)

        self._run(say())

    def sync(self) -> None:
        async def sync(id: str) -> None:
            async with self._locks[id]:
                await self._devices[id].sync()

        for id in self._devices:
            self._run(sync(id))

    def list_texts(self, person: Person, room: str, sender: str) -> list[str]:
        return self._devices[person.id].list_texts(room, sender)

    def close(self) -> None:
        for device in self._devices.values():
            self._run(device.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)


def wait_for(condition: Any, seconds: float, pause: float = 0.1) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(pause)


def build_page(figures: Figures, engine: str) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    name = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[engine]
    return "\n".join(
        [
            "## Matrix",
            "",
            f"`python -m bench matrix` on {report.describe_machine()}, {now}: people write to the bot in"
            f" {figures['rooms']} rooms, {figures['encrypted']} of them encrypted, through a real"
            f" Synapse on {name}. The server and the gateway are each killed (`kill -9`) and restarted"
            f" {RESTARTS} times.",
            "",
            "| | |",
            "|---|---|",
            f"| messages | {figures['messages']:,} |",
            f"| answers | {figures['answers']:,} |",
            f"| messages without an answer | {figures['lost']} |",
            f"| duplicate answers | {figures['doubled']} |",
            f"| rooms with answers out of order | {figures['reordered']} |",
            f"| seconds until all messages were sent, until all were answered |"
            f" {figures['said_s']:.0f}, {figures['seconds']:.0f} |",
            f"| model calls (those beyond the messages are turns that a kill interrupted) |"
            f" {figures['model_calls']:,} |",
            "",
        ]
    )
