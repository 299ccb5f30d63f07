"""Read the JSON that an agent gives to a hook: the same facts, whatever the agent calls them."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rekindle.errors import InvalidInput
from rekindle.json_fields import JsonObject, as_object, as_objects, get_text
from rekindle.types import MAX_NAME_CHARS

from .client import SETTINGS
from .command import AGENT_EVENTS, HookEvent

MAX_RESULT_CHARS = 20_000
MAX_PROMPT_CHARS = 20_000
MAX_PATH_CHARS = 4_096
TAIL_BYTES = (100_000, 2_000_000)  # of a transcript, in which the end of a call is looked for
SETTING_PREFIXES = tuple(prefix.decode() for prefix in SETTINGS)
_FOLDER_ARGUMENTS = ("workdir", "dir_path")  # of a command, in OpenCode and Gemini CLI
_EVENT_NAME = re.compile(r"[A-Za-z_.]{1,60}")
_GEMINI_EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,9})$", re.MULTILINE)
# What Gemini puts around the output of a command.
_GEMINI_FRAME = re.compile(
    r"^(?:</?untrusted_context>\n?|Output: |Process Group PGID: \d{1,9}\n?)", re.MULTILINE
)
# What Gemini puts before a prompt because a hook said so at the start.
_GEMINI_CONTEXT = re.compile(r"<hook_context>[^<]*</hook_context>")


class HookRequest(NamedTuple):
    """A hook as the client hands it on: the input is not read yet."""

    agent: str
    event: str
    cwd: str
    data: bytes
    size: int  # of the whole input
    settings: tuple[tuple[str, str], ...] = ()  # of the environment
    client: str = ""  # the file that runs as the client


class FailedCall(NamedTuple):
    """A tool call that failed."""

    tool: str
    arguments: JsonObject | str
    result: str


class PlannedCall(NamedTuple):
    """A tool call that has not run yet, and the folder in which it will."""

    tool: str
    arguments: JsonObject | str
    folder: str


class HookInput(NamedTuple):
    """What an agent says about an event. `name` is its own name of the event."""

    agent: str
    event: HookEvent
    name: str
    session: str
    cwd: str
    transcript: str | None = None
    source: str = ""  # of a start: startup, resume, fork, clear, compact
    prompt: str = ""
    failure: FailedCall | None = None
    call: PlannedCall | None = None


class ImportJob(NamedTuple):
    """A session to import and to learn from."""

    agent: str
    session: str
    transcript: str
    cwd: str  # for agents whose transcripts do not name it
    settings: tuple[tuple[str, str], ...] = ()  # of the environment


def parse_settings(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse settings of the environment: NAME=VALUE."""
    return tuple((name, value) for name, _, value in (word.partition("=") for word in words))


def parse_input(request: HookRequest) -> HookInput:
    """Parse the input of a hook; raise InvalidInput if it cannot be used."""
    names = AGENT_EVENTS.get(request.agent, {})
    events: dict[str, HookEvent] = {name: name for name in names}
    event = events.get(request.event)
    if event is None:
        raise InvalidInput(f"no such hook: {request.agent[:40]} {request.event[:40]}")
    if request.size > len(request.data):
        raise InvalidInput(f"the input is too large: {request.size:,} bytes")
    try:
        fields = as_object(msgspec.json.decode(request.data))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the input is not JSON: {error}") from None
    session = get_text(fields, "session_id")
    if session is None or len(session) > MAX_NAME_CHARS:
        raise InvalidInput("the input names no session")
    cwd = get_text(fields, "cwd") or request.cwd
    if not cwd.startswith("/") or len(cwd) > MAX_PATH_CHARS:
        raise InvalidInput("the input names no folder")
    name = get_text(fields, "hook_event_name") or ""
    return HookInput(
        agent=request.agent,
        event=event,
        name=name if _EVENT_NAME.fullmatch(name) else names[event],
        session=session,
        cwd=cwd,
        transcript=get_text(fields, "transcript_path"),
        source=get_text(fields, "source") or "",
        prompt=_parse_prompt(fields) if event == "prompt" else "",
        failure=_parse_failure(request.agent, fields) if event == "failure" else None,
        call=_parse_call(fields, cwd) if event == "call" else None,
    )


