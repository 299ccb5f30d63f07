"""The settings and the store of a home, kept open from hook to hook."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Literal, NamedTuple

import msgspec

from rekindle.errors import StoreReadOnly
from rekindle.files import write_new_file
from rekindle.store import Store, open_store

from .command import HOOKS_FOLDER

BUSY_SECONDS = 0.3  # an agent waits for the answer
CACHE_FILE = "settings.json"
_SCHEMA = Path(__file__).parents[1] / "config" / "schema.py"

EnvironmentSettings = tuple[tuple[str, str], ...]


class HookSettings(msgspec.Struct, frozen=True):
    """The settings that hooks need; `key` is of what they were read from."""

    key: str
    store_url: str
    durability: Literal["full", "relaxed"]
    busy_seconds: float
    active_seconds: float
    undo_seconds: float
    is_warm: bool
    control_share: float
    at_failure: bool = True
    before_call: bool = False
    server_url: str = ""
    server_key: str = ""  # the file that keeps the settings is readable by its user only

    @property
    def has_store(self) -> bool:
        """Whether the store exists."""
        return "://" in self.store_url or os.path.exists(self.store_url)


class _OpenStore(NamedTuple):
    settings: HookSettings
    identity: object
    store: Store | None


class HomeStore:
    """Opens the store of a home, again whenever its settings or its file are others."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = Lock()
        self._open: _OpenStore | None = None

    def get(self, environment: EnvironmentSettings) -> tuple[HookSettings, Store | None]:
        """Return the settings, and the store unless it does not exist yet."""
        with self._lock:
            key = _make_key(self._home, environment)
            held = self._open
            if (
                held is not None
                and held.settings.key == key
                and held.identity == _read_identity(held.settings.store_url)
            ):
                return held.settings, held.store
            self.forget()
            settings = load_hook_settings(self._home, environment)
            store = open_home_store(settings, BUSY_SECONDS) if settings.has_store else None
            self._open = _OpenStore(settings, _read_identity(settings.store_url), store)
            return settings, store

    def forget(self) -> None:
        """Forget the store, because it failed; other threads may still read from it."""
        self._open = None


def load_hook_settings(home: Path, environment: EnvironmentSettings) -> HookSettings:
    """Load the settings of a home, with those that the environment of a hook has.

    They are kept in a file: to load all settings takes longer than an answer may.
    """
    file = home / HOOKS_FOLDER / CACHE_FILE
    key = _make_key(home, environment)
    try:
        cached = msgspec.json.decode(file.read_bytes(), type=HookSettings)
        if cached.key == key:
            return cached
    except (OSError, msgspec.MsgspecError):
        pass  # there is none yet
    settings = _read_settings(home, environment, key)
    try:
        write_new_file(file, msgspec.json.encode(settings), durable=False)
    except OSError:
        pass  # the next hook loads them again
    return settings


def _read_settings(home: Path, environment: EnvironmentSettings, key: str) -> HookSettings:
    from rekindle.config import load_config

    config = load_config({**dict(environment), "REKINDLE_HOME": str(home)})
    return HookSettings(
        key=key,
        store_url=config.store.url,
        durability=config.store.durability,
        busy_seconds=config.store.busy_seconds,
        active_seconds=config.retention.active_hours * 3600,
        undo_seconds=config.retention.undo_days * 86400,
        is_warm=config.warm.enabled,
        control_share=float(config.warm.control_share),
        at_failure=config.warm.at_failure,
        before_call=config.warm.before_call,
        server_url=config.server.url,
        server_key=config.server.api_key,
    )


def open_home_store(settings: HookSettings, busy_seconds: float | None = None) -> Store:
    """Open the store with the configured options, read-only if it cannot be written."""
    for readonly in (False, True):
        try:
            return open_store(
                settings.store_url,
                durability=settings.durability,
                busy_seconds=settings.busy_seconds if busy_seconds is None else busy_seconds,
                active_seconds=settings.active_seconds,
                undo_seconds=settings.undo_seconds,
                readonly=readonly,
            )
        except StoreReadOnly:
            if readonly:
                raise
    raise AssertionError


def _make_key(home: Path, environment: EnvironmentSettings) -> str:
    """Return a digest of all that settings depend on; values may be secret."""
    parts = (environment, _read_stamp(home / "config.toml"), _read_stamp(_SCHEMA))
    return blake2b(repr(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _read_stamp(path: Path) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read_identity(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
