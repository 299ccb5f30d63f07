"""`patch`: exact replacements in a file, all of them or none."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher, unified_diff
from itertools import islice

from rekindle.agent.tools.sandbox_paths import Place, locate, open_file, replace_file
from rekindle.agent.tools.tool import Tool, ToolContext, schema
from rekindle.errors import ToolError
from rekindle.types import JSON

MAX_BYTES = 10 * 1024 * 1024
MAX_EDITS = 100
_COMPARED = 20_000  # lines among which the nearest text is looked for
_CANDIDATES = 12
_SHOWN_LINES = 12
_DIFF_LINES = 200


def _patch(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
    place = locate(context, arguments["path"])
    edits: Sequence[Mapping[str, JSON]] = arguments["edits"]
    with open_file(place) as (opened, version):
        if version.size > MAX_BYTES:
            raise ToolError(f"{place.asked}: {version.size:,} bytes are too many to patch")
        with os.fdopen(os.dup(opened), "rb") as file:
            before = _text(place, file.read(MAX_BYTES + 1))
    after = before
    for number, edit in enumerate(edits):
        after = _edited(after, edit, f"edits[{number}]")
    replace_file(place, after.encode(), expected=version)
    return _summary(place, before, after, len(edits))


def _text(place: Place, data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        where = f"byte {error.start}"
        raise ToolError(f"{place.asked}: not UTF-8 at {where}; patch cannot change it") from None
    if "\0" in text:
        raise ToolError(f"{place.asked}: a binary file; patch cannot change it")
    return text


def _edited(text: str, edit: Mapping[str, JSON], at: str) -> str:
    old: str = edit["old_text"]
    new: str = edit["new_text"]
    if old == new:
        raise ToolError(f"{at}: old_text and new_text are the same")
    try:
        new.encode()
    except UnicodeEncodeError as error:
        wrong = f"character {error.start} cannot be written as UTF-8"
        raise ToolError(f"{at}.new_text: {wrong}") from None
    if "\r\n" in text and old not in text:
        old, new = _with_returns(old), _with_returns(new)
    count = text.count(old)
    if count == 0:
        raise ToolError(f"{at}.old_text: not found; nothing was changed. {_nearest(text, old)}")
    if count > 1 and not edit.get("replace_all"):
        lines = ", ".join(str(line) for line in islice(_places(text, old), 10))
        advice = "add lines around it until it is unique, or set replace_all"
        raise ToolError(
            f"{at}.old_text: found {count} times (lines {lines}); nothing was changed; {advice}"
        )
    return text.replace(old, new)


def _with_returns(text: str) -> str:
    """The file ends its lines with CR LF, which the model does not see."""
    return re.sub(r"(?<!\r)\n", "\r\n", text)


def _places(text: str, part: str) -> list[int]:
    found: list[int] = []
    at, line, seen = text.find(part), 1, 0
    while at >= 0 and len(found) < 10:
        line += text.count("\n", seen, at)
        found.append(line)
        seen, at = at, text.find(part, at + len(part))
    return found


def _nearest(text: str, old: str) -> str:
    """The lines that look most like what was looked for, as the file has them."""
    lines = text.split("\n")[:_COMPARED]
    wanted = old.strip("\n").split("\n")
    stripped = [line.strip() for line in wanted]
    best, best_score = -1, 0.0
    for start in _candidates(lines, stripped):
        window = [line.strip() for line in lines[start : start + len(wanted)]]
        if window == stripped:
            shown = _numbered(lines, start, len(wanted))
            return f"Only the white space differs. The file has:\n{shown}"
        ours, theirs = "\n".join(window)[:4000], "\n".join(stripped)[:4000]
        score = SequenceMatcher(None, theirs, ours, autojunk=False).ratio()
        if score > best_score:
            best, best_score = start, score
    if best < 0 or best_score < 0.4:
        return "Nothing in the file looks like it; read the file again."
    return f"The nearest text in the file:\n{_numbered(lines, best, len(wanted))}"


def _candidates(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where a window could begin: where a line is like the longest line that was looked for."""
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
    best = sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:_CANDIDATES]
    return [max(number - offset, 0) for _, number in best]


def _numbered(lines: Sequence[str], start: int, count: int) -> str:
    shown = lines[start : start + min(count, _SHOWN_LINES)]
    return "\n".join(f"{number}|{line[:500]}" for number, line in enumerate(shown, start + 1))


def _summary(place: Place, before: str, after: str, count: int) -> str:
    done = f"patched {place.asked}: {count} edit{'s' if count > 1 else ''}"
    ours, theirs = before.splitlines(), after.splitlines()
    if len(ours) + len(theirs) > 2 * _COMPARED:  # comparing would take longer than patching
        return done
    lines = unified_diff(ours, theirs, n=1, lineterm="")
    diff = list(islice(lines, 2, _DIFF_LINES + 3))  # without the names of the files
    more = ["[… more]"] if len(diff) > _DIFF_LINES else []
    return "\n".join([done, *(line[:500] for line in diff[:_DIFF_LINES]), *more])


PATCH = Tool(
    name="patch",
    toolset="files",
    description=(
        "Change parts of a file. Each edit replaces old_text, exactly as it stands in the file (white"
        " space too, without line numbers), with new_text. old_text must occur once, unless"
        " replace_all is set. Edits apply in order; if one fails nothing is changed."
    ),
    parameters=schema(
        "path",
        "edits",
        path={"type": "string", "minLength": 1, "description": "the file"},
        edits={
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_EDITS,
            "items": schema(
                "old_text",
                "new_text",
                old_text={"type": "string", "minLength": 1, "description": "text to replace"},
                new_text={"type": "string", "description": "what stands there then"},
                replace_all={"type": "boolean", "description": "replace every occurrence"},
            ),
        },
    ),
    handler=_patch,
    emoji="🩹",
    seconds=30,
)
