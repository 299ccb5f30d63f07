"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

from bench import integrations, parallel
from bench.gateway import conversations, matrix_rooms, scheduled_jobs
from bench.interfaces import agent_experiment, agent_hooks, picker, web_pages
from bench.learning import (
    judging,
    recall,
    redaction,
    session_learning,
    usage_and_insights,
    warm_start,
)
from bench.processes import background_processes, sandbox_attacks, sandbox_start
from bench.runner import lock_checkout
from bench.scale import command as scale
from bench.store import command as store
from bench.transcripts import refresh, transcript_import
from bench.warm import command as warm


class Bench(NamedTuple):
    """A command: its help, its options and what it runs."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
    is_locked: bool = True  # whether a second benchmark would disturb its figures


BENCHES = {
    "store": Bench(
        "the store against raw floors and peers", store.add_store_arguments, store.run_store
    ),
    "growth": Bench("the store as it grows", store.add_growth_arguments, store.run_growth),
    "import": Bench(
        "an import against its floor", transcript_import.add_arguments, transcript_import.run
    ),
    "gateway": Bench(
        "latency, and many conversations at once", conversations.add_arguments, conversations.run
    ),
    "choose": Bench("the start of a warm session", warm_start.add_arguments, warm_start.run),
    "recall": Bench("recall on real histories", recall.add_arguments, recall.run),
    "agents": Bench(
        "an experiment on real agents", agent_experiment.add_arguments, agent_experiment.run
    ),
    "hooks": Bench(
        "the time an agent waits for a hook", agent_hooks.add_arguments, agent_hooks.run
    ),
    "refresh": Bench("the cost of a refresh before a read", refresh.add_arguments, refresh.run),
    "redact": Bench("hostile, ordinary and planted text", redaction.add_arguments, redaction.run),
    "learn": Bench(
        "learning against reading the rows", session_learning.add_arguments, session_learning.run
    ),
    "matrix": Bench("many rooms on a real Synapse", matrix_rooms.add_arguments, matrix_rooms.run),
    "parallel": Bench(
        "one process, a pool, and a Dask cluster", parallel.add_arguments, parallel.run
    ),
    "sums": Bench(
        "usage and insights over many sessions",
        usage_and_insights.add_arguments,
        usage_and_insights.run,
    ),
    "processes": Bench(
        "background processes and peers",
        background_processes.add_arguments,
        background_processes.run,
    ),
    "integrations": Bench(
        "turns in other frameworks", integrations.add_arguments, integrations.run
    ),
    "picker": Bench("first paint and keystrokes", picker.add_arguments, picker.run),
    "sandbox": Bench(
        "the start of a confined command", sandbox_start.add_arguments, sandbox_start.run
    ),
    "scale": Bench("one PostgreSQL for many machines", scale.add_arguments, scale.run),
    "schedule": Bench(
        "idle cost and delay of jobs", scheduled_jobs.add_arguments, scheduled_jobs.run
    ),
    "attacks": Bench(
        "attacks from inside the sandbox", sandbox_attacks.add_arguments, sandbox_attacks.run
    ),
    "warm": Bench("warm starts with a real model", warm.add_arguments, warm.run),
    "web": Bench("pages in a real browser", web_pages.add_arguments, web_pages.run),
    "judge": Bench("verdicts against hidden labels", judging.add_arguments, judging.run, False),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, bench in BENCHES.items():
        bench.add_arguments(commands.add_parser(name, help=bench.help))
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    bench = BENCHES[args.command]
    if bench.is_locked:
        with lock_checkout():
            bench.run(args)
    else:
        bench.run(args)


if __name__ == "__main__":
    main()
