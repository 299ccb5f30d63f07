"""What was typed before: one JSON text per line, in a file that only its owner can read."""

from __future__ import annotations

import json
import os
from pathlib import Path


class History:
    """The newest lines of all terminals, kept in a file. Without the file there is just no history."""

    def __init__(self, file: Path, limit: int) -> None:
        self._file = file
        self._limit = limit

    def load(self) -> list[str]:
        """What was typed, oldest first. A file that has grown far over the limit is cut."""
        try:
            lines = self._file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        kept = lines[-self._limit :] if self._limit else []
        if len(lines) > 2 * self._limit:
            self._replace(kept)
        return [text for text in map(_parsed, kept) if text]

    def add(self, text: str) -> None:
        """Remember a text, unless it begins with a space: that keeps it out, as in a shell."""
        if not self._limit or not text.strip() or text[0] == " ":
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(self._file, "a", encoding="ascii", opener=_private) as file:
                file.write(json.dumps(text) + "\n")
        except OSError:
            pass  # a full disk or a folder that cannot be written to must not end a conversation

    def _replace(self, lines: list[str]) -> None:
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            with open(draft, "w", encoding="utf-8", opener=_private) as file:
                file.writelines(f"{line}\n" for line in lines)
            draft.replace(self._file)
        except OSError:
            draft.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _parsed(line: str) -> str | None:
    try:
        text: object = json.loads(line)
    except ValueError:
        return None
    return text if isinstance(text, str) else None
