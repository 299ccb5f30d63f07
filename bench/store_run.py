"""`python -m bench store`: every row, floors and Rekindle by turns, then the peers."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from . import runner
from .contestants import PEERS, ROSTER
from .envs import NotInstalled, command, prepare, python, version
from .runner import WORK, Figures, empty
from .workload import MEAN_BYTES, MESSAGES, SESSIONS

Measure = Callable[[str], Figures]

OURS = ("floor", "rekindle")
WORST = {"worst_s", "over_1s", "beyond_flush", "errors", "flush_worst_s", "flush_over_1s"}


@dataclass(frozen=True)
class Size:
    """How much of everything; `--quick` takes a slice."""

    sessions: int = SESSIONS
    wide: int = 10_000
    wide_messages: int = 4
    traced: int = 250
    traced_peer: int = 25
    together: int = 100
    together_traced: int = 25
    together_s: float = 15
    seconds: float = 20
    repeats: int = 3
    reads: int = 7  # reading rows are short, so they can afford more turns
    starts: int = 11
    peer_s: float = 60


QUICK = Size(
    sessions=50,
    wide=300,
    traced=10,
    traced_peer=3,
    together=10,
    together_traced=2,
    together_s=4,
    seconds=3,
    repeats=1,
    reads=3,
    starts=3,
    peer_s=4,
)


def say(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


def middle(figures: list[Figures]) -> Figures:
    """The median of every number over the repetitions, but the worst of what must not happen."""
    good = [figure for figure in figures if "error" not in figure]
    if not good:
        return figures[-1]
    numbers = {key for key, value in good[-1].items() if isinstance(value, (int, float))}
    combined = {
        key: (max if key in WORST else median)(figure[key] for figure in good) for key in numbers
    }
    return {**good[-1], **combined, "repeats": good}


@dataclass
class StoreRun:
    """One run: the contestants that could be installed, and the stores they have filled so far."""

    size: Size
    peers: tuple[str, ...]
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    filled: dict[tuple[str, str], Figures] = field(default_factory=dict)

    def install(self) -> None:
        for name in ("rekindle", *self.peers):
            say(f"  install {name}")
            try:
                prepare(name)
                self.versions[name] = version(name)
            except NotInstalled as reason:
                self.missing[name] = str(reason)
                say(f"  {name}: {reason}")

    def present(self, *names: str) -> list[str]:
        return [name for name in names if name not in self.missing]

    def folder(self, name: str, shape: str) -> Path:
        return WORK / "stores" / f"{name}-{shape}"

    def fill(self, name: str, shape: str = "deep") -> Figures:
        """Write all sessions with one writer and leave the store there for the reading rows."""
        size = self.size
        deep = {"sessions": size.sessions, "messages": MESSAGES, "mean_bytes": MEAN_BYTES}
        wide = {"sessions": size.wide, "messages": size.wide_messages, "mean_bytes": 120}
        cap = size.peer_s if name in PEERS else 3_600
        folder = empty("stores", f"{name}-{shape}")
        args = {**(deep if shape == "deep" else wide), "cap_s": cap}
        self.filled[name, shape] = runner.run(name, "append", folder, patience_s=cap + 300, **args)
        return self.filled[name, shape]

    def need(self, name: str, shape: str = "deep") -> Figures:
        return self.filled.get((name, shape)) or self.fill(name, shape)

    def turns(self, names: list[str], measure: Measure, repeats: int = 0) -> dict[str, Figures]:
        """Floors and Rekindle by turns, so that noise hits all of them; peers once."""
        taken: dict[str, list[Figures]] = {name: [] for name in names}
        for turn in range(repeats or self.size.repeats):
            for name in names:
                if turn == 0 or name not in PEERS:
                    figures = measure(name)
                    say(f"    {name}: {brief(figures)}")
                    taken[name].append(figures)
        return {name: middle(figures) for name, figures in taken.items()}

    # ── rows

    def append(self) -> dict[str, Figures]:
        return self.turns(self.present("floor", "plain", "rekindle", *self.peers), self.fill)

    def traffic(self) -> dict[str, Figures]:
        def measure(name: str) -> Figures:
            sessions = self.size.traced_peer if name in PEERS else self.size.traced
            folder = empty("traffic", name)
            args = {"sessions": sessions, "cap_s": self.size.peer_s}
            figures = runner.run_traced(name, "append", folder, **args)
            if "error" not in figures:
                figures["flushes_per_message"] = figures["flushes"] / figures["messages"]
                figures["bytes_per_byte"] = figures["written"] / figures["text_bytes"]
            return figures

        names = self.present("floor", "plain", "rekindle", *self.peers)
        return {name: self.once(name, measure) for name in names}

    def once(self, name: str, measure: Measure) -> Figures:
        figures = measure(name)
        say(f"    {name}: {brief(figures)}")
        return figures

    def together(self) -> dict[str, Figures]:
        args = {"writers": 8, "cap_s": self.size.together_s}
        names = self.present("floor", "shared", "shared_plain", "rekindle", *self.peers)

        def timed(name: str) -> Figures:
            return runner.run(
                name, "together", empty("together"), sessions=self.size.together, **args
            )

        result = self.turns(names, timed)
        for name in names:
            traced = runner.run_traced(
                name, "together", empty("together"), sessions=self.size.together_traced, **args
            )
            if "error" not in traced:
                result[name]["flushes_per_message"] = traced["flushes"] / traced["messages"]
        return result

    def processes(self) -> dict[str, Figures]:
        def measure(name: str) -> Figures:
            return runner.hammer(name, empty("processes"), 4, self.size.seconds)

        return self.turns(self.present(*OURS, *self.peers), measure)

    def read(self, names: list[str], row: str, shape: str = "deep", **args) -> dict[str, Figures]:
        def measure(name: str) -> Figures:
            held = self.need(name, shape)
            if "error" in held:
                return held
            given = {"sessions": held["sessions"]} if row == "load" else {}
            figures = runner.run(name, row, self.folder(name, shape), **given, **args)
            return figures | {"sessions": held["sessions"], "messages": held["messages"]}

        return self.turns(names, measure, self.size.reads)

    def load(self) -> dict[str, Figures]:
        return self.read(self.present(*OURS, *self.peers), "load")

    def recent(self) -> dict[str, Figures]:
        return self.read(self.listing(), "recent")

    def recent_wide(self) -> dict[str, Figures]:
        return self.read(self.listing(), "recent", "wide")

    def recent_first(self) -> dict[str, Figures]:
        return self.read(self.present(*OURS), "recent_first", "wide")

    def listing(self) -> list[str]:
        return self.present(*OURS, *(p for p in self.peers if ROSTER[p].lists))

    def search(self) -> dict[str, Figures]:
        return self.read(
            self.present(*OURS, *(p for p in self.peers if ROSTER[p].searches)), "search"
        )

    def search_bare(self) -> dict[str, Figures]:
        return self.read(self.present(*OURS), "search", around=False)

    def newest(self) -> dict[str, Figures]:
        names = self.present(*OURS, *(p for p in self.peers if ROSTER[p].searches))
        return self.read(names, "search", newest=True)

    def disk(self) -> dict[str, Figures]:
        def measure(name: str) -> Figures:
            held = self.need(name)
            if "error" in held:
                return held
            return {**held, "ratio": held["disk_bytes"] / held["text_bytes"]}

        names = self.present("floor", "plain", "rekindle", *self.peers)
        return {name: self.once(name, measure) for name in names}

    def fresh(self) -> dict[str, Figures]:
        """Import, open, first durable write, each time in a new process on a new file."""
        names = self.present(*OURS, *self.peers)
        asked = {name: runner.run(name, "program", WORK) for name in names}
        programs = {name: answer.get("program", "") for name, answer in asked.items()}
        result = {name: answer for name, answer in asked.items() if "error" in answer}
        taken: dict[str, list[float]] = {name: [] for name in names if name not in result}
        for turn in range(self.size.starts + 1):
            for name in [name for name in names if name not in result]:
                try:
                    ms = runner.start_to_write(name, programs[name], empty("fresh"))
                except RuntimeError as reason:
                    result[name] = {"error": str(reason)}
                    continue
                if turn:  # the first start warms the file cache
                    taken[name].append(ms)
        return result | {n: {"ms": median(ms)} for n, ms in taken.items() if n not in result}

    def start(self) -> dict[str, Figures]:
        """The command line against bare Python, turn by turn."""
        home = empty("start")
        bare, rekindle = str(python("rekindle")), str(command("rekindle", "rekindle"))
        commands = {
            "floor": [bare, "-c", "pass"],
            "version": [bare, rekindle, "--version"],
            "list": [bare, rekindle, "sessions", "list"],
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        result: dict[str, Figures] = {}
        for turn in range(self.size.starts + 1):
            for name in [name for name in commands if name not in result]:
                try:
                    ms = runner.wall_ms(commands[name], home)
                except RuntimeError as reason:
                    result[name] = {"error": str(reason)}
                    continue
                if turn:
                    taken[name].append(ms)
        for name in commands.keys() - result.keys():
            modules = runner.count_modules(commands[name], home)
            result[name] = {"ms": median(taken[name]), "modules": modules}
        return result

    def clean(self) -> None:
        for folder in (
            "stores",
            "traffic",
            "together",
            "processes",
            "fresh",
            "flush",
            "gate",
            "start",
        ):
            shutil.rmtree(WORK / folder, ignore_errors=True)


ROWS = (
    "append",
    "traffic",
    "together",
    "processes",
    "load",
    "recent",
    "recent_wide",
    "recent_first",
    "search",
    "search_bare",
    "newest",
    "disk",
    "fresh",
    "start",
)


def brief(figures: Figures) -> str:
    if "error" in figures:
        return f"error: {figures['error']}"
    shown = {k: v for k, v in figures.items() if isinstance(v, (int, float, str)) and v is not None}
    return ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items()
    )


def measure(run: StoreRun, rows: tuple[str, ...]) -> dict[str, dict[str, Figures]]:
    run.install()
    results: dict[str, dict[str, Figures]] = {}
    for row in rows:
        say(f"  {row}")
        try:
            results[row] = getattr(run, row)()
        except Exception as reason:  # noqa: BLE001 - one broken row must not cost the other rows
            say(f"  {row} failed: {reason!r}")
            results[row] = {"rekindle": {"error": repr(reason)}}
    return results
