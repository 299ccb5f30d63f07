"""Do what the operations say. Each method has the name of its operation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from rekindle import __version__
from rekindle.knowledge.notes.note import Recall
from rekindle.learning.notes.recall import recall_failure_in_project, recall_in_project
from rekindle.store import Filter
from rekindle.store.async_store import AsyncStore
from rekindle.tenants import Access
from rekindle.types import Message

from . import values
from .cursors import list_page, parse_cursor
from .document import build_document
from .projects import find_client_project
from .uploads import TranscriptUploads

MAX_IMPORTS = 2  # at the same time: each takes a core


class ApiRequest(NamedTuple):
    """A request that was checked: who sent it, and what it contains."""

    access: Access
    path: dict[str, str]
    query: Any = None
    body: Any = None


class TenantStores(Protocol):
    """Knows the store of each tenant."""

    def get_store(self, access: Access) -> AsyncStore:
        """Return the store that a key reaches: nothing of another tenant is in it."""
        ...


class ApiHandlers:
    """The operations over the stores of tenants."""

    def __init__(
        self,
        stores: TenantStores,
        uploads: TranscriptUploads,
        on_import: Callable[[Access], None] = lambda access: None,
    ) -> None:
        self._stores = stores
        self._uploads = uploads
        self._on_import = on_import
        self._imports = asyncio.Semaphore(MAX_IMPORTS)

    async def get_health(self, request: ApiRequest) -> values.Health:
        return values.Health(status="ok", version=__version__)

    async def get_document(self, request: ApiRequest) -> dict[str, Any]:
        return build_document()

    # -- sessions

    async def list_sessions(self, request: ApiRequest) -> values.SessionPage:
        query: values.SessionQuery = request.query
        store = self._stores.get_store(request.access)
        cursor = None if query.cursor is None else parse_cursor(query.cursor)
        where = Filter.parse(query.filter)
        page, following = await store.executor.run(
            list_page, store.store, where, query.limit, cursor
        )
        return values.SessionPage(
            sessions=[values.session_to_value(session) for session in page],
            next_cursor=None if following is None else following.encode(),
        )

    async def create_session(self, request: ApiRequest) -> values.AppendedMessages:
        body: values.NewSession = request.body
        store = self._stores.get_store(request.access)
        messages = [message.to_message() for message in body.messages]
        session = store.store.begin(
            id=body.id,
            source=body.source,
            title=body.title,
            model=body.model,
            user=body.user,
            cwd=body.cwd,
            git_branch=body.git_branch,
            parent=body.parent,
        )
        positions = await store.append(session, *messages)
        return values.AppendedMessages(session=session.id, positions=positions)

    async def get_session(self, request: ApiRequest) -> values.SessionValue:
        store = self._stores.get_store(request.access)
        return values.session_to_value(await store.session(request.path["session"]))

    async def list_messages(self, request: ApiRequest) -> values.MessagePage:
        query: values.MessageQuery = request.query
        store = self._stores.get_store(request.access)
        found = await store.messages(request.path["session"], after=query.after, limit=query.limit)
        is_full = len(found) == query.limit
        return values.MessagePage(
            messages=[values.message_to_value(message) for message in found],
            next_after=found[-1].position if is_full else None,
        )

    async def append_messages(self, request: ApiRequest) -> values.AppendedMessages:
        body: values.NewMessages = request.body
        store = self._stores.get_store(request.access)
        session = request.path["session"]
        messages: list[Message] = [message.to_message() for message in body.messages]
        positions = await store.append(session, *messages)
        return values.AppendedMessages(session=session, positions=positions)

    async def search_messages(self, request: ApiRequest) -> values.SearchPage:
        query: values.SearchQuery = request.query
        store = self._stores.get_store(request.access)
        hits = await store.search(
            query.query,
            limit=query.limit,
            offset=query.offset,
            where=Filter.parse(query.filter),
            session=query.session,
            role=query.role,
            order="newest" if query.order == "newest" else "best",
            context=0,
        )
        return values.SearchPage(hits=[values.hit_to_value(hit) for hit in hits])

    # -- notes

    async def recall_at_start(self, request: ApiRequest) -> values.RecalledNotes:
        body: values.StartRecall = request.body
        store = self._stores.get_store(request.access)

        def recall() -> Recall:
            project = find_client_project(store.store, body.folder, body.remote)
            if project is None or not request.access.allows_project(project):
                return Recall()
            return recall_in_project(store.store, project, body.message, frozenset(body.known))

        return _recall_to_value(await store.executor.run(recall))

    async def recall_at_failure(self, request: ApiRequest) -> values.RecalledNotes:
        body: values.FailureRecall = request.body
        store = self._stores.get_store(request.access)

        def recall() -> Recall:
            project = find_client_project(store.store, body.folder, body.remote)
            if project is None or not request.access.allows_project(project):
                return Recall()
            return recall_failure_in_project(
                store.store, project, body.folder, body.tool, body.arguments, body.result
            )

        return _recall_to_value(await store.executor.run(recall))

    # -- transcripts

    async def get_transcript(self, request: ApiRequest) -> values.TranscriptState:
        return await asyncio.to_thread(
            self._uploads.get_state, request.access.tenant, request.path["name"]
        )

    async def append_transcript(self, request: ApiRequest) -> values.TranscriptState:
        query: values.ChunkQuery = request.query
        return await asyncio.to_thread(
            self._uploads.append_chunk,
            request.access.tenant,
            request.path["name"],
            request.body,
            offset=query.offset,
            restart=query.restart,
        )

    async def import_transcript(self, request: ApiRequest) -> values.ImportCounts:
        store = self._stores.get_store(request.access)
        async with self._imports:
            counts = await store.writers.run(
                self._uploads.import_sessions,
                store.store,
                request.access.tenant,
                request.path["name"],
                request.body,
            )
        if counts.messages:
            self._on_import(request.access)
        return counts


def _recall_to_value(recall: Recall) -> values.RecalledNotes:
    notes = [values.NoteText(id=one.id, kind=one.kind, text=one.text) for one in recall.notes]
    return values.RecalledNotes(text=recall.text if notes else "", notes=notes)
