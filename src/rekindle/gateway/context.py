"""The services and settings shared by all conversations of a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, NamedTuple, TypeAlias

from rekindle.agent.model.client import Model
from rekindle.agent.tools.registry import Toolbox
from rekindle.agent.tools.tool import ToolContext
from rekindle.agent.turn import Advisor, TurnLimits
from rekindle.learning.warm_start import WarmStarter
from rekindle.routing.key import KeyParts, build_key, get_key_rule, join_key
from rekindle.routing.reset_policy import get_policy
from rekindle.routing.source import LOCAL
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import KeyRule, Overridable, Price, ResetPolicy, Route, Source, Tokens, Usage

# A message that arrives during a turn waits, joins the turn, or stops it.
BusyMode: TypeAlias = Literal["queue", "steer", "interrupt"]

DEFAULT_PROMPT = (
    "You are a helpful agent. You can use tools; use them instead of guessing. Report briefly and"
    " plainly what you did and what the result was."
)


async def _is_never_busy(owner: str, session: str) -> bool:
    return False


def _list_no_homes() -> Iterable[Source]:
    return ()


class GatewayContext(NamedTuple):
    """The services and settings of a gateway, or of a terminal chat.

    `instance` identifies this process among those that share the store; its leases last `lease`
    seconds. `build_tool_context` returns what tools may do in a conversation. `is_busy` returns
    whether a session of an owner has running background processes. `platforms` are the connected
    ones, `homes` reads their home chats. A message is abandoned after `max_attempts` crashes.
    `starter` warms up new sessions, `advise` knows how failures were fixed before.
    """

    executor: StoreExecutor
    model: Model
    toolbox: Toolbox
    build_tool_context: Callable[[Route], ToolContext]
    instance: str
    policies: Overridable[ResetPolicy] = Overridable(ResetPolicy())
    key_rules: Overridable[KeyRule] = Overridable(KeyRule())
    lease: float = 30.0
    prompt: str = DEFAULT_PROMPT
    limits: TurnLimits = TurnLimits()
    price: Price = Price()
    busy_mode: BusyMode = "queue"
    is_busy: Callable[[str, str], Awaitable[bool]] = _is_never_busy
    platforms: Iterable[str] = ()
    homes: Callable[[], Iterable[Source]] = _list_no_homes
    max_attempts: int = 3
    starter: WarmStarter | None = None
    advise: Advisor | None = None

    def build_key(self, source: Source) -> str:
        """Build the key of the conversation that a source belongs to."""
        return build_key(source, get_key_rule(self.key_rules, source))

    def resolve_policy(self, source: Source) -> ResetPolicy:
        """Return the reset policy that applies to a source."""
        return get_policy(self.policies, source)

    def compute_usage(self, tokens: Tokens) -> tuple[str, Usage]:
        """Return the model's name and the usage, with cost, of these tokens."""
        return self.model.endpoint.model, Usage(tokens, self.price.compute_cost(tokens))


def derive_owner(key: str, source: Source) -> str:
    """Derive the owner of a conversation's sessions: its key, or one owner per terminal user."""
    if source.platform != LOCAL:
        return key
    return join_key(KeyParts(LOCAL, "dm", user=source.user_id or None))
