"""The cost of a warm start: recall, selection and rendering, compared with the bare reads.

    python -m bench choose [--quick]

A project with 1,000 synthetic sessions, and a folder with 1,000 templates of 40 notes; ten templates
belong to this project. The floor reads the same rows from the store: the project of the folder, its
playbook as bytes, and which templates fit. Nothing is decoded, ranked or rendered.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import report
from bench.learning import session_learning
from rekindle.agent.tools.builtin.toolset import BUILTIN_TOOLS
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.schema_check import build_tool_checks
from rekindle.agent.tools.tool import ToolContext
from rekindle.knowledge import file_format
from rekindle.knowledge.notes.records import OBSERVATION_VERSION
from rekindle.learning.library import TemplateLibrary, update_index
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.learning.notes.recall import recall_at_failure
from rekindle.learning.warm_start import NewSession, WarmStartConfig, WarmStarter
from rekindle.projects import hash_folder
from rekindle.store import Store, open_store
from rekindle.types import Template, TemplateNote

SESSIONS, TEMPLATES, NOTES, HERE, REQUESTS = 1_000, 1_000, 40, 10, 200
LIMIT_MS, FAILURE_LIMIT_MS = 20.0, 10.0
FOLDER = "/home/ada/work"
PROJECT = f"folder:{FOLDER}"
WORDS = (
    "parser",
    "report",
    "index",
    "total",
    "core",
    "web",
    "store",
    "cli",
    "lint",
    "docs",
    "test",
)


def make_templates(seed: random.Random, count: int) -> Iterator[Template]:
    """Yield templates of different projects; the first few belong to the measured project."""
    for number in range(count):
        project = hash_folder(PROJECT) if number < HERE else f"github.com/owner/name-{number}"
        notes = tuple(
            TemplateNote(
                f"n{number}-{place}",
                "command",
                f"`make {seed.choice(WORDS)}-{place}`",
                command=f"make {seed.choice(WORDS)}-{place}",
                project=project,
                sessions=seed.randint(1, 30),
            )
            for place in range(NOTES)
        )
        sources = tuple(f"s{number}-{place}" for place in range(50))
        yield Template(
            f"template-{number}",
            f"Template {number}",
            notes=notes,
            sources=sources,
            project=project,
        )


def make_requests(seed: random.Random, count: int) -> list[str]:
    return [
        f"Fix the {' and '.join(seed.sample(WORDS, 3))} in {seed.choice(session_learning.FILES)}"
        for _ in range(count)
    ]


def read_floor_rows(store: Store, _: str) -> None:
    """Read the rows that a warm start needs, without using them."""
    store.observations.find_folder_projects([FOLDER, "/home/ada", "/home"])
    store.observations.load_playbook(PROJECT, f"{OBSERVATION_VERSION}")
    store.observations.load_decisions(PROJECT)
    store.template_index.find_fitting(hash_folder(PROJECT))


def time_texts(work: Callable[[str], object], texts: list[str]) -> dict[str, float]:
    """Return percentiles of the wall-clock and CPU milliseconds for a text."""
    taken: list[float] = []
    worked: list[float] = []
    for text in texts:
        begin, at_work = time.perf_counter(), time.process_time()
        work(text)
        worked.append((time.process_time() - at_work) * 1000)
        taken.append((time.perf_counter() - begin) * 1000)
    return {
        "p50": compute_median(taken),
        "p95": compute_p95(taken),
        "cpu50": compute_median(worked),
        "cpu95": compute_p95(worked),
    }


def compute_median(figures: list[float]) -> float:
    return round(statistics.median(figures), 2)


def compute_p95(figures: list[float]) -> float:
    return round(sorted(figures)[int(len(figures) * 0.95)], 2)


def measure_starts(quick: bool) -> dict[str, Any]:
    sessions, count = (100, 100) if quick else (SESSIONS, TEMPLATES)
    seed = random.Random(7)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = TemplateLibrary(folder / "templates")
        kept.folder.mkdir()
        for one in make_templates(seed, count):
            kept.get_path(one.id).write_text(file_format.format_template(one))
        session_learning.fill_store(folder / "sessions.db", sessions)
        with open_store(str(folder / "sessions.db")) as store:
            learn_from_sessions(store)
            begin = time.perf_counter()
            update_index(store, kept)
            built = time.perf_counter() - begin
            sizes = {"sessions": sessions, "templates": count, "notes": count * NOTES}
            runs = _measure_operations(store, kept, make_requests(seed, REQUESTS))
            return {**sizes, "index_seconds": round(built, 1), **runs}


def _measure_operations(store: Store, kept: TemplateLibrary, texts: list[str]) -> dict[str, Any]:
    toolbox = ToolRegistry(BUILTIN_TOOLS).select()
    definitions = toolbox.build_definitions(ToolContext("s", Path.cwd(), store=store, owner="me"))
    tools = build_tool_checks(definitions)
    warm = 0

    def start(starter: WarmStarter, text: str) -> None:
        nonlocal warm
        prelude = starter.build_prelude(NewSession(store.begin(), text, tools, FOLDER))
        warm += prelude.template is not None

    def one() -> WarmStarter:
        return WarmStarter(store, WarmStartConfig(control_share=0.0), templates=kept)

    def fail(_: str) -> None:
        failed = {"command": "pytest tests/1/test_1.py"}
        recall_at_failure(store, FOLDER, "terminal", failed, "sh: pytest: command not found")

    going = one()
    for text in texts[:5]:
        start(going, text)
        read_floor_rows(store, text)
        fail(text)
    warm = 0
    found = {
        "start": time_texts(lambda text: start(going, text), texts),
        "first": time_texts(lambda text: start(one(), text), texts),
        "files": time_texts(lambda _: update_index(store, kept), texts),
        "failure": time_texts(fail, texts),
        "floor": time_texts(lambda text: read_floor_rows(store, text), texts),
    }
    return {**found, "warm": warm // 2, "requests": len(texts)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="100 templates; writes no results file"
    )


def build_table(found: dict[str, Any]) -> str:
    rows = [
        ("start of a session: recall, select and render", found["start"]),
        ("the first in a process, which also compares the index with the files", found["first"]),
        ("checking the files alone", found["files"]),
        ("recall at a failure", found["failure"]),
        ("floor: reading the same rows from the store", found["floor"]),
    ]
    lines = [
        "## Starting a session warm",
        "",
        f"A project with {found['sessions']:,} sessions; {found['templates']:,} templates with"
        f" {found['notes']:,} notes on disk, {HERE} templates of this project; {found['requests']}"
        f" requests, {found['warm']} of them started from a template;"
        f" index built in {found['index_seconds']} s. Milliseconds of wall-clock and of CPU time"
        " (other work on the machine affects only the first). `python -m bench choose`,"
        f" {report.describe_machine()}.",
        "",
        "| operation | p50 | p95 | p50 cpu | p95 cpu |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {name} | {one['p50']} | {one['p95']} | {one['cpu50']} | {one['cpu95']} |"
            for name, one in rows
        ),
    ]
    verdicts = [
        f"Limit of {limit:.0f} ms {what}: {'met' if found[row]['p95'] <= limit else 'not met'}."
        for what, row, limit in (
            ("for a start", "start", LIMIT_MS), ("at a failure", "failure", FAILURE_LIMIT_MS),
        )
    ]  # fmt: skip
    return "\n".join([*lines, "", " ".join(verdicts), ""])


def run(args: argparse.Namespace) -> None:
    found = measure_starts(args.quick)
    print(json.dumps(found))
    print(build_table(found))
    if not args.quick:
        report.write_section("choosing", build_table(found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    run(parser.parse_args())
