"""Define what a tool is, its context, and its result."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from rekindle.sandbox.sandbox import Sandbox
from rekindle.types import JSON, Message, ToolCall

if TYPE_CHECKING:
    from rekindle.store import Store

# What a tool can do.
Ability: TypeAlias = Literal[
    "read_files",
    "write_files",
    "run_code",
    "reach_network",
    "reach_people",
    "remember",
    "change_rekindle",
]
ALL_ABILITIES: frozenset[Ability] = frozenset(
    (
        "read_files",
        "write_files",
        "run_code",
        "reach_network",
        "reach_people",
        "remember",
        "change_rekindle",
    )
)
# Those that change nothing and reach nobody: what a stranger may use.
HARMLESS_ABILITIES: frozenset[Ability] = frozenset(("read_files",))
# Which calls need a person's approval: all that act; dangerous ones; none, refusing dangerous ones;
# none, running everything.
Approval: TypeAlias = Literal["always", "dangerous", "refuse", "never"]
# A person's answer: no, this time, or until the end of the session.
Answer: TypeAlias = Literal["no", "once", "session"]

RESULT_CHARACTERS = 30_000
CALL_SECONDS = 120.0


class ApprovalRequest(NamedTuple):
    """A request to approve a call. `command` says what it does, `reasons` why it needs approval."""

    tool: str
    command: str
    workdir: str
    reasons: tuple[str, ...]


# Asks a person; True stands for "once", False for "no".
Approver: TypeAlias = Callable[[ApprovalRequest], Awaitable[Answer | bool]]


class PermissionRules(NamedTuple):
    """Rules that a person wrote: calls that need no approval, and calls that are always refused."""

    allow: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()


class ToolContext(NamedTuple):
    """The session, folders and permissions that a tool runs with.

    `folders` are those that file tools may read and write; if empty, only `cwd`. `approve` asks a
    person; None if nobody can be asked. `environment` is that of our own process: commands get it
    without anything that looks like a secret, except the names in `pass_on`. `notes` belongs to the
    session and lives as long as its owner keeps it. `stop` is set when the call ends early, for
    handlers that run in a thread. `address` says where reports about background processes go, in a
    format of the deliverer; if empty, to the session itself. `abilities` are those that the session's
    tools may have. `sandbox` confines commands and code; None: the best that works on this machine.
    `granted` holds the rules that a person allowed for this session.
    """

    session: str
    cwd: Path
    owner: str | None = None
    folders: tuple[Path, ...] = ()
    approval: Approval = "dangerous"
    approve: Approver | None = None
    store: Store | None = None
    environment: Mapping[str, str] = {}
    pass_on: frozenset[str] = frozenset()
    notes: MutableMapping[str, JSON] | None = None
    stop: threading.Event | None = None
    address: str = ""
    abilities: frozenset[Ability] = ALL_ABILITIES
    rules: PermissionRules = PermissionRules()
    granted: set[str] | None = None
    sandbox: Sandbox | None = None

    @property
    def roots(self) -> tuple[Path, ...]:
        return self.folders or (self.cwd,)


class ToolResult(NamedTuple):
    """The text for the model, and metadata of the call (`is_error`, `exit_code`, …)."""

    content: str
    meta: Mapping[str, JSON] = {}

    @property
    def is_error(self) -> bool:
        return self.meta.get("is_error") is True

    def to_message(self, call: ToolCall) -> Message:
        """Return the result as the reply to `call`."""
        return Message(
            role="tool",
            content=self.content,
            tool_call_id=call.id,
            name=call.name,
            meta=dict(self.meta) or None,
        )


def build_failure(message: str, **meta: JSON) -> ToolResult:
    """Build a result that reports an error."""
    content = json.dumps({"error": message}, ensure_ascii=False)
    return ToolResult(content, {"is_error": True, **meta})


HandlerResult: TypeAlias = str | ToolResult
Handler: TypeAlias = Callable[
    [ToolContext, Mapping[str, JSON]], HandlerResult | Awaitable[HandlerResult]
]


class CallAssessment(NamedTuple):
    """What one call would do: in words, in which folder, and why a person should be asked first.

    `command` is also what rules are compared with. A call that does not `act` only reads.
    """

    command: str
    reasons: tuple[str, ...] = ()
    workdir: str = ""
    acts: bool = True


Assessor: TypeAlias = Callable[[ToolContext, Mapping[str, JSON]], CallAssessment]


def require_nothing(context: ToolContext) -> str | None:
    """Return None: the availability check of a tool that needs nothing."""
    return None


class Tool(NamedTuple):
    """A function that a model can call.

    `parameters` is the JSON schema of its arguments, which are checked before `handler` runs. `missing`
    returns what the tool lacks in a context, None if it is available. A call is stopped after `seconds`
    (None: the handler has its own limits), and its result is truncated to `characters`. `abilities` is
    everything that it can do, `assess` what one call would do (None: all of it, with no reason to ask).
    """

    name: str
    toolset: str
    description: str
    parameters: Mapping[str, JSON]
    handler: Handler
    missing: Callable[[ToolContext], str | None] = require_nothing
    emoji: str = "🔧"
    seconds: float | None = CALL_SECONDS
    characters: int = RESULT_CHARACTERS
    abilities: frozenset[Ability] = frozenset()
    assess: Assessor | None = None


def build_schema(*required: str, **properties: Mapping[str, JSON]) -> dict[str, JSON]:
    """Build the JSON schema of a tool that takes these arguments and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }
