"""An experiment with sessions of real coding agents: is its effect measured correctly?

    python -m bench agents [--quick]

Claude Code and Codex run headless, with Rekindle installed into them, in an experiment that assigns
half of their sessions to be cold. Their model is scripted: it runs a command that fails here unless
its context names the command that works. The effect is therefore known in advance, and the benchmark
checks whether hooks, import and report agree with it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.agents.hook_setup import FAILING_COMMAND, FIX, open_lab_store, stop_helper, teach
from tests.agents.lab import AgentLab
from tests.agents.model_server import ModelServer
from tests.agents.programs import install_agent

from bench import report

AGENTS = ("claude-code", "codex")
SESSIONS = 20
IMPORT_SECONDS = 60.0
PROMPT = f"Please check the shop.\nrun: {FAILING_COMMAND}"


def run_rekindle(lab: AgentLab, *words: str) -> str:
    """Run `rekindle` in the home of a lab."""
    env = {**os.environ, "HOME": str(lab.home), "REKINDLE_HOME": str(lab.rekindle_home)}
    command = [sys.executable, "-m", "rekindle.cli", *words]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def run_sessions(agent: str, folder: Path, sessions: int) -> dict[str, Any]:
    """Run sessions of one agent in an experiment and return its report."""
    model = ModelServer(instead={FAILING_COMMAND: FIX})
    lab = AgentLab(agent, install_agent(agent), folder / agent, model)
    (lab.repository / "shop.mk").write_text("lint-shop:\n\t@echo clean\n")
    teach(lab)
    run_rekindle(lab, "install", agent, "--yes")
    run_rekindle(lab, "warm", "experiment", "start", "bench")
    names = [lab.run(PROMPT).session for _ in range(sessions)]
    imported = wait_for_import(lab, names)
    for name in names:  # otherwise they count only after an hour without a message
        run_rekindle(lab, "sessions", "end", name)
    found = json.loads(run_rekindle(lab, "warm", "experiment", "report", "bench", "--json"))
    run_rekindle(lab, "uninstall", agent, "--yes")
    stop_helper(lab.rekindle_home)
    model.close()
    return {"agent": agent, "sessions": sessions, "imported": imported, "report": found}


def wait_for_import(lab: AgentLab, names: list[str]) -> int:
    """Wait for the import of the sessions, up to a time limit, and return how many are stored."""
    deadline = time.monotonic() + IMPORT_SECONDS
    while True:
        with open_lab_store(lab) as store:
            stored = {one.id for one in store.recent(1_000)}
        found = sum(name in stored for name in names)
        if found == len(names) or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def build_table(results: list[dict[str, Any]]) -> str:
    lines = [
        "## Experiment on sessions of real agents",
        "",
        f"`python -m bench agents`, {report.describe_machine()}. Sessions of the real programs, assigned"
        " to an arm by the start hook. The model is scripted: it runs a command that fails here, unless"
        " it was told the one that works. The true error rates are therefore 100% cold and 0% warm.",
        "",
        "| agent | sessions | in the store | arm | assigned | told | calls | errors |",
        "|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for one in results:
        for arm in one["report"]["arms"]:
            lines.append(
                f"| {one['agent']} | {one['sessions']} | {one['imported']} | {arm['arm']} |"
                f" {arm['assigned']} | {arm['given']} | {arm['rate']['calls']} |"
                f" {arm['rate']['errors']} |"
            )
    lines.append("")
    for one in results:
        lines.append(f"{one['agent']}: {' '.join(one['report']['summary'])}")
    return "\n".join([*lines, ""])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="few sessions; writes no results")


def run(args: argparse.Namespace) -> None:
    sessions = 4 if args.quick else SESSIONS
    with tempfile.TemporaryDirectory() as folder:
        results = [run_sessions(agent, Path(folder), sessions) for agent in AGENTS]
    table = build_table(results)
    print(table)
    if not args.quick:
        report.write_section("agents", table)
