"""What requests and answers of the API contain. The OpenAPI document is made from these types."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from rekindle.types import Hit, Message, Session, ToolCall

MAX_PAGE = 1_000
MAX_MESSAGES = 1_000  # of one request
PageLimit = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
Name = Annotated[str, Meta(min_length=1, max_length=512)]


class ApiError(Struct, frozen=True, kw_only=True):
    """Why a request failed. `code` is for programs, `message` for people."""

    code: str
    message: str


class Health(Struct, frozen=True, kw_only=True):
    """The state of the server."""

    status: str
    version: str


class CallValue(Struct, frozen=True, kw_only=True):
    """A tool call of an assistant message; `arguments` is usually JSON text."""

    id: str
    name: str
    arguments: str | dict[str, Any] = ""


class MessageValue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to append. A session stores an `id` once, so a request may be repeated."""

    role: Annotated[str, Meta(min_length=1, max_length=64)]
    id: Name | None = None
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[CallValue] = []
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    meta: dict[str, Any] | None = None
    timestamp: float | None = None

    def to_message(self) -> Message:
        """Return the message for the store, which checks the rest."""
        return Message(
            self.role,
            self.content,
            [ToolCall(call.id, call.name, call.arguments) for call in self.tool_calls],
            self.tool_call_id,
            self.name,
            self.reasoning,
            self.finish_reason,
            self.id,
            self.meta,
            self.timestamp,
        )


class StoredMessage(MessageValue, frozen=True, kw_only=True, omit_defaults=True):
    """A message with its position in the session."""

    position: int = -1


class SessionInput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session to create with its first messages; one with this id gets the messages that it lacks."""

    messages: Annotated[list[MessageValue], Meta(min_length=1, max_length=MAX_MESSAGES)]
    id: Name | None = None
    source: Name = "api"
    title: Annotated[str, Meta(max_length=100)] | None = None
    model: Name | None = None
    user: Name | None = None
    cwd: str | None = None
    git_branch: str | None = None
    parent: Name | None = None


class NewMessages(Struct, frozen=True, kw_only=True):
    """Messages to append to a session, in this order."""

    messages: Annotated[list[MessageValue], Meta(min_length=1, max_length=MAX_MESSAGES)]


class AppendedMessages(Struct, frozen=True, kw_only=True):
    """The positions of messages that are stored durably."""

    session: str
    positions: list[int]


class SessionValue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session. Times are UTC seconds."""

    id: str
    source: str
    started: float
    last_active: float
    message_count: int
    tool_call_count: int
    owner: str | None = None
    user: str | None = None
    model: str | None = None
    title: str | None = None
    parent: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    project: str | None = None
    preview: str | None = None
    ended: float | None = None
    end_reason: str | None = None
    archived: float | None = None


class SessionPage(Struct, frozen=True, kw_only=True):
    """Sessions by last activity, newest first; `next_cursor` leads to the next page, if any."""

    sessions: list[SessionValue]
    next_cursor: str | None


class MessagePage(Struct, frozen=True, kw_only=True):
    """Messages in order; `next_after` leads to the next page, if there may be one."""

    messages: list[StoredMessage]
    next_after: int | None


class SearchHit(Struct, frozen=True, kw_only=True):
    """A message that matches, with its session and the matching part of its text."""

    session: SessionValue
    message: StoredMessage
    snippet: str


class SearchPage(Struct, frozen=True, kw_only=True):
    """The hits of a search."""

    hits: list[SearchHit]


class StartRecall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session that begins: its folder, remote and branch of its repository, and its first message."""

    folder: str
    remote: str | None = None
    branch: str | None = None
    message: str = ""
    known: list[str] = []


class FailureRecall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call that failed, and where."""

    folder: str
    tool: str
    result: str
    arguments: str | dict[str, Any] = ""
    remote: str | None = None


class CallRecall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call that has not run yet, and where."""

    folder: str
    tool: str
    arguments: str | dict[str, Any] = ""
    remote: str | None = None


class NoteText(Struct, frozen=True, kw_only=True):
    """A note that is part of a recall."""

    id: str
    kind: str
    text: str


class RecalledNotes(Struct, frozen=True, kw_only=True):
    """The exact text for an agent, and the notes in it; empty if nothing is known."""

    text: str
    notes: list[NoteText]


class TranscriptState(Struct, frozen=True, kw_only=True):
    """How much of a transcript the server has, and the SHA-256 of these bytes."""

    size: int
    sha256: str


class TranscriptPlace(Struct, frozen=True, kw_only=True):
    """The last two parts of a transcript's path, which some agents name their sessions by.

    `repositories` has the keys of remotes (`host/owner/name`) by the folders that sessions worked in.
    """

    folder: Annotated[str, Meta(max_length=255)] = ""
    file: Annotated[str, Meta(max_length=255)] = ""
    repositories: Annotated[
        dict[str, Annotated[str, Meta(max_length=255)]], Meta(max_length=100)
    ] = {}


class ImportCounts(Struct, frozen=True, kw_only=True):
    """What an import of a transcript added; `problem` is why nothing could be read."""

    sessions: int
    messages: int
    damaged: int
    problem: str | None


# -- parameters of the address


class SessionQuery(Struct, frozen=True, kw_only=True):
    """Which sessions to list. `filter` has the terms of `rekindle sessions list`."""

    limit: PageLimit = 50
    cursor: Annotated[str, Meta(max_length=200)] | None = None
    filter: Annotated[str, Meta(max_length=2_000)] = ""


class MessageQuery(Struct, frozen=True, kw_only=True):
    """Which messages to read: those after a position."""

    after: int | None = None
    limit: PageLimit = 100


class SearchQuery(Struct, frozen=True, kw_only=True):
    """What to search for."""

    query: Annotated[str, Meta(max_length=2_000)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    offset: Annotated[int, Meta(ge=0, le=10_000)] = 0
    session: str | None = None
    role: str | None = None
    filter: Annotated[str, Meta(max_length=2_000)] = ""
    order: Annotated[str, Meta(pattern="^(best|newest)$")] = "best"


class ChunkQuery(Struct, frozen=True, kw_only=True):
    """Where a chunk belongs. `restart` throws away what the server has; its offset is 0."""

    offset: Annotated[int, Meta(ge=0)]
    restart: bool = False


def message_to_value(message: Message) -> StoredMessage:
    """Return a stored message as the API shows it."""
    content: Any = message.content
    return StoredMessage(
        role=message.role,
        id=message.platform_message_id,
        content=content,
        tool_calls=[
            CallValue(
                id=call.id,
                name=call.name,
                arguments=call.arguments if isinstance(call.arguments, str) else {**call.arguments},
            )
            for call in message.tool_calls
        ],
        tool_call_id=message.tool_call_id,
        name=message.name,
        reasoning=message.reasoning,
        finish_reason=message.finish_reason,
        meta=None if message.meta is None else {**message.meta},
        timestamp=message.timestamp,
        position=-1 if message.position is None else message.position,
    )


def session_to_value(session: Session) -> SessionValue:
    """Return a session as the API shows it."""
    fields = {name: getattr(session, name) for name in SessionValue.__struct_fields__}
    return SessionValue(**fields)


def hit_to_value(hit: Hit) -> SearchHit:
    """Return a hit as the API shows it."""
    return SearchHit(
        session=session_to_value(hit.session),
        message=message_to_value(hit.message),
        snippet=hit.snippet,
    )


def encode_value(value: object) -> bytes:
    """Encode an answer; text that is not valid Unicode is escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json

        return json.dumps(msgspec.to_builtins(value)).encode("ascii")
