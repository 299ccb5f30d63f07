"""Show notes: their text with its code marked, and what their kinds are called."""

from __future__ import annotations

from datetime import datetime

from markupsafe import Markup, escape

KIND_NAMES = {
    "wish": "asked for",
    "command": "command",
    "example": "example",
    "workflow": "routine",
    "pitfall": "pitfall",
    "baseline": "red test",
    "place": "file",
}


def mark_code(text: str, length: int = 1_000) -> Markup:
    """Return a text in which what stands between backticks is code; everything is escaped."""
    line = " ".join(text.split())
    if len(line) > length:
        line = f"{line[: length - 1]}…"
    parts = line.split("`")
    if len(parts) % 2 == 0:  # the last one has no end
        parts[-2:] = ["`".join(parts[-2:])]
    marked = [
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    ]
    return Markup("").join(marked)


def format_day(seconds: float | None) -> str:
    """Return the day of a time: `21 Jun`, with the year if it is not this one."""
    if seconds is None:
        return "call"
    day = datetime.fromtimestamp(seconds)
    text = f"{day.day} {day:%b}"
    return text if day.year == datetime.now().year else f"{text} {day.year}"
