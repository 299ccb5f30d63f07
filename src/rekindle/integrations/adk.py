"""Sessions for Google's Agent Development Kit: `Runner(session_service=RekindleSessionService(store))`.

The events of a session are messages of a session in the store. State that belongs to an application, to
a user or to a session is kept beside them, each key on its own: two runs at once lose nothing.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from typing import Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session as AdkSession
from google.adk.sessions.state import State
from pydantic_core import to_jsonable_python

from rekindle.errors import NotFound
from rekindle.store import Store
from rekindle.store.async_store import AsyncStore
from rekindle.store.graphs.documents import DocumentChange, DocumentPlace, Namespace
from rekindle.types import Message

from .codecs.adk_events import NAMES, join_events, read_tokens, split_event
from .codecs.frames import count_frames, take_last_frames
from .session_access import claim_session_id, delete_session, get_async_store

SOURCE = "google-adk"
COLLECTION = "google-adk"
_VALUE = "value"
_PREFIXES = {"app": State.APP_PREFIX, "user": State.USER_PREFIX, "state": ""}


class RekindleSessionService(BaseSessionService):
    """Keep the sessions of ADK in a Rekindle store.

    Without `store` it is the store of the settings, where the `rekindle` command finds it. A user of
    ADK is the owner of the sessions.
    """

    def __init__(self, store: AsyncStore | Store | None = None) -> None:
        self.store = get_async_store(store)
        self._documents = self.store.store.documents
        self._ids: dict[DocumentPlace, str] = {}  # of our sessions

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> AdkSession:
        """Create a session; its id must be new for the application and the user."""
        id = (session_id or "").strip() or str(uuid.uuid4())
        place = _build_place(app_name, user_id, id)
        store = self.store.store

        def create() -> None:
            ours = claim_session_id(store, COLLECTION, id)
            if not self._documents.add(COLLECTION, place, {"session": ours}):
                raise AlreadyExistsError(f"Session with id {id} already exists.")
            changes = _plan_state(app_name, user_id, ours, state or {})
            if changes:
                self._documents.put(COLLECTION, changes)

        if await self._run_read(self._find_id, place) is not None:
            raise AlreadyExistsError(f"Session with id {id} already exists.")
        await self.store.writers.run(store.transaction, create)
        found = await self.get_session(app_name=app_name, user_id=user_id, session_id=id)
        if found is None:
            raise SessionNotFoundError(f"Session {id} was deleted while it was created.")
        return found

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> AdkSession | None:
        """Return a session with its events and state, None if there is none."""
        place = _build_place(app_name, user_id, session_id.strip())
        return await self._run_read(self._load_session, place, config or GetSessionConfig())

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of a user or of all users, without events, the last used at the end."""
        found = await self._run_read(self._list_sessions, app_name, user_id)
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session; `rekindle sessions restore` brings its messages back for some days."""
        place = _build_place(app_name, user_id, session_id.strip())
        store = self.store.store

        def delete() -> None:
            ours = self._find_id(place)
            if ours is not None:
                self._documents.put(COLLECTION, [DocumentChange(place, None)])
                self._documents.delete_below(COLLECTION, ("state", ours))
                delete_session(store, ours)

        self._ids.pop(place, None)
        await self.store.writers.run(delete)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user, without the prefix of its keys."""
        found = await self._run_read(
            self._documents.load, COLLECTION, [("user", app_name, user_id)]
        )
        return {one.place.key: one.value[_VALUE] for one in found}

    async def append_event(self, session: AdkSession, event: Event) -> Event:
        """Add an event to a session with its changes of state; both are durable when this returns."""
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        place = _build_place(session.app_name, session.user_id, session.id)
        ours = self._ids.get(place) or await self._run_read(self._find_id, place)
        if ours is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        messages, tokens = split_event(event), read_tokens(event)
        delta = event.actions.state_delta if event.actions else {}
        changes = _plan_state(session.app_name, session.user_id, ours, delta)
        if changes or tokens is not None:

            def write() -> None:
                self._append(place, ours, messages)
                if tokens is not None:
                    model = event.model_version or "unknown"
                    self.store.store.add_usage(ours, tokens, model=model)
                if changes:
                    self._documents.put(COLLECTION, changes)

            await self.store.writers.run(self.store.store.transaction, write)
        else:
            await self.store.writers.run(self._append, place, ours, messages)
        session.last_update_time = event.timestamp
        return self._commit_event_to_session(session, event)

    # -- on threads of the store

    async def _run_read(self, call: Any, *arguments: Any) -> Any:
        return await self.store.executor.run(call, *arguments)

    def _find_id(self, place: DocumentPlace) -> str | None:
        found = self._documents.get(COLLECTION, [place]).get(place)
        if found is None:
            self._ids.pop(place, None)
            return None
        return self._ids.setdefault(place, found.value["session"])

    def _append(self, place: DocumentPlace, ours: str, messages: list[Message]) -> None:
        store = self.store.store
        try:
            store.append(ours, *messages)
        except NotFound:
            if place not in self._documents.get(COLLECTION, [place]):
                raise SessionNotFoundError(f"Session {place.key} not found.") from None
            _, app_name, user_id = place.namespace
            session = store.begin(
                id=ours, source=SOURCE, owner=user_id, user=app_name, cwd=os.getcwd()
            )
            try:
                store.append(session, *messages)
            except NotFound as error:
                raise SessionNotFoundError(f"Session {place.key} was deleted: {error}") from None

    def _load_session(self, place: DocumentPlace, config: GetSessionConfig) -> AdkSession | None:
        ours = self._find_id(place)
        if ours is None:
            return None
        _, app_name, user_id = place.namespace
        events = join_events(self._load_messages(ours, config.num_recent_events))
        if config.after_timestamp:
            events = [one for one in events if one.timestamp >= config.after_timestamp]
        if config.num_recent_events is not None:
            events = events[-config.num_recent_events :] if config.num_recent_events else []
        return AdkSession(
            id=place.key,
            app_name=app_name,
            user_id=user_id,
            state=self._load_states(app_name, {ours: user_id})[ours],
            events=events,
            last_update_time=events[-1].timestamp if events else self._find_time(place, ours),
        )

    def _load_messages(self, ours: str, events: int | None) -> list[Message]:
        """Return the messages of the latest events, perhaps of some more; of all if None."""
        store = self.store.store
        try:
            if events is not None:
                most = 2 * events + 8
                messages = store.messages(ours, last=most)
                whole = take_last_frames(NAMES, messages)
                if len(messages) < most or count_frames(NAMES, whole) >= events:
                    return whole
            return store.messages(ours)
        except NotFound:  # no event yet
            return []

    def _load_states(self, app_name: str, users: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return the state that each of our sessions sees, given the users they belong to."""
        namespaces: set[Namespace] = {("app", app_name)}
        for ours, user_id in users.items():
            namespaces |= {("state", ours), ("user", app_name, user_id)}
        scopes: dict[Namespace, dict[str, Any]] = {}
        for one in self._documents.load(COLLECTION, list(namespaces)):
            prefix = _PREFIXES[one.place.namespace[0]]
            scope = scopes.setdefault(one.place.namespace, {})
            scope[prefix + one.place.key] = one.value[_VALUE]
        shared = scopes.get(("app", app_name), {})
        return {
            ours: {
                **shared,
                **scopes.get(("user", app_name, user_id), {}),
                **scopes.get(("state", ours), {}),
            }
            for ours, user_id in users.items()
        }

    def _find_time(self, place: DocumentPlace, ours: str) -> float:
        """Return when a session was changed of which no event is known."""
        times = self._find_times([ours])
        if ours in times:
            return times[ours]
        return self._documents.get(COLLECTION, [place])[place].updated

    def _find_times(self, ids: list[str]) -> dict[str, float]:
        return {id: one.last_active for id, one in self.store.store.find_sessions(ids).items()}

    def _list_sessions(self, app_name: str, user_id: str | None) -> list[AdkSession]:
        prefix = ("sessions", app_name) if user_id is None else ("sessions", app_name, user_id)
        found = {one.value["session"]: one for one in self._documents.find(COLLECTION, prefix)}
        times = self._find_times(list(found))
        states = self._load_states(
            app_name, {ours: one.place.namespace[2] for ours, one in found.items()}
        )
        listed = [
            AdkSession(
                id=one.place.key,
                app_name=app_name,
                user_id=one.place.namespace[2],
                state=states[ours],
                last_update_time=times.get(ours, one.updated),
            )
            for ours, one in found.items()
        ]
        return sorted(listed, key=lambda one: (one.last_update_time, one.user_id, one.id))


def _build_place(app_name: str, user_id: str, id: str) -> DocumentPlace:
    return DocumentPlace(("sessions", app_name, user_id), id)


def _plan_state(
    app_name: str, user_id: str, ours: str, delta: Mapping[str, Any]
) -> list[DocumentChange]:
    """Return the documents to write for changes of state, by the scope that their prefix names."""
    changes: list[DocumentChange] = []
    for key, value in delta.items():
        if key.startswith(State.TEMP_PREFIX):
            continue
        namespace, name = ("state", ours), key
        if key.startswith(State.APP_PREFIX):
            namespace, name = ("app", app_name), key.removeprefix(State.APP_PREFIX)
        elif key.startswith(State.USER_PREFIX):
            namespace, name = ("user", app_name, user_id), key.removeprefix(State.USER_PREFIX)
        stored = {_VALUE: to_jsonable_python(value, fallback=str, inf_nan_mode="null")}
        changes.append(DocumentChange(DocumentPlace(namespace, name), stored))
    return changes
