"""ATIF reader (Agent Trajectory Interchange Format of Harbor), versions 1.0 to 1.8.

A trajectory is a session; sub-agents may be embedded (`subagent_trajectories`) or in files of their own.
An agent's step is an answer, with the results of its calls in its observation. Results that name no
call are matched by order. System steps are not messages, unless our own export gives their role; the
work of a sub-agent observed by such a step is a result. A trajectory split by a summary continues in
`….cont-N.json`, whose first steps are copies. With what our export puts into `extra`, messages are
restored exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from rekindle.json_fields import (
    JsonObject,
    as_object,
    as_objects,
    drop_none,
    get_text,
    make_text_part,
    parse_timestamp,
)
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.scanner import ContainerEnd, JsonPath
from rekindle.transcripts.jsonio.stream import iter_values
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall, make_foreign_message

from .session_builder import (
    MASKED_IDS,
    SessionBuilder,
    make_image_part,
    make_path_id,
    make_tool_call,
    parse_cost,
    parse_tokens,
)

SOURCE = "atif"

_ROLES = {"user": "user", "agent": "assistant"}
# A test harness replaces ids by words in capitals.
_PLACEHOLDER = re.compile(r"[A-Z_<>]+")
_SUMMARIZER_ID = re.compile(r"(.+)-summarization-\d+-\w+", re.DOTALL)
_CONTINUATION_NAME = re.compile(r"(.+)\.cont-(\d{1,6})(\.\w+)?", re.DOTALL)


def can_read(head: FileHead) -> bool:
    return _is_trajectory(head.fields)


def _is_trajectory(metadata: JsonObject) -> bool:
    return (get_text(metadata, "schema_version") or "").startswith("ATIF")


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    open_trajectories: dict[JsonPath, _AtifTrajectory] = {}
    document = -1
    for step in iter_values(path, _should_descend):
        if isinstance(step, UnreadableEntry):
            yield step
            continue
        if step.document != document:
            document = step.document
            open_trajectories = {}
        if isinstance(step, ContainerEnd):
            if (trajectory := open_trajectories.pop(step.path, None)) is not None:
                yield from trajectory.finish()
            continue
        trajectory_path = _find_trajectory_path(step.path)
        trajectory = open_trajectories.get(trajectory_path)
        if trajectory is None:
            parent = open_trajectories.get(trajectory_path[:-2]) if trajectory_path else None
            trajectory = open_trajectories[trajectory_path] = _AtifTrajectory(
                path, document, trajectory_path, parent
            )
        if step.path[len(trajectory_path) :][:1] == ("steps",):
            yield from trajectory.read_entry(step.value, step.path[-1], step.line)
        else:
            trajectory.add_metadata(str(step.path[-1]), step.value)
    for trajectory in open_trajectories.values():
        yield from trajectory.finish()


def _should_descend(json_path: JsonPath) -> bool:
    relative_path = json_path[len(_find_trajectory_path(json_path)) :]
    return relative_path in ((), ("steps",), ("subagent_trajectories",))


def _find_trajectory_path(json_path: JsonPath) -> JsonPath:
    """Return the path of the trajectory that contains this one."""
    end = 0
    while json_path[end : end + 1] == ("subagent_trajectories",) and len(json_path) >= end + 2:
        end += 2
    return json_path[:end]


class _AtifTrajectory(SessionBuilder):
    """One trajectory being read."""

    def __init__(
        self, path: Path, document: int, json_path: JsonPath, parent: _AtifTrajectory | None
    ) -> None:
        super().__init__(Session(id="", source=SOURCE))
        self.path = path
        self.position = ".".join(map(str, (document, *json_path)) if document or json_path else ())
        self.parent = parent
        self.metadata: JsonObject = {}

    def add_metadata(self, key: str, value: JSON) -> None:
        """Record a field that is not a step."""
        self.metadata[key] = value

    def read_entry(self, value: object, index: str | int, line: int) -> Iterator[TranscriptEvent]:
        """Read an element of `steps`."""
        step = as_object(value)
        if not get_text(step, "source"):
            yield UnreadableEntry(
                str(self.path), line, f"steps[{index}]: expected a step with a source"
            )
            return
        metrics = as_object(step.get("metrics"))
        self.add_usage(
            _parse_metrics(metrics, ""),
            parse_cost(metrics.get("cost_usd")),
            time=parse_timestamp(step.get("timestamp")),
            model=get_text(step, "model_name"),
        )
        self._identify_session()
        self.fill_fields(
            model=get_text(step, "model_name"), started=parse_timestamp(step.get("timestamp"))
        )
        fallback_id = f"step:{index + 1}" if isinstance(index, int) else f"step:{index}"
        messages = [*_parse_messages(step, fallback_id, self.session.model)]
        yield from self.append_messages(messages)

    def _identify_session(self) -> str:
        """Return the session's id, which is determined once."""
        if not self.session.id:
            id = _parse_session_id(self.metadata) or make_path_id("atif", self.path, self.position)
            parent = self._find_parent(id)
            if self.parent is not None and id == parent:
                id = f"{self.position}@{parent}"
            agent = as_object(self.metadata.get("agent"))
            parent = parent if parent != id else None
            is_started = self.parent is not None or _SUMMARIZER_ID.fullmatch(id) is not None
            name = (get_text(agent, "name") or "agent") if parent and is_started else None
            self.set_fields(
                id=id, model=get_text(agent, "model_name"), parent=parent, sub_agent=name
            )
        return self.session.id

    def _find_parent(self, id: str) -> str | None:
        if self.parent is not None:
            return self.parent._identify_session()
        if match := _SUMMARIZER_ID.fullmatch(id):
            return match[1]
        return _find_continued_id(self.path)

    def finish(self) -> Iterator[TranscriptEvent]:
        """Yield the session with everything learned from the trajectory."""
        final = as_object(self.metadata.get("final_metrics"))
        extra = as_object(self.metadata.get("extra"))
        known, tokens = self.session, _parse_metrics(final, "total_")
        parent = get_text(extra, "parent_session_id")
        self.fill_fields(parent=parent if parent != known.id else None)
        self.set_fields(
            title=get_text(extra, "title"),
            cwd=get_text(extra, "cwd"),
            git_branch=get_text(extra, "git_branch"),
            started=parse_timestamp(extra.get("started")) or known.started,
            end_reason=get_text(extra, "end_reason"),
            tokens=tokens if any(tokens) else known.tokens,
            cost=parse_cost(final.get("total_cost_usd")) or known.cost,
        )
        yield from super().finish()


