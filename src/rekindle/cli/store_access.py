"""Open the store that a command works on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle.config import Config, is_url, load_config
from rekindle.errors import NotFound, StoreReadOnly

from .output import print_notice

if TYPE_CHECKING:
    from rekindle.store import Store

_store_override: str | None = None
_shown_notes: set[str] = set()


def set_store_override(target: str | None) -> None:
    """Remember the `--store` option of this command line."""
    global _store_override
    _store_override = target


def load_settings() -> Config:
    """Load the settings, with `--store` applied; note each setting with an old name once."""
    config = load_config(store=_store_override)
    for note in config.notes:
        if note not in _shown_notes:
            _shown_notes.add(note)
            print_notice(f"Note: {note}")
    return config


def ignore_sigpipe() -> None:
    """Ignore SIGPIPE, so that a lost network connection raises an error instead of killing us."""
    import signal

    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def restore_sigpipe() -> None:
    """Restore the default SIGPIPE action, so that `| head` ends the command silently."""
    import signal

    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


@contextmanager
def open_for_reading() -> Generator[Store]:
    """Open the store for reading, read-only if it cannot be written.

    Raise `NotFound` if `--store` names a file that does not exist.
    """
    config = load_settings()
    if _store_override is not None:
        require_store_file(config.store.url)
    try:
        store = connect_store(config, config.store.url)
    except StoreReadOnly:
        store = connect_store(config, config.store.url, readonly=True)
    with store:
        yield store


@contextmanager
def open_for_writing(*, may_create: bool = False) -> Generator[Store]:
    """Open the store for writing. With `may_create`, `--store` may name a new file."""
    config = load_settings()
    if _store_override is not None and not may_create:
        require_store_file(config.store.url)
    with connect_store(config, config.store.url) as store:
        yield store


def connect_store(config: Config, target: str, *, readonly: bool = False) -> Store:
    """Open the store `target` with the configured options."""
    from rekindle.store import open_store

    if not is_url(target) and Path(target).parent == config.home:
        config.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return open_store(
        target,
        durability=config.store.durability,
        busy_seconds=config.store.busy_seconds,
        active_seconds=config.retention.active_hours * 3600,
        undo_seconds=config.retention.undo_days * 86400,
        readonly=readonly,
    )


def require_store_file(target: str) -> None:
    """Raise `NotFound` if the store file does not exist, since opening it would create it."""
    if not is_url(target) and not Path(target).exists():
        raise NotFound(f"Store not found: {target}")
