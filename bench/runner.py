"""Runs the measurements of the stores in separate processes and collects their figures."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.environments import ROOT, get_python
from bench.peers import ROSTER
from bench.store.start_gate import open_when_ready

WORK = ROOT / "bench" / ".work"
TRACED = "fsync,fdatasync,sync_file_range,write,pwrite64,writev,pwritev,pwritev2"
FLUSHES = ("fsync", "fdatasync")

Figures = dict[str, Any]

_CALL = re.compile(r"^(\d+)\s+(\w+)\(\d+<([^>]*)>.*?(?:\)\s+= (-?\d+)|<unfinished)")
_RESUMED = re.compile(r"^(\d+)\s+<\.\.\. (\w+) resumed>.*\)\s+= (-?\d+)")


def build_environment(home: Path) -> dict[str, str]:
    """Build the environment variables: bytecode is used, and nothing is written outside `home`."""
    given = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    given |= {"PYTHONPATH": str(ROOT), "HOME": str(home), "HERMES_HOME": str(home / "hermes")}
    given |= {"REKINDLE_HOME": str(home / "rekindle"), "AGNO_TELEMETRY": "false"}
    given |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}
    return given


@contextmanager
def lock_checkout() -> Iterator[None]:
    """Allow one benchmark at a time in this checkout: two would disturb each other's figures."""
    WORK.mkdir(parents=True, exist_ok=True)
    with open(WORK / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                "waiting for another benchmark in this checkout to end", file=sys.stderr, flush=True
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_empty_folder(*parts: str) -> Path:
    folder = WORK.joinpath(*parts)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _build_command(name: str, row: str, folder: Path, args: Figures) -> list[str]:
    given = json.dumps({"folder": str(folder), **args})
    return [str(get_python(ROSTER[name].env)), "-m", "bench.store.child_process", name, row, given]


def _start_process(command: list[str], home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=build_environment(home),
        cwd=home,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _collect_figures(process: subprocess.Popen[str], patience_s: float) -> Figures:
    try:
        out, err = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"error": f"no answer within {patience_s:.0f} s"}
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        reason = (err.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        return {"error": reason.replace(str(ROOT), ".")[:300]}
    return json.loads(lines[-1])


def run_row(name: str, row: str, folder: Path, patience_s: float = 900, **args: Any) -> Figures:
    """Run one measurement of one store; a failure is returned as {"error": reason}."""
    return _collect_figures(
        _start_process(_build_command(name, row, folder, args), WORK), patience_s
    )


def run_row_traced(
    name: str, row: str, folder: Path, patience_s: float = 900, **args: Any
) -> Figures:
    """Run a measurement under strace and add the flushes and bytes written to files in `folder`."""
    strace = shutil.which("strace")
    if not strace:
        return {"error": "strace is not installed: flushes and bytes cannot be counted"}
    trace = folder.with_suffix(".strace")
    options = ["-f", "-y", "-s", "0", "--seccomp-bpf", "-o", str(trace), "-e", f"trace={TRACED}"]
    command = [strace, *options, *_build_command(name, row, folder, args)]
    figures = _collect_figures(_start_process(command, WORK), patience_s)
    if "error" not in figures:
        figures |= count_writes(trace, folder)
    trace.unlink(missing_ok=True)
    return figures


def count_writes(trace: Path, folder: Path) -> Figures:
    flushes = written = 0
    pending: dict[str, str] = {}  # the second half of an interrupted call does not repeat its path
    with open(trace, errors="replace") as lines:
        for line in lines:
            if match := _CALL.match(line):
                thread, call, path, result = match.groups()
                if result is None:
                    pending[thread] = path
                    continue
            elif match := _RESUMED.match(line):
                thread, call, result = match.groups()
                path = pending.pop(thread, "")
            else:
                continue
            if path.startswith(str(folder)) and int(result) >= 0:
                flushes += call in FLUSHES
                written += int(result)
    return {"flushes": flushes, "written": written}


def run_writers(name: str, folder: Path, processes: int, seconds: float) -> Figures:
    """Run several writing processes on one store, and a process that only flushes, for comparison."""
    made = run_row(name, "append", folder, sessions=1)
    if "error" in made:
        return made
    gate = make_empty_folder("gate")
    shared = {"gate": str(gate), "seconds": seconds}
    disk = _start_process(
        _build_command("floor", "flush", make_empty_folder("flush"), shared), WORK
    )
    writers = [
        _start_process(_build_command(name, "hammer", folder, {"number": n, **shared}), WORK)
        for n in range(processes)
    ]
    everyone = [disk, *writers]
    open_when_ready(gate, len(everyone), lambda: all(one.poll() is None for one in everyone))
    answers = [_collect_figures(writer, seconds + 120) for writer in writers]
    raw = _collect_figures(disk, seconds + 120)
    return _combine_writers(answers, raw, seconds)


def _combine_writers(answers: list[Figures], raw: Figures, seconds: float) -> Figures:
    """Combine the figures of the writers; a writer that did not start counts as an error."""
    good = [answer for answer in answers if "error" not in answer]
    errors = [answer["error"] for answer in answers if "error" in answer]
    errors += [error for answer in good for error in answer["errors"]]
    count = sum(answer["messages"] for answer in good)
    if "error" in raw or not count:
        return {"error": raw.get("error") or (errors or ["not one message was stored"])[0]}
    over = sum(answer["over_1s"] for answer in good)
    return {
        "messages": count,
        "per_s": count / seconds,
        "worst_s": max(answer["worst_s"] for answer in good),
        "over_1s": over,
        "beyond_flush": max(0, over - raw["over_1s"]),
        "errors": len(errors),
        "example": errors[0] if errors else None,
        "flush_worst_s": raw["worst_s"],
        "flush_over_1s": raw["over_1s"],
    }


def time_first_write(name: str, program: str, folder: Path) -> float:
    """Return the milliseconds from starting Python to the first durable message in a new file."""
    told = program + "\nimport os, time\nos.write(1, b'%d' % time.monotonic_ns())\n"
    command = [str(get_python(ROSTER[name].env)), "-c", told, str(folder)]
    start = time.monotonic_ns()
    done = subprocess.run(
        command, env=build_environment(folder), cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["failed"])[-1])
    return (int(re.findall(r"\d+", done.stdout)[-1]) - start) / 1e6


def time_command(command: list[str], home: Path) -> float:
    start = time.monotonic_ns()
    done = subprocess.run(
        command, env=build_environment(home), cwd=home, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["failed"])[-1])
    return (time.monotonic_ns() - start) / 1e6


def count_modules(command: list[str], home: Path) -> int:
    """Count the modules that a Python command imports, except builtin ones."""
    told = [command[0], "-X", "importtime", *command[1:]]
    done = subprocess.run(
        told, env=build_environment(home), cwd=home, capture_output=True, text=True
    )
    return sum(line.startswith("import time:") for line in done.stderr.splitlines()) - 1