def _parse_session_id(metadata: JsonObject) -> str | None:
    """Return the trajectory's id; a run and its sub-agents may share the session's."""
    session, own = (get_text(metadata, name) or "" for name in ("session_id", "trajectory_id"))
    names = [name for name in (own, session) if name not in MASKED_IDS]
    names = [name for name in names if not _PLACEHOLDER.fullmatch(name)]
    return "@".join(dict.fromkeys(names)) or None


def _find_continued_id(path: Path) -> str | None:
    """Return the id of the trajectory that this one continues, from the file next to it."""
    match = _CONTINUATION_NAME.fullmatch(path.name)
    if match is None:
        return None
    number = int(match[2])
    before = f"{match[1]}.cont-{number - 1}" if number > 1 else match[1]
    try:
        previous_path = path.with_name(f"{before}{match[3] or ''}")
        metadata = FileHead.read(previous_path).fields
    except OSError:
        return None
    if not _is_trajectory(metadata):
        return None
    return _parse_session_id(metadata) or make_path_id("atif", previous_path, "")


def _parse_messages(step: JsonObject, fallback_id: str, model: str | None) -> Iterator[Message]:
    """Yield the step's message and the results that it observed."""
    extra = as_object(step.get("extra"))
    role = _ROLES.get(get_text(step, "source") or "") or get_text(extra, "role")
    results = as_objects(as_object(step.get("observation")).get("results"))
    if role == "tool":
        # A result without its call: the export gives it a step of its own.
        for result in results[:1]:
            metadata = {**as_object(result.get("extra")), **extra}
            yield _parse_result({**result, "extra": metadata}, fallback_id, None, step, {})
        return
    calls = [
        _parse_named_call(call, f"{fallback_id}:{part}")
        for part, call in enumerate(
            as_objects(step.get("tool_calls")) or as_objects(extra.get("tool_calls"))
        )
    ]
    if role is not None and len(role) <= 64:
        yield _parse_message(
            step, extra, role, tuple(call for _, call in calls), fallback_id, model
        )
    meta: dict[str, JSON] = {"copied": True} if step.get("is_copied_context") is True else {}
    is_error = extra.get("tool_result_is_error")
    if isinstance(is_error, bool) and len(results) == 1:
        meta["is_error"] = is_error
    pending_calls = dict(calls)
    unnamed_calls = extra.get("nameless")
    unnamed_calls = cast("list[object]", unnamed_calls) if isinstance(unnamed_calls, list) else []
    for part, result in enumerate(results, 1):
        call_id = get_text(result, "source_call_id") or get_text(
            as_object(result.get("extra")), "call"
        )
        # A result that names no call belongs to the first pending one.
        call = pending_calls.pop(
            next(iter(pending_calls), "") if call_id is None else call_id, None
        )
        if call is not None and call.id in unnamed_calls:
            call = call._replace(name="")
        yield _parse_result(result, f"{fallback_id}:result:{part}", call, step, meta)


