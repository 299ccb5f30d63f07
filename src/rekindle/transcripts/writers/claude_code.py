"""Claude Code writer: lines linked by `uuid` and `parentUuid`.

Reasoning is left out, because the model accepts only what it signed. A compaction is a boundary line and
its summary: Claude Code sends what comes after the last one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from rekindle.json_fields import JsonObject, drop_none

from .turns import (
    AgentRules,
    Turn,
    WritableSession,
    derive_hex,
    derive_uuid,
    encode_line,
    format_iso_time,
)

_Derive: TypeAlias = Callable[[str, str, str], str]

RULES = AgentRules(
    agent="claude-code",
    session_id=re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    call_id=re.compile(r"[A-Za-z0-9_-]{1,128}"),
    tool_name=re.compile(r"[A-Za-z0-9_-]{1,128}"),
    tools={
        "Bash": frozenset({"command"}),
        "Read": frozenset({"file_path"}),
        "Write": frozenset({"file_path", "content"}),
        "Edit": frozenset({"file_path", "old_string", "new_string"}),
        "Glob": frozenset({"pattern"}),
        "Grep": frozenset({"pattern"}),
    },
)


def render_session(conversation: WritableSession) -> Iterator[str]:
    """Yield the lines of the session's file."""
    chain = _LineChain(conversation)
    for turn in conversation.turns:
        if turn.summary:
            yield from chain.render_compaction(turn, turn.summary)
        if turn.role == "user":
            content = {"content": _to_content(turn.texts)}
            yield chain.render_message("user", turn.time, turn.id, content)
        else:
            yield from chain.render_answer(turn)
    if conversation.title and not conversation.is_native:
        title = {"type": "custom-title", "customTitle": conversation.title}
        yield encode_line({**title, "sessionId": conversation.id})


class _LineChain:
    """The lines written so far, each linked to the one before it."""

    def __init__(self, conversation: WritableSession) -> None:
        self.conversation = conversation
        self.parent: str | None = None
        self.count = 0
        self.seen: set[str] = set()

    def render_answer(self, turn: Turn) -> Iterator[str]:
        """Yield an answer and the results of its calls."""
        blocks = [{"type": "text", "text": text} for text in turn.texts]
        blocks += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
            for call in turn.calls
        ]
        message: JsonObject = {
            "id": turn.id or f"msg_{self._derive('message', derive_hex)[:24]}",
            "type": "message",
            "model": turn.model,
            "stop_reason": turn.finish_reason,
        }
        yield self.render_message("assistant", turn.time, None, {**message, "content": blocks})
        # Of a call without a result, Claude Code itself says that it was interrupted.
        for call, result in turn.list_results():
            block: JsonObject = {"type": "tool_result", "tool_use_id": call.id}
            block["content"] = _to_content(result.texts)
            if result.failed:
                block["is_error"] = True
            yield self.render_message("user", result.time, None, {"content": [block]})

    def render_compaction(self, turn: Turn, summary: str) -> Iterator[str]:
        """Yield the boundary of a compaction and the summary of what was before it."""
        before, self.parent = self.parent, None
        metadata = {"trigger": "manual", "preTokens": turn.tokens_before}
        yield self._encode(
            "system",
            turn.time,
            None,
            {
                "subtype": "compact_boundary",
                "content": "Conversation compacted",
                "logicalParentUuid": before,
                "compactMetadata": metadata,
            },
        )
        message = {"role": "user", "content": summary}
        more = {"message": message, "isCompactSummary": True, "isVisibleInTranscriptOnly": True}
        yield self._encode("user", turn.time, None, more)

    def render_message(self, role: str, time: float, id: str | None, message: JsonObject) -> str:
        """Return a line with a message."""
        return self._encode(role, time, id, {"message": drop_none({"role": role, **message})})

    def _encode(self, kind: str, time: float, id: str | None, more: JsonObject) -> str:
        uuid = id if id and id not in self.seen else self._derive("line", derive_uuid)
        line: JsonObject = {
            "parentUuid": self.parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": self.conversation.folder,
            "sessionId": self.conversation.id,
            "gitBranch": self.conversation.session.git_branch or "",
            "type": kind,
            **more,
            "uuid": uuid,
            "timestamp": format_iso_time(time),
        }
        self.parent = uuid
        self.seen.add(uuid)
        self.count += 1
        return encode_line(line)

    def _derive(self, kind: str, derive: _Derive) -> str:
        return derive("claude-code", self.conversation.id, f"{kind} {self.count}")


def _to_content(texts: tuple[str, ...]) -> str | list[JsonObject]:
    if len(texts) == 1:
        return texts[0]
    return [{"type": "text", "text": text} for text in texts]
