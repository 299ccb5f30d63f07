"""Decide what one client may read: one project's sessions, or all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rekindle.errors import NotFound, StoreReadOnly
from rekindle.learning.notes.playbooks import find_project
from rekindle.projects import matches_project
from rekindle.store import Filter, Store
from rekindle.types import Session

from .quoting import Quoter


class StoreOpener:
    """Opens the store for one request: read-only, unless a note is to be saved.

    The first time, the file is opened for writing, so that an older one is upgraded.
    """

    def __init__(self, connect: Callable[[bool], Store], file: str | None) -> None:
        self._connect = connect  # with True: read-only
        self._file = file  # None: a server
        self._upgraded: object = None

    @contextmanager
    def open(self, *, writing: bool = False) -> Generator[Store]:
        """Open the store; raise `NotFound` if there is none yet."""
        with self._connect_store(writing) as store:
            yield store

    def _connect_store(self, writing: bool) -> Store:
        identity = self._identify_file()
        if writing or identity != self._upgraded:
            try:
                store = self._connect(False)
            except StoreReadOnly:
                if writing:
                    raise
            else:
                self._upgraded = identity
                return store
        return self._connect(True)

    def _identify_file(self) -> object:
        if self._file is None:
            return "server"
        try:
            status = os.stat(self._file)
        except FileNotFoundError:
            raise NotFound(
                "There are no sessions yet. The user can import them with `rekindle import`."
            ) from None
        return status.st_dev, status.st_ino


class Scope(NamedTuple):
    """What the server was started for: a named project, all of them, or that of its folder."""

    folder: str
    project: str | None = None
    everything: bool = False


class Library(NamedTuple):
    """The open store, limited to what the client may read."""

    store: Store
    project: str | None  # None: everything
    folder: str  # of the project, if there is one
    quoter: Quoter

    @property
    def filter(self) -> Filter:
        return Filter(project=self.project)

    def get_session(self, id: str) -> Session:
        """Return a session; one of another project is not found, like one that does not exist."""
        try:
            session = self.store.session(id)
        except NotFound:
            session = None
        if session is None or not self.can_see(session.project):
            name = self.quoter.clean_line(id, 80)
            raise NotFound(f"Session not found: {name}. Find sessions with search_sessions.")
        return session

    def can_see(self, project: str | None) -> bool:
        return self.project is None or project == self.project

    def require_project(self, folder: str) -> str:
        """Return the project of a folder, if the client may see it."""
        project = find_project(self.store, folder)
        if project is None or not self.can_see(project):
            raise NotFound("Nothing is known about this folder, or it belongs to another project.")
        return project


def open_library(
    store: Store, scope: Scope, quoter: Quoter, client_folders: Sequence[str] = ()
) -> Library:
    """Return what may be read in an open store; raise `NotFound` if no project is known.

    The folders that the client works in count only if the server's own folder has no project.
    """
    if scope.everything:
        return Library(store, None, scope.folder, quoter)
    if scope.project is not None:
        known = [project for project, _, _ in store.observations.list_projects()]
        found = [project for project in known if matches_project(project, scope.project)]
        if not found:
            raise NotFound(f"Project not found: {quoter.clean_line(scope.project, 80)}")
        return Library(store, found[0], _find_folder(store, found[0], scope.folder), quoter)
    for folder in (scope.folder, *client_folders):
        project = find_project(store, folder)
        if project is not None:
            return Library(store, project, folder, quoter)
    raise NotFound(
        "No sessions are known for this folder yet. The user can import them with `rekindle import`,"
        " or start `rekindle mcp` with --project."
    )


def _find_folder(store: Store, project: str, preferred: str) -> str:
    """Return a folder of the project: the preferred one if it is, or else any that is known."""
    if find_project(store, preferred) == project:
        return preferred
    folders = store.observations.load_folders()
    return next((name for name, one in folders.items() if one.project == project), preferred)
