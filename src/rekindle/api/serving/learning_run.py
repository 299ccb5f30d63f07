"""Learn from the sessions of stores, in the process that the server starts for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from rekindle.config import Config
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.learning.verdicts.session_outcomes import judge_outcomes
from rekindle.store import Store
from rekindle.tenants import Tenants, open_tenants
from rekindle.watching.background_learning import LOCK_NAME
from rekindle.watching.lock import try_lock

from .learning import DONE, FAILED, LOCAL_NAME, MARKS_FOLDER, MORE

MAX_SESSIONS = 1_000  # of one store, before the next store has its turn
_log = logging.getLogger("rekindle.api")


def learn_in_stores(
    config: Config, names: Sequence[str], open_local: Callable[[], AbstractContextManager[Store]]
) -> Iterator[tuple[str, str]]:
    """Learn from the stores with these marks; yield what became of each."""
    folder = config.home / MARKS_FOLDER
    with try_lock(folder.with_suffix(".lock")) as is_held:
        if not is_held:  # by what a server that was killed has left
            return
        for name in names:
            try:
                if name == LOCAL_NAME:
                    yield name, _learn_locally(config, open_local)
                else:
                    yield name, _learn_in_tenant(config, name)
            except Exception as error:  # noqa: BLE001  # one store must not keep the others waiting
                _log.warning("learning failed: %s", type(error).__name__, exc_info=error)
                yield name, FAILED


def _learn_locally(config: Config, open_local: Callable[[], AbstractContextManager[Store]]) -> str:
    with try_lock(config.home / LOCK_NAME) as is_held, open_local() as store:
        return _learn_from_store(store) if is_held else FAILED


def _learn_in_tenant(config: Config, id: str) -> str:
    with _open_tenants(config) as tenants:
        tenant = next((one for one in tenants.list() if one.id == id), None)
        if tenant is None:
            return DONE  # it was removed
        with tenants.open_store(tenant.name) as store:
            # The folders are on the machines of the tenant; those of the server with such names are
            # none of its business.
            return _learn_from_store(store, reads_folders=False)


def _learn_from_store(store: Store, *, reads_folders: bool = True) -> str:
    report = learn_from_sessions(store, limit=MAX_SESSIONS, reads_folders=reads_folders)
    if report.sessions == MAX_SESSIONS:
        return MORE
    judge_outcomes(store)  # lists show what became of sessions
    return DONE


def _open_tenants(config: Config) -> Tenants:
    return open_tenants(
        config.store.url,
        durability=config.store.durability,
        busy_seconds=config.store.busy_seconds,
    )
