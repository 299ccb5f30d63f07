"""The cost of checking the agents' transcripts for changes before a read.

    python -m bench refresh [--quick]

Homes with 1,000 and 10,000 imported transcripts of Claude Code, a hundred per project folder. The floor
is `os.scandir` and `stat` of the same tree, in the same process and alternating with ours. Times are
processor time, which does not depend on other work of the machine. The command is run with and without
`--no-refresh` alternately; its system calls are counted with strace, if it is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import report
from rekindle import open_store
from rekindle.transcripts.discovery import find_session_paths
from rekindle.transcripts.importer import import_transcripts
from rekindle.watching.refresh import SessionRefresher

SIZES = {1_000: 0.1, 10_000: 0.5}  # files, and the seconds that a command may take longer
ROUNDS, QUICK_ROUNDS = 30, 5
PER_FOLDER = 100


class RefreshFigures(NamedTuple):
    """Median seconds of processor time, and the system calls of the command."""

    floor: float
    look: float
    change: float
    without: float
    command: float
    opened: int | None  # transcripts
    calls: int | None  # system calls more than without a refresh


class RefreshBench:
    """A user's home whose transcripts are all imported."""

    def __init__(self, folder: Path, files: int) -> None:
        self.user_home = folder
        self.home = folder / "rekindle"
        self.home.mkdir(parents=True)
        self.projects = folder / ".claude" / "projects"
        for number in range(files):
            self.write_session(number)
        with open_store(self.home / "sessions.db", durability="relaxed") as store:
            import_transcripts(store, find_session_paths(folder, {}))

    def write_session(self, number: int, more: int = 0) -> None:
        session = f"{number:08}-0000-4000-8000-000000000000"
        path = self.projects / f"-home-ada-p{number // PER_FOLDER}" / f"{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        common = {"sessionId": session, "cwd": f"/home/ada/p{number // PER_FOLDER}"}
        common["timestamp"] = "2026-02-01T10:00:00Z"
        said = [("user", f"Fix number {number}."), ("assistant", "Done.")]
        said += [("user", f"More of {one}.") for one in range(more)]
        lines = [
            {
                **common,
                "type": role,
                "uuid": f"{session}-{at}",
                "message": {"role": role, "content": text},
            }
            for at, (role, text) in enumerate(said)
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    def measure(self, rounds: int) -> RefreshFigures:
        floor: list[float] = []
        look: list[float] = []
        change: list[float] = []
        refresher = SessionRefresher(self.home, self.user_home, {})
        file = self.home / "sessions.db"
        with open_store(file) as store:
            for number in range(rounds):
                floor.append(time_cpu(lambda: walk_tree(str(self.projects))))
                look.append(time_cpu(lambda: refresher.find_changes(store)))
                self.write_session(0, number + 1)
                change.append(
                    time_cpu(
                        lambda: refresher.import_changes(
                            lambda: open_store(file), refresher.find_changes(store)
                        )
                    )
                )
        self.time_command()
        without: list[float] = []
        command: list[float] = []
        for _ in range(rounds):
            without.append(self.time_command("--no-refresh"))
            command.append(self.time_command())
        opened, calls = self.count_calls()
        return RefreshFigures(
            *map(median, (floor, look, change, without, command)), opened=opened, calls=calls
        )

    def get_command(self, *words: str) -> tuple[list[str], dict[str, str]]:
        env = {**os.environ, "HOME": str(self.user_home), "REKINDLE_HOME": str(self.home)}
        # An installed command has its bytecode.
        env |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self.home / "bytecode")}
        return [sys.executable, "-m", "rekindle.cli", "sessions", "list", *words], env

    def time_command(self, *words: str) -> float:
        """Return the processor time of `sessions list`, system time included."""
        command, env = self.get_command(*words)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=env, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def count_calls(self) -> tuple[int | None, int | None]:
        """Count the transcripts that the command opened and its system calls for the refresh."""
        if shutil.which("strace") is None:
            return None, None
        counts: list[int] = []
        opened = 0
        for words in (("--no-refresh",), ()):
            command, env = self.get_command(*words)
            output = self.home / "strace.txt"
            traced = ["strace", "-f", "-qq", "-o", str(output), *command]
            subprocess.run(traced, env=env, check=True, capture_output=True)
            lines = output.read_text(errors="replace").splitlines()
            counts.append(len(lines))
            opened = sum(1 for line in lines if re.search(r"\bopen(at)?\(.*\.jsonl", line))
            output.unlink()
        return opened, counts[1] - counts[0]


def walk_tree(folder: str) -> int:
    """Do the minimum that detects changes in a tree: read its entries and stat its files."""
    count = 0
    folders = [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    entry.stat()
                    count += 1
    return count


def time_cpu(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def build_table(taken: dict[int, RefreshFigures]) -> str:
    lines = [
        "## Refresh",
        "",
        f"`python -m bench refresh`, {report.describe_machine()}. Processor time of the check before a"
        " read, in ms. The floor is `os.scandir` and `stat` of the same tree.",
        "",
        "| files | floor | check, nothing new | × floor | one file has grown | `sessions list` without |"
        " with | more | must reach | reached | transcripts opened | system calls per file |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---|---|---:|---:|",
    ]
    for files, one in taken.items():
        more = one.command - one.without
        limit = next(seconds for size, seconds in SIZES.items() if files <= size)
        holds = more <= limit and not one.opened
        figures = [one.floor, one.look, one.look / one.floor / 1000, one.change, one.without]
        shown = " | ".join(f"{figure * 1000:.1f}" for figure in (*figures, one.command, more))
        calls = "–" if one.calls is None else f"{one.calls / files:.2f}"
        opened = "–" if one.opened is None else f"{one.opened}"
        lines.append(
            f"| {files:,} | {shown} | ≤ {limit * 1000:.0f} | {'yes' if holds else '**no**'} |"
            f" {opened} | {calls} |"
        )
    return "\n".join([*lines, ""])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="few files; writes no results")


def run(args: argparse.Namespace) -> None:
    taken: dict[int, RefreshFigures] = {}
    for files in (200,) if args.quick else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            bench = RefreshBench(Path(folder), files)
            taken[files] = bench.measure(QUICK_ROUNDS if args.quick else ROUNDS)
    table = build_table(taken)
    print(table)
    if not args.quick:
        report.write_section("refresh", table)
