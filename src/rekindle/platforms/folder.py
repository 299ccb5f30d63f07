"""A folder as a platform: results that go nowhere else are kept as files on this machine."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from rekindle.errors import PlatformError
from rekindle.types import Source

from . import Platform, PlatformMessage

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


class FolderPlatform(Platform):
    """Writes every sent message to its own file; never receives any."""

    name = "folder"
    limit = 10_000_000
    can_edit = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._closed = asyncio.Event()

    async def listen(self) -> AsyncGenerator[PlatformMessage]:
        """Wait until the platform is closed."""
        await self._closed.wait()
        return
        yield  # makes this a generator

    async def acknowledge(self, incoming: PlatformMessage) -> None:
        """Do nothing: nothing comes in."""

    async def send(self, target: Source, text: str, nonce: str) -> str:
        """Write a text to a file and return its name; the same nonce writes the same file."""
        moment = time.strftime("%Y-%m-%d-%H%M%S")
        mark = _UNSAFE.sub("-", nonce)[-40:]
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            known = next(self._folder.glob(f"*-{mark}.md"), None)
            path = known or self._folder / f"{moment}-{mark}.md"
            await asyncio.to_thread(_write_file, path, text, self._folder / f".{mark}.draft")
        except OSError as error:
            raise PlatformError(f"cannot write to {self._folder}: {error}") from error
        return path.name

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        """Replace the text of a file."""
        path = self._folder / Path(message_id).name
        await asyncio.to_thread(_write_file, path, text, path.with_suffix(".draft"))

    async def close(self) -> None:
        self._closed.set()


def _write_file(path: Path, text: str, draft: Path) -> None:
    """Write a file whole or not at all; the next attempt replaces a draft that a crash left."""
    with open(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8",
              errors="replace") as file:  # fmt: skip
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
