"""The input history of the chat: one JSON string per line, in a file only its owner can read."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from rekindle.files import write_new_file


class InputHistory:
    """The latest inputs of all terminals. A missing or unreadable file means no history."""

    def __init__(self, file: Path, limit: int) -> None:
        self._file = file
        self._limit = limit

    def load(self) -> list[str]:
        """Return past inputs, oldest first, and trim the file if it far exceeds the limit."""
        try:
            lines = self._file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        kept = lines[-self._limit :] if self._limit else []
        if len(lines) > 2 * self._limit:
            self._rewrite(kept)
        return [text for text in map(_parse_line, kept) if text]

    def add(self, text: str) -> None:
        """Append an input, unless it starts with a space, as in a shell."""
        if not self._limit or not text.strip() or text[0] == " ":
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(self._file, "a", encoding="ascii", opener=_open_private) as file:
                file.write(json.dumps(text) + "\n")
        except OSError:
            pass  # a full disk or a read-only folder must not end a conversation

    def _rewrite(self, lines: list[str]) -> None:
        with suppress(OSError):
            write_new_file(self._file, "".join(f"{line}\n" for line in lines), durable=False)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _parse_line(line: str) -> str | None:
    try:
        text: object = json.loads(line)
    except ValueError:
        return None
    return text if isinstance(text, str) else None
