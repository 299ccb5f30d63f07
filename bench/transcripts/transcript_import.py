"""An import against its floor: speed, memory, and the cost of a second import.

Every figure is measured in a separate process, alternating between the floor and Rekindle; figures are
medians. Both load their modules before the clock starts.
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

from bench.environments import ROOT, get_python, install_packages, prepare_environment
from bench.report import publish_figures
from bench.runner import WORK, Figures, build_environment, make_empty_folder
from bench.transcripts.tables import render_import

CORPUS = ROOT.parent / "shared" / "corpus"
MADE_BYTES = 150_000_000
ROUNDS = 5
FILE_SIZES = (20_000_000, 400_000_000)
MANY = 10_000
TRACED = "openat,open,read,pread64,mmap,stat,lstat,newfstatat,statx,getdents64"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the data; writes no results"
    )


# -- in the child


def run_floor(folder: Path, sources: list[str], store: str) -> Figures:
    from bench.transcripts import import_floor

    paths = _list_files(sources)
    rows = import_floor.read_rows(Path(store))
    taken = {
        name: _time_work(import_floor.parse_files, paths, loads)
        for name, loads in import_floor.load_parsers().items()
    }
    fastest = min(taken, key=lambda name: taken[name][1])
    loads = import_floor.load_parsers()[fastest]

    def parse_and_insert() -> None:
        import_floor.parse_files(paths, loads)
        import_floor.insert_rows(folder / "floor.db", *rows)

    wall, cpu = _time_work(parse_and_insert)
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "messages": len(rows[1]),
        "parser": fastest,
        **{f"{name}_s": cpu for name, (_, cpu) in taken.items()},
    }


def run_import(folder: Path, sources: list[str]) -> Figures:
    from rekindle import open_store
    from rekindle.transcripts import FORMATS
    from rekindle.transcripts.importer import ImportReport, import_transcripts

    # The floor has loaded and used its parser and apsw before its clock starts. Load the readers,
    # which a command loads on demand, and the store's engine too.
    for format in FORMATS:
        importlib.import_module(f"rekindle.transcripts.readers.{format.module}")
    importlib.import_module("rekindle.store.engines.sqlite")
    taken: list[ImportReport] = []

    def run() -> None:
        with open_store(folder / "rekindle.db") as store:
            taken.append(import_transcripts(store, sources))

    wall, cpu = _time_work(run)
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


def run_stat_floor(folder: Path, sources: list[str]) -> Figures:
    """Read the size and time of every file, which is the floor of a second import."""

    def walk() -> int:
        return sum(
            os.stat(os.path.join(root, name)).st_size >= 0
            for source in sources
            for root, _, names in os.walk(source)
            for name in names
        )

    wall, cpu = _time_work(walk)
    return {"wall_s": wall, "cpu_s": cpu}


def _list_files(sources: Iterable[str | Path]) -> list[Path]:
    found = (path for source in sources for path in sorted(Path(source).rglob("*")))
    return [path for path in found if path.is_file()]


def _time_work(work: Any, *args: Any) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work(*args)
    return time.perf_counter() - wall, time.process_time() - cpu


# -- in the parent


def _run_child(row: str, folder: Path, *before: str, **args: Any) -> Figures:
    given = json.dumps({"folder": str(folder), **args})
    command = [
        *before,
        str(get_python("rekindle")),
        "-m",
        "bench.transcripts.transcript_import",
        row,
        given,
    ]
    done = subprocess.run(
        command, env=build_environment(WORK), cwd=WORK, capture_output=True, text=True
    )
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["failed"])[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])


def _alternate_runs(folders: Sequence[Path], rounds: int) -> dict[str, Figures]:
    """Alternate between the floor and Rekindle on the same files."""
    sources = [str(folder) for folder in folders]
    first = make_empty_folder("import-first")
    whole = _run_child("run_import", first, sources=sources)
    if "error" in whole:
        return {"rekindle": whole, "floor": whole}
    store = str(first / "rekindle.db")
    taken: dict[str, list[Figures]] = {"floor": [], "rekindle": []}
    for _ in range(rounds):
        floor = _run_child("run_floor", make_empty_folder("import"), sources=sources, store=store)
        ours = _run_child("run_import", make_empty_folder("import"), sources=sources)
        taken["floor"].append(floor)
        taken["rekindle"].append(ours)
    size = sum(path.stat().st_size for path in _list_files(folders))
    return {name: _take_medians(runs) | {"bytes": size} for name, runs in taken.items()}


def _take_medians(runs: list[Figures]) -> Figures:
    failed = next((run for run in runs if "error" in run), None)
    if failed:
        return failed
    return {
        key: median(run[key] for run in runs) if isinstance(value, float) else value
        for key, value in runs[-1].items()
    }


def _measure_memory(sizes: tuple[int, ...]) -> dict[str, Figures]:
    from bench.transcripts.import_floor import write_document, write_one

    taken: dict[str, Figures] = {}
    for name, write in (("lines", write_one), ("document", write_document)):
        for size in sizes:
            source = make_empty_folder("import-source")
            write(source / "one.jsonl", size)
            figures = _run_child("run_import", make_empty_folder("import"), sources=[str(source)])
            taken[f"{name} {size}"] = figures | {"size": size, "shape": name}
    return taken


def _measure_second_import(files: int) -> dict[str, Figures]:
    from bench.transcripts.import_floor import write_many

    source, folder = make_empty_folder("import-source"), make_empty_folder("import")
    write_many(source, files)
    taken = {"first": _run_child("run_import", folder, sources=[str(source)])}
    taken["floor"] = _run_child("run_stat_floor", folder, sources=[str(source)])
    taken["second"] = _run_child("run_import", folder, sources=[str(source)])
    if strace := shutil.which("strace"):
        trace = WORK / "import.strace"
        options = ("-f", "-y", "-s", "0", "-o", str(trace), "-e", f"trace={TRACED}")
        _run_child("run_import", folder, strace, *options, sources=[str(source)])
        taken["second"] |= _count_calls(trace, source)
        trace.unlink(missing_ok=True)
    return taken


def _count_calls(trace: Path, source: Path) -> Figures:
    """Count the system calls below a folder: those for metadata, and those that open or read."""
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


def _time_command(source: Path) -> Figures:
    """Time the whole command as a user runs it."""
    home = make_empty_folder("import")
    run = [str(get_python("rekindle").with_name("rekindle")), "import", str(source), "--json"]
    begun = time.perf_counter()
    done = subprocess.run(
        run, env=build_environment(home), cwd=home, capture_output=True, text=True
    )
    return {"wall_s": time.perf_counter() - begun, "code": done.returncode}


def measure_import(quick: bool) -> dict[str, Any]:
    from bench.transcripts.import_floor import write_files

    prepare_environment("rekindle")
    install_packages("rekindle", "orjson")
    part = 10 if quick else 1
    source = WORK / "import-made"
    shutil.rmtree(source, ignore_errors=True)
    made = write_files(source, MADE_BYTES // part)
    rows: dict[str, Any] = {"made": _alternate_runs([source], ROUNDS)}
    rows["made"]["command"] = _time_command(source) | made
    shutil.rmtree(source)
    if CORPUS.is_dir():
        large = [*CORPUS.glob("claude__*"), *CORPUS.glob("codex__*")]
        rows["large"] = _alternate_runs(large, ROUNDS + 2)
        rows["corpus"] = _alternate_runs([CORPUS], ROUNDS + 2)
    rows["memory"] = _measure_memory(tuple(size // part for size in FILE_SIZES))
    rows["again"] = _measure_second_import(MANY // part)
    for name in ("import", "import-first", "import-source"):
        shutil.rmtree(WORK / name, ignore_errors=True)
    return {"rows": rows}


def run(args: argparse.Namespace) -> None:
    figures = measure_import(args.quick)
    publish_figures("importing", figures, render_import, partial="quick" if args.quick else "")


CHILDREN = {"run_floor": run_floor, "run_import": run_import, "run_stat_floor": run_stat_floor}


if __name__ == "__main__":
    row, given = sys.argv[1:]
    args = json.loads(given)
    print("\n" + json.dumps(CHILDREN[row](Path(args.pop("folder")), **args)), flush=True)
