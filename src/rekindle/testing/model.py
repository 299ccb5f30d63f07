"""A scripted model: an HTTP server on this machine that speaks the Chat Completions protocol.

The real client is used against it:

    with ScriptedModel({"turns": [{"user": "weather", "steps": [{"text": "Sunny."}]}]}) as model:
        ...  # ask model.url; then look at model.requests

or, for another process, `python -m rekindle.testing model --script FILE --port N`. Only faults are
counted: the first request with some content gets the first fault of the step, the second the second,
and then the answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from rekindle.agent.model.chat_completions import message_of
from rekindle.agent.model.providers import violations
from rekindle.json_fields import record, records
from rekindle.types import JSON

from .script import Fault, Reply, Request, Script, Step, reply_to
from .server import HOST, Loopback

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


@dataclass(slots=True)
class _Line:
    """One connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def pause(self, seconds: float) -> None:
        """Wait, but not for a client that has gone."""
        if seconds > 0:
            try:
                await asyncio.wait_for(self.reader.read(1), seconds)
            except TimeoutError:
                return
            raise ConnectionResetError("the client has gone")

    async def head(self) -> tuple[str, str, dict[str, str]] | None:
        """Method, path and headers of the next request; None when there is none."""
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return None
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines if line)
        return method, path, {name.lower(): value.strip() for name, _, value in pairs}

    async def send(self, status: int, body: bytes, **headers: str) -> None:
        given = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{given}\r\n"
        )
        self.writer.write(head.encode() + body)
        await self.writer.drain()

    async def begin_events(self) -> None:
        self.writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        await self.writer.drain()

    async def event(self, data: bytes) -> None:
        line = b"data: " + data + b"\n\n"
        self.writer.write(b"%x\r\n%b\r\n" % (len(line), line))
        await self.writer.drain()

    async def end_events(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()


class _Cut(Exception):
    """The connection is to be lost now."""


@dataclass(slots=True)
class _Server:
    script: Script
    log: Path | None = None
    requests: list[Request] = field(default_factory=list[Request])
    faults: Counter[str] = field(default_factory=Counter[str])
    held: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = _Line(reader, writer)
        try:
            while (head := await line.head()) is not None:
                method, path, headers = head
                body = await reader.readexactly(int(headers.get("content-length") or 0))
                await self._route(line, method, path, headers, body)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has gone
        except _Cut:
            writer.transport.abort()
        finally:
            writer.close()

    async def _route(
        self, line: _Line, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> None:
        if method == "POST" and path.endswith("/chat/completions"):
            await self._chat(line, headers, body)
        elif path.endswith("/requests"):
            told = [self._told(request) for request in self.requests]
            await line.send(200, msgspec.json.encode(told))
        elif path.endswith("/models"):
            await line.send(200, b'{"object": "list", "data": [{"id": "scripted"}]}')
        else:
            await line.send(404, _error(f"nothing is served at {path}", "not_found"))

    def _told(self, request: Request) -> dict[str, Any]:
        return {
            "outcome": request.outcome,
            "violations": request.violations,
            "body": request.body,
        }

    async def _chat(self, line: _Line, headers: Mapping[str, str], body: bytes) -> None:
        try:
            given = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            return await line.send(400, _error(f"not JSON: {error}", "invalid_json"))
        messages = [message_of(one) for one in records(given.get("messages"))]
        key = headers.get("authorization", "").removeprefix("Bearer ")
        request = Request(messages, given, key, violations(self.script.provider, messages))
        self.requests.append(request)
        try:
            await self._answer(line, request)
        finally:
            if self.log is not None:
                with self.log.open("ab") as file:
                    file.write(msgspec.json.encode(self._told(request)) + b"\n")
        return None

    async def _answer(self, line: _Line, request: Request) -> None:
        if request.violations and self.script.strict:
            request.outcome = "refused"
            return await line.send(400, _error(request.violations[0], "invalid_request_error"))
        reply = reply_to(self.script, request)
        fault = self._fault(reply.step, request)
        await line.pause(reply.step.wait)
        while self.held:
            await line.pause(0.02)
        if fault is not None and fault.status:
            request.outcome = "fault"
            after = {"retry_after": str(fault.retry_after)} if fault.retry_after != "" else {}
            return await line.send(fault.status, _error(fault.message, fault.code), **after)
        if request.body.get("stream"):
            await self._stream(line, request, reply, fault)
        elif fault is not None:
            await self._break(line, request, fault)
        else:
            await line.send(200, msgspec.json.encode(reply.whole()))
        if fault is None:
            request.outcome = "answered"
        return None

    def _fault(self, step: Step, request: Request) -> Fault | None:
        number = self.faults[request.digest]
        self.faults[request.digest] += 1
        if number < len(step.faults):
            return step.faults[number]
        return step.faults[-1] if step.faults and step.faults[-1].always else None

    async def _break(self, line: _Line, request: Request, fault: Fault) -> None:
        request.outcome = "fault"
        if fault.cut is not None or fault.stop is not None:
            raise _Cut
        await line.send(200, b'{"choices": [{"mess' if fault.garbage else _error(fault.error, ""))

    async def _stream(
        self, line: _Line, request: Request, reply: Reply, fault: Fault | None
    ) -> None:
        options = record(request.body.get("stream_options"))
        chunks = reply.chunks(usage=bool(options.get("include_usage")))
        if fault is not None:
            request.outcome = "fault"
            limit = fault.cut if fault.cut is not None else fault.stop
            chunks = chunks[: 2 if limit is None else limit]
        await line.begin_events()
        async for chunk in _paced(line, chunks, reply.step.pause):
            await line.event(msgspec.json.encode(chunk))
        if fault is not None and fault.cut is not None:
            raise _Cut
        if fault is not None and fault.garbage:
            await line.event(b'{"choices": [{"del')
        elif fault is not None and fault.error:
            await line.event(_error(fault.error, fault.code))
        elif fault is None:
            await line.event(b"[DONE]")
        await line.end_events()


async def _paced(
    line: _Line, chunks: Sequence[dict[str, Any]], pause: float
) -> AsyncIterator[dict[str, Any]]:
    for number, chunk in enumerate(chunks):
        if number:
            await line.pause(pause)
        yield chunk


def _error(message: str, code: str) -> bytes:
    told = {"message": message, "type": code or None, "code": code or None, "param": None}
    return msgspec.json.encode({"error": told})


class ScriptedModel:
    """The server, in a thread of its own; a context manager for tests of any kind."""

    def __init__(
        self,
        script: Mapping[str, JSON] | Script | None = None,
        *,
        port: int = 0,
        log: Path | None = None,
    ) -> None:
        parsed = script if isinstance(script, Script) else msgspec.convert(script or {}, Script)
        self._served = _Server(parsed, log)
        self._server = Loopback("scripted-model", self._served.serve, port=port)

    @contextmanager
    def held(self) -> Generator[None]:
        """Requests are taken, and none is answered before the end of the block."""
        self._served.held = True
        try:
            yield
        finally:
            self._served.held = False

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def url(self) -> str:
        """What to give as `model.base_url`."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def requests(self) -> list[Request]:
        return self._served.requests

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()
