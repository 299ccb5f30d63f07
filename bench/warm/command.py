"""`python -m bench warm`: does a warm start help a real model?

    fetch    fetch the model and its engine
    record   run the training tasks, with a line of the handbook
    build    learn from the recorded sessions, and build a template
    run      run the test tasks in every arm, after any missing steps above
    table    print the table of results

`--tasks second` uses another set of tasks. An interrupted run resumes where it stopped. `--slice` is a
separate small run with fewer tasks, which writes no results.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bench.warm import proof_run, result_tables
from bench.warm.model import model_server, native_server
from bench.warm.proof_run import ProofRun
from bench.warm.result_tables import Row
from bench.warm.tasks.task_sets import SETS

from .. import report
from .right_calls import add_right_calls

STEPS = ("fetch", "record", "build", "run", "table")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--model", choices=tuple(model_server.KNOWN), default="1.5b")
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
    proof = ProofRun(args.model, args.slice, set=args.tasks, each=args.each)
    if args.step == "fetch":
        print(model_server.fetch_model(args.model))
        model_server.install_engine()
    elif args.step == "record":
        with serve_run(proof, args) as served:
            record_training(proof, served)
    elif args.step == "build":
        build_run_template(proof)
    else:
        if args.step == "run":
            with serve_run(proof, args) as served:
                run_tests(proof, served)
        print_table(proof, add_right_calls(proof, proof_run.read_rows(proof.ran)))


@contextmanager
def serve_run(proof: ProofRun, args: argparse.Namespace) -> Generator[model_server.ServedModel]:
    """Serve the model of a run, and record the program that serves it."""
    program = native_server.build_server() if args.native else args.server
    with model_server.serve_model(proof.model, args.threads, program) as served:
        proof.folder.mkdir(parents=True, exist_ok=True)
        used = proof.engine.read_text().split("; ") if proof.engine.exists() else []
        proof.engine.write_text(
            "; ".join(dict.fromkeys([*used, model_server.describe_engine(program)]))
        )
        yield served


def record_training(proof: ProofRun, served: model_server.ServedModel) -> None:
    print_training(proof_run.record_training(proof, served))


def print_training(rows: Sequence[Row]) -> None:
    done = sum(row["success"] for row in rows)
    print(f"{len(rows)} training sessions, {done} of them did their task", flush=True)


def build_run_template(proof: ProofRun) -> None:
    template, scan, _ = proof_run.build_run_template(proof)
    print(
        f"template “{template.name}”: {len(template.notes)} notes from {scan.qualified} of"
        f" {scan.scanned} sessions; {proof.templates.get_path(template.id)}",
        flush=True,
    )


def run_tests(proof: ProofRun, served: model_server.ServedModel) -> None:
    if record_missing(proof, served) or not proof.templates.get_path(proof_run.NAME).exists():
        build_run_template(proof)
    proof_run.run_tests(proof, served)


def record_missing(proof: ProofRun, served: model_server.ServedModel) -> bool:
    """Record the training tasks that are not yet recorded; return whether there were any."""
    recorded = {row["task"] for row in proof_run.read_rows(proof.recorded)}
    missing = [one for one in proof.list_tasks("train") if one.id not in recorded]
    if missing:
        print(f"{len(missing)} training tasks left to record", flush=True)
        print_training(proof_run.record_training(proof, served))
    return bool(missing)


def print_table(proof: ProofRun, rows: Sequence[Row]) -> None:
    if not rows:
        print("no results yet: run `python -m bench warm run` first")
        return
    text = result_tables.render_section(rows, describe_run(proof, rows))
    print(text)
    wanted = {(task.id, arm) for task in proof.list_tasks("test") for arm in proof.arms}
    if missing := wanted - {(row["task"], row["arm"]) for row in rows}:
        print(f"{len(missing)} of {len(wanted)} sessions are missing; no results were written")
    elif not proof.is_slice:
        name = proof.model if proof.set == "first" else f"{proof.model}-{proof.set}"
        report.write_section(f"warm-{name}", text)


def describe_run(proof: ProofRun, rows: Sequence[Row]) -> str:
    """Describe the tasks, the arms and the measures of a run."""
    recorded = proof_run.read_rows(proof.recorded)
    done = sum(row["success"] for row in recorded)
    newest = {
        row["session"]: row
        for kept in result_tables.group_by_arm(rows).values()
        for row in kept.values()
    }
    return (
        f"{describe_origin(proof, 'run', [*recorded, *newest.values()])}\n\n"
        f"{len(recorded)} training tasks, each given with the handbook line that solves it: {done} done."
        " The notes are learned from these sessions alone. A test task is the bare request and shares"
        " neither wording nor values with any training task. *warm* uses Rekindle's default settings,"
        " *placebo* general statements of the same length, *naive* the 12 most common commands and the"
        " 8 most common files. Arms that begin a task with the same messages share one session. A call"
        " is an error if its result says so or its command exits with a code other than 0; *made once"
        " more* counts calls that the session had already made. The *right call* succeeded and has"
        " every word of the handbook line, whatever the session did with its result; this column was"
        " added after the first results had been seen. Intervals are 95% intervals."
    )


def describe_origin(proof: ProofRun, step: str, ran: Iterable[Row]) -> str:
    """Describe the model, engine, command, machine, date and duration."""
    minutes = sum(row["seconds"] for row in ran) / 60
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    chosen = "" if proof.set == "first" else f" --tasks {proof.set}"
    chosen += f" --each {proof.each}" if proof.each else ""
    command = f"python -m bench warm {step} --model {proof.model}{chosen}"
    return (
        f"{model_server.KNOWN[proof.model].title} ({proof.engine.read_text()}), greedy, at most"
        f" {proof_run.agent.STEPS} steps a task; `{command}{' --slice' if proof.is_slice else ''}`,"
        f" {report.describe_machine()}, {now}; the sessions took {minutes:.0f} minutes in total."
    )
