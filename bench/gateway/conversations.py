"""The gateway: its latency before the model request, and many conversations at once.

Latency: routes with ten messages each are stored, then people write in some of them, one at a
time. Measured is the time from receiving a message from the platform to sending the request to the
model: storing the message durably, routing it, and loading the history of its session.

Concurrency: a separate gateway process on the in-memory platform, with a scripted model in another
process that takes a second for each answer. Each conversation gets three messages at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench import report
from bench.environments import ROOT
from bench.runner import Figures, make_empty_folder
from rekindle.platforms import Platform

ROUTES = (100, 1_000, 3_000, 100_000)
QUICK = (100, 1_000)
EACH = 10  # messages in a session
PROBES = 400
HERMES = {100: 23, 1_000: 178, 3_000: 479}  # ms, routing alone; given, not taken in this run
CROWD, BURST = 1_000, 3
MOST_MB = 300
MOST_MS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="small sizes; writes no results file")


def run(args: argparse.Namespace) -> None:
    sizes = QUICK if args.quick else ROUTES
    curve = {size: measure_routes(size) for size in sizes}
    crowd = measure_crowd(100 if args.quick else CROWD)
    text = build_page(curve, crowd)
    print(text)
    if not args.quick:
        report.write_section("gateway", text)


# -- latency


def measure_routes(routes: int) -> Figures:
    folder = make_empty_folder("gateway")
    try:
        begun = time.monotonic()
        _fill_routes(folder / "sessions.db", routes)
        built = time.monotonic() - begun
        taken = asyncio.run(_time_messages(folder, routes))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures = {
        "messages": routes * EACH,
        "build_s": built,
        "p50": median(taken),
        "p95": quantiles(taken, n=20)[18],
    }
    print(f"  {routes:,} routes: {figures}", flush=True)
    return figures


def _make_source(number: int) -> Any:
    from rekindle.types import Source

    return Source("bench", f"chat{number}", user_id=f"u{number}", user_name=f"User {number}")


def _fill_routes(path: Path, routes: int) -> None:
    from rekindle import Message, open_store
    from rekindle.routing.key import build_key
    from rekindle.types import KeyRule

    rule = KeyRule(direct="shared")
    said = [
        Message("user" if n % 2 == 0 else "assistant", f"message {n} about deployments and tests")
        for n in range(EACH)
    ]
    with open_store(path, durability="relaxed") as store:
        for start in range(0, routes, 200):

            def some(start: int = start) -> None:
                for number in range(start, min(start + 200, routes)):
                    source = _make_source(number)
                    key = build_key(source, rule)
                    route = store.routes.open(key, source, name=f"DM with User {number}")
                    store.append(store.begin(id=route.session, owner=key, source="bench"), *said)

            store.transaction(some)


class _TimingPlatform(Platform):
    """A platform that measures the time between a message and its request to the model."""

    name, limit, can_edit = "bench", 4000, False

    def __init__(self, routes: int) -> None:
        rng = random.Random(7)
        self.numbers = [rng.randrange(routes) for _ in range(PROBES + 20)]
        self.given = 0.0
        self.asked: list[float] = []
        self.answered = asyncio.Event()
        self.done = asyncio.Event()

    async def listen(self) -> AsyncGenerator[Any]:
        from rekindle import Message
        from rekindle.platforms import PlatformMessage

        for place, number in enumerate(self.numbers):
            said = Message("user", "and now?", platform_message_id=f"m{place}")
            self.answered.clear()
            incoming = PlatformMessage(_make_source(number), said)
            self.given = time.perf_counter()
            yield incoming
            await self.answered.wait()
            await asyncio.sleep(0.002)
        self.done.set()
        await asyncio.Event().wait()

    async def acknowledge(self, incoming: Any) -> None: ...

    async def send(self, target: Any, text: str, nonce: str) -> str:
        self.answered.set()
        return nonce

    async def edit(self, target: Any, message_id: str, text: str) -> None: ...

    async def close(self) -> None: ...


async def _time_messages(folder: Path, routes: int) -> list[float]:
    from rekindle import open_store
    from rekindle.agent.model.client import Endpoint, Model
    from rekindle.agent.tools.builtin.toolset import BUILTIN_TOOLS
    from rekindle.agent.tools.registry import ToolRegistry
    from rekindle.agent.tools.tool import ToolContext
    from rekindle.gateway.access.gate import Gate
    from rekindle.gateway.access.rules import AccessRules
    from rekindle.gateway.context import GatewayContext
    from rekindle.gateway.gateway import Gateway
    from rekindle.store.store_executor import StoreExecutor
    from rekindle.types import KeyRule, Overridable, ResetPolicy

    bench = _TimingPlatform(routes)

    class Timed(Model):
        async def _iter_chunks(self, request: dict[str, Any]) -> AsyncGenerator[object]:
            bench.asked.append((time.perf_counter() - bench.given) * 1e3)
            from openai.types.chat import ChatCompletionChunk

            choice = {"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}
            about = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m"}
            yield ChatCompletionChunk.model_validate({**about, "choices": [choice]})

    with open_store(folder / "sessions.db") as store:
        desk, model = StoreExecutor(store), Timed(Endpoint("http://127.0.0.1:9/v1", "m"))
        office = GatewayContext(
            desk,
            model,
            ToolRegistry(BUILTIN_TOOLS).select(),
            lambda route, role: ToolContext(route.session, folder, store=store),
            "bench",
            policies=Overridable(ResetPolicy("both")),
            key_rules=Overridable(KeyRule(direct="shared")),
            gate=Gate(store.people, AccessRules({(bench.name, "*"): "owner"})),
        )
        gateway = Gateway(office, [bench])
        running = asyncio.create_task(gateway.run())
        await bench.done.wait()
        gateway.stop()
        await running
        await model.close()
        desk.close()
    return bench.asked[20:]


# -- many conversations


def measure_crowd(people: int) -> Figures:
    from rekindle.testing import ChatServer

    folder = make_empty_folder("gateway-crowd")
    script = folder / "script.json"
    script.write_text(json.dumps({"otherwise": [{"text": "<{user}>", "wait": 1.0}]}))
    model = subprocess.Popen(
        [sys.executable, "-m", "rekindle.testing", "model", "--script", str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env=_build_environment(),
    )
    assert model.stdout is not None
    url = model.stdout.readline().strip()
    with ChatServer(redeliver_seconds=30.0) as server:
        gateway = subprocess.Popen(
            [sys.executable, "-m", "rekindle.cli", "gateway", "run", "--quiet"],
            env=_build_environment(
                REKINDLE_HOME=str(folder),
                OPENAI_BASE_URL=url,
                OPENAI_API_KEY="none",
                REKINDLE_MODEL="scripted",
                REKINDLE_KEYS_DIRECT="shared",
                REKINDLE_GATEWAY_MAX_TURNS=str(people),
                REKINDLE_GATEWAY_PLATFORMS=f"rekindle.testing:connect={server.address},edit=no",
                REKINDLE_GATEWAY_ALLOW="memory:*=owner",
            ),
        )
        try:
            return _run_crowd(server, gateway.pid, people)
        finally:
            for process in (gateway, model):
                process.terminate()
                process.wait(60)
            shutil.rmtree(folder, ignore_errors=True)


def _build_environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REKINDLE_")}
    return {**kept, "PYTHONPATH": path, **more}


def _run_crowd(server: Any, pid: int, people: int) -> Figures:
    warm = _make_source(0)._replace(platform="memory", chat_id="warm")
    server.post_message(warm, "hello")
    while not server.list_sent("warm"):
        time.sleep(0.05)
    begun = time.monotonic()
    for burst in range(BURST):
        for number in range(people):
            server.post_message(_make_source(number)._replace(platform="memory"), f"m{burst}")
    said = time.monotonic() - begun
    wanted, first = people * BURST + 1, 0.0
    limit = begun + 600
    while (count := len(server.list_sent())) < wanted and time.monotonic() < limit:
        if not first and count >= people + 1:
            first = time.monotonic() - begun
        time.sleep(0.05)
    seconds = time.monotonic() - begun
    by_chat: dict[str, list[str]] = {}
    for shown in server.list_sent():
        by_chat.setdefault(shown.chat, []).append(shown.text)
    by_chat.pop("warm")
    right = [f"<m{burst}>" for burst in range(BURST)]
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    figures = {
        "people": people,
        "messages": people * BURST,
        "said_s": said,
        "first_s": first,
        "seconds": seconds,
        "unanswered": wanted - len(server.list_sent()),
        "reordered": sum(texts != right for texts in by_chat.values()),
        "peak_mb": int(peak[1]) / 1024 if peak else 0.0,
    }
    print(f"  crowd: {figures}", flush=True)
    return figures


# -- the section of the results file


def build_page(curve: dict[int, Figures], crowd: Figures) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    head = ["routes", "messages stored", "p50 ms", "p95 ms", "Hermes Agent, routing alone, ms"]
    lines = [
        "## Gateway",
        "",
        f"`python -m bench gateway` on {report.describe_machine()}, {now}. Default settings (full"
        " durability).",
        "",
        "Our own time from receiving a message from the platform to sending the model request.",
        "",
        "| " + " | ".join(head) + " |",
        "|---" * len(head) + "|",
    ]
    for routes, one in curve.items():
        cells = [f"{routes:,}", f"{one['messages']:,}", f"{one['p50']:.2f}", f"{one['p95']:.2f}"]
        lines.append("| " + " | ".join([*cells, str(HERMES.get(routes, "–"))]) + " |")
    last = curve[max(curve)]["p50"]
    held = "yes" if last < MOST_MS else "no"
    memory = "yes" if crowd["peak_mb"] < MOST_MB else "no"
    return "\n".join(
        [
            *lines,
            "",
            f"Under {MOST_MS:g} ms at the median with the most routes: {held}. The Hermes Agent"
            " figures are reference values, not measured in this run.",
            "",
            f"{crowd['people']:,} concurrent conversations, {BURST} messages each, with a model that"
            " takes 1 s:",
            "",
            "| | |",
            "|---|---|",
            f"| messages | {crowd['messages']:,} |",
            f"| seconds until there were as many answers as conversations | {crowd['first_s']:.1f} |",
            f"| seconds until all were answered (at least {BURST}) | {crowd['seconds']:.1f} |",
            f"| unanswered | {crowd['unanswered']} |",
            f"| conversations with answers out of order | {crowd['reordered']} |",
            f"| peak memory of the gateway, MB (under {MOST_MB}: {memory}) | {crowd['peak_mb']:.0f} |",
            "",
        ]
    )
