"""Separate a person's request from text that the agent's program added to the message."""

from __future__ import annotations

import re
from typing import NamedTuple

from rekindle.judging.outcomes.user_text import extract_user_text

_ELEMENT = re.compile(
    r"<(system-reminder|local-command-stdout|local-command-stderr|local-command-caveat|bash-stdout"
    r"|bash-stderr|ide_opened_file|ide_selection|ide_diagnostics|user-prompt-submit-hook"
    r"|environment_context|user_instructions|subagent_notification|task-notification|turn_aborted"
    r"|permissions instructions|INSTRUCTIONS|command-contents|skill|hook_context)>"
)
_COMMAND = re.compile(r"<command-name>\s*(/?[^<]{1,100})</command-name>")
_COMMAND_ARGUMENTS = re.compile(r"<command-args>([^<]{0,4000})</command-args>")
_COMMAND_TAGS = re.compile(r"<(command-(?:name|message|args))>[^<]{0,4000}</\1>")
_SHELL_INPUT = re.compile(r"<bash-input>([^<]{0,4000})</bash-input>")
# They work on the program, not on the task.
_LOCAL_COMMANDS = frozenset(
    (
        "agents", "bug", "clear", "compact", "config", "context", "copy", "cost", "doctor", "effort",
        "exit", "export", "fast", "feedback", "help", "hooks", "ide", "login", "logout", "mcp", "memory",
        "model", "permissions", "plugin", "quit", "release-notes", "rename", "resume", "status",
        "statusline", "terminal-setup", "theme", "upgrade", "usage", "vim",
    )
)  # fmt: skip
_INTERRUPTED = "[Request interrupted by user"
_SUMMARY = ("This session is being continued", "Another language model started")
_NOTIFICATION_END = "Full transcript available at"
_MAX_TITLE_CHARS = 140


class Prompt(NamedTuple):
    """A message of the user's role.

    `kind` is `prompt` (words of a person), `command`, `event` (a command to the agent's program),
    `interruption`, `summary` of a compaction, or `context` (written by a program). `context` holds
    what a program added to the text.
    """

    kind: str
    title: str
    text: str
    context: str = ""


def read_prompt(text: str) -> Prompt:
    """Return the person's request in the message, and the text that a program added."""
    stripped = text.strip()
    if stripped.startswith(_INTERRUPTED):
        return Prompt("interruption", "Interrupted by the user", "")
    if stripped.startswith(_SUMMARY):
        return Prompt("summary", "Summary of the conversation so far", "", stripped)
    own, context = _split_elements(stripped)
    if command := _COMMAND.search(own):
        arguments = _COMMAND_ARGUMENTS.search(own)
        words = (
            f"/{command[1].strip().lstrip('/')} {arguments[1].strip() if arguments else ''}".strip()
        )
        if words.split()[0].lstrip("/") in _LOCAL_COMMANDS:
            return Prompt("event", _shorten_title(words), "")
        rest = _COMMAND_TAGS.sub("", own).strip()
        return Prompt(
            "command", _shorten_title(words), words, "\n\n".join(filter(None, (rest, context)))
        )
    if shell := _SHELL_INPUT.search(own):
        return Prompt(
            "command", _shorten_title(f"! {shell[1].strip()}"), f"! {shell[1].strip()}", context
        )
    if not own or (context and own.startswith(_NOTIFICATION_END)):
        return Prompt("context", "Added by the agent's program", "", stripped)
    title = extract_user_text(own) or own
    return Prompt("prompt", _shorten_title(title), own, context)


def _split_elements(text: str) -> tuple[str, str]:
    """Split the elements that programs add off the text."""
    kept: list[str] = []
    added: list[str] = []
    at = 0
    while opening := _ELEMENT.search(text, at):
        closing = f"</{opening[1].split()[0]}>"
        end = text.find(closing, opening.end())
        end = len(text) if end < 0 else end + len(closing)
        kept.append(text[at : opening.start()])
        added.append(text[opening.start() : end])
        at = end
    kept.append(text[at:])
    return "".join(kept).strip(), "\n".join(added)


def _shorten_title(text: str) -> str:
    line = " ".join(text[: _MAX_TITLE_CHARS * 4].split())
    return line if len(line) <= _MAX_TITLE_CHARS else line[: _MAX_TITLE_CHARS - 1].rstrip() + "…"
