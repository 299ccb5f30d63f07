"""A client of the API: one method per operation, over a connection that is kept open."""

from __future__ import annotations

import gzip
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from rekindle.errors import InvalidInput, ServerRefused, ServerUnreachable

from . import values
from .operations import OPERATIONS, ApiOperation

TIMEOUT_SECONDS = 60.0
MIN_COMPRESS_BYTES = 1_000
MAX_ANSWER_BYTES = 100_000_000
_OPERATIONS = {one.id: one for one in OPERATIONS}
T = TypeVar("T", bound=msgspec.Struct)


class ApiClient:
    """Calls a server; may be used by several threads, one request at a time.

    Every request may be repeated: with `attempts`, it is when the server is busy or the connection
    breaks. Errors are `ServerRefused` and `ServerUnreachable`.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        timeout: float = TIMEOUT_SECONDS,
        attempts: int = 1,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise InvalidInput(f"{url!r:.100}: expected a URL such as https://rekindle.example")
        if parts.username is not None or parts.query or parts.fragment:
            raise InvalidInput(
                "the URL of the server must not contain a user name, password or parameters"
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise InvalidInput("the API key is malformed; use it as printed when it was created")
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, port
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._key = key
        self._timeout = timeout
        self._attempts = max(1, attempts)
        self._tls = tls
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    # -- operations

    def get_health(self) -> values.Health:
        """Return whether the server works."""
        return self._call("get_health", values.Health)

    def get_document(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        return msgspec.json.decode(self._send(_OPERATIONS["get_document"]), type=dict[str, Any])

    def list_sessions(
        self, *, limit: int = 50, cursor: str | None = None, filter: str = ""
    ) -> values.SessionPage:
        """Return a page of sessions, newest first."""
        query = values.SessionQuery(limit=limit, cursor=cursor, filter=filter)
        return self._call("list_sessions", values.SessionPage, query=query)

    def iter_sessions(self, *, limit: int = 200, filter: str = "") -> Iterator[values.SessionValue]:
        """Yield all sessions, newest first."""
        cursor: str | None = None
        while True:
            page = self.list_sessions(limit=limit, cursor=cursor, filter=filter)
            yield from page.sessions
            cursor = page.next_cursor
            if cursor is None:
                return

    def create_session(self, session: values.SessionInput) -> values.AppendedMessages:
        """Create a session with its first messages; durable on return."""
        return self._call("create_session", values.AppendedMessages, body=session)

    def get_session(self, session: str) -> values.SessionValue:
        """Return a session."""
        return self._call("get_session", values.SessionValue, path={"session": session})

    def list_messages(
        self, session: str, *, after: int | None = None, limit: int = 100
    ) -> values.MessagePage:
        """Return messages of a session, in order."""
        query = values.MessageQuery(after=after, limit=limit)
        return self._call(
            "list_messages", values.MessagePage, path={"session": session}, query=query
        )

    def append_messages(
        self, session: str, *messages: values.MessageValue
    ) -> values.AppendedMessages:
        """Append messages to a session; durable on return."""
        return self._call(
            "append_messages",
            values.AppendedMessages,
            path={"session": session},
            body=values.NewMessages(messages=[*messages]),
        )

    def search_messages(self, search: values.SearchQuery) -> values.SearchPage:
        """Search the messages of all sessions."""
        return self._call("search_messages", values.SearchPage, query=search)

    def recall_at_start(self, recall: values.StartRecall) -> values.RecalledNotes:
        """Return the notes for a session before it begins."""
        return self._call("recall_at_start", values.RecalledNotes, body=recall)

    def recall_at_failure(self, recall: values.FailureRecall) -> values.RecalledNotes:
        """Return how a failure like this one was fixed before."""
        return self._call("recall_at_failure", values.RecalledNotes, body=recall)

    def recall_before_call(self, recall: values.CallRecall) -> values.RecalledNotes:
        """Return what worked in place of a call that is known to fail."""
        return self._call("recall_before_call", values.RecalledNotes, body=recall)

    def get_transcript(self, name: str) -> values.TranscriptState:
        """Return how much of a transcript the server has."""
        return self._call("get_transcript", values.TranscriptState, path={"name": name})

    def append_transcript(
        self, name: str, data: bytes, *, offset: int, restart: bool = False
    ) -> values.TranscriptState:
        """Append bytes to a transcript, compressed on the way; durable on return."""
        return self._call(
            "append_transcript",
            values.TranscriptState,
            path={"name": name},
            query=values.ChunkQuery(offset=offset, restart=restart),
            data=data,
        )

    def import_transcript(self, name: str, place: values.TranscriptPlace) -> values.ImportCounts:
        """Import the sessions of a transcript."""
        return self._call("import_transcript", values.ImportCounts, path={"name": name}, body=place)

    # -- requests

    def _call(
        self,
        id: str,
        answer: type[T],
        *,
        path: dict[str, str] | None = None,
        query: msgspec.Struct | None = None,
        body: msgspec.Struct | None = None,
        data: bytes | None = None,
    ) -> T:
        content = None if body is None else values.encode_value(body)
        sent = self._send(_OPERATIONS[id], path or {}, query, data if body is None else content)
        try:
            return msgspec.json.decode(sent, type=answer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ServerUnreachable(f"{self._host}: not an answer of Rekindle: {error}") from None

    def _send(
        self,
        operation: ApiOperation,
        path: dict[str, str] | None = None,
        query: msgspec.Struct | None = None,
        content: bytes | None = None,
    ) -> bytes:
        address = _build_address(operation, path or {}, query)
        headers = {"Accept": "application/json", "User-Agent": "rekindle"}
        if self._key and operation.scope is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        if content is not None:
            headers["Content-Type"] = (
                "application/octet-stream" if operation.takes_bytes else "application/json"
            )
            if len(content) >= MIN_COMPRESS_BYTES:
                content, headers["Content-Encoding"] = gzip.compress(content, 6, mtime=0), "gzip"
        for attempt in range(1, self._attempts + 1):
            is_last = attempt == self._attempts
            try:
                return self._send_request(operation.method, address, content, headers)
            except ServerUnreachable:
                if is_last:
                    raise
                time.sleep(min(0.1 * 2**attempt, 5.0))
            except ServerRefused as refusal:
                if is_last or refusal.retry_after is None:
                    raise
                time.sleep(min(refusal.retry_after, 60.0))
        raise AssertionError

    def _send_request(
        self, method: str, address: str, content: bytes | None, headers: dict[str, str]
    ) -> bytes:
        """Send a request once; again at once if the server had closed an idle connection."""
        with self._lock:
            is_reused = self._connection is not None
            try:
                return self._send_once(method, address, content, headers)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                self.close()
                if not is_reused:
                    raise self._make_unreachable(error) from None
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise self._make_unreachable(error) from None
            try:
                return self._send_once(method, address, content, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise self._make_unreachable(error) from None

    def _send_once(
        self, method: str, address: str, content: bytes | None, headers: dict[str, str]
    ) -> bytes:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request(method, self._prefix + address, content, headers)
        answer = self._connection.getresponse()
        body = answer.read(MAX_ANSWER_BYTES + 1)
        if len(body) > MAX_ANSWER_BYTES:
            self.close()
            raise http.client.HTTPException("the answer is too large")
        if answer.status != 200:
            raise _read_refusal(answer, body)
        return body

    def _connect(self) -> http.client.HTTPConnection:
        if self._is_secure:
            tls = self._tls or ssl.create_default_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        connection.connect()
        if connection.sock is not None:
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _make_unreachable(self, error: Exception) -> ServerUnreachable:
        reason = (isinstance(error, OSError) and error.strerror) or str(error) or "no answer"
        return ServerUnreachable(f"{self._host}: {reason}")

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _build_address(
    operation: ApiOperation, path: dict[str, str], query: msgspec.Struct | None
) -> str:
    parts = [
        quote(path[part[1:-1]], safe="", errors="surrogatepass") if part.startswith("{") else part
        for part in operation.parts
    ]
    address = "/" + "/".join(parts)
    if query is not None:
        given = msgspec.to_builtins(query)
        pairs = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in given.items()
            if value is not None
        }
        address += f"?{urlencode(pairs)}"
    return address


def _read_refusal(answer: http.client.HTTPResponse, body: bytes) -> ServerRefused:
    wait = answer.getheader("Retry-After", "")
    try:
        error = msgspec.json.decode(body, type=values.ApiError)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        error = values.ApiError(code="", message=f"the server answers {answer.status}")
    return ServerRefused(
        error.message,
        status=answer.status,
        code=error.code,
        retry_after=float(wait[:6]) if wait.isdigit() else None,
    )
