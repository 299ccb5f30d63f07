"""Codex writer: a rollout of `session_meta` and `response_item` lines.

The reader identifies a message by the number of its line, so a session that Codex wrote keeps its line
numbers, with blank lines where it had lines of other kinds. Otherwise an import of the restored file
would store every message again. Reasoning is left out, because only its encrypted form is accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from rekindle.json_fields import JsonObject, drop_none

from .turns import AgentRules, Turn, TurnCall, WritableSession, encode_line, format_iso_time

RULES = AgentRules(
    agent="codex",
    session_id=re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    call_id=re.compile(r"[A-Za-z0-9_.:|-]{1,64}"),
    tool_name=re.compile(r"[A-Za-z0-9_-]{1,128}(?:\.[A-Za-z0-9_-]{1,128})?"),
    tools={"exec_command": frozenset({"cmd"})},
    accepts_text_arguments=True,
)
_LINE_ID = re.compile(r"line:(\d{1,9})")
_MAX_BLANK_LINES = 100_000


def render_session(conversation: WritableSession) -> Iterator[str]:
    """Yield the lines of the rollout."""
    session, started = conversation.session, conversation.session.started
    header: JsonObject = {
        "id": conversation.id,
        "timestamp": format_iso_time(started),
        "cwd": conversation.folder,
        "originator": "rekindle",
        "cli_version": "0.0.0",
        "source": "cli",
        # Without it the session is resumed but not listed; Codex refuses one that it is not set to.
        "model_provider": conversation.provider,
        "git": {"branch": session.git_branch} if session.git_branch else None,
    }
    yield _encode_item("session_meta", started, drop_none(header) or {})
    line = 1  # the number of the last line
    lines_of_turns = [_parse_line_number(turn.id) for turn in conversation.turns]
    for index, turn in enumerate(conversation.turns):
        rendered = [*_render_compaction(turn)]
        place = lines_of_turns[index]
        if place is not None:
            blank = min(place - line - len(rendered) - 1, _MAX_BLANK_LINES)
            yield "\n" * max(0, blank)
            line += max(0, blank)
        rendered += _render_turn(turn)
        following = next((at for at in lines_of_turns[index + 1 :] if at is not None), None)
        event = _render_event(turn)
        if event and (following is None or line + len(rendered) + 1 < following):
            rendered.append(event)
        line += len(rendered)
        yield from rendered
    if conversation.title and not conversation.is_native:
        event = {"type": "thread_name_updated", "thread_id": conversation.id}
        yield _encode_item("event_msg", started, {**event, "thread_name": conversation.title})


def _render_compaction(turn: Turn) -> Iterator[str]:
    if turn.summary:
        yield _encode_item("compacted", turn.time, {"message": turn.summary})


def _render_event(turn: Turn) -> str | None:
    """Return the event from which Codex shows the turn; without prompts, the session is not listed."""
    text = "\n\n".join(turn.texts)
    if turn.role != "user":
        event: JsonObject = {"type": "agent_message", "message": text}
        return _encode_item("event_msg", turn.time, event) if text else None
    event = {"type": "user_message", "message": text, "images": []}
    return _encode_item("event_msg", turn.time, event)


def _render_turn(turn: Turn) -> Iterator[str]:
    kind = "input_text" if turn.role == "user" else "output_text"
    if turn.texts:
        content = [{"type": kind, "text": text} for text in turn.texts]
        item = {"type": "message", "role": turn.role, "content": content}
        yield _encode_item("response_item", turn.time, item)
    for call in turn.calls:
        yield _encode_item("response_item", turn.time, _build_call(call))
    # Of a call without a result, Codex itself says that it was aborted.
    for call, result in turn.list_results():
        yield _encode_item("response_item", result.time, _build_output(call, result.texts))


def _build_call(call: TurnCall) -> JsonObject:
    namespace, dot, name = call.name.rpartition(".")
    item: JsonObject = {"name": name, "call_id": call.id}
    if dot:
        item["namespace"] = namespace
    if isinstance(call.arguments, str):
        return {"type": "custom_tool_call", **item, "input": call.arguments}
    arguments = call.text or json.dumps(call.arguments)
    return {"type": "function_call", **item, "arguments": arguments}


def _build_output(call: TurnCall, texts: Sequence[str]) -> JsonObject:
    is_text = isinstance(call.arguments, str)
    kind = "custom_tool_call_output" if is_text else "function_call_output"
    parts = [{"type": "input_text", "text": text} for text in texts]
    output = "".join(texts) if len(texts) < 2 else parts
    return {"type": kind, "call_id": call.id, "output": output}


def _encode_item(kind: str, time: float, payload: JsonObject) -> str:
    return encode_line({"timestamp": format_iso_time(time), "type": kind, "payload": payload})


def _parse_line_number(id: str | None) -> int | None:
    found = _LINE_ID.fullmatch(id or "")
    return int(found[1]) if found else None
