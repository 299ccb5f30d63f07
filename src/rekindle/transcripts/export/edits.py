"""Find the edits of files in tool calls, whatever the agent calls them, and show them as diffs.

Edit, MultiEdit, edit, replace, str_replace_editor   an old and a new text, or a list of them
Write, write_file, create                            the whole text of a file
apply_patch, also inside a shell command             a patch in the format of Codex
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple, cast

from rekindle.judging.tool_kinds import classify_tool
from rekindle.types import ToolCall

from .common import parse_arguments

_PATH_KEYS = (
    "file_path", "filePath", "path", "filename", "notebook_path", "target_file", "absolute_path",
)  # fmt: skip
_PAIR_KEYS = (
    ("old_string", "new_string"),
    ("oldString", "newString"),
    ("old_str", "new_str"),
    ("oldText", "newText"),
    ("search", "replace"),
)
_CONTENT_KEYS = ("content", "file_text", "contents", "new_str", "new_source", "text")
_PATCH_START, _PATCH_END = "*** Begin Patch", "*** End Patch"
_FILE_MARKS = (
    ("*** Update File: ", ""),
    ("*** Add File: ", "new"),
    ("*** Delete File: ", "deleted"),
)
_MAX_COMPARED_LINES = 400  # beyond, the old lines are shown as removed and the new ones as added
_CONTEXT_LINES = 3
_MAX_PATCH_DEPTH = 4  # of the objects that a patch is in


class DiffLine(NamedTuple):
    """A line of a diff; `sign` is `+`, `-`, a blank, or `@` for a gap."""

    sign: str
    text: str


class FileEdit(NamedTuple):
    """The change of one file; `state` is new, deleted, written (as a whole) or empty."""

    path: str
    lines: Sequence[DiffLine]
    state: str = ""

    @property
    def added(self) -> int:
        return sum(1 for line in self.lines if line.sign == "+")

    @property
    def removed(self) -> int:
        return sum(1 for line in self.lines if line.sign == "-")


def find_edits(call: ToolCall) -> list[FileEdit]:
    """Return the edits that a call asks for; none if it is no edit."""
    arguments = parse_arguments(call)
    if patch := _find_patch(arguments):
        return [*_parse_patch(patch)]
    if not isinstance(arguments, Mapping) or classify_tool(call.name).shape != "edit":
        return []
    fields = cast("Mapping[str, Any]", arguments)
    path = next((fields[key] for key in _PATH_KEYS if isinstance(fields.get(key), str)), "")
    lines = [*_diff_parts(fields)]
    if lines:
        return [FileEdit(path, lines)]
    content = next((fields[key] for key in _CONTENT_KEYS if isinstance(fields.get(key), str)), None)
    if content is None or not path:
        return []
    state = "" if "insert_line" in fields else "written"
    return [FileEdit(path, [DiffLine("+", line) for line in content.splitlines()], state)]


def diff_texts(old: str, new: str) -> Iterator[DiffLine]:
    """Yield the lines of both texts as a diff, with some context."""
    before, after = old.splitlines(), new.splitlines()
    head = _count_shared(before, after)
    tail = _count_shared(before[head:][::-1], after[head:][::-1])
    shown = max(0, head - _CONTEXT_LINES)
    yield from (DiffLine(" ", line) for line in before[shown:head])
    yield from _diff_lines(before[head : len(before) - tail], after[head : len(after) - tail])
    yield from (DiffLine(" ", line) for line in before[len(before) - tail :][:_CONTEXT_LINES])


def _count_shared(first: Sequence[str], second: Sequence[str]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def _diff_lines(before: Sequence[str], after: Sequence[str]) -> Iterator[DiffLine]:
    if max(len(before), len(after)) > _MAX_COMPARED_LINES:
        yield from (DiffLine("-", line) for line in before)
        yield from (DiffLine("+", line) for line in after)
        return
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from _fold_context(before[a:b])
        else:
            yield from (DiffLine("-", line) for line in before[a:b])
            yield from (DiffLine("+", line) for line in after[c:d])


def _fold_context(lines: Sequence[str]) -> Iterator[DiffLine]:
    if len(lines) <= 2 * _CONTEXT_LINES + 1:
        yield from (DiffLine(" ", line) for line in lines)
        return
    yield from (DiffLine(" ", line) for line in lines[:_CONTEXT_LINES])
    yield DiffLine("@", f"{len(lines) - 2 * _CONTEXT_LINES} unchanged lines")
    yield from (DiffLine(" ", line) for line in lines[-_CONTEXT_LINES:])


def _diff_parts(fields: Mapping[str, Any]) -> Iterator[DiffLine]:
    parts = fields.get("edits")
    edits = cast("list[Any]", parts) if isinstance(parts, list) else [fields]
    is_first = True
    for edit in edits:
        if not isinstance(edit, Mapping):
            continue
        pair = cast("Mapping[str, Any]", edit)
        for old, new in _PAIR_KEYS:
            before, after = pair.get(old), pair.get(new)
            if isinstance(before, str) and isinstance(after, str | None):
                if not is_first:
                    yield DiffLine("@", "")
                yield from diff_texts(before, after or "")
                is_first = False
                break


def _find_patch(arguments: object, depth: int = 0) -> str:
    """Return the patch in the arguments, or an empty text; it never stands deep inside."""
    if isinstance(arguments, str):
        start = arguments.find(_PATCH_START)
        if start < 0:
            return ""
        end = arguments.find(_PATCH_END, start)
        return arguments[start : end if end >= 0 else len(arguments)]
    if isinstance(arguments, Mapping) and depth < _MAX_PATCH_DEPTH:
        values = cast("Mapping[str, object]", arguments).values()
        return next((patch for one in values if (patch := _find_patch(one, depth + 1))), "")
    if isinstance(arguments, (list, tuple)):
        texts = (one for one in cast("list[object]", arguments) if isinstance(one, str))
        return next((patch for one in texts if (patch := _find_patch(one))), "")
    return ""


def _parse_patch(patch: str) -> Iterator[FileEdit]:
    path, state = "", ""
    lines: list[DiffLine] = []
    for line in patch.splitlines()[1:]:
        mark = next((found for found in _FILE_MARKS if line.startswith(found[0])), None)
        if mark:
            if path:
                yield FileEdit(path, lines, state)
            path, state, lines = line[len(mark[0]) :].strip(), mark[1], []
        elif line.startswith("*** Move to: "):
            path = f"{path} → {line[13:].strip()}"
        elif line.startswith("@@"):
            lines.append(DiffLine("@", line[2:].strip()))
        elif line[:1] in ("+", "-", " "):
            lines.append(DiffLine(line[0], line[1:]))
        elif not line:
            lines.append(DiffLine(" ", ""))
    if path:
        yield FileEdit(path, lines, state)
