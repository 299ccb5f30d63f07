"""Find which files of a repository a call reads, and which it creates.

A file that a session made itself, or got from elsewhere, vouches for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rekindle.judging.rules.evidence import Evidence
from rekindle.judging.rules.text_patterns import split_words
from rekindle.judging.tool_kinds import classify_tool
from rekindle.knowledge.notes.calls import PATCHED_FILE, read_command, read_patch, read_path
from rekindle.knowledge.notes.command_forms import CommandForm, relativize_path
from rekindle.knowledge.notes.programs import get_program
from rekindle.shell.command_reader import split_commands
from rekindle.types import Message, ToolCall

_NO_RESULT = Message("tool")
_READERS = split_words("cat head tail sed bat less more nl wc rg grep stat file diff")
_CREATORS = split_words(
    "touch cp mv ln tee install curl wget dd tar unzip rsync scp git gh patch aria2c degit"
)
_CREATING_KEYS = split_words("content contents file_text text new_path destination")
_REDIRECTED = re.compile(
    r"(?<![-=<>0-9])(?:\d|&)?>{1,2}\|? ?([^\s;|&<>()'\"]{1,200}|['\"][^'\"\n]{1,200}['\"])"
)


def list_read_files(call: ToolCall, forms: Sequence[CommandForm], root: str) -> list[str]:
    """Return the files of the repository that a call reads, or changes in a place that it knows."""
    path = read_path(call, root)
    if path is not None:
        return [path]
    patched = (relativize_path(one, root) for _, one in PATCHED_FILE.findall(_read_text(call)))
    read = (one for form in forms if get_program(form.key) in _READERS for one in form.files)
    return [one for one in (*patched, *read) if one]


def list_created_files(call: ToolCall, root: str) -> list[str]:
    """Return the files and folders of the repository that a call may create."""
    found = (relativize_path(one.strip("'\""), root) for one in _iter_created(call))
    return [path for path in found if path]


def _iter_created(call: ToolCall) -> Iterator[str]:
    for action, path in PATCHED_FILE.findall(_read_text(call)):
        if action == "Add":
            yield path
    evidence = Evidence(call, _NO_RESULT)
    if evidence.shape == "edit":
        if not _CREATING_KEYS.isdisjoint(evidence.arguments):
            yield from (one for one in evidence.arguments.values() if isinstance(one, str))
        return
    if classify_tool(call.name).shape != "shell":
        return
    yield from _REDIRECTED.findall(evidence.command)
    for one in split_commands(evidence.command):
        if one.program in _CREATORS:
            for word in one.arguments.split():
                yield word
                # A clone or a download is called like the last part of where it comes from.
                yield word.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")


def _read_text(call: ToolCall) -> str:
    return read_command(call) or read_patch(call)
