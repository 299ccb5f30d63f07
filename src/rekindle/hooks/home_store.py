"""The settings and the store of a home, kept open from hook to hook."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from rekindle.config import Config, is_url, load_config
from rekindle.errors import StoreReadOnly
from rekindle.store import Store, open_store

BUSY_SECONDS = 0.3  # an agent waits for the answer

Settings = tuple[tuple[str, str], ...]


class _OpenStore(NamedTuple):
    settings: Settings
    stamps: tuple[object, ...]
    config: Config
    store: Store | None


class HomeStore:
    """Opens the store of a home, again whenever its settings or its file are others."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = Lock()
        self._open: _OpenStore | None = None

    def get(self, settings: Settings) -> tuple[Config, Store | None]:
        """Return the settings, and the store unless it does not exist yet."""
        with self._lock:
            held = self._open
            if (
                held is not None
                and held.settings == settings
                and held.stamps == self._read_stamps(held.config)
            ):
                return held.config, held.store
            self.forget()
            config = load_home_config(self._home, settings)
            store = open_home_store(config, BUSY_SECONDS) if has_store(config) else None
            # The stamps of a file that opening has just changed would be outdated.
            self._open = _OpenStore(settings, self._read_stamps(config), config, store)
            return config, store

    def forget(self) -> None:
        """Forget the store, because it failed; other threads may still read from it."""
        self._open = None

    def _read_stamps(self, config: Config) -> tuple[object, ...]:
        url = config.store.url
        store = "" if is_url(url) else _read_identity(url, is_content=False)
        return _read_identity(config.file, is_content=True), store


def load_home_config(home: Path, settings: Settings) -> Config:
    """Load the settings of a home, with those that the environment of a hook has."""
    return load_config({**dict(settings), "REKINDLE_HOME": str(home)})


def has_store(config: Config) -> bool:
    """Return whether the store exists."""
    return is_url(config.store.url) or os.path.exists(config.store.url)


def open_home_store(config: Config, busy_seconds: float | None = None) -> Store:
    """Open the store with the configured options, read-only if it cannot be written."""
    busy = config.store.busy_seconds if busy_seconds is None else busy_seconds
    for readonly in (False, True):
        try:
            return open_store(
                config.store.url,
                durability=config.store.durability,
                busy_seconds=busy,
                active_seconds=config.retention.active_hours * 3600,
                undo_seconds=config.retention.undo_days * 86400,
                readonly=readonly,
            )
        except StoreReadOnly:
            if readonly:
                raise
    raise AssertionError


def _read_identity(path: str | Path, *, is_content: bool) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    content = (status.st_mtime_ns, status.st_size) if is_content else ()
    return (status.st_dev, status.st_ino, *content)
