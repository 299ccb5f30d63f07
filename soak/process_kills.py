"""Background processes under repetition and `kill -9`.

cycles       start and kill repeatedly: no process, no file and no open file is left
clients      kill clients that read: nothing else is lost
supervisors  kill supervisors: afterwards every state, output and exit code is right
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rekindle.processes import protocol
from rekindle.processes.backends.base import TerminalSize
from rekindle.processes.backends.local.local import LocalBackend
from rekindle.processes.client import ProcessClient
from rekindle.processes.supervisor.registry import ProcessRegistry
from rekindle.processes.supervisor.supervisor import SOCKET
from rekindle.processes.types import ProcessLimits

OWNER = "soak"
LINES = 400
WRITER = "i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo line $i; {pause} done; exit {code}"
# Its children ignore SIGTERM, fork twice and start new sessions.
TREE = "trap '' TERM; (setsid sh -c 'sleep 300 & sleep 300' &) ; sleep 300"
READER = """
import asyncio, sys
from pathlib import Path
from rekindle.processes.client import ProcessClient
async def main():
    client = ProcessClient(Path(sys.argv[1]))
    one = await client.start(["sh", "-c", sys.argv[2]], owner="soak")
    print(one.id, flush=True)
    async for chunk in client.attach(one.id):
        pass