def _parse_prompt(fields: JsonObject) -> str:
    prompt = get_text(fields, "prompt") or ""
    return _GEMINI_CONTEXT.sub("", prompt[:MAX_PROMPT_CHARS]).strip()


def _parse_call(fields: JsonObject, cwd: str) -> PlannedCall | None:
    tool, given = get_text(fields, "tool_name"), fields.get("tool_input")
    if tool is None:
        return None
    arguments = given if isinstance(given, str) else as_object(given)
    folder = get_text(as_object(given), *_FOLDER_ARGUMENTS) or ""
    return PlannedCall(tool, arguments, os.path.normpath(os.path.join(cwd, folder)))


def move_call(call: PlannedCall, root: str) -> PlannedCall | None:
    """Return the call as it would be made in the folder `root`; None if that is not above its own.

    Commands are known by the folder that their session began in.
    """
    inner = os.path.relpath(call.folder, root)
    if inner == os.curdir:
        return call
    arguments = as_object(call.arguments)
    command = get_text(arguments, "command")
    if command is None or inner.split(os.sep)[0] == os.pardir:
        return None
    moved = {**arguments, "command": f"cd {shlex.quote(inner)} && {command}"}
    return PlannedCall(call.tool, moved, root)


def _parse_failure(agent: str, fields: JsonObject) -> FailedCall | None:
    """Return the call that failed; None if it did not."""
    tool, given = get_text(fields, "tool_name"), fields.get("tool_input")
    if tool is None or fields.get("is_interrupt") is True:
        return None
    response = fields.get("tool_response")
    result = get_text(fields, "error") or _to_text(response)
    if agent == "codex":
        if not _has_codex_call_failed(fields):
            return None
    elif agent == "gemini":
        if not _has_gemini_call_failed(as_object(response), result):
            return None
        result = _GEMINI_FRAME.sub("", result)
    arguments = given if isinstance(given, str) else as_object(given)
    return FailedCall(tool, arguments, _shorten_result(result))


def _to_text(value: Any) -> str:
    """Return the text of a tool's response, in any of the agents' forms."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(get_text(part, "text") or "" for part in as_objects(value))
    fields = as_object(value)
    error = get_text(as_object(fields.get("error")), "message") or get_text(fields, "error")
    for name in ("llmContent", "content", "output"):
        if text := _to_text(fields.get(name)):
            return text if error is None else f"{error}\n{text}"
    return error or ""


def _shorten_result(text: str) -> str:
    half = MAX_RESULT_CHARS // 2
    return text if len(text) <= MAX_RESULT_CHARS else f"{text[:half]}\n…\n{text[-half:]}"


def _has_gemini_call_failed(response: JsonObject, result: str) -> bool:
    codes = _GEMINI_EXIT_CODE.findall(result[-2_000:])
    return bool(response.get("error")) or (bool(codes) and int(codes[-1]) != 0)


# ── Codex: how a call ended is in the transcript only


def _has_codex_call_failed(fields: JsonObject) -> bool:
    transcript, call = get_text(fields, "transcript_path"), get_text(fields, "tool_use_id")
    if transcript is None or call is None:
        return False
    for size in TAIL_BYTES:
        tail = _read_tail(transcript, size)
        item = _find_completed_item(tail, call)
        if item is not None:
            code = item.get("exit_code")
            return item.get("status") == "failed" or (isinstance(code, int) and code != 0)
        if len(tail) < size:
            break
    return False


def _read_tail(path: str, size: int) -> bytes:
    """Return the last bytes of a regular file."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            return b""
        return os.pread(number, size, max(0, status.st_size - size))
    finally:
        os.close(number)


def _find_completed_item(tail: bytes, call: str) -> JsonObject | None:
    wanted = call.encode("utf-8", "replace")
    for line in reversed(tail.splitlines()):
        if wanted not in line or b"item_completed" not in line:
            continue
        try:
            payload = as_object(as_object(msgspec.json.decode(line)).get("payload"))
        except (ValueError, RecursionError):
            continue
        item = as_object(payload.get("item"))
        if payload.get("type") == "item_completed" and item.get("id") == call:
            return item
    return None
