"""Gemini CLI writer: a chat record as lines, in which a call holds its own result."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from rekindle.json_fields import JsonObject, drop_none

from .turns import (
    AgentRules,
    Turn,
    TurnCall,
    TurnCallResult,
    WritableSession,
    derive_uuid,
    encode_line,
    format_iso_time,
)

RULES = AgentRules(
    agent="gemini",
    session_id=re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    call_id=re.compile(r"[A-Za-z0-9_.:-]{1,256}"),
    tool_name=re.compile(r"[A-Za-z0-9_.:-]{1,128}"),
    tools={"run_shell_command": frozenset({"command"})},
    accepts_open_calls=False,
)


def render_session(conversation: WritableSession) -> Iterator[str]:
    """Yield the lines of the session's file."""
    session = conversation.session
    yield encode_line(
        {
            "sessionId": conversation.id,
            "projectHash": hashlib.sha256(
                conversation.folder.encode("utf-8", "surrogateescape")
            ).hexdigest(),
            "startTime": format_iso_time(session.started),
            "lastUpdated": format_iso_time(session.last_active),
            "kind": "main",
        }
    )
    for number, turn in enumerate(conversation.turns):
        if turn.summary:
            yield _render_summary(conversation, number, turn.summary, turn.time)
        yield encode_line(_build_message(conversation, number, turn))
    if conversation.title:
        yield encode_line({"$set": {"summary": conversation.title}})


def _build_message(conversation: WritableSession, number: int, turn: Turn) -> JsonObject:
    parts = [{"text": text} for text in turn.texts]
    id = turn.id or derive_uuid("gemini", conversation.id, f"message {number}")
    head = {"id": id, "timestamp": format_iso_time(turn.time)}
    if turn.role == "user":
        return {**head, "type": "user", "content": parts}
    calls = [_build_call(call, call.result) for call in turn.calls if call.result]
    content = turn.texts[0] if len(turn.texts) == 1 else parts or ""
    more = drop_none({"model": turn.model, "toolCalls": calls or None}) or {}
    return {**head, "type": "gemini", "content": content, "thoughts": [], **more}


def _render_summary(conversation: WritableSession, number: int, summary: str, time: float) -> str:
    id = derive_uuid("gemini", conversation.id, f"summary {number}")
    head = {"id": id, "timestamp": format_iso_time(time), "type": "user"}
    if not summary.startswith("<state_snapshot>"):
        summary = f"<state_snapshot>\n{summary}\n</state_snapshot>"
    return encode_line({**head, "content": [{"text": summary}]})


def _build_call(call: TurnCall, result: TurnCallResult) -> JsonObject:
    response = {"error" if result.failed else "output": "\n".join(result.texts)}
    answer = {"functionResponse": {"id": call.id, "name": call.name, "response": response}}
    return {
        "id": call.id,
        "name": call.name,
        "args": call.arguments,
        "result": [answer],
        "status": "error" if result.failed else "success",
        "timestamp": format_iso_time(result.time),
    }
