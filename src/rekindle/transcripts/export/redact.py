"""Remove secrets and personal data from sessions and messages before they are written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from rekindle.redaction.redactor import Redactor
from rekindle.types import Content, JudgedCall, Message, Session, ToolCall, replace_fields

from .common import find_image

_TEXT_FIELDS = (
    "source", "owner", "user", "model", "title", "cwd", "git_branch", "repository", "project",
    "preview", "last_request", "sub_agent", "template", "end_reason",
)  # fmt: skip
IMAGE_NOTE = "[image removed]"  # nobody can tell what it shows


class SessionRedactor:
    """Redacts sessions and messages, and counts what it removed; the ids of sessions stay."""

    def __init__(self, redactor: Redactor, *, keeps_images: bool = False) -> None:
        self._redactor = redactor
        self._keeps_images = keeps_images
        self.images = 0  # that were removed

    def count_removed(self) -> dict[str, int]:
        """Return how much was removed, by kind, the most frequent first."""
        counts: dict[str, int] = {}
        for (kind, _), count in self._redactor.report.items():
            counts[kind] = counts.get(kind, 0) + count
        ordered = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
        return {**ordered, "image": self.images} if self.images else ordered

    def redact_session(self, session: Session) -> Session:
        """Return the session with its texts redacted."""
        changes: dict[str, Any] = {
            name: self._redactor.redact_text(text, "session")
            for name in _TEXT_FIELDS
            if isinstance(text := getattr(session, name), str)
        }
        config = self._redactor.redact_value(session.model_config, "session")
        return replace_fields(session, **changes, model_config=config)

    def redact_messages(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield the messages with their texts, arguments, results and metadata redacted."""
        return map(self.redact_message, messages)

    def redact_message(self, message: Message) -> Message:
        """Return the message without secrets."""
        where = "results" if message.role == "tool" else "messages"
        redact = self._redactor.redact_text
        name, reasoning, call_id = message.name, message.reasoning, message.tool_call_id
        return replace_fields(
            message,
            content=self._redact_content(message.content, where),
            name=redact(name, where) if name else name,
            tool_call_id=redact(call_id, where) if call_id else call_id,
            reasoning=redact(reasoning, "reasoning") if reasoning else reasoning,
            tool_calls=tuple(map(self._redact_call, message.tool_calls)),
            meta=self._redactor.redact_value(message.meta, where),
        )

    def redact_judged_call(self, call: JudgedCall) -> JudgedCall:
        """Return the judged call with its id and tool redacted."""
        redact = self._redactor.redact_text
        id, tool = redact(call.id, "arguments"), redact(call.tool, "arguments")
        return call._replace(id=id, tool=tool)

    def redact_record(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record of an export in JSON Lines without secrets."""
        redacted: dict[str, Any] = {}
        where = "results" if record.get("role") == "tool" else "messages"
        for name, value in record.items():
            if name in _KEPT_FIELDS:
                redacted[name] = value
            elif name == "content":
                redacted[name] = self._redact_content(value, where)
            elif name == "tool_calls":
                redacted[name] = [self._redact_call_record(call) for call in value]
            elif name == "messages" and isinstance(value, list):
                redacted[name] = [self.redact_record(one) for one in cast("list[Any]", value)]
            else:
                redacted[name] = self._redactor.redact_value(value, where)
        return redacted

    def _redact_call_record(self, call: Mapping[str, Any]) -> dict[str, Any]:
        id, name, arguments = self._redact_call(
            ToolCall(call.get("id", ""), call.get("name", ""), call.get("arguments", ""))
        )
        return {**call, "id": id, "name": name, "arguments": arguments}

    def _redact_content(self, content: Content, where: str) -> Content:
        if isinstance(content, str):
            return self._redactor.redact_text(content, where)
        if content is None:
            return None
        return [self._redact_part(part, where) for part in content]

    def _redact_part(self, part: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        if part.get("type") in ("image", "image_url", "input_image") or "image_url" in part:
            if self._keeps_images and (image := find_image(part)):
                return {"type": "image_url", "image_url": {"url": image}}
            self.images += 1
            return {"type": "text", "text": IMAGE_NOTE}
        return cast("Mapping[str, Any]", self._redactor.redact_value(part, where))

    def _redact_call(self, call: ToolCall) -> ToolCall:
        redact = self._redactor.redact_text
        id, name = redact(call.id, "arguments"), redact(call.name, "arguments")
        given = call.arguments
        if isinstance(given, str):
            parsed = _parse_object(given)
            if parsed is None:
                return ToolCall(id, name, redact(given, "arguments"))
            # By fields: text inside JSON has escapes that hide where a value ends.
            redacted = self._redactor.redact_value(parsed, "arguments")
            text = given if redacted == parsed else json.dumps(redacted, ensure_ascii=False)
            return ToolCall(id, name, text)
        return ToolCall(
            id, name, cast("Mapping[str, Any]", self._redactor.redact_value(given, "arguments"))
        )


_KEPT_FIELDS = frozenset(
    (
        "type",
        "format",
        "id",
        "parent",
        "role",
        "position",
        "timestamp",
        "rewound",
        "started",
        "tokens",
    )
)


def redact_line(line: bytes, redactor: SessionRedactor) -> bytes:
    """Return a line of an export in JSON Lines without secrets; the ids of sessions stay."""
    record = json.loads(line)
    return json.dumps(redactor.redact_record(record), separators=(",", ":")).encode() + b"\n"


def _parse_object(text: str) -> object:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
