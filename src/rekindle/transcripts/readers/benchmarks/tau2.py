"""tau2-bench reader: `{info, tasks, simulations[]}`, or one simulation in a separate file.

A simulation is a session. The `id` of a tool message is the id of the call that it answers. The user is
simulated and may have tools too: such a call is part of a user message, and its result has
`requestor: user`. `error` is whether a call failed, and null if a submission omitted it. Tokens, cost
and model are the agent's only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from rekindle.json_fields import (
    JsonObject,
    as_count,
    as_number,
    as_object,
    as_objects,
    drop_none,
    get_text,
    parse_timestamp,
)
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.scanner import ContainerEnd, JsonPath
from rekindle.transcripts.jsonio.stream import iter_values
from rekindle.transcripts.readers.session_builder import (
    SessionBuilder,
    make_path_id,
    parse_cost,
    to_arguments,
)
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall

SOURCE = "tau2"

_ROLES = ("user", "assistant", "tool")


def can_read(head: FileHead) -> bool:
    return _is_run(head.fields) or _is_simulation(head.fields)


def _is_run(metadata: JsonObject) -> bool:
    # The tasks alone may exceed the head, so `simulations` may not be visible.
    info = as_object(metadata.get("info"))
    return isinstance(metadata.get("simulations"), list) or (
        "agent_info" in info and "environment_info" in info
    )


def _is_simulation(metadata: JsonObject) -> bool:
    return "task_id" in metadata and ("termination_reason" in metadata or "reward_info" in metadata)


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    run = _Tau2Run(path)
    for step in iter_values(path, _should_descend):
        if isinstance(step, UnreadableEntry):
            yield step
            continue
        if isinstance(step, ContainerEnd):
            if _is_simulation_path(step.path):
                yield from run.finish()
            continue
        *above, key = step.path
        if "tasks" in above[:1]:
            continue
        if above[-1:] == ["messages"]:
            yield from run.read_entry(step.value, key, step.line)
        elif step.path == ("info",):
            run.read_info(as_object(step.value))
        elif _is_simulation_path(tuple(above)):
            run.add_metadata(key, step.value)
    yield from run.finish()


def _is_simulation_path(json_path: JsonPath) -> bool:
    """Return whether a simulation is at this path: in the list, or the document itself."""
    return not json_path or (len(json_path) == 2 and json_path[0] == "simulations")


def _should_descend(json_path: JsonPath) -> bool:
    # Descend into the tasks so that they are skipped one by one.
    return json_path in (("simulations",), ("tasks",), ("messages",)) or (
        json_path[0] == "simulations" and (len(json_path) == 2 or json_path[2:] == ("messages",))
    )


class _Tau2Run:
    """The simulations of one file, read one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model: str | None = None
        self.session_count = 0
        self._reset()

    def _reset(self) -> None:
        self.metadata: JsonObject = {}
        self.builder: SessionBuilder | None = None

    def read_info(self, info: JsonObject) -> None:
        """Read the run's `info`."""
        self.model = get_text(as_object(info.get("agent_info")), "llm")

    def add_metadata(self, key: str | int, value: JSON) -> None:
        """Record a field of the simulation that is not a message."""
        if isinstance(key, str):
            self.metadata[key] = value

    def read_entry(self, value: object, index: str | int, line: int) -> Iterator[TranscriptEvent]:
        """Read an element of `messages`: a message, or the results of several calls."""
        raw = as_object(value)
        tool_messages = as_objects(raw.get("tool_messages"))
        for part, raw_message in enumerate(tool_messages or [raw]):
            fallback_id = f"item:{index + 1}" if isinstance(index, int) else f"item:{index}"
            fallback_id = f"{fallback_id}:{part}" if tool_messages else fallback_id
            if raw_message.get("role") == "system":
                continue
            if raw_message.get("role") not in _ROLES:
                yield UnreadableEntry(
                    str(self.path), line, f"{fallback_id}: expected a message with a role"
                )
                continue
            if self.builder is None:
                self.builder = SessionBuilder(self._create_session())
            # The last message is held back for the simulation's reward.
            message = _parse_message(raw_message, fallback_id, self.builder)
            yield from self.builder.hold_message(message)

    def _create_session(self) -> Session:
        self.session_count += 1
        return Session(
            id=get_text(self.metadata, "id")
            or make_path_id("tau2", self.path, f"simulation {self.session_count}"),
            source=SOURCE,
            model=self.model,
            started=parse_timestamp(self.metadata.get("start_time")) or 0.0,
        )

    def finish(self) -> Iterator[TranscriptEvent]:
        """Finish the simulation: yield its last message and its session."""
        if self.builder is not None:
            yield from self.builder.release_message(self._build_outcome_meta())
            self.builder.fill_fields(
                model=self.model, started=parse_timestamp(self.metadata.get("start_time"))
            )
            self.builder.set_fields(
                ended=parse_timestamp(self.metadata.get("end_time")),
                end_reason=get_text(self.metadata, "termination_reason"),
                cost=parse_cost(self.metadata.get("agent_cost")),
            )
            yield from self.builder.finish()
        self._reset()

    def _build_outcome_meta(self) -> dict[str, JSON]:
        task = self.metadata.get("task_id")
        return {
            "reward": as_number(as_object(self.metadata.get("reward_info")).get("reward")),
            "task": task if isinstance(task, (int, str)) else None,
            "trial": as_number(self.metadata.get("trial")),
        }


