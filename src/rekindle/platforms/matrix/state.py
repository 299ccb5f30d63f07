"""What the bot must remember between runs: its login, its place in the timeline, missing keys.

login.json    the access token, if the bot logged in with its password
sync.json     the sync token, and the messages whose keys have not arrived
keys.db       the keys of its device (written by matrix-nio)
lock          held by whoever listens
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from rekindle.errors import PlatformError

logger = logging.getLogger(__name__)

KEYS_NAME = "keys.db"
_LOCK_POLL_SECONDS = 0.5


class StateFolder:
    """The files of a bot; all of them are readable by the user alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Create the folder and the file of the keys, so that nobody else can ever read it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.folder / KEYS_NAME, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            raise PlatformError(f"cannot write to {self.folder}: {error}") from error

    def read(self, name: str) -> dict[str, Any]:
        """Return the object in a file; an empty one if there is none, or if it is damaged."""
        try:
            value: Any = json.loads((self.folder / name).read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            logger.warning("%s cannot be read, so it is made anew: %s", self.folder / name, error)
            return {}
        return cast(dict[str, Any], value) if isinstance(value, dict) else {}

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace a file, all of it or nothing."""
        path = self.folder / name
        draft = path.with_suffix(f".{os.getpid()}.draft")
        try:
            with open(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
                json.dump(value, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as error:
            raise PlatformError(f"cannot write {path}: {error}") from error

    @asynccontextmanager
    async def lock(self) -> AsyncGenerator[None]:
        """Wait until no other program listens with this device; two would lose each other's keys."""
        self.prepare()
        with open(os.open(self.folder / "lock", os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            is_logged = False
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if not is_logged:
                        logger.warning("another gateway uses %s; waiting for it", self.folder)
                    is_logged = True
                await asyncio.sleep(_LOCK_POLL_SECONDS)
            yield