def _parse_message(
    step: JsonObject,
    extra: JsonObject,
    role: str,
    calls: tuple[ToolCall, ...],
    fallback_id: str,
    model: str | None,
) -> Message:
    own_model = get_text(step, "model_name")
    meta: dict[str, JSON] = {
        "copied": True if step.get("is_copied_context") is True else None,
        "model": own_model if own_model != model else None,
    }
    content = _parse_content(step.get("message"), extra)
    return make_foreign_message(
        role=role,
        content=content if content or extra.get("empty") is True else None,
        tool_calls=calls,
        tool_call_id=get_text(extra, "tool_call_id"),
        name=get_text(extra, "name"),
        reasoning=get_text(step, "reasoning_content") or get_text(extra, "reasoning"),
        finish_reason=get_text(extra, "finish_reason"),
        platform_message_id=get_text(extra, "message_id") or fallback_id,
        meta=drop_none({**meta, **as_object(extra.get("meta"))}),
        timestamp=parse_timestamp(step.get("timestamp")),
    )


def _parse_result(
    result: JsonObject,
    fallback_id: str,
    call: ToolCall | None,
    step: JsonObject,
    meta: Mapping[str, JSON],
) -> Message:
    extra = as_object(result.get("extra"))
    agents = [
        id for id in map(_parse_session_id, as_objects(result.get("subagent_trajectory_ref"))) if id
    ]
    if agent_id := _parse_session_id(as_object(result.get("subagent_trajectory_ref"))):
        agents = [agent_id]
    agent = {"agent": agents[0] if len(agents) == 1 else cast(JSON, agents) or None}
    name = get_text(extra, "name")
    return Message(
        role="tool",
        content=_parse_content(result.get("content"), extra),
        tool_call_id=call.id
        if call
        else get_text({**extra, **result}, "tool_call_id", "source_call_id"),
        name=name or (call.name or None if call else None),
        reasoning=get_text(extra, "reasoning"),
        finish_reason=get_text(extra, "finish_reason"),
        platform_message_id=get_text(extra, "message_id") or fallback_id,
        meta=drop_none({**meta, **agent, **as_object(extra.get("meta"))}),
        timestamp=parse_timestamp(extra.get("timestamp")) or parse_timestamp(step.get("timestamp")),
    )


def _parse_named_call(call: JsonObject, fallback_id: str) -> tuple[str, ToolCall]:
    """Return the id by which results refer to a call, and the call."""
    call_id = get_text(call, "tool_call_id") or fallback_id
    return call_id, parse_tool_call(call, fallback_id)


def parse_tool_call(call: JsonObject, fallback_id: str = "") -> ToolCall:
    """Return the tool call that an ATIF call represents."""
    extra = as_object(call.get("extra"))
    id, name = extra.get("id"), extra.get("name")
    return make_tool_call(
        id if isinstance(id, str) else get_text(call, "tool_call_id") or fallback_id,
        name if isinstance(name, str) else get_text(call, "function_name"),
        extra.get("text", call.get("arguments")),
    )


def _parse_content(value: Any, extra: JsonObject) -> Content:
    original = extra.get("content")
    return (
        [*as_objects(cast(object, original))]
        if isinstance(original, list)
        else parse_content(value)
    )


def parse_content(value: Any) -> Content:
    """Return the message content that ATIF content represents."""
    if isinstance(value, str) or value is None:
        return value
    return [_parse_part(part) for part in as_objects(value)]


def _parse_part(part: JsonObject) -> dict[str, JSON]:
    path = get_text(as_object(part.get("source")), "path")
    if part.get("type") == "image" and path:
        return make_image_part(path)
    return make_text_part(part["text"]) if isinstance(part.get("text"), str) else part


def _parse_metrics(metrics: JsonObject, prefix: str) -> Tokens:
    names = (f"{prefix}{name}_tokens" for name in ("prompt", "completion", "cached"))
    usage = {**as_object(metrics.get("extra")), **metrics}
    return parse_tokens(
        usage, *names, "cache_write_tokens", "reasoning_tokens", is_cache_in_input=True
    )
