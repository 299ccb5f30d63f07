"""Parser for the messages and parts of an OpenCode session, wherever they are stored.

A tool part of an answer is a call together with its result. `state.status` is about the tool: a command
that failed is completed, and its exit code is in `state.metadata`. Older versions put all steps of a
turn into one message; each step becomes an answer. Text that OpenCode adds to a prompt (`synthetic`) is
skipped. A compaction's request and its summary are recorded in the `meta` of the message after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import cast

from rekindle.json_fields import (
    JsonObject,
    as_count,
    as_number,
    as_object,
    as_objects,
    drop_none,
    get_text,
    make_text_part,
    parse_timestamp,
    to_content,
)
from rekindle.transcripts.events import (
    SessionStarted,
    SessionUpdated,
    TranscriptEvent,
    UnreadableEntry,
)
from rekindle.types import JSON, Message, Session, Tokens, ToolCall, replace_fields

from .session_builder import MASKED_IDS, AnswerBuilder

SOURCE = "opencode"

_ABORTED_ERROR = "MessageAbortedError"


class OpenCodeConversation:
    """One session being read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.session = Session(id="", source=SOURCE)
        self.is_started = False
        self.seen: set[str] = set()
        self.pending_meta: dict[str, JSON] = {}

    def update_session(self, metadata: JsonObject) -> None:
        """Update the session from its own record."""
        known = self.session
        time = as_object(metadata.get("time"))
        self.session = replace_fields(
            known,
            id=known.id if self.is_started else _parse_id(metadata, "id") or known.id,
            parent=known.parent or _parse_id(metadata, "parentID"),
            title=get_text(metadata, "title") or known.title,
            cwd=get_text(metadata, "directory") or known.cwd,
            started=parse_timestamp(time.get("created")) or known.started,
        )

    def read_entry(self, value: object, fallback_id: str, line: int) -> Iterator[TranscriptEvent]:
        """Read one raw message with its parts; anything else is reported as unreadable."""
        raw = as_object(value)
        info = as_object(raw.get("info"))
        if info.get("role") not in ("user", "assistant"):
            reason = f"{fallback_id}: expected a message with info.role user or assistant"
            yield UnreadableEntry(str(self.path), line, reason)
            return
        if not self.is_started:
            id = self.session.id or _parse_id(info, "sessionID") or self.path.stem
            started = self.session.started or _parse_timestamp(info) or 0.0
            self.session = replace_fields(self.session, id=id or SOURCE, started=started)
        id = _parse_id(info, "id") or fallback_id
        if id in self.seen:
            return
        self.seen.add(id)
        parts = as_objects(raw.get("parts"))
        if self.session.model is None:
            model = get_text(info, "modelID") or get_text(as_object(info.get("model")), "modelID")
            self.session = replace_fields(self.session, model=model)
        user = info.get("role") == "user"
        messages = (
            self._parse_prompt(info, parts, id) if user else self._parse_answer(info, parts, id)
        )
        for message in messages:
            if not self.is_started:
                self.is_started = True
                yield SessionStarted(self.session)
            yield message

    def finish(self) -> Iterator[TranscriptEvent]:
        """Yield the session with everything learned from its messages."""
        if self.is_started:
            yield SessionUpdated(self.session)

    def _parse_prompt(
        self, info: JsonObject, parts: list[JsonObject], id: str
    ) -> Iterator[Message]:
        for part in parts:
            if part.get("type") == "compaction":
                trigger = "auto" if part.get("auto") is True else "manual"
                self.pending_meta["compacted"] = {"trigger": trigger}
        if prompt_parts := [
            prompt_part for part in parts if (prompt_part := _parse_prompt_part(part))
        ]:
            yield Message(
                role="user",
                content=to_content(prompt_parts),
                platform_message_id=id,
                meta=drop_none(self._pop_pending_meta()),
                timestamp=_parse_timestamp(info),
            )

    def _parse_answer(
        self, info: JsonObject, parts: list[JsonObject], id: str
    ) -> Iterator[Message]:
        self._add_usage(info, parts)
        if info.get("summary") is True:
            summary = "\n".join(value for part in parts if (value := _parse_text(part)))
            compacted = as_object(self.pending_meta.get("compacted"))
            self.pending_meta["compacted"] = {**compacted, "summary": summary}
            return
        steps = list(self._split_steps(info, parts, id))
        error = as_object(info.get("error"))
        for step in steps:
            if step is steps[-1] and error:
                step.meta.update(_parse_error_meta(error))
            yield step.build()
            yield from step.results
        if error.get("name") == _ABORTED_ERROR:
            self.pending_meta["aborted"] = True

    def _split_steps(
        self, info: JsonObject, parts: list[JsonObject], id: str
    ) -> Iterator[AnswerBuilder]:
        """Yield the answers in one message: a new one begins where a step starts."""
        step, steps = self._start_answer(info, id), 1
        for index, part in enumerate(parts):
            kind = part.get("type")
            if kind == "step-start" and (step.has_output or step.reasoning):
                yield step
                steps += 1
                step = self._start_answer(info, f"{id}:{steps}")
            elif kind == "step-finish":
                step.finish_reason = get_text(part, "reason")
            elif kind == "reasoning":
                if thought := get_text(part, "text"):
                    step.add_reasoning(thought)
            elif kind == "tool":
                _add_tool_call(step, part, f"{id}:part:{index}", info)
            elif value := _parse_text(part):
                step.add_text(value)
        step.finish_reason = step.finish_reason or get_text(info, "finish")
        # An answer that is still empty is picked up by the next import.
        if step.has_output or step.reasoning or (steps == 1 and info.get("error")):
            yield step

    def _start_answer(self, info: JsonObject, id: str) -> AnswerBuilder:
        step = AnswerBuilder(id, _parse_timestamp(info))
        step.meta.update(self._pop_pending_meta())
        model = get_text(info, "modelID")
        if model != self.session.model:
            step.meta["model"] = model
        return step

    def _add_usage(self, info: JsonObject, parts: list[JsonObject]) -> None:
        # In a message with several steps, only the steps have the full usage.
        finished = [part for part in parts if part.get("type") == "step-finish"]
        known = self.session
        tokens = known.tokens
        for source in finished or [info]:
            tokens = tokens.add(_parse_tokens(as_object(source.get("tokens"))))
        raw_cost = as_number(info.get("cost"))
        cost = Decimal(str(raw_cost)) if raw_cost and 0 < raw_cost < 1e9 else Decimal(0)
        self.session = replace_fields(
            known,
            cwd=known.cwd or get_text(as_object(info.get("path")), "cwd"),
            tokens=tokens,
            cost=known.cost + cost,
        )

    def _pop_pending_meta(self) -> dict[str, JSON]:
        meta, self.pending_meta = self.pending_meta, {}
        return meta


