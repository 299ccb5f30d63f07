"""An import against its floor: speed, memory, and what a second one costs.

Every figure is taken in a process of its own; floor and Rekindle take turns, and the median counts.
Modules are loaded before the clock starts, on both sides.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from .envs import ROOT, install, prepare, python
from .runner import WORK, Figures, empty, environ

CORPUS = ROOT.parent / "shared" / "corpus"
MADE_BYTES = 150_000_000
ROUNDS = 5
FILE_SIZES = (20_000_000, 400_000_000)
MANY = 10_000
TRACED = "openat,open,read,pread64,mmap,stat,lstat,newfstatat,statx,getdents64"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of it; writes no results file"
    )


# -- in the child


def import_floor(folder: Path, sources: list[str], store: str) -> Figures:
    from . import import_floor as floor

    paths = _files(sources)
    rows = floor.rows_of(Path(store))
    taken = {name: _timed(floor.parse, paths, loads) for name, loads in floor.parsers().items()}
    fastest = min(taken, key=lambda name: taken[name][1])
    loads = floor.parsers()[fastest]

    def both() -> None:
        floor.parse(paths, loads)
        floor.insert(folder / "floor.db", *rows)

    wall, cpu = _timed(both)
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "messages": len(rows[1]),
        "parser": fastest,
        **{f"{name}_s": cpu for name, (_, cpu) in taken.items()},
    }


def import_rekindle(folder: Path, sources: list[str]) -> Figures:
    from rekindle import open_store
    from rekindle.transcripts import FORMATS
    from rekindle.transcripts.importer import ImportReport, import_transcripts

    # The floor has its parser and apsw loaded before its clock starts, and has used both: so here
    # are the readers, which a command loads as it meets their formats, and the engine of the store.
    for format in FORMATS:
        importlib.import_module(f"rekindle.transcripts.readers.{format.module}")
    importlib.import_module("rekindle.store.engines.sqlite")
    taken: list[ImportReport] = []

    def run() -> None:
        with open_store(folder / "rekindle.db") as store:
            taken.append(import_transcripts(store, sources))

    wall, cpu = _timed(run)
    intake = taken[0]
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "files": intake.files,
        "sessions": intake.sessions,
        "messages": intake.messages,
        "unchanged": intake.unchanged,
        "left_out": intake.damaged + len(intake.failed),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def import_stat(folder: Path, sources: list[str]) -> Figures:
    """The floor of a second import: look at every file's size and time."""

    def walk() -> int:
        return sum(
            os.stat(os.path.join(root, name)).st_size >= 0
            for source in sources
            for root, _, names in os.walk(source)
            for name in names
        )

    wall, cpu = _timed(walk)
    return {"wall_s": wall, "cpu_s": cpu}


def _files(sources: Iterable[str | Path]) -> list[Path]:
    found = (path for source in sources for path in sorted(Path(source).rglob("*")))
    return [path for path in found if path.is_file()]


def _timed(work: Any, *args: Any) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work(*args)
    return time.perf_counter() - wall, time.process_time() - cpu


# -- in the parent


def _child(row: str, folder: Path, *before: str, **args: Any) -> Figures:
    given = json.dumps({"folder": str(folder), **args})
    command = [*before, str(python("rekindle")), "-m", "bench.importing", row, given]
    done = subprocess.run(command, env=environ(WORK), cwd=WORK, capture_output=True, text=True)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["failed"])[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])


def _by_turns(folders: Sequence[Path], rounds: int) -> dict[str, Figures]:
    """Floor and Rekindle on the same files, by turns."""
    sources = [str(folder) for folder in folders]
    first = empty("import-first")
    whole = _child("import_rekindle", first, sources=sources)
    if "error" in whole:
        return {"rekindle": whole, "floor": whole}
    store = str(first / "rekindle.db")
    taken: dict[str, list[Figures]] = {"floor": [], "rekindle": []}
    for _ in range(rounds):
        floor = _child("import_floor", empty("import"), sources=sources, store=store)
        ours = _child("import_rekindle", empty("import"), sources=sources)
        taken["floor"].append(floor)
        taken["rekindle"].append(ours)
    size = sum(path.stat().st_size for path in _files(folders))
    return {name: _middle(runs) | {"bytes": size} for name, runs in taken.items()}


