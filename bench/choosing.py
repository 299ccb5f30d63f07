"""What it costs to start a session warm: choosing and rendering, beside the bare query of the index.

    python -m bench choose [--quick]

The folder holds 1,000 templates of 100 patterns each, made up from a vocabulary with frequent and
rare words, as in real requests. The floor are the bare lookups of the request's words in the index: no
weighing, no reading of patterns, no rendering.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from rekindle.agent.tools.builtin.toolset import BUILTIN_TOOLS
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.schema_check import build_tool_checks
from rekindle.agent.tools.tool import ToolContext
from rekindle.knowledge.text_matching import extract_terms, to_index_token
from rekindle.learning.library import TemplateLibrary, update_index
from rekindle.learning.warm_start import NewSession, WarmStartConfig, WarmStarter
from rekindle.store import Store, open_store
from rekindle.store.learning.template_search import FREQUENT_WORD_LIMIT
from rekindle.types import Pattern, PatternStep, Template

from . import report

TEMPLATES, PATTERNS, REQUESTS = 1_000, 100, 200
LIMIT_MS = 20.0
_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu",
              "xa", "ze", "lin", "mar", "tor", "ven", "sol", "kip", "dra")  # fmt: skip


def vocabulary(seed: random.Random, count: int = 12_000) -> list[str]:
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(seed.choices(_SYLLABLES, k=seed.choice((2, 3, 3, 4))))] = None
    return list(words)


def templates(seed: random.Random, count: int, patterns: int) -> Iterator[Template]:
    words = vocabulary(seed)
    weights = list(accumulate(1 / (place + 3) for place in range(len(words))))

    def some(least: int, most: int) -> list[str]:
        return seed.choices(words, cum_weights=weights, k=seed.randint(least, most))

    for number in range(count):
        made = tuple(
            Pattern(
                f"p{number}-{place}",
                "example",
                (PatternStep("terminal",
                    {"command": f"{seed.choice(words)} {' '.join(some(1, 3))} <path:py>"},
                      "exit code 0"),),
                " ".join(some(6, 18)),
                support=seed.randint(1, 30),
                sessions=(f"s{number}", f"s{number + 1}"),
                seen_in=seed.randint(1, 9),
                score=seed.random(),
            )
            for place in range(patterns)
        )  # fmt: skip
        yield Template(f"template-{number}", f"Template {number}", patterns=made)


def requests(seed: random.Random, known: list[str], count: int) -> list[str]:
    """Half of them ask for something known in other words, half for something else."""
    made = next(templates(seed, 1, count // 2)).patterns
    fresh = [f"please {pattern.asked}" for pattern in made]
    again = [
        " ".join(word for word in seed.choice(known).split() if seed.random() < 0.8)
        for _ in range(count - len(fresh))
    ]
    return [text for pair in zip(fresh, again, strict=True) for text in pair]


def floor(store: Store, text: str) -> None:
    """What the engine gives for each word of a request: numbers of patterns, up to the same bound."""
    with store._engine.begin_read() as tx:
        for term in extract_terms(text):
            if store._engine.name == "sqlite":
                sql, word = (
                    "rowid FROM pattern_words WHERE pattern_words MATCH ?",
                    f'"{to_index_token(term)}"',
                )
            else:
                sql, word = (
                    "num FROM patterns WHERE words @@ ?::tsquery",
                    f"'{to_index_token(term)}'",
                )
            tx.run(f"SELECT {sql} LIMIT {FREQUENT_WORD_LIMIT}", (word,))


def timed(work: Callable[[str], object], texts: list[str]) -> dict[str, float]:
    """Milliseconds for each text: on the clock, and of the processor that we had of it."""
    taken: list[float] = []
    worked: list[float] = []
    for text in texts:
        begin, at_work = time.perf_counter(), time.process_time()
        work(text)
        worked.append((time.process_time() - at_work) * 1000)
        taken.append((time.perf_counter() - begin) * 1000)
    return {
        "p50": middle(taken),
        "p95": late(taken),
        "cpu50": middle(worked),
        "cpu95": late(worked),
    }


def middle(figures: list[float]) -> float:
    return round(statistics.median(figures), 2)


def late(figures: list[float]) -> float:
    return round(sorted(figures)[int(len(figures) * 0.95)], 2)


def measure(quick: bool, url: str | None) -> dict[str, Any]:
    count = 100 if quick else TEMPLATES
    seed = random.Random(7)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = TemplateLibrary(folder / "templates")
        kept.folder.mkdir()
        from rekindle.knowledge import file_format

        known: list[str] = []
        for one in templates(seed, count, PATTERNS):
            kept.get_path(one.id).write_text(file_format.format_template(one))
            known += [pattern.asked for pattern in one.patterns[:5]]
        with open_store(url or str(folder / "sessions.db")) as store:
            begin = time.perf_counter()
            update_index(store, kept)
            built = time.perf_counter() - begin
            sizes = {"templates": count, "patterns": count * PATTERNS}
            runs = _runs(store, kept, requests(seed, known, REQUESTS))
            return {**sizes, "index_seconds": round(built, 1), **runs}


def _runs(store: Store, kept: TemplateLibrary, texts: list[str]) -> dict[str, Any]:
    toolbox = ToolRegistry(BUILTIN_TOOLS).select()
    definitions = toolbox.build_definitions(ToolContext("s", Path.cwd(), store=store, owner="me"))
    warm = 0

    def start(starter: WarmStarter, text: str) -> None:
        nonlocal warm
        newcomer = NewSession(store.begin(), text, build_tool_checks(definitions), str(Path.cwd()))
        warm += bool(starter.build_prelude(newcomer).messages)

    def one() -> WarmStarter:
        return WarmStarter(store, WarmStartConfig(control_share=0.0), templates=kept)

    going = one()
    for text in texts[:5]:
        start(going, text)
        floor(store, text)
    warm = 0
    found = {
        "start": timed(lambda text: start(going, text), texts),
        "first": timed(lambda text: start(one(), text), texts),
        "files": timed(lambda _: update_index(store, kept), texts),
        "floor": timed(lambda text: floor(store, text), texts),
    }
    return {**found, "warm": warm // 2, "requests": len(texts)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="100 templates; writes no results file"
    )
    parser.add_argument(
        "--store", metavar="URL", help="a database to measure in, instead of SQLite"
    )


def table(found: dict[str, Any]) -> str:
    rows = [
        ("start of a session: choose and render", found["start"]),
        ("the first one in a process: also hold the index against the files", found["first"]),
        ("of this: looking at the files", found["files"]),
        ("floor: the bare lookups in the index", found["floor"]),
    ]
    lines = [
        "## Starting a session warm",
        "",
        f"{found['templates']:,} templates, {found['patterns']:,} patterns on disk;"
        f" {found['requests']} requests, {found['warm']} of them warm;"
        f" index built in {found['index_seconds']} s. Milliseconds of wall-clock and of CPU time"
        " (other work on the machine affects only the first). `python -m bench choose`,"
        f" {report.machine()}.",
        "",
        "| what | p50 | p95 | p50 cpu | p95 cpu |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {name} | {one['p50']} | {one['p95']} | {one['cpu50']} | {one['cpu95']} |"
            for name, one in rows
        ),
    ]
    within = found["start"]["p95"] <= LIMIT_MS
    verdict = "met" if within else "not met in this run"
    return "\n".join([*lines, "", f"Limit of {LIMIT_MS:.0f} ms: {verdict}.", ""])


def run(args: argparse.Namespace) -> None:
    found = measure(args.quick, args.store)
    print(json.dumps(found))
    print(table(found))
    if not args.quick and not args.store:
        report.write("choosing", table(found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    run(parser.parse_args())
