"""`rekindle doctor`: show what is installed, what is wrong, and how to fix it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    JsonOption,
    StyledText,
    format_count,
    format_time,
    print_json,
    print_line,
    write_styled,
)
from rekindle.cli.store_access import load_settings, open_for_reading
from rekindle.config import get_home_and_env, is_url
from rekindle.errors import StoreError

from .control_share import print_control_share

if TYPE_CHECKING:
    from rekindle.coding_agents.doctor import Surroundings
    from rekindle.coding_agents.findings import AgentReport
    from rekindle.sandbox.sandbox import Sandbox
    from rekindle.store import Store
    from rekindle.transcripts.discovery import DiscoveredFile

_MAX_DELETIONS_SHOWN = 3


def check_agents(
    clear: Annotated[
        bool, typer.Option("--clear", help="Forget the hook failures recorded so far.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check the agents on this machine: installation, hooks, sessions not imported or soon deleted.

    Exit with code 1 if something needs your attention.

    \b
    Examples:
      rekindle doctor
      rekindle doctor --json
    """
    from rekindle.coding_agents.agents import AGENTS
    from rekindle.coding_agents.doctor import diagnose_agent
    from rekindle.hooks.troubles import clear_troubles

    if clear:
        clear_troubles(load_settings().home)
    with ExitStack() as stack:
        pending = _PendingFiles(stack)
        around = _look_around(pending)
        reports = [diagnose_agent(agent, around) for agent in AGENTS.values()]
    sandbox = _open_sandbox()
    problem = pending.problem
    needs_attention = bool(problem) or any(report.needs_attention for report in reports)
    if json:
        agents = [{**asdict(one), "needs_attention": one.needs_attention} for one in reports]
        print_json(
            {
                "ok": not needs_attention,
                "store_problem": problem,
                "sandbox": {"mode": sandbox.mode, "description": sandbox.describe_mode()},
                "agents": agents,
            }
        )
    else:
        _print_reports(reports, problem)
        print_line(f"Sandbox for commands of `rekindle chat`: {sandbox.describe_mode()}.")
        print_control_share()
    if needs_attention:
        raise typer.Exit(1)


def _open_sandbox() -> Sandbox:
    from rekindle.sandbox.detection import open_sandbox
    from rekindle.sandbox.sandbox import SandboxOptions

    settings = load_settings().sandbox
    return open_sandbox(settings.mode, SandboxOptions(network=settings.network))


class _PendingFiles:
    """Finds the files that the store does not have; remembers why it could not look."""

    def __init__(self, stack: ExitStack) -> None:
        self.problem: str | None = None
        self._stack = stack
        self._store: Store | None = None

    def find(self, files: Sequence[DiscoveredFile]) -> Sequence[DiscoveredFile]:
        """Return the files that are not imported; all of them if there is no store yet."""
        from rekindle.transcripts.discovery import find_pending_files

        if not files or self.problem:
            return []
        try:
            if self._store is None:
                url = load_settings().store.url
                if not is_url(url) and not Path(url).exists():
                    return files
                self._store = self._stack.enter_context(open_for_reading(refresh=False))
            return find_pending_files(self._store, files)
        except StoreError as error:
            self.problem = str(error)
            return []


def _look_around(pending: _PendingFiles) -> Surroundings:
    from rekindle.coding_agents.agent import InstallTarget
    from rekindle.coding_agents.codex_trust import read_codex_trust
    from rekindle.coding_agents.doctor import Surroundings
    from rekindle.coding_agents.install import find_repository_root
    from rekindle.hooks.troubles import read_troubles

    home, env = get_home_and_env()
    settings = load_settings()
    rekindle_home = settings.home
    user = InstallTarget(home, env, rekindle_home, before_call=settings.warm.before_call)
    targets = [user]
    folder = Path.cwd()
    root = find_repository_root(folder)
    if root is not None and root != home.resolve():
        targets.append(replace(user, project=root))
    return Surroundings(
        targets=targets,
        now=time.time(),
        find_pending=pending.find,
        read_trust=lambda program: read_codex_trust(program, folder, os.environ),
        troubles=read_troubles(rekindle_home),
    )


def _print_reports(reports: Sequence[AgentReport], problem: str | None) -> None:
    shown = [one for one in reports if one.is_present or one.is_installed or one.needs_attention]
    if problem:
        write_styled([[StyledText("! ", "yellow"), StyledText(f"Store: {problem}")]])
    for report in shown:
        _print_report(report)
    if not shown:
        print_line("No agents found on this machine.")
    if not problem and not any(report.needs_attention for report in reports):
        print_line("Nothing needs your attention.")


def _print_report(report: AgentReport) -> None:
    states = [
        f"{one.state} for this {one.scope}"
        for one in report.installations
        if one.state != "not installed"
    ]
    installed = ", ".join(states) or "Rekindle is not installed"
    files = format_count(report.session_files, "session file")
    pending = f"{report.pending_files:,} not imported" if report.pending_files else "all imported"
    facts = f"{installed}; {files}{f', {pending}' if report.session_files else ''}"
    write_styled([[StyledText(report.title, "bold"), StyledText(": "), StyledText(facts)]])
    if not report.is_installed:
        print_line(f"    rekindle install {report.name}")
    for finding in report.findings:
        mark, style = ("!", "yellow") if finding.needs_attention else ("·", "dim")
        write_styled([[StyledText(f"  {mark} ", style), StyledText(finding.message)]])
        if finding.kind == "deletion":
            _print_deletions(report, is_imported=not finding.needs_attention)
        if finding.action:
            print_line(f"    {finding.action}")


def _print_deletions(report: AgentReport, *, is_imported: bool) -> None:
    chosen = [one for one in report.deletions if one.is_imported == is_imported]
    for one in chosen[:_MAX_DELETIONS_SHOWN]:
        print_line(f"    {format_time(one.time)}  {one.file}")
    if len(chosen) > _MAX_DELETIONS_SHOWN:
        print_line(f"    … and {len(chosen) - _MAX_DELETIONS_SHOWN:,} more; see --json")
