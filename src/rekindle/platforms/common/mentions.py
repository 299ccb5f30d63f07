"""What Slack and Discord write in angle brackets: mentions, channels, links, emoji."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


async def replace_brackets(text: str, show: Callable[[str], Awaitable[str | None]]) -> str:
    """Replace every `<…>` by what `show` returns for its inside; None leaves it as it is."""
    head, *pieces = text.split("<")
    parts = [head]
    for piece in pieces:
        inside, closed, after = piece.partition(">")
        shown = await show(inside) if closed else None
        parts.append(f"<{piece}" if shown is None else shown + after)
    return "".join(parts)
