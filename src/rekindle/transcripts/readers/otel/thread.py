"""One model history, assembled from the spans that repeat it.

The last messages are held back, because the next span may add to them: the calls of an answer, or the
text of a result as the model received it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

from rekindle.json_fields import as_object, as_objects, drop_none, get_text
from rekindle.transcripts.readers.session_builder import (
    SessionBuilder,
    join_thoughts,
    make_hash_id,
    to_arguments,
)
from rekindle.types import JSON, Message, Session, ToolCall, replace_fields

from .span_messages import parse_tokens, to_text
from .spans import AGENT_KINDS, OtelSpan

_MODEL_CALLS = {"chat", "text_completion", "generate_content", "LLM", "completion"}
_TOOL_CALLS = {"execute_tool", "TOOL", "tool"}
_STEP_NAME = re.compile(r"Step \d+")
_CALL_ID = re.compile(r"Call id: (\S{1,200})\n")
_CODE = re.compile(r"```(?:py|python)?\n(.*?)\n?```", re.DOTALL)
_INTERPRETER = "python_interpreter"
_MAX_LITERAL_LENGTH = 1 << 20
_RESULT_KEYS = ("gen_ai.tool.call.result", "output.value", "traceloop.entity.output")
_ARGUMENT_KEYS = ("gen_ai.tool.call.arguments", "tool.parameters", "input.value",
              "traceloop.entity.input")  # fmt: skip


class OtelThread(SessionBuilder):
    """One history being assembled, and the messages held back because later spans may add to them."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        # Digests and ids only, never content: needed to recognize repeated messages.
        self.digest_counts: Counter[str] = Counter()
        self.answer_count = 0
        self.held_answer: Message | None = None
        self.pending_calls: dict[str, ToolCall] = {}
        self.held_results: dict[str, Message] = {}
        self.orphan_calls: list[tuple[OtelSpan, ToolCall, Message]] = []
        self.held_step: OtelSpan | None = None
        self.position = -1  # of the last message, where the spans number them

    @property
    def has_held_messages(self) -> bool:
        """Whether messages are held back."""
        return self.held_answer is not None or bool(self.held_results or self.orphan_calls)

    def update_session(self, span: OtelSpan) -> None:
        """Update the session from a span's attributes."""
        started, attributes = self.session.started, span.attributes
        model = get_text(
            attributes, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name"
        )
        if classify_span(span) == "model":
            self.add_usage(parse_tokens(attributes), time=span.start, model=model)
        self.fill_fields(
            model=model,
            user=get_text(attributes, "user.id", "enduser.id"),
        )
        self.set_fields(started=min(started or span.start or 0.0, span.start or started))

    def has_pending_call_outside(self, history: list[Message]) -> bool:
        """Return whether a call is pending whose result is not in this history."""
        result_ids = {message.tool_call_id for message in history if message.role == "tool"}
        return any(
            id not in result_ids and id not in self.held_results for id in self.pending_calls
        )

    def read_model_call(
        self, span: OtelSpan, history: list[Message], outputs: list[Message]
    ) -> Iterator[Message]:
        """Read a model call: yield what is new in its history and hold its answer back."""
        counts: Counter[str] = Counter()
        answers = 0
        for index, message in enumerate(history):
            fallback_id = f"{span.id}:in:{index}"
            if message.role == "assistant":
                answers += 1
                yield from self._read_past_answer(message, fallback_id, answers)
            elif message.role == "tool-call":
                if answers >= self.answer_count:
                    self._attach_calls(_parse_smolagents_calls(message.text))
            elif message.role == "tool":
                yield from self._read_past_result(message, fallback_id, counts)
            elif message.role != "system":
                digest = hash_message(message)
                counts[digest] += 1
                if counts[digest] > self.digest_counts[digest]:
                    self.digest_counts[digest] += 1
                    yield from self.flush()
                    time = span.start
                    yield replace_fields(message, platform_message_id=fallback_id, timestamp=time)
        yield from self.flush()
        if outputs:
            self._hold_answer(span, outputs)

    def _read_past_answer(
        self, message: Message, fallback_id: str, number: int
    ) -> Iterator[Message]:
        """Read an answer in the history: one already read, or one from before the trace."""
        if number <= self.answer_count:
            if (
                self.held_answer is not None
                and number == self.answer_count
                and not self.held_answer.tool_calls
            ):
                self._attach_calls(message.tool_calls)
            return
        yield from self.flush()
        self.answer_count += 1
        calls = _assign_call_ids(message.tool_calls, fallback_id)
        self.pending_calls = {call.id: call for call in calls}
        yield replace_fields(message, tool_calls=calls, platform_message_id=fallback_id)

    def _read_past_result(
        self, message: Message, fallback_id: str, counts: Counter[str]
    ) -> Iterator[Message]:
        """Read a result in the history, with metadata from the tool's span."""
        digest = hash_message(message)
        counts[digest] += 1
        id_match = _CALL_ID.match(message.text)
        id = message.tool_call_id or (id_match[1] if id_match else None)
        is_known = counts[digest] <= self.digest_counts[digest]
        if (self._is_answered(id) and id not in self.pending_calls) or (id is None and is_known):
            return
        self.digest_counts[digest] += not is_known
        if self.held_step is not None and not self.pending_calls:
            self._attach_step_call()
        if id is None or id not in self.pending_calls:
            id = id or next((call for call in self.pending_calls), None)
        held_result = self.held_results.pop(id, None) if id else None
        call = self.pending_calls.pop(id, None) if id else None
        yield from self._release_answer()
        yield self._finish_result(
            replace_fields(
                message,
                tool_call_id=id,
                name=(call.name if call else None) or message.name,
                meta=held_result.meta if held_result else None,
                timestamp=held_result.timestamp if held_result else None,
            ),
            fallback_id,
        )

    def _hold_answer(self, span: OtelSpan, outputs: list[Message]) -> None:
        """Hold the answer back, because the next span may have its calls."""
        calls = _assign_call_ids(
            [call for output in outputs for call in output.tool_calls], span.id
        )
        texts = [output for output in outputs if output.content]
        model = get_text(span.attributes, "gen_ai.response.model", "llm.model_name")
        self.answer_count += 1
        self.pending_calls = {call.id: call for call in calls}
        self.held_answer = Message(
            role="assistant",
            content=_join_content(texts),
            tool_calls=calls,
            reasoning=join_thoughts(output.reasoning for output in outputs),
            finish_reason=next(
                (output.finish_reason for output in outputs if output.finish_reason), None
            ),
            platform_message_id=self._make_message_id(span.id, span.id),
            meta=drop_none(
                {
                    "model": model if self.session.model not in (None, model) else None,
                    "api_error": True if span.failed else None,
                }
            ),
            timestamp=span.end or span.start,
        )

    def _attach_calls(self, calls: tuple[ToolCall, ...] | list[ToolCall]) -> None:
        """Attach calls of the answer that only the next history contains."""
        if self.held_answer is None or self.held_answer.tool_calls or not calls:
            return
        calls = _assign_call_ids(calls, self.held_answer.platform_message_id or "")
        self.held_answer = replace_fields(self.held_answer, tool_calls=calls)
        self.pending_calls = {call.id: call for call in calls}
        if self.held_step is not None:
            step, self.held_step = self.held_step, None
            self.held_results[calls[0].id] = _parse_result(step, calls[0], "output.value")

    def read_tool_span(self, span: OtelSpan) -> None:
        """Read a tool's span: the outcome of a call."""
        attributes = span.attributes
        name = (
            get_text(attributes, "gen_ai.tool.name", "tool.name", "traceloop.entity.name")
            or span.name
        )
        id = get_text(attributes, "gen_ai.tool.call.id", "tool_call.id")
        free = [call for call in self.pending_calls.values() if call.id not in self.held_results]
        call = self.pending_calls.get(id) if id else None
        if call is None and not id:
            # Some spans have the name of the tool's class: match these by order.
            call = next((call for call in free if call.name == name), next(iter(free), None))
        if call is not None:
            self.held_results[call.id] = _parse_result(span, call, *_RESULT_KEYS)
            return
        given = next((attributes[key] for key in _ARGUMENT_KEYS if key in attributes), None)
        call = ToolCall(id or span.id, name, to_arguments(given))
        if not self._is_answered(call.id):
            self.orphan_calls.append((span, call, _parse_result(span, call, *_RESULT_KEYS)))

    def read_step_span(self, span: OtelSpan) -> None:
        """Read a step of smolagents, which ran the code in the answer."""
        # Calls made by that code are not calls of the model.
        self.orphan_calls = [orphan for orphan in self.orphan_calls if orphan[0].parent != span.id]
        if (
            self.held_answer is not None
            and not self.held_answer.tool_calls
            and "output.value" in span.attributes
        ):
            # The step started with the model call; its tool call started when that ended.
            self.held_step = span._replace(start=self.held_answer.timestamp)

    def _attach_step_call(self) -> None:
        """Attach the code in the answer as the last step's call, if nothing else named it."""
        if self.held_step is not None and self.held_answer is not None:
            code = _CODE.search(self.held_answer.text)
            given = code[1] if code else self.held_answer.text
            self._attach_calls([ToolCall(self.held_step.id, _INTERPRETER, given)])

    def flush(self) -> Iterator[Message]:
        """Yield everything that is held back."""
        if self.held_step is not None:
            self._attach_step_call()
        if self.orphan_calls:
            yield from self._attach_orphans()
        yield from self._release_answer()
        results, self.held_results = self.held_results, {}
        for id, result in results.items():
            self.pending_calls.pop(id, None)
            yield self._finish_result(result, f"result:{id}")

    def _attach_orphans(self) -> Iterator[Message]:
        """Attach calls without an answer to the held answer, or to an empty one."""
        orphans, self.orphan_calls = self.orphan_calls, []
        calls = tuple(call for _, call, _ in orphans)
        if self.held_answer is not None and not self.held_answer.tool_calls:
            self.held_answer = replace_fields(self.held_answer, tool_calls=calls)
        else:
            yield from self._release_answer()
            id = self._make_message_id(f"{orphans[0][0].id}:call", orphans[0][0].id)
            self.held_answer = Message("assistant", None, calls, platform_message_id=id)
        self.held_results.update((call.id, result) for _, call, result in orphans)

    def _release_answer(self) -> Iterator[Message]:
        if self.held_answer is not None:
            held, self.held_answer = self.held_answer, None
            yield held

    def _finish_result(self, result: Message, fallback_id: str) -> Message:
        if result.tool_call_id:
            self.seen.add(f"answered {result.tool_call_id}")
        name = self._make_message_id(f"result:{result.tool_call_id or fallback_id}", fallback_id)
        return replace_fields(result, platform_message_id=name)

    def _is_answered(self, call_id: str | None) -> bool:
        return f"answered {call_id}" in self.seen

    def _make_message_id(self, message_id: str, fallback_id: str) -> str:
        """Return an id that no other message of the thread has."""
        while not self.is_new(message_id):
            message_id = f"{message_id}:{fallback_id}"
        return message_id


