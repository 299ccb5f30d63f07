"""Fakes for tests and demos. Nothing in the package imports this file.

The scripted model is an HTTP server on this machine that speaks the Chat Completions protocol, so
that the real client is used against it:

    with ScriptedModel({"turns": [{"user": "weather", "steps": [{"text": "Sunny."}]}]}) as model:
        ...  # ask model.url; then look at model.requests

or, for another process, `python -m rekindle.testing model --script FILE --port N`.

It keeps no conversation. What it answers depends on the request alone: the last message of the user
chooses the turn (the one whose words stand last in it), and the number of answers since then the
step. A client that was killed asks again with the same history and gets the same answer, from a
restarted server too. Only faults are counted: the first request with some content gets the first
fault of the step, the second the second, and then the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any, Self

import msgspec

from .agent.providers import Provider, violations
from .agent.wire import message_of
from .transcripts.fields import record, records
from .types import JSON, Message

HOST = "127.0.0.1"
THE_END = "(The script ends here.)"
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call; arguments given as text are sent as they are, broken or not."""

    name: str
    arguments: str | dict[str, Any] = {}
    id: str = ""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes wrong instead of the answer.

    `status` is an HTTP error with `retry_after`, `code` and `message`. `cut` loses the connection
    and `stop` ends the stream in good order after that many chunks; `error` is told inside the
    stream; `garbage` sends what is no JSON. `always` keeps on failing.
    """

    status: int = 0
    retry_after: str | float = ""
    code: str = ""
    message: str = "scripted fault"
    cut: int | None = None
    stop: int | None = None
    error: str = ""
    garbage: bool = False
    always: bool = False


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer. `{user}` and `{result}` in the text stand for the last of each.

    `wait` are the seconds before the first byte, `pause` those between chunks of `chunk` characters.
    An `endless` step answers every later request of its turn too.
    """

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    reasoning: str = ""
    finish: str = ""
    usage: dict[str, Any] | None = None
    chunk: int = 8
    pause: float = 0.0
    wait: float = 0.0
    endless: bool = False
    faults: tuple[Fault, ...] = ()


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answers to a message of the user that holds these words."""

    user: str
    steps: tuple[Step, ...]


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model says; by default it repeats what it heard."""

    turns: tuple[Turn, ...] = ()
    otherwise: tuple[Step, ...] = (Step("You said: {user}"),)
    provider: Provider = "openai"  # whose rules a request must keep
    strict: bool = True  # answer with HTTP 400 to one that breaks them


@dataclass(slots=True)
class Request:
    """A request that came, and what became of it: answered, fault, refused or aborted."""

    messages: list[Message]
    body: dict[str, Any]
    key: str
    violations: list[str]
    outcome: str = "aborted"

    @property
    def digest(self) -> str:
        return sha256(msgspec.json.encode(self.body.get("messages"), order="sorted")).hexdigest()


