"""Serve one client over stdin and stdout.

The protocol is spoken here directly and not through the SDK, whose import takes longer than some agents
wait: Codex sends its first request without the tools of a server that is not ready within a second. A
client of the newest protocol falls back to the handshake that is answered here.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

import msgspec

from rekindle import __version__
from rekindle.json_fields import as_object, as_objects, get_text

from .protocol import INTERNAL_ERROR, RequestHandler, RequestRefused
from .tools import INSTRUCTIONS

PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MAX_LINE_BYTES = 8_000_000
WORKERS = 4
MAX_ROOTS = 8
ROOTS_SECONDS = 5.0
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600


class StdioServer:
    """Reads one message per line, answers requests in threads, and writes one message per line."""

    def __init__(
        self,
        handler: RequestHandler,
        incoming: BinaryIO,
        outgoing: BinaryIO,
        *,
        asks_for_roots: bool,
    ) -> None:
        self._handler = handler
        self._incoming = incoming
        self._outgoing = outgoing
        self._asks_for_roots = asks_for_roots  # if the client has any; see `initialize`
        self._write_lock = threading.Lock()
        self._requests: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._responses: dict[str, SimpleQueue[Any]] = {}
        self._has_roots = False

    def run(self) -> None:
        """Serve until the client closes its end; requests that arrived before are answered."""
        threads = [threading.Thread(target=self._run_worker, daemon=True) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        while line := self._incoming.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n") and len(line) >= MAX_LINE_BYTES:
                self._skip_line()
                self._send_error(None, _INVALID_REQUEST, "The message is too long")
            elif line.strip():
                self._receive(line)
        for _ in threads:
            self._requests.put(None)
        for thread in threads:
            thread.join()

    def _skip_line(self) -> None:
        while (rest := self._incoming.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
            pass

    def _receive(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._send_error(None, _PARSE_ERROR, "The message is not valid JSON")
            return
        fields = as_object(message)
        if not fields:
            self._send_error(None, _INVALID_REQUEST, "Expected one JSON object")
            return
        id, method = fields.get("id"), fields.get("method")
        if method is None and isinstance(id, str) and id in self._responses:
            self._responses[id].put(fields.get("result"))
        elif isinstance(id, (str, int)) and isinstance(method, str):
            if method == "initialize":
                self._send({"id": id, "result": self._answer_handshake(fields.get("params"))})
            else:
                self._requests.put(fields)
        elif "id" in fields and method is not None:
            self._send_error(None, _INVALID_REQUEST, "id: expected a string or a number")

    def _answer_handshake(self, params: Any) -> dict[str, Any]:
        given = as_object(params)
        self._has_roots = "roots" in as_object(given.get("capabilities"))
        wanted = given.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "rekindle", "title": "Rekindle", "version": __version__},
            "instructions": INSTRUCTIONS,
        }

    # ── answering, in threads

    def _run_worker(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                self._send({"id": request["id"], "result": self._answer(request)})
            except RequestRefused as refusal:
                self._send_error(request["id"], refusal.code, str(refusal))
            except Exception:  # noqa: BLE001  # one request must not end the thread for the others
                self._send_error(request["id"], INTERNAL_ERROR, "The request failed unexpectedly")

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        method, params = request["method"], as_object(request.get("params"))
        if method == "ping":
            return {}
        needs_folders = method in ("tools/call", "resources/list", "resources/read")
        return self._handler.answer(method, params, self._ask_for_roots() if needs_folders else ())

    def _ask_for_roots(self) -> list[str]:
        """Return the folders that the client works in; none if it does not say."""
        if not (self._asks_for_roots and self._has_roots):
            return []
        id = f"roots-{threading.get_ident()}"
        answers = self._responses[id] = SimpleQueue[Any]()
        self._send({"id": id, "method": "roots/list"})
        try:
            return read_roots(answers.get(timeout=ROOTS_SECONDS))
        except Empty:
            return []
        finally:
            del self._responses[id]

    # ── writing

    def _send_error(self, id: Any, code: int, message: str) -> None:
        self._send({"id": id, "error": {"code": code, "message": message}})

    def _send(self, message: Mapping[str, Any]) -> None:
        line = msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"
        try:
            with self._write_lock:
                self._outgoing.write(line)
                self._outgoing.flush()
        except OSError:
            pass  # the client is gone; reading ends for the same reason


def read_roots(result: Any) -> list[str]:
    """Return the folders of this machine in a client's list of roots, whatever it looks like."""
    roots = as_objects(as_object(result).get("roots"))[:MAX_ROOTS]
    folders = (_read_file_uri(get_text(root, "uri") or "") for root in roots)
    return [folder for folder in folders if folder is not None]


def _read_file_uri(uri: str) -> str | None:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    is_local = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return path if is_local and path.startswith("/") and "\0" not in path else None


def serve_stdio(handler: RequestHandler, *, asks_for_roots: bool) -> None:
    """Serve the client at stdin and stdout until it closes them.

    Meanwhile both are diverted, so that nothing else can read or write the messages.
    """
    sys.stdout.flush()
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    with os.fdopen(incoming, "rb") as reader, os.fdopen(outgoing, "wb") as writer:
        StdioServer(handler, reader, writer, asks_for_roots=asks_for_roots).run()
