"""What a rule may look at. Everything that costs is worked out when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from rekindle.judging.tool_kinds import kind_of
from rekindle.types import JSON, Message, ToolCall

from . import shell_commands

HEAD = 1_500
TAIL = 3_000
_LONGEST_JSON = 1_000_000
_COMMAND_KEYS = ("command", "cmd", "script", "bash_command", "commands", "code", "input", "action")
_NOTHING: Mapping[str, JSON] = {}
_decode = msgspec.json.Decoder().decode


def decoded(text: str) -> object:
    """The JSON value, or None where it is none."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


class Evidence:
    """A call, its result and the protocol's facts, as the rules ask for them."""

    __slots__ = ("_arguments", "_command", "_content", "_record", "call", "meta", "shape", "text")

    def __init__(self, call: ToolCall, result: Message) -> None:
        self.call = call
        self.meta: Mapping[str, JSON] = result.meta or _NOTHING
        self._content = content = result.content
        self.text = content if isinstance(content, str) else result.text
        self.shape = kind_of(call.name).shape
        self._arguments: Mapping[str, JSON] | None = None
        self._command: str | None = None
        self._record: Mapping[str, JSON] | None = None
        if self.shape == "edit" and self._views:
            self.shape = "read"

    @property
    def has_parts(self) -> bool:
        """Whether the result holds anything at all, such as a picture."""
        return bool(self._content)

    @property
    def _views(self) -> bool:
        # One tool of Anthropic's both shows and changes files.
        if "editor" not in self.call.name and "edit_tool" not in self.call.name:
            return False
        return self.arguments.get("command") == "view"

    @property
    def arguments(self) -> Mapping[str, JSON]:
        """The arguments as an object; empty where the model wrote none."""
        if self._arguments is None:
            given = self.call.arguments
            if isinstance(given, str):
                value = decoded(given) if given.startswith("{") else None
                given = cast("dict[str, Any]", value) if isinstance(value, dict) else _NOTHING
            self._arguments = given
        return self._arguments

    @property
    def command(self) -> str:
        """The command line or script that the call runs; empty where it runs none."""
        if self._command is None:
            self._command = self._find_command()
        return self._command

    def _find_command(self) -> str:
        for key in _COMMAND_KEYS:
            value = self.arguments.get(key)
            if isinstance(value, str) and value:
                return value
            if isinstance(value, Sequence) and value and not isinstance(value, str):
                return _joined([str(word) for word in cast("Sequence[object]", value)])
            if isinstance(value, Mapping):
                words = cast("Mapping[str, JSON]", value).get("command")
                if isinstance(words, list):
                    return _joined([str(word) for word in cast("list[object]", words)])
        given = self.call.arguments
        return given if isinstance(given, str) and given[:1] not in ("{", "") else ""

    @property
    def ending(self) -> shell_commands.Ending:
        """Which of the commands decides how the whole ended."""
        return shell_commands.ending(self.command)

    @property
    def record(self) -> Mapping[str, JSON]:
        """The result as a JSON object; empty where it is none."""
        if self._record is None:
            self._record = _NOTHING
            text = self.text
            if text[:1] == "{" and len(text) < _LONGEST_JSON:
                value = decoded(text)
                if isinstance(value, dict):
                    self._record = cast("dict[str, Any]", value)
        return self._record


def _joined(words: list[str]) -> str:
    """An argument vector as one command; what `sh -c` runs is the command itself."""
    name = words[0].rsplit("/", 1)[-1]
    if len(words) >= 3 and name in ("bash", "sh", "zsh", "dash") and words[1].endswith("c"):
        return words[2]
    return " ".join(word if word and " " not in word else repr(word) for word in words)


def ends(text: str, head: int = HEAD, tail: int = TAIL) -> str:
    """The beginning and the end of a text that may be very long, in whole lines."""
    if len(text) <= head + tail:
        return text
    first, last = text[:head], text[-tail:]
    return f"{first[: first.rfind(chr(10)) + 1] or first}\n\n{last[last.find(chr(10)) + 1 :]}"


def last_lines(text: str, count: int, longest: int = 1_200) -> str:
    """The last lines that say something."""
    lines = [line for line in text[-longest:].splitlines() if line.strip()]
    return "\n".join(lines[-count:])
