"""Build the command that agents run as a hook, and write the launcher that it starts.

The command names a launcher in Rekindle's home and nothing else that could change: neither the
version nor the folder of the package. Some agents, such as Codex, ask their user to trust a hook
again whenever its command changes. The launcher names the interpreter and the client; it is written
again when Rekindle moves.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from rekindle.errors import InvalidInput
from rekindle.files import write_new_file

HookEvent: TypeAlias = Literal["start", "prompt", "failure", "end", "compact", "call"]
HOOK_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
# The agents with hooks, and the names by which they know our events. OpenCode and pi have no
# commands as hooks: a plugin calls the command, with the same JSON and our names.
AGENT_EVENTS: Mapping[str, Mapping[HookEvent, str]] = MappingProxyType(
    {
        "claude-code": {
            "start": "SessionStart",
            "prompt": "UserPromptSubmit",
            "failure": "PostToolUseFailure",
            "end": "SessionEnd",
            "compact": "PreCompact",
            "call": "PreToolUse",
        },
        "codex": {
            "start": "SessionStart",
            "prompt": "UserPromptSubmit",
            "failure": "PostToolUse",
            "end": "SessionEnd",
            "compact": "PreCompact",
            "call": "PreToolUse",
        },
        # Gemini's PreCompress comes before every request, so it is of no use.
        "gemini": {
            "start": "SessionStart",
            "prompt": "BeforeAgent",
            "failure": "AfterTool",
            "end": "SessionEnd",
            "call": "BeforeTool",
        },
        "opencode": {event: event for event in HOOK_EVENTS},
        "pi": {event: event for event in HOOK_EVENTS},
    }
)
# Only the setting warm.before_call needs it, and it starts a process before every command.
CALL_EVENT: HookEvent = "call"
# The tools that the hook before a call is for, by the names that hooks know them by.
SHELL_TOOLS: Mapping[str, str] = MappingProxyType(
    {"claude-code": "Bash", "codex": "Bash", "gemini": "run_shell_command"}
)
HOOKS_FOLDER = "hooks"  # in the home: launcher, socket, what sessions were given, troubles
LAUNCHER = "run"
_LAUNCHER_PATH = f"/{HOOKS_FOLDER}/{LAUNCHER}"
_HOOK_VERB = ["rekindle", "hook"]
_CLIENT = Path(__file__).with_name("client.py")


def list_events(agent: str, *, before_call: bool) -> dict[HookEvent, str]:
    """Return the events that an agent needs hooks for, and the agent's names of them."""
    return {
        event: name
        for event, name in AGENT_EVENTS[agent].items()
        if before_call or event != CALL_EVENT
    }


def build_hook_command(agent: str, event: str, home: Path | None = None) -> str:
    """Build the command that an agent runs for an event: `<home>/hooks/run claude-code start`.

    It is the same in every version. It works once `write_launcher` has been called for the home; if
    the launcher is gone, the command prints nothing and succeeds, so that the agent goes on.
    """
    if event not in AGENT_EVENTS.get(agent, {}):
        raise InvalidInput(f"{agent} {event}: no such hook")
    launcher = get_launcher(_find_home() if home is None else home)
    return f"{shlex.quote(str(launcher))} {agent} {event} 2>/dev/null || true"


def build_shared_hook_command(agent: str, event: str) -> str:
    """Build the command for the configuration of a project, which several people share.

    It names no folder of any of them. Where Rekindle is not installed, it prints nothing and
    succeeds.
    """
    if event not in AGENT_EVENTS.get(agent, {}):
        raise InvalidInput(f"{agent} {event}: no such hook")
    return f"rekindle hook {agent} {event} 2>/dev/null || true"


def is_hook_command(command: str, agent: str) -> bool:
    """Return whether a command is a hook of Rekindle for this agent, of any home and version."""
    words = command.replace("'", " ").replace('"', " ").split()
    return any(
        words[at] == agent
        and words[at + 1] in HOOK_EVENTS
        and (words[at - 1].endswith(_LAUNCHER_PATH) or words[at - 2 : at] == _HOOK_VERB)
        for at in range(1, len(words) - 1)
    )


def get_launcher(home: Path) -> Path:
    """Return the path of a home's launcher."""
    return home / HOOKS_FOLDER / LAUNCHER


def build_launcher(home: Path) -> str:
    """Build the text of the launcher: a shell script that becomes the client."""
    # -I -S: neither the folder nor the environment of the agent decides what is imported.
    words = [sys.executable, "-I", "-S", str(_CLIENT), str(home)]
    return f'#!/bin/sh\n# Written by Rekindle.\nexec {shlex.join(words)} "$@"\n'


def write_launcher(home: Path) -> Path:
    """Write the launcher of a home, unless it is up to date; return its path."""
    launcher, text = get_launcher(home), build_launcher(home)
    if is_launcher_current(home):
        return launcher
    launcher.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_new_file(launcher, text, mode=0o700)
    return launcher


def is_launcher_current(home: Path) -> bool:
    """Return whether the launcher of a home starts this installation of Rekindle."""
    launcher = get_launcher(home)
    try:
        current = launcher.read_text(encoding="utf-8") == build_launcher(home)
    except (OSError, UnicodeDecodeError):
        return False
    return current and os.access(launcher, os.X_OK)


def run_hook(agent: str, event: str) -> None:
    """Run the launcher of the home for `rekindle hook`; renew the launcher if necessary."""
    from .client import run_client

    home = _find_home()
    try:
        write_launcher(home)
        run_client(str(home), agent, event)
    except OSError:
        pass  # there is no home to record it in


def _find_home() -> Path:
    from rekindle.config import find_home  # which loads all settings

    return find_home()
