"""The parts that Rekindle adds to the configuration of an agent: hooks, an MCP server, a file.

Each part adds itself to a text, removes itself from it, and says whether it is there. Entries that the
user has changed beyond what Rekindle needs are left as they are, and so is everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from rekindle.errors import InvalidInput
from rekindle.json_fields import as_object

from .json_edit import add_element, add_member, remove_value, replace_value
from .json_text import JsonDocument, JsonKey
from .toml_edit import add_table, find_table, remove_table, replace_table

# stale: there, but in an older form, or not complete
PartState: TypeAlias = Literal["absent", "stale", "present"]


class ConfigPart(Protocol):
    """Something that Rekindle adds to a text."""

    @property
    def name(self) -> str:
        """What it is, for people."""
        ...

    def add_to(self, text: str) -> str:
        """Return the text with this part in its current form."""
        ...

    def remove_from(self, text: str, original: str) -> str:
        """Return the text without this part; keep empty containers that `original` has."""
        ...

    def check_state(self, text: str) -> PartState:
        """Return whether the text has this part."""
        ...

    def list_commands(self, text: str) -> list[str]:
        """Return the commands that the text runs for this part: lines for a shell, or programs."""
        ...


@dataclass(frozen=True, slots=True)
class HookTable:
    """Hooks in the form that Claude Code, Codex and Gemini CLI share: events, groups, commands."""

    hooks: Mapping[str, Mapping[str, Any]]  # the hook of each event
    is_ours: Callable[[str], bool]  # given a command
    matchers: Mapping[str, str] = field(default_factory=dict[str, str])  # tools, by event
    name: str = "hooks"

    def add_to(self, text: str) -> str:
        text = self._remove_events(text, lambda event: event not in self.hooks)
        for event, wanted in self.hooks.items():
            found = [*self._find_hooks(text, event)]
            for path, _ in reversed(found[1:]):
                text = _remove_hook(text, path, "")
            if not found:
                matcher = {"matcher": self.matchers[event]} if event in self.matchers else {}
                group = {**matcher, "hooks": [dict(wanted)]}
                text = add_element(text, ["hooks", event], group)
            elif not _has_values(found[0][1], wanted, ("type", "command")):
                text = replace_value(text, found[0][0], {**found[0][1], **wanted})
        return text

    def remove_from(self, text: str, original: str) -> str:
        return self._remove_events(text, lambda event: True, original)

    def _remove_events(
        self, text: str, is_chosen: Callable[[str], bool], original: str = ""
    ) -> str:
        events: dict[str, Any] = as_object(JsonDocument(text).load_path("hooks"))
        for event in filter(is_chosen, events):
            for path, _ in reversed([*self._find_hooks(text, event)]):
                text = _remove_hook(text, path, original)
        return text

    def check_state(self, text: str) -> PartState:
        states: set[PartState] = set()
        events: dict[str, Any] = as_object(JsonDocument(text).load_path("hooks"))
        for event in {**events, **self.hooks}:
            found = [hook for _, hook in self._find_hooks(text, event)]
            wanted = self.hooks.get(event)
            if wanted is None:
                states |= {"stale"} if found else set()
            elif not found:
                states.add("absent")
            else:
                is_same = len(found) == 1 and _has_values(found[0], wanted, ("type", "command"))
                states.add("present" if is_same else "stale")
        return states.pop() if len(states) == 1 else "stale"

    def list_commands(self, text: str) -> list[str]:
        events: dict[str, Any] = as_object(JsonDocument(text).load_path("hooks"))
        return [
            str(hook["command"]) for event in events for _, hook in self._find_hooks(text, event)
        ]

    def _find_hooks(
        self, text: str, event: str
    ) -> Iterator[tuple[tuple[JsonKey, ...], dict[str, Any]]]:
        """Yield the path and the value of each of our hooks of an event."""
        groups = JsonDocument(text).load_path("hooks", event)
        for number, group in enumerate(groups if isinstance(groups, list) else []):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            hooks = as_object(group).get("hooks")
            for place, hook in enumerate(hooks if isinstance(hooks, list) else []):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
                command = as_object(hook).get("command")
                if isinstance(command, str) and self.is_ours(command):
                    yield ("hooks", event, number, "hooks", place), as_object(hook)


@dataclass(frozen=True, slots=True)
class JsonEntry:
    """A member of a JSON object, such as an MCP server."""

    path: tuple[str, ...]
    value: Mapping[str, Any]
    name: str = "MCP server"

    def add_to(self, text: str) -> str:
        current = JsonDocument(text).load_path(*self.path)
        if current is None:
            return add_member(text, self.path[:-1], self.path[-1], dict(self.value))
        if _has_values(current, self.value):
            return text
        return replace_value(text, self.path, {**as_object(current), **self.value})

    def remove_from(self, text: str, original: str) -> str:
        if JsonDocument(text).find_node(*self.path) is None:
            return text
        return _remove_with_containers(text, self.path, original)

    def check_state(self, text: str) -> PartState:
        current = JsonDocument(text).load_path(*self.path)
        return _compare_entry(current, self.value)

    def list_commands(self, text: str) -> list[str]:
        return _get_program(JsonDocument(text).load_path(*self.path))


@dataclass(frozen=True, slots=True)
class TomlTable:
    """A table of a TOML file, such as an MCP server."""

    path: tuple[str, ...]
    value: Mapping[str, Any]
    name: str = "MCP server"

    def add_to(self, text: str) -> str:
        current = find_table(text, self.path)
        if current is None:
            return add_table(text, self.path, self.value)
        if _has_values(current, self.value):
            return text
        return replace_table(text, self.path, {**current, **self.value})

    def remove_from(self, text: str, original: str) -> str:
        return text if find_table(text, self.path) is None else remove_table(text, self.path)

    def check_state(self, text: str) -> PartState:
        return _compare_entry(find_table(text, self.path), self.value)

    def list_commands(self, text: str) -> list[str]:
        return _get_program(find_table(text, self.path))


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file that belongs to Rekindle, such as a plugin."""

    content: str
    mark: str  # the beginning of the file in every version
    commands: Sequence[str] = ()
    name: str = "plugin"

    def add_to(self, text: str) -> str:
        if text and not text.startswith(self.mark):
            raise InvalidInput("not written by Rekindle; move it away first")
        return self.content

    def remove_from(self, text: str, original: str) -> str:
        return "" if text.startswith(self.mark) else text

    def check_state(self, text: str) -> PartState:
        if text == self.content:
            return "present"
        return "stale" if text.startswith(self.mark) else "absent"

    def list_commands(self, text: str) -> list[str]:
        return [*self.commands] if text == self.content else []


