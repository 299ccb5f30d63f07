"""Format a tool call as one line: tool, main argument and result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from rekindle.cli.output import to_one_line
from rekindle.types import JSON

if TYPE_CHECKING:
    from rekindle.agent.tools.tool import ToolResult
    from rekindle.types import ToolCall

# The most descriptive arguments of a call, best first.
_SUMMARY_ARGUMENTS = ("command", "path", "pattern", "query", "url", "code", "name", "session")
_MAX_SUMMARY_LENGTH = 1000
_MAX_FAILURE_LENGTH = 300


def summarize_call(call: ToolCall) -> str:
    """Return the most descriptive argument of a call, on one line."""
    given = _parse_object(call.arguments)
    if given is None:
        return escape_invisible(to_one_line(str(call.arguments), _MAX_SUMMARY_LENGTH))
    texts = {name: value for name, value in given.items() if isinstance(value, str) and value}
    best = next((texts[name] for name in _SUMMARY_ARGUMENTS if name in texts), None)
    if best is None:
        best = next(iter(texts.values()), None)
    if best is None:
        best = json.dumps(given, ensure_ascii=False) if given else ""
    return escape_invisible(to_one_line(best, _MAX_SUMMARY_LENGTH))


def format_duration(result: ToolResult) -> str:
    """Format how long the call took; empty if unknown."""
    seconds = result.meta.get("duration")
    if not isinstance(seconds, (int, float)):
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def describe_failure(result: ToolResult) -> str | None:
    """Describe on one line what failed; return None if nothing did."""
    content = _parse_object(result.content) if result.content[:1] == "{" else None
    error = content.get("error") if content else None
    if error:
        return _shorten_text(
            error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
        )
    code = result.meta.get("exit_code")
    if isinstance(code, int) and code:
        output = content.get("output") if content else None
        lines = output.strip().splitlines() if isinstance(output, str) else []
        return _shorten_text(f"exit code {code}" + (f": {lines[-1]}" if lines else ""))
    return _shorten_text(result.content) if result.is_error else None


def escape_invisible(text: str) -> str:
    """Escape characters that a terminal would obey or hide from the reader."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


def _shorten_text(text: str) -> str:
    return escape_invisible(to_one_line(text, _MAX_FAILURE_LENGTH))


def _parse_object(arguments: str | Mapping[str, JSON]) -> Mapping[str, JSON] | None:
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed: object = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, JSON]", parsed) if isinstance(parsed, dict) else None