asyncio.run(main())
"""

Say = Callable[[str], None]


class ProcessReport(NamedTuple):
    said: list[str]
    wrong: list[str]


def run(cycles: int, clients: int, supervisors: int, seed: int, say: Say) -> ProcessReport:
    folder = Path(tempfile.mkdtemp(prefix="rekindle-soak-"))
    report = ProcessReport([], [])
    try:
        asyncio.run(_run_cycles(folder / "cycles", cycles, report, say))
        if clients:
            asyncio.run(_kill_clients(folder / "clients", clients, seed, report, say))
        if supervisors:
            asyncio.run(_kill_supervisors(folder / "supervisors", supervisors, seed, report, say))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report


async def _run_cycles(folder: Path, count: int, report: ProcessReport, say: Say) -> None:
    """Start processes and kill them or let them end, with and without a terminal."""
    begun, groups_before, local, ids = time.monotonic(), _list_groups(), LocalBackend(), set[str]()
    registry = await ProcessRegistry.open(
        folder, limits=ProcessLimits(finished=1.0), backend_factory=lambda _: local
    )
    await registry.wait((await registry.start(["true"], owner=OWNER)).id, 60)
    await _wait_until_settled(registry)
    files = _count_open_files()  # with the connection to the spawner, which stays

    async def one(number: int) -> None:
        script = ("sleep 300", "exit 3", TREE if number % 20 == 2 else "sleep 300 & sleep 300")
        pty = TerminalSize() if number % 5 == 0 else None
        started = await registry.start(["sh", "-c", script[number % 3]], owner=OWNER, pty=pty)
        ids.add(started.id)
        if number % 3 == 1:
            waited = await registry.wait(started.id, 60)
            if waited.process.exit_code != 3:
                report.wrong.append(f"cycle {number}: {waited.process}")
        else:
            killed = await registry.kill(started.id)
            if killed.state != "killed":
                report.wrong.append(f"cycle {number}: {killed}")

    for at in range(0, count, 10):
        await asyncio.gather(*(one(number) for number in range(at, min(at + 10, count))))
        if at % 100 == 0:
            say(f"{at}/{count} cycles, {time.monotonic() - begun:.0f} s")
    await _wait_until_settled(registry)
    left = _find_marked(ids)
    rest = [path.name for path in folder.iterdir() if path.is_dir()]
    groups = _list_groups() - groups_before
    more = _count_open_files() - files
    await registry.aclose()
    counts = {"processes": len(left), "folders": len(rest), "groups": len(groups)}
    counts["open files"] = more.total()
    said = ", ".join(f"{number} {what}" for what, number in counts.items())
    report.said.append(f"{count} start/kill cycles in {time.monotonic() - begun:.0f} s left {said}")
    report.wrong.extend(f"{what} left: {number}" for what, number in counts.items() if number)
    report.wrong.extend(f"open: {name}" for name in more)


async def _wait_until_settled(registry: ProcessRegistry) -> None:
    end = time.monotonic() + 30
    while await registry.list() and time.monotonic() < end:
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)  # processes that are no longer listed are being removed


async def _kill_clients(
    folder: Path, count: int, seed: int, report: ProcessReport, say: Say
) -> None:
    rng = random.Random(seed)
    client, begun = ProcessClient(folder, linger=60), time.monotonic()
    ids: dict[str, int] = {}
    for number in range(count):
        code = rng.randrange(1, 100)
        script = WRITER.format(lines=LINES, pause="", code=code)
        if number % 2:
            script = WRITER.format(lines=20, pause="sleep 0.02;", code=code)
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, str(folder), script],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert reader.stdout
        id = (await asyncio.to_thread(reader.stdout.readline)).strip()
        await asyncio.sleep(rng.random() * 0.1)
        reader.send_signal(signal.SIGKILL)
        reader.wait()
        reader.stdout.close()
        ids[id] = code
        if number % 25 == 24:
            say(f"{number + 1}/{count} clients killed, {time.monotonic() - begun:.0f} s")
    for number, (id, code) in enumerate(ids.items()):
        await _check_process(client, id, 20 if number % 2 else LINES, code, report, "client")
    report.said.append(f"{count} clients killed: {len(ids)} processes looked at")
    await _stop_supervisor(client, folder)


async def _kill_supervisors(
    folder: Path, count: int, seed: int, report: ProcessReport, say: Say
) -> None:
    rng = random.Random(seed)
    client, checked = ProcessClient(folder, linger=60), 0
    for kill in range(count):
        codes: dict[str, tuple[int, int]] = {}
        for number in range(6):
            code = rng.randrange(1, 100)
            lines = (50, 2000)[number % 2]
            pause = "sleep 0.01;" if lines == 50 else ""
            script = WRITER.format(lines=lines, pause=pause, code=code)
            pty = TerminalSize() if number == 4 else None
            one = await client.start(["sh", "-c", script], owner=OWNER, pty=pty)
            codes[one.id] = (lines, code)
        stays = await client.start(["sleep", "300"], owner=OWNER)
        await asyncio.sleep(rng.random() * 0.3)
        os.kill(_find_supervisor(folder), signal.SIGKILL)
        for id, (lines, code) in codes.items():
            await _check_process(client, id, lines, code, report, f"kill {kill}")
            checked += 1
        state = (await client.poll(stays.id)).process.state
        if state != "running":
            report.wrong.append(f"kill {kill}: {stays.id} is {state}")
        killed = await client.kill(stays.id)
        if killed.state != "killed" or _is_alive(stays.pid or 0):
            report.wrong.append(f"kill {kill}: {killed}")
        say(f"{kill + 1}/{count} supervisors killed")
    report.said.append(f"{count} supervisors killed: {checked} states, outputs and codes looked at")
    await _stop_supervisor(client, folder)


async def _check_process(
    client: ProcessClient, id: str, lines: int, code: int, report: ProcessReport, what: str
) -> None:
    waited = await client.wait(id, 60, reader="soak")
    process = waited.process
    if (process.state, process.exit_code) != ("exited", code):
        report.wrong.append(f"{what}: {process}, the code was {code}")
    expected = "".join(f"line {i}\n" for i in range(1, lines + 1))
    if waited.output != expected:
        report.wrong.append(
            f"{what}: {id} has {len(waited.output)} of {len(expected)} characters, or others"
        )


async def _stop_supervisor(client: ProcessClient, folder: Path) -> None:
    await client.kill_all(OWNER)
    await client.aclose()
    os.kill(_find_supervisor(folder), signal.SIGTERM)
    while (folder / SOCKET).exists():
        await asyncio.sleep(0.05)


def _find_supervisor(folder: Path) -> int:
    for _ in range(500):
        with socket.socket(socket.AF_UNIX) as line:
            try:
                line.connect(str(protocol.get_socket_folder(folder) / SOCKET))
                return protocol.get_peer_credentials(line)[0]
            except OSError:
                time.sleep(0.02)
    raise RuntimeError("no supervisor answers")


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _find_marked(ids: set[str]) -> set[int]:
    """Return the running processes with one of these ids in their environment."""
    found: set[int] = set()
    for name in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{name}/environ").read_bytes() if name.isdigit() else b""
        except OSError:
            continue
        marks = (word.partition(b"=") for word in words.split(b"\0"))
        mark = next((value for key, _, value in marks if key == b"REKINDLE_PROCESS"), b"")
        if mark.decode() in ids and _is_alive(int(name)):
            found.add(int(name))
    return found


def _count_open_files() -> Counter[str]:
    """Count this program's open files by kind."""
    names: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            names[re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{number}"))] += 1
    return names


def _list_groups() -> set[str]:
    from rekindle.processes.backends.local import cgroup

    parent = cgroup.find_parent_group()
    return (
        {name for name in os.listdir(parent) if name.startswith("rekindle-")} if parent else set()
    )
