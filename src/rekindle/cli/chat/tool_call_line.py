"""A tool call folded to one line: what is called, with what, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from rekindle.cli.output import one_line
from rekindle.types import JSON

if TYPE_CHECKING:
    from rekindle.agent.tools.tool import ToolResult
    from rekindle.types import ToolCall

# The arguments that say most about a call, the best first.
_TELLING = ("command", "path", "pattern", "query", "url", "code", "name", "session")
_LOOKED_AT = 1000
_TROUBLE = 300


def telling(call: ToolCall) -> str:
    """The argument that tells what a call is about, on one line."""
    given = _object(call.arguments)
    if given is None:
        return visible(one_line(str(call.arguments), _LOOKED_AT))
    texts = {name: value for name, value in given.items() if isinstance(value, str) and value}
    best = next((texts[name] for name in _TELLING if name in texts), None)
    if best is None:
        best = next(iter(texts.values()), None)
    if best is None:
        best = json.dumps(given, ensure_ascii=False) if given else ""
    return visible(one_line(best, _LOOKED_AT))


def duration(result: ToolResult) -> str:
    """How long the call took, for people; empty where that is not known."""
    seconds = result.meta.get("duration")
    if not isinstance(seconds, (int, float)):
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def trouble(result: ToolResult) -> str | None:
    """What went wrong, on one line; None if nothing did."""
    said = _object(result.content) if result.content[:1] == "{" else None
    error = said.get("error") if said else None
    if error:
        return _short(error if isinstance(error, str) else json.dumps(error, ensure_ascii=False))
    code = result.meta.get("exit_code")
    if isinstance(code, int) and code:
        output = said.get("output") if said else None
        lines = output.strip().splitlines() if isinstance(output, str) else []
        return _short(f"exit code {code}" + (f": {lines[-1]}" if lines else ""))
    return _short(result.content) if result.failed else None


def fitted(text: str, cells: int) -> str:
    """`text` in at most so many cells of a terminal; the cut is marked."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, cells - 1).rstrip() + "…" if cells > 1 else ""


def visible(text: str) -> str:
    """`text` with everything escaped that a terminal would obey, or hide from the reader."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


def _short(text: str) -> str:
    return visible(one_line(text, _TROUBLE))


def _object(arguments: str | Mapping[str, JSON]) -> Mapping[str, JSON] | None:
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed: object = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, JSON]", parsed) if isinstance(parsed, dict) else None
