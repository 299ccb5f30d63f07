"""The access rules in the settings: who is allowed by name, and the daily limits of each role."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple, cast, get_args

from rekindle.agent.turn import format_cost
from rekindle.errors import InvalidSetting
from rekindle.store.conversations.people import DailyUsage
from rekindle.types import Role

ROLES: tuple[str, ...] = get_args(Role)
ANYONE = "*"


class DailyLimits(NamedTuple):
    """What a person may use per day (UTC); 0 means no limit."""

    turns: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)

    def find_exceeded(self, usage: DailyUsage) -> str | None:
        """Describe the limit that is used up, if any."""
        if self.turns and usage.turns >= self.turns:
            return f"{self.turns:,} messages"
        if self.tokens and usage.tokens >= self.tokens:
            return f"{self.tokens:,} tokens"
        if self.cost and usage.cost >= self.cost:
            return f"a cost of {format_cost(self.cost)}"
        return None

    def describe_usage(self, usage: DailyUsage) -> str:
        """Describe how much of each limit is used."""
        parts: list[str] = []
        if self.turns:
            parts.append(f"{usage.turns:,} of {self.turns:,} messages")
        if self.tokens:
            parts.append(f"{usage.tokens:,} of {self.tokens:,} tokens")
        if self.cost:
            parts.append(f"a cost of {format_cost(usage.cost)} of {format_cost(self.cost)}")
        return f"{', '.join(parts)} today" if parts else ""


class AccessRules(NamedTuple):
    """Who may talk by the settings, by platform and user, and the limits by role."""

    allowed: Mapping[tuple[str, str], Role] = {}
    limits: Mapping[str, DailyLimits] = {}
    pairing: bool = True

    def find_role(self, platform: str, user_id: str | None) -> Role | None:
        """Return the role that the settings give a user, or None for a stranger."""
        return self.allowed.get((platform, user_id or "")) or self.allowed.get((platform, ANYONE))


def get_rank(role: str) -> int:
    """Return the rank of a role: the higher, the more it may do."""
    return -ROLES.index(role)


def parse_allowed(text: str) -> dict[tuple[str, str], Role]:
    """Parse the setting `gateway.allow`; user ids may contain colons and equals signs."""
    allowed: dict[tuple[str, str], Role] = {}
    for entry in text.split():
        user, equals, role = entry.rpartition("=")
        if not equals or role not in ROLES:
            user, role = entry, "user"
        platform, _, user_id = user.partition(":")
        if not platform or not user_id:
            raise InvalidSetting(
                f"gateway.allow: {entry!r:.80} is not PLATFORM:USER or PLATFORM:USER=ROLE"
                f" (roles: {', '.join(ROLES)})"
            )
        allowed[platform, user_id] = cast(Role, role)
    return allowed
