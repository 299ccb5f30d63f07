"""One history of a model, put together from the spans that tell it again and again.

What was said last is held back, because the next span may know more about it: the calls of an answer,
the text of a result as the model was given it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

from rekindle.json_fields import present, record, records, text
from rekindle.transcripts.readers.ids import hashed_id
from rekindle.types import JSON, Message, Session, Tokens, ToolCall, replace

from .span_messages import arguments, tokens, written
from .spans import AGENTS, Span

_MODEL_CALLS = {"chat", "text_completion", "generate_content", "LLM", "completion"}
_TOOL_CALLS = {"execute_tool", "TOOL", "tool"}
_STEP = re.compile(r"Step \d+")
_CALL_ID = re.compile(r"Call id: (\S{1,200})\n")
_CODE = re.compile(r"```(?:py|python)?\n(.*?)\n?```", re.DOTALL)
_INTERPRETER = "python_interpreter"
_LONGEST_LITERAL = 1 << 20
_RESULT = ("gen_ai.tool.call.result", "output.value", "traceloop.entity.output")
_ARGUMENTS = ("gen_ai.tool.call.arguments", "tool.parameters", "input.value",
              "traceloop.entity.input")  # fmt: skip


class Thread:
    """One history as far as it is told, and what is held back because more of it may come."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.opened = False
        # Digests and ids alone, never content: the price of knowing what is told again.
        self.known: Counter[str] = Counter()
        self.answers = 0
        self.names: set[str] = set()
        self.answered: set[str] = set()
        self.held: Message | None = None
        self.calls: dict[str, ToolCall] = {}
        self.results: dict[str, Message] = {}
        self.orphans: list[tuple[Span, ToolCall, Message]] = []
        self.step: Span | None = None

    @property
    def is_waiting(self) -> bool:
        return self.held is not None or bool(self.results or self.orphans)

    def learn(self, span: Span) -> None:
        known, about = self.session, span.attributes
        spent = tokens(about) if kind_of(span) == "model" else Tokens()
        model = text(about, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
        self.session = replace(
            known,
            model=known.model or model,
            user=known.user or text(about, "user.id", "enduser.id"),
            started=min(known.started or span.start or 0.0, span.start or known.started),
            tokens=known.tokens.plus(spent),
        )

    def waits_beyond(self, given: list[Message]) -> bool:
        """Whether a call waits for a result that is not in this history."""
        told = {said.tool_call_id for said in given if said.role == "tool"}
        return any(id not in told and id not in self.results for id in self.calls)

    def answer(self, span: Span, given: list[Message], told: list[Message]) -> Iterator[Message]:
        """A call of the model: what is new in its history, and then its answer, held back."""
        counts: Counter[str] = Counter()
        answers = 0
        for index, said in enumerate(given):
            place = f"{span.id}:in:{index}"
            if said.role == "assistant":
                answers += 1
                yield from self._remember(said, place, answers)
            elif said.role == "tool-call":
                if answers >= self.answers:
                    self._attach(_smolagents_calls(said.text))
            elif said.role == "tool":
                yield from self._hear(said, place, counts)
            elif said.role != "system":
                mark = digest_of(said)
                counts[mark] += 1
                if counts[mark] > self.known[mark]:
                    self.known[mark] += 1
                    yield from self.settle()
                    time = span.start
                    yield replace(said, platform_message_id=place, timestamp=time)
        yield from self.settle()
        if told:
            self._hold(span, told)

    def _remember(self, said: Message, place: str, number: int) -> Iterator[Message]:
        """An answer in the history: one that was told before, or one from before the trace."""
        if number <= self.answers:
            if self.held is not None and number == self.answers and not self.held.tool_calls:
                self._attach(said.tool_calls)
            return
        yield from self.settle()
        self.answers += 1
        calls = _named(said.tool_calls, place)
        self.calls = {call.id: call for call in calls}
        yield replace(said, tool_calls=calls, platform_message_id=place)

    def _hear(self, said: Message, place: str, counts: Counter[str]) -> Iterator[Message]:
        """A result in the history, with what the tool's span told of it."""
        mark = digest_of(said)
        counts[mark] += 1
        named = _CALL_ID.match(said.text)
        id = said.tool_call_id or (named[1] if named else None)
        is_known = counts[mark] <= self.known[mark]
        if (id in self.answered and id not in self.calls) or (id is None and is_known):
            return
        self.known[mark] += not is_known
        if self.step is not None and not self.calls:
            self._call_step()
        if id is None or id not in self.calls:
            id = id or next((call for call in self.calls), None)
        told = self.results.pop(id, None) if id else None
        call = self.calls.pop(id, None) if id else None
        yield from self._speak()
        yield self._result(
            replace(
                said,
                tool_call_id=id,
                name=(call.name if call else None) or said.name,
                meta=told.meta if told else None,
                timestamp=told.timestamp if told else None,
            ),
            place,
        )

    def _hold(self, span: Span, told: list[Message]) -> None:
        """Hold the answer back: who comes next may know its calls."""
        calls = _named([call for said in told for call in said.tool_calls], span.id)
        texts = [said for said in told if said.content]
        model = text(span.attributes, "gen_ai.response.model", "llm.model_name")
        thoughts = "\n\n".join(said.reasoning for said in told if said.reasoning)
        self.answers += 1
        self.calls = {call.id: call for call in calls}
        self.held = Message(
            role="assistant",
            content=_joined(texts),
            tool_calls=calls,
            reasoning=thoughts or None,
            finish_reason=next((said.finish_reason for said in told if said.finish_reason), None),
            platform_message_id=self._name(span.id, span.id),
            meta=present(
                {
                    "model": model if self.session.model not in (None, model) else None,
                    "api_error": True if span.failed else None,
                }
            ),
            timestamp=span.end or span.start,
        )

    def _attach(self, calls: tuple[ToolCall, ...] | list[ToolCall]) -> None:
        """Calls of the answer that only the next history tells."""
        if self.held is None or self.held.tool_calls or not calls:
            return
        calls = _named(calls, self.held.platform_message_id or "")
        self.held = replace(self.held, tool_calls=calls)
        self.calls = {call.id: call for call in calls}
        if self.step is not None:
            step, self.step = self.step, None
            self.results[calls[0].id] = _outcome(step, calls[0], "output.value")

    def finish_call(self, span: Span) -> None:
        """A tool's span: what became of a call."""
        about = span.attributes
        name = text(about, "gen_ai.tool.name", "tool.name", "traceloop.entity.name") or span.name
        id = text(about, "gen_ai.tool.call.id", "tool_call.id")
        free = [call for call in self.calls.values() if call.id not in self.results]
        call = self.calls.get(id) if id else None
        if call is None and not id:
            # Some spans have the name of the tool's class: then the order tells.
            call = next((call for call in free if call.name == name), next(iter(free), None))
        if call is not None:
            self.results[call.id] = _outcome(span, call, *_RESULT)
            return
        given = next((about[key] for key in _ARGUMENTS if key in about), None)
        call = ToolCall(id or span.id, name, arguments(given))
        if call.id not in self.answered:
            self.orphans.append((span, call, _outcome(span, call, *_RESULT)))

    def finish_step(self, span: Span) -> None:
        """A step of smolagents, which ran the code in the answer."""
        # What that code called is its own affair, and not a call of the model.
        self.orphans = [orphan for orphan in self.orphans if orphan[0].parent != span.id]
        if self.held is not None and not self.held.tool_calls and "output.value" in span.attributes:
            # The step began with the model's work, the call when that had ended.
            self.step = span._replace(start=self.held.timestamp)

    def _call_step(self) -> None:
        """Nobody told the call of the last step: it is the code in the answer."""
        if self.step is not None and self.held is not None:
            code = _CODE.search(self.held.text)
            given = code[1] if code else self.held.text
            self._attach([ToolCall(self.step.id, _INTERPRETER, given)])

    def settle(self) -> Iterator[Message]:
        """Whatever is held back."""
        if self.step is not None:
            self._call_step()
        if self.orphans:
            yield from self._adopt()
        yield from self._speak()
        results, self.results = self.results, {}
        for id, result in results.items():
            self.calls.pop(id, None)
            yield self._result(result, f"result:{id}")

    def _adopt(self) -> Iterator[Message]:
        """Calls that no answer told: of the answer that is held, or of one that was not recorded."""
        orphans, self.orphans = self.orphans, []
        calls = tuple(call for _, call, _ in orphans)
        if self.held is not None and not self.held.tool_calls:
            self.held = replace(self.held, tool_calls=calls)
        else:
            yield from self._speak()
            id = self._name(f"{orphans[0][0].id}:call", orphans[0][0].id)
            self.held = Message("assistant", None, calls, platform_message_id=id)
        self.results.update((call.id, result) for _, call, result in orphans)

    def _speak(self) -> Iterator[Message]:
        if self.held is not None:
            held, self.held = self.held, None
            yield held

    def _result(self, result: Message, place: str) -> Message:
        if result.tool_call_id:
            self.answered.add(result.tool_call_id)
        name = self._name(f"result:{result.tool_call_id or place}", place)
        return replace(result, platform_message_id=name)

    def _name(self, name: str, place: str) -> str:
        """An id that no other message of the thread has."""
        while name in self.names:
            name = f"{name}:{place}"
        self.names.add(name)
        return name


def kind_of(span: Span) -> str:
    """What a span is to a conversation: model, tool, agent, step, or nothing."""
    about = span.attributes
    kind = text(about, "gen_ai.operation.name", "openinference.span.kind", "llm.request.type",
                "traceloop.span.kind") or ""  # fmt: skip
    if kind in _MODEL_CALLS:
        return "model"
    if kind in _TOOL_CALLS:
        return "tool"
    if kind in AGENTS:
        return "agent"
    if _STEP.fullmatch(span.name):
        return "step"
    # Old instrumentations name no operation; a history is told by nothing but a model call.
    told = any(event.name.startswith("gen_ai.") for event in span.events)
    return (
        "model"
        if told or "gen_ai.input.messages" in about or "gen_ai.prompt.0.role" in about
        else ""
    )


def _outcome(span: Span, call: ToolCall, *names: str) -> Message:
    """A result as the span of its tool tells it."""
    about = span.attributes
    told = next((about[name] for name in names if about.get(name) is not None), None)
    return Message(
        role="tool",
        content=written(told),
        tool_call_id=call.id,
        name=call.name or None,
        meta=present(
            {
                "is_error": span.failed,
                "error": span.problem if span.failed else None,
                "duration": span.duration,
            }
        ),
        timestamp=span.end or span.start,
    )


def _named(calls: tuple[ToolCall, ...] | list[ToolCall], place: str) -> tuple[ToolCall, ...]:
    return tuple(
        call if call.id else call._replace(id=f"{place}:{index}")
        for index, call in enumerate(calls)
    )


def _joined(said: list[Message]) -> Any:
    """The content of an answer that a convention tells in several messages."""
    if len(said) <= 1:
        return said[0].content if said else None
    return "\n".join(one.text for one in said)


def digest_of(said: Message) -> str:
    """What tells one message from another."""
    return hashed_id(said.role, f"{said.tool_call_id or ''}\n{said.content!r}")


def _smolagents_calls(said: str) -> list[ToolCall]:
    """The calls in the text by which smolagents reminds the model of them: a list as Python says it."""
    begin = said.find("[")
    if begin < 0 or len(said) > _LONGEST_LITERAL:
        return []
    try:
        told = cast(object, ast.literal_eval(said[begin:].strip()))
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return []
    calls: list[ToolCall] = []
    for call in records(told):
        function = record(call.get("function")) or call
        given: JSON = function.get("arguments")
        calls.append(
            ToolCall(text(call, "id") or "", text(function, "name") or "", arguments(given))
        )
    return calls