def _compare_entry(current: object, wanted: Mapping[str, Any]) -> PartState:
    if current is None:
        return "absent"
    return "present" if _has_values(current, wanted) else "stale"


def _get_program(entry: object) -> list[str]:
    command: object = as_object(entry).get("command")
    if isinstance(command, list):
        command = command[0] if command else None  # pyright: ignore[reportUnknownVariableType]
    return [command] if isinstance(command, str) else []


def _has_values(
    current: object, wanted: Mapping[str, Any], keys: Sequence[str] | None = None
) -> bool:
    values = as_object(current)
    return all(values.get(key) == wanted[key] for key in keys or wanted)


def _remove_hook(text: str, path: tuple[JsonKey, ...], original: str) -> str:
    """Remove a hook, and its group if that held nothing else."""
    text = remove_value(text, path)
    if JsonDocument(text).load_path(*path[:-1]) == []:
        return _remove_with_containers(text, path[:-2], original)
    return text


def _remove_with_containers(text: str, path: Sequence[JsonKey], original: str) -> str:
    """Remove a value, and the containers above it that are then empty and were not there before."""
    before = JsonDocument(original)
    text = remove_value(text, path)
    for depth in range(len(path) - 1, 0, -1):
        outer = path[:depth]
        if JsonDocument(text).load_path(*outer) or before.find_node(*outer) is not None:
            break
        text = remove_value(text, outer)
    return text
