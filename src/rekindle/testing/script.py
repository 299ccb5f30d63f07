"""What a scripted model answers: a script, and the reply it has for a request.

It keeps no conversation. What it answers depends on the request alone: the last message of the user
chooses the turn (the one whose words stand last in it), and the number of answers since then the
step. A client that was killed asks again with the same history and gets the same answer, from a
restarted server too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from rekindle.agent.model.providers import Provider
from rekindle.types import JSON, Message

THE_END = "(The script ends here.)"


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
