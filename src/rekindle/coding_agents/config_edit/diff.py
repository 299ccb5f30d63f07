"""Show a change of a text as a unified diff."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

CONTEXT_LINES = 3
MAX_LINE_CHARS = 400


def render_diff(name: str, before: str | None, after: str | None) -> Iterator[str]:
    """Yield the lines of a unified diff; None stands for a file that does not exist."""
    old, new = _split_lines(before), _split_lines(after)
    start = _count_common(old, new)
    end = _count_common(old[start:][::-1], new[start:][::-1])
    # Only what lies between the first and the last difference is compared: files may be large.
    first = max(0, start - CONTEXT_LINES)
    old_part = old[first : len(old) - max(0, end - CONTEXT_LINES)]
    new_part = new[first : len(new) - max(0, end - CONTEXT_LINES)]
    yield f"--- {name if before is not None else '/dev/null'}"
    yield f"+++ {name if after is not None else '/dev/null'}"
    matcher = SequenceMatcher(None, old_part, new_part, autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        yield _render_header(group, first)
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (f" {_fit_line(line)}" for line in old_part[i1:i2])
                continue
            yield from (f"-{_fit_line(line)}" for line in old_part[i1:i2])
            yield from (f"+{_fit_line(line)}" for line in new_part[j1:j2])


def _split_lines(text: str | None) -> list[str]:
    """Split a text at its newlines; a missing one at the end is visible as in other tools."""
    if not text:
        return []
    lines = text.split("\n")
    if lines[-1]:
        return [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]
    return lines[:-1]


def _count_common(old: Sequence[str], new: Sequence[str]) -> int:
    pairs = zip(old, new, strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))


def _render_header(group: Sequence[tuple[str, int, int, int, int]], first: int) -> str:
    (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
    return f"@@ -{_format_range(first + i1, i2 - i1)} +{_format_range(first + j1, j2 - j1)} @@"


def _format_range(start: int, length: int) -> str:
    begin = start + 1 if length else start
    return str(begin) if length == 1 else f"{begin},{length}"


def _fit_line(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}…"
