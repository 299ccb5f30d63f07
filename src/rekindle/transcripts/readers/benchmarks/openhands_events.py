"""Parser for OpenHands events; `openhands.py` finds them in their files.

Before version 1 an event is an action (`action`, `args`) or an observation (`observation`, `content`,
`extras`), joined by `cause`; `tool_call_metadata` has the whole answer, so the first action of an
answer yields all its calls. The oldest events have their fields at the top, no ids and no source, and
are joined by order. An `error` observation without a cause answers a call that could not be parsed, and
stands alone. Since version 1 an event has a `kind`, and the actions of one answer are consecutive with
the same `llm_response_id`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from rekindle.json_fields import (
    JsonObject,
    as_object,
    as_objects,
    drop_none,
    get_text,
    make_text_part,
    parse_timestamp,
    to_content,
)
from rekindle.transcripts.events import TranscriptEvent
from rekindle.transcripts.readers.session_builder import (
    AnswerBuilder,
    SessionBuilder,
    add_meta,
    decode_text,
    make_image_part,
    parse_cost,
    parse_exit_code,
    parse_function_call,
    parse_tokens,
)
from rekindle.types import JSON, Content, Message, Session, ToolCall, replace_fields

EVENT_SOURCES = ("user", "agent", "environment")

# Bookkeeping, not messages.
_BOOKKEEPING_KINDS = {
    *("system", "recall", "null", "change_agent_state", "agent_state_changed", "pause", "resume"),
    *("condensation_request", "recall_failure", "server_ready", "loop_detection", "start", "stop"),
}
# Fields of an action that are not arguments of its call.
_NON_ARGUMENT_FIELDS = {
    *("thought", "action", "confirmation_state", "is_confirmed", "security_risk", "action_risk"),
    *("hidden", "blocking", "keep_prompt", "kernel_init_code", "impl_source", "source", "id"),
    *("timestamp", "message", "timeout", "args", "tool_call_metadata", "llm_metrics", "cause"),
}
# OpenHands includes tokens read from and written to the cache in the prompt.
_TOKEN_NAMES = (
    *("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens"),
    "reasoning_tokens",
)
_NOT_EXECUTED = "is NOT executed"
# Kinds of events that are messages, since version 1.
_V1_MESSAGE_KINDS = {
    *("MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent"),
    *("UserRejectObservation", "Condensation"),
}


def is_event(value: JsonObject) -> bool:
    """Return whether this is an event of any version."""
    if isinstance(value.get("kind"), str):
        return "timestamp" in value and value.get("source") in (*EVENT_SOURCES, "hook")
    kinds = [value[name] for name in ("action", "observation") if name in value]
    if len(kinds) != 1 or not isinstance(kinds[0], str):
        return False
    has_source = value.get("source") in EVENT_SOURCES and "timestamp" in value
    return has_source or any(
        name in value for name in ("action_risk", "is_confirmed", "command_id")
    )


class OpenHandsConversation(SessionBuilder):
    """One conversation being read."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.calls: dict[str, ToolCall] = {}
        self.user_actions: set[str] = set()
        # The pending call, where calls and results are joined by order.
        self.pending_call: ToolCall | None = None
        self.last_kind: str | None = None
        self.answer: AnswerBuilder | None = None

    def update_session(self, metadata: JsonObject) -> None:
        """Update the session from an evaluation's fields next to the events."""
        config = as_object(as_object(metadata.get("metadata")).get("llm_config"))
        self.set_fields(
            model=get_text(config, "model") or self.session.model,
            title=get_text(metadata, "instance_id")
            or get_text(as_object(metadata.get("issue")), "title")
            or self.session.title,
            end_reason=(get_text(metadata, "error") or "")[:200] or self.session.end_reason,
        )
        self._set_usage(as_object(metadata.get("metrics")))

    def read_entry(self, event: JsonObject, fallback_id: str) -> Iterator[TranscriptEvent]:
        """Read one event."""
        id = event.get("id")
        fallback_id = f"event:{id}" if isinstance(id, (int, str)) and id != "" else fallback_id
        if isinstance(event.get("kind"), str):
            messages = self._read_v1_event(event, fallback_id)
        elif isinstance(event.get("action"), str):
            messages = self._read_action(event, cast(str, event["action"]), fallback_id)
        else:
            messages = self._read_observation(
                event, get_text(event, "observation") or "null", fallback_id
            )
        for message in messages:
            yield from self.hold_message(message)

    def finish(self, resolved: bool | None = None) -> Iterator[TranscriptEvent]:
        """Yield the held messages and the session with everything learned from the events."""
        for message in self._close_answer():
            yield from self.hold_message(message)
        yield from self.release_message({"resolved": resolved})
        yield from super().finish()

    def append_message(self, message: Message) -> Sequence[TranscriptEvent]:
        if not self.is_started:
            self.fill_fields(started=message.timestamp)
        return super().append_message(message)

    def _set_usage(self, metrics: JsonObject) -> None:
        """Set tokens and cost from the accumulated totals."""
        if usage := as_object(metrics.get("accumulated_token_usage")):
            self.set_fields(tokens=parse_tokens(usage, *_TOKEN_NAMES, is_cache_in_input=True))
        if cost := parse_cost(metrics.get("accumulated_cost")):
            self.set_fields(cost=cost)

    def _make_message(
        self, role: str, content: Content, event: JsonObject, fallback_id: str
    ) -> Message:
        return Message(
            role=role,
            content=content,
            platform_message_id=fallback_id,
            meta=drop_none(self.pop_pending_meta()),
            timestamp=parse_timestamp(event.get("timestamp")),
        )

    # -- before version 1 ---------------------------------------------------------------------

    def _read_action(self, event: JsonObject, kind: str, fallback_id: str) -> Iterator[Message]:
        args = as_object(event.get("args")) or event
        self._set_usage(as_object(event.get("llm_metrics")))
        if kind == "condensation":
            self.pending_meta["compacted"] = drop_none({"summary": get_text(args, "summary")}) or {}
        elif kind == "message":
            yield self._make_message(
                self._find_role(event), _parse_content(args), event, fallback_id
            )
        elif kind in _BOOKKEEPING_KINDS:
            return
        elif event.get("source") == "user":
            self.user_actions.add(str(event.get("id")))
            message = self._make_message(
                "user", get_text(args, "command", "code", "path"), event, fallback_id
            )
            yield add_meta(message, {"typed": kind})
        else:
            self.last_kind = kind
            yield from self._read_call(event, args, kind, fallback_id)

    def _find_role(self, event: JsonObject) -> str:
        source = event.get("source")
        if source not in EVENT_SOURCES:
            # Without a source, the user speaks first and after each message of the agent.
            source = "user" if self.last_kind in (None, "message") else "agent"
        self.last_kind = "message" if source == "agent" else "user"
        return "assistant" if source == "agent" else "user"

    def _read_call(
        self, event: JsonObject, args: JsonObject, kind: str, fallback_id: str
    ) -> Iterator[Message]:
        metadata = as_object(event.get("tool_call_metadata"))
        response = as_object(metadata.get("model_response"))
        choices = as_objects(response.get("choices"))
        raw = as_object(choices[0].get("message")) if choices else {}
        own_id = get_text(metadata, "tool_call_id") or f"call:{fallback_id}"
        calls = [parse_function_call(call, "") for call in as_objects(raw.get("tool_calls"))]
        if own_id not in [call.id for call in calls]:
            given = {
                name: value for name, value in args.items() if name not in _NON_ARGUMENT_FIELDS
            }
            calls = [ToolCall(own_id, get_text(metadata, "function_name") or kind, given)]
        self.pending_call = next(call for call in calls if call.id == own_id)
        self.calls[str(event.get("id"))] = self.calls[own_id] = self.pending_call
        answer = get_text(response, "id")
        if answer is not None and not self.is_new(answer):
            return
        self.fill_fields(model=get_text(response, "model"))
        thought = get_text(raw, "content") or get_text(args, "thought", "final_thought")
        yield replace_fields(
            self._make_message("assistant", thought, event, answer or fallback_id),
            tool_calls=tuple(calls),
            reasoning=get_text(raw, "reasoning_content"),
            finish_reason=get_text(choices[0], "finish_reason") if choices else None,
        )

    def _read_observation(
        self, event: JsonObject, kind: str, fallback_id: str
    ) -> Iterator[Message]:
        if kind in _BOOKKEEPING_KINDS or kind == "message":
            return
        raw_content = event.get("content")
        output = (
            raw_content if isinstance(raw_content, str) else to_content(as_objects(raw_content))
        )
        if kind == "condense":
            self.pending_meta["compacted"] = {
                "summary": output if isinstance(output, str) else None
            }
            return
        if str(event.get("cause", "none")) in self.user_actions:
            yield self._make_message("user", output, event, fallback_id)
            return
        extras = as_object(event.get("extras")) or event
        self.fill_fields(cwd=get_text(as_object(extras.get("metadata")), "working_dir"))
        call = self._match_call(event)
        message = self._make_message("tool", output, event, fallback_id)
        yield replace_fields(
            add_meta(message, _parse_result_meta(kind, extras, output)),
            tool_call_id=call.id if call else None,
            name=call.name if call else None,
        )

    def _match_call(self, event: JsonObject) -> ToolCall | None:
        id = get_text(as_object(event.get("tool_call_metadata")), "tool_call_id")
        call = self.calls.pop(id, None) if id else None
        cause = self.calls.pop(str(event["cause"]), None) if "cause" in event else None
        if call or cause:
            return call or cause
        if id is not None:
            # The call is in another file.
            metadata = as_object(event.get("tool_call_metadata"))
            return ToolCall(id, get_text(metadata, "function_name") or "")
        if "cause" in event or "id" in event:
            return None
        call, self.pending_call = self.pending_call, None
        return call

    # -- since version 1 ----------------------------------------------------------------------

    def _read_v1_event(self, event: JsonObject, fallback_id: str) -> Iterator[Message]:
        kind = get_text(event, "kind") or ""
        if kind not in _V1_MESSAGE_KINDS:
            return
        if kind == "ActionEvent":
            yield from self._read_v1_action(event, fallback_id)
            return
        yield from self._close_answer()
        if kind == "MessageEvent":
            raw = as_object(event.get("llm_message"))
            role = "user" if event.get("source") == "user" else "assistant"
            message = self._make_message(role, _parse_parts(raw.get("content")), event, fallback_id)
            yield replace_fields(message, reasoning=get_text(raw, "reasoning_content"))
        elif kind == "Condensation":
            self.pending_meta["compacted"] = (
                drop_none({"summary": get_text(event, "summary")}) or {}
            )
        else:
            seen, meta = _parse_v1_result(event, kind)
            message = self._make_message("tool", seen, event, fallback_id)
            yield replace_fields(
                add_meta(message, meta),
                tool_call_id=get_text(event, "tool_call_id"),
                name=get_text(event, "tool_name"),
            )

    def _read_v1_action(self, event: JsonObject, fallback_id: str) -> Iterator[Message]:
        answer = get_text(event, "llm_response_id") or fallback_id
        if self.answer is None or self.answer.id != answer:
            yield from self._close_answer()
            self.answer = self.open_answer(answer, parse_timestamp(event.get("timestamp")))
        for part in as_objects(event.get("thought")):
            self.answer.add_text(get_text(part, "text"))
        self.answer.add_reasoning(get_text(event, "reasoning_content"))
        own = parse_function_call(as_object(event.get("tool_call")), "")
        id = get_text(event, "tool_call_id") or own.id or f"call:{fallback_id}"
        given = own.arguments or as_object(event.get("action"))
        self.answer.add_call(ToolCall(id, get_text(event, "tool_name") or own.name, given))

    def _close_answer(self) -> Iterator[Message]:
        answer, self.answer = self.answer, None
        if answer is not None:
            yield answer.build()


