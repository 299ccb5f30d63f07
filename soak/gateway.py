"""Kill gateways with `kill -9` at random moments of conversations, then hold them to their word.

People talk in several chats on the wire of the in-memory platform, which loses connections and
refuses now and then; the model is scripted, so the right answer to each message is known. In the end
every message must have been answered exactly once, whole and in order, or be marked undeliverable
with the reason; every transcript must be valid for every provider.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import rekindle
from rekindle import Message, Store, open_store
from rekindle.agent.history import repaired
from rekindle.agent.providers import Provider, violations
from rekindle.testing import ScriptedModel
from rekindle.testing_platform import ChatServer, Faults
from rekindle.types import Source

CHATS = 8
OPEN = 24  # messages that wait for an answer at one time
PAUSE = 0.6  # seconds from being ready to being killed, on average
READY = 10.0
ENDING = 120.0
LIMIT = 300
_ROOTS = (Path(__file__).parents[1], Path(rekindle.__file__).parents[1])
_LONG = " ".join(f"word{number}" for number in range(120))
_FAULTS = Faults(lost_before=0.01, lost_after=0.01, refused=0.02, delay=0.01)

ANSWERS = {
    "plain": "<{user}> a plain answer",
    "slow": "<{user}> an answer that takes its time to come, in many small pieces",
    "long": "<{user}> " + _LONG,
    "tool": "<{user}> the tool was used",
    "tools": "<{user}> both tools were used, and twice",
}


def script() -> dict[str, Any]:
    """What the model says to each kind of message."""
    call = {"name": "terminal", "arguments": {"command": "sleep 0.05; echo done"}}
    calls = {
        "tool": [{"calls": [call]}],
        "tools": [{"text": "I look.", "calls": [call, call]}, {"calls": [call]}],
    }
    pace = {"slow": {"chunk": 4, "pause": 0.02}, "plain": {"wait": 0.05}}
    return {
        "turns": [
            {
                "user": f" {kind}.",
                "steps": [*calls.get(kind, []), {"text": text, **pace.get(kind, {})}],
            }
            for kind, text in ANSWERS.items()
        ]
    }


@dataclass
class Report:
    """What was done, and every promise that was broken."""

    kills: int = 0
    messages: int = 0
    commands: int = 0
    undeliverable: int = 0
    model_calls: int = 0
    repeats: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def summary(self) -> str:
        return (
            f"{self.kills} kills in {self.seconds:.0f} s; {self.messages} messages and"
            f" {self.commands} commands, {self.undeliverable} undeliverable with the reason;"
            f" {self.model_calls} model calls, {self.repeats} sends repeated and recognised;"
            f" {len(self.wrong)} promises broken"
        )


class People:
    """Those who talk, and what they must read."""

    def __init__(self, server: ChatServer, rng: random.Random) -> None:
        self._server, self._rng = server, rng
        self.said: dict[str, list[tuple[str, str]]] = defaultdict(list)  # by chat: text and answer
        self.commands: dict[str, list[str]] = defaultdict(list)
        self.count = 0

    def speak(self) -> None:
        """Somebody says something, unless enough is open."""
        while self.open() < OPEN and self._rng.random() < 0.8:
            self.count += 1
            chat = f"c{self._rng.randrange(CHATS)}"
            source = Source("memory", chat, user_id=chat, user_name=f"User {chat}")
            if self.said[chat] and self._rng.random() < 0.1:
                title = f"t{self.count}"
                self.commands[chat].append(title)
                self._server.say(source, f"/title {title}", f"u{self.count}")
                continue
            kind = self._rng.choice([*ANSWERS])
            text = f"m{self.count} {kind}."
            self.said[chat].append((text, ANSWERS[kind].replace("{user}", text)))
            self._server.say(source, text, f"u{self.count}")
            if self._rng.random() < 0.1:
                self._server.repeat(f"u{self.count}")

    def wait_for(self, gateways: int) -> None:
        """Wait until so many gateways listen, for a while; people talk meanwhile."""
        end = time.monotonic() + READY
        while self._server.listeners < gateways and time.monotonic() < end:
            self.speak()
            time.sleep(0.02)

    def open(self) -> int:
        """How many messages are not answered yet."""
        begun = sum(shown.text.startswith(("<m", "Named.")) for shown in self._server.seen())
        return self.count - begun


class Life:
    """A gateway's place: when its process is killed, the next life goes on."""

    def __init__(self, env: dict[str, str], log: Path) -> None:
        self._env, self._log = env, log
        self.process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "rekindle.cli", "gateway", "run", "--quiet"]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, env=self._env, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def revive(self) -> None:
        self.process = self._begin()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