@dataclass(slots=True)
class Reply:
    """The step that answers a request, with its words filled in and ids for its calls."""

    step: Step
    text: str
    calls: list[dict[str, Any]]
    usage: dict[str, Any]
    model: str
    id: str

    @property
    def finish(self) -> str:
        return self.step.finish or ("tool_calls" if self.calls else "stop")

    def whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.calls:
            message["tool_calls"] = self.calls
        if self.step.reasoning:
            message["reasoning_content"] = self.step.reasoning
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return self._about("chat.completion", [choice], usage=self.usage)

    def chunks(self, usage: bool) -> list[dict[str, Any]]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": piece} for piece in self._pieces(self.step.reasoning)]
        deltas += [{"content": piece} for piece in self._pieces(self.text)]
        for index, call in enumerate(self.calls):
            named = {**call["function"], "arguments": ""}
            deltas.append({"tool_calls": [{**call, "index": index, "function": named}]})
            for piece in self._pieces(call["function"]["arguments"]):
                more = {"index": index, "function": {"arguments": piece}}
                deltas.append({"tool_calls": [more]})
        chunks = [self._chunk(delta, None) for delta in deltas]
        chunks.append(self._chunk({}, self.finish))
        if usage:
            chunks.append(self._about("chat.completion.chunk", [], usage=self.usage))
        return chunks

    def _pieces(self, text: str) -> list[str]:
        size = max(1, self.step.chunk)
        return [text[start : start + size] for start in range(0, len(text), size)]

    def _chunk(self, delta: Mapping[str, JSON], finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self._about("chat.completion.chunk", [choice])

    def _about(self, kind: str, choices: list[dict[str, Any]], **more: JSON) -> dict[str, Any]:
        about = {"id": self.id, "object": kind, "created": 0, "model": self.model}
        return {**about, "choices": choices, **more}


def reply_to(script: Script, request: Request) -> Reply:
    """The answer that the script has for this request."""
    step, asked, results = _step_of(script, request.messages)
    text = step.text.replace("{user}", asked).replace("{result}", results)
    calls: list[dict[str, Any]] = []
    for number, call in enumerate(step.calls):
        arguments = call.arguments
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        id = call.id or f"call_{sha256(f'{request.digest}{number}'.encode()).hexdigest()[:20]}"
        function = {"name": call.name, "arguments": arguments}
        calls.append({"id": id, "type": "function", "function": function})
    given = sum(len(message.text) for message in request.messages) // 4
    usage = step.usage or {
        "prompt_tokens": given,
        "completion_tokens": len(text) // 4,
        "total_tokens": given + len(text) // 4,
    }
    name = f"chatcmpl-{request.digest[:20]}"
    return Reply(step, text, calls, usage, str(request.body.get("model")), name)


def _step_of(script: Script, messages: Sequence[Message]) -> tuple[Step, str, str]:
    last = max((n for n, one in enumerate(messages) if one.role == "user"), default=-1)
    asked = messages[last].text if last >= 0 else ""
    since = messages[last + 1 :]
    results = [one.text for one in since if one.role == "tool"]
    answers = sum(one.role == "assistant" for one in since)
    found = [
        (asked.rfind(turn.user) + len(turn.user), turn)
        for turn in script.turns
        if turn.user in asked
    ]
    steps = max(found, key=lambda one: one[0])[1].steps if found else script.otherwise
    if answers < len(steps):
        step = steps[answers]
    else:
        step = steps[-1] if steps and steps[-1].endless else Step(THE_END)
    return step, asked, results[-1] if results else ""


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
        self._server = _Server(parsed, log)
        self._wanted = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="scripted-model", daemon=True)
        self._started = threading.Event()
        self._stop = asyncio.Event()
        self._failed: OSError | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """What to give as `model.base_url`."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def requests(self) -> list[Request]:
        return self._server.requests

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._failed is not None:
            raise self._failed
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._started.set()
            self._loop.close()

    async def _serve(self) -> None:
        try:
            server = await asyncio.start_server(
                self._server.serve, HOST, self._wanted, limit=1 << 20, backlog=2048
            )
        except OSError as error:
            self._failed = error
            return
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        lines = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in lines:
            task.cancel()
        await asyncio.gather(*lines, return_exceptions=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a fake as a program, until it is told to stop."""
    parser = argparse.ArgumentParser(prog="python -m rekindle.testing")
    model = parser.add_subparsers(required=True).add_parser("model", help="a scripted model")
    model.add_argument("--script", type=Path, help="JSON file; without it the model repeats")
    model.add_argument("--port", type=int, default=0, help="0: a free one, which is printed")
    model.add_argument("--log", type=Path, help="JSON lines: each request and what became of it")
    given = parser.parse_args(arguments)
    try:
        text = given.script.read_bytes() if given.script else b"{}"
        script = msgspec.json.decode(text, type=Script)
    except (OSError, msgspec.MsgspecError) as error:
        parser.error(f"--script {given.script}: {error}")
    stop = threading.Event()

    def told_to(_: int, __: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told_to)
    with ScriptedModel(script, port=given.port, log=given.log) as running:
        sys.stdout.write(f"{running.url}\n")
        sys.stdout.flush()
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
