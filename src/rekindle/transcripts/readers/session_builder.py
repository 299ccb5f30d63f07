"""One answer of a model, gathered from the several lines that a format spreads it over."""

from __future__ import annotations

from collections.abc import Mapping

from rekindle.json_fields import Record, content, present, text_part
from rekindle.types import JSON, Message, ToolCall


class Turn:
    """The parts of one answer, and what came meanwhile: results of its calls, prompts."""

    def __init__(self, id: str, timestamp: float | None) -> None:
        self.id = id
        self.timestamp = timestamp
        self.parts: list[dict[str, JSON]] = []
        self.thoughts: list[str] = []
        self.calls: dict[str, ToolCall] = {}
        self.results: list[Message] = []
        self.prompts: list[Message] = []
        self.finish: str | None = None
        self.usage: Record = {}  # as its last line tells it
        self.facts: dict[str, JSON] = {}

    @property
    def speaks(self) -> bool:
        """Whether there is anything but thoughts in it."""
        return bool(self.parts or self.calls)

    def add_text(self, value: str) -> None:
        self.add_part(text_part(value))

    def add_part(self, part: Mapping[str, JSON]) -> None:
        # A resumed session writes earlier lines once more: the same part twice is a copy.
        if part not in self.parts:
            self.parts.append(dict(part))

    def add_thought(self, value: str) -> None:
        if value not in self.thoughts:
            self.thoughts.append(value)

    def add_call(self, call: ToolCall) -> None:
        self.calls.setdefault(call.id, call)

    def message(self) -> Message:
        return Message(
            role="assistant",
            content=content(self.parts),
            tool_calls=tuple(self.calls.values()),
            reasoning="\n\n".join(self.thoughts) or None,
            finish_reason=self.finish,
            platform_message_id=self.id,
            meta=present(self.facts),
            timestamp=self.timestamp,
        )
