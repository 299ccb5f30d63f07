"""Kills gateways with `kill -9` at random moments of conversations and runs, then checks all results.

People talk in several chats on the in-memory platform, which occasionally drops connections and refuses
messages; the model is scripted, so the right answer to each message is known. In the end every message
must have been answered exactly once, completely and in order, or be marked undeliverable with the
reason; every transcript must be valid for every provider.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

import rekindle
from rekindle import Store, open_store
from rekindle.testing import ChatServer, NetworkFaults, ScriptedModel
from rekindle.types import Source
from soak.gateway.conversation_audit import GAVE_UP, GatewayReport, audit_conversations
from soak.gateway.job_planner import JobPlanner
from soak.gateway.schedule_audit import audit_schedules

Start: TypeAlias = Callable[..., subprocess.Popen[bytes]]

CHATS = 8
AGE = (
    160  # messages until people go on in other chats: a history that grows for hours hides the rest
)
OPEN = 24  # messages that wait for an answer at one time
PAUSE = 0.6  # seconds from being ready to being killed, on average
READY = 30.0
ATTEMPTS = 10  # deaths on one message before it is given up: we kill far more often than life does
ENDING = 240.0
LIMIT = 300
_ROOTS = (Path(__file__).parents[2], Path(rekindle.__file__).parents[1])
_LONG = " ".join(f"word{number}" for number in range(120))
_FAULTS = NetworkFaults(lost_before=0.01, lost_after=0.01, refused=0.02, delay=0.01)

ANSWERS = {
    "plain": "<{user}> a plain answer",
    "slow": "<{user}> an answer that takes its time to come, in many small pieces",
    "long": "<{user}> " + _LONG,
    "tool": "<{user}> the tool was used",
    "tools": "<{user}> both tools were used, and twice",
    "later": "<{user}> I will come back to it",
}
JOB_ANSWERS = {**ANSWERS, "quiet": "NOTHING"}


def build_script() -> dict[str, Any]:
    """Script the model's answer to each kind of message."""
    call = {"name": "terminal", "arguments": {"command": "sleep 0.05; echo done"}}
    job = {"action": "add", "when": "1s", "prompt": "come back."}
    calls = {
        "tool": [{"calls": [call]}],
        "later": [{"calls": [{"name": "schedule", "arguments": job}]}],
        "tools": [{"text": "I look.", "calls": [call, call]}, {"calls": [call]}],
    }
    pace = {"slow": {"chunk": 4, "pause": 0.02}, "plain": {"wait": 0.05}}
    turns = [
        {
            "user": f" {kind}.",
            "steps": [*calls.get(kind, []), {"text": text, **pace.get(kind, {})}],
        }
        for kind, text in JOB_ANSWERS.items()
    ]
    return {"turns": [*turns, {"user": "come back.", "steps": [{"text": "[job] {user}"}]}]}


class People:
    """The people who write messages, and the answers that they must get."""

    def __init__(self, server: ChatServer, rng: random.Random) -> None:
        self._server, self._rng = server, rng
        self.said: dict[str, list[tuple[str, str]]] = defaultdict(list)  # by chat: text and answer
        self.commands: dict[str, list[str]] = defaultdict(list)
        self.count = 0

    def post_messages(self) -> None:
        """Post messages, unless too many are unanswered."""
        while self.open() < OPEN and self._rng.random() < 0.8:
            self.count += 1
            chat = f"c{self.count // AGE}-{self._rng.randrange(CHATS)}"
            source = Source("memory", chat, user_id=chat, user_name=f"User {chat}")
            if self.said[chat] and self._rng.random() < 0.1:
                title = f"t{self.count}"
                self.commands[chat].append(title)
                self._server.post_message(source, f"/title {title}", f"u{self.count}")
                continue
            kind = self._rng.choice([*ANSWERS])
            text = f"m{self.count} {kind}."
            self.said[chat].append((text, ANSWERS[kind].replace("{user}", text)))
            self._server.post_message(source, text, f"u{self.count}")
            if self._rng.random() < 0.1:
                self._server.redeliver(f"u{self.count}")

    def wait_for(self, lives: list[GatewaySlot]) -> None:
        """Wait until the gateways listen, up to a time limit, while people write."""
        end = time.monotonic() + READY
        while not self._are_all_listening(lives) and time.monotonic() < end:
            self.post_messages()
            time.sleep(0.02)

    def _are_all_listening(self, lives: list[GatewaySlot]) -> bool:
        return all(life.instance for life in lives) and self._server.listeners >= len(lives)

    def open(self) -> int:
        """Count the unanswered messages."""
        heads = ("<m", "Title set.", GAVE_UP)  # what a job reports starts with <j or [job]
        begun = sum(shown.text.startswith(heads) for shown in self._server.list_sent())
        return self.count - begun


