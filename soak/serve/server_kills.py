"""Kills a server and its database while many agents push to it, then checks every promise."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

import rekindle
from rekindle import open_store
from rekindle.api.serving.keys import KEY_FILE, KeyFile

CLIENTS = 2  # processes of agents
STARTING = 60.0
SAMPLE_SECONDS = 5.0
MAX_GROWTH = 1.25  # of the memory of a server, from the first third of its last life to the last
LIMIT_SECONDS = 0.250
_ROOTS = (Path(__file__).parents[2], Path(rekindle.__file__).parents[1])


class ServeReport(msgspec.Struct, kw_only=True):
    """The figures of a run, and every broken promise."""

    agents: int
    seconds: float = 0.0
    interval: float = 0.0
    engine: str = ""
    server_kills: int = 0
    database_kills: int = 0
    acknowledged: int = 0
    stored: int = 0
    requests: list[float] = []
    pushes: list[float] = []
    failures: dict[str, int] = {}
    memory: list[tuple[float, int, float]] = []  # seconds, pid, megabytes
    cpu: dict[int, float] = {}  # seconds of the server's processor time, by pid
    wrong: list[str] = []

    def compute_percentile(self, share: float, samples: list[float] | None = None) -> float:
        ordered = sorted(self.requests if samples is None else samples)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def describe_times(self, samples: list[float]) -> str:
        shown = (
            f"p{share} {1e3 * self.compute_percentile(share / 100, samples):.0f}"
            for share in (50, 95, 99)
        )
        return f"{', '.join(shown)}, longest {1e3 * max(samples, default=0.0):.0f} ms"

    def describe_cpu(self) -> str:
        return f"{1e3 * sum(self.cpu.values()) / max(self.acknowledged, 1):.2f} ms per message"

    def describe_memory(self) -> str:
        if not self.memory:
            return "–"
        step = max(1, len(self.memory) // 10)
        points = [f"{at / 60:.1f} min {size:.0f}" for at, _, size in self.memory[::step]]
        return f"{', '.join(points)} MB"

    def summarize(self) -> str:
        failures = ", ".join(f"{count} {what}" for what, count in sorted(self.failures.items()))
        return "\n".join(
            [
                f"agents                      {self.agents:,} on {self.engine}",
                f"seconds                     {self.seconds:.0f}",
                f"kill -9 of server, database {self.server_kills}, {self.database_kills}",
                f"messages acknowledged       {self.acknowledged:,}"
                f" ({self.acknowledged / max(self.seconds, 1):,.0f}/s), stored {self.stored:,}",
                f"a request                   {self.describe_times(self.requests)}",
                f"with the outages            {self.describe_times(self.pushes)}",
                f"requests that failed        {failures or 0}",
                f"processor of the server     {self.describe_cpu()}",
                f"memory of the server        {self.describe_memory()}",
                f"wrong                       {len(self.wrong)}",
            ]
        )


class KilledServer:
    """`rekindle serve` on one port, restarted after each kill."""

    def __init__(self, target: str, home: Path) -> None:
        self.home = home
        self._target = target
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = KeyFile(home / "serve" / KEY_FILE).create_key("soak", frozenset({"write"}))
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        words = ["--store", self._target, "serve", "--listen", f"127.0.0.1:{self.port}"]
        log = (self.home / "serve.log").open("ab")
        return subprocess.Popen(
            [sys.executable, "-m", "rekindle.cli", *words, "--rate", "0"],
            env=build_env(self.home),
            stdout=log,
            stderr=log,
        )

    def wait_until_ready(self) -> None:
        end = time.monotonic() + STARTING
        while time.monotonic() < end:
            if self.process.poll() is not None:
                self.process = self._start()  # its database was away
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/v1/health", timeout=5):
                return
            time.sleep(0.05)
        raise RuntimeError(f"the server does not start; see {self.home / 'serve.log'}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._start()
        self.wait_until_ready()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STARTING)

    def measure_cpu(self) -> float:
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def measure_memory(self) -> float:
        try:
            text = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return 0.0
        return int(text.partition("VmRSS:")[2].split()[0]) / 1e3 if "VmRSS:" in text else 0.0


def build_env(home: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join(map(str, _ROOTS))
    kept = {name: text for name, text in os.environ.items() if not name.startswith("REKINDLE_")}
    return {**kept, "PYTHONPATH": path, "REKINDLE_HOME": str(home), **more}


def kill_server(
    target: str,
    folder: Path,
    *,
    agents: int,
    seconds: float,
    interval: float,
    seed: int,
    kill_database: Callable[[], None] | None,
    say: Callable[[str], None],
) -> ServeReport:
    """Run the agents against a server that is killed meanwhile, then check its promises."""
    report = ServeReport(agents=agents, interval=interval)
    server = KilledServer(target, folder / "home")
    clients: list[subprocess.Popen[bytes]] = []
    begun = time.monotonic()
    try:
        server.wait_until_ready()
        clients = [
            _start_client(server, folder, number, agents, interval, seconds, seed)
            for number in range(CLIENTS)
        ]
        _kill_on_the_way(report, server, clients, seconds, kill_database, say)
        for client in clients:
            client.wait(seconds + 300)
        report.seconds = time.monotonic() - begun
        if (code := server.stop()) != 0:
            report.wrong.append(f"the server ended with {code} after SIGTERM")
    finally:
        for process in (*clients, server.process):
            if process.poll() is None:
                process.kill()
                process.wait()
    positions = _collect_records(report, folder)
    check_promises(report, target, positions)
    check_memory(report)
    return report


def _start_client(
    server: KilledServer,
    folder: Path,
    number: int,
    agents: int,
    interval: float,
    seconds: float,
    seed: int,
) -> subprocess.Popen[bytes]:
    first = agents * number // CLIENTS
    count = agents * (number + 1) // CLIENTS - first
    words = [server.url, folder / f"{number}.json", first, count, interval, seconds, seed]
    return subprocess.Popen(
        [sys.executable, "-m", "soak.serve.pushing_agents", *map(str, words)],
        env=build_env(server.home, REKINDLE_API_KEY=server.key),
    )


def _kill_on_the_way(
    report: ServeReport,
    server: KilledServer,
    clients: list[subprocess.Popen[bytes]],
    seconds: float,
    kill_database: Callable[[], None] | None,
    say: Callable[[str], None],
) -> None:
    """Kill the server after a quarter and a half of the time, and the database in between."""
    begun = time.monotonic()
    plan: list[tuple[float, str]] = [(0.25, "server"), (0.5, "server")]
    if kill_database is not None:
        plan.insert(1, (0.375, "database"))
    while any(client.poll() is None for client in clients):
        passed = time.monotonic() - begun
        if plan and passed >= plan[0][0] * seconds:
            _, what = plan.pop(0)
            if what == "server":
                server.kill()
                report.server_kills += 1
            elif kill_database is not None:
                kill_database()
                report.database_kills += 1
            say(f"{passed:.0f} s: kill -9 of the {what}")
        report.memory.append((passed, server.process.pid, server.measure_memory()))
        report.cpu[server.process.pid] = server.measure_cpu()
        time.sleep(min(SAMPLE_SECONDS, seconds / 20))


def _collect_records(report: ServeReport, folder: Path) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for number in range(CLIENTS):
        file = folder / f"{number}.json"
        if not file.exists():
            report.wrong.append(f"client {number} left no record")
            continue
        found = json.loads(file.read_text())
        report.requests += found["requests"]
        report.pushes += found["pushes"]
        report.wrong += found["errors"]
        for what, count in found["failures"].items():
            report.failures[what] = report.failures.get(what, 0) + count
        positions |= found["positions"]
    report.acknowledged = sum(map(len, positions.values()))
    return positions


def check_promises(report: ServeReport, target: str, positions: dict[str, list[int]]) -> None:
    """Check that every acknowledged message is stored once, at its position."""
    with open_store(target) as store:
        for name, promised in positions.items():
            if not promised:
                continue
            stored = store.messages(name)
            report.stored += len(stored)
            ids = [message.platform_message_id for message in stored]
            if len({*ids}) != len(ids):
                report.wrong.append(f"{name}: stored twice")
            at = {message.platform_message_id: message.position for message in stored}
            for number, position in enumerate(promised):
                if at.get(f"{name}-{number}") != position:
                    found = at.get(f"{name}-{number}")
                    report.wrong.append(
                        f"{name}: {number} acknowledged at {position}, is at {found}"
                    )
        report.wrong += [f"verify: {one.check}: {one.where}" for one in store.verify()]


def check_memory(report: ServeReport) -> None:
    """Check that the memory of the last server process did not grow."""
    if not report.memory:
        return
    last = report.memory[-1][1]
    life = [size for _, pid, size in report.memory if pid == last and size]
    life = life[len(life) // 5 :]  # caches fill at the beginning
    if len(life) < 9:
        return
    third = len(life) // 3
    before, after = sorted(life[:third])[third // 2], sorted(life[-third:])[third // 2]
    if after > before * MAX_GROWTH:
        report.wrong.append(f"the memory of the server grew from {before:.0f} to {after:.0f} MB")


@contextmanager
def open_target(target: str | None) -> Iterator[tuple[str, Path, Callable[[], None] | None, str]]:
    """Yield the store, a folder for records, how to kill the database if we own it, and the engine."""
    with tempfile.TemporaryDirectory(prefix="rekindle-soak-") as name:
        folder = Path(name)
        (folder / "home").mkdir()
        if target == "postgresql":
            with _start_postgres() as (url, kill):
                yield url, folder, kill, "PostgreSQL"
        else:
            yield target or str(folder / "sessions.db"), folder, None, "SQLite"


@contextmanager
def _start_postgres() -> Iterator[tuple[str, Callable[[], None]]]:
    from tests import servers

    class DurablePostgres(servers.Postgres):
        """A server that flushes its commits, as in production."""

        def start(self) -> None:
            options = f"-h 127.0.0.1 -p {self.port} -k {self.folder} -c max_connections=200"
            log = str(self.folder / "log")
            self._run("pg_ctl", "-w", "-D", self._data, "-l", log, "-o", options, "start")

        def kill(self) -> None:
            pid = int((Path(self._data) / "postmaster.pid").read_text().split()[0])
            os.kill(pid, signal.SIGKILL)
            end = time.monotonic() + STARTING
            while True:  # its children need a moment to notice
                try:
                    self.start()
                except RuntimeError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.2)
                else:
                    return

    server = DurablePostgres()
    try:
        yield server.database(), server.kill
    finally:
        server.remove()
