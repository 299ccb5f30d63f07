"""Check an agent: is Rekindle installed, does it work, and which sessions are not imported yet."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rekindle.errors import InvalidInput
from rekindle.hooks.command import get_launcher, is_launcher_current
from rekindle.hooks.troubles import HookTrouble
from rekindle.pages.text import format_count
from rekindle.transcripts.discovery import DiscoveredFile, find_files, find_session_paths

from .agent import AgentFile, CodingAgent, InstallTarget
from .codex_trust import HookTrust
from .config_edit.config_file import decode_config, read_config
from .findings import AgentFinding, AgentReport, Installation, InstallState, SessionDeletion

DAY = 86_400.0
HORIZON_DAYS = 7  # how far ahead deletions are reported
# A session that goes on is imported when it ends; a file that rests longer than this is overdue.
PENDING_SECONDS = 3_600.0
TROUBLE_SECONDS = 7 * DAY


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a diagnosis is given to look at."""

    targets: Sequence[InstallTarget]  # the user's, and the project's if there is one
    now: float
    find_pending: Callable[[Sequence[DiscoveredFile]], Sequence[DiscoveredFile]]
    read_trust: Callable[[str], list[HookTrust] | None]  # given the program of Codex
    troubles: Sequence[HookTrouble] = ()

    @property
    def user(self) -> InstallTarget:
        return self.targets[0]


def diagnose_agent(agent: CodingAgent, around: Surroundings) -> AgentReport:
    """Check one agent."""
    findings: list[AgentFinding] = []
    installations: list[Installation] = []
    for target in around.targets:
        state, found = _check_installation(agent, target)
        findings += found
        files = tuple(str(file.path) for file in agent.list_files(target))
        installations.append(Installation(target.scope, state, files))
    program = _find_program(agent, around.user)
    is_installed = any(one.state != "not installed" for one in installations)
    if is_installed:
        findings += _check_troubles(agent, around)
        if agent.name == "codex" and program is not None:
            findings += _check_trust(around.read_trust(program))
    files = _list_session_files(agent, around.user)
    pending = {file.path for file in around.find_pending(files)}
    deletions = _find_deletions(agent, around, files, pending)
    findings += _check_sessions(files, pending, around.now)
    findings += _check_deletions(agent, deletions)
    return AgentReport(
        name=agent.name,
        title=agent.title,
        is_present=program is not None or bool(files),
        installations=tuple(installations),
        session_files=len(files),
        pending_files=len(pending),
        deletions=tuple(deletions),
        findings=tuple(findings),
    )


def _find_program(agent: CodingAgent, target: InstallTarget) -> str | None:
    """Return the path of the agent's program; never one that a repository could provide."""
    found = shutil.which(agent.program, path=target.env.get("PATH"))
    return found if found is not None and os.path.isabs(found) else None


# ── the installation


def _check_installation(
    agent: CodingAgent, target: InstallTarget
) -> tuple[InstallState, list[AgentFinding]]:
    findings: list[AgentFinding] = []
    states: set[str] = set()
    commands: list[str] = []
    for file in agent.list_files(target):
        try:
            text = _read_text(file)
            states |= {part.check_state(text) for part in file.parts}
            commands += [one for part in file.parts for one in part.list_commands(text)]
        except (InvalidInput, OSError) as error:
            problem = str(error)
            message = problem if str(file.path) in problem else f"{file.path}: {problem}"
            findings.append(AgentFinding("broken", message, "Fix the file"))
    options = " --project" if target.project is not None else ""
    install = f"rekindle install {agent.name}{options}"
    if findings:
        return "broken", findings
    if states <= {"absent"}:
        return "not installed", []
    if states != {"present"} and (message := _describe_difference(agent, target)):
        findings.append(AgentFinding("stale", message, install))
    for program in _find_missing_programs(commands, target):
        findings.append(AgentFinding("broken", f"{program} does not exist", install))
    if target.project is None and not is_launcher_current(target.rekindle_home):
        message = "The launcher of the hooks belongs to another installation of Rekindle"
        if get_launcher(target.rekindle_home).exists():
            findings.append(AgentFinding("stale", message, install))
    if switch := agent.find_hook_switch(target):
        message = f"{agent.title} runs no hooks: its setting {switch} turns them off"
        findings.append(AgentFinding("disabled", message, f"Change {switch}"))
    return ("stale" if findings else "installed"), findings


