"""The picker over 100,000 sessions: its first paint and its keystrokes.

    python -m bench picker [--quick]

The first paint is the time from the start of Python to the first row in the terminal; its floors are a
bare interpreter, and one that runs the query of the list in plain SQL. Keystrokes are typed into a
picker in a separate process: a key is timed until the frame with its letter, and until the frame with
its results. Their floor is the same search in plain SQL.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import random
import shutil
import statistics
import struct
import subprocess
import sys
import sysconfig
import tempfile
import termios
import threading
import time
from fcntl import ioctl
from pathlib import Path
from typing import Any

from bench import report
from bench.environments import ROOT
from bench.interfaces.agent_hooks import pick_percentile
from bench.peers.rekindle import build_message
from bench.workload import SEED, build_vocabulary, make_conversation, make_queries
from rekindle import open_store
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import QUARTER_SECONDS, Session, Tokens, UsageEntry

SESSIONS, MESSAGES, MEAN_BYTES = 100_000, 8, 120
PROJECTS, BATCH, SPAN_SECONDS = 200, 2_000, 400 * 86_400
PAINTS, WORDS = 30, 40
COLUMNS, ROWS = 120, 40
LIMITS = {"paint": 150, "found": 50}  # ms, p95
LIST_SQL = """
import apsw, sys
file = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
rows = file.execute(
    "SELECT * FROM sessions WHERE pruned IS NULL AND archived IS NULL"
    " ORDER BY last_active DESC, source DESC, num DESC LIMIT 36"
).fetchall()
sys.stdout.write(f"\\u276f {len(rows)}\\n")
"""
AGENTS = (("claude-code", "claude-sonnet-4-5"), ("codex", "gpt-5-codex"))


def fill_store(path: Path, sessions: int, now: float) -> None:
    """Store sessions of two agents in many projects; half of them have a title."""
    with open_store(path, durability="relaxed") as store:
        for first in range(0, sessions, BATCH):
            numbers = range(first, min(first + BATCH, sessions))
            store.import_batch([make_session(number, sessions, now) for number in numbers])


def make_session(number: int, sessions: int, now: float) -> SessionImport:
    rng = random.Random(f"{SEED}:picker:{number}")
    one = make_conversation(number, MESSAGES, MEAN_BYTES)
    source, model = AGENTS[number % 2]
    started = now - SPAN_SECONDS * (sessions - number) / sessions
    project = rng.randrange(PROJECTS)
    tokens = Tokens(rng.randrange(1_000, 50_000), rng.randrange(100, 5_000))
    words = " ".join(rng.choices(build_vocabulary()[:5_000], k=6))
    session = Session(
        id=one.id,
        source=source,
        model=model,
        title=f"{words} {number}"[:90] if number % 2 else None,
        cwd=f"/gone/project-{project}",
        git_branch="main",
        repository=f"example.com/team/project-{project}",
        started=started,
        last_active=started,
        tokens=tokens,
    )
    said = [
        build_message(each)._replace(timestamp=started + at) for at, each in enumerate(one.messages)
    ]
    entry = UsageEntry(int(started) // QUARTER_SECONDS, model, tokens)
    return SessionImport(session=session, messages=said, is_complete=True, usage=[entry])


# ── first paint


def time_paint(command: list[str], env: dict[str, str]) -> float:
    """Run a command in a terminal; return the milliseconds until it shows the cursor of a row."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    begin = time.perf_counter()
    child = subprocess.Popen(
        command, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    while "❯".encode() not in seen:
        piece = os.read(ours, 65536)
        if not piece:
            raise RuntimeError(seen.decode(errors="replace"))
        seen += piece
    taken = time.perf_counter() - begin
    child.kill()
    child.wait()
    os.close(ours)
    return taken * 1000


def measure_paint(home: Path, rounds: int) -> dict[str, list[float]]:
    env = {**os.environ, "REKINDLE_HOME": str(home), "TERM": "xterm-256color", "HOME": str(home)}
    env["PYTHONPATH"] = str(ROOT / "src")
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed command is compiled
    store = str(home / "sessions.db")
    commands = {
        "python": [sys.executable, "-c", "print('\u276f')"],
        "sql": [sys.executable, "-c", LIST_SQL, store],
        "paint": [str(Path(sysconfig.get_path("scripts")) / "rekindle")],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            taken[name].append(time_paint(command, env))
    return {name: times[1:] for name, times in taken.items()}  # the first one warms the caches


# ── keystrokes


class KeyTimer:
    """Types into a picker and measures when each letter and its results are on the screen."""

    def __init__(self, screen: Any, state: Any, pipe: Any) -> None:
        self._state, self._pipe = state, pipe
        self._shown, self._found = threading.Event(), threading.Event()
        self._query = ""
        screen._app.after_render += self._on_render
        self.shown: list[float] = []
        self.found: list[float] = []

    def _on_render(self, _: object) -> None:
        if self._state.query == self._query:
            self._shown.set()
            if not self._state.is_searching:
                self._found.set()

    def type_words(self, words: list[str]) -> None:
        for word in words:
            for end in range(1, len(word) + 1):
                self._press_key(word[end - 1], word[:end])
            self._press_key("\x15", "", is_counted=False)
        self._pipe.send_text("\x03")

    def _press_key(self, key: str, query: str, *, is_counted: bool = True) -> None:
        self._shown.clear()
        self._found.clear()
        self._query = query
        begin = time.perf_counter()
        self._pipe.send_text(key)
        for event, times in ((self._shown, self.shown), (self._found, self.found)):
            if not event.wait(60):
                raise TimeoutError(query)
            if is_counted:
                times.append((time.perf_counter() - begin) * 1000)


def run_keys(home: str, target: str, count: str) -> None:
    """Type words into a picker in this terminal and write the times of the keys to a file."""
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input

    from rekindle.cli.picker.actions import SessionActions
    from rekindle.cli.picker.launch import Picker
    from rekindle.cli.picker.paint import FramePainter
    from rekindle.cli.picker.reader import SessionReader
    from rekindle.cli.picker.screen import PickerScreen

    words = make_queries(int(count), 1_000, MESSAGES, MEAN_BYTES)
    with (
        open_store(Path(home) / "sessions.db") as store,
        create_pipe_input() as pipe,
        create_app_session(input=pipe),
    ):
        picker = Picker(store)
        screen = PickerScreen(
            picker.state, picker._scope, SessionReader(store), SessionActions(store), FramePainter()
        )
        timer = KeyTimer(screen, picker.state, pipe)
        typing = threading.Thread(target=timer.type_words, args=(words,), daemon=True)
        screen._app.pre_run_callables.append(typing.start)
        screen.run()
    Path(target).write_text(json.dumps({"shown": timer.shown, "found": timer.found}))


def measure_keys(home: Path, count: int) -> dict[str, list[float]]:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    target = home / "keys.json"
    code = "import sys; from bench.interfaces.picker import run_keys; run_keys(*sys.argv[1:])"
    env = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    env |= {"REKINDLE_HOME": str(home), "HOME": str(home)}
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(home), str(target), str(count)],
        env=env, stdin=theirs, stdout=theirs, start_new_session=True, cwd=home,
    )  # fmt: skip
    os.close(theirs)

    def drain() -> None:
        try:
            while os.read(ours, 65536):
                pass
        except OSError:
            return

    threading.Thread(target=drain, daemon=True).start()
    if child.wait():
        raise RuntimeError("the picker failed")
    os.close(ours)
    return {**json.loads(target.read_text()), "raw": time_searches(home, count)}


