"""The rows of `python -m bench store`, alternating between the floors and Rekindle."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench import runner
from bench.environments import (
    InstallError,
    get_command,
    get_python,
    prepare_environment,
    read_version,
)
from bench.peers import PEERS, ROSTER
from bench.runner import WORK, Figures, make_empty_folder
from bench.workload import MEAN_BYTES, MESSAGES, SESSIONS

Measure = Callable[[str], Figures]

OURS = ("floor", "rekindle")
WORST = {"worst_s", "over_1s", "beyond_flush", "errors", "flush_worst_s", "flush_over_1s"}


@dataclass(frozen=True)
class Size:
    """The size of the workload; `--quick` uses a small one."""

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
    reads: int = 7  # reading rows are short, so they can be repeated more often
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


def print_progress(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


def combine_repeats(figures: list[Figures]) -> Figures:
    """Return the median of each figure, but the worst value of those in `WORST`."""
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
    """One run: the stores that could be installed and the files they have filled so far."""

    size: Size
    peers: tuple[str, ...]
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    filled: dict[tuple[str, str], Figures] = field(default_factory=dict)

    def install_stores(self) -> None:
        for name in ("rekindle", *self.peers):
            print_progress(f"  install {name}")
            try:
                prepare_environment(name)
                self.versions[name] = read_version(name)
            except InstallError as reason:
                self.missing[name] = str(reason)
                print_progress(f"  {name}: {reason}")

    def list_present(self, *names: str) -> list[str]:
        return [name for name in names if name not in self.missing]

    def get_folder(self, name: str, shape: str) -> Path:
        return WORK / "stores" / f"{name}-{shape}"

    def fill_store(self, name: str, shape: str = "deep") -> Figures:
        """Write all sessions with one writer and keep the file for the reading rows."""
        size = self.size
        deep = {"sessions": size.sessions, "messages": MESSAGES, "mean_bytes": MEAN_BYTES}
        wide = {"sessions": size.wide, "messages": size.wide_messages, "mean_bytes": 120}
        cap = size.peer_s if name in PEERS else 3_600
        folder = make_empty_folder("stores", f"{name}-{shape}")
        args = {**(deep if shape == "deep" else wide), "cap_s": cap}
        self.filled[name, shape] = runner.run_row(
            name, "append", folder, patience_s=cap + 300, **args
        )
        return self.filled[name, shape]

    def ensure_store(self, name: str, shape: str = "deep") -> Figures:
        return self.filled.get((name, shape)) or self.fill_store(name, shape)

    def alternate(self, names: list[str], measure: Measure, repeats: int = 0) -> dict[str, Figures]:
        """Measure floors and Rekindle alternately, so that noise affects all of them; peers once."""
        taken: dict[str, list[Figures]] = {name: [] for name in names}
        for turn in range(repeats or self.size.repeats):
            for name in names:
                if turn == 0 or name not in PEERS:
                    figures = measure(name)
                    print_progress(f"    {name}: {format_brief(figures)}")
                    taken[name].append(figures)
        return {name: combine_repeats(figures) for name, figures in taken.items()}

    # ── rows

    def measure_append(self) -> dict[str, Figures]:
        return self.alternate(
            self.list_present("floor", "plain", "rekindle", *self.peers), self.fill_store
        )

    def measure_traffic(self) -> dict[str, Figures]:
        def measure(name: str) -> Figures:
            sessions = self.size.traced_peer if name in PEERS else self.size.traced
            folder = make_empty_folder("traffic", name)
            args = {"sessions": sessions, "cap_s": self.size.peer_s}
            figures = runner.run_row_traced(name, "append", folder, **args)
            if "error" not in figures:
                figures["flushes_per_message"] = figures["flushes"] / figures["messages"]
                figures["bytes_per_byte"] = figures["written"] / figures["text_bytes"]
            return figures

        names = self.list_present("floor", "plain", "rekindle", *self.peers)
        return {name: self.measure_once(name, measure) for name in names}

    def measure_once(self, name: str, measure: Measure) -> Figures:
        figures = measure(name)
        print_progress(f"    {name}: {format_brief(figures)}")
        return figures

    def measure_together(self) -> dict[str, Figures]:
        args = {"writers": 8, "cap_s": self.size.together_s}
        names = self.list_present("floor", "shared", "shared_plain", "rekindle", *self.peers)

        def timed(name: str) -> Figures:
            return runner.run_row(
                name,
                "together",
                make_empty_folder("together"),
                sessions=self.size.together,
                **args,
            )

        result = self.alternate(names, timed)
        for name in names:
            traced = runner.run_row_traced(
                name,
                "together",
                make_empty_folder("together"),
                sessions=self.size.together_traced,
                **args,
            )
            if "error" not in traced:
                result[name]["flushes_per_message"] = traced["flushes"] / traced["messages"]
        return result

    def measure_processes(self) -> dict[str, Figures]:
        def measure(name: str) -> Figures:
            return runner.run_writers(name, make_empty_folder("processes"), 4, self.size.seconds)

        return self.alternate(self.list_present(*OURS, *self.peers), measure)

    def measure_reads(
        self, names: list[str], row: str, shape: str = "deep", **args
    ) -> dict[str, Figures]:
        def measure(name: str) -> Figures:
            held = self.ensure_store(name, shape)
            if "error" in held:
                return held
            given = {"sessions": held["sessions"]} if row == "load" else {}
            figures = runner.run_row(name, row, self.get_folder(name, shape), **given, **args)
            return figures | {"sessions": held["sessions"], "messages": held["messages"]}

        return self.alternate(names, measure, self.size.reads)

    def measure_load(self) -> dict[str, Figures]:
        return self.measure_reads(self.list_present(*OURS, *self.peers), "load")

    def measure_recent(self) -> dict[str, Figures]:
        return self.measure_reads(self.list_listing_stores(), "recent")

    def measure_recent_wide(self) -> dict[str, Figures]:
        return self.measure_reads(self.list_listing_stores(), "recent", "wide")

    def measure_recent_first(self) -> dict[str, Figures]:
        return self.measure_reads(self.list_present(*OURS), "recent_first", "wide")

    def list_listing_stores(self) -> list[str]:
        return self.list_present(*OURS, *(p for p in self.peers if ROSTER[p].lists))

    def measure_search(self) -> dict[str, Figures]:
        return self.measure_reads(
            self.list_present(*OURS, *(p for p in self.peers if ROSTER[p].searches)), "search"
        )

    def measure_search_bare(self) -> dict[str, Figures]:
        return self.measure_reads(self.list_present(*OURS), "search", around=False)

    def measure_newest(self) -> dict[str, Figures]:
        names = self.list_present(*OURS, *(p for p in self.peers if ROSTER[p].searches))
        return self.measure_reads(names, "search", newest=True)

    def measure_disk(self) -> dict[str, Figures]:
        def measure(name: str) -> Figures:
            held = self.ensure_store(name)
            if "error" in held:
                return held
            return {**held, "ratio": held["disk_bytes"] / held["text_bytes"]}

        names = self.list_present("floor", "plain", "rekindle", *self.peers)
        return {name: self.measure_once(name, measure) for name in names}

    def measure_fresh(self) -> dict[str, Figures]:
        """Measure import, open and first durable write in a new process on a new file."""
        names = self.list_present(*OURS, *self.peers)
        asked = {name: runner.run_row(name, "program", WORK) for name in names}
        programs = {name: answer.get("program", "") for name, answer in asked.items()}
        result = {name: answer for name, answer in asked.items() if "error" in answer}
        taken: dict[str, list[float]] = {name: [] for name in names if name not in result}
        for turn in range(self.size.starts + 1):
            for name in [name for name in names if name not in result]:
                try:
                    ms = runner.time_first_write(name, programs[name], make_empty_folder("fresh"))
                except RuntimeError as reason:
                    result[name] = {"error": str(reason)}
                    continue
                if turn:  # the first start warms the file cache
                    taken[name].append(ms)
        return result | {n: {"ms": median(ms)} for n, ms in taken.items() if n not in result}

    def measure_start(self) -> dict[str, Figures]:
        """Measure the start of the command, alternating with bare Python."""
        home = make_empty_folder("start")
        bare, rekindle = str(get_python("rekindle")), str(get_command("rekindle", "rekindle"))
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
                    ms = runner.time_command(commands[name], home)
                except RuntimeError as reason:
                    result[name] = {"error": str(reason)}
                    continue
                if turn:
                    taken[name].append(ms)
        for name in commands.keys() - result.keys():
            modules = runner.count_modules(commands[name], home)
            result[name] = {"ms": median(taken[name]), "modules": modules}
        return result

    def remove_stores(self) -> None:
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


def format_brief(figures: Figures) -> str:
    if "error" in figures:
        return f"error: {figures['error']}"
    shown = {k: v for k, v in figures.items() if isinstance(v, (int, float, str)) and v is not None}
    return ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items()
    )


def measure_rows(run: StoreRun, rows: tuple[str, ...]) -> dict[str, dict[str, Figures]]:
    run.install_stores()
    results: dict[str, dict[str, Figures]] = {}
    for row in rows:
        print_progress(f"  {row}")
        try:
            results[row] = getattr(run, f"measure_{row}")()
        except Exception as reason:  # noqa: BLE001 - a broken row must not stop the others
            print_progress(f"  {row} failed: {reason!r}")
            results[row] = {"rekindle": {"error": repr(reason)}}
    return results
