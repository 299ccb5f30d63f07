"""Builder for one model answer that a format spreads over several lines."""

from __future__ import annotations

from collections.abc import Mapping

from rekindle.json_fields import JsonObject, drop_none, make_text_part, to_content
from rekindle.types import JSON, Message, ToolCall


class AnswerBuilder:
    """The parts of one answer, plus the tool results and prompts that arrived in the meantime."""

    def __init__(self, id: str, timestamp: float | None) -> None:
        self.id = id
        self.timestamp = timestamp
        self.parts: list[dict[str, JSON]] = []
        self.reasoning: list[str] = []
        self.calls: dict[str, ToolCall] = {}
        self.results: list[Message] = []
        self.prompts: list[Message] = []
        self.finish_reason: str | None = None
        self.usage: JsonObject = {}  # from the answer's last line
        self.meta: dict[str, JSON] = {}

    @property
    def has_output(self) -> bool:
        """Whether the answer has content or tool calls, not only reasoning."""
        return bool(self.parts or self.calls)

    def add_text(self, value: str) -> None:
        self.add_part(make_text_part(value))

    def add_part(self, part: Mapping[str, JSON]) -> None:
        # A resumed session repeats earlier lines: an identical part is a copy.
        if part not in self.parts:
            self.parts.append(dict(part))

    def add_reasoning(self, value: str) -> None:
        if value not in self.reasoning:
            self.reasoning.append(value)

    def add_call(self, call: ToolCall) -> None:
        self.calls.setdefault(call.id, call)

    def build(self) -> Message:
        """Return the answer as one message."""
        return Message(
            role="assistant",
            content=to_content(self.parts),
            tool_calls=tuple(self.calls.values()),
            reasoning="\n\n".join(self.reasoning) or None,
            finish_reason=self.finish_reason,
            platform_message_id=self.id,
            meta=drop_none(self.meta),
            timestamp=self.timestamp,
        )
