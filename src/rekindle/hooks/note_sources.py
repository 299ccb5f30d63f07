"""Where hooks get notes from: the store of this machine, or a server that others push to."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Protocol

from rekindle.knowledge.notes.note import Recall, RecalledNote
from rekindle.learning.notes.recall import (
    recall_at_failure,
    recall_at_start,
    recall_before_call,
)
from rekindle.projects import find_branch
from rekindle.store import Store
from rekindle.types import JSON

from .home_store import HookSettings

if TYPE_CHECKING:
    from rekindle.api.client import ApiClient
    from rekindle.api.values import RecalledNotes

SERVER_SECONDS = 0.6  # an agent waits for the answer


class NoteProvider(Protocol):
    """Recalls notes."""

    def recall_start(self, folder: str, message: str, known: AbstractSet[str]) -> Recall: ...

    def recall_failure(
        self, folder: str, tool: str, arguments: Mapping[str, JSON] | str, result: str
    ) -> Recall: ...

    def recall_call(
        self, folder: str, tool: str, arguments: Mapping[str, JSON] | str
    ) -> Recall: ...


class StoreNotes:
    """Notes of a store of this machine."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def recall_start(self, folder: str, message: str, known: AbstractSet[str]) -> Recall:
        """Return the notes for a session before it begins."""
        return recall_at_start(self._store, folder, message, known)

    def recall_failure(
        self, folder: str, tool: str, arguments: Mapping[str, JSON] | str, result: str
    ) -> Recall:
        """Return how a failure like this one was fixed before."""
        return recall_at_failure(self._store, folder, tool, arguments, result)

    def recall_call(self, folder: str, tool: str, arguments: Mapping[str, JSON] | str) -> Recall:
        """Return what worked in place of a call that is known to fail."""
        return recall_before_call(self._store, folder, tool, arguments)


class ServerNotes:
    """Notes of a server, which gets only the folder, the key of its repository and its branch."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def recall_start(self, folder: str, message: str, known: AbstractSet[str]) -> Recall:
        """Return the notes for a session before it begins."""
        from rekindle.api.values import StartRecall

        asked = StartRecall(
            folder=folder,
            remote=_find_remote(folder),
            branch=find_branch(folder),
            message=message,
            known=sorted(known),
        )
        return _value_to_recall(self._client.recall_at_start(asked))

    def recall_failure(
        self, folder: str, tool: str, arguments: Mapping[str, JSON] | str, result: str
    ) -> Recall:
        """Return how a failure like this one was fixed before."""
        from rekindle.api.values import FailureRecall

        asked = FailureRecall(
            folder=folder,
            remote=_find_remote(folder),
            tool=tool,
            arguments=arguments if isinstance(arguments, str) else {**arguments},
            result=result,
        )
        return _value_to_recall(self._client.recall_at_failure(asked))

    def recall_call(self, folder: str, tool: str, arguments: Mapping[str, JSON] | str) -> Recall:
        """Return what worked in place of a call that is known to fail."""
        from rekindle.api.values import CallRecall

        asked = CallRecall(
            folder=folder,
            remote=_find_remote(folder),
            tool=tool,
            arguments=arguments if isinstance(arguments, str) else {**arguments},
        )
        return _value_to_recall(self._client.recall_before_call(asked))


def find_note_source(settings: HookSettings, store: Store | None) -> NoteProvider | None:
    """Return where the notes of a home are: on its server, else in its store, if it has one."""
    if settings.server_url:
        from rekindle.api.client import ApiClient

        return ServerNotes(
            ApiClient(settings.server_url, settings.server_key, timeout=SERVER_SECONDS)
        )
    return None if store is None else StoreNotes(store)


def _find_remote(folder: str) -> str | None:
    from rekindle.projects import find_repository

    repository = find_repository(folder)
    return None if repository is None else repository.remote


def _value_to_recall(found: RecalledNotes) -> Recall:
    notes = (RecalledNote(id=one.id, kind=one.kind, text=one.text) for one in found.notes)
    return Recall(text=found.text, notes=tuple(notes))
