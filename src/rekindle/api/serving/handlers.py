"""Execute the operations. Each method has the name of its operation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from rekindle import __version__
from rekindle.api import values
from rekindle.api.document import build_document
from rekindle.errors import AccessDenied, NotFound
from rekindle.knowledge.notes.note import Recall
from rekindle.learning.notes.recall import (
    recall_call_in_project,
    recall_failure_in_project,
    recall_in_project,
)
from rekindle.projects import get_project_key
from rekindle.store import Filter, Store
from rekindle.tenants import Access
from rekindle.types import Session

from .cursors import list_page, parse_cursor
from .learning import BackgroundLearner
from .projects import find_client_project
from .stores import ServerStores
from .uploads import TranscriptUploads

MAX_IMPORTS = 2  # at the same time: each takes a core


class ApiRequest(NamedTuple):
    """A checked request: its sender and its contents."""

    access: Access
    path: dict[str, str]
    query: Any = None
    body: Any = None


class ApiHandlers:
    """The operations over the stores of tenants."""

    def __init__(
        self,
        stores: ServerStores,
        uploads: TranscriptUploads,
        learner: BackgroundLearner,
    ) -> None:
        self._stores = stores
        self._uploads = uploads
        self._learner = learner
        self._imports = asyncio.Semaphore(MAX_IMPORTS)

    async def get_health(self, request: ApiRequest) -> values.Health:
        return values.Health(status="ok", version=__version__)

    async def get_document(self, request: ApiRequest) -> dict[str, Any]:
        return build_document()

    # -- sessions

    async def list_sessions(self, request: ApiRequest) -> values.SessionPage:
        query: values.SessionQuery = request.query
        cursor = None if query.cursor is None else parse_cursor(query.cursor)
        where = _limit_filter(query.filter, request.access)
        async with self._stores.hold_store(request.access) as held:
            page, following = await held.store.executor.run(
                list_page, held.store.store, where, query.limit, cursor
            )
        return values.SessionPage(
            sessions=[values.session_to_value(session) for session in page],
            next_cursor=None if following is None else following.encode(),
        )

    async def create_session(self, request: ApiRequest) -> values.AppendedMessages:
        body: values.SessionInput = request.body
        _require_all_projects(request.access)
        messages = [message.to_message() for message in body.messages]
        async with self._stores.hold_store(request.access) as held:
            session = held.store.store.begin(
                id=body.id,
                source=body.source,
                title=body.title,
                model=body.model,
                user=body.user or request.access.member,
                cwd=body.cwd,
                git_branch=body.git_branch,
                parent=body.parent,
            )
            positions = await held.append(session, *messages)
        self._learner.mark(held.id)
        return values.AppendedMessages(session=session.id, positions=positions)

    async def get_session(self, request: ApiRequest) -> values.SessionValue:
        async with self._stores.hold_store(request.access) as held:
            session = await held.store.session(request.path["session"])
        _check_project(session, request.access)
        return values.session_to_value(session)

    async def list_messages(self, request: ApiRequest) -> values.MessagePage:
        query: values.MessageQuery = request.query
        session = request.path["session"]
        async with self._stores.hold_store(request.access) as held:
            if request.access.projects is not None:
                _check_project(await held.store.session(session), request.access)
            found = await held.store.messages(session, after=query.after, limit=query.limit)
        is_full = len(found) == query.limit
        return values.MessagePage(
            messages=[values.message_to_value(message) for message in found],
            next_after=found[-1].position if is_full else None,
        )

    async def append_messages(self, request: ApiRequest) -> values.AppendedMessages:
        body: values.NewMessages = request.body
        session = request.path["session"]
        messages = [message.to_message() for message in body.messages]
        async with self._stores.hold_store(request.access) as held:
            if request.access.projects is not None:
                _check_project(await held.store.session(session), request.access)
            positions = await held.append(session, *messages)
        self._learner.mark(held.id)
        return values.AppendedMessages(session=session, positions=positions)

    async def search_messages(self, request: ApiRequest) -> values.SearchPage:
        query: values.SearchQuery = request.query
        where = _limit_filter(query.filter, request.access)
        async with self._stores.hold_store(request.access) as held:
            hits = await held.store.search(
                query.query,
                limit=query.limit,
                offset=query.offset,
                where=where,
                session=query.session,
                role=query.role,
                order="newest" if query.order == "newest" else "best",
                context=0,
            )
        return values.SearchPage(hits=[values.hit_to_value(hit) for hit in hits])

    # -- notes

    async def recall_at_start(self, request: ApiRequest) -> values.RecalledNotes:
        body: values.StartRecall = request.body

        def recall(store: Store, project: str) -> Recall:
            known = frozenset(body.known)
            return recall_in_project(store, project, body.message, known, body.branch)

        return await self._recall(request, body.folder, body.remote, recall)

    async def recall_at_failure(self, request: ApiRequest) -> values.RecalledNotes:
        body: values.FailureRecall = request.body

        def recall(store: Store, project: str) -> Recall:
            return recall_failure_in_project(
                store, project, body.folder, body.tool, body.arguments, body.result
            )

        return await self._recall(request, body.folder, body.remote, recall)

    async def recall_before_call(self, request: ApiRequest) -> values.RecalledNotes:
        body: values.CallRecall = request.body

        def recall(store: Store, project: str) -> Recall:
            return recall_call_in_project(store, project, body.folder, body.tool, body.arguments)

        return await self._recall(request, body.folder, body.remote, recall)

    async def _recall(
        self,
        request: ApiRequest,
        folder: str,
        remote: str | None,
        recall: Callable[[Store, str], Recall],
    ) -> values.RecalledNotes:
        def find_notes(store: Store) -> Recall:
            project = find_client_project(store, folder, remote)
            if project is None or not request.access.allows_project(project):
                return Recall()
            return recall(store, project)

        async with self._stores.hold_store(request.access) as held:
            found = await held.store.executor.run(find_notes, held.store.store)
        return _recall_to_value(found)

    # -- transcripts

    async def get_transcript(self, request: ApiRequest) -> values.TranscriptState:
        async with self._stores.hold_store(request.access) as held:
            return await held.store.writers.run(
                self._uploads.get_state, held.id, request.path["name"]
            )

    async def append_transcript(self, request: ApiRequest) -> values.TranscriptState:
        query: values.ChunkQuery = request.query
        _require_all_projects(request.access)
        async with self._stores.hold_store(request.access) as held:
            return await held.store.writers.run(
                self._uploads.append_chunk,
                held.id,
                request.path["name"],
                request.body,
                offset=query.offset,
                restart=query.restart,
            )

    async def import_transcript(self, request: ApiRequest) -> values.ImportCounts:
        _require_all_projects(request.access)
        async with self._stores.hold_store(request.access) as held, self._imports:
            counts = await held.store.writers.run(
                self._uploads.import_sessions,
                held.store.store,
                held.id,
                request.path["name"],
                request.body,
                request.access.member,
            )
        # Also if there was nothing new: a server may have been killed after it had imported it.
        self._learner.mark(held.id, is_import=True)
        return counts


def _limit_filter(text: str, access: Access) -> Filter:
    """Return the filter of a request, limited to the projects of its key."""
    where = Filter.parse(text)
    if access.projects is None:
        return where
    return where.with_(projects=tuple(sorted(access.projects)))


def _check_project(session: Session, access: Access) -> None:
    if not access.allows_project(get_project_key(session)):
        raise NotFound(f"no session {session.id!r}")  # as if it did not exist


def _require_all_projects(access: Access) -> None:
    """Refuse a key of some projects: which one a new session belongs to is not known yet."""
    if access.projects is not None:
        raise AccessDenied("This API key is limited to projects; it cannot add sessions.")


def _recall_to_value(recall: Recall) -> values.RecalledNotes:
    notes = [values.NoteText(id=one.id, kind=one.kind, text=one.text) for one in recall.notes]
    return values.RecalledNotes(text=recall.text if notes else "", notes=notes)
