"""Measures background processes in a separate process and prints the figures as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.resource_usage import read_cpu, read_private_memory
from rekindle.processes import protocol
from rekindle.processes.backends.base import ProcessSpec
from rekindle.processes.backends.local.local import LocalBackend
from rekindle.processes.client import ProcessClient
from rekindle.processes.state.journal import Journal, ProcessRecord
from rekindle.processes.state.ring_buffer import RingBuffer
from rekindle.processes.supervisor.registry import ProcessRegistry
from rekindle.processes.supervisor.supervisor import SOCKET
from rekindle.processes.types import ProcessLimits

OWNER = "bench"
LIMITS = ProcessLimits(per_owner=2000, in_all=2000)
WRITING = (
    "while :; do echo a line of output that is of the usual length, more or less; sleep 0.01; done"
)
FLOOD = (
    "import os, time\nblock = b'x' * 65536\nbegun, sent = time.monotonic(), 0\n"
    "while True:\n    sent += os.write(1, block)\n"
    "    ahead = sent / 500e6 - (time.monotonic() - begun)\n"
    "    if ahead > 0.002: time.sleep(ahead)\n"
)


def compute_spread(values: list[float]) -> dict[str, float]:
    return {"p50": median(values) * 1e3, "p95": quantiles(values, n=20)[-1] * 1e3}


# -- starting


async def measure_spawn(folder: Path, count: int) -> dict[str, Any]:
    """Alternate between Popen, the local backend without a record, and the whole registry."""
    taken: dict[str, list[float]] = {}
    plain, grouped = LocalBackend(), LocalBackend(use_cgroups=True)
    registry = await ProcessRegistry.open(folder / "registry", limits=LIMITS)
    journal = Journal(folder / "records")
    journal.prepare()
    for number in range(count):
        for name, seconds in (
            *_time_popen(),
            *await _time_backend("place", plain, folder / f"a{number}"),
            *await _time_backend("place, control group", grouped, folder / f"b{number}"),
            *await _time_registry(registry),
            *_time_record(journal, number),
        ):
            taken.setdefault(name, []).append(seconds)
    await registry.aclose()
    await plain.close()
    await grouped.close()
    return {name: median(values) * 1e3 for name, values in taken.items()}


def _time_popen() -> list[tuple[str, float]]:
    begun = time.perf_counter()
    one = subprocess.Popen(
        ["/bin/echo", "x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    called = time.perf_counter() - begun
    assert one.stdout
    assert one.stdin
    one.stdout.read(1)
    ran = time.perf_counter() - begun
    one.stdout.close()
    one.stdin.close()
    one.wait()
    return [("Popen: call", called), ("Popen: first output", ran)]


async def _time_backend(name: str, place: LocalBackend, folder: Path) -> list[tuple[str, float]]:
    folder.mkdir()
    ring = RingBuffer.create(folder / "ring")
    begun = time.perf_counter()
    spec = ProcessSpec(
        f"b{os.urandom(5).hex()}", ("/bin/echo", "x"), "/", dict(os.environ), None, folder
    )
    running = await place.start(spec)
    called = time.perf_counter() - begun
    copying = asyncio.create_task(running.copy_output(ring))
    while not ring.total:
        await asyncio.sleep(0)
    ran = time.perf_counter() - begun
    await running.wait()
    await copying
    await running.clean_up()
    shutil.rmtree(folder)
    return [(f"{name}: call", called), (f"{name}: first output", ran)]


async def _time_registry(registry: ProcessRegistry) -> list[tuple[str, float]]:
    begun = time.perf_counter()
    one = await registry.start(["/bin/echo", "x"], owner=OWNER)
    called = time.perf_counter() - begun
    await registry.wait(one.id, 10)
    return [("registry: call", called)]


def _time_record(journal: Journal, number: int) -> list[tuple[str, float]]:
    record = ProcessRecord(
        f"r{number}", OWNER, ("/bin/echo", "x"), "local", "starting", time.time()
    )
    begun = time.perf_counter()
    journal.create(record)
    RingBuffer.create(journal.get_ring_path(record.id)).close()
    return [("one durable record", time.perf_counter() - begun)]


# -- living


def _find_servers(folder: Path) -> list[int]:
    """Return the process ids of the supervisor and the fd keeper."""
    import socket

    found: list[int] = []
    where = protocol.get_socket_folder(folder)
    for name, kind in ((SOCKET, socket.SOCK_STREAM), ("keeper.sock", socket.SOCK_SEQPACKET)):
        with socket.socket(socket.AF_UNIX, kind) as line:
            line.connect(str(where / name))
            found.append(protocol.get_peer_credentials(line)[0])
    return found


def _find_shims(processes: Iterable[int]) -> list[int]:
    return [
        int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        for pid in processes
    ]


async def measure_crowd(folder: Path, count: int, seconds: float) -> dict[str, Any]:
    client = ProcessClient(folder / "crowd", limits=LIMITS, linger=30)
    first = await client.start(["sleep", "600"], owner=OWNER)
    ours = _find_servers(folder / "crowd")
    before = read_private_memory(ours)
    begun = time.perf_counter()
    started = [first]
    for _ in range(0, count - 1, 10):
        many = min(10, count - len(started))
        started += await asyncio.gather(
            *(client.start(["sleep", "600"], owner=OWNER) for _ in range(many))
        )
    took = time.perf_counter() - begun
    await asyncio.sleep(1)
    used = read_cpu(ours)
    await asyncio.sleep(seconds)
    used = read_cpu(ours) - used
    shims = read_private_memory(_find_shims(p.pid for p in started if p.pid))
    listing = []
    for _ in range(20):
        at = time.perf_counter()
        assert len(await client.list(owner=OWNER)) >= count
        listing.append(time.perf_counter() - at)
    figures = {
        "processes": len(started),
        "started per second": (len(started) - 1) / took,
        "idle, % of a core": 100 * used / seconds,
        "private memory each, MB": (read_private_memory(ours) - before + shims) / len(started),
        "of that the shim, MB": shims / len(started),
        "listing all, p50 ms": median(listing) * 1e3,
    }
    at = time.perf_counter()
    await client.kill_all(OWNER)
    figures["ending all, s"] = time.perf_counter() - at
    await _stop_supervisor(client, folder / "crowd")
    return figures


async def _stop_supervisor(client: ProcessClient, folder: Path) -> None:
    supervisor = _find_servers(folder)[0]
    await client.aclose()
    os.kill(supervisor, 15)
    while Path(f"/proc/{supervisor}").exists():
        await asyncio.sleep(0.05)


# -- writing


async def measure_writers(folder: Path, count: int, looks: int) -> dict[str, Any]:
    client = ProcessClient(folder / "writers", limits=LIMITS, linger=30)
    quiet = await client.start(["cat"], owner=OWNER)
    loud = [await client.start(["sh", "-c", WRITING], owner=OWNER) for _ in range(count)]
    figures: dict[str, Any] = {}
    polls = [await _time_poll(client, loud[n % count].id) for n in range(looks)]
    figures["poll beside writers"] = compute_spread(polls)
    for one in loud:
        await client.kill(one.id)
    ours = _find_servers(folder / "writers")
    figures["round trip of a line"] = compute_spread(
        [await _time_echo(client, quiet.id) for _ in range(200)]
    )
    before = read_private_memory(ours)
    flood = await client.start([sys.executable, "-c", FLOOD], owner=OWNER)
    await asyncio.sleep(1)
    at, begun = (await client.poll(flood.id, reader="count")).process.bytes, time.perf_counter()
    trips = [await _time_echo(client, quiet.id) for _ in range(200)]
    polls = [await _time_poll(client, quiet.id) for _ in range(looks)]
    took = time.perf_counter() - begun
    written = (await client.poll(flood.id, reader="count")).process.bytes - at
    figures["flood, MB/s"] = written / took / 1e6
    figures["round trip beside the flood"] = compute_spread(trips)
    figures["poll beside the flood"] = compute_spread(polls)
    figures["memory grew by, MB"] = read_private_memory(ours) - before
    await client.kill_all(OWNER)
    await _stop_supervisor(client, folder / "writers")
    return figures


async def _time_poll(client: ProcessClient, id: str) -> float:
    begun = time.perf_counter()
    await client.poll(id)
    took = time.perf_counter() - begun
    await asyncio.sleep(0.002)
    return took


async def _time_echo(client: ProcessClient, id: str) -> float:
    """Time a line to `cat` and back."""
    position = (await client.read_log(id, tail=0)).process.bytes
    begun = time.perf_counter()
    await client.submit(id, "x")
    async for _ in client.attach(id, since=position):
        break
    return time.perf_counter() - begun


async def main(quick: bool) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="rekindle-bench-"))
    try:
        return {
            "spawn": await measure_spawn(folder, 30 if quick else 200),
            "crowd": await measure_crowd(folder, 50 if quick else 500, 3 if quick else 20),
            "writers": await measure_writers(folder, 10 if quick else 50, 200 if quick else 1000),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main("--quick" in sys.argv))))
