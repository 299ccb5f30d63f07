"""Side effects of calls: which ones must not be shown as examples to repeat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from rekindle.judging.tool_kinds import classify_tool
from rekindle.shell.command_reader import join_words
from rekindle.shell.effects import CommandEffect, EffectLevel
from rekindle.shell.risk import find_line_effects, find_text_effects
from rekindle.types import JSON, PatternStep

_COMMAND_KEYS = ("command", "cmd", "script", "bash_command", "code", "input", "chars")

# Verbs in the names of functions that change something for others.
_EXTERNAL_VERBS = re.compile(
    r"""(?ix)(?:^|[_.-])(?: send | post | publish | delete | remove | cancel | book | buy | order | pay
    | purchase | transfer | refund | deploy | push | merge | invite | reply | forward | schedule | submit
    | update | create | modify | exchange | return | grant | revoke | drop | kill | stop )(?:[_.-]|$)"""
)


def find_command_key(arguments: Mapping[str, JSON]) -> str:
    """Return the name of the argument with the command line or code; empty if there is none."""
    return next((key for key in _COMMAND_KEYS if arguments.get(key)), "")


def join_command(value: JSON) -> str:
    """Return the command line in an argument that may also be a list of words."""
    if isinstance(value, (list, tuple)):
        return join_words(cast("Sequence[object]", value))
    return value if isinstance(value, str) else ""


def collect_texts(arguments: JSON) -> list[str]:
    """Return all texts in some arguments."""
    if isinstance(arguments, str):
        return [arguments]
    if isinstance(arguments, Mapping):
        return [text for part in arguments.values() for text in collect_texts(part)]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(arguments, (list, tuple)):
        return [text for part in arguments for text in collect_texts(part)]  # pyright: ignore[reportUnknownVariableType]
    return []


def is_destructive(tool: str, arguments: JSON) -> bool:
    """Return whether the call destroys something or needs approval; it is never an example."""
    return any(effect.level >= EffectLevel.DESTRUCTIVE for effect in _iter_effects(tool, arguments))


def has_external_effect(step: PatternStep) -> bool:
    """Return whether the call changes something outside the working folder.

    Such a call may be described, but not shown as a turn.
    """
    kind = classify_tool(step.tool)
    if kind.shape in ("shell", "code"):
        return any(_iter_effects(step.tool, step.arguments))
    return kind.work == "general" and _EXTERNAL_VERBS.search(step.tool) is not None


def _iter_effects(tool: str, arguments: JSON) -> Iterator[CommandEffect]:
    if classify_tool(tool).shape == "shell" and isinstance(arguments, Mapping):
        parts = dict(cast("Mapping[str, JSON]", arguments))
        yield from find_line_effects(join_command(parts.pop(find_command_key(parts), None)))
        arguments = parts
    for text in collect_texts(arguments):
        yield from find_text_effects(text)
