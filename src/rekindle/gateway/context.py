"""The services and settings shared by all conversations of a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from rekindle.agent.model.client import Model
from rekindle.agent.persona import PersonaSettings
from rekindle.agent.tools.registry import Toolbox
from rekindle.agent.tools.tool import ToolContext
from rekindle.agent.turn import Advisor, TurnLimits
from rekindle.config import Config, get_login_name
from rekindle.learning.warm_start import WarmStarter
from rekindle.routing.key import KeyParts, build_key, get_key_rule, join_key
from rekindle.routing.reset_policy import get_policy
from rekindle.routing.source import LOCAL
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import (
    JSON,
    KeyRule,
    Overridable,
    Price,
    ResetPolicy,
    Role,
    Route,
    Session,
    Source,
    Tokens,
    Usage,
)

from .access.gate import Gate
from .monitoring.metrics import Metrics

# A message that arrives during a turn waits, joins the turn, or stops it.
BusyMode: TypeAlias = Literal["queue", "steer", "interrupt"]


async def _is_never_busy(owner: str, session: str) -> bool:
    return False


def _advise_nobody(session: Session, role: Role) -> Advisor:
    return Advisor()


def _describe_nothing() -> Mapping[str, JSON]:
    return {}


def _list_no_homes() -> Iterable[Source]:
    return ()


class GatewayContext(NamedTuple):
    """The services and settings of a gateway, or of a terminal chat.

    `instance` identifies this process among those that share the store; its leases last `lease`
    seconds. `build_tool_context` returns what tools may do for a role in a conversation. `is_busy`
    returns whether a session of an owner has running background processes. `platforms` are the connected
    ones, `homes` reads their home chats. A message is abandoned after `max_attempts` crashes.
    `starter` warms up new sessions, `create_advisor` returns what a turn of a role is advised with
    when a call fails. `gate` decides who may talk; a terminal has none. A question to an owner about
    a tool call is open for `approval_seconds`. `metrics` counts what happens. `persona` makes
    the system prompt; `describe_session` returns what is stored with a new session: folder, branch,
    model settings.
    `program` is what holds sessions here, a gateway or a terminal. If another program holds the
    session of a conversation, wait for `session_wait` seconds, then go on in a copy; without a number,
    keep a session until another one is opened, and refuse one that another program holds.
    """

    executor: StoreExecutor
    model: Model
    toolbox: Toolbox
    build_tool_context: Callable[[Route, Role], ToolContext]
    instance: str
    policies: Overridable[ResetPolicy] = Overridable(ResetPolicy())
    key_rules: Overridable[KeyRule] = Overridable(KeyRule())
    lease: float = 30.0
    persona: PersonaSettings = PersonaSettings()
    limits: TurnLimits = TurnLimits()
    price: Price = Price()
    busy_mode: BusyMode = "queue"
    is_busy: Callable[[str, str], Awaitable[bool]] = _is_never_busy
    platforms: Iterable[str] = ()
    shared_platforms: frozenset[str] = frozenset()  # where anyone can write to the bot
    homes: Callable[[], Iterable[Source]] = _list_no_homes
    max_attempts: int = 3
    starter: WarmStarter | None = None
    create_advisor: Callable[[Session, Role], Advisor] = _advise_nobody
    gate: Gate | None = None
    approval_seconds: float = 600.0
    metrics: Metrics = Metrics()
    describe_session: Callable[[], Mapping[str, JSON]] = _describe_nothing
    program: str = "gateway"
    session_wait: float | None = 20.0

    def build_key(self, source: Source, role: Role = "owner") -> str:
        """Build the key of the conversation that a source belongs to.

        Only owners may share the one conversation of all direct messages.
        """
        rule = get_key_rule(self.key_rules, source)
        if role != "owner" or source.platform in self.shared_platforms:
            rule = rule._replace(direct="shared")
        return build_key(source, rule)

    def find_owner(self, source: Source) -> str | None:
        """Return who owns the direct conversations of a linked person; this blocks on the store."""
        return None if self.gate is None else self.gate.find_owner(source)

    def resolve_policy(self, source: Source) -> ResetPolicy:
        """Return the reset policy that applies to a source."""
        return get_policy(self.policies, source)

    def compute_usage(self, tokens: Tokens) -> tuple[str, Usage]:
        """Return the model's name and the usage, with cost, of these tokens."""
        return self.model.endpoint.model, Usage(tokens, self.price.compute_cost(tokens))


def get_owner(route: Route) -> str:
    """Return the owner of a route's sessions."""
    return route.owner or derive_owner(route.key, route.origin)


def derive_owner(key: str, source: Source) -> str:
    """Derive the owner of a conversation's sessions: its key, or one owner per terminal user."""
    if source.platform != LOCAL:
        return key
    return join_key(KeyParts(LOCAL, "dm", user=source.user_id or None))


def get_terminal_owner(config: Config) -> str:
    """Return the owner of this user's terminal chats."""
    user = config.chat.owner or get_login_name()
    return derive_owner("", Source(LOCAL, "terminal", user_id=user))
