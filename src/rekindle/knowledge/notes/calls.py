"""Read a session's calls: commands and files, the checks before a commit, tests that were red anyway."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rekindle.judging.rules.evidence import Evidence
from rekindle.judging.rules.text_patterns import split_words
from rekindle.judging.tool_kinds import classify_tool
from rekindle.types import Message, ToolCall

from .command_forms import CommandForm, is_everyday, parse_command_line, relativize_path
from .harmless import keep_path
from .programs import get_program

MAX_CHECKS = 8
MAX_RED_TESTS = 10
_MAX_RESULT_CHARS = 60_000
_PATH_KEYS = ("file_path", "path", "filePath", "filename", "notebook_path", "target_file")
_PATCHED_FILE = re.compile(r"^\*{3} (?:Add|Update|Delete) File: (\S{1,200})[ \t]*$", re.MULTILINE)
# They look something up, which checks nothing.
_ASKING_PROGRAMS = split_words(
    "ssh scp rsync gh glab curl wget psql mysql sqlite3 redis-cli tmux jq"
)
_NO_RESULT = Message("tool")
# A failed test as Go, pytest and cargo name it.
_RED_TEST = re.compile(
    r"^\s{0,8}(?:--- FAIL: |FAILED )([A-Za-z_][\w./:-]{2,120})|^test ([a-z_][\w:]{2,120}) \.\.\. FAILED",
    re.MULTILINE,
)


class ObservedCall(NamedTuple):
    """A call with its verdict: `failed` is None if it is unknown, or if the call was refused."""

    call: ToolCall
    result: str
    failed: bool | None
    error_kind: str
    turn: int

    @property
    def is_refused(self) -> bool:
        """Return whether a person or a rule prevented the call, which says nothing of its command."""
        return self.failed is None and bool(self.error_kind)


def read_command(call: ToolCall) -> str:
    """Return the command line that a call runs; empty if it runs none."""
    if classify_tool(call.name).shape != "shell":
        return ""
    return Evidence(call, _NO_RESULT).command


def read_forms(call: ToolCall, root: str) -> tuple[CommandForm, ...]:
    """Return the forms of the commands that a call runs; none if it runs no command."""
    command = read_command(call)
    return parse_command_line(command, root).forms if command else ()


def read_path(call: ToolCall, root: str) -> str | None:
    """Return the file of the repository that a call uses, if it names one."""
    arguments = Evidence(call, _NO_RESULT).arguments
    value = next((arguments[key] for key in _PATH_KEYS if arguments.get(key)), None)
    return relativize_path(value, root) if isinstance(value, str) else None


def list_used_files(call: ToolCall, forms: Sequence[CommandForm], root: str) -> list[str]:
    """Return the files of the repository that a call uses: by its arguments, a patch or a command."""
    path = read_path(call, root)
    return list_command_files(call, forms, root) if path is None else [path]


def list_command_files(call: ToolCall, forms: Sequence[CommandForm], root: str) -> list[str]:
    """Return the files of the repository that a call uses by a command or a patch."""
    written = read_command(call) or _read_patch(call)
    patched = (relativize_path(path, root) for path in _PATCHED_FILE.findall(written))
    read = (path for form in forms if is_everyday(form.key) for path in form.files)
    return list(dict.fromkeys(path for path in (*patched, *read) if path))


def _read_patch(call: ToolCall) -> str:
    """Return the patch that a call applies; empty if it is for something else."""
    if "patch" not in call.name:
        return ""
    values = Evidence(call, _NO_RESULT).arguments.values()
    texts = [one for one in values if isinstance(one, str)]
    raw = [call.arguments] if isinstance(call.arguments, str) else []
    return "\n".join([*texts, *raw])[:_MAX_RESULT_CHARS]


def is_edit(call: ObservedCall) -> bool:
    """Return whether a call changes files with a tool made for it."""
    return classify_tool(call.call.name).shape == "edit"


def find_checks(
    calls: Sequence[ObservedCall], lines: Sequence[tuple[CommandForm, ...]]
) -> tuple[str, ...] | None:
    """Return the commands that worked before the last commit, in order; None without a commit."""
    found: tuple[str, ...] | None = None
    checks: dict[str, None] = {}
    for one, forms in zip(calls, lines, strict=True):
        if one.failed is not False:
            continue
        for form in forms:
            if form.key == "git commit":
                found = tuple(checks)[:MAX_CHECKS]
                checks = {}
            elif not is_everyday(form.key) and get_program(form.key) not in _ASKING_PROGRAMS:
                checks[form.key] = None
    return found


def find_red_tests(calls: Sequence[ObservedCall]) -> tuple[str, ...]:
    """Return the tests that failed before the session changed any file."""
    found: dict[str, None] = {}
    for one in calls:
        if is_edit(one):
            break
        found.update(dict.fromkeys(list_red_tests(one.result)))
    return tuple(found)[:MAX_RED_TESTS]


def list_red_tests(result: str) -> list[str]:
    """Return the names of the tests that a result reports as failed."""
    matches = _RED_TEST.finditer(result[-_MAX_RESULT_CHARS:])
    names = (match.group(1) or match.group(2) for match in matches)
    return [name for name in names if keep_path(name.replace("::", "/").replace(":", "/"))]
