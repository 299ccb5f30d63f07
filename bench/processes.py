"""Background processes: what a start costs, what many of them cost, and whether one slows others.

Peers that install here: tmux (a server that outlives its clients) and supervisord. They are asked
the same through their own commands or protocol: so many idle processes, then the state of one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
import xmlrpc.client
from collections.abc import Callable
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from socket import AF_UNIX, socket
from statistics import median, quantiles
from typing import Any

from . import report
from .envs import ENVS, ROOT, NotInstalled, install, python
from .usage import cpu, private

MANY, QUICK = 500, 50
IDLE_SECONDS = 20.0
SUPERVISOR = "supervisor==4.3.0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="small sizes; writes no results file")


def run(args: argparse.Namespace) -> None:
    ours = _ours(args.quick)
    many = QUICK if args.quick else MANY
    peers = {name: _tried(peer, many) for name, peer in (("tmux", _tmux), ("supervisord", _daemon))}
    text = page(ours, peers)
    print(text)
    if not args.quick:
        report.write("processes", text)


def _ours(quick: bool) -> dict[str, Any]:
    """The measurements in the environment where Rekindle is installed as it stands."""
    from .envs import prepare

    command = [str(prepare("rekindle")), "-m", "bench.process_run", *(["--quick"] if quick else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _tried(peer: Callable[[int, Path], dict[str, float]], many: int) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="rekindle-peer-"))
    try:
        return peer(many, folder)
    except (OSError, NotInstalled, subprocess.SubprocessError, RuntimeError) as error:
        return {"error": str(error)[:200]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tmux(many: int, folder: Path) -> dict[str, float]:
    tmux = [shutil.which("tmux") or "tmux", "-S", str(folder / "socket"), "-f", "/dev/null"]

    def ask(*words: str) -> str:
        return subprocess.run([*tmux, *words], capture_output=True, text=True, check=True).stdout

    begun = time.perf_counter()
    ask("new-session", "-d", "-s", "bench", "sleep 600")
    for _ in range(many - 1):
        ask("new-window", "-d", "-t", "bench:", "sleep 600")
    took = time.perf_counter() - begun
    server = int(ask("display-message", "-p", "#{pid}"))
    looks = [_timed(lambda: ask("list-panes", "-t", "bench:0")) for _ in range(100)]
    try:
        return _living([server], many, took, looks)
    finally:
        ask("kill-server")


class _Unix(xmlrpc.client.Transport):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> HTTPConnection:
        connection = HTTPConnection("localhost")
        connection.sock = socket(AF_UNIX)
        connection.sock.connect(self._path)
        return connection


def _daemon(many: int, folder: Path) -> dict[str, float]:
    if not python("supervisord").exists():
        install("supervisord", SUPERVISOR, "setuptools<81")
    (folder / "conf").write_text(
        f"[supervisord]\nlogfile={folder}/log\npidfile={folder}/pid\nnodaemon=true\nminfds=8192\n"
        f"[unix_http_server]\nfile={folder}/socket\n"
        "[rpcinterface:supervisor]\n"
        "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
        f"[program:p]\ncommand=sleep 600\nnumprocs={many}\nprocess_name=p%(process_num)d\n"
        f"autostart=true\nstartsecs=0\nstdout_logfile={folder}/%(process_num)d.log\n"
        "redirect_stderr=true\n"
    )
    command = [ENVS / "supervisord" / "bin" / "supervisord", "-c", folder / "conf"]
    begun = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        proxy = _awaited(folder / "socket", many)
        took = time.perf_counter() - begun
        looks = [_timed(lambda: proxy.supervisor.getProcessInfo("p:p1")) for _ in range(100)]
        return _living([server.pid], many, took, looks)
    finally:
        server.terminate()
        server.wait(60)


def _awaited(path: Path, many: int) -> Any:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            proxy: Any = xmlrpc.client.ServerProxy("http://localhost", transport=_Unix(str(path)))
            states = [one["statename"] for one in proxy.supervisor.getAllProcessInfo()]
            if states.count("RUNNING") == many:
                return proxy
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError("its processes did not all start")


def _timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def _living(pids: list[int], many: int, took: float, looks: list[float]) -> dict[str, float]:
    time.sleep(1)
    used = cpu(pids)
    time.sleep(IDLE_SECONDS if many == MANY else 3)
    used = cpu(pids) - used
    return {
        "started per second": many / took,
        "idle, % of a core": 100 * used / (IDLE_SECONDS if many == MANY else 3),
        "private memory each, MB": private(pids) / many,
        "look p50": median(looks) * 1e3,
        "look p95": quantiles(looks, n=20)[-1] * 1e3,
    }


# -- the page


def page(ours: dict[str, Any], peers: dict[str, dict[str, Any]]) -> str:
    spawn, crowd, writers = ours["spawn"], ours["crowd"], ours["writers"]
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = [
        "## Background processes",
        "",
        f"`python -m bench processes` on {report.machine()}, {now}. By turns in one run; medians.",
        "",
        "| starting `/bin/echo` | Popen, ms | Rekindle, ms | ratio | must reach | reached |",
        "|---|---|---|---|---|---|",
        *_spawn_rows(spawn),
        "",
        f"One durable record (three flushes, and the space for the output): "
        f"{spawn['one durable record']:.2f} ms; the whole start with it: "
        f"{spawn['registry: call']:.2f} ms.",
        "",
        *_crowd_rows(crowd, writers, peers),
    ]
    for name, figures in peers.items():
        if "error" in figures:
            lines.append(f"\n{name}: not measured: {figures['error']}")
    return "\n".join([*lines, "", *_notes(), ""])


def _spawn_rows(spawn: dict[str, float]) -> list[str]:
    rows: list[str] = []
    for what, ours, floor, must in (
        ("until its first output", "place: first output", "Popen: first output", True),
        (
            "the same in a control group",
            "place, control group: first output",
            "Popen: first output",
            False,
        ),
        ("until the call returns", "place: call", "Popen: call", False),
    ):
        ratio = spawn[ours] / spawn[floor]
        reached = ("yes" if ratio <= 3 else "NO") if must else ""
        wanted = "≤ 3 ×" if must else ""
        rows.append(
            f"| {what} | {spawn[floor]:.2f} | {spawn[ours]:.2f} | {ratio:.2f} | {wanted} | {reached} |"
        )
    return rows


def _crowd_rows(
    crowd: dict[str, Any], writers: dict[str, Any], peers: dict[str, dict[str, Any]]
) -> list[str]:
    many = crowd["processes"]
    names = list(peers)
    rows = [
        f"| {many} idle processes | Rekindle | must reach | reached | {' | '.join(names)} |",
        "|---|---|---|---|" + "---|" * len(names),
    ]

    def row(what: str, value: float, most: float | None, key: str = "", text: str = "") -> None:
        reached = "" if most is None else "yes" if value < most else "NO"
        wanted = "" if most is None else f"< {most:g}"
        others = " | ".join(report.number(peers[name].get(key)) for name in names)
        rows.append(
            f"| {what} | {text or report.number(value)} | {wanted} | {reached} | {others} |"
        )

    for what, most in (
        ("started per second", None),
        ("idle, % of a core", 1.0),
        ("private memory each, MB", 1.0),
        ("listing all, p50 ms", None),
        ("ending all, s", None),
    ):
        row(what, crowd[what], most, what)
    for what, key, most, other in (
        ("look at one while 50 write, p50 ms", ("poll beside writers", "p50"), None, "look p50"),
        ("the same, p95 ms", ("poll beside writers", "p95"), 2.0, "look p95"),
        ("a line to `cat` and back, p50 ms", ("round trip of a line", "p50"), None, ""),
        ("the same beside a flood, p50 ms", ("round trip beside the flood", "p50"), None, ""),
        ("look beside a flood, p95 ms", ("poll beside the flood", "p95"), 2.0, ""),
    ):
        row(what, writers[key[0]][key[1]], most, other)
    row("flood that was taken in, MB/s", writers["flood, MB/s"], None)
    row("memory that grew by it, MB", writers["memory grew by, MB"], 5.0)
    return rows


def _notes() -> list[str]:
    return [
        "Both sides of the first table start a session of their own with pipes for input and output;",
        "`Popen` returns when the kernel has taken the program, ours when a shim runs it and would note",
        "its exit code. To join a control group makes the kernel wait, which is why it is not the rule.",
        "Memory is what belongs to the server (supervisor and keeper; tmux; supervisord) and the shims",
        "alone, without the processes. tmux is asked through its command, supervisord through XML-RPC,",
        "while nothing writes. Killed with -9, tmux ends its processes and supervisord forgets them.",
    ]
