"""What a tool is, what it is given, and what it gives back."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from rekindle.types import JSON, Message, ToolCall

if TYPE_CHECKING:
    from rekindle.store import Store

# When a person is asked before a command runs: before every one; before a dangerous one; never,
# dangerous ones are refused; never, everything runs (for sandboxes that may be thrown away).
Approval: TypeAlias = Literal["always", "dangerous", "refuse", "never"]

RESULT_CHARACTERS = 30_000
CALL_SECONDS = 120.0


class Question(NamedTuple):
    """What a person is asked: may this command run? `reasons` say why it is not just run."""

    tool: str
    command: str
    workdir: str
    reasons: tuple[str, ...]


Approve: TypeAlias = Callable[[Question], Awaitable[bool]]


class ToolContext(NamedTuple):
    """Where and for whom a tool works.

    `folders` are where file tools may read and write; without any it is `cwd`. `approve` asks a
    person; None where nobody can be asked. `environment` is that of our own process: commands get
    it without what looks like a secret, except the names in `pass_on`. `notes` belongs to the
    session and lives as long as its owner keeps it. `stop` is set when the call was given up, for
    handlers that run in a thread. `address` says where reports about what is left running go, in
    words of whoever delivers them; the session itself if it is empty.
    """

    session: str
    cwd: Path
    owner: str | None = None
    folders: tuple[Path, ...] = ()
    approval: Approval = "dangerous"
    approve: Approve | None = None
    store: Store | None = None
    environment: Mapping[str, str] = {}
    pass_on: frozenset[str] = frozenset()
    notes: MutableMapping[str, JSON] | None = None
    stop: threading.Event | None = None
    address: str = ""

    @property
    def roots(self) -> tuple[Path, ...]:
        return self.folders or (self.cwd,)


class ToolResult(NamedTuple):
    """What the model sees, and what the protocol says beside it (`is_error`, `exit_code`, …)."""

    content: str
    meta: Mapping[str, JSON] = {}

    @property
    def failed(self) -> bool:
        return self.meta.get("is_error") is True

    def message(self, call: ToolCall) -> Message:
        """The result as the answer to `call`."""
        return Message(
            role="tool",
            content=self.content,
            tool_call_id=call.id,
            name=call.name,
            meta=dict(self.meta) or None,
        )


def failure(message: str, **meta: JSON) -> ToolResult:
    """A result that says what went wrong."""
    content = json.dumps({"error": message}, ensure_ascii=False)
    return ToolResult(content, {"is_error": True, **meta})


Answer: TypeAlias = str | ToolResult
Handler: TypeAlias = Callable[[ToolContext, Mapping[str, JSON]], Answer | Awaitable[Answer]]


def anywhere(context: ToolContext) -> str | None:
    """The availability check of a tool that needs nothing."""
    return None


class Tool(NamedTuple):
    """Something a model can call.

    `parameters` is the JSON schema of its arguments, which are checked before `handler` runs.
    `missing` tells what the tool lacks to work in a context, None when it lacks nothing. A call
    ends after `seconds` (None: the handler has limits of its own), and its result is cut to
    `characters`.
    """

    name: str
    toolset: str
    description: str
    parameters: Mapping[str, JSON]
    handler: Handler
    missing: Callable[[ToolContext], str | None] = anywhere
    emoji: str = "🔧"
    seconds: float | None = CALL_SECONDS
    characters: int = RESULT_CHARACTERS


def schema(*required: str, **properties: Mapping[str, JSON]) -> dict[str, JSON]:
    """The JSON schema of a tool that takes these arguments and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }
