"""`patch`: make exact replacements in a file, all of them or none."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher, unified_diff
from itertools import islice

from rekindle.agent.tools.sandbox_paths import (
    SandboxPath,
    assess_write,
    open_file,
    replace_file,
    resolve_path,
)
from rekindle.agent.tools.tool import Tool, ToolContext, build_schema
from rekindle.errors import ToolError
from rekindle.types import JSON

MAX_BYTES = 10 * 1024 * 1024
MAX_EDITS = 100
_MAX_COMPARED_LINES = 20_000  # lines searched for similar text
_MAX_CANDIDATES = 12
_MAX_SHOWN_LINES = 12
_MAX_DIFF_LINES = 200


def _patch_file(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
    path = resolve_path(context, arguments["path"])
    edits: Sequence[Mapping[str, JSON]] = arguments["edits"]
    with open_file(path) as (opened, version):
        if version.size > MAX_BYTES:
            raise ToolError(f"{path.asked}: too large to patch ({version.size:,} bytes)")
        with os.fdopen(os.dup(opened), "rb") as file:
            before = _decode_text(path, file.read(MAX_BYTES + 1))
    after = before
    for number, edit in enumerate(edits):
        after = _apply_edit(after, edit, f"edits[{number}]")
    replace_file(path, after.encode(), expected=version)
    return _summarize_edits(path, before, after, len(edits))


def _decode_text(path: SandboxPath, data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        where = f"byte {error.start}"
        raise ToolError(f"{path.asked}: not UTF-8 at {where}; patch cannot change it") from None
    if "\0" in text:
        raise ToolError(f"{path.asked}: a binary file; patch cannot change it")
    return text


def _apply_edit(text: str, edit: Mapping[str, JSON], field: str) -> str:
    old: str = edit["old_text"]
    new: str = edit["new_text"]
    if old == new:
        raise ToolError(f"{field}: old_text and new_text are the same")
    try:
        new.encode()
    except UnicodeEncodeError as error:
        problem = f"character {error.start} cannot be encoded as UTF-8"
        raise ToolError(f"{field}.new_text: {problem}") from None
    if "\r\n" in text and old not in text:
        old, new = _use_crlf(old), _use_crlf(new)
    count = text.count(old)
    if count == 0:
        raise ToolError(
            f"{field}.old_text: not found; nothing was changed. {_describe_nearest(text, old)}"
        )
    if count > 1 and not edit.get("replace_all"):
        lines = ", ".join(str(line) for line in islice(_find_lines(text, old), 10))
        advice = "add surrounding lines to make it unique, or set replace_all"
        raise ToolError(
            f"{field}.old_text: found {count} times (lines {lines}); nothing was changed; {advice}"
        )
    return text.replace(old, new)


def _use_crlf(text: str) -> str:
    """Convert line endings to CR LF as in the file; the model does not see them."""
    return re.sub(r"(?<!\r)\n", "\r\n", text)


def _find_lines(text: str, part: str) -> list[int]:
    found: list[int] = []
    position, line, seen = text.find(part), 1, 0
    while position >= 0 and len(found) < 10:
        line += text.count("\n", seen, position)
        found.append(line)
        seen, position = position, text.find(part, position + len(part))
    return found


def _describe_nearest(text: str, old: str) -> str:
    """Describe the lines of the file that are most similar to the searched text."""
    lines = text.split("\n")[:_MAX_COMPARED_LINES]
    wanted = old.strip("\n").split("\n")
    stripped = [line.strip() for line in wanted]
    best, best_score = -1, 0.0
    for start in _find_candidates(lines, stripped):
        window = [line.strip() for line in lines[start : start + len(wanted)]]
        if window == stripped:
            shown = _number_lines(lines, start, len(wanted))
            return f"Only whitespace differs. The file has:\n{shown}"
        ours, theirs = "\n".join(window)[:4000], "\n".join(stripped)[:4000]
        score = SequenceMatcher(None, theirs, ours, autojunk=False).ratio()
        if score > best_score:
            best, best_score = start, score
    if best < 0 or best_score < 0.4:
        return "Nothing similar is in the file; read it again."
    return f"The most similar text in the file:\n{_number_lines(lines, best, len(wanted))}"


def _find_candidates(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return where a window could start: at lines similar to the longest searched line."""
    offset = max(range(len(wanted)), key=lambda number: len(wanted[number]))
    key = wanted[offset][:300]
    if not key:
        return []
    matcher = SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(key)
    scored: list[tuple[float, int]] = []
    for number, line in enumerate(lines):
        short = line.strip()[:300]
        if short == key:
            scored.append((2.0, number))
            continue
        matcher.set_seq1(short)
        if matcher.real_quick_ratio() > 0.5 and (score := matcher.quick_ratio()) > 0.5:
            scored.append((score, number))
    best = sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:_MAX_CANDIDATES]
    return [max(number - offset, 0) for _, number in best]


def _number_lines(lines: Sequence[str], start: int, count: int) -> str:
    shown = lines[start : start + min(count, _MAX_SHOWN_LINES)]
    return "\n".join(f"{number}|{line[:500]}" for number, line in enumerate(shown, start + 1))


def _summarize_edits(path: SandboxPath, before: str, after: str, count: int) -> str:
    done = f"patched {path.asked}: {count} edit{'s' if count > 1 else ''}"
    ours, theirs = before.splitlines(), after.splitlines()
    if len(ours) + len(theirs) > 2 * _MAX_COMPARED_LINES:  # a diff would take too long
        return done
    lines = unified_diff(ours, theirs, n=1, lineterm="")
    diff = list(islice(lines, 2, _MAX_DIFF_LINES + 3))  # without the file name headers
    more = ["[… more]"] if len(diff) > _MAX_DIFF_LINES else []
    return "\n".join([done, *(line[:500] for line in diff[:_MAX_DIFF_LINES]), *more])


PATCH = Tool(
    name="patch",
    toolset="files",
    description=(
        "Change parts of a file. Each edit replaces old_text with new_text. old_text must match the"
        " file exactly, including whitespace and without line numbers, and must occur once unless"
        " replace_all is set. Edits are applied in order; if one fails, nothing is changed."
    ),
    parameters=build_schema(
        "path",
        "edits",
        path={"type": "string", "minLength": 1, "description": "path of the file"},
        edits={
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_EDITS,
            "items": build_schema(
                "old_text",
                "new_text",
                old_text={"type": "string", "minLength": 1, "description": "text to replace"},
                new_text={"type": "string", "description": "replacement"},
                replace_all={"type": "boolean", "description": "replace every occurrence"},
            ),
        },
    ),
    handler=_patch_file,
    abilities=frozenset(("read_files", "write_files")),
    assess=assess_write,
    emoji="🩹",
    seconds=30,
)