def classify_span(span: OtelSpan) -> str:
    """Classify a span as model, tool, agent, step, or an empty string for anything else."""
    attributes = span.attributes
    kind = get_text(attributes, "gen_ai.operation.name", "openinference.span.kind", "llm.request.type",
                "traceloop.span.kind") or ""  # fmt: skip
    if kind in _MODEL_CALLS:
        return "model"
    if kind in _TOOL_CALLS:
        return "tool"
    if kind in AGENT_KINDS:
        return "agent"
    if _STEP_NAME.fullmatch(span.name):
        return "step"
    # Old instrumentations name no operation; only model calls have a history.
    has_history = any(event.name.startswith("gen_ai.") for event in span.events)
    return (
        "model"
        if has_history
        or "gen_ai.input.messages" in attributes
        or "gen_ai.prompt.0.role" in attributes
        else ""
    )


def _parse_result(span: OtelSpan, call: ToolCall, *names: str) -> Message:
    """Build a result from the span of its tool."""
    attributes = span.attributes
    output = next((attributes[name] for name in names if attributes.get(name) is not None), None)
    return Message(
        role="tool",
        content=to_text(output),
        tool_call_id=call.id,
        name=call.name or None,
        meta=drop_none(
            {
                "is_error": span.failed,
                "error": span.problem if span.failed else None,
                "duration": span.duration,
            }
        ),
        timestamp=span.end or span.start,
    )


