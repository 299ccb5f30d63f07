"""Which store a command works on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle.config import Config, is_url, load
from rekindle.errors import NotFound, StoreReadOnly

if TYPE_CHECKING:
    from rekindle.store import Store

_chosen: str | None = None


def choose(target: str | None) -> None:
    """Remember the `--store` of this command line."""
    global _chosen
    _chosen = target


def settings() -> Config:
    """The settings, with the `--store` of this command line."""
    return load(store=_chosen)


def outlive_connections() -> None:
    """For commands that talk over a network: a lost connection is an error, not the end of us."""
    import signal

    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def end_with_the_pipe() -> None:
    """Let `| head` end us as it ends every other command: at once and in silence."""
    import signal

    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


@contextmanager
def reading() -> Generator[Store]:
    """The store, to look at. A store that only lets us read will do; a mistyped name will not."""
    config = settings()
    if _chosen is not None:
        must_exist(config.store.url)
    try:
        store = connect(config, config.store.url)
    except StoreReadOnly:
        store = connect(config, config.store.url, readonly=True)
    with store:
        yield store


@contextmanager
def writing(*, new: bool = False) -> Generator[Store]:
    """The store, to change. `new` lets `--store` name a file that does not exist yet."""
    config = settings()
    if _chosen is not None and not new:
        must_exist(config.store.url)
    with connect(config, config.store.url) as store:
        yield store


def connect(config: Config, target: str, *, readonly: bool = False) -> Store:
    """Open `target` the way the settings want it."""
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


def must_exist(target: str) -> None:
    """Refuse a file that is not there, before opening would make it."""
    if not is_url(target) and not Path(target).exists():
        raise NotFound(f"there is no store at {target}")
