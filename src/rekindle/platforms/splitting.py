"""Split a text that is too long for one message at the least disruptive places."""

from __future__ import annotations

from collections.abc import Callable

_FENCE = "```"
_SEPARATORS = ("\n\n", "\n", " ")


def split_text(text: str, limit: int, measure: Callable[[str], int] | None = None) -> list[str]:
    """Split a text into parts of at most `limit` characters, between paragraphs, lines or words.

    Only the whitespace at a cut is dropped. Code that is cut inside its fence is fenced in both
    parts. `measure` is for platforms that do not count characters: it returns the size of a text,
    and the parts are cut smaller until each has at most the size `limit`.
    """
    if measure is not None:
        return _split_by_size(text, limit, measure)
    if limit < 1:
        raise ValueError(f"limit: expected 1 or more, got {limit}")
    budget = limit - 2 * (len(_FENCE) + 1) if limit > 20 * len(_FENCE) else limit
    parts: list[str] = []
    rest = text
    opening = ""  # the fence left open by the last cut
    while len(opening) + len(rest) > limit:
        end, skip = _find_cut(rest, budget - len(opening))
        part, rest = opening + rest[:end], rest[end + skip :]
        opening = _find_open_fence(part) if budget < limit else ""
        parts.append(f"{part}\n{_FENCE}" if opening else part)
    if rest.strip() or not parts:
        parts.append(opening + rest)
    return [part for part in parts if part.strip()] or [text]


def _split_by_size(text: str, limit: int, measure: Callable[[str], int]) -> list[str]:
    parts: list[str] = []
    for part in split_text(text, limit):
        size, characters = measure(part), limit
        pieces = [part]
        while size > limit and characters > 1:
            characters = max(1, min(characters - 1, characters * limit // size))
            pieces = split_text(part, characters)
            size = max(map(measure, pieces))
        parts += pieces
    return parts


def _find_cut(text: str, budget: int) -> tuple[int, int]:
    """Return where to cut, and how many separator characters to drop."""
    for separator in _SEPARATORS:
        index = text.rfind(separator, budget // 3, budget + len(separator))
        if index > 0 and text[:index].strip():
            return index, len(separator)
    end = max(1, budget)
    # Do not separate combining characters (accents, emoji sequences) from their base.
    while end > max(1, budget - 16) and _is_joined(text[end - 1], text[end]):
        end -= 1
    return end, 0


def _is_joined(before: str, after: str) -> bool:
    import unicodedata

    joiner, selectors = "\u200d", range(0xFE00, 0xFE10)
    tones = range(0x1F3FB, 0x1F400)
    return (
        joiner in (before, after)
        or unicodedata.combining(after) != 0
        or ord(after) in selectors
        or ord(after) in tones
    )


def _find_open_fence(part: str) -> str:
    """Return the line that reopens the fence if the part ends inside one."""
    fence = ""
    for line in part.split("\n"):
        if line.startswith(_FENCE):
            fence = "" if fence else line[:20]
    return f"{fence}\n" if fence else ""
