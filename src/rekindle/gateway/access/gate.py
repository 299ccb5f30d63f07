"""The gate of the gateway: decides about every message before it is stored.

Nobody may talk until the operator allows it, in the settings or with `rekindle gateway allow`. A
stranger's message is not stored and not answered. Only in a direct message, and only once in a
while, a stranger is sent a pairing code, with which the operator can let them in.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from datetime import UTC, datetime
from time import monotonic
from typing import NamedTuple, cast

from rekindle.routing.sanitize import clean_text
from rekindle.routing.source import LOCAL
from rekindle.store.conversations.links import LinkedIdentity, Links
from rekindle.store.conversations.people import DENIED, Identity, People, make_person
from rekindle.types import Role, Source, Usage

from .rules import ROLES, AccessRules

logger = logging.getLogger(__name__)

CODE_SECONDS = 3600.0
REQUEST_PAUSE = 600.0  # seconds until a stranger is sent another code
MAX_PENDING = 50  # open requests per platform
LOG_PAUSE = 600.0  # seconds until another message of the same stranger is logged
_MAX_LOGGED = 10_000  # strangers remembered for that
_CODE_CHARS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"  # without those that look alike
_CODE_LENGTH = 8


def make_code() -> str:
    """Make a random code that a person can type."""
    return "".join(secrets.choice(_CODE_CHARS) for _ in range(_CODE_LENGTH))


class Admission(NamedTuple):
    """Whether a message is let in: the sender's role, or None with a text to send them, if any."""

    role: Role | None
    reply: str = ""


class Gate:
    """Decides who may talk, and counts what people use per day. Its methods block on the store."""

    def __init__(self, people: People, rules: AccessRules, links: Links | None = None) -> None:
        self._people = people
        self._links = links
        self._rules = rules
        self._logged: OrderedDict[tuple[str, str], float] = OrderedDict()

    def check(self, source: Source) -> Admission:
        """Decide about a message from a source."""
        identity = self._find_identity(source)
        role = self._get_role(source, identity)
        if role is not None and source.platform != LOCAL:
            return Admission(role)
        return Admission(None, self._refuse_stranger(source, identity))

    def find_role(self, source: Source) -> Role | None:
        """Return the role of the speaker now, or None if they may not talk."""
        return self._get_role(source, self._find_identity(source))

    def find_exceeded_limit(self, source: Source, role: Role) -> str | None:
        """Describe the daily limit that a person has used up, if any."""
        limits = self._rules.limits.get(role)
        if limits is None or not any(limits):
            return None
        person, day = self.find_person(source), _get_day()
        return limits.find_exceeded(self._people.get_usage(person, day))

    def describe_limits(self, source: Source, role: Role) -> str:
        """Describe how much of their daily limits a person has used, or return an empty text."""
        limits = self._rules.limits.get(role)
        if limits is None or not any(limits):
            return ""
        return limits.describe_usage(self._people.get_usage(self.find_person(source), _get_day()))

    def record_turn(self, person: str) -> None:
        """Count a turn that a person caused; for use in the transaction that ends it."""
        self._people.add_usage(person, _get_day(), Usage(), turns=1)

    def record_usage(self, person: str, usage: Usage) -> None:
        """Count a person's usage; for use in the transaction that counts it elsewhere."""
        self._people.add_usage(person, _get_day(), usage)

    def _get_role(self, source: Source, identity: Identity | None) -> Role | None:
        if source.platform == LOCAL:  # the operator, whose jobs run here
            return "owner"
        if identity is not None and identity.role == DENIED:
            return None
        if (link := self._find_link(source)) is not None:  # the role of the person
            source = _parse_person(link.person or "")
            identity = self._find_identity(source)
        if identity is not None and identity.role is not None:
            return cast(Role, identity.role) if identity.role in ROLES else None
        return self._rules.find_role(source.platform, source.user_id)

    def _find_identity(self, source: Source) -> Identity | None:
        if not source.user_id:
            return None
        return self._people.find(source.platform, source.user_id)

    def _find_link(self, source: Source) -> LinkedIdentity | None:
        if self._links is None or not source.user_id:
            return None
        link = self._links.find(source.platform, source.user_id)
        return link if link is not None and link.person is not None else None

    def find_owner(self, source: Source) -> str | None:
        """Return who owns the sessions of a linked person's direct messages, else None."""
        link = self._find_link(source) if source.chat_type == "dm" else None
        return link.owner if link else None

    def find_unlinked_role(self, source: Source) -> Role | None:
        """Return the role that an identity has by itself."""
        return Gate(self._people, self._rules).find_role(source)

    def find_person(self, source: Source) -> str:
        """Return the person whom an identity belongs to."""
        link = self._find_link(source)
        return (link and link.person) or make_person(source)

    def _refuse_stranger(self, source: Source, identity: Identity | None) -> str:
        """Log a stranger's message, and return the pairing code to send them, if it is time."""
        name = clean_text(source.user_name)
        is_denied = identity is not None and identity.role == DENIED
        self._log_stranger(source, is_denied=is_denied)
        if is_denied or not self._rules.pairing or not source.user_id or source.chat_type != "dm":
            return ""
        code = make_code()
        is_new = self._people.record_request(
            source.platform, source.user_id, name, code,
            seconds=CODE_SECONDS, pause=REQUEST_PAUSE, max_pending=MAX_PENDING,
        )  # fmt: skip
        if not is_new:
            return ""
        return (
            "I only talk to people my operator has allowed. To get access, ask them to run this within"
            f" {CODE_SECONDS / 60:.0f} minutes:\n"
            f"rekindle gateway pair {code[:4]}-{code[4:]}"
        )

    def _log_stranger(self, source: Source, *, is_denied: bool) -> None:
        """Log a refused message, but not every one of a stranger who keeps writing."""
        who, now = (source.platform, source.user_id or ""), monotonic()
        if now - self._logged.get(who, -LOG_PAUSE) < LOG_PAUSE:
            return
        self._logged[who] = now
        self._logged.move_to_end(who)
        if len(self._logged) > _MAX_LOGGED:
            self._logged.popitem(last=False)
        kind = "someone denied" if is_denied else "a stranger"
        logger.warning(
            "%s: refused a message from %s: %s (%s)",
            source.platform, kind, clean_text(source.user_id), clean_text(source.user_name),
        )  # fmt: skip


def _parse_person(person: str) -> Source:
    platform, _, user_id = person.partition(":")
    return Source(platform, "", user_id=user_id)


def _get_day() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")
