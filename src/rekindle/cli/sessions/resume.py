"""`rekindle resume`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

import typer

from rekindle.cli.output import JsonOption, print_json, print_line, print_notice
from rekindle.cli.session_choice import complete_session
from rekindle.cli.store_access import (
    load_settings,
    open_for_reading,
    open_for_writing,
    set_store_override,
)
from rekindle.config import get_home_and_env, is_url
from rekindle.errors import NotFound, RekindleError

from .restore import describe_changes

if TYPE_CHECKING:
    from rekindle.coding_agents.resume import ResumePlan
    from rekindle.store import Store
    from rekindle.transcripts.restore import RestorePlan
    from rekindle.types import Session

_MAX_ERROR_CHARS = 500


ResumeTarget: TypeAlias = Literal["claude-code", "codex", "opencode", "pi", "gemini", "chat"]


class PreparedResume(NamedTuple):
    """A session that is ready to be resumed: everything it needs is written."""

    session: Session
    plan: ResumePlan
    restore: RestorePlan | None

    @property
    def notes(self) -> list[str]:
        """What the user should know."""
        notes = [self.plan.note] if self.plan.note else []
        if self.restore is not None and self.restore.conversation.omitted:
            notes.append(describe_changes(self.restore.conversation.omitted))
        return notes


def resume_session(
    name: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SESSION]...",
            help="Session id, id prefix, or title.",
            show_default="the last session of this project",
            autocompletion=complete_session,
        ),
    ] = None,
    target: Annotated[
        ResumeTarget | None,
        typer.Option(
            "--in", help="Agent that continues the session.", show_default="the session's own"
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder to continue in.", show_default="the session's own"
        ),
    ] = None,
    print_command: Annotated[
        bool, typer.Option("--print", help="Print the shell command instead of running it.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Continue a session in its own agent and its own folder, or hand it over to another agent.

    If the agent has deleted the session, it is put back first. Another agent gets a copy: tool calls
    that it does not have become text, and nothing is invented. --print and --json prepare everything
    and start nothing.

    \b
    Examples:
      rekindle resume
      rekindle resume 4b1b8203
      rekindle resume Fix the login test --in codex
      rekindle resume 4b1b8203 --in chat --folder ~/src/app
      rekindle resume 4b1b8203 --print
    """
    chosen = str(folder.expanduser().absolute()) if folder else None
    starts = not (json or print_command)
    ready = prepare_session(" ".join(name or ()), target, chosen, starts=starts)
    if json:
        _print_ready_json(ready)
    elif print_command:
        from rekindle.coding_agents.resume import render_command

        for note in ready.notes:
            print_notice(note)
        print_line(render_command(ready.plan))
    else:
        start_session(ready)


def prepare_session(
    name: str, target: str | None = None, folder: str | None = None, *, starts: bool = True
) -> PreparedResume:
    """Find a session (default: the last one of this project), and write the files that its agent needs.

    If it is to be started, raise NotFound before anything is written for an agent that is missing.
    """
    from rekindle.coding_agents.resume import find_resumable, prepare_resume
    from rekindle.transcripts.restore import record_copy, write_restored_file
    from rekindle.transcripts.writers.places import UserFolders

    home, env = get_home_and_env()
    folders = UserFolders(home, env, load_settings().home / "restored")
    with open_for_reading() as store:
        named = _find_named_session(store, name)
        session = find_resumable(store, named)
        plan, restore = prepare_resume(store, session, folders, target=target, folder=folder)
    _require_folder(plan, session, target, is_given=folder is not None)
    if starts:
        _find_program(plan, session)
    if session.id != named.id:
        print_notice(f"{named.id} is part of session {session.id}, which is resumed.")
    if restore is not None:
        if not restore.is_present:
            write_restored_file(restore)
        if restore.conversation.id != session.id:
            with open_for_writing() as store:
                record_copy(store, restore)
    return PreparedResume(session, plan, restore)


