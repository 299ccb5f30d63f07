"""The script of a scripted model, and its reply to a request.

The model keeps no conversation. Its reply depends on the request alone: the last user message
selects the turn (the one whose words occur last in it), and the number of replies since then
selects the step. A client that was killed and repeats the request with the same history gets the
same reply, even from a restarted server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from typing import Any, Literal, TypeAlias

import msgspec

from rekindle.agent.model.providers import Provider
from rekindle.types import JSON, Message

# Whose words say that a request is too long; some name no numbers.
ContextError: TypeAlias = Literal["openai", "anthropic", "without numbers"]

END_OF_SCRIPT = "(The script ends here.)"


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call; arguments given as text are sent unchanged, valid or not."""

    name: str
    arguments: str | dict[str, Any] = {}
    id: str = ""


class ScriptedFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A failure instead of the reply.

    `status` is an HTTP error with `retry_after`, `code` and `message`. `cut` drops the connection
    and `stop` ends the stream properly after that many chunks; `error` is sent inside the stream;
    `garbage` sends invalid JSON. `always` repeats the fault forever.
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


class ScriptedStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One reply. `{user}` and `{result}` in the text stand for the last user message and tool result.

    `wait` is the delay in seconds before the first byte, `pause` the delay between chunks of
    `chunk` characters. An `endless` step answers every later request of its turn too.
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
    faults: tuple[ScriptedFault, ...] = ()


class ScriptedTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The replies to a user message that contains these words."""

    user: str
    steps: tuple[ScriptedStep, ...]


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The script of the model; by default it echoes the user."""

    turns: tuple[ScriptedTurn, ...] = ()
    otherwise: tuple[ScriptedStep, ...] = (ScriptedStep("You said: {user}"),)
    provider: Provider = "openai"  # whose rules requests must follow
    strict: bool = True  # reject violations with HTTP 400
    context: int = 0  # reject requests of more tokens; 0: no limit
    context_error: ContextError = "openai"
    bytes_per_token: float = 4.0  # how the tokens of messages and tools are counted


def build_context_error(script: Script, tokens: int) -> dict[str, Any]:
    """Build the body of the error for a request of too many tokens, as the providers write it."""
    if script.context_error == "anthropic":
        message = f"prompt is too long: {tokens} tokens > {script.context} maximum"
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    message = "Your input exceeds the context window of this model. Please adjust your input."
    if script.context_error == "openai":
        message = (
            f"This model's maximum context length is {script.context} tokens. However, your messages"
            f" resulted in {tokens} tokens. Please reduce the length of the messages."
        )
    kinds = {"type": "invalid_request_error", "code": "context_length_exceeded"}
    return {"error": {"message": message, "param": "messages", **kinds}}


@dataclass(slots=True)
class ReceivedRequest:
    """A received request and its outcome: answered, fault, refused or aborted."""

    messages: list[Message]
    body: dict[str, Any]
    key: str
    violations: list[str]
    outcome: str = "aborted"

    def count_tokens(self, bytes_per_token: float) -> int:
        """Count the tokens of the messages and tools."""
        sent = [self.body.get("messages"), self.body.get("tools")]
        return ceil(len(msgspec.json.encode(sent)) / bytes_per_token)

    @property
    def digest(self) -> str:
        return sha256(msgspec.json.encode(self.body.get("messages"), order="sorted")).hexdigest()


@dataclass(slots=True)
class ScriptedReply:
    """The step that answers a request, with its text filled in and ids for its calls."""

    step: ScriptedStep
    text: str
    calls: list[dict[str, Any]]
    usage: dict[str, Any]
    model: str
    id: str

    @property
    def finish(self) -> str:
        return self.step.finish or ("tool_calls" if self.calls else "stop")

    def to_completion(self) -> dict[str, Any]:
        """Return the reply as one completion object."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.calls:
            message["tool_calls"] = self.calls
        if self.step.reasoning:
            message["reasoning_content"] = self.step.reasoning
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return self._build_envelope("chat.completion", [choice], usage=self.usage)

    def to_chunks(self, usage: bool) -> list[dict[str, Any]]:
        """Return the reply as a list of streaming chunks."""
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": piece} for piece in self._split_text(self.step.reasoning)]
        deltas += [{"content": piece} for piece in self._split_text(self.text)]
        for index, call in enumerate(self.calls):
            function = {**call["function"], "arguments": ""}
            deltas.append({"tool_calls": [{**call, "index": index, "function": function}]})
            for piece in self._split_text(call["function"]["arguments"]):
                more = {"index": index, "function": {"arguments": piece}}
                deltas.append({"tool_calls": [more]})
        chunks = [self._build_chunk(delta, None) for delta in deltas]
        chunks.append(self._build_chunk({}, self.finish))
        if usage:
            chunks.append(self._build_envelope("chat.completion.chunk", [], usage=self.usage))
        return chunks

    def _split_text(self, text: str) -> list[str]:
        size = max(1, self.step.chunk)
        return [text[start : start + size] for start in range(0, len(text), size)]

    def _build_chunk(self, delta: Mapping[str, JSON], finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self._build_envelope("chat.completion.chunk", [choice])

    def _build_envelope(
        self, kind: str, choices: list[dict[str, Any]], **more: JSON
    ) -> dict[str, Any]:
        envelope = {"id": self.id, "object": kind, "created": 0, "model": self.model}
        return {**envelope, "choices": choices, **more}


def build_reply(script: Script, request: ReceivedRequest) -> ScriptedReply:
    """Build the script's reply to this request."""
    step, user_text, results = _select_step(script, request.messages)
    text = step.text.replace("{user}", user_text).replace("{result}", results)
    calls: list[dict[str, Any]] = []
    for number, call in enumerate(step.calls):
        arguments = call.arguments
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        id = call.id or f"call_{sha256(f'{request.digest}{number}'.encode()).hexdigest()[:20]}"
        function = {"name": call.name, "arguments": arguments}
        calls.append({"id": id, "type": "function", "function": function})
    prompt_tokens = sum(len(message.text) for message in request.messages) // 4
    if script.context:
        prompt_tokens = request.count_tokens(script.bytes_per_token)
    usage = step.usage or {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": len(text) // 4,
        "total_tokens": prompt_tokens + len(text) // 4,
    }
    name = f"chatcmpl-{request.digest[:20]}"
    return ScriptedReply(step, text, calls, usage, str(request.body.get("model")), name)


def _select_step(script: Script, messages: Sequence[Message]) -> tuple[ScriptedStep, str, str]:
    last = max((n for n, one in enumerate(messages) if one.role == "user"), default=-1)
    user_text = messages[last].text if last >= 0 else ""
    since = messages[last + 1 :]
    results = [one.text for one in since if one.role == "tool"]
    answers = sum(one.role == "assistant" for one in since)
    matches = [
        (user_text.rfind(turn.user) + len(turn.user), turn)
        for turn in script.turns
        if turn.user in user_text
    ]
    steps = max(matches, key=lambda one: one[0])[1].steps if matches else script.otherwise
    if answers < len(steps):
        step = steps[answers]
    else:
        step = steps[-1] if steps and steps[-1].endless else ScriptedStep(END_OF_SCRIPT)
    return step, user_text, results[-1] if results else ""
