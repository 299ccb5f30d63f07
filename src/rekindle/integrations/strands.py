"""Sessions for Strands Agents: `Agent(session_manager=RekindleSessionManager("name", store))`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session as StrandsSession
from strands.types.session import SessionAgent, SessionMessage

from rekindle.errors import NotFound
from rekindle.store import Store
from rekindle.store.async_store import AsyncStore
from rekindle.store.graphs.documents import DocumentChange, DocumentPlace
from rekindle.types import Message

from .codecs.strands_messages import join_messages, read_tokens, split_message
from .session_access import claim_session_id, delete_session, open_default_store

if TYPE_CHECKING:
    from strands.multiagent import MultiAgentBase

SOURCE = "strands"
COLLECTION = "strands"
_SESSION = ("sessions",)
Fields = dict[str, Any]


class RekindleSessionRepository(SessionRepository):
    """Keep the sessions of Strands in a Rekindle store.

    The first agent of a session writes to a session of the same id, each further one to its own. The
    state of agents is kept beside them.
    """

    def __init__(
        self, store: Store | AsyncStore | None = None, *, owner: str | None = None
    ) -> None:
        found = store or open_default_store()
        self.store = found.store if isinstance(found, AsyncStore) else found
        self._documents = self.store.documents
        self._owner = owner
        self._ids: dict[tuple[str, str], str] = {}  # of our sessions, by session and agent

    def create_session(self, session: StrandsSession, **kwargs: Any) -> StrandsSession:
        """Create a session."""
        place = DocumentPlace(_SESSION, session.session_id)
        if not self._documents.add(COLLECTION, place, session.to_dict()):
            raise SessionException(f"Session {session.session_id} already exists")
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> StrandsSession | None:
        """Return a session, None if there is none."""
        found = self._read(DocumentPlace(_SESSION, session_id))
        return None if found is None else StrandsSession.from_dict(found)

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Delete a session with its agents; its messages can be restored for some days."""
        if self._read(DocumentPlace(_SESSION, session_id)) is None:
            raise SessionException(f"Session {session_id} does not exist")
        for one in self._documents.load(COLLECTION, [("agents", session_id)]):
            delete_session(self.store, one.value["session"])
            self._ids.pop((session_id, one.place.key), None)
        for kind in ("agents", "multi_agents"):
            self._documents.delete_below(COLLECTION, (kind, session_id))
        self._documents.put(COLLECTION, [DocumentChange(DocumentPlace(_SESSION, session_id), None)])

    # -- agents

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Add an agent to a session."""
        place = _find_place("agents", session_id, session_agent.agent_id)
        is_first = not self._documents.load(COLLECTION, [place.namespace])
        wanted = session_id if is_first else f"{session_id}/{session_agent.agent_id}"

        def create() -> None:
            ours = claim_session_id(self.store, COLLECTION, wanted)
            stored = {"session": ours, "agent": session_agent.to_dict()}
            self._documents.add(COLLECTION, place, stored)

        if self._read(place) is None:
            self.store.transaction(create)
        else:
            self._write_agent(place, session_agent)

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        """Return an agent with its state, None if there is none."""
        found = self._read(_find_place("agents", session_id, agent_id))
        return None if found is None else SessionAgent.from_dict(found["agent"])

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Store the state of an agent."""
        self._write_agent(_find_place("agents", session_id, session_agent.agent_id), session_agent)

    # -- messages

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Add a message; it is durable when this returns."""
        ours = self._get_id(session_id, agent_id)
        messages, tokens = split_message(session_message), read_tokens(session_message)
        if tokens is None:
            self._append(ours, messages)
            return

        def write() -> None:
            self._append(ours, messages)
            self.store.add_usage(ours, tokens, model="unknown")

        self.store.transaction(write)

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **kwargs: Any
    ) -> SessionMessage | None:
        """Return a message by its number, None if there is none."""
        found = self._load(session_id, agent_id)
        return next((one for one in found if one.message_id == message_id), None)

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Replace a message, as guardrails do."""
        found = self._load(session_id, agent_id)
        places = [n for n, one in enumerate(found) if one.message_id == session_message.message_id]
        if not places:
            raise SessionException(f"Message {session_message.message_id} does not exist")
        session_message.created_at = found[places[0]].created_at
        found[places[0]] = session_message
        parts = [part for one in found for part in split_message(one)]
        self.store.rewrite(self._get_id(session_id, agent_id), *parts)

    def list_messages(
        self,
        session_id: str,
        agent_id: str,
        limit: int | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> list[SessionMessage]:
        """Return the messages of an agent, or a page of them."""
        found = self._load(session_id, agent_id)
        return found[offset : None if limit is None else offset + limit]

    # -- several agents

    def create_multi_agent(
        self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any
    ) -> None:
        """Store the state of several agents that work together."""
        self._put(
            _find_place("multi_agents", session_id, multi_agent.id), multi_agent.serialize_state()
        )

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, **kwargs: Any
    ) -> Fields | None:
        """Return the state of several agents, None if there is none."""
        return self._read(_find_place("multi_agents", session_id, multi_agent_id))

    def update_multi_agent(
        self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any
    ) -> None:
        """Replace the state of several agents."""
        place = _find_place("multi_agents", session_id, multi_agent.id)
        if self._read(place) is None:
            raise SessionException(
                f"MultiAgent state {multi_agent.id} in session {session_id} does not exist"
            )
        self._put(place, multi_agent.serialize_state())

    # -- rows

    def _read(self, place: DocumentPlace) -> Fields | None:
        found = self._documents.get(COLLECTION, [place]).get(place)
        return None if found is None else dict(found.value)

    def _put(self, place: DocumentPlace, value: Fields) -> None:
        self._documents.put(COLLECTION, [DocumentChange(place, value)])

    def _write_agent(self, place: DocumentPlace, agent: SessionAgent) -> None:
        before = self._read(place)
        if before is None:
            raise SessionException(
                f"Agent {place.key} in session {place.namespace[1]} does not exist"
            )
        agent.created_at = cast(Fields, before["agent"])["created_at"]
        self._put(place, {**before, "agent": agent.to_dict()})

    def _get_id(self, session_id: str, agent_id: str) -> str:
        ours = self._ids.get((session_id, agent_id))
        if ours is None:
            found = self._read(_find_place("agents", session_id, agent_id))
            if found is None:
                raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
            ours = self._ids[session_id, agent_id] = str(found["session"])
        return ours

    def _load(self, session_id: str, agent_id: str) -> list[SessionMessage]:
        try:
            return join_messages(self.store.messages(self._get_id(session_id, agent_id)))
        except NotFound:  # no message yet
            return []

    def _append(self, ours: str, messages: Sequence[Message]) -> None:
        try:
            self.store.append(ours, *messages)
        except NotFound:
            session = self.store.begin(id=ours, source=SOURCE, owner=self._owner, cwd=os.getcwd())
            try:
                self.store.append(session, *messages)
            except NotFound as error:
                raise SessionException(f"Session {ours} was deleted: {error}") from None


class RekindleSessionManager(RepositorySessionManager):
    """A session of Strands that is kept in a Rekindle store.

    Without `store` it is the store of the settings, where the `rekindle` command finds it.
    """

    def __init__(
        self,
        session_id: str,
        store: Store | AsyncStore | None = None,
        *,
        owner: str | None = None,
        **kwargs: Any,
    ) -> None:
        repository = RekindleSessionRepository(store, owner=owner)
        super().__init__(session_id=session_id, session_repository=repository, **kwargs)


def _find_place(kind: str, session_id: str, key: str) -> DocumentPlace:
    return DocumentPlace((kind, session_id), key)
