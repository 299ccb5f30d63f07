"""What the operator decides about people, at the command line or on the page."""

from __future__ import annotations

from rekindle.errors import InvalidInput
from rekindle.store import Store
from rekindle.store.conversations.people import DENIED, Identity

from .rules import ROLES, parse_allowed

MAX_WRONG_CODES = 10  # per hour


def parse_user(text: str) -> tuple[str, str]:
    """Parse PLATFORM:USER; user ids may contain colons."""
    platform, colon, user_id = text.partition(":")
    if not colon or not platform or not user_id:
        raise InvalidInput(f"{text!r:.80} is not PLATFORM:USER, such as telegram:123456")
    return platform, user_id


def accept_user(store: Store, user: str, role: str, name: str = "") -> Identity:
    """Let someone talk to the gateway, or change their role."""
    platform, user_id = parse_user(user)
    return store.people.set_role(platform, user_id, _check_role(role), name=name)


def refuse_user(store: Store, user: str) -> Identity:
    """Stop someone from talking to the gateway."""
    platform, user_id = parse_user(user)
    return store.people.set_role(platform, user_id, DENIED)


def pair_user(store: Store, code: str, role: str) -> Identity:
    """Allow the person who was sent a code; wrong codes are limited."""
    if store.people.count_wrong_codes(3600.0) >= MAX_WRONG_CODES:
        raise InvalidInput(
            f"{MAX_WRONG_CODES} wrong codes within an hour: try again later, or use"
            " `rekindle gateway allow`"
        )
    return store.people.approve(code, _check_role(role))


def list_allowed(setting: str) -> list[dict[str, str]]:
    """Return who is allowed by the setting `gateway.allow`."""
    allowed = parse_allowed(setting)
    return [{"user": f"{platform}:{id}", "role": role} for (platform, id), role in allowed.items()]


def _check_role(role: str) -> str:
    if role not in ROLES:
        raise InvalidInput(f"unknown role {role!r:.40}; use {', '.join(ROLES)}")
    return role
