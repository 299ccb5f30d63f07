"""A scripted model on 127.0.0.1 that speaks the protocols of all agents and keeps every request.

The prompt is the script: each of its lines `run: COMMAND` is a call of the agent's shell tool, and
each line `call: TOOL {"argument": …}` a call of that tool, one per request and in this order. After
the last one, and for requests that do not offer the tool, the model says "All done."
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

LAST_WORDS = "All done."
_SHELL_TOOLS = (
    "Bash", "exec_command", "shell_command", "shell", "bash", "run_shell_command",
)  # fmt: skip
_STEP = re.compile(r"^[ \t]*(run|call): *(.+)$", re.MULTILINE)
_USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}


class ModelRequest(NamedTuple):
    """A request that an agent sent to the model."""

    path: str
    body: Any

    @property
    def text(self) -> str:
        """All texts of the request's messages and instructions, in their order; no tool schemas."""
        body = {key: value for key, value in self.body.items() if key != "tools"}
        return "\n".join(_iter_strings(body))


class PlannedCall(NamedTuple):
    """A tool call that the script asks for."""

    tool: str
    arguments: dict[str, Any]


class ModelServer:
    """The server, in a thread of its own; `requests` are those that it received.

    `instead` maps a command of the script to the one that the model runs if it was told about it.
    """

    def __init__(self, instead: Mapping[str, str] | None = None) -> None:
        self.instead = instead or {}
        self.requests: list[ModelRequest] = []
        self._lock = threading.Lock()
        server = self

        class Handler(_Handler):
            model = server

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def keep(self, request: ModelRequest) -> int:
        """Keep a request and return its number."""
        with self._lock:
            self.requests.append(request)
            return len(self.requests)

    def heed_advice(self, request: ModelRequest, call: PlannedCall | None) -> PlannedCall | None:
        """Return the call with the command that the request names as one that works instead."""
        for key, value in call.arguments.items() if call else ():
            better = self.instead.get(value) if isinstance(value, str) else None
            if call and better and f"`{better}`" in request.text:
                return PlannedCall(call.tool, {**call.arguments, key: better})
        return call

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _iter_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _iter_strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _iter_strings(one)


# ── what the script asks for


def plan_call(body: dict[str, Any]) -> PlannedCall | None:
    """Return the call that is due; None if the script is finished or the tool is not offered."""
    steps: list[tuple[str, str]] = []
    done = 0
    for text in _iter_turns(body):
        if text is None:
            done += 1
        elif found := _STEP.findall(text):
            steps, done = found, 0
    if done >= len(steps):
        return None
    kind, rest = steps[done]
    tools = _list_tools(body)
    if kind == "run":
        return _plan_command(rest, tools)
    name, _, arguments = rest.strip().partition(" ")
    return PlannedCall(name, json.loads(arguments or "{}")) if name in tools else None


def _plan_command(command: str, tools: dict[str, Any]) -> PlannedCall | None:
    name = next((one for one in _SHELL_TOOLS if one in tools), None)
    if name is None:
        return None
    properties = tools[name].get("properties", {})
    key = "cmd" if "cmd" in properties else "command"
    is_list = properties.get(key, {}).get("type") == "array"
    arguments: dict[str, Any] = {key: ["bash", "-lc", command] if is_list else command}
    for required in tools[name].get("required", []):
        arguments.setdefault(required, "a step of the script")
    return PlannedCall(name, arguments)


def _iter_turns(body: dict[str, Any]) -> Iterator[str | None]:
    """Yield the user's texts, and None for each result of a tool, in any of the protocols."""
    for entry in body.get("contents", []):
        for part in entry.get("parts", []):
            if "functionResponse" in part:
                yield None
            elif entry.get("role") == "user" and part.get("text"):
                yield part["text"]
    for entry in body.get("messages", body.get("input", [])):
        if entry.get("role") == "tool" or str(entry.get("type")).endswith("_call_output"):
            yield None
        elif entry.get("role") == "user":
            content = entry.get("content")
            for part in content if isinstance(content, list) else [{"text": content}]:
                yield None if part.get("type") == "tool_result" else str(part.get("text") or "")


