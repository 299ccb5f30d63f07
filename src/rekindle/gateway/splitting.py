"""A text that is too long for one message, cut where it hurts least."""

from __future__ import annotations

_FENCE = "```"
_BORDERS = ("\n\n", "\n", " ")


def split(text: str, limit: int) -> list[str]:
    """The text in parts of at most `limit` characters: cut between paragraphs, lines, or words.

    Nothing is lost but the blank at a cut. Code that is cut inside its fence is fenced in both parts.
    """
    if limit < 1:
        raise ValueError(f"limit: expected 1 or more, got {limit}")
    room = limit - 2 * (len(_FENCE) + 1) if limit > 20 * len(_FENCE) else limit
    parts: list[str] = []
    rest = text
    opening = ""  # the fence that the last cut left open
    while len(opening) + len(rest) > limit:
        end, skip = _cut(rest, room - len(opening))
        part, rest = opening + rest[:end], rest[end + skip :]
        opening = _left_open(part) if room < limit else ""
        parts.append(f"{part}\n{_FENCE}" if opening else part)
    if rest.strip() or not parts:
        parts.append(opening + rest)
    return [part for part in parts if part.strip()] or [text]


def _cut(text: str, room: int) -> tuple[int, int]:
    """Where to cut, and how much of the border to leave out."""
    for border in _BORDERS:
        place = text.rfind(border, room // 3, room + len(border))
        if place > 0 and text[:place].strip():
            return place, len(border)
    end = max(1, room)
    # What joins with the sign before it stays with it: an accent, the rest of an emoji.
    while end > max(1, room - 16) and _joins(text[end - 1], text[end]):
        end -= 1
    return end, 0


def _joins(before: str, after: str) -> bool:
    import unicodedata

    joiner, selectors = "\u200d", range(0xFE00, 0xFE10)
    tones = range(0x1F3FB, 0x1F400)
    return (
        joiner in (before, after)
        or unicodedata.combining(after) != 0
        or ord(after) in selectors
        or ord(after) in tones
    )


def _left_open(part: str) -> str:
    """The line that opens the fence again, if the part ends inside one."""
    opened = ""
    for line in part.split("\n"):
        if line.startswith(_FENCE):
            opened = "" if opened else line[:20]
    return f"{opened}\n" if opened else ""
