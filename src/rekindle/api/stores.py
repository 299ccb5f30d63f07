"""The stores that keys reach, and learning from what was pushed."""

from __future__ import annotations

import logging

from rekindle.config import Config
from rekindle.store.async_store import AsyncStore
from rekindle.tenants import Access
from rekindle.watching.background_learning import mark_pending, start_learning

_log = logging.getLogger("rekindle.api")


class LocalStore:
    """The one store of a server without tenants."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    def get_store(self, access: Access) -> AsyncStore:
        """Return the store: all keys reach all of it."""
        return self._store


def start_learner(config: Config) -> None:
    """Learn from what was imported, in a process of its own; a failure is in the log only.

    It opens the store of the settings: another one, given by `--store`, has to be learned from with
    `rekindle warm learn`.
    """
    if config.origins["store.url"].startswith("command line"):
        return
    try:
        mark_pending(config.home)
        start_learning(config.home)
    except OSError as error:
        _log.warning("learning was not started", extra={"fields": {"reason": str(error)}})
