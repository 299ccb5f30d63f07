"""The bot's account: logs in, and keeps its state between runs.

login.json    the access token, if the bot logged in with its password
sync.json     the sync token, and the messages whose keys have not arrived
keys.db       the keys of its device (written by matrix-nio)
signing.json  the keys by which the account vouches for its device
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
from typing import Any, NamedTuple, cast

from rekindle.errors import PlatformError

from .homeserver import CLIENT_API, HomeserverClient, build_path

logger = logging.getLogger(__name__)

LOGIN_NAME = "login.json"
KEYS_NAME = "keys.db"
_LOCK_POLL_SECONDS = 0.5
_DEVICE_NAME = "Rekindle"


class MatrixSettings(NamedTuple):
    """The settings of the platform."""

    homeserver: str
    user: str = ""
    access_token: str = ""
    password: str = ""
    device_id: str = ""
    message_type: str = "text"


class StateFolder:
    """The files of a bot; all of them are readable by the user alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Create the folder and the key file with private permissions from the start."""
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


class Account:
    """Who the bot is. `user_id` and `device_id` are known after `open`."""

    def __init__(self, settings: MatrixSettings, folder: Path) -> None:
        self.settings = settings
        self.state = StateFolder(folder)
        self.homeserver = HomeserverClient(settings.homeserver)
        self.user_id = ""
        self.device_id = ""
        self.has_new_login = False  # since the keys were last seen on the homeserver
        self._can_log_in = bool(settings.password and settings.user)

    async def open(self) -> None:
        """Find out who the bot is, and log in if there is no access token; raise PlatformError."""
        self.state.prepare()
        known = self.state.read(LOGIN_NAME)
        if known.get("homeserver") != self.homeserver.url or not self._is_own(known.get("user_id")):
            known = {}
        self.homeserver.token = self.settings.access_token or str(known.get("access_token", ""))
        self.homeserver.log_in_again = self._log_in if self._can_log_in else None
        if not self.homeserver.token and not await self._log_in():
            raise PlatformError(
                "matrix needs an access token, or a user and a password;"
                " enter them with `rekindle gateway setup matrix`",
                permanent=True,
            )
        answer = await self.homeserver.request("GET", build_path("account", "whoami"))
        self.user_id = str(answer.get("user_id", ""))
        self.device_id = str(answer.get("device_id") or self.settings.device_id)
        if not self.device_id:
            raise PlatformError(
                "the access token belongs to no device; log in with the password to create one",
                permanent=True,
            )

    async def find_display_name(self) -> str:
        """Return the name that others see."""
        path = build_path("profile", self.user_id, "displayname")
        try:
            answer = await self.homeserver.request("GET", path)
        except PlatformError as error:
            if not error.permanent:
                raise
            answer = {}
        return str(answer.get("displayname") or self.user_id)

    async def _log_in(self) -> bool:
        """Log in with the password, under the device of the last time so that its keys stay valid."""
        if not self._can_log_in:
            return False
        known = self.state.read(LOGIN_NAME)
        request: dict[str, Any] = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": self.settings.user},
            "password": self.settings.password,
            "initial_device_display_name": _DEVICE_NAME,
        }
        known_device = known.get("device_id") if self._is_own(known.get("user_id")) else None
        device_id = self.device_id or self.settings.device_id or known_device
        if device_id:
            request["device_id"] = str(device_id)
        self.homeserver.token = ""
        answer = await self.homeserver.request("POST", f"{CLIENT_API}/login", request)
        self.homeserver.token = str(answer["access_token"])
        self.has_new_login = True
        self.state.write(
            LOGIN_NAME,
            {
                "homeserver": self.homeserver.url,
                "user_id": answer["user_id"],
                "device_id": answer["device_id"],
                "access_token": answer["access_token"],
            },
        )
        logger.info("logged in as %s, device %s", answer["user_id"], answer["device_id"])
        return True

    def _is_own(self, user_id: object) -> bool:
        """Return whether a remembered login belongs to the user of the settings."""
        user = self.settings.user
        name = str(user_id or "")
        return not user or name == user or name.removeprefix("@").partition(":")[0] == user
