"""Find what a person asked for in a message with the role of the user, in one line for titles.

Harnesses wrap requests in tags, put context of editors around them, and send notices of their own.
Unlike `user_text`, this keeps what was quoted or pasted: a title has to say what a session is about.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .user_text import SIMULATOR_SIGNAL

MAX_REQUEST_CHARS = 300
_MAX_CHARS = 20_000  # of a message; a request stands at its beginning or end


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Elements with a word of these in their name describe the surroundings, not the request. A name of
# one word does so only at the beginning of a line: people write about tags, too.
_CONTEXT_WORDS = _split_words(
    """
    aborted apps attachments attached attribute available caveat context datetime details
    diagnostics environment environments hook hooks info information instruction instructions
    layout local mode notification permissions personality plugins preview recently reminder
    rules selection skill skills snapshot status stderr stdout system timestamp
    """
)
_CONTEXT_ELEMENTS = _split_words(
    """
    bash-input command-name command-message command-args command-contents file ide_opened_file
    image path content persisted-output task-id teammate-message tool_use_error bash-stdout
    bash-stderr uploaded_files user_action user_shell_command user-memory-input function_results
    proposed_plan model_switch microagent summary
    """
)
# Elements that hold the request itself.
_REQUEST_ELEMENT = re.compile(
    r"<(user_query|user-query|userRequest|user_request|user_message|user-message|task|feedback)>"
)
_REQUEST_HEADING = re.compile(r"(?m)^(?:## My request for \w+:|\[\[ ## user_query ## \]\])[ \t]*$")
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]{0,60})(?:[ \t][^<>\n]{0,300})?>")
# These begin with the end of the line before, which is found much faster than a line's beginning.
_TAG_LINE = re.compile(r"\n[ \t]*</?[A-Za-z][\w-]{0,60}>[ \t]*(?=\n|\Z)")
_HEADING_MARK = re.compile(r"\n[ \t]{0,3}#{1,6}[ \t]+")
_RULE_LINE = re.compile(r"\n[ \t]*(?:[-=*_]{3,}|```\w{0,20})[ \t]*(?=\n|\Z)")
_IMAGE_MARK = re.compile(r"\[Image(?: #\d{1,3}|: [^\]\n]{0,300})\]")
_SLASH_COMMAND = re.compile(r"/([A-Za-z][\w:.-]{0,80})(?=\s|$)")
_WORD_SPLIT = re.compile(r"[_-]|(?<=[a-z])(?=[A-Z])")
# Files that a harness appends to the request.
_APPENDED = ("\n--- Content from referenced files ---",)
# Messages that no person wrote, and that ask for nothing.
_NOTICES = (
    "Caveat: The messages below",
    "# AGENTS.md instructions",
    "# Context from my IDE setup",
    "[Request interrupted",
    "This session is being continued from",
    "Base directory for this skill",
    "Stop hook feedback",
    "Another language model started to solve",
    "API Error",
    "Operation stopped by",
    "Called the Read tool with the following input",
    "This is the Gemini CLI. We are setting up the context",
    "[SYSTEM NOTIFICATION",
    "[System note",
    "System: ",
)
# What a program printed: a session is about it only if nothing else was asked.
_PRINTED = ("diff --git ", "Ran `")
# Commands that end or begin a conversation, or only arrange the screen.
_SILENT_COMMANDS = frozenset(("clear", "exit", "quit", "new", "reset", "logout", "login"))
# Commands of an agent's interface: they title a session only if nothing else was asked.
_INTERFACE_COMMANDS = _split_words(
    """
    add-dir agents allowed-tools approvals bashes bug color compact compress config context cost
    copy debug doctor diff effort export extra-usage fast feedback help hooks ide install
    keybindings mcp memory model models output-style permissions plan plugin plugins privacy
    release-notes rename resume rewind sandbox settings skills stats status statusline tasks
    terminal-setup theme think title tools upgrade usage version vim
    """
)


class Request(NamedTuple):
    """What a message asks for, in one line; a minor one titles a session only for want of others."""

    text: str
    is_minor: bool = False


def extract_request(text: str) -> Request | None:
    """Return what a message of the user asks for, or None if a harness wrote it."""
    text = text[:_MAX_CHARS].strip()
    if "###" in text:
        text = SIMULATOR_SIGNAL.sub("", text).strip()
    if "<" in text:
        if command := _read_element(text, "command-name"):
            return _make_command(command, _read_element(text, "command-args"))
        if shell := _read_element(text, "bash-input"):
            return Request(_to_line(f"! {shell}"), is_minor=True)
    if "## " in text and (heading := _REQUEST_HEADING.search(text)):
        text = text[heading.end() :].strip()
    if "<" in text:
        if opening := _REQUEST_ELEMENT.search(text):
            text = _read_element(text, opening[1]) or text[opening.end() :]
        text = _TAG_LINE.sub("\n", f"\n{_drop_context(text)}").strip()
    for mark in _APPENDED:
        text = text.partition(mark)[0]
    text = _IMAGE_MARK.sub(" ", text).strip() if "[Image" in text else text
    if not text or text.startswith(_NOTICES):
        return None
    if command := _SLASH_COMMAND.match(text):
        return _make_command(command[1], text[command.end() :])
    line = _to_line(_RULE_LINE.sub("\n", _HEADING_MARK.sub("\n", f"\n{text}"))[1:])
    return Request(line, line.startswith(_PRINTED)) if line else None


def _make_command(name: str, arguments: str) -> Request | None:
    name = name.strip().lstrip("/")
    if not name or name in _SILENT_COMMANDS:
        return None
    return Request(_to_line(f"/{name} {arguments}"), name in _INTERFACE_COMMANDS)


def _read_element(text: str, name: str) -> str:
    """Return what the first element of this name contains; empty without one that is closed."""
    _, opened, rest = text.partition(f"<{name}>")
    content, closed, _ = rest.partition(f"</{name}>")
    return content.strip() if opened and closed else ""


def _drop_context(text: str) -> str:
    """Drop elements that describe surroundings; one that is never closed ends the text."""
    kept: list[str] = []
    at = 0
    while opening := _TAG.search(text, at):
        is_line_start = opening.start() == at or text[opening.start() - 1] == "\n"
        if opening[1] or not _is_context(opening[2], is_line_start):
            kept.append(text[at : opening.end()])
            at = opening.end()
            continue
        kept.append(text[at : opening.start()])
        closing = text.find(f"</{opening[2]}", opening.end())
        if closing < 0:
            # A name in a sentence opens nothing.
            is_word = opening.start() > 0 and text[opening.start() - 1] != "\n"
            return "".join([*kept, text[opening.start() :]] if is_word else kept)
        end = text.find(">", closing)
        at = len(text) if end < 0 else end + 1
    return "".join([*kept, text[at:]])


def _is_context(name: str, is_line_start: bool) -> bool:
    words = _WORD_SPLIT.split(name)
    if len(words) == 1 and not is_line_start:
        return False
    if name.lower() in _CONTEXT_ELEMENTS:
        return True
    return any(word.lower() in _CONTEXT_WORDS for word in words)


def _to_line(text: str) -> str:
    line = " ".join(text[: MAX_REQUEST_CHARS * 8].split())
    return line if len(line) <= MAX_REQUEST_CHARS else line[: MAX_REQUEST_CHARS - 1] + "…"