def start_session(ready: PreparedResume) -> None:
    """Replace this process with the agent, in the session's folder."""
    from rekindle.coding_agents.resume import CHAT

    plan = ready.plan
    _, env = get_home_and_env()
    program = _find_program(plan, ready.session)
    if plan.agent == CHAT:
        _start_chat(ready.session, plan.folder)
        return
    if plan.folder:
        os.chdir(plan.folder)
    for note in ready.notes:
        print_notice(note)
    environment = {**env, "PWD": plan.folder} if plan.folder else dict(env)
    for words in plan.preparation:
        print_notice(f"Running {words[0]} {words[1]} …")
        _run_preparation((program, *words[1:]), environment)
    if ready.restore is not None and ready.restore.is_staged:
        ready.restore.path.unlink(missing_ok=True)  # the agent has its own copy now
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program, plan.command, environment)


def _find_named_session(store: Store, name: str) -> Session:
    from rekindle.coding_agents.resume import find_last_session

    if name:
        return store.resolve(name)
    last = find_last_session(store, os.getcwd())
    if last is None:
        raise NotFound(
            "No session of this project yet. Name one: rekindle resume SESSION."
            " List them with: rekindle sessions list."
        )
    return last


def _require_folder(
    plan: ResumePlan, session: Session, target: str | None, *, is_given: bool
) -> None:
    if not plan.folder or os.path.isdir(plan.folder):
        return
    if is_given:
        raise NotFound(f"Folder not found: {plan.folder}.")
    agent = f" --in {target}" if target else ""
    raise NotFound(
        f"The folder of this session does not exist: {plan.folder}."
        f" Continue elsewhere: rekindle resume {session.id}{agent} --folder DIR."
    )


def _find_program(plan: ResumePlan, session: Session) -> str:
    """Return the path of the agent's program; raise NotFound with the agents that are installed."""
    from rekindle.coding_agents.resume import TARGETS, get_agent_program, get_agent_title

    if found := _find_installed(plan.agent):
        return found
    others = [agent for agent in TARGETS if _find_installed(agent)]
    raise NotFound(
        f"{get_agent_title(plan.agent)} is not installed: there is no command"
        f" {get_agent_program(plan.agent)}. These can continue the session: {', '.join(others)};"
        f" for example: rekindle resume {session.id} --in {others[0]}."
    )


def _find_installed(agent: str) -> str | None:
    """Return the path of an agent's program, if it is installed."""
    from rekindle.coding_agents.resume import CHAT, get_agent_program

    if agent == CHAT:
        return sys.executable  # it runs in this process
    _, env = get_home_and_env()
    found = shutil.which(get_agent_program(agent), path=env.get("PATH"))
    return os.path.abspath(found) if found else None


def _run_preparation(words: tuple[str, ...], environment: dict[str, str]) -> None:
    done = subprocess.run(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-_MAX_ERROR_CHARS:]
        raise RekindleError(f"{os.path.basename(words[0])} {words[1]} failed: {said}")


def _start_chat(session: Session, folder: str | None) -> None:
    from rekindle.cli.chat.session import ChatOptions, run_chat

    store = load_settings().store.url
    set_store_override(store if is_url(store) else os.path.abspath(store))
    if folder:
        os.chdir(folder)
    if code := run_chat(ChatOptions(resume=session.id)):
        raise typer.Exit(code)


def _print_ready_json(ready: PreparedResume) -> None:
    from rekindle.coding_agents.resume import render_command

    plan, restore = ready.plan, ready.restore
    print_json(
        {
            "session": ready.session.id,
            "agent": plan.agent,
            "id": plan.session,
            "folder": plan.folder,
            "command": list(plan.command),
            "shell": render_command(plan),
            "installed": _find_installed(plan.agent) is not None,
            "written": str(restore.path) if restore else None,
            "notes": ready.notes,
        }
    )