def _parse_content(args: JsonObject) -> Content:
    parts = [make_text_part(value)] if (value := get_text(args, "content")) else []
    return to_content([*parts, *_parse_images(args.get("image_urls") or args.get("images_urls"))])


def _parse_images(urls: object) -> list[dict[str, JSON]]:
    items = cast("list[object]", urls) if isinstance(urls, list) else []
    return [make_image_part(url) for url in items if isinstance(url, str)]


def _parse_parts(raw_content: object) -> Content:
    if isinstance(raw_content, str):
        return raw_content
    parts: list[dict[str, JSON]] = []
    for part in as_objects(raw_content):
        if isinstance(part.get("image_urls"), list):
            parts += _parse_images(part["image_urls"])
        elif (value := get_text(part, "text")) is not None:
            parts.append(make_text_part(value))
    return to_content(parts)


def _parse_result_meta(kind: str, extras: JsonObject, output: Content) -> dict[str, JSON]:
    """Parse an observation's metadata."""
    meta: dict[str, JSON] = {}
    metadata = as_object(extras.get("metadata"))
    if kind == "run":
        meta = _parse_exit_meta(
            metadata.get("exit_code", extras.get("exit_code")), get_text(metadata, "suffix") or ""
        )
    elif kind == "error":
        meta["is_error"] = True
    elif kind == "user_rejected":
        meta["refused"] = True
    elif kind in ("browse", "browse_interactive") and isinstance(extras.get("error"), bool):
        meta["is_error"] = extras["error"]
    elif kind == "mcp" and isinstance(output, str) and '"isError"' in output:
        failed = as_object(decode_text(output)).get("isError")
        meta["is_error"] = failed if isinstance(failed, bool) else None
    return meta