def _middle(runs: list[Figures]) -> Figures:
    failed = next((run for run in runs if "error" in run), None)
    if failed:
        return failed
    return {
        key: median(run[key] for run in runs) if isinstance(value, float) else value
        for key, value in runs[-1].items()
    }


def _memory(sizes: tuple[int, ...]) -> dict[str, Figures]:
    from .import_floor import write_document, write_one

    taken: dict[str, Figures] = {}
    for name, write in (("lines", write_one), ("document", write_document)):
        for size in sizes:
            source = empty("import-source")
            write(source / "one.jsonl", size)
            figures = _child("import_rekindle", empty("import"), sources=[str(source)])
            taken[f"{name} {size}"] = figures | {"size": size, "shape": name}
    return taken


def _again(files: int) -> dict[str, Figures]:
    from .import_floor import write_many

    source, folder = empty("import-source"), empty("import")
    write_many(source, files)
    taken = {"first": _child("import_rekindle", folder, sources=[str(source)])}
    taken["floor"] = _child("import_stat", folder, sources=[str(source)])
    taken["second"] = _child("import_rekindle", folder, sources=[str(source)])
    if strace := shutil.which("strace"):
        trace = WORK / "import.strace"
        options = ("-f", "-y", "-s", "0", "-o", str(trace), "-e", f"trace={TRACED}")
        _child("import_rekindle", folder, strace, *options, sources=[str(source)])
        taken["second"] |= _calls(trace, source)
        trace.unlink(missing_ok=True)
    return taken


def _calls(trace: Path, source: Path) -> Figures:
    """Of the system calls on the tree: how many look, and how many open or read a file."""
    looks = opens = 0
    inside = str(source)
    with trace.open(errors="replace") as lines:
        for line in lines:
            if inside not in line:
                continue
            name = line.split("(", 1)[0].split()[-1]
            if name in ("openat", "open"):
                opens += "O_DIRECTORY" not in line
            elif name in ("read", "pread64", "mmap"):
                opens += 1
            else:
                looks += 1
    return {"looks": looks, "opens": opens}


def _command(source: Path) -> Figures:
    """The whole command, as a user runs it."""
    home = empty("import")
    run = [str(python("rekindle").with_name("rekindle")), "import", str(source), "--json"]
    begun = time.perf_counter()
    done = subprocess.run(run, env=environ(home), cwd=home, capture_output=True, text=True)
    return {"wall_s": time.perf_counter() - begun, "code": done.returncode}


def measure(quick: bool) -> dict[str, Any]:
    from .import_floor import write_files

    prepare("rekindle")
    install("rekindle", "orjson")
    part = 10 if quick else 1
    source = WORK / "import-made"
    shutil.rmtree(source, ignore_errors=True)
    made = write_files(source, MADE_BYTES // part)
    rows: dict[str, Any] = {"made": _by_turns([source], ROUNDS)}
    rows["made"]["command"] = _command(source) | made
    shutil.rmtree(source)
    if CORPUS.is_dir():
        large = [*CORPUS.glob("claude__*"), *CORPUS.glob("codex__*")]
        rows["large"] = _by_turns(large, ROUNDS + 2)
        rows["corpus"] = _by_turns([CORPUS], ROUNDS + 2)
    rows["memory"] = _memory(tuple(size // part for size in FILE_SIZES))
    rows["again"] = _again(MANY // part)
    for name in ("import", "import-first", "import-source"):
        shutil.rmtree(WORK / name, ignore_errors=True)
    return {"rows": rows}


if __name__ == "__main__":
    row, given = sys.argv[1:]
    args = json.loads(given)
    print("\n" + json.dumps(globals()[row](Path(args.pop("folder")), **args)), flush=True)
