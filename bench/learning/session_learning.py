"""Learning against its floor: reading and decoding the same rows, in the same run.

The store has ten thousand synthetic sessions of a coding agent. Each figure is measured in a separate
process on the same file, after the calls were judged: `floor` reads every session through the store and
decodes its messages and the verdicts on its calls, which are the input of learning; `first` learns
from all of them; `second` learns again after one percent of new sessions. Judging is timed too; it is
done once for everything that is learned.

Users wait for the learning of one new session: `one` adds a session of 200 messages to a small and to
a large store and learns from it, judging included. It may take at most a second, and no longer in the
large store.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

from bench import report
from bench.runner import WORK

SESSIONS, SMALL = 10_000, 2_000
# As in real transcripts: a call in 37% of the messages, 1 kB in each, and 6% of calls fail.
CALLS, CHATTER = 7, 5
NEW = 0.01
AGAIN = 3  # times in a round, each with new sessions: the shortest run varies most
SEED = 4711
ONE_FIRST = 900_000  # the number of the first session that is learned by itself
FILES = [
    f"src/{part}/{name}.py" for part in ("core", "web", "store", "cli") for name in "abcdefghij"
]
MUST = {"first": 15.0, "second": 0.05}
ONE_MESSAGES, ONE_TIMES = 200, 7
MUST_ONE_S, MUST_ONE_GROWTH = (
    1.0,
    1.5,
)  # seconds in the large store, and compared with the small one


def make_lines(draw: random.Random, size: int) -> str:
    words = (
        "value",
        "row",
        "import",
        "return",
        "handler",
        "index",
        "total",
        "def",
        "class",
        "none",
    )
    return "\n".join(" ".join(draw.choices(words, k=12)) for _ in range(max(1, size // 75)))


def make_call(draw: random.Random) -> tuple[str, dict[str, Any], str, int]:
    """Return a tool, its arguments, its result and its exit code."""
    file, other = draw.choice(FILES), f"tests/{draw.randrange(200)}/test_{draw.randrange(50)}.py"
    size = int(draw.lognormvariate(7.1, 1.0))
    day, said = f"2026-0{draw.randrange(1, 9)}-11", make_lines(draw, size)
    edit = {"path": file, "old_string": make_lines(draw, 200), "new_string": make_lines(draw, 300)}
    kinds: list[tuple[str, dict[str, Any], str, int]] = [
        ("read_file", {"path": file, "offset": draw.randrange(400), "limit": 200}, said, 0),
        ("terminal", {"command": f"rg -n {draw.choice(('total', 'row'))} {file}"}, said, 0),
        ("terminal", {"command": f"uv run pytest -q {other}"}, f"{said}\n12 passed", 0),
        ("terminal", {"command": f"uv run ruff check {file} --fix"}, "All checks passed!", 0),
        ("patch", edit, "ok", 0),
        ("terminal", {"command": "make build-docs STRICT=1"}, said, 0),
        ("terminal", {"command": f"pytest {other}"}, "sh: pytest: command not found", 127),
        ("terminal", {"command": f"./tools/deskctl rooms add --day {day}"}, "done", 0),
    ]
    return draw.choices(kinds, weights=(2, 2, 2, 2, 3, 2, 1, 2))[0]


def fill_store(path: Path, count: int, first: int = 0, calls: int = CALLS) -> None:
    from rekindle.store import open_store
    from rekindle.types import Message, ToolCall

    with open_store(path, durability="relaxed") as store:
        for number in range(first, first + count):
            draw = random.Random(SEED + number)
            session = store.begin(
                id=f"made-{number:06}",
                source="bench",
                cwd="/home/ada/work",
                started=1.7e9 + 60 * number,
            )
            said = [
                Message(
                    "user",
                    f"Fix the {draw.choice(('parser', 'report', 'index'))} in {draw.choice(FILES)}",
                )
            ]
            for turn in range(calls):
                tool, arguments, result, code = make_call(draw)
                id = f"call_{number:06x}{turn:03x}Zq7"
                made = ToolCall(id, tool, json.dumps(arguments))
                said.append(Message("assistant", None, [made]))
                meta = {"exit_code": code} if tool == "terminal" else None
                said.append(Message("tool", result, tool_call_id=id, name=tool, meta=meta))
            for turn in range(CHATTER):
                said.append(Message("user" if turn % 2 else "assistant", make_lines(draw, 700)))
            store.append(session, *said)


def read_all(path: Path) -> dict[str, Any]:
    from rekindle.store import open_store

    with open_store(path) as store:
        started = time.perf_counter()
        names = [one.session.id for one in store.iter_judged_sessions()]
        count = sum(len(store.messages(name)) for name in names)
        return {"seconds": time.perf_counter() - started, "messages": count}


def judge_all(path: Path) -> dict[str, Any]:
    from rekindle.learning.verdicts.judged_sessions import judge_sessions
    from rekindle.store import open_store

    with open_store(path) as store:
        started = time.perf_counter()
        calls = judge_sessions(store)
        return {"seconds": time.perf_counter() - started, "calls": calls}


def learn_all(path: Path) -> dict[str, Any]:
    from rekindle.learning.notes.learner import learn_from_sessions
    from rekindle.store import open_store

    with open_store(path) as store:
        started = time.perf_counter()
        learned = learn_from_sessions(store)
        return {"seconds": time.perf_counter() - started, "anew": learned.sessions}


def learn_one(path: Path) -> dict[str, Any]:
    """Learn from one new session several times, not counting the time to store it."""
    from rekindle.learning.notes.learner import learn_from_sessions
    from rekindle.store import open_store

    taken: list[float] = []
    used: list[float] = []
    with open_store(path) as store:
        learn_from_sessions(store)
        for number in range(ONE_TIMES):
            fill_store(path, 1, ONE_FIRST + number, (ONE_MESSAGES - CHATTER) // 2)
            began, worked = time.perf_counter(), time.process_time()
            learned = learn_from_sessions(store)
            taken.append(time.perf_counter() - began)
            used.append(time.process_time() - worked)
            assert learned.sessions == 1, learned
    return {"seconds": median(taken), "one_cpu": median(used)}


def forget_all(path: Path) -> dict[str, Any]:
    from rekindle.store import open_store
    from rekindle.store.learning.observations import delete_all_observations

    with open_store(path) as store:
        store._write(delete_all_observations)  # pyright: ignore[reportPrivateUsage]
        return {}


CHILDREN = {"floor": read_all, "judge": judge_all, "learn": learn_all, "one": learn_one}
CHILDREN["forget"] = forget_all


def run_child(what: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.learning.session_learning", what, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def measure_learning(sessions: int, times: int) -> dict[str, Any]:
    folder = WORK / "learning"
    folder.mkdir(parents=True, exist_ok=True)
    small, large = folder / f"made-{SMALL}.db", folder / f"made-{sessions}.db"
    for path in (small, large):
        for old in path.parent.glob(f"{path.name}*"):
            old.unlink()
    fill_store(small, SMALL)
    fill_store(large, sessions)
    rows: dict[str, Any] = {"judge": run_child("judge", large), "size": large.stat().st_size}
    run_child("judge", small)
    rows["memory small"] = run_child("learn", small)
    rounds: list[dict[str, Any]] = []
    new = max(1, int(sessions * NEW))
    count = sessions
    for _ in range(times):
        before = run_child("floor", large)
        run_child("forget", large)
        first = run_child("learn", large)
        after = run_child("floor", large)
        second: list[dict[str, Any]] = []
        for _ in range(AGAIN):
            fill_store(large, new, count)
            count += new
            run_child("judge", large)
            second.append(run_child("learn", large))
        rounds.append({"floor": [before, after], "first": [first], "second": second})
    rows["rounds"] = rounds
    rows["one"] = {"small": run_child("one", small), "large": run_child("one", large)}
    for path in folder.glob("made-*"):
        path.unlink()
    return rows


def average_rounds(rounds: list[dict[str, Any]], name: str, field: str) -> list[float]:
    """Return a figure of each round, averaged where it was measured more than once."""
    return [mean(one[field] for one in each[name]) for each in rounds]


def render_section(rows: dict[str, Any], command: str) -> str:
    rounds = rows["rounds"]
    (one,), (again, *_) = rounds[0]["first"], rounds[0]["second"]
    count = rounds[0]["floor"][0]["messages"]
    table = ["| work | floor | ours | ratio | must reach | reached |", "|---|---|---|---|---|---|"]
    for field, unit in (("seconds", "s"), ("cpu", "CPU s")):
        floor, first, second = (
            average_rounds(rounds, name, field) for name in ("floor", "first", "second")
        )
        table += [
            _build_row(f"learn from {one['anew']:,} sessions: {unit}", floor, first, "first"),
            _build_row(f"again, {again['anew']:,} new: {unit}", first, second, "second"),
        ]
    memory = (
        f"Peak memory while learning: {rows['memory small']['peak_mb']:.0f} MB for {SMALL:,} sessions,"
        f" {max(average_rounds(rounds, 'first', 'peak_mb')):.0f} MB for all."
    )
    judged = (
        f"Judging their {rows['judge']['calls']:,} calls took {rows['judge']['seconds']:.1f} s before"
        " that; it is done once, for everything that is learned."
    )
    size = rows["size"] / 1e6
    head = (
        f"`{command}` on {report.describe_machine()}. A store of {size:.0f} MB, {count:,} messages;"
        f" medians of {len(rounds)} rounds, and of their ratios with the lowest and the highest. The"
        " floor reads and decodes the messages and the verdicts on their calls before and after each"
        f" run. The second run is measured {AGAIN} times; its floor is the first run."
    )
    parts = [
        "## Learning",
        head,
        "\n".join(table),
        "\n".join(_render_one(rows)),
        f"{judged} {memory}",
    ]
    return "\n\n".join(parts) + "\n"


def _render_one(rows: dict[str, Any]) -> list[str]:
    """Return the table of learning one new session."""
    small, large = rows["one"]["small"], rows["one"]["large"]
    count = rows["rounds"][0]["first"][0]["anew"]
    growth = large["one_cpu"] / small["one_cpu"]
    reached = ["yes" if is_met else "**no**" for is_met in check_one(rows)]
    return [
        f"| learn one new session of {ONE_MESSAGES} messages, judging included | {SMALL:,} in the store"
        f" | {count:,} | must reach | reached |",
        "|---|---:|---:|---|---|",
        f"| seconds, median of {ONE_TIMES} | {small['seconds']:.3f} | {large['seconds']:.3f}"
        f" | ≤ {MUST_ONE_S:g} s | {reached[0]} |",
        f"| CPU seconds | {small['one_cpu']:.3f} | {large['one_cpu']:.3f}, {growth:.2f} ×"
        f" | ≤ {MUST_ONE_GROWTH:g} × | {reached[1]} |",
    ]


def check_one(rows: dict[str, Any]) -> tuple[bool, bool]:
    """Return whether one session is learned fast enough, and as fast in the large store."""
    small, large = rows["one"]["small"], rows["one"]["large"]
    return (
        large["seconds"] <= MUST_ONE_S,
        large["one_cpu"] <= MUST_ONE_GROWTH * small["one_cpu"],
    )


def _build_row(work: str, floor: list[float], ours: list[float], name: str) -> str:
    must = MUST[name]
    ratios = [mine / least for mine, least in zip(ours, floor, strict=True)]
    told = f"≤ {must:g} ×" if must >= 1 else f"≤ {must:.0%}"
    form = "{:.2f}" if must >= 1 else "{:.1%}"
    middle, low, high = (form.format(one) for one in (median(ratios), min(ratios), max(ratios)))
    reached = "yes" if median(ratios) <= must else "**no**"
    return (
        f"| {work} | {median(floor):.3g} | {median(ours):.3g} | {middle} ({low}–{high})"
        f" | {told} | {reached} |"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="a small slice; writes no results file"
    )


def run(args: argparse.Namespace) -> None:
    rows = measure_learning(1_000, 1) if args.quick else measure_learning(SESSIONS, 9)
    text = render_section(rows, "python -m bench learn")
    print(text)
    if not args.quick:
        report.write_section("learning", text)
    if not all(check_one(rows)):
        raise SystemExit("learning one new session is too slow, or grows with the store")


def main(arguments: list[str]) -> Iterator[str]:
    what, path = arguments
    importlib.import_module(
        "rekindle.learning.notes.learner"
    )  # before the clock starts, in every run
    began = time.process_time()
    found = CHILDREN[what](Path(path))
    found["cpu"] = time.process_time() - began
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield json.dumps(found)


if __name__ == "__main__":
    print(*main(sys.argv[1:]))
