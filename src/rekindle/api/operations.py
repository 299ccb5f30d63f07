"""The one table of all operations: server, document and client follow it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from . import values

MAX_JSON_BYTES = 8_000_000  # of a body, after decompression
MAX_CHUNK_BYTES = 4_000_000  # of a part of a transcript, likewise
PREFIX = "/v1"


class ApiOperation(NamedTuple):
    """One operation. `scope` is what a key needs for it; None needs no key."""

    id: str
    method: str
    path: str
    summary: str
    answer: type[msgspec.Struct] | None  # None: any JSON object
    scope: str | None = "read"
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    takes_bytes: bool = False  # instead of JSON
    errors: tuple[int, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @property
    def max_body(self) -> int:
        if self.takes_bytes:
            return MAX_CHUNK_BYTES
        return MAX_JSON_BYTES if self.body is not None else 0


OPERATIONS = (
    ApiOperation(
        "get_health",
        "GET",
        "/v1/health",
        "Return whether the server and its store work.",
        values.Health,
        scope=None,
    ),
    ApiOperation(
        "get_document",
        "GET",
        "/v1/openapi.json",
        "Return the OpenAPI document of this API.",
        None,
        scope=None,
    ),
    ApiOperation(
        "list_sessions",
        "GET",
        "/v1/sessions",
        "List sessions by last activity, newest first.",
        values.SessionPage,
        query=values.SessionQuery,
    ),
    ApiOperation(
        "create_session",
        "POST",
        "/v1/sessions",
        "Create a session with its first messages; durable when answered.",
        values.AppendedMessages,
        scope="write",
        body=values.SessionInput,
    ),
    ApiOperation(
        "get_session",
        "GET",
        "/v1/sessions/{session}",
        "Return a session.",
        values.SessionValue,
        errors=(404,),
    ),
    ApiOperation(
        "list_messages",
        "GET",
        "/v1/sessions/{session}/messages",
        "Return messages of a session in order.",
        values.MessagePage,
        query=values.MessageQuery,
        errors=(404,),
    ),
    ApiOperation(
        "append_messages",
        "POST",
        "/v1/sessions/{session}/messages",
        "Append messages that the session lacks; durable when answered.",
        values.AppendedMessages,
        scope="write",
        body=values.NewMessages,
        errors=(404,),
    ),
    ApiOperation(
        "search_messages",
        "GET",
        "/v1/search",
        "Search the messages of all sessions.",
        values.SearchPage,
        query=values.SearchQuery,
    ),
    ApiOperation(
        "recall_at_start",
        "POST",
        "/v1/recall/start",
        "Return the notes for a session before it begins.",
        values.RecalledNotes,
        body=values.StartRecall,
    ),
    ApiOperation(
        "recall_at_failure",
        "POST",
        "/v1/recall/failure",
        "Return how a failure like this one was fixed before.",
        values.RecalledNotes,
        body=values.FailureRecall,
    ),
    ApiOperation(
        "recall_before_call",
        "POST",
        "/v1/recall/call",
        "Return what worked in place of a call that is known to fail.",
        values.RecalledNotes,
        body=values.CallRecall,
    ),
    ApiOperation(
        "get_transcript",
        "GET",
        "/v1/transcripts/{name}",
        "Return how much of a transcript the server has.",
        values.TranscriptState,
        scope="write",
    ),
    ApiOperation(
        "append_transcript",
        "PUT",
        "/v1/transcripts/{name}",
        "Append bytes to a transcript; durable when answered.",
        values.TranscriptState,
        scope="write",
        query=values.ChunkQuery,
        takes_bytes=True,
        errors=(409,),
    ),
    ApiOperation(
        "import_transcript",
        "POST",
        "/v1/transcripts/{name}/import",
        "Import the sessions of a transcript, so that they can be found.",
        values.ImportCounts,
        scope="write",
        body=values.TranscriptPlace,
        errors=(404,),
    ),
)


_PARTS = {one.id: one.parts for one in OPERATIONS}


def find_operation(method: str, parts: list[str]) -> tuple[ApiOperation, dict[str, str]] | None:
    """Return the operation of a method and the parts of a path, with the parts that it names."""
    for operation in OPERATIONS:
        if operation.method == method:
            found = match_parts(operation, parts)
            if found is not None:
                return operation, found
    return None


def match_parts(operation: ApiOperation, parts: list[str]) -> dict[str, str] | None:
    """Return the named parts of a path, or None if it is not that of the operation."""
    pattern = _PARTS[operation.id]
    if len(pattern) != len(parts):
        return None
    found: dict[str, str] = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            found[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return found