def start_command(
    words: list[str], *, env: dict[str, str], stderr: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start `rekindle` in a new interpreter."""
    command = [sys.executable, "-m", "rekindle.cli", *words]
    return subprocess.Popen(command, env=env, stderr=stderr)


class GatewaySlot:
    """A gateway that is restarted after each kill."""

    def __init__(self, env: dict[str, str], log: Path, start: Start) -> None:
        self._env, self._log, self._start = env, log, start
        self._notes = Path(env["REKINDLE_HOME"]) / "gateway"
        self.process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return self._start(["gateway", "run", "--quiet"], env=self._env, stderr=log)

    @property
    def instance(self) -> str | None:
        """The name of the gateway, once it is running."""
        for note in self._notes.glob("*.json"):
            with suppress(OSError, ValueError):
                told = json.loads(note.read_text())
                if told["pid"] == self.process.pid:
                    return told["instance"]
        return None

    def describe_state(self, store: Store) -> str:
        """Describe the state of the gateway."""
        instance = self.instance
        if instance is None:
            return "while starting"
        turns, runs, sends = _count_work(store, instance)
        if turns and runs:
            return "in turns and runs"
        at_work = "in a turn" if turns else "in a run" if runs else "while sending" if sends else ""
        return at_work or "between messages"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.process = self._begin()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


def kill_gateways(
    target: str,
    folder: Path,
    *,
    kills: int = 300,
    gateways: int = 1,
    seed: int = 0,
    can_edit: bool = True,
    pause: float = PAUSE,
    seconds: float = float("inf"),
    progress: Callable[[int], None] | None = None,
    start: Start = start_command,
    replaced: Sequence[int] = (),
) -> GatewayReport:
    """Run gateways on `target`, kill them `kills` times, and return the report.

    `pause` is the average time between ready and killed. After `seconds`, no more are killed. Then the
    gateways with the numbers `replaced` are stopped cleanly, one by one, and restarted.
    """
    rng, begun = random.Random(seed), time.monotonic()
    report = GatewayReport(kills=kills, seed=seed)
    with (
        ScriptedModel(build_script()) as model,
        ChatServer(limit=LIMIT, faults=_FAULTS, seed=seed, redeliver_seconds=0.5) as server,
    ):
        env = _build_environment(target, folder, model.url, server.address, can_edit)
        people = People(server, rng)
        lives = [GatewaySlot(env, folder / f"gateway-{n}.log", start) for n in range(gateways)]
        try:
            with open_store(target) as store:
                planner = JobPlanner(store, random.Random(seed + 1), folder / "effects")
                planner.begin()
                end = begun + seconds
                report.when = _kill_at_random(
                    store, lives, people, planner, rng, kills, pause, end, progress
                )
                report.kills = report.when.total()
                _replace_gateways(lives, people, planner, rng, replaced, pause, progress)
                people.wait_for(lives)  # one that is still starting cannot stop in good order
                _wait_until_settled(store, people, planner, report)
            for life in lives:
                if code := life.stop():
                    report.wrong.append(f"a gateway that was told to stop ended with {code}")
        finally:
            for life in lives:
                life.kill()
        report.model_calls, report.repeats = len(model.requests), server.duplicate_count
        report.wrong += [
            f"the model was sent: {found}" for one in model.requests for found in one.violations
        ]
        with open_store(target) as store:
            audit_conversations(store, server, people, report)
            audit_schedules(store, server, planner, JOB_ANSWERS, report)
    report.seconds = time.monotonic() - begun
    return report


def _build_environment(
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
        "REKINDLE_GATEWAY_PLATFORMS": f"rekindle.testing:connect={address},limit={LIMIT}{edit}",
        "REKINDLE_GATEWAY_ALLOW": "memory:*=owner",
        "REKINDLE_GATEWAY_LEASE_SECONDS": "2",
        "REKINDLE_GATEWAY_TURN_ATTEMPTS": str(ATTEMPTS),
        "REKINDLE_GATEWAY_EDIT_SECONDS": "0.05",
        "REKINDLE_AGENT_TOOLS": "terminal,schedule",
    }


def _count_work(store: Store, instance: str) -> tuple[int, int, int]:
    """Count the turns and the runs of jobs of a gateway, and the chats it is sending to."""
    running = (
        "SELECT count(*), coalesce(sum(CASE WHEN i.key LIKE '%:job:%' THEN 1 ELSE 0 END), 0)"
        " FROM leases l JOIN inbox i ON i.key = l.key WHERE l.instance = ? AND i.attempts > 0"
        " AND i.state IN ('waiting', 'running')"
    )
    sending = "SELECT count(*) FROM leases WHERE instance = ? AND substr(key, 1, 4) = 'out:'"
    with store._engine.begin_read() as tx:
        everything, runs = map(int, tx.run(running, (instance,))[0])
        return everything - runs, runs, tx.run(sending, (instance,))[0][0]


def _kill_at_random(
    store: Store,
    lives: list[GatewaySlot],
    people: People,
    planner: JobPlanner,
    rng: random.Random,
    kills: int,
    pause: float,
    last: float,
    progress: Callable[[int], None] | None,
) -> Counter[str]:
    when: Counter[str] = Counter()
    for kill in range(1, kills + 1):
        if time.monotonic() > last:
            break
        if rng.random() < 0.9:  # now and then it dies before it is ready
            people.wait_for(lives)
        end = time.monotonic() + min(rng.expovariate(1 / pause), 4.0)
        while (left := end - time.monotonic()) > 0:
            people.post_messages()
            planner.take_step()
            time.sleep(min(left, rng.random() * 0.1))
        life = rng.choice(lives)
        if life.process.poll() is not None:
            raise RuntimeError(f"a gateway ended by itself with {life.process.returncode}")
        when[life.describe_state(store)] += 1
        life.kill()
        life.restart()
        if progress:
            progress(kill)
    return when


def _replace_gateways(
    lives: list[GatewaySlot],
    people: People,
    planner: JobPlanner,
    rng: random.Random,
    replaced: Sequence[int],
    pause: float,
    progress: Callable[[int], None] | None,
) -> None:
    for number, index in enumerate(replaced, 1):
        people.wait_for(lives)
        end = time.monotonic() + pause
        while time.monotonic() < end:
            people.post_messages()
            planner.take_step()
            time.sleep(rng.random() * 0.1)
        for life in lives:
            if life.process.poll() is not None:
                raise RuntimeError(f"a gateway ended by itself with {life.process.returncode}")
        if code := lives[index].stop():
            raise RuntimeError(f"a gateway that was told to stop ended with {code}")
        lives[index].restart()
        people.post_messages()
        if progress:
            progress(number)


def _wait_until_settled(
    store: Store, people: People, planner: JobPlanner, report: GatewayReport
) -> None:
    """Pause the jobs and wait until all messages are answered and all runs have ended."""
    planner.pause()
    end = time.monotonic() + ENDING
    while time.monotonic() < end:
        counts = store.inbox.get_counts()
        is_quiet = people.open() - counts.undeliverable <= 0 and not any(counts[:3])
        if is_quiet and not planner.count_open():
            return
        time.sleep(0.2)
    report.wrong.append(
        f"not all was done within {ENDING:g} s: {store.inbox.get_counts()}, {people.open()} messages"
        f" and {planner.count_open()} runs are open"
    )


@contextmanager
def open_target(target: str | None) -> Iterator[tuple[str, Path]]:
    """Yield the store and a folder for homes and logs."""
    from soak.crash.writer_kills import open_target as crash_place

    with crash_place(target) as (found, folder, _):
        yield found, folder
