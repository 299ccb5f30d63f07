"""What all conversations of a program share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TypeAlias

from ..agent.desk import Desk
from ..agent.model import Model
from ..agent.registry import Toolbox
from ..agent.tools.tool import ToolContext
from ..agent.turn import Limits, Price
from ..routing.key import key_of, rule_for
from ..routing.policy import policy_for
from ..routing.source import LOCAL
from ..types import KeyRule, Layered, Policy, Route, Source

# A message during a turn waits for its own, joins the running one, or stops it.
Arriving: TypeAlias = Literal["queue", "steer", "interrupt"]

PROMPT = (
    "You are a helpful agent. You can use tools; use them instead of guessing. Say what you did and"
    " what came of it, briefly and plainly."
)


def _idle(_: str) -> bool:
    return False


class Office(NamedTuple):
    """The services and settings of a gateway, or of a chat in the terminal.

    `runner` names this program among those that share the store; its leases hold `lease` seconds.
    `tools_for` gives what tools may do in a conversation. `is_busy` tells whether a session has
    running background processes. `platforms` are those connected, `homes` their home channels.
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
    is_busy: Callable[[str], bool] = _idle
    platforms: Iterable[str] = ()
    homes: Iterable[Source] = ()

    def key_of(self, source: Source) -> str:
        """The key of the conversation that a source belongs to."""
        return key_of(source, rule_for(self.key_rules, source))

    def policy_for(self, source: Source) -> Policy:
        return policy_for(self.policies, source)


def owner_of(key: str, source: Source) -> str:
    """Whose the sessions of a conversation are: its key. All terminals of a machine are one owner."""
    return f"agent:main:{LOCAL}:dm" if source.platform == LOCAL else key
