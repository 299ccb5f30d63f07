"""Read a session's calls: commands and files, the checks before a commit, tests that were red anyway."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rekindle.judging.rules.evidence import Evidence
from rekindle.judging.rules.programs import is_test_runner
from rekindle.judging.rules.text_patterns import split_words
from rekindle.judging.tool_kinds import classify_tool
from rekindle.knowledge.trust.temporary_paths import hide_temporary_paths
from rekindle.shell.command_reader import split_commands
from rekindle.types import Message, ToolCall

from .command_forms import CommandForm, is_everyday, parse_command_line, relativize_path
from .harmless import keep_name
from .programs import get_program

INTERRUPTED = "interrupted"  # a kind of error: by a signal, or since a call beside it failed
MAX_CHECKS = 8
MAX_RED_TESTS = 10
_MAX_RESULT_CHARS = 60_000
_PATH_KEYS = ("file_path", "path", "filePath", "filename", "notebook_path", "target_file")
PATCHED_FILE = re.compile(r"^\*{3} (Add|Update|Delete) File: (\S{1,200})[ \t]*$", re.MULTILINE)
# They look something up, which checks nothing.
_ASKING_PROGRAMS = split_words(
    "ssh scp rsync gh glab curl wget psql mysql sqlite3 redis-cli tmux jq"
)
# They wait for a command that an earlier call started.
_WAITING_TOOLS = split_words("write_stdin BashOutput bash_output")
_PROCESS_KEYS = ("session_id", "bash_id", "process_id")
_STARTED_PROCESS = re.compile(r"(?i)\b(?:session|background with) ID:? ([\w-]{1,40})")
_NO_RESULT = Message("tool")
# A failed test as Go, pytest and cargo name it.
_RED_TEST = re.compile(
    r"^\s{0,8}(?:--- FAIL: |FAILED )([A-Za-z_][\w./:-]{2,120})|^test ([a-z_][\w:]{2,120}) \.\.\. FAILED",
    re.MULTILINE,
)
# A name that only a runner of tests prints.
_TEST_NAME = re.compile(
    r"Test[A-Z]\w{0,80}(?:/[\w.-]{1,60}){0,3}|[a-z_]\w{0,40}(?:::[a-z_]\w{0,60}){1,6}"
    r"|[\w./-]{1,90}\.(?:py|rs|go|ts|js|rb|php|ex)(?:::Test\w{1,60})?(?:::test\w{1,80})"
)
# What may stand beside a runner of tests in a line: it prints nothing of others.
_BESIDE_TESTS = split_words(
    "cd tail head grep rg tee export set sort uniq wc env true time timeout"
)


class ObservedCall(NamedTuple):
    """A call with its verdict: `failed` is None if it is unknown, or if the call was prevented."""

    call: ToolCall
    result: str
    failed: bool | None
    error_kind: str
    turn: int

    @property
    def is_prevented(self) -> bool:
        """Return whether the call was refused or interrupted, which says nothing of its command."""
        return self.failed is None and bool(self.error_kind)


class FailedTest(NamedTuple):
    """A test that failed, the key of the command that ran it, and the number of the call."""

    name: str
    check: str
    call: int


def read_command(call: ToolCall) -> str:
    """Return the command line that a call runs; empty if it runs none."""
    if classify_tool(call.name).shape != "shell":
        return ""
    return Evidence(call, _NO_RESULT).command


def read_forms(call: ToolCall, root: str) -> tuple[CommandForm, ...]:
    """Return the forms of the commands that a call runs; none if it runs no command."""
    command = read_command(call)
    forms = parse_command_line(command, root).forms if command else ()
    return tuple(form._replace(text=hide_temporary_paths(form.text)) for form in forms)


def read_path(call: ToolCall, root: str) -> str | None:
    """Return the file of the repository that a tool for files uses, if it is a tool of the agent."""
    evidence = Evidence(call, _NO_RESULT)
    if evidence.shape not in ("read", "edit", "search") or is_remote_tool(call):
        return None
    arguments = evidence.arguments
    value = next((arguments[key] for key in _PATH_KEYS if arguments.get(key)), None)
    return relativize_path(value, root) if isinstance(value, str) else None


def list_used_files(call: ToolCall, forms: Sequence[CommandForm], root: str) -> list[str]:
    """Return the files of the repository that a call uses: by its arguments, a patch or a command."""
    path = read_path(call, root)
    return list_command_files(call, forms, root) if path is None else [path]


def list_command_files(call: ToolCall, forms: Sequence[CommandForm], root: str) -> list[str]:
    """Return the files of the repository that a call uses by a command or a patch."""
    written = read_command(call) or read_patch(call)
    patched = (relativize_path(path, root) for _, path in PATCHED_FILE.findall(written))
    read = (path for form in forms if is_everyday(form.key) for path in form.files)
    return list(dict.fromkeys(path for path in (*patched, *read) if path))


def read_patch(call: ToolCall) -> str:
    """Return the patch that a call applies; empty if it is for something else."""
    if "patch" not in call.name:
        return ""
    values = Evidence(call, _NO_RESULT).arguments.values()
    texts = [one for one in values if isinstance(one, str)]
    raw = [call.arguments] if isinstance(call.arguments, str) else []
    return "\n".join([*texts, *raw])[:_MAX_RESULT_CHARS]


def is_remote_tool(call: ToolCall) -> bool:
    """Return whether a server has the tool: its files may be anywhere, and it may say anything."""
    return call.name.lower().startswith("mcp")


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


def find_red_tests(
    calls: Sequence[ObservedCall], lines: Sequence[tuple[CommandForm, ...]]
) -> list[FailedTest]:
    """Return the tests that failed before the session changed any file."""
    found: dict[str, FailedTest] = {}
    keys: list[str] = []
    started: dict[str, list[str]] = {}  # what runs on, by the name of its process
    for number, (one, forms) in enumerate(zip(calls, lines, strict=True)):
        if is_edit(one):
            break
        if one.call.name in _WAITING_TOOLS:  # it shows what a command printed since
            keys = started.get(_read_process(one.call), keys)
        else:
            is_run = _is_test_run(read_command(one.call))
            keys = [form.key for form in forms if is_run and not is_everyday(form.key)]
            if process := _STARTED_PROCESS.search(one.result[:1_000]):
                started[process[1]] = keys
        if one.failed and keys:
            for name in list_red_tests(one.result):
                if _TEST_NAME.fullmatch(name):
                    found.setdefault(name, FailedTest(name, keys[-1], number))
    return list(found.values())[:MAX_RED_TESTS]


def _read_process(call: ToolCall) -> str:
    """Return the name of the process that a call waits for."""
    arguments = Evidence(call, _NO_RESULT).arguments
    return str(next((arguments[key] for key in _PROCESS_KEYS if key in arguments), ""))


def _is_test_run(command: str) -> bool:
    """Return whether a line runs tests, and nothing that may print what others wrote."""
    commands = [one for one in split_commands(command) if one.program not in _BESIDE_TESTS]
    return bool(commands) and all(map(is_test_runner, commands))


def list_red_tests(result: str) -> list[str]:
    """Return the names of the tests that a result reports as failed."""
    matches = _RED_TEST.finditer(result[-_MAX_RESULT_CHARS:])
    names = (match.group(1) or match.group(2) for match in matches)
    return [name for name in names if keep_name(name.replace("::", "/").replace(":", "/"))]
