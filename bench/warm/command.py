"""`python -m bench warm`: does a warm start help a real model?

    fetch    bring the model and its engine
    record   run the training tasks, with a line of the handbook
    build    learn from the recorded sessions, and build a template
    run      the test tasks in every arm, after whatever of the above is missing
    table    the table of what was run

`--tasks second` does it with a set of tasks of another kind. A run that was stopped goes on where it
was. `--slice` is a small course by itself: fewer tasks, and nothing of it goes into the results file.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from .. import report
from . import course as courses
from . import figures, model, native
from .course import Course
from .figures import Row
from .right_calls import add_right_calls
from .sets import SETS

STEPS = ("fetch", "record", "build", "run", "table")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--model", choices=tuple(model.KNOWN), default="1.5b")
    parser.add_argument("--tasks", choices=tuple(SETS), default="first", help="the set of tasks")
    parser.add_argument("--slice", action="store_true", help="fewer tasks; no results file")
    parser.add_argument(
        "--each", type=int, metavar="N", help="only the first N test tasks of each family"
    )
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="of the engine")
    server = parser.add_mutually_exclusive_group()
    server.add_argument(
        "--server", type=Path, metavar="FILE", help="a llama-server to use instead of the engine"
    )
    server.add_argument(
        "--native", action="store_true", help="build such a server for this processor, and use it"
    )


def run(args: argparse.Namespace) -> None:
    course = Course(args.model, args.slice, set=args.tasks, each=args.each)
    if args.step == "fetch":
        print(model.fetch_model(args.model))
        model.engine()
    elif args.step == "record":
        with serve(course, args) as served:
            record(course, served)
    elif args.step == "build":
        build(course)
    else:
        if args.step == "run":
            with serve(course, args) as served:
                test(course, served)
        show(course, add_right_calls(course, courses.read_rows(course.ran)))


@contextmanager
def serve(course: Course, args: argparse.Namespace) -> Generator[model.Served]:
    """Serve the model of the course, and write down by what."""
    program = native.build_server() if args.native else args.server
    with model.serving(course.model, args.threads, program) as served:
        course.folder.mkdir(parents=True, exist_ok=True)
        used = course.engine.read_text().split("; ") if course.engine.exists() else []
        course.engine.write_text("; ".join(dict.fromkeys([*used, model.describe_engine(program)])))
        yield served


def record(course: Course, served: model.Served) -> None:
    print_training(courses.record(course, served))


def print_training(rows: Sequence[Row]) -> None:
    done = sum(row["success"] for row in rows)
    print(f"{len(rows)} training sessions, {done} of them did their task", flush=True)


def build(course: Course) -> None:
    template, scan, _ = courses.build(course)
    print(
        f"template “{template.name}”: {len(template.notes)} notes from {scan.qualified} of"
        f" {scan.scanned} sessions; {course.templates.get_path(template.id)}",
        flush=True,
    )


def test(course: Course, served: model.Served) -> None:
    if record_missing(course, served) or not course.templates.get_path(courses.NAME).exists():
        build(course)
    courses.run(course, served)


def record_missing(course: Course, served: model.Served) -> bool:
    """Record the training tasks that are not recorded yet; return whether there were any."""
    recorded = {row["task"] for row in courses.read_rows(course.recorded)}
    missing = [one for one in course.tasks("train") if one.id not in recorded]
    if missing:
        print(f"{len(missing)} training tasks are to be recorded", flush=True)
        print_training(courses.record(course, served))
    return bool(missing)


def show(course: Course, rows: Sequence[Row]) -> None:
    if not rows:
        print("nothing was run yet")
        return
    text = figures.table(rows, head(course, rows))
    print(text)
    wanted = {(task.id, arm) for task in course.tasks("test") for arm in course.arms}
    if missing := wanted - {(row["task"], row["arm"]) for row in rows}:
        print(f"{len(missing)} of {len(wanted)} sessions are missing: no results file is written")
    elif not course.is_slice:
        name = course.model if course.set == "first" else f"{course.model}-{course.set}"
        report.write(f"warm-{name}", text)


def head(course: Course, rows: Sequence[Row]) -> str:
    """Describe what was run, with what, and how long it took."""
    recorded = courses.read_rows(course.recorded)
    done = sum(row["success"] for row in recorded)
    newest = {
        row["session"]: row for kept in figures.group_by_arm(rows).values() for row in kept.values()
    }
    return (
        f"{origin(course, 'run', [*recorded, *newest.values()])}\n\n"
        f"{len(recorded)} training tasks, asked with the line of the handbook that does them:"
        f" {done} done. What is known is learned from these sessions alone. A test task is the bare"
        " request, and shares neither wording nor values with any of them. *warm* is what Rekindle"
        " tells with its usual settings, *placebo* general statements of the same length, *naive* the"
        " 12 commonest commands and the 8 commonest files. Arms that"
        " begin a task alike share one session. A call is an error if it says so or its command ends"
        " with another code than 0; *made once more* are calls that the session had made before. The"
        " *right call* is one that succeeded and has every word of the handbook's line, whatever the"
        " session made of its result; it was counted after the first results were seen."
        " Intervals are of 95%."
    )


def origin(course: Course, step: str, ran: Iterable[Row]) -> str:
    """Model, engine, command, machine, day, and how long the sessions took."""
    minutes = sum(row["seconds"] for row in ran) / 60
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    chosen = "" if course.set == "first" else f" --tasks {course.set}"
    chosen += f" --each {course.each}" if course.each else ""
    command = f"python -m bench warm {step} --model {course.model}{chosen}"
    return (
        f"{model.KNOWN[course.model].title} ({course.engine.read_text()}), greedy, at most"
        f" {courses.agent.STEPS} steps a task; `{command}{' --slice' if course.is_slice else ''}`,"
        f" {report.machine()}, {now}; the sessions took {minutes:.0f} minutes together."
    )