def _list_tools(body: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schemas of the offered tools by name."""
    schemas: dict[str, Any] = {}
    for tool in body.get("tools") or []:
        prefix = tool["name"] if tool.get("type") == "namespace" else ""
        for one in tool.get("functionDeclarations") or tool.get("tools") or [tool]:
            function = one.get("function") or one
            schema = [function.get(key) for key in _SCHEMA_KEYS]
            name = prefix + str(function.get("name") or function.get("type"))
            schemas[name] = next(filter(None, schema), {})
    return schemas


_SCHEMA_KEYS = ("input_schema", "parameters", "parametersJsonSchema")


# ── the protocols


def answer_messages(body: dict[str, Any], call: PlannedCall | None, number: int) -> Any:
    """Answer a request of the Anthropic Messages protocol."""
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _USAGE,
    }
    stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    if call:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": call.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        whole = {**block, "input": call.arguments}
    else:
        block, whole = ({"type": "text", "text": text} for text in ("", LAST_WORDS))
        delta = {"type": "text_delta", "text": LAST_WORDS}
    if not body.get("stream"):
        return {**message, **stop, "content": [whole]}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": _USAGE},
        {"type": "message_stop"},
    ]


def answer_responses(body: dict[str, Any], call: PlannedCall | None, number: int) -> Any:
    """Answer a request of the OpenAI Responses protocol."""
    item: dict[str, Any]
    if call:
        item = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": call.tool,
            "arguments": json.dumps(call.arguments),
        }
        for tool in body.get("tools") or []:  # the tools of an MCP server are one group
            if tool.get("type") == "namespace" and call.tool.startswith(tool["name"]):
                item |= {"namespace": tool["name"], "name": call.tool.removeprefix(tool["name"])}
    else:
        part = {"type": "output_text", "text": LAST_WORDS, "annotations": []}
        item = {"type": "message", "id": f"m_{number}", "role": "assistant", "content": [part]}
    whole = {
        "id": f"resp_{number}",
        "object": "response",
        "model": body.get("model"),
        "status": "completed",
        "output": [item],
        "usage": _USAGE,
    }
    if not body.get("stream"):
        return whole
    return [
        {
            "type": "response.created",
            "response": {**whole, "status": "in_progress", "output": []},
        },
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]


def answer_chat(body: dict[str, Any], call: PlannedCall | None, number: int) -> Any:
    """Answer a request of the OpenAI Chat Completions protocol."""
    message: dict[str, Any] = {"role": "assistant", "content": None if call else LAST_WORDS}
    if call:
        function = {"name": call.tool, "arguments": json.dumps(call.arguments)}
        message["tool_calls"] = [
            {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        ]
    reason = "tool_calls" if call else "stop"
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    head = {"id": f"chat_{number}", "created": 0, "model": body.get("model")}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    head["object"] = "chat.completion.chunk"
    first = {"index": 0, "delta": message, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": reason}
    return [{**head, "choices": [first]}, {**head, "choices": [last], "usage": usage}]


def answer_gemini(body: dict[str, Any], call: PlannedCall | None, number: int) -> Any:
    """Answer a request of the Gemini protocol."""
    part: dict[str, Any] = {"text": LAST_WORDS}
    if call:
        part = {"functionCall": {"name": call.tool, "args": call.arguments}}
    content = {"role": "model", "parts": [part]}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": 10,
            "candidatesTokenCount": 5,
            "totalTokenCount": 15,
        },
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ModelServer

    def log_message(self, format: str, *args: Any) -> None:
        """Do not write to the terminal."""

    def do_HEAD(self) -> None:
        self._send(b"")

    def do_GET(self) -> None:
        self._send_json({"data": [], "models": [], "object": "list"})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        try:
            body = json.loads(raw)
        except ValueError:
            return self._send_json({})
        if path.endswith("count_tokens"):
            return self._send_json({"input_tokens": 10})
        if path.endswith(":countTokens"):
            return self._send_json({"totalTokens": 10})
        answer = _find_protocol(path)
        if answer is None:
            return self._send_json({}, 404)
        request = ModelRequest(path, body)
        number = self.model.keep(request)
        made = answer(body, self.model.heed_advice(request, plan_call(body)), number)
        if answer is answer_gemini and ":stream" in path:
            made = [made]
        if not isinstance(made, list):
            return self._send_json(made)
        lines: list[str] = []
        for event in made:
            if "type" in event:
                lines.append(f"event: {event['type']}\n")
            lines.append(f"data: {json.dumps(event)}\n\n")
        if answer is answer_chat:
            lines.append("data: [DONE]\n\n")
        return self._send("".join(lines).encode(), "text/event-stream")

    def _send_json(self, value: Any, status: int = 200) -> None:
        self._send(json.dumps(value).encode(), "application/json", status)

    def _send(self, data: bytes, kind: str = "application/json", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _find_protocol(path: str) -> Any:
    if path.endswith("/messages"):
        return answer_messages
    if path.endswith("/responses"):
        return answer_responses
    if path.endswith("/chat/completions"):
        return answer_chat
    return answer_gemini if "enerateContent" in path else None
