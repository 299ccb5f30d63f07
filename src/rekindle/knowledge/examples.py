"""A pattern as a new session can be shown it: its slots filled, its calls made with the tools of now.

A tool of another program is shown as the tool of the same kind that there is here, where the call can
be said with it: a command is a command in every shell. What fits none of the tools is not shown at
all, and neither is a call whose arguments the tool would refuse today.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

from rekindle.judging.tool_kinds import kind_of
from rekindle.knowledge.mining.slot_filler import Filling
from rekindle.shell.side_effects import is_destructive, is_outward
from rekindle.types import JSON, Pattern, Step

# The tools at hand: for each name, whether the tool would take these arguments.
Tools: TypeAlias = Mapping[str, Callable[[Mapping[str, JSON]], bool]]

LONGEST_REQUEST = 300
LONGEST_RESULT = 240
LONGEST_ARGUMENTS = 700  # of a call that is shown as a turn: a longer one teaches its length
CUT = " … [shortened]"
FIELDS = "JSON with "  # a result that is told by the names of its fields
_NO_RESULT = "(done)"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")  # what every provider takes
_SPACE = re.compile(r"\s+")
_UNSAYABLE = re.compile("[\ud800-\udfff\x00-\x08\x0b-\x1f\x7f]")

# By shape: how other programs call the argument that matters, then how it may be called here.
_ARGUMENT: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "shell": (("command", "cmd", "script", "bash_command", "input"), ("command", "cmd")),
    "read": (
        ("path", "file_path", "filePath", "filename", "target_file", "absolute_path"),
        ("path", "file_path", "filePath"),
    ),
    "search": (("pattern", "query", "regex", "glob"), ("pattern", "query")),
}


class Shown(NamedTuple):
    """One call as it is shown; `arguments` is the JSON text that a model would write."""

    tool: str
    arguments: str
    result: str


class Example(NamedTuple):
    """A request and the calls that answered it."""

    request: str
    calls: tuple[Shown, ...]
    lesson: str = ""
    wrong: Shown | None = None  # the call that did not work, where the lesson is about one
    as_turns: bool = True  # it may be imitated as it is


def example(pattern: Pattern, tools: Tools) -> Example | None:
    """The pattern as it is shown with these tools; None if it cannot be."""
    filling = Filling(pattern.id, pattern.asked[:LONGEST_REQUEST])
    steps: list[Step] = []
    for step in pattern.steps:
        given = step.arguments if step.example is None else step.example
        filled = Step(step.tool, _object(filling.value(given)), filling.text(step.result))
        usable = ported(filled, tools)
        if usable is None:
            return None
        steps.append(usable)
    calls = [_shown(step) for step in steps]
    if not calls or None in calls:
        return None
    shown = tuple(call for call in calls if call is not None)
    whole = not filling.is_hollow and all(
        len(call.arguments) <= LONGEST_ARGUMENTS for call in shown
    )
    lesson = cut(line(filling.text(pattern.lesson)), LONGEST_RESULT)
    wrong = _wrong(pattern.before, filling, tools)
    request = _request(pattern, filling, shown)
    return Example(request, shown, lesson, wrong, whole and all(map(_is_repeatable, steps)))


def _is_repeatable(step: Step) -> bool:
    """May this call be shown as one to make again?"""
    return not is_outward(step) and not is_destructive(step.arguments)


def ported(step: Step, tools: Tools) -> Step | None:
    """The call with a tool at hand that takes it."""
    if step.tool in tools:
        fits = _NAME.fullmatch(step.tool) and tools[step.tool](step.arguments)
        return step if fits else None
    shape = kind_of(step.tool).shape
    if shape not in _ARGUMENT:
        return None
    theirs, ours = _ARGUMENT[shape]
    value = next((text for name in theirs if (text := _text(step.arguments.get(name)))), None)
    if value is None:
        return None
    for tool in sorted(tools):
        if kind_of(tool).shape != shape or not _NAME.fullmatch(tool):
            continue
        for name in ours:
            if tools[tool]({name: value}):
                return Step(tool, {name: value}, step.result)
    return None


def could_use(pattern: Pattern, tools: Tools) -> bool:
    """Whether the tools at hand can do what the pattern does, as far as their names tell."""
    shapes = {kind_of(tool).shape for tool in tools} & _ARGUMENT.keys()
    return all(step.tool in tools or kind_of(step.tool).shape in shapes for step in pattern.steps)


def line(text: str) -> str:
    """A text on one line that can be sent."""
    return _SPACE.sub(" ", _UNSAYABLE.sub("\ufffd", text)).strip()


def cut(text: str, most: int) -> str:
    """The text in at most so many characters, with a mark where it was shortened."""
    return text if len(text) <= most else text[: most - len(CUT)].rstrip() + CUT


def sayable(text: str) -> str:
    """The text without what cannot be sent."""
    return _UNSAYABLE.sub("\ufffd", text)


def _shown(step: Step) -> Shown | None:
    try:
        arguments = json.dumps(_clean(step.arguments), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    result = cut(sayable(step.result).strip(), LONGEST_RESULT) or _NO_RESULT
    return Shown(step.tool, arguments, result)


def _clean(value: JSON) -> JSON:
    if isinstance(value, str):
        return sayable(value) if _UNSAYABLE.search(value) else value
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, JSON]", value).items()
        return {sayable(str(name)): _clean(field) for name, field in fields}
    if isinstance(value, (list, tuple)):
        return [_clean(one) for one in cast("Sequence[JSON]", value)]
    return value


def _wrong(before: Step | None, filling: Filling, tools: Tools) -> Shown | None:
    """The call that failed. It need not fit its tool of today, but that must be here."""
    if before is None:
        return None
    filled = Step(before.tool, _object(filling.value(before.arguments)))
    usable = filled if before.tool in tools else ported(filled, tools)
    return _shown(usable) if usable else None


def _request(pattern: Pattern, filling: Filling, calls: Sequence[Shown]) -> str:
    """What was asked, with every value in it that the calls use and nobody could know else."""
    asked = cut(line(filling.text(pattern.asked)), LONGEST_REQUEST)
    used = " ".join(call.arguments for call in calls)
    unsaid = [value for value in filling.made if value in used and value not in asked]
    named = ", ".join(dict.fromkeys(unsaid))
    if not asked:
        return f"Use {', then '.join(_names(calls))}{f' for {named}' if named else ''}."
    return f"{asked} ({named})" if named else asked


def _names(calls: Sequence[Shown]) -> Iterator[str]:
    return iter(dict.fromkeys(call.tool for call in calls))


def _text(value: JSON) -> str | None:
    """An argument as one text; of `["bash", "-lc", "ls"]` the command itself."""
    if isinstance(value, (list, tuple)):
        words = [str(word) for word in cast("Sequence[object]", value)]
        if len(words) == 3 and words[1].startswith("-") and words[1].endswith("c"):
            return words[2]
        return " ".join(words) or None
    return value if isinstance(value, str) and value else None


def _object(value: JSON) -> Mapping[str, JSON]:
    return cast("Mapping[str, JSON]", value) if isinstance(value, Mapping) else {}
