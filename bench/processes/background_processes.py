"""Background processes: the cost of a start and of many processes, and whether one slows others.

The peers are tmux (a server that outlives its clients) and supervisord. Both do the same through their
own commands or protocol: start many idle processes, then return the state of one.
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

from bench import report
from bench.environments import ENVS, ROOT, InstallError, get_python, install_packages
from bench.resource_usage import read_cpu, read_private_memory

MANY, QUICK = 500, 50
IDLE_SECONDS = 20.0
SUPERVISOR = "supervisor==4.3.0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="small sizes; writes no results file")


def run(args: argparse.Namespace) -> None:
    ours = _measure_rekindle(args.quick)
    many = QUICK if args.quick else MANY
    peers = {
        name: _measure_peer(peer, many)
        for name, peer in (("tmux", _measure_tmux), ("supervisord", _measure_supervisord))
    }
    text = build_page(ours, peers)
    print(text)
    if not args.quick:
        report.write_section("processes", text)


def _measure_rekindle(quick: bool) -> dict[str, Any]:
    """Run the measurements in the environment with the current checkout of Rekindle."""
    from bench.environments import prepare_environment

    command = [
        str(prepare_environment("rekindle")),
        "-m",
        "bench.processes.process_measurements",
        *(["--quick"] if quick else []),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _measure_peer(peer: Callable[[int, Path], dict[str, float]], many: int) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="rekindle-peer-"))
    try:
        return peer(many, folder)
    except (OSError, InstallError, subprocess.SubprocessError, RuntimeError) as error:
        return {"error": str(error)[:200]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure_tmux(many: int, folder: Path) -> dict[str, float]:
    tmux = [shutil.which("tmux") or "tmux", "-S", str(folder / "socket"), "-f", "/dev/null"]

    def ask(*words: str) -> str:
        return subprocess.run([*tmux, *words], capture_output=True, text=True, check=True).stdout

    begun = time.perf_counter()
    ask("new-session", "-d", "-s", "bench", "sleep 600")
    for _ in range(many - 1):
        ask("new-window", "-d", "-t", "bench:", "sleep 600")
    took = time.perf_counter() - begun
    server = int(ask("display-message", "-p", "#{pid}"))
    looks = [_time_call(lambda: ask("list-panes", "-t", "bench:0")) for _ in range(100)]
    try:
        return _measure_idle([server], many, took, looks)
    finally:
        ask("kill-server")


class _UnixTransport(xmlrpc.client.Transport):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> HTTPConnection:
        connection = HTTPConnection("localhost")
        connection.sock = socket(AF_UNIX)
        connection.sock.connect(self._path)
        return connection


def _measure_supervisord(many: int, folder: Path) -> dict[str, float]:
    if not get_python("supervisord").exists():
        install_packages("supervisord", SUPERVISOR, "setuptools<81")
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
        proxy = _wait_for_supervisord(folder / "socket", many)
        took = time.perf_counter() - begun
        looks = [_time_call(lambda: proxy.supervisor.getProcessInfo("p:p1")) for _ in range(100)]
        return _measure_idle([server.pid], many, took, looks)
    finally:
        server.terminate()
        server.wait(60)


def _wait_for_supervisord(path: Path, many: int) -> Any:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            proxy: Any = xmlrpc.client.ServerProxy(
                "http://localhost", transport=_UnixTransport(str(path))
            )
            states = [one["statename"] for one in proxy.supervisor.getAllProcessInfo()]
            if states.count("RUNNING") == many:
                return proxy
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError("not all of its processes started")


def _time_call(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def _measure_idle(pids: list[int], many: int, took: float, looks: list[float]) -> dict[str, float]:
    time.sleep(1)
    used = read_cpu(pids)
    time.sleep(IDLE_SECONDS if many == MANY else 3)
    used = read_cpu(pids) - used
    return {
        "started per second": many / took,
        "idle, % of a core": 100 * used / (IDLE_SECONDS if many == MANY else 3),
        "private memory each, MB": read_private_memory(pids) / many,
        "look p50": median(looks) * 1e3,
        "look p95": quantiles(looks, n=20)[-1] * 1e3,
    }


# -- the section of the results file


def build_page(ours: dict[str, Any], peers: dict[str, dict[str, Any]]) -> str:
    spawn, crowd, writers = ours["spawn"], ours["crowd"], ours["writers"]
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = [
        "## Background processes",
        "",
        f"`python -m bench processes` on {report.describe_machine()}, {now}. Alternating in one run;"
        " figures are medians.",
        "",
        "| starting `/bin/echo` | Popen, ms | Rekindle, ms | ratio | must reach | reached |",
        "|---|---|---|---|---|---|",
        *_build_spawn_rows(spawn),
        "",
        f"One durable record (three flushes, and the space for the output): "
        f"{spawn['one durable record']:.2f} ms; a whole start including it: "
        f"{spawn['registry: call']:.2f} ms.",
        "",
        *_build_crowd_rows(crowd, writers, peers),
    ]
    for name, figures in peers.items():
        if "error" in figures:
            lines.append(f"\n{name}: not measured: {figures['error']}")
    return "\n".join([*lines, "", *_list_notes(), ""])


def _build_spawn_rows(spawn: dict[str, float]) -> list[str]:
    rows: list[str] = []
    for what, ours, floor, must in (
        ("until the first output", "place: first output", "Popen: first output", True),
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


def _build_crowd_rows(
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
        others = " | ".join(report.format_number(peers[name].get(key)) for name in names)
        rows.append(
            f"| {what} | {text or report.format_number(value)} | {wanted} | {reached} | {others} |"
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
        ("poll one while 50 write, p50 ms", ("poll beside writers", "p50"), None, "look p50"),
        ("the same, p95 ms", ("poll beside writers", "p95"), 2.0, "look p95"),
        ("a line to `cat` and back, p50 ms", ("round trip of a line", "p50"), None, ""),
        ("the same beside a flood, p50 ms", ("round trip beside the flood", "p50"), None, ""),
        ("poll beside a flood, p95 ms", ("poll beside the flood", "p95"), 2.0, ""),
    ):
        row(what, writers[key[0]][key[1]], most, other)
    row("flood that was stored, MB/s", writers["flood, MB/s"], None)
    row("memory growth during the flood, MB", writers["memory grew by, MB"], 5.0)
    return rows


def _list_notes() -> list[str]:
    return [
        "Both sides of the first table start a new OS session with pipes for input and output. `Popen`",
        "returns when the kernel has executed the program; Rekindle returns when a shim runs it and",
        "will record its exit code. Joining a control group makes the kernel wait, so it is not the",
        "default. Memory is the private memory of the server (supervisor and fd keeper; tmux;",
        "supervisord) and of the shims, without the processes. tmux is queried through its command,",
        "supervisord through XML-RPC, while nothing writes. When killed with -9, tmux ends its",
        "processes and supervisord loses them.",
    ]