def time_searches(home: Path, count: int) -> list[float]:
    """Time the same searches in plain SQL, which is the floor of a keystroke."""
    import apsw

    from rekindle.cli.picker.reader import MAX_FOUND, build_query

    file = apsw.Connection(str(home / "sessions.db"), flags=apsw.SQLITE_OPEN_READONLY)
    taken: list[float] = []
    for typed in make_queries(count, 1_000, MESSAGES, MEAN_BYTES):
        for end in range(1, len(typed) + 1):
            words = build_query(typed[:end]).split()
            match = " AND ".join(
                f'"{word.rstrip("*")}"{"*" * word.endswith("*")}' for word in words
            )
            begin = time.perf_counter()
            likes = " AND ".join("title_base LIKE ?" for _ in words)
            title = (
                "SELECT num, last_active FROM sessions WHERE title IS NOT NULL AND pruned IS NULL"
            )
            file.execute(
                f"{title} AND {likes} ORDER BY last_active DESC LIMIT {MAX_FOUND}",
                [f"%{word.rstrip('*')}%" for word in words],
            ).fetchall()
            file.execute(
                "SELECT m.session, m.content FROM words w JOIN messages m ON m.id = w.rowid"
                f" WHERE words MATCH ? ORDER BY w.rowid DESC LIMIT {MAX_FOUND}",
                [match],
            ).fetchall()
            taken.append((time.perf_counter() - begin) * 1000)
    file.close()
    return taken


# ── report

TITLES = {
    "python": "floor: a bare interpreter",
    "sql": "floor: the list in plain SQL",
    "paint": "first paint of the picker",
    "raw": "floor: the search in plain SQL",
    "shown": "a key, until its letter is on the screen",
    "found": "a key, until its results are on the screen",
}


def build_table(taken: dict[str, list[float]], sessions: int) -> str:
    lines = [
        "## Picker",
        "",
        f"`python -m bench picker`, {report.describe_machine()}. {sessions:,} sessions of"
        f" {MESSAGES} messages; times in ms on a terminal of {COLUMNS} × {ROWS}.",
        "",
        "| | runs | p50 | p95 | must reach, p95 | reached |",
        "|---|---:|---:|---:|---|---|",
    ]
    for name, title in TITLES.items():
        times = taken[name]
        p50, p95, limit = statistics.median(times), pick_percentile(times, 0.95), LIMITS.get(name)
        must = "–" if limit is None else f"≤ {limit}"
        reached = "–" if limit is None else "yes" if p95 <= limit else "**no**"
        lines.append(f"| {title} | {len(times)} | {p50:.1f} | {p95:.1f} | {must} | {reached} |")
    return "\n".join([*lines, ""])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a small store; writes no results")
    parser.add_argument("--store", type=Path, help="an existing store; writes no results")


def run(args: argparse.Namespace) -> None:
    sessions = SESSIONS // 50 if args.quick else SESSIONS
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        if args.store:
            shutil.copy(args.store, home / "sessions.db")
        else:
            fill_store(home / "sessions.db", sessions, time.time())
        rounds, words = (5, 5) if args.quick else (PAINTS, WORDS)
        taken = {**measure_paint(home, rounds), **measure_keys(home, words)}
    table = build_table(taken, sessions)
    print(table)
    if not args.quick and not args.store:
        report.write_section("picker", table)
