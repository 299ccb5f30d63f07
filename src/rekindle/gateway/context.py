"""What all conversations of a program share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, NamedTuple, TypeAlias

from rekindle.agent.model.client import Model
from rekindle.agent.store_executor import Desk
from rekindle.agent.tools.registry import Toolbox
from rekindle.agent.tools.tool import ToolContext
from rekindle.agent.turn import Limits
from rekindle.learning.warm_start import Starter
from rekindle.routing.key import Slot, join, key_of, rule_for
from rekindle.routing.reset_policy import policy_for
from rekindle.routing.source import LOCAL
from rekindle.types import KeyRule, Layered, Policy, Price, Route, Source, Tokens, Usage

# A message during a turn waits for its own, joins the running one, or stops it.
Arriving: TypeAlias = Literal["queue", "steer", "interrupt"]

PROMPT = (
    "You are a helpful agent. You can use tools; use them instead of guessing. Say what you did and"
    " what came of it, briefly and plainly."
)


async def _idle(owner: str, session: str) -> bool:
    return False


def _nowhere() -> Iterable[Source]:
    return ()


class Office(NamedTuple):
    """The services and settings of a gateway, or of a chat in the terminal.

    `runner` names this program among those that share the store; its leases hold `lease` seconds.
    `tools_for` gives what tools may do in a conversation. `is_busy` tells whether a session of an
    owner has running background processes. `platforms` are those connected, `homes` reads their
    home channels. A letter on which `attempts` programs have died is given up. `starter` warms new
    sessions.
    """

    desk: Desk
    model: Model
    toolbox: Toolbox
    tools_for: Callable[[Route], ToolContext]
    runner: str
    policies: Layered[Policy] = Layered(Policy())
    key_rules: Layered[KeyRule] = Layered(KeyRule())
    lease: float = 30.0
    prompt: str = PROMPT
    limits: Limits = Limits()
    price: Price = Price()
    arriving: Arriving = "queue"
    is_busy: Callable[[str, str], Awaitable[bool]] = _idle
    platforms: Iterable[str] = ()
    homes: Callable[[], Iterable[Source]] = _nowhere
    attempts: int = 3
    starter: Starter | None = None

    def key_of(self, source: Source) -> str:
        """The key of the conversation that a source belongs to."""
        return key_of(source, rule_for(self.key_rules, source))

    def policy_for(self, source: Source) -> Policy:
        return policy_for(self.policies, source)

    def taken(self, tokens: Tokens) -> tuple[str, Usage]:
        """The name of the model, and what these tokens of it are worth."""
        return self.model.endpoint.model, Usage(tokens, self.price.of(tokens))


def owner_of(key: str, source: Source) -> str:
    """Whose the sessions of a conversation are: its key. A person's terminals are one owner."""
    if source.platform != LOCAL:
        return key
    return join(Slot(LOCAL, "dm", user=source.user_id or None))