def _parse_id(fields: JsonObject, name: str) -> str | None:
    id = get_text(fields, name) or ""
    return None if id in MASKED_IDS else id


def _parse_timestamp(info: JsonObject) -> float | None:
    return parse_timestamp(as_object(info.get("time")).get("created"))


def _parse_text(part: JsonObject) -> str | None:
    return get_text(part, "text") if part.get("type") == "text" else None


def _parse_prompt_part(part: JsonObject) -> dict[str, JSON] | None:
    """Return a part that a person put into a prompt; None for injected text and bookkeeping."""
    kind = part.get("type")
    if kind == "text":
        is_injected = part.get("synthetic") is True or part.get("ignored") is True
        value = None if is_injected else get_text(part, "text")
    elif kind == "subtask":
        value = get_text(part, "prompt")
    else:
        return _parse_file(part) if kind == "file" else None
    return make_text_part(value) if value else None


def _parse_file(part: JsonObject) -> dict[str, JSON]:
    kind, url = get_text(part, "mime") or "", get_text(part, "url") or ""
    if kind.startswith("image/") and url.startswith("data:"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "mime": kind, "filename": get_text(part, "filename"), "url": url}


def _add_tool_call(
    step: AnswerBuilder, part: JsonObject, fallback_id: str, info: JsonObject
) -> None:
    """Add a call, and its result if there is one."""
    state = as_object(part.get("state"))
    given = state.get("input")
    arguments = cast("str | JsonObject", given) if isinstance(given, (str, dict)) else ""
    id = _parse_id(part, "callID") or _parse_id(part, "id") or fallback_id
    call = ToolCall(
        id, get_text(part, "tool") or "", arguments or get_text(state, "raw") or arguments
    )
    step.add_call(call)
    if state.get("status") not in ("completed", "error"):
        return
    ended = parse_timestamp(as_object(state.get("time")).get("end"))
    step.results.append(
        Message(
            role="tool",
            content=_parse_output(state),
            tool_call_id=id,
            name=call.name or None,
            platform_message_id=id,
            meta=drop_none(_parse_result_meta(state)),
            timestamp=ended or _parse_timestamp(info),
        )
    )


def _parse_output(state: JsonObject) -> str | list[dict[str, JSON]] | None:
    metadata = as_object(state.get("metadata"))
    if state.get("status") == "error":
        # For an interrupted call, the model receives the partial output.
        partial_output = metadata.get("output") if metadata.get("interrupted") is True else None
        return partial_output if isinstance(partial_output, str) else get_text(state, "error")
    output = state.get("output")
    images = [_parse_file(file) for file in as_objects(state.get("attachments"))]
    if not isinstance(output, str):
        return images or None
    return [make_text_part(output), *images] if images else output


def _parse_result_meta(state: JsonObject) -> dict[str, JSON]:
    metadata, time = as_object(state.get("metadata")), as_object(state.get("time"))
    meta: dict[str, JSON] = {"is_error": state.get("status") == "error"}
    code = metadata.get("exit")
    if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**31:
        meta["exit_code"] = code
    since, until = as_number(time.get("start")), as_number(time.get("end"))
    if since and until and until >= since:
        meta["duration"] = round((until - since) / 1000, 3)
    meta["interrupted"] = True if metadata.get("interrupted") is True else None
    meta["agent"] = _parse_id(metadata, "sessionId")
    return meta


def _parse_error_meta(error: JsonObject) -> dict[str, JSON]:
    name = get_text(error, "name")
    message = get_text(as_object(error.get("data")), "message") or get_text(error, "message")
    return {"error": message or name, "api_error": None if name == _ABORTED_ERROR else True}


def _parse_tokens(usage: JsonObject) -> Tokens:
    cache = as_object(usage.get("cache"))
    return Tokens(
        input=as_count(usage.get("input")),
        output=as_count(usage.get("output")),
        cache_read=as_count(cache.get("read")),
        cache_write=as_count(cache.get("write")),
        reasoning=as_count(usage.get("reasoning")),
    )
