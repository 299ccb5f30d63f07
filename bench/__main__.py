"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from bench.runner import lock_checkout


class Bench(NamedTuple):
    """A command: its help, and the module with its options and with what it runs."""

    help: str
    module: str
    add_arguments: str = "add_arguments"
    run: str = "run"
    is_locked: bool = True  # whether a second benchmark would disturb its figures

    def load_function(self, name: str) -> Callable[..., None]:
        """Return a function of the module, which may need packages that others do not."""
        return getattr(import_module(f"bench.{self.module}"), name)


BENCHES = {
    "store": Bench(
        "the store against raw floors and peers",
        "store.command",
        "add_store_arguments",
        "run_store",
    ),
    "growth": Bench("the store as it grows", "store.command", "add_growth_arguments", "run_growth"),
    "import": Bench("an import against its floor", "transcripts.transcript_import"),
    "gateway": Bench("latency, and many conversations at once", "gateway.conversations"),
    "choose": Bench("the start of a warm session", "learning.warm_start"),
    "recall": Bench("recall on real histories", "learning.recall"),
    "agents": Bench("an experiment on real agents", "interfaces.agent_experiment"),
    "hooks": Bench("the time an agent waits for a hook", "interfaces.agent_hooks"),
    "refresh": Bench("the cost of a refresh before a read", "transcripts.refresh"),
    "redact": Bench("hostile, ordinary and planted text", "learning.redaction"),
    "learn": Bench("learning against reading the rows", "learning.session_learning"),
    "matrix": Bench("many rooms on a real Synapse", "gateway.matrix_rooms"),
    "parallel": Bench("one process, a pool, and a Dask cluster", "parallel"),
    "sums": Bench("usage and insights over many sessions", "learning.usage_and_insights"),
    "processes": Bench("background processes and peers", "processes.background_processes"),
    "integrations": Bench("turns in other frameworks", "integrations"),
    "picker": Bench("first paint and keystrokes", "interfaces.picker"),
    "sandbox": Bench("the start of a confined command", "processes.sandbox_start"),
    "scale": Bench("one PostgreSQL for many machines", "scale.command"),
    "schedule": Bench("idle cost and delay of jobs", "gateway.scheduled_jobs"),
    "attacks": Bench("attacks from inside the sandbox", "processes.sandbox_attacks"),
    "warm": Bench("warm starts with a real model", "warm.command"),
    "web": Bench("pages in a real browser", "interfaces.web_pages"),
    "judge": Bench("verdicts against hidden labels", "learning.judging", is_locked=False),
}


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """Parse the arguments of a benchmark; only its own module is loaded."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, bench in BENCHES.items():
        command = commands.add_parser(name, help=bench.help)
        if words[:1] == [name]:
            bench.load_function(bench.add_arguments)(command)
    return parser.parse_args(words)


def main() -> None:
    try:
        args = parse_arguments(sys.argv[1:])
        bench = BENCHES[args.command]
        run = bench.load_function(bench.run)
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is not installed. Run `python3 bootstrap.py setup --dev` first.")
    if bench.is_locked:
        with lock_checkout():
            run(args)
    else:
        run(args)


if __name__ == "__main__":
    main()
