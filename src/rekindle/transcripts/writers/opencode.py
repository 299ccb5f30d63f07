"""OpenCode writer: the document that `opencode import` takes.

OpenCode puts all steps of a turn into one message and a call's result into the call's part. Ids grow
with time, because OpenCode compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.json_fields import JsonObject, drop_none
from rekindle.types import MAX_TITLE_CHARS

from .turns import (
    AgentRules,
    Turn,
    TurnCall,
    WritableSession,
    derive_hex,
    encode_document,
    to_milliseconds,
)

RULES = AgentRules(
    agent="opencode",
    session_id=re.compile(r"ses_[A-Za-z0-9]{1,64}"),
    call_id=re.compile(r"[A-Za-z0-9_.:|-]{1,128}"),
    tool_name=re.compile(r"[A-Za-z0-9_.-]{1,128}"),
    tools={
        "bash": frozenset({"command"}),
        "read": frozenset({"filePath"}),
        "write": frozenset({"filePath", "content"}),
        "edit": frozenset({"filePath", "oldString", "newString"}),
        "glob": frozenset({"pattern"}),
        "grep": frozenset({"pattern"}),
    },
    session_prefix="ses_",
)
_MESSAGE_ID = re.compile(r"(msg_[A-Za-z0-9]{1,64})(:\d{1,9})?")
_TIME_BITS, _COUNTER_STEP = 48, 0x1000
_MAX_TITLE_LENGTH = 100
_AGENT = "build"  # OpenCode's default agent


def render_session(conversation: WritableSession) -> Iterator[str]:
    """Yield the document."""
    session = conversation.session
    created, updated = to_milliseconds(session.started), to_milliseconds(session.last_active)
    title = conversation.title or " ".join((session.preview or "").split()) or "Untitled session"
    title = title[:MAX_TITLE_CHARS]
    info = {
        "id": conversation.id,
        "slug": conversation.id.removeprefix("ses_").lower(),
        "projectID": "global",  # replaced by the import
        "directory": conversation.folder,
        "title": title[:_MAX_TITLE_LENGTH],
        "version": "0.0.0",
        "time": {"created": created, "updated": max(created, updated)},
    }
    messages = list(_OpenCodeMessages(conversation).build_messages())
    yield encode_document({"info": info, "messages": messages}) + "\n"


class _OpenCodeMessages:
    """The messages built so far, and the ids that the next ones refer to."""

    def __init__(self, conversation: WritableSession) -> None:
        self.conversation = conversation
        self.prompt_id = ""
        self.last_value = 0
        self.copied_ids: dict[str, str] = {}
        self.model = {
            "providerID": conversation.provider or "unknown",
            "modelID": conversation.session.model or "unknown",
        }

    def build_messages(self) -> Iterator[JsonObject]:
        """Yield the messages; the steps of one answer share a message."""
        current: JsonObject | None = None
        for turn in self.conversation.turns:
            compaction = list(self._build_compaction(turn))  # its ids come first
            id, is_step = self._choose_id(turn)
            if is_step and current is not None and current["info"]["id"] == id:
                parts: list[JsonObject] = current["parts"]
                self._add_parts(id, parts, [{"type": "step-start"}, *_build_parts(turn)])
                continue
            if current is not None:
                yield current
            yield from compaction
            current = self._build_message(id, turn.role, turn.time, _build_parts(turn))
            if turn.role == "assistant" and turn.finish_reason:
                current["info"]["finish"] = turn.finish_reason
        if current is not None:
            yield current

    def _build_message(
        self, id: str, role: str, time: float, parts: Iterator[JsonObject]
    ) -> JsonObject:
        created = to_milliseconds(time)
        info: JsonObject = {
            "id": id,
            "sessionID": self.conversation.id,
            "role": role,
            "time": {"created": created},
            "agent": _AGENT,
        }
        if role == "user":
            self.prompt_id = id
            info["model"] = self.model
        else:
            folder = self.conversation.folder
            info["time"]["completed"] = created
            info.update(parentID=self.prompt_id or id, mode=_AGENT, **self.model)
            info.update(path={"cwd": folder, "root": folder}, cost=0)
            cache = {"read": 0, "write": 0}
            info["tokens"] = {"input": 0, "output": 0, "reasoning": 0, "cache": cache}
        message: JsonObject = {"info": info, "parts": []}
        self._add_parts(id, message["parts"], parts)
        return message

    def _add_parts(
        self, message: str, parts: list[JsonObject], new: Iterator[JsonObject] | list[JsonObject]
    ) -> None:
        for part in new:
            id = f"prt_{message.removeprefix('msg_')}{len(parts):06d}"
            owner = {"sessionID": self.conversation.id, "messageID": message}
            parts.append({"id": id, **owner, **part})

    def _build_compaction(self, turn: Turn) -> Iterator[JsonObject]:
        """Yield the request for a compaction and its summary, which OpenCode resumes from."""
        if not turn.summary:
            return
        # Messages are sorted by time: these come right before the turn.
        asked, answered = turn.time - 0.002, turn.time - 0.001
        parts = iter([{"type": "compaction", "auto": False}])
        yield self._build_message(self._derive_id(asked), "user", asked, parts)
        parts = iter([{"type": "text", "text": turn.summary}])
        answer = self._build_message(self._derive_id(answered), "assistant", answered, parts)
        answer["info"].update(summary=True, finish="stop", mode="compaction", agent="compaction")
        yield answer

    def _choose_id(self, turn: Turn) -> tuple[str, bool]:
        """Return the id of the turn's message, and whether the turn is a later step of it."""
        found = _MESSAGE_ID.fullmatch(turn.id or "")
        if found is None:
            return self._derive_id(turn.time), False
        if self.conversation.id == self.conversation.session.id:
            return found[1], found[2] is not None
        # OpenCode has every id once, and may still have the session that this is a copy of.
        if found[1] not in self.copied_ids:
            self.copied_ids[found[1]] = self._derive_id(turn.time)
        return self.copied_ids[found[1]], found[2] is not None

    def _derive_id(self, time: float) -> str:
        value = (to_milliseconds(time) * _COUNTER_STEP) % (1 << _TIME_BITS)
        self.last_value = value if value > self.last_value else self.last_value + 1
        digits = derive_hex("opencode", self.conversation.id, f"{self.last_value}")
        return f"msg_{self.last_value % (1 << _TIME_BITS):012x}{digits[:14]}"


def _build_parts(turn: Turn) -> Iterator[JsonObject]:
    for text in turn.texts:
        yield {"type": "text", "text": text}
    for call in turn.calls:
        yield {"type": "tool", "tool": call.name, "callID": call.id, "state": _build_state(call)}


def _build_state(call: TurnCall) -> JsonObject:
    result = call.result
    if result is None:
        return {"status": "pending", "input": call.arguments, "raw": ""}
    output, moment = "\n".join(result.texts), to_milliseconds(result.time)
    state: JsonObject = {"input": call.arguments, "time": {"start": moment, "end": moment}}
    if result.failed:
        return {"status": "error", **state, "error": output}
    metadata = drop_none({"exit": result.exit_code}) or {}
    return {"status": "completed", **state, "output": output, "title": "", "metadata": metadata}
