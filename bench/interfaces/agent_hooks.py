"""How long an agent waits for a hook, with and without the hook helper.

    python -m bench hooks [--quick]

The hooks are run as agents run them: the command of their configuration, in a shell, with the event on
standard input, in a store of 10,000 sessions of which 1,000 are the project's. The floors, a shell and
a bare interpreter in it, are measured in the same run, between the hooks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

from bench import report
from bench.learning.recall import PROJECT_SESSIONS, SESSIONS, WORDS, fill_store
from rekindle import Message, Store, ToolCall, open_store
from rekindle.hooks.client import SOCKET
from rekindle.hooks.command import HOOKS_FOLDER, build_hook_command, write_launcher
from rekindle.learning.notes.learner import learn_from_sessions

ROUNDS, COLD_ROUNDS = 200, 40
FOLDER = "/gone/project"
FAILURE = "Exit code 1\nopen /root/.cache/ab: operation not permitted\nerror: no build cache"
ROWS = (  # name, what it is, must reach
    ("shell", "floor: `sh -c :`", None),
    ("interpreter", "floor: `python -I -S -c pass` in a shell", None),
    ("start", "start, with the helper", 60),
    ("prompt", "first prompt, with the helper", None),
    ("failure", "failed tool, with the helper", 40),
    ("success", "Codex: a successful tool, with the helper", None),
    ("call", "before a command that runs, with the helper", 40),
    ("stopped", "before a command that is known to fail, with the helper", 40),
    ("end", "end, with the helper", None),
    ("cold", "start, without a helper", 250),
)


class HookBench:
    """A home with a full store, whose hooks are timed."""

    def __init__(self, folder: Path, scale: int) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        (self.home / "config.toml").write_text("[warm]\ncontrol_share = 0\nbefore_call = true\n")
        self.rollout = folder / "rollout.jsonl"
        self.rollout.write_text(_make_rollout())
        with open_store(self.home / "sessions.db", durability="relaxed") as store:
            fill_store(store, FOLDER, SESSIONS // scale, PROJECT_SESSIONS // scale)
            add_fixes(store)
            learn_from_sessions(store)
        write_launcher(self.home)
        self.numbers = count()
        self.silent: dict[str, int] = {}  # hooks that should have printed something and did not

    def run_hook(self, agent: str, event: str, session: str, **fields: Any) -> tuple[float, bytes]:
        given = {"session_id": session, "cwd": FOLDER, **fields}
        return time_command(
            ["sh", "-c", build_hook_command(agent, event, self.home)], json.dumps(given).encode()
        )

    def run_row(self, row: str, session: str) -> float:
        """Run one hook or floor and return its time in milliseconds."""
        failed = {"tool_name": "Bash", "tool_input": {"command": "go vet ./cache"}}
        known = {"tool_name": "Bash", "tool_input": {"command": "go vet ./..."}}
        taken, printed = {
            "shell": lambda: time_command(["sh", "-c", ":"], b""),
            "interpreter": lambda: time_command(["sh", "-c", f"{sys.executable} -I -S -c pass"], b""),
            "start": lambda: self.run_hook("claude-code", "start", session),
            "prompt": lambda: self.run_hook(
                "claude-code", "prompt", session, prompt="fix the parser of the cache"
            ),
            "failure": lambda: self.run_hook(
                "claude-code", "failure", session, error=FAILURE, **failed
            ),
            "success": lambda: self.run_hook(
                "codex", "failure", session, transcript_path=str(self.rollout), tool_use_id="call_0",
                tool_response="ok", **failed,
            ),
            "call": lambda: self.run_hook("claude-code", "call", session, **failed),
            "stopped": lambda: self.run_hook("claude-code", "call", f"{session}-known", **known),
            "end": lambda: self.run_hook("claude-code", "end", session),
            "cold": lambda: self.run_hook("claude-code", "start", session),
        }[row]()  # fmt: skip
        if row in ("start", "failure", "stopped", "cold") and not printed:
            self.silent[row] = self.silent.get(row, 0) + 1
        return taken * 1000

    def stop_helper(self) -> None:
        """Let the helper exit and wait until it has, even if it was still starting."""
        while True:
            (self.home / HOOKS_FOLDER / SOCKET).unlink(missing_ok=True)
            if str(self.home) not in _list_commands():
                return
            time.sleep(0.05)

    def measure(self, rounds: int, cold_rounds: int) -> dict[str, list[float]]:
        taken: dict[str, list[float]] = {row: [] for row, _, _ in ROWS}
        self.run_row("start", "first")
        for number in range(rounds):
            for row, _, _ in ROWS:
                if row != "cold":
                    taken[row].append(self.run_row(row, f"s{number}"))
        for number in range(cold_rounds):
            self.stop_helper()
            taken["cold"].append(self.run_row("cold", f"cold{number}"))
        self.stop_helper()
        return taken


def add_fixes(store: Store) -> None:
    """Store sessions of the project that fix a failure."""
    for number in range(5):
        session = store.begin(id=f"fix{number}", cwd=FOLDER)
        calls = [
            ToolCall(f"fix{number}-{command[:3]}", "Bash", {"command": command})
            for command in ("go vet ./...", "env GOCACHE=/tmp/c go vet ./...")
        ]
        store.append(
            session,
            Message("user", f"check the {WORDS[number]}"),
            Message("assistant", tool_calls=(calls[0],)),
            Message("tool", FAILURE, tool_call_id=calls[0].id, meta={"is_error": True}),
            Message("assistant", tool_calls=(calls[1],)),
            Message("tool", "ok", tool_call_id=calls[1].id, meta={"is_error": False}),
        )


def time_command(command: list[str], given: bytes) -> tuple[float, bytes]:
    begin = time.perf_counter()
    done = subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True)
    return time.perf_counter() - begin, done.stdout


def _make_rollout() -> str:
    """Return a Codex transcript of a megabyte, with the end of the requested call in its tail."""
    line = {"type": "response_item", "payload": {"type": "message", "text": "x" * 2_000}}
    item = {"type": "CommandExecution", "id": "call_0", "exit_code": 0, "status": "completed"}
    end = {"type": "event_msg", "payload": {"type": "item_completed", "item": item}}
    return "".join(json.dumps(one) + "\n" for one in [*[line] * 500, end])


def _list_commands() -> str:
    listed = subprocess.run(["ps", "-eo", "args", "ww"], capture_output=True, text=True).stdout
    return "\n".join(line for line in listed.splitlines() if "entry.py" in line)


def pick_percentile(taken: list[float], share: float) -> float:
    return sorted(taken)[min(len(taken) - 1, int(len(taken) * share))]


def build_table(taken: dict[str, list[float]], silent: dict[str, int], scale: int) -> str:
    lines = [
        "## Hooks",
        "",
        f"`python -m bench hooks`, {report.describe_machine()}. How long an agent waits for a hook, in"
        f" ms; {SESSIONS // scale:,} sessions in the store and {PROJECT_SESSIONS // scale:,} in the"
        " project. The floors were measured between the hooks.",
        "",
        "| | runs | p50 | p95 | above the interpreter, p50 | must reach, p95 | reached |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    floor = statistics.median(taken["interpreter"])
    for row, title, limit in ROWS:
        p50, p95 = statistics.median(taken[row]), pick_percentile(taken[row], 0.95)
        above = "–" if row in ("shell", "interpreter") else f"{p50 - floor:.1f}"
        must = "–" if limit is None else f"≤ {limit}"
        holds = limit is None or (p95 <= limit and not silent.get(row))
        reached = "–" if limit is None else "yes" if holds else "**no**"
        lines.append(
            f"| {title} | {len(taken[row])} | {p50:.1f} | {p95:.1f} | {above} | {must} | {reached} |"
        )
    if silent:
        named = ", ".join(f"{row} ({number})" for row, number in sorted(silent.items()))
        lines += ["", f"**Without an answer: {named}.**"]
    return "\n".join([*lines, ""])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a small store; writes no results")


def run(args: argparse.Namespace) -> None:
    scale = 20 if args.quick else 1
    rounds = (10, 3) if args.quick else (ROUNDS, COLD_ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        bench = HookBench(Path(folder), scale)
        taken = bench.measure(*rounds)
    table = build_table(taken, bench.silent, scale)
    print(table)
    if not args.quick:
        report.write_section("hooks", table)
