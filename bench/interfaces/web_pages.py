"""The web pages in a real browser, over 100,000 sessions and 4 million messages.

    python -m bench web [--quick] [--store FILE]

Chromium loads the pages of a running `rekindle web` and reports the first contentful paint. A keystroke
is timed from the key to the frame with its first results (one screen, by titles, words, and prefixes
of six letters or more; the rest follows after a pause in typing). Scrolling is measured by the frames
that the browser drew. Live viewers read the events of one session while it grows by a line every tenth
of a second; a line is timed from the return of `Store.append` to its arrival, and in a real page until
it is drawn. The floor is a static file of the same server, drawn by the same browser.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench import report
from bench.environments import ROOT
from bench.interfaces.agent_hooks import pick_percentile
from bench.interfaces.web_store import fill_store
from bench.workload import make_queries
from rekindle import open_store
from rekindle.types import Message

SESSIONS, MESSAGES = 100_000, 4_000_000
LONG_MESSAGES = 2_000
VIEWERS, LIVE_LINES, LINE_SECONDS = 50, 150, 0.1
PAINTS, WORDS = 15, 12
LONG_TITLE = "A long session"
FRAME_MS = 1000 / 60


class Limit(NamedTuple):
    """A figure that must not be exceeded."""

    name: str
    title: str
    most: float
    unit: str


LIMITS = (
    Limit("list", "session list, first contentful paint, p95", 300, "ms"),
    Limit("key", "search as you type, key until drawn, p95", 100, "ms"),
    Limit("transcript", "transcript of 2,000 messages, first contentful paint, p95", 500, "ms"),
    Limit("frames", "scrolling through it, time between frames, p95", 1.1 * FRAME_MS, "ms"),
    Limit("memory", "memory of the server afterwards", 150, "MB"),
    Limit("line", f"live line to {VIEWERS} viewers, worst", 300, "ms"),
    Limit("drawn", "live line until drawn in a browser, p95", 300, "ms"),
    Limit("core", f"server with {VIEWERS} viewers, of a core", 25, "%"),
)


class WebServer:
    """A running `rekindle web`."""

    def __init__(self, home: Path) -> None:
        env = {**os.environ, "REKINDLE_HOME": str(home), "HOME": str(home)}
        env["PYTHONPATH"] = str(ROOT / "src")
        program = str(Path(sysconfig.get_path("scripts")) / "rekindle")
        self._process = subprocess.Popen(
            [program, "web", "--listen", "127.0.0.1:0", "--no-open"],
            env=env,
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=(home / "web.log").open("wb"),
        )
        assert self._process.stdout is not None
        self.link = self._process.stdout.readline().decode().strip()
        self.url = self.link.partition("/open")[0]

    def read_memory(self) -> float:
        """Return the peak of its memory in MB."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    def read_cpu(self) -> float:
        """Return the seconds of CPU time that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)


# ── pages


def measure_paints(page: Any, address: str, rounds: int) -> list[float]:
    """Load a page repeatedly; return the first contentful paints in ms."""
    taken: list[float] = []
    for _ in range(rounds + 1):
        page.goto(address, wait_until="load")
        page.wait_for_function(
            "() => performance.getEntriesByName('first-contentful-paint').length > 0"
        )
        taken.append(
            page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        )
    return taken[1:]


TYPE_KEY = """
async ([text]) => {
  const field = document.querySelector("main form[data-instant] input[type=search]");
  const begin = performance.now();
  field.focus();
  field.value = text;
  const shown = new Promise((done) => document.addEventListener("rekindle:updated", done, {once: true}));
  field.dispatchEvent(new Event("input", {bubbles: true}));
  await shown;
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - begin;
}
"""


def measure_keys(page: Any, address: str, count: int) -> list[float]:
    """Type words; return the ms from each key until its results were drawn."""
    page.goto(address, wait_until="load")
    taken: list[float] = []
    for word in make_queries(count, 1_000, 8, 120):
        for end in range(1, len(word) + 1):
            taken.append(page.evaluate(TYPE_KEY, [word[:end]]))
    return taken


SCROLL = """
async () => {
  const frames = [];
  let last = 0;
  const end = performance.now() + 4000;
  await new Promise((done) => {
    function step(now) {
      if (last) frames.push(now - last);
      last = now;
      scrollBy(0, 120);
      if (now < end) requestAnimationFrame(step); else done();
    }
    requestAnimationFrame(step);
  });
  return frames;
}
"""


# ── live


WATCH_LINES = """
() => {
  window.seen = [];
  new MutationObserver((changes) => {
    for (const change of changes) for (const node of change.addedNodes) {
      for (const [, number] of (node.textContent ?? "").matchAll(/line number (\\d+) ends/g))
        requestAnimationFrame(() => window.seen.push([Number(number), Date.now()]));
    }
  }).observe(document.querySelector("main"), {childList: true, subtree: true});
}
"""


async def read_events(address: str, cookies: dict[str, str], arrivals: dict[int, float]) -> None:
    """Read the events of a session and record when each line arrives."""
    import re

    import httpx

    pattern = re.compile(r"line number (\d+) ends")
    async with (
        httpx.AsyncClient(cookies=cookies, timeout=None) as client,
        client.stream("GET", address) as answer,
    ):
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            for number in pattern.findall(line):
                arrivals.setdefault(int(number), time.time())


async def run_viewers(
    server: WebServer, store_file: Path, session: str, cookies: dict[str, str]
) -> tuple[list[float], float]:
    """Let many viewers read a growing session; return all delays in ms and the share of a core."""
    arrivals: list[dict[int, float]] = [{} for _ in range(VIEWERS)]
    with open_store(store_file) as store:
        after = store.messages(session, last=1)[0].position
    address = f"{server.url}/sessions/{session}/events?after={after}"
    readers = [asyncio.create_task(read_events(address, cookies, one)) for one in arrivals]
    await asyncio.sleep(2)
    sent: dict[int, float] = {}
    begin, used = time.time(), server.read_cpu()
    with open_store(store_file) as store:
        for number in range(LIVE_LINES):
            message = Message("assistant", f"line number {number} ends")
            await asyncio.to_thread(store.append, session, message)
            sent[number] = time.time()
            await asyncio.sleep(LINE_SECONDS)
    share = (server.read_cpu() - used) / (time.time() - begin) * 100
    await asyncio.sleep(1)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    if missing := sum(LIVE_LINES - len(one) for one in arrivals):
        lost = sorted(set(range(LIVE_LINES)) - arrivals[0].keys())
        raise RuntimeError(f"{missing} lines did not arrive, by the first viewer's count {lost}")
    return [(one[n] - sent[n]) * 1000 for one in arrivals for n in sent], share


def measure_drawing(page: Any, server: WebServer, store_file: Path, session: str) -> list[float]:
    """Return the ms from an append until a browser has drawn the line."""
    page.goto(f"{server.url}/sessions/{session}?at={LONG_MESSAGES - 1}", wait_until="load")
    page.wait_for_selector("#transcript[data-connected]", state="attached")
    page.evaluate(WATCH_LINES)
    sent: dict[int, float] = {}
    with open_store(store_file) as store:
        for number in range(10_000, 10_030):
            store.append(session, Message("assistant", f"line number {number} ends"))
            sent[number] = time.time()
            page.wait_for_timeout(200)
    page.wait_for_function("() => window.seen.length >= 30")
    return [(at / 1000 - sent[number]) * 1000 for number, at in page.evaluate("window.seen")]


def add_long_session(store_file: Path) -> str:
    """Store a session of 2,000 messages with calls and edits; return its id."""
    from rekindle.types import ToolCall

    with open_store(store_file) as store:
        session = store.begin(title=LONG_TITLE, source="claude-code", cwd="/gone/project")
        messages: list[Message] = []
        for number in range(LONG_MESSAGES // 4):
            call = ToolCall(f"c{number}", "Bash", {"command": f"pytest tests/test_{number}.py"})
            messages += [
                Message("user", f"Please repair test {number}, and say *why* it failed."),
                Message("assistant", f"I look at `tests/test_{number}.py` first.", [call]),
                Message("tool", "FAILED\n" + "a line of output\n" * 20, tool_call_id=call.id),
                Message("assistant", "It works now:\n\n```python\nassert answer == 42\n```\n" * 2),
            ]
        store.append(session, *messages)
        return session.id


# ── all of it


def measure_pages(home: Path, rounds: int, words: int) -> dict[str, list[float]]:
    from playwright.sync_api import sync_playwright

    store_file = home / "sessions.db"
    long_id = add_long_session(store_file)
    server = WebServer(home)
    taken: dict[str, list[float]] = {}
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            context = browser.new_context(viewport={"width": 1280, "height": 860})
            page = context.new_page()
            page.goto(server.link)
            page.wait_for_url(f"{server.url}/")
            taken["floor"] = measure_paints(page, f"{server.url}/static/app.css", rounds)
            taken["home"] = measure_paints(page, f"{server.url}/", rounds)
            taken["list"] = measure_paints(page, f"{server.url}/sessions", rounds)
            taken["key"] = measure_keys(page, f"{server.url}/sessions", words)
            taken["transcript"] = measure_paints(page, f"{server.url}/sessions/{long_id}", rounds)
            page.goto(f"{server.url}/sessions/{long_id}", wait_until="load")
            taken["frames"] = page.evaluate(SCROLL)
            taken["drawn"] = measure_drawing(page, server, store_file, long_id)
            cookies = {one.get("name", ""): one.get("value", "") for one in context.cookies()}
            browser.close()
        taken["memory"] = [server.read_memory()]
        delays, share = asyncio.run(run_viewers(server, store_file, long_id, cookies))
        taken["line"], taken["core"] = [max(delays)], [share]
        taken["lines"] = delays
    finally:
        server.stop()
    return taken


TITLES = {
    "floor": "floor: a static file of the same server, first contentful paint, p95",
    "home": "home, first contentful paint, p95",
    **{limit.name: limit.title for limit in LIMITS},
}


def build_table(taken: dict[str, list[float]], sessions: int, messages: int) -> str:
    limits = {limit.name: limit for limit in LIMITS}
    lines = [
        "## Web page",
        "",
        f"`python -m bench web`, {report.describe_machine()}. {sessions:,} sessions, {messages:,}"
        " messages; Debian's Chromium through playwright on the same two cores.",
        "",
        "| | runs | p50 | figure | must reach | reached |",
        "|---|---:|---:|---:|---|---|",
    ]
    for name, title in TITLES.items():
        values = taken[name]
        figure = pick_percentile(values, 0.95) if len(values) > 1 else values[0]
        limit = limits.get(name)
        unit = limit.unit if limit else "ms"
        must = f"≤ {limit.most:.3g} {unit}" if limit else "–"
        reached = "–" if limit is None else "yes" if figure <= limit.most else "**no**"
        middle = f"{statistics.median(values):.1f}" if len(values) > 1 else "–"
        lines.append(
            f"| {title} | {len(values)} | {middle} | {figure:.1f} {unit} | {must} | {reached} |"
        )
    return "\n".join([*lines, ""])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a small store; writes no results")
    parser.add_argument("--store", type=Path, help="an existing store of full size")


def run(args: argparse.Namespace) -> None:
    sessions, messages = (2_000, 20_000) if args.quick else (SESSIONS, MESSAGES)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        if args.store:
            shutil.copy(args.store, home / "sessions.db")
        else:
            fill_store(home / "sessions.db", sessions, messages)
        taken = measure_pages(home, 5 if args.quick else PAINTS, 3 if args.quick else WORDS)
    table = build_table(taken, sessions, messages)
    sys.stdout.write(f"{table}\n")
    if not args.quick:
        report.write_section("web", table)
