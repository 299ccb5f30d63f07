"""What a rule may inspect. Expensive properties are computed on first access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from rekindle.judging.tool_kinds import classify_tool
from rekindle.shell.command_reader import join_words
from rekindle.types import JSON, Message, ToolCall

from . import deciding_commands

HEAD_CHARS = 1_500
TAIL_CHARS = 3_000
_MAX_JSON_CHARS = 1_000_000
_COMMAND_KEYS = ("command", "cmd", "script", "bash_command", "commands", "code", "input", "action")
_EMPTY_OBJECT: Mapping[str, JSON] = {}
_decode = msgspec.json.Decoder().decode


def try_decode_json(text: str) -> object:
    """Return the decoded JSON value, or None if the text is not valid JSON."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


class Evidence:
    """A call, its result and the protocol metadata, as seen by the rules."""

    __slots__ = ("_arguments", "_command", "_content", "_record", "call", "meta", "shape", "text")

    def __init__(self, call: ToolCall, result: Message) -> None:
        self.call = call
        self.meta: Mapping[str, JSON] = result.meta or _EMPTY_OBJECT
        self._content = content = result.content
        self.text = content if isinstance(content, str) else result.text
        self.shape = classify_tool(call.name).shape
        self._arguments: Mapping[str, JSON] | None = None
        self._command: str | None = None
        self._record: Mapping[str, JSON] | None = None
        if self.shape == "edit" and self._is_view_command:
            self.shape = "read"

    @property
    def has_content(self) -> bool:
        """Whether the result has any content, such as an image."""
        return bool(self._content)

    @property
    def _is_view_command(self) -> bool:
        # Anthropic's text editor tool both shows and edits files.
        if "editor" not in self.call.name and "edit_tool" not in self.call.name:
            return False
        return self.arguments.get("command") == "view"

    @property
    def arguments(self) -> Mapping[str, JSON]:
        """The arguments as an object; empty if the model sent none."""
        if self._arguments is None:
            given = self.call.arguments
            if isinstance(given, str):
                value = try_decode_json(given) if given.startswith("{") else None
                given = cast("dict[str, Any]", value) if isinstance(value, dict) else _EMPTY_OBJECT
            self._arguments = given
        return self._arguments

    @property
    def command(self) -> str:
        """The command line or script that the call runs; empty if it runs none."""
        if self._command is None:
            self._command = self._find_command()
        return self._command

    def _find_command(self) -> str:
        for key in _COMMAND_KEYS:
            value = self.arguments.get(key)
            if isinstance(value, str) and value:
                return value
            if isinstance(value, Sequence) and value and not isinstance(value, str):
                return join_words(cast("Sequence[object]", value))
            if isinstance(value, Mapping):
                words = cast("Mapping[str, JSON]", value).get("command")
                if isinstance(words, list):
                    return join_words(cast("list[object]", words))
        given = self.call.arguments
        return given if isinstance(given, str) and given[:1] not in ("{", "") else ""

    @property
    def deciding_commands(self) -> deciding_commands.DecidingCommands:
        """The commands that decide the exit code."""
        return deciding_commands.find_deciding_commands(self.command)

    @property
    def record(self) -> Mapping[str, JSON]:
        """The result as a JSON object; empty if it is not one."""
        if self._record is None:
            self._record = _EMPTY_OBJECT
            text = self.text
            if text[:1] == "{" and len(text) < _MAX_JSON_CHARS:
                value = try_decode_json(text)
                if isinstance(value, dict):
                    self._record = cast("dict[str, Any]", value)
        return self._record


def trim_middle(text: str, head: int = HEAD_CHARS, tail: int = TAIL_CHARS) -> str:
    """Return the beginning and the end of a long text, cut at line breaks."""
    if len(text) <= head + tail:
        return text
    first, last = text[:head], text[-tail:]
    return f"{first[: first.rfind(chr(10)) + 1] or first}\n\n{last[last.find(chr(10)) + 1 :]}"


def get_last_lines(text: str, count: int, max_chars: int = 1_200) -> str:
    """Return the last `count` lines that are not blank."""
    lines = [line for line in text[-max_chars:].splitlines() if line.strip()]
    return "\n".join(lines[-count:])
