"""Make the OpenAPI document from the table of operations."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from .operations import OPERATIONS, ApiOperation
from .values import ApiError

_REFERENCE = "#/components/schemas/{name}"
_JSON = "application/json"
_STATUS_TEXTS = {
    400: "The request is invalid.",
    401: "The key is missing, unknown, or no longer valid.",
    403: "The key does not allow this.",
    404: "Not found.",
    409: "The server has another part of the transcript; ask for its state.",
    413: "The request is too large.",
    429: "Too many requests with this key; wait as long as Retry-After says.",
    503: "The store does not answer; try again after Retry-After.",
}


@cache
def build_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    types = {ApiError: None}
    for one in OPERATIONS:
        types |= dict.fromkeys(kind for kind in (one.answer, one.body, one.query) if kind)
    _, schemas = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    queries = {one.query.__name__ for one in OPERATIONS if one.query}
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _describe_operation(one, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rekindle",
            "version": "1",
            "description": "Sessions of AI agents: append, read, search, and push transcripts."
            " A request may be repeated: message ids and offsets make sure that nothing is stored"
            " twice.",
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": {name: one for name, one in schemas.items() if name not in queries},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def render_document() -> str:
    """Return the document as it is checked in."""
    return msgspec.json.format(msgspec.json.encode(build_document()), indent=2).decode() + "\n"


def _describe_operation(one: ApiOperation, schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": one.id, "summary": one.summary}
    if one.scope is None:
        found["security"] = []
    else:
        found["description"] = f"Needs a key with the scope `{one.scope}`."
    if parameters := [*_iter_path_parameters(one), *_list_query_parameters(one, schemas)]:
        found["parameters"] = parameters
    if one.body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {_JSON: {"schema": _make_reference(one.body)}},
        }
    elif one.takes_bytes:
        found["requestBody"] = {
            "required": True,
            "description": "The bytes, or with `Content-Encoding: gzip` compressed.",
            "content": {"application/octet-stream": {"schema": {}}},
        }
    schema = {"type": "object"} if one.answer is None else _make_reference(one.answer)
    answers: dict[str, Any] = {
        "200": {"description": "Done.", "content": {_JSON: {"schema": schema}}}
    }
    statuses = {*one.errors, 503, *(() if one.scope is None else (401, 403, 429))}
    statuses |= {400} if one.query or one.body or one.takes_bytes else set()
    statuses |= {413} if one.max_body else set()
    for status in sorted(statuses):
        answers[str(status)] = {
            "description": _STATUS_TEXTS[status],
            "content": {_JSON: {"schema": _make_reference(ApiError)}},
        }
    found["responses"] = answers
    return found


def _iter_path_parameters(one: ApiOperation) -> list[dict[str, Any]]:
    return [
        {"name": part[1:-1], "in": "path", "required": True, "schema": _PATH_SCHEMAS[part[1:-1]]}
        for part in one.parts
        if part.startswith("{")
    ]


_PATH_SCHEMAS: dict[str, dict[str, Any]] = {
    "session": {"type": "string", "minLength": 1, "maxLength": 512},
    "name": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}


def _list_query_parameters(one: ApiOperation, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    if one.query is None:
        return []
    schema = schemas[one.query.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": kind}
        for name, kind in schema["properties"].items()
    ]


def _make_reference(kind: type) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}
