"""Render the messages that a warm session begins with, from a template and some of its notes.

They go after the leading system messages and before the first user message. Notes are statements in
one system message. Only an example, whose request, command and answer belong together, can be shown as
turns: a user request, the call with its result, and the answer, each marked as past. If a provider
requires a signature on every past call, no turn can be shown, and examples are statements too.

Equal input gives equal bytes: call ids are derived from the calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from string import ascii_letters, digits
from typing import Literal, NamedTuple, TypeAlias

from rekindle.judging.tool_kinds import classify_tool
from rekindle.shell.risk import find_line_effects
from rekindle.types import JSON, Message, Template, TemplateNote, ToolCall

from . import tokens
from .notes.note import count_sessions, describe_slots

# As a digest everything is a statement; otherwise examples are turns, and the rest are statements.
PreludeForm: TypeAlias = Literal["turns", "digest", "both"]
PRELUDE_FORMS: tuple[PreludeForm, ...] = ("turns", "digest", "both")
# The available tools by name, each with a check whether it accepts some arguments.
Tools: TypeAlias = Mapping[str, Callable[[Mapping[str, JSON]], bool]]

DEFAULT_TOKENS = 1_200
DEFAULT_NOTES, MAX_NOTES = 12, 15
MAX_CONTEXT_CHARS = 1_500
MAX_LINE_CHARS = 400
PAST_MARK = "[from an earlier session]"
MADE_UP_MARK = "[from an earlier session, with other values]"
LEFT_OUT_RESULT = "(exit code 0; output left out)"
TRUNCATION_MARK = " … [shortened]"
CONTEXT_HEADER = "Known from earlier sessions:"
DIGEST_HEADER = "From earlier sessions:"
_HEADINGS = {
    "wish": "What people want:",
    "command": "Commands that worked:",
    "workflow": "Commands that followed each other:",
    "pitfall": "What failed, and what worked instead:",
    "baseline": "What fails anyway:",
    "example": "What was asked, and what was done:",
    "place": "Files that sessions used:",
}
# Shapes of tools of which a session needs one to act on a note.
_SHELL = frozenset(("shell",))
_NEEDED_SHAPES = {
    "command": _SHELL,
    "workflow": _SHELL,
    "pitfall": _SHELL,
    "example": _SHELL,
    "place": frozenset(("shell", "read", "search", "edit", "code")),
}
_COMMAND_ARGUMENTS = ("command", "cmd")
_SPACE = re.compile(r"\s+")
_UNSENDABLE = re.compile("[\ud800-\udfff\x00-\x08\x0b-\x1f\x7f]")
_ID_ALPHABET = digits + ascii_letters
_ID_LENGTH = 9  # letters and digits: accepted by every provider


class RenderOptions(NamedTuple):
    """How to render; `calls` says whether the provider accepts past calls."""

    form: PreludeForm = "both"
    tokens: int = DEFAULT_TOKENS
    notes: int = MAX_NOTES
    examples: bool = True  # whether to tell any notes, and not only the context
    context: int = MAX_CONTEXT_CHARS  # characters of the template's seed
    calls: bool = True


class RenderedPrelude(NamedTuple):
    """The messages, their token count, and the ids of the notes in them, best first."""

    messages: tuple[Message, ...] = ()
    tokens: int = 0
    notes: tuple[str, ...] = ()


_DEFAULT_OPTIONS = RenderOptions()


def render_prelude(
    template: Template,
    notes: Sequence[TemplateNote],
    tools: Tools,
    options: RenderOptions = _DEFAULT_OPTIONS,
) -> RenderedPrelude:
    """Render these notes of the template, best first; return no messages if none fit."""
    context = _render_context(template, min(options.context, MAX_CONTEXT_CHARS))
    messages = _build_messages(context, (), tools, options)
    if tokens.estimate_message_tokens(messages) > options.tokens:
        context, messages = "", ()
    kept: list[TemplateNote] = []
    for note in notes if options.examples else ():
        if len(kept) == min(options.notes, MAX_NOTES):
            break
        if not is_usable(note, tools):
            continue
        longer = _build_messages(context, [*kept, note], tools, options)
        if tokens.estimate_message_tokens(longer) <= options.tokens:
            kept.append(note)
            messages = longer
    ids = tuple(note.id for note in kept)
    return RenderedPrelude(messages, tokens.estimate_message_tokens(messages), ids)


def render_examples(
    notes: Iterable[TemplateNote], tools: Tools, options: RenderOptions = _DEFAULT_OPTIONS
) -> tuple[Message, ...]:
    """Render as turns the examples of a project, whose values are made up, if they can be shown so."""
    used: set[str] = set()
    shown = (note for note in notes if _is_shown_as_turn(note, tools, options))
    turns = (
        _render_turn(note, number, used, tools, MADE_UP_MARK) for number, note in enumerate(shown)
    )
    return tuple(message for turn in turns for message in turn)


def is_usable(note: TemplateNote, tools: Tools) -> bool:
    """Return whether a session with these tools can act on a note."""
    needed = _NEEDED_SHAPES.get(note.kind)
    return needed is None or any(classify_tool(tool).shape in needed for tool in tools)


def _build_messages(
    context: str, notes: Sequence[TemplateNote], tools: Tools, options: RenderOptions
) -> tuple[Message, ...]:
    """Build the messages with the best example last: models follow the nearest one most."""
    turns = [note for note in reversed(notes) if _is_shown_as_turn(note, tools, options)]
    digest = _render_digest([note for note in notes if note not in turns])
    found: list[Message] = []
    if context or digest:
        found.append(Message("system", "\n\n".join(part for part in (context, digest) if part)))
    used: set[str] = set()
    for number, note in enumerate(turns):
        found.extend(_render_turn(note, number, used, tools))
    return tuple(found)


def _is_shown_as_turn(note: TemplateNote, tools: Tools, options: RenderOptions) -> bool:
    parts = [to_single_line(text or "") for text in (note.asked, note.answer, note.command)]
    if note.kind != "example" or not all(parts) or options.form == "digest" or not options.calls:
        return False
    is_complete = not any(gap in part for part in parts for gap in ("<", "…", "\ufffd"))
    is_repeatable = is_complete and not find_line_effects(note.command or "")
    return is_repeatable and _find_shell(note, tools) is not None


def _find_shell(note: TemplateNote, tools: Tools) -> tuple[str, dict[str, JSON]] | None:
    """Return a tool that can run the command of a note, with the arguments for it."""
    command = f"cd {note.folder} && {note.command}" if note.folder else note.command
    for tool in sorted(tools):
        for name in _COMMAND_ARGUMENTS if classify_tool(tool).shape == "shell" else ():
            if tools[tool]({name: command}):
                return tool, {name: command}
    return None


def _render_turn(
    note: TemplateNote, number: int, used: set[str], tools: Tools, mark: str = PAST_MARK
) -> Iterator[Message]:
    found = _find_shell(note, tools)
    if found is None:
        return
    tool, arguments = found[0], json.dumps(found[1], ensure_ascii=False)
    id = _make_call_id(f"{number}:{tool}:{arguments}", used)
    yield Message("user", f"{mark} {to_single_line(note.asked)}")
    yield Message("assistant", None, (ToolCall(id, tool, arguments),))
    yield Message("tool", LEFT_OUT_RESULT, tool_call_id=id, name=tool)
    yield Message("assistant", to_single_line(note.answer))


def _make_call_id(seed: str, used: set[str]) -> str:
    """Derive an id of nine letters and digits, equal for the same call in the same place."""
    id = ""
    while not id or id in used:
        number = int.from_bytes(sha256(seed.encode("utf-8", "surrogatepass")).digest())
        characters: list[str] = []
        for _ in range(_ID_LENGTH):
            number, index = divmod(number, len(_ID_ALPHABET))
            characters.append(_ID_ALPHABET[index])
        id, seed = "".join(characters), f"{seed}+"
    used.add(id)
    return id


def _render_digest(notes: Sequence[TemplateNote]) -> str:
    lines = [DIGEST_HEADER] if notes else []
    for kind, heading in _HEADINGS.items():
        of_kind = [note for note in notes if note.kind == kind]
        lines += [heading, *map(_render_line, of_kind)] if of_kind else []
    return "\n".join(lines)


def _render_line(note: TemplateNote) -> str:
    text = truncate_text(to_single_line(note.text), MAX_LINE_CHARS)
    if note.kind == "command" and note.command and text.endswith("`"):
        text += describe_slots(note.command, note.folder)
    if not note.sessions or text.endswith(")"):  # it says so itself
        return f"- {text}"
    return f"- {text} ({count_sessions(note.sessions)})"


def _render_context(template: Template, limit: int) -> str:
    """Render the template's seed: user instructions, then files, then the system prompt."""
    seed = template.seed
    lines = [f"- The user asked for: {to_single_line(one)}" for one in seed.instructions if one]
    if seed.markers:
        lines.append(f"- Files in use: {', '.join(map(to_single_line, seed.markers))}")
    if seed.system:
        lines.append(f"- The agent was told: {to_single_line(seed.system)}")
    text = ""
    for one in lines:
        longer = f"{text}\n{one}" if text else f"{CONTEXT_HEADER}\n{one}"
        if len(longer) > limit:
            return truncate_text(longer, limit) if limit > len(CONTEXT_HEADER) + 80 else text
        text = longer
    return text


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