def _parse_exit_meta(code: object, notice: str) -> dict[str, JSON]:
    """Parse how a command ended: -1 means that it is still running or never started."""
    code = parse_exit_code(code)
    if code != -1:
        return {} if code is None else {"exit_code": code}
    if _NOT_EXECUTED in notice:
        return {"refused": True}
    return {"running": True} if notice else {}


def _parse_v1_result(event: JsonObject, kind: str) -> tuple[Content, dict[str, JSON]]:
    """Return the content and metadata of a result since version 1."""
    if kind == "AgentErrorEvent":
        return get_text(event, "error"), {"is_error": True}
    if kind == "UserRejectObservation":
        reason = get_text(event, "rejection_reason") or ""
        meta: dict[str, JSON] = {"refused": True, "denial": get_text(event, "rejection_source")}
        return f"Action rejected: {reason}", meta
    observation = as_object(event.get("observation"))
    metadata = as_object(observation.get("metadata"))
    code = observation.get("exit_code")
    meta = _parse_exit_meta(
        metadata.get("exit_code") if code is None else code, get_text(metadata, "suffix") or ""
    )
    failed = observation.get("is_error")
    # A failed command is not a tool error; the exit code describes it.
    if isinstance(failed, bool) and (failed or not meta):
        meta["is_error"] = failed
    parts = _parse_parts(observation.get("content"))
    return parts if parts is not None else get_text(observation, "output", "text", "message"), meta
