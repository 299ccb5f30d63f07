"""Build the example that a new session is shown for a pattern: slots filled, calls for its own tools.

A call of a tool that is not available is shown with the available tool of the same kind, if that can
express it: a command is a command in every shell. Calls that fit no available tool are not shown at
all, and neither are calls whose arguments the tool would reject today.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

from rekindle.judging.tool_kinds import classify_tool
from rekindle.knowledge.mining.side_effects import has_external_effect, is_destructive
from rekindle.knowledge.mining.slot_filler import SlotFiller
from rekindle.shell.command_reader import join_words
from rekindle.types import JSON, Pattern, PatternStep

# The available tools by name, each with a check whether it accepts some arguments.
Tools: TypeAlias = Mapping[str, Callable[[Mapping[str, JSON]], bool]]

MAX_REQUEST_CHARS = 300
MAX_RESULT_CHARS = 240
MAX_ARGUMENTS_CHARS = 700  # of a call shown as a turn: models imitate the length
TRUNCATION_MARK = " … [shortened]"
JSON_FIELDS_PREFIX = "JSON with "  # begins a result that lists only its field names
_EMPTY_RESULT = "(done)"
_VALID_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")  # accepted by every provider
_SPACE = re.compile(r"\s+")
_UNSENDABLE = re.compile("[\ud800-\udfff\x00-\x08\x0b-\x1f\x7f]")

# By shape: names of the main argument in other programs, then its possible names here.
_ARGUMENT_NAMES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "shell": (("command", "cmd", "script", "bash_command", "input"), ("command", "cmd")),
    "read": (
        ("path", "file_path", "filePath", "filename", "target_file", "absolute_path"),
        ("path", "file_path", "filePath"),
    ),
    "search": (("pattern", "query", "regex", "glob"), ("pattern", "query")),
}


class ShownCall(NamedTuple):
    """One call as it is shown; `arguments` is the JSON text that a model would write."""

    tool: str
    arguments: str
    result: str


class Example(NamedTuple):
    """A request and the calls that answered it."""

    request: str
    calls: tuple[ShownCall, ...]
    lesson: str = ""
    wrong: ShownCall | None = None  # the call that failed, if the lesson is about one
    as_turns: bool = True  # it may be shown as a turn to imitate


def build_example(pattern: Pattern, tools: Tools) -> Example | None:
    """Build the example of a pattern for these tools; return None if that is impossible."""
    filler = SlotFiller(pattern.id, pattern.asked[:MAX_REQUEST_CHARS])
    steps: list[PatternStep] = []
    for step in pattern.steps:
        arguments = step.arguments if step.example is None else step.example
        filled = PatternStep(
            step.tool, _as_mapping(filler.fill_value(arguments)), filler.fill_text(step.result)
        )
        usable = adapt_step(filled, tools)
        if usable is None:
            return None
        steps.append(usable)
    calls = [_step_to_shown_call(step) for step in steps]
    if not calls or None in calls:
        return None
    shown = tuple(call for call in calls if call is not None)
    is_complete = not filler.is_incomplete and all(
        len(call.arguments) <= MAX_ARGUMENTS_CHARS for call in shown
    )
    lesson = truncate_text(to_single_line(filler.fill_text(pattern.lesson)), MAX_RESULT_CHARS)
    wrong = _show_failed_call(pattern.before, filler, tools)
    request = _build_request(pattern, filler, shown)
    return Example(request, shown, lesson, wrong, is_complete and all(map(_is_repeatable, steps)))


def _is_repeatable(step: PatternStep) -> bool:
    """Return whether this call may be shown as one to repeat."""
    return not has_external_effect(step) and not is_destructive(step.tool, step.arguments)


def adapt_step(step: PatternStep, tools: Tools) -> PatternStep | None:
    """Adapt the call to an available tool that accepts it; return None if there is none."""
    if step.tool in tools:
        fits = _VALID_TOOL_NAME.fullmatch(step.tool) and tools[step.tool](step.arguments)
        return step if fits else None
    shape = classify_tool(step.tool).shape
    if shape not in _ARGUMENT_NAMES:
        return None
    theirs, ours = _ARGUMENT_NAMES[shape]
    value = next(
        (text for name in theirs if (text := _argument_to_text(step.arguments.get(name)))), None
    )
    if value is None:
        return None
    for tool in sorted(tools):
        if classify_tool(tool).shape != shape or not _VALID_TOOL_NAME.fullmatch(tool):
            continue
        for name in ours:
            if tools[tool]({name: value}):
                return PatternStep(tool, {name: value}, step.result)
    return None


def has_tools_for(pattern: Pattern, tools: Tools) -> bool:
    """Return whether the available tools can make the pattern's calls, judging by their names."""
    shapes = {classify_tool(tool).shape for tool in tools} & _ARGUMENT_NAMES.keys()
    return all(
        step.tool in tools or classify_tool(step.tool).shape in shapes for step in pattern.steps
    )


def to_single_line(text: str) -> str:
    """Put a text on one line and replace characters that cannot be sent."""
    return _SPACE.sub(" ", _UNSENDABLE.sub("\ufffd", text)).strip()


def truncate_text(text: str, limit: int) -> str:
    """Truncate the text to `limit` characters, with a mark where it was shortened."""
    return (
        text
        if len(text) <= limit
        else text[: limit - len(TRUNCATION_MARK)].rstrip() + TRUNCATION_MARK
    )


def replace_unsendable(text: str) -> str:
    """Replace characters that cannot be sent."""
    return _UNSENDABLE.sub("\ufffd", text)


def _step_to_shown_call(step: PatternStep) -> ShownCall | None:
    try:
        arguments = json.dumps(_clean_value(step.arguments), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    result = (
        truncate_text(replace_unsendable(step.result).strip(), MAX_RESULT_CHARS) or _EMPTY_RESULT
    )
    return ShownCall(step.tool, arguments, result)


def _clean_value(value: JSON) -> JSON:
    if isinstance(value, str):
        return replace_unsendable(value) if _UNSENDABLE.search(value) else value
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, JSON]", value).items()
        return {replace_unsendable(str(name)): _clean_value(field) for name, field in fields}
    if isinstance(value, (list, tuple)):
        return [_clean_value(one) for one in cast("Sequence[JSON]", value)]
    return value


def _show_failed_call(
    before: PatternStep | None, filler: SlotFiller, tools: Tools
) -> ShownCall | None:
    """Show the call that failed. Its arguments may be invalid, but its tool must be available."""
    if before is None:
        return None
    filled = PatternStep(before.tool, _as_mapping(filler.fill_value(before.arguments)))
    usable = filled if before.tool in tools else adapt_step(filled, tools)
    if usable is None or is_destructive(usable.tool, usable.arguments):
        return None
    return _step_to_shown_call(usable)


def _build_request(pattern: Pattern, filler: SlotFiller, calls: Sequence[ShownCall]) -> str:
    """Build the request, adding every value that the calls use and the request does not mention."""
    asked = truncate_text(to_single_line(filler.fill_text(pattern.asked)), MAX_REQUEST_CHARS)
    used = " ".join(call.arguments for call in calls)
    unsaid = [value for value in filler.invented if value in used and value not in asked]
    named = ", ".join(dict.fromkeys(unsaid))
    if not asked:
        return f"Use {', then '.join(_iter_tool_names(calls))}{f' for {named}' if named else ''}."
    return f"{asked} ({named})" if named else asked


def _iter_tool_names(calls: Sequence[ShownCall]) -> Iterator[str]:
    return iter(dict.fromkeys(call.tool for call in calls))


def _argument_to_text(value: JSON) -> str | None:
    """Return an argument as one text; for `["bash", "-lc", "ls"]`, the command itself."""
    if isinstance(value, (list, tuple)):
        return join_words(cast("Sequence[object]", value)) or None
    return value if isinstance(value, str) and value else None


def _as_mapping(value: JSON) -> Mapping[str, JSON]:
    return cast("Mapping[str, JSON]", value) if isinstance(value, Mapping) else {}