def _describe_difference(agent: CodingAgent, target: InstallTarget) -> str:
    """Describe how the entries differ from those to install; empty if they need not be the same."""
    other = replace(target, before_call=not target.before_call)
    if not _is_complete(agent, other):
        return f"The entries in the {target.scope}'s configuration are outdated or incomplete"
    if target.before_call:
        return "The setting warm.before_call is on, but its hook is not installed"
    if target.project is not None:
        return ""  # the hook is there for others who work on the project
    return "The setting warm.before_call is off, but its hook is still installed"


def _is_complete(agent: CodingAgent, target: InstallTarget) -> bool:
    """Return whether all files have the entries of an installation."""
    return all(
        part.check_state(_read_text(file)) == "present"
        for file in agent.list_files(target)
        for part in file.parts
    )


def _read_text(file: AgentFile) -> str:
    return decode_config(file.path, read_config(file.path))


def _find_missing_programs(commands: Sequence[str], target: InstallTarget) -> Iterator[str]:
    """Yield the programs that the commands name and that cannot be run."""
    programs: dict[str, None] = {}
    for command in commands:
        try:
            words = shlex.split(command)
        except ValueError:
            words = [command]
        programs |= dict.fromkeys(words[:1])
    for program in programs:
        if shutil.which(program, path=target.env.get("PATH")) is None:
            yield program


def _check_trust(hooks: list[HookTrust] | None) -> Iterator[AgentFinding]:
    if hooks is None:
        message = "Codex did not say whether its user has trusted the hooks"
        yield AgentFinding("untrusted", message, "Look at /hooks in Codex", needs_attention=False)
        return
    skipped = [hook.event for hook in hooks if not (hook.is_trusted and hook.is_enabled)]
    if skipped:
        names = ", ".join(skipped)
        message = f"Codex skips hooks that you have not trusted: {names}"
        yield AgentFinding("untrusted", message, "Start codex, open /hooks, and trust them")
    elif not hooks:
        message = "Codex does not know the hooks"
        yield AgentFinding("untrusted", message, "Look at /hooks in Codex")


def _check_troubles(agent: CodingAgent, around: Surroundings) -> Iterator[AgentFinding]:
    recent = [
        one
        for one in around.troubles
        if one.hook.split(" ")[0] == agent.name and around.now - one.time < TROUBLE_SECONDS
    ]
    if recent:
        last = recent[-1]
        message = (
            f"{format_count(len(recent), 'hook')} failed; the last ({last.hook}): {last.reason}"
        )
        yield AgentFinding("hook-failures", message, "rekindle doctor --clear forgets them")


# ── sessions


def _list_session_files(agent: CodingAgent, target: InstallTarget) -> list[DiscoveredFile]:
    paths = find_session_paths(target.home, target.env, agent.transcripts)
    return [*find_files(paths, lambda path, reason: None)]


def _check_sessions(
    files: Sequence[DiscoveredFile], pending: set[str], now: float
) -> Iterator[AgentFinding]:
    overdue = sum(
        1 for file in files if file.path in pending and now - file.mtime > PENDING_SECONDS
    )
    if overdue:
        message = f"{format_count(overdue, 'session file')} not imported yet"
        yield AgentFinding("not-imported", message, "rekindle import")


def _find_deletions(
    agent: CodingAgent,
    around: Surroundings,
    files: Sequence[DiscoveredFile],
    pending: set[str],
) -> list[SessionDeletion]:
    """Return the sessions that the agent will delete soon, the first one first."""
    days = agent.find_retention_days(around.user)
    if days is None:
        return []
    limit = around.now + HORIZON_DAYS * DAY
    found = [
        SessionDeletion(file.path, file.mtime + days * DAY, file.path not in pending)
        for file in files
        if file.mtime + days * DAY <= limit and Path(file.path).suffix in (".jsonl", ".json")
    ]
    return sorted(found, key=lambda one: (one.time, one.file))


def _check_deletions(
    agent: CodingAgent, deletions: Sequence[SessionDeletion]
) -> Iterator[AgentFinding]:
    lost = sum(1 for one in deletions if not one.is_imported)
    if lost:
        message = (
            f"{agent.title} will delete {format_count(lost, 'session file')} within {HORIZON_DAYS} days"
            " that Rekindle has not imported"
        )
        yield AgentFinding("deletion", message, "rekindle import")
    if kept := len(deletions) - lost:
        files = format_count(kept, "session file")
        message = (
            f"{agent.title} will delete {files} within {HORIZON_DAYS} days;"
            " Rekindle keeps the sessions"
        )
        yield AgentFinding("deletion", message, needs_attention=False)
