"""Sessions as GenAI spans: a trace for each turn.

    invoke_agent            the turn: from what the user said to the last answer
    ├── chat                a model call; its input is what came after the previous answer
    └── execute_tool        a call of the answer above, once its result is there

All ids are derived from the session and the position of the message, so a span that is sent twice has
the same ids. A span is complete when its message is stored; the turn's own span is built once the turn
is over. `SpanCursor` says up to where a session has been turned into spans.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from rekindle.judging.judge import judge_call
from rekindle.transcripts.readers.session_builder import subtract_tokens
from rekindle.types import Message, Session, ToolCall, Usage, replace_fields

from .attributes import (
    AttributeValue,
    build_extra,
    build_message,
    build_usage,
    dump_json,
    encode_attributes,
    find_provider,
    flatten_messages,
    format_call_arguments,
    format_content,
)

FORMAT_VERSION = 1  # of the attributes `rekindle.*`
_INTERNAL, _CLIENT = 1, 3  # kinds of spans in OTLP
_STATUS_ERROR = 2


class SpanCursor(NamedTuple):
    """How far a session has been turned into spans.

    `turn` is where the last turn starts, `is_closed` whether its own span has been built, and `usage`
    what has been reported of the session's.
    """

    position: int = -1
    turn: int = 0
    is_closed: bool = False
    usage: Usage = Usage()


NO_SPANS = SpanCursor()


class SpanStep(NamedTuple):
    """A span in the JSON of OTLP, and the cursor after it."""

    span: dict[str, Any]
    cursor: SpanCursor


class _PendingCall(NamedTuple):
    call: ToolCall
    answer: Message


Prepare = Callable[[Message], Message]


def build_spans(
    session: Session,
    messages: Iterable[Message],
    cursor: SpanCursor = NO_SPANS,
    *,
    prepare: Prepare = lambda message: message,
    is_over: bool = True,
    usage: Usage | None = None,
) -> Iterator[SpanStep]:
    """Yield the spans after the cursor; the messages start with those of its turn.

    `prepare` redacts a message before any of it is used. The last turn gets its own span only if it
    `is_over`. `usage` is the session's, unless an earlier state of it is built again.
    """
    total = Usage(session.tokens, session.cost) if usage is None else usage
    builder = _SpanBuilder(session, prepare, cursor)
    held: list[Message] = []  # the last turn with an answer, to which the usage belongs
    turn: list[Message] = []
    for message, starts_turn, is_first_answer in _find_turns(messages):
        if starts_turn:
            held, turn = turn, []
        turn.append(message)
        if is_first_answer and held:
            yield from builder.build_turn(held, is_over=True)
            held = []
    if held:
        yield from builder.build_turn(held, is_over=True, total=total)
    if turn:
        yield from builder.build_turn(turn, is_over=is_over, total=total)


def _find_turns(messages: Iterable[Message]) -> Iterator[tuple[Message, bool, bool]]:
    """Yield each message, whether a turn starts with it, and whether it is the turn's first answer.

    What a user says while calls of the answer are under way belongs to the turn.
    """
    has_answer = False
    open_calls: set[str] = set()
    for message in _number_messages(messages):
        starts_turn = has_answer and message.role == "user" and not open_calls
        is_first_answer = message.role == "assistant" and not has_answer
        has_answer = is_first_answer or (has_answer and not starts_turn)
        if message.role == "assistant":
            open_calls = {call.id for call in message.tool_calls}
        elif message.role == "tool":
            open_calls.discard(message.tool_call_id or "")
        yield message, starts_turn, is_first_answer


def _number_messages(messages: Iterable[Message]) -> Iterator[Message]:
    for index, message in enumerate(messages):
        numbered = message.position is not None
        yield message if numbered else replace_fields(message, position=index)


class _SpanBuilder:
    """Builds the spans of one session, turn by turn."""

    def __init__(self, session: Session, prepare: Prepare, cursor: SpanCursor) -> None:
        self.session = session
        self.prepare = prepare
        self.cursor = cursor
        self.start = 0  # position of the turn's first message
        self.shared = _build_shared_attributes(session)
        self.pending_calls: dict[str, _PendingCall] = {}
        self.inputs: list[Message] = []  # since the last answer
        self.unseen: list[Message] = []  # the last of them, which no span has shown
        self.time = session.started
        self._prepared: dict[int, Message] = {}

    def build_turn(
        self, turn: list[Message], *, is_over: bool, total: Usage | None = None
    ) -> Iterator[SpanStep]:
        """Yield the spans of a turn after the cursor; `total` is the usage by its last model call."""
        self.start = _get_position(turn[0])
        self._prepared.clear()
        is_known = self.cursor.turn == self.start and self.cursor.position >= self.start
        is_closed = self.cursor.is_closed if is_known else False
        first_time = turn[0].timestamp or self.time
        last_answer = max(
            (_get_position(one) for one in turn if one.role == "assistant"), default=-1
        )
        for message in turn:
            is_last = total is not None and _get_position(message) == last_answer
            span = self._read_message(message, total if is_last else None)
            if span is not None:
                self._advance(_get_position(message), is_closed)
                yield SpanStep(span, self.cursor)
        if is_over and not is_closed:
            root = self._build_root(turn, first_time, total)
            self.unseen = []
            self._advance(_get_position(turn[-1]), is_closed=True)
            yield SpanStep(root, self.cursor)

    def _advance(self, position: int, is_closed: bool) -> None:
        self.cursor = self.cursor._replace(
            position=max(position, self.cursor.position), turn=self.start, is_closed=is_closed
        )

    def _read_message(self, message: Message, total: Usage | None) -> dict[str, Any] | None:
        """Take note of a message, and return its span if it has one that was not built before."""
        started, self.time = self.time, message.timestamp or self.time
        is_new = _get_position(message) > self.cursor.position
        span = None
        if message.role == "assistant":
            if is_new:
                span = self._build_chat(message, started, total)
            self.pending_calls |= {
                call.id: _PendingCall(call, message) for call in message.tool_calls
            }
            self.inputs = []
        elif message.role == "tool":
            if is_new:
                span = self._build_tool(message, started)
            self.pending_calls.pop(message.tool_call_id or "", None)
            self.inputs.append(message)
        else:
            self.inputs.append(message)
            if is_new:
                self.unseen.append(message)
            return None
        self.unseen = []
        return span

    # -- spans ------------------------------------------------------------------------------------

    def _build_chat(self, message: Message, started: float, total: Usage | None) -> dict[str, Any]:
        answer = self._prepare(message)
        inputs = [*map(self._prepare, self.inputs)]
        model = _get_model(self.session, answer)
        used = self._take_usage(total)
        fields: list[tuple[str, AttributeValue]] = [
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.provider.name", find_provider(model)),
            ("gen_ai.request.model", model),
            ("gen_ai.response.model", model),
            ("gen_ai.response.id", answer.platform_message_id),
            ("gen_ai.response.finish_reasons", _list_finish_reasons(answer)),
            ("openinference.span.kind", "LLM"),
            ("llm.model_name", model),
            ("langfuse.observation.type", "generation"),
            ("gen_ai.input.messages", dump_json([*map(build_message, inputs)])),
            ("gen_ai.output.messages", dump_json([build_message(answer, is_output=True)])),
            *build_usage(used.tokens, float(used.cost)),
            *flatten_messages("llm.input_messages", inputs),
            *flatten_messages("llm.output_messages", [answer]),
        ]
        error = "api_error" if (answer.meta or {}).get("api_error") else None
        return self._build_span("chat", model, message, fields, started, error=error)

    def _build_tool(self, message: Message, started: float) -> dict[str, Any]:
        result = self._prepare(message)
        pending = self.pending_calls.get(message.tool_call_id or "")
        call = _find_call(pending, self._prepare(pending.answer)) if pending else None
        name = (call.name if call else None) or result.name or "unknown"
        text = format_content(result.content)
        shown: dict[str, Any] = {"type": "tool_call_response", "id": result.tool_call_id}
        extra = build_extra(
            result, {"role": "tool", "parts": [{**shown, "response": replace_text(text)}]}
        )
        before = [build_message(self._prepare(one)) for one in self.unseen]
        given = format_call_arguments(call) if call else None
        fields: list[tuple[str, AttributeValue]] = [
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", name),
            ("gen_ai.tool.type", "function"),
            ("gen_ai.tool.call.id", result.tool_call_id),
            ("gen_ai.tool.call.arguments", given),
            ("gen_ai.tool.call.result", text),
            ("openinference.span.kind", "TOOL"),
            ("tool.name", name),
            ("input.value", given),
            ("output.value", text),
            ("langfuse.observation.type", "tool"),
            ("rekindle.messages", dump_json([*before, {"role": "tool", "rekindle": extra}])),
        ]
        if pending:
            started = pending.answer.timestamp or started
        duration = (result.meta or {}).get("duration")
        if isinstance(duration, (int, float)) and message.timestamp and 0 < duration < 1e9:
            started = message.timestamp - duration
        outcome = judge_call(pending.call if pending else ToolCall("", name), message)
        error = (outcome.error_kind or outcome.outcome) if outcome.failed else None
        fields.append(("rekindle.call.outcome", outcome.outcome))
        return self._build_span("execute_tool", name, message, fields, started, error=error)

    def _build_root(
        self, turn: list[Message], started: float, total: Usage | None
    ) -> dict[str, Any]:
        session = self.session
        used = self._take_usage(total)  # counted after the last model call was built
        opening = [self._prepare(one) for one in _take_opening(turn)]
        answers = [one for one in turn if one.role == "assistant"]
        answer = self._prepare(answers[-1]) if answers else None
        agent = session.sub_agent or session.source
        shown = [build_message(self._prepare(one)) for one in self.unseen]
        fields: list[tuple[str, AttributeValue]] = [
            ("gen_ai.operation.name", "invoke_agent"),
            ("gen_ai.provider.name", find_provider(session.model)),
            ("gen_ai.request.model", session.model),
            ("gen_ai.agent.name", agent),
            ("openinference.span.kind", "AGENT"),
            ("agent.name", agent),
            ("langfuse.observation.type", "agent"),
            ("langfuse.trace.name", session.title or session.preview or agent),
            ("gen_ai.input.messages", dump_json([*map(build_message, opening)])),
            ("input.value", "\n".join(one.text for one in opening if one.role == "user")),
            ("rekindle.messages", dump_json(shown) if shown else None),
            *_build_session_attributes(session),
            *build_usage(used.tokens, float(used.cost)),
        ]
        if answer is not None:
            output = dump_json([build_message(answer, is_output=True)])
            fields += [("gen_ai.output.messages", output), ("output.value", answer.text)]
        return self._build_span("invoke_agent", agent, turn[-1], fields, started)

    def _build_span(
        self,
        operation: str,
        subject: str | None,
        message: Message,
        fields: Iterable[tuple[str, AttributeValue]],
        started: float,
        *,
        error: str | None = None,
    ) -> dict[str, Any]:
        is_root = operation == "invoke_agent"
        end = message.timestamp or self.time
        position = self.start if is_root else _get_position(message)
        session = self.session.id
        trace = make_hex_id(16, session, "turn", self.start)
        attributes = encode_attributes(
            (*self.shared, *fields, ("error.type", error), ("rekindle.format", FORMAT_VERSION))
        )
        span = {
            "traceId": trace,
            "spanId": make_hex_id(8, session, operation, position),
            "parentSpanId": make_hex_id(8, session, "invoke_agent", self.start),
            "name": replace_text(f"{operation} {subject}" if subject else operation),
            "kind": _CLIENT if operation == "chat" else _INTERNAL,
            "startTimeUnixNano": _format_nanoseconds(min(started, end)),
            "endTimeUnixNano": _format_nanoseconds(end),
            "attributes": attributes,
            "status": {"code": _STATUS_ERROR} if error else {},
        }
        if is_root:
            del span["parentSpanId"]
        return span

    def _prepare(self, message: Message) -> Message:
        """Return the message as it may be shown; each is prepared once in a turn."""
        position = _get_position(message)
        if position not in self._prepared:
            self._prepared[position] = self.prepare(message)
        return self._prepared[position]

    def _take_usage(self, total: Usage | None) -> Usage:
        """Return what was used since it was last reported."""
        if total is None:
            return Usage()
        known = self.cursor.usage
        cost = max(Decimal(0), total.cost - known.cost)
        self.cursor = self.cursor._replace(usage=total)
        return Usage(subtract_tokens(total.tokens, known.tokens), cost)


def make_hex_id(size: int, session: str, kind: str, position: int) -> str:
    """Return the id of a trace or span of this many bytes, the same each time."""
    identity = f"rekindle\0{kind}\0{position}\0{session}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(identity).hexdigest()[: 2 * size]


def replace_text(text: str) -> str:
    """Return text as an attribute holds it."""
    return text.encode("utf-8", "replace").decode()


def _get_position(message: Message) -> int:
    return message.position or 0


def _get_model(session: Session, message: Message) -> str | None:
    model = (message.meta or {}).get("model")
    return model if isinstance(model, str) and model else session.model


def _list_finish_reasons(message: Message) -> list[str] | None:
    return [message.finish_reason] if message.finish_reason else None


def _find_call(pending: _PendingCall, answer: Message) -> ToolCall:
    """Return the call as it was prepared with its answer."""
    index = pending.answer.tool_calls.index(pending.call)
    return answer.tool_calls[index]


def _take_opening(turn: list[Message]) -> Iterator[Message]:
    for message in turn:
        if message.role in ("assistant", "tool"):
            return
        yield message


def _build_shared_attributes(session: Session) -> tuple[tuple[str, AttributeValue], ...]:
    return (
        ("gen_ai.conversation.id", session.id),
        ("session.id", session.id),
        ("langfuse.session.id", session.id),
        ("user.id", session.user),
    )


def _build_session_attributes(session: Session) -> Iterator[tuple[str, AttributeValue]]:
    for name in ("source", "title", "parent", "sub_agent", "cwd", "git_branch", "repository"):
        value: str | None = getattr(session, name)
        if value:
            yield f"rekindle.session.{name}", value
    if session.started:
        yield "rekindle.session.started", session.started


def _format_nanoseconds(seconds: float) -> str:
    return str(max(0, round(seconds * 1_000_000)) * 1000)