def _assign_call_ids(
    calls: tuple[ToolCall, ...] | list[ToolCall], fallback_id: str
) -> tuple[ToolCall, ...]:
    return tuple(
        call if call.id else call._replace(id=f"{fallback_id}:{index}")
        for index, call in enumerate(calls)
    )


def _join_content(messages: list[Message]) -> Any:
    """Join the content of an answer that a convention splits into several messages."""
    if len(messages) <= 1:
        return messages[0].content if messages else None
    return "\n".join(message.text for message in messages)


def hash_message(message: Message) -> str:
    """Return a digest that identifies a message by its content."""
    return make_hash_id(message.role, f"{message.tool_call_id or ''}\n{message.content!r}")


def _parse_smolagents_calls(reminder: str) -> list[ToolCall]:
    """Parse the calls in smolagents' reminder to the model, a list in Python syntax."""
    begin = reminder.find("[")
    if begin < 0 or len(reminder) > _MAX_LITERAL_LENGTH:
        return []
    try:
        literal = cast(object, ast.literal_eval(reminder[begin:].strip()))
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return []
    calls: list[ToolCall] = []
    for call in as_objects(literal):
        function = as_object(call.get("function")) or call
        given: JSON = function.get("arguments")
        calls.append(
            ToolCall(
                get_text(call, "id") or "", get_text(function, "name") or "", to_arguments(given)
            )
        )
    return calls
