"""The ASGI application: check a request once, hand it to its handler, answer in JSON."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

import msgspec

from rekindle.api.operations import OPERATIONS, ApiOperation, find_operation, match_parts
from rekindle.api.values import ApiError, encode_value
from rekindle.errors import (
    AccessDenied,
    InvalidApiKey,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    RekindleError,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
    WrongOffset,
)
from rekindle.tenants import Access, Scope

from .bodies import ApiRefusal, BodyReader, Receive, Send
from .bodies import Scope as AsgiScope
from .handlers import ApiHandlers, ApiRequest
from .keys import KeyCache, RateLimiter

MAX_PATH_BYTES, MAX_QUERY_BYTES, MAX_FIELDS = 4_000, 8_000, 20
RETRY_SECONDS = 1.0  # for a client of a store that is busy or away
NO_ACCESS = Access(tenant="", key_id="", member=None, scopes=frozenset())
_log = logging.getLogger("rekindle.api")
_HEADERS = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]
Handler = Callable[[ApiRequest], Awaitable[object]]


class ApiApp:
    """Answers requests. What a handler raises becomes a status and a sentence."""

    def __init__(
        self,
        handlers: ApiHandlers,
        keys: KeyCache,
        limiter: RateLimiter,
        *,
        bodies: BodyReader | None = None,
        logs_requests: bool = False,
    ) -> None:
        self._handlers: dict[str, Handler] = {
            one.id: cast(Handler, getattr(handlers, one.id)) for one in OPERATIONS
        }
        self._decoders = {
            one.id: msgspec.json.Decoder(one.body) for one in OPERATIONS if one.body is not None
        }
        self._keys = keys
        self._limiter = limiter
        self._bodies = BodyReader() if bodies is None else bodies
        self._logs_requests = logs_requests

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _answer(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        entry = {"method": scope["method"], "operation": "", "key": ""}
        retry_after: float | None = None
        try:
            status, body = 200, await self._run_operation(scope, receive, entry)
        except Exception as error:  # noqa: BLE001  # nothing that a client sends may end the server
            refusal = to_refusal(error)
            if refusal.status == 500:
                _log.error("request failed", exc_info=error, extra={"fields": entry})
            status, retry_after = refusal.status, refusal.retry_after
            body = encode_value(ApiError(code=refusal.code, message=str(refusal)))
        headers = [*_HEADERS, (b"content-length", b"%d" % len(body))]
        if retry_after is not None:
            headers.append((b"retry-after", b"%d" % math.ceil(retry_after)))
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if self._logs_requests or status >= 400:
            fields = {
                **entry,
                "status": status,
                "ms": round(1e3 * (time.perf_counter() - began), 1),
            }
            _log.log(
                logging.WARNING if status >= 500 else logging.INFO,
                "request",
                extra={"fields": fields},
            )
        await send({"type": "http.response.start", "status": status, "headers": headers})
        is_head = scope["method"] == "HEAD"
        await send({"type": "http.response.body", "body": b"" if is_head else body})

    async def _run_operation(
        self, scope: AsgiScope, receive: Receive, entry: dict[str, str]
    ) -> bytes:
        operation, path = _find_operation(scope)
        entry["operation"] = operation.id
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        access = NO_ACCESS
        if operation.scope is not None:
            access = await self._check_key(scope, headers, cast(Scope, operation.scope))
            entry["key"] = access.key_id
            self._check_rate(access)
        query = None if operation.query is None else _parse_query(operation, scope)
        body: Any = None
        reserved = 0
        try:
            if operation.max_body:
                data, reserved = await self._bodies.read_body(receive, headers, operation.max_body)
                decoder = self._decoders.get(operation.id)
                body = data if decoder is None else decoder.decode(data)
            request = ApiRequest(access, path, query, body)
            return encode_value(await self._handlers[operation.id](request))
        finally:
            self._bodies.release(reserved)

    async def _check_key(
        self, request: AsgiScope, headers: Mapping[str, str], scope: Scope
    ) -> Access:
        kind, _, token = headers.get("authorization", "").partition(" ")
        access = None
        if kind.lower() == "bearer":
            client = request.get("client") or ("", 0)
            access = await self._keys.find_access(token.strip(), client[0])
        if access is None:
            raise InvalidApiKey("Send a valid API key: Authorization: Bearer KEY")
        access.require_scope(scope)
        return access

    def _check_rate(self, access: Access) -> None:
        wait = self._limiter.take_request(access.key_id)
        if wait > 0:
            raise ApiRefusal(
                429, "rate_limit", "Too many requests with this key.", retry_after=wait
            )


def _find_operation(scope: AsgiScope) -> tuple[ApiOperation, dict[str, str]]:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if len(raw) > MAX_PATH_BYTES or len(scope["query_string"]) > MAX_QUERY_BYTES:
        raise ApiRefusal(414, "too_long", "The address is too long.")
    # Split before decoding: a session's id may contain a slash.
    text = raw.partition(b"?")[0].decode("latin-1").removeprefix("/")
    try:
        parts = [unquote(part, errors="strict") for part in text.split("/")]
    except UnicodeDecodeError:
        raise ApiRefusal(400, "invalid", "The address is not valid UTF-8.") from None
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    found = find_operation(method, parts)
    if found is not None:
        return found
    if any(match_parts(one, parts) is not None for one in OPERATIONS):
        raise ApiRefusal(405, "wrong_method", f"{method:.20} is not allowed here.")
    raise ApiRefusal(404, "not_found", "Not found.")


def _parse_query(operation: ApiOperation, scope: AsgiScope) -> object:
    assert operation.query is not None
    try:
        text = scope["query_string"].decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise InvalidInput("The parameters of the address cannot be read.") from None
    unknown = {name for name, _ in pairs} - {*operation.query.__struct_fields__}
    if unknown:
        raise InvalidInput(f"Unknown parameter: {min(unknown):.40}")
    return msgspec.convert(dict(pairs), operation.query, strict=False)


_STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (InvalidApiKey, 401, "invalid_key"),
    (AccessDenied, 403, "access_denied"),
    (NotFound, 404, "not_found"),
    (WrongOffset, 409, "wrong_offset"),
    (QuotaExceeded, 429, "quota"),
    (InvalidInput, 400, "invalid"),
    (msgspec.MsgspecError, 400, "invalid"),
    (UnicodeError, 400, "invalid"),
    (RecursionError, 400, "invalid"),
    (StoreUnavailable, 503, "store_unavailable"),
    (StoreBusy, 503, "store_busy"),
    (StoreFull, 507, "store_full"),
    (StoreError, 503, "store_failed"),
    (RekindleError, 500, "failed"),
)


def to_refusal(error: Exception) -> ApiRefusal:
    """Return the answer to a failed request, without any detail of unexpected errors."""
    if isinstance(error, ApiRefusal):
        return error
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            given: float | None = getattr(error, "retry_after", None)
            wait = RETRY_SECONDS if status == 503 else given
            message = _describe_store_error(error) if status == 503 else str(error)
            return ApiRefusal(status, code, message, retry_after=wait)
    return ApiRefusal(500, "failed", "The server failed. Its log has the cause.")


def _describe_store_error(error: Exception) -> str:
    # The location of the database is nothing that clients should know.
    return "The store is busy." if isinstance(error, StoreBusy) else "The store does not answer."