def gateway(
    target: str,
    folder: Path,
    *,
    kills: int = 300,
    gateways: int = 1,
    seed: int = 0,
    can_edit: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Run gateways on `target`, kill them `kills` times, and tell what came of it."""
    rng, begun = random.Random(seed), time.monotonic()
    report = Report(kills=kills)
    with (
        ScriptedModel(script()) as model,
        ChatServer(limit=LIMIT, faults=_FAULTS, seed=seed, again=0.5) as server,
    ):
        env = _environment(target, folder, model.url, server.address, can_edit)
        people = People(server, rng)
        lives = [Life(env, folder / f"gateway-{n}.log") for n in range(gateways)]
        try:
            _kill(lives, people, rng, kills, progress)
            _settle(people, report, folder, target)
            for life in lives:
                if code := life.stop():
                    report.wrong.append(f"a gateway that was told to stop ended with {code}")
        finally:
            for life in lives:
                life.kill()
        report.model_calls, report.repeats = len(model.requests), server.repeats
        report.wrong += [
            f"the model was sent: {found}" for one in model.requests for found in one.violations
        ]
        with open_store(target) as store:
            _audit(store, server, people, report)
    report.seconds = time.monotonic() - begun
    return report


def _environment(
    target: str, folder: Path, model: str, address: str, can_edit: bool
) -> dict[str, str]:
    edit = "" if can_edit else ",edit=no"
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("REKINDLE_")},
        "PYTHONPATH": os.pathsep.join(map(str, _ROOTS)),
        "REKINDLE_HOME": str(folder / "home"),
        "REKINDLE_STORE": target,
        "OPENAI_BASE_URL": model,
        "OPENAI_API_KEY": "none",
        "REKINDLE_MODEL": "scripted",
        "REKINDLE_KEYS_DIRECT": "shared",
        "REKINDLE_GATEWAY_PLATFORMS": f"rekindle.testing_platform:connect={address},limit={LIMIT}{edit}",
        "REKINDLE_GATEWAY_LEASE_SECONDS": "2",
        "REKINDLE_GATEWAY_EDIT_SECONDS": "0.05",
        "REKINDLE_GATEWAY_TOOLS": "terminal",
    }


def _kill(
    lives: list[Life],
    people: People,
    rng: random.Random,
    kills: int,
    progress: Callable[[int], None] | None,
) -> None:
    for kill in range(1, kills + 1):
        if rng.random() < 0.9:  # now and then it dies before it is ready
            people.wait_for(len(lives))
        end = time.monotonic() + min(rng.expovariate(1 / PAUSE), 4.0)
        while (left := end - time.monotonic()) > 0:
            people.speak()
            time.sleep(min(left, rng.random() * 0.1))
        life = rng.choice(lives)
        if life.process.poll() is not None:
            raise RuntimeError(f"a gateway ended by itself with {life.process.returncode}")
        life.kill()
        life.revive()
        if progress:
            progress(kill)


def _settle(people: People, report: Report, folder: Path, target: str) -> None:
    """Wait until everything is answered, or nothing moves any more."""
    end = time.monotonic() + ENDING
    with open_store(target) as store:
        while time.monotonic() < end:
            counts = store.mail.counts()
            if people.open() - counts.undeliverable <= 0 and not any(counts[:3]):
                return
            time.sleep(0.2)
    report.wrong.append(f"not all was answered within {ENDING:g} s")


def _audit(store: Store, server: ChatServer, people: People, report: Report) -> None:
    report.messages = sum(map(len, people.said.values()))
    report.commands = sum(map(len, people.commands.values()))
    if server.unheard:
        report.wrong.append(f"never taken in: {server.unheard}")
    if any(store.mail.counts()[:3]):
        report.wrong.append(f"left over: {store.mail.counts()}")
    for chat in sorted({*people.said, *people.commands}):
        report.wrong += _chat(store, server, people, report, chat)
    report.wrong += _transcripts(store)
    report.wrong += [f"verify: {finding}" for finding in store.verify()]


def _chat(
    store: Store, server: ChatServer, people: People, report: Report, chat: str
) -> Iterator[str]:
    """What is wrong with what one chat shows and what is stored of it."""
    key = f"agent:main:memory:dm:{chat}"
    failed = [parcel for parcel in store.mail.parcels(key) if parcel.state == "failed"]
    report.undeliverable += len(failed)
    yield from (f"{chat}: undeliverable without a reason" for one in failed if not one.reason)
    missing = {one.text for one in failed}
    texts = [shown.text for shown in server.seen(chat)]
    named = Counter(found for text in texts for found in re.findall(r"^Named\.\n.*“(t\d+)”", text))
    for title in people.commands[chat]:
        if named[title] != 1 and not any(f"“{title}”" in text for text in missing):
            yield f"{chat}: /title {title} was answered {named[title]} times"
    shown = " ".join(" ".join(text for text in texts if not text.startswith("Named.")).split())
    wanted = [answer for _, answer in people.said[chat]]
    if not missing and shown != " ".join(" ".join(wanted).split()):
        yield f"{chat}: shows\n    {_differing(shown, ' '.join(wanted))}"
    route = store.routes.get(key)
    stored = [m.text for m in store.messages(route.session) if m.role == "user"]
    if stored != [text for text, _ in people.said[chat]]:
        yield f"{chat}: of {len(people.said[chat])} said {len(stored)} are stored, or in another order"
    finals = [m.text for m in store.messages(route.session) if is_final(m)]
    if finals != wanted:
        yield f"{chat}: the stored answers are not those that were given"


def is_final(message: Message) -> bool:
    return message.role == "assistant" and not message.tool_calls


def _differing(shown: str, wanted: str) -> str:
    place = next((n for n, (a, b) in enumerate(zip(shown, wanted, strict=False)) if a != b), -1)
    start = max(0, place - 60)
    return f"…{shown[start : place + 80]!r}\n    wanted …{wanted[start : place + 80]!r}"


def _transcripts(store: Store) -> Iterator[str]:
    for session in store.recent(10_000):
        messages = store.messages(session)
        for provider in get_args(Provider):
            found = violations(provider, repaired(messages, provider))
            if found:
                yield f"session {session.id} is not valid for {provider}: {found[0]}"


@contextmanager
def place(target: str | None) -> Iterator[tuple[str, Path]]:
    """Where to run, and a folder for homes and logs."""
    from .crash import place as crash_place

    with crash_place(target) as (found, folder, _):
        yield found, folder
