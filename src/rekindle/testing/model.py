"""A scripted model: a local HTTP server that speaks the Chat Completions protocol.

Use it with the real client:

    with ScriptedModel({"turns": [{"user": "weather", "steps": [{"text": "Sunny."}]}]}) as model:
        ...  # send requests to model.url; then inspect model.requests

or from another process with `python -m rekindle.testing model --script FILE --port N`. The server
counts only faults: the first request with some content gets the first fault of the step, the second
request the second fault, and then the answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from rekindle.agent.model.chat_completions import from_chat_message
from rekindle.agent.model.providers import find_violations
from rekindle.json_fields import as_object, as_objects
from rekindle.types import JSON

from .script import (
    ReceivedRequest,
    Script,
    ScriptedFault,
    ScriptedReply,
    ScriptedStep,
    build_context_error,
    build_reply,
)
from .server import HOST, LoopbackServer

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


@dataclass(slots=True)
class _HttpConnection:
    """One client connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def wait_connected(self, seconds: float) -> None:
        """Wait; raise ConnectionResetError if the client disconnects."""
        if seconds > 0:
            try:
                await asyncio.wait_for(self.reader.read(1), seconds)
            except TimeoutError:
                return
            raise ConnectionResetError("client disconnected")

    async def read_head(self) -> tuple[str, str, dict[str, str]] | None:
        """Read the method, path and headers of the next request; return None if there is none."""
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return None
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines if line)
        return method, path, {name.lower(): value.strip() for name, _, value in pairs}

    async def send_response(self, status: int, body: bytes, **headers: str) -> None:
        header_lines = "".join(
            f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()
        )
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{header_lines}\r\n"
        )
        self.writer.write(head.encode() + body)
        await self.writer.drain()

    async def begin_events(self) -> None:
        self.writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        await self.writer.drain()

    async def send_event(self, data: bytes) -> None:
        line = b"data: " + data + b"\n\n"
        self.writer.write(b"%x\r\n%b\r\n" % (len(line), line))
        await self.writer.drain()

    async def end_events(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()


class _ConnectionCut(Exception):
    """Drop the connection now."""


@dataclass(slots=True)
class _ModelServer:
    script: Script
    log: Path | None = None
    requests: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    faults: Counter[str] = field(default_factory=Counter[str])
    max_chunks: int | None = None  # of an answer, while requests are on hold

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _HttpConnection(reader, writer)
        try:
            while (head := await connection.read_head()) is not None:
                method, path, headers = head
                body = await reader.readexactly(int(headers.get("content-length") or 0))
                await self._route(connection, method, path, headers, body)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # client disconnected
        except _ConnectionCut:
            writer.transport.abort()
        finally:
            writer.close()

    async def _route(
        self,
        connection: _HttpConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> None:
        if method == "POST" and path.endswith("/chat/completions"):
            await self._handle_chat(connection, headers, body)
        elif path.endswith("/requests"):
            summaries = [self._summarize_request(request) for request in self.requests]
            await connection.send_response(200, msgspec.json.encode(summaries))
        elif path.endswith("/models"):
            await connection.send_response(200, b'{"object": "list", "data": [{"id": "scripted"}]}')
        else:
            await connection.send_response(404, _encode_error(f"not found: {path}", "not_found"))

    def _summarize_request(self, request: ReceivedRequest) -> dict[str, Any]:
        return {
            "outcome": request.outcome,
            "violations": request.violations,
            "body": request.body,
        }

    async def _handle_chat(
        self, connection: _HttpConnection, headers: Mapping[str, str], body: bytes
    ) -> None:
        try:
            payload = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            return await connection.send_response(
                400, _encode_error(f"not JSON: {error}", "invalid_json")
            )
        messages = [from_chat_message(one) for one in as_objects(payload.get("messages"))]
        key = headers.get("authorization", "").removeprefix("Bearer ")
        request = ReceivedRequest(
            messages, payload, key, find_violations(self.script.provider, messages)
        )
        self.requests.append(request)
        try:
            await self._send_reply(connection, request)
        finally:
            if self.log is not None:
                with self.log.open("ab") as file:
                    file.write(msgspec.json.encode(self._summarize_request(request)) + b"\n")
        return None

    async def _send_reply(self, connection: _HttpConnection, request: ReceivedRequest) -> None:
        if request.violations and self.script.strict:
            request.outcome = "refused"
            return await connection.send_response(
                400, _encode_error(request.violations[0], "invalid_request_error")
            )
        tokens = request.count_tokens(self.script.bytes_per_token) if self.script.context else 0
        if tokens > self.script.context:
            request.outcome = "refused"
            body = msgspec.json.encode(build_context_error(self.script, tokens))
            return await connection.send_response(400, body)
        reply = build_reply(self.script, request)
        fault = self._next_fault(reply.step, request)
        await connection.wait_connected(reply.step.wait)
        await self._wait_for_release(connection, 0)
        if fault is not None and fault.status:
            request.outcome = "fault"
            headers = {"retry_after": str(fault.retry_after)} if fault.retry_after != "" else {}
            return await connection.send_response(
                fault.status, _encode_error(fault.message, fault.code), **headers
            )
        if request.body.get("stream"):
            await self._stream_reply(connection, request, reply, fault)
        elif fault is not None:
            await self._send_fault(connection, request, fault)
        else:
            await connection.send_response(200, msgspec.json.encode(reply.to_completion()))
        if fault is None:
            request.outcome = "answered"
        return None

    def _next_fault(self, step: ScriptedStep, request: ReceivedRequest) -> ScriptedFault | None:
        number = self.faults[request.digest]
        self.faults[request.digest] += 1
        if number < len(step.faults):
            return step.faults[number]
        return step.faults[-1] if step.faults and step.faults[-1].always else None

    async def _send_fault(
        self, connection: _HttpConnection, request: ReceivedRequest, fault: ScriptedFault
    ) -> None:
        request.outcome = "fault"
        if fault.cut is not None or fault.stop is not None:
            raise _ConnectionCut
        await connection.send_response(
            200, b'{"choices": [{"mess' if fault.garbage else _encode_error(fault.error, "")
        )

    async def _stream_reply(
        self,
        connection: _HttpConnection,
        request: ReceivedRequest,
        reply: ScriptedReply,
        fault: ScriptedFault | None,
    ) -> None:
        options = as_object(request.body.get("stream_options"))
        chunks = reply.to_chunks(usage=bool(options.get("include_usage")))
        if fault is not None:
            request.outcome = "fault"
            limit = fault.cut if fault.cut is not None else fault.stop
            chunks = chunks[: 2 if limit is None else limit]
        await connection.begin_events()
        for number, chunk in enumerate(chunks):
            if number:
                await connection.wait_connected(reply.step.pause)
            await self._wait_for_release(connection, number)
            await connection.send_event(msgspec.json.encode(chunk))
        if fault is not None and fault.cut is not None:
            raise _ConnectionCut
        if fault is not None and fault.garbage:
            await connection.send_event(b'{"choices": [{"del')
        elif fault is not None and fault.error:
            await connection.send_event(_encode_error(fault.error, fault.code))
        elif fault is None:
            await connection.send_event(b"[DONE]")
        await connection.end_events()

    async def _wait_for_release(self, connection: _HttpConnection, sent: int) -> None:
        """Wait while answers may not be longer than the chunks that were sent."""
        while self.max_chunks is not None and sent >= self.max_chunks:
            await connection.wait_connected(0.02)


def _encode_error(message: str, code: str) -> bytes:
    details = {"message": message, "type": code or None, "code": code or None, "param": None}
    return msgspec.json.encode({"error": details})


class ScriptedModel:
    """The model server in its own thread; a context manager."""

    def __init__(
        self,
        script: Mapping[str, JSON] | Script | None = None,
        *,
        port: int = 0,
        log: Path | None = None,
    ) -> None:
        parsed = script if isinstance(script, Script) else msgspec.convert(script or {}, Script)
        self._model = _ModelServer(parsed, log)
        self._server = LoopbackServer("scripted-model", self._model.serve, port=port)

    @contextmanager
    def hold_requests(self, max_chunks: int = 0) -> Generator[None]:
        """Accept requests in this block, but answer none before its end.

        With `max_chunks`, stream that many chunks of each answer; the first has no text.
        """
        self._model.max_chunks = max_chunks
        try:
            yield
        finally:
            self._model.max_chunks = None

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def url(self) -> str:
        """The value for `model.base_url`."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def requests(self) -> list[ReceivedRequest]:
        return self._model.requests

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()