def _parse_message(raw: JsonObject, fallback_id: str, builder: SessionBuilder) -> Message:
    role = cast(str, raw["role"])
    calls = tuple(
        _parse_tool_call(call, f"{fallback_id}:{part}")
        for part, call in enumerate(as_objects(raw.get("tool_calls")))
    )
    call_id = get_text(raw, "id", "tool_call_id") if role == "tool" else None
    builder.tool_names.update((call.id, call.name) for call in calls)
    if role == "assistant":
        builder.add_usage(_parse_tokens(raw))
    choice = as_object(next(iter(as_objects(as_object(raw.get("raw_data")).get("choices"))), None))
    return Message(
        role=role,
        content=_parse_content(raw.get("content")),
        tool_calls=calls,
        tool_call_id=call_id,
        name=builder.tool_names.pop(call_id, None) if call_id else None,
        reasoning=get_text(as_object(choice.get("message")), "reasoning_content"),
        finish_reason=get_text(choice, "finish_reason"),
        platform_message_id=fallback_id,
        meta=_parse_result_meta(raw) if role == "tool" else None,
        timestamp=parse_timestamp(raw.get("timestamp")),
    )


def _parse_tokens(raw: JsonObject) -> Tokens:
    usage = as_object(raw.get("usage"))
    raw_usage = as_object(as_object(raw.get("raw_data")).get("usage"))
    cached = as_count(as_object(raw_usage.get("prompt_tokens_details")).get("cached_tokens"))
    prompt = as_count(usage.get("prompt_tokens"))
    cached = min(cached, prompt)
    return Tokens(prompt - cached, as_count(usage.get("completion_tokens")), cached)


def _parse_result_meta(raw: JsonObject) -> dict[str, JSON] | None:
    failed = raw.get("error")
    return drop_none(
        {
            "is_error": failed if isinstance(failed, bool) else None,
            "requestor": "user" if raw.get("requestor") == "user" else None,
        }
    )


def _parse_tool_call(call: JsonObject, fallback_id: str) -> ToolCall:
    arguments = to_arguments(call.get("arguments"))
    return ToolCall(get_text(call, "id") or fallback_id, get_text(call, "name") or "", arguments)


def _parse_content(value: Any) -> Content:
    return value if value is None or isinstance(value, str) else json.dumps(value)
