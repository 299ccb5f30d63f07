"""The quality of recall on real histories, and its cost.

    python -m bench recall [--quick]

Each history of ../shared/histories is imported into a new home and replayed: every session is queried
with the notes learned from the earlier sessions of its project alone. The naive list and the limit are
shown for comparison, and the times in a large store.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from bench import report
from bench.environments import ROOT
from rekindle import Message, ToolCall, open_store
from rekindle.knowledge.notes.replay import PARTS, ReplayResult
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.learning.notes.recall import recall_at_failure, recall_at_start
from rekindle.learning.notes.replay import replay_projects
from rekindle.store import Store
from rekindle.transcripts.importer import import_transcripts

HISTORIES = ROOT.parent / "shared" / "histories"
WORDS = ("parser", "cache", "login", "report", "index", "schema", "worker", "queue", "retry")
SESSIONS, PROJECT_SESSIONS, ASKED = 10_000, 1_000, 200
# Minimum values, except for the last, which is a maximum.
MUST = {
    "given": 0.90,
    "came_true": 0.45,
    "commands_told": 0.25,
    "files_told": 0.22,
    "mended": 0.55,
    "beside": 0.35,
}
TITLES = {
    "given": "sessions with any recall",
    "came_true": "of the commands and files named at the start came true",
    "commands_true": "– of the commands alone",
    "files_true": "– of the files alone",
    "commands_told": "the project's own commands that the session used: recalled",
    "files_told": "files that the session used: recalled",
    "mended": "failures that the session fixed: the fix recalled",
    "beside": "advice at such a failure that was beside the point",
}


Histories: TypeAlias = Mapping[str, Sequence[ReplayResult]]


def replay_history(archive: Path) -> list[ReplayResult]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(archive) as packed:
            packed.extractall(folder / "history", filter="data")
        with open_store(folder / "sessions.db") as store:
            import_transcripts(store, [folder / "history"])
            return replay_projects(store)


def pool_results(results: Sequence[Sequence[ReplayResult]]) -> list[ReplayResult]:
    """Combine the sessions of all histories for each recaller."""
    return [
        ReplayResult(
            same[0].name,
            [score for one in same for score in one.scores],
            {session: family for one in same for session, family in one.families.items()},
        )
        for same in zip(*results, strict=True)
    ]


# ── times


def make_project(folder: Path) -> str:
    """Make a repository with the files that its sessions use, which a start looks for."""
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/fix-parser\n")
    for area, name in product(WORDS, WORDS):
        file = folder / "src" / area / f"{name}.go"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return str(folder)


def fill_store(store: Store, project: str, sessions: int, in_project: int) -> None:
    """Store sessions of up to forty messages, the last ones in one project."""
    seed = random.Random(5)
    for number in range(sessions):
        inside = number >= sessions - in_project
        folder = project if inside else f"/gone/other-{number % 97}"
        session = store.begin(id=f"s{number}", cwd=folder)
        store.append(session, *make_messages(seed, folder, f"s{number}", 40 if inside else 8))


def make_messages(seed: random.Random, folder: str, name: str, count: int) -> list[Message]:
    words = WORDS
    messages = [Message("user", f"fix the {seed.choice(words)} of the {seed.choice(words)}")]
    for number in range((count - 1) // 2):
        if seed.random() < 0.5:
            path = f"{folder}/src/{seed.choice(words)}/{seed.choice(words)}.go"
            call = ToolCall(f"{name}-{number}", "Read", {"file_path": path})
        else:
            command = f"make {seed.choice(words)}-{seed.choice(words)} --verbose"
            call = ToolCall(f"{name}-{number}", "Bash", {"command": command})
        failed = seed.random() < 0.1
        text = f"Exit code 2\nerror: {seed.choice(words)} is missing" if failed else "ok"
        messages.append(Message("assistant", tool_calls=(call,)))
        messages.append(Message("tool", text, tool_call_id=call.id, meta={"is_error": failed}))
    return messages


def time_calls(work: Callable[[], object], rounds: int) -> dict[str, float]:
    taken: list[float] = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        taken.append((time.perf_counter() - begin) * 1000)
    taken.sort()
    return {"p50": statistics.median(taken), "p95": taken[int(len(taken) * 0.95)]}


def measure_times(sessions: int, in_project: int) -> dict[str, Any]:
    seed = random.Random(7)
    with (
        tempfile.TemporaryDirectory() as name,
        open_store(Path(name) / "sessions.db", durability="relaxed") as store,
    ):
        project = make_project(Path(name) / "project")
        fill_store(store, project, sessions, in_project)
        begin = time.perf_counter()
        learn_from_sessions(store)
        first = time.perf_counter() - begin
        failure = {"command": "make cache-cache --quiet"}
        found = {
            "start": time_calls(lambda: recall_at_start(store, project, "fix the parser"), ASKED),
            "failure": time_calls(
                lambda: recall_at_failure(
                    store, project, "Bash", failure, "error: cache is missing"
                ),
                ASKED,
            ),
        }

        def learn_one() -> None:
            number = seed.randrange(10**9)
            session = store.begin(id=f"new{number}", cwd=project)
            store.append(session, *make_messages(seed, project, f"new{number}", 200))
            learn_from_sessions(store)

        found["learn"] = time_calls(learn_one, 20)
        return {"sessions": sessions, "in_project": in_project, "first": first, **found}


# ── table


def format_rate(result: ReplayResult, metric: str) -> str:
    rate = result.compute_rates()[metric]
    if rate.rate is None:
        return "no evidence"
    interval = "" if rate.range is None else f" ({rate.range.low:.0%} to {rate.range.high:.0%})"
    return f"{rate.rate:.0%} of {rate.calls:,}{interval}"


def is_reached(result: ReplayResult, metric: str) -> bool:
    rate = result.compute_rates()[metric].rate
    if rate is None:
        return False
    return rate <= MUST[metric] if metric == "beside" else rate >= MUST[metric]


def build_table(histories: Histories, times: dict[str, Any]) -> str:
    results = pool_results([*histories.values()])
    notes = results[0]
    lines = [
        "## Recall on real histories",
        "",
        f"`python -m bench recall`, {report.describe_machine()}. {len(histories)} histories,"
        f" {len(notes.scores):,} sessions with five or more earlier ones in their project, each asked"
        " with the notes learned from those alone. Intervals treat a conversation as one observation:"
        " a session that goes on from another one is no other. Notes"
        " of other projects are withheld.",
        "",
        f"| | {' | '.join(one.name for one in results)} | must reach | reached |",
        f"|---|{'---|' * len(results)}---|---|",
    ]
    for metric in TITLES:
        cells = " | ".join(format_rate(one, metric) for one in results)
        if metric in PARTS:
            lines.append(f"| {TITLES[metric]} | {cells} | – | |")
            continue
        sign = "≤" if metric == "beside" else "≥"
        reached = "yes" if is_reached(notes, metric) else "**no**"
        lines.append(f"| {TITLES[metric]} | {cells} | {sign} {MUST[metric]:.0%} | {reached} |")
    for title, limit, figures in (
        ("tokens a start", 600, [one.tokens_per_start for one in results]),
        ("tokens a failure", 120, [one.tokens_per_failure for one in results]),
    ):
        cells = " | ".join("–" if one is None else f"{one:.0f}" for one in figures)
        reached = "yes" if figures[0] is not None and figures[0] <= limit else "**no**"
        lines.append(f"| {title} | {cells} | ≤ {limit} | {reached} |")
    parts = [*build_history_lines(histories), "", *build_time_lines(times)]
    return "\n".join([*lines, "", *parts, ""])


def build_history_lines(histories: Histories) -> list[str]:
    """Show each history by itself, the naive list in brackets: one may hide in the whole."""
    lines = [f"| by history | {' | '.join(histories)} |", f"|---|{'---|' * len(histories)}"]
    for metric, title in TITLES.items():
        cells = [
            f"{format_rate(notes, metric)}, naive {format_share(naive, metric)}"
            for notes, naive, *_ in histories.values()
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def format_share(result: ReplayResult, metric: str) -> str:
    rate = result.compute_rates()[metric].rate
    return "–" if rate is None else f"{rate:.0%}"


def build_time_lines(times: dict[str, Any]) -> list[str]:
    rows = (
        (f"start, {times['in_project']:,} sessions in the project", "start", 20),
        ("failure", "failure", 10),
        (f"learn one session of 200 messages, {times['sessions']:,} in the store", "learn", 1_000),
    )
    return [
        f"| in a running process, ms ({times['first']:.1f} s to learn all of them first) | p50 | p95 |"
        " must reach | reached |",
        "|---|---:|---:|---|---|",
        *(
            f"| {title} | {times[key]['p50']:.1f} | {times[key]['p95']:.1f} | ≤ {limit:,} |"
            f" {'yes' if times[key]['p95'] <= limit else '**no**'} |"
            for title, key, limit in rows
        ),
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a small store; writes no results")


def run(args: argparse.Namespace) -> None:
    archives = sorted(HISTORIES.glob("*.tar.xz"))
    if not archives:
        raise SystemExit(f"no histories in {HISTORIES}; recall was not measured")
    histories = {one.name.removesuffix(".tar.xz"): replay_history(one) for one in archives}
    scale = 20 if args.quick else 1
    times = measure_times(SESSIONS // scale, PROJECT_SESSIONS // scale)
    table = build_table(histories, times)
    print(json.dumps(times))
    print(table)
    if not args.quick:
        report.write_section("recall", table)
