"""Who speaks in a turn, and what that allows. The functions block on the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rekindle.errors import QuotaExceeded
from rekindle.gateway.context import GatewayContext
from rekindle.gateway.schedule.run_message import read_run
from rekindle.store.conversations.inbox import InboundMessage
from rekindle.types import Role, Source

from .rules import get_rank


def get_speaker(inbound: InboundMessage) -> Source:
    """Return the source of who speaks: for the run of a job, of who made it."""
    run = read_run(inbound)
    return inbound.source if run is None else run.maker


def find_role(context: GatewayContext, inbound: InboundMessage) -> Role | None:
    """Return the role of a speaker now, or None if they may not talk."""
    gate = context.gate
    return "owner" if gate is None else gate.find_role(get_speaker(inbound))


def find_least_role(context: GatewayContext, inbound_messages: Iterable[InboundMessage]) -> Role:
    """Return the least of the roles of those who are answered by one turn."""
    least: Role = "owner"
    for inbound in inbound_messages:
        least = min(least, find_role(context, inbound) or "guest", key=get_rank)
    return least


def may_join(
    context: GatewayContext, inbound: InboundMessage, joined: Iterable[InboundMessage]
) -> bool:
    """Return whether a message may join a running turn, whose tools are those of who began it."""
    role = find_role(context, inbound)
    return role is not None and get_rank(role) >= get_rank(find_least_role(context, joined))


class TurnRefusal(NamedTuple):
    """Why a message must not be answered: the reply to its sender, if any, and their role."""

    text: str
    role: str


def find_refusal(context: GatewayContext, inbound: InboundMessage) -> TurnRefusal | None:
    """Return why a message must not be answered, or None if it may be."""
    gate = context.gate
    if gate is None:
        return None
    speaker = get_speaker(inbound)
    role = gate.find_role(speaker)
    if role is None:  # denied since the message came in
        return TurnRefusal("", "denied")
    limit = gate.find_exceeded_limit(speaker, role)
    if limit is not None:
        text = f"You have reached the limit for today: {limit}. It resets at midnight UTC."
        return TurnRefusal(text, role)
    try:
        if inbound.state == "waiting":  # a turn that has begun ends with its answer
            context.executor.store.check_quota()
    except QuotaExceeded as error:
        return TurnRefusal(str(error), role)
    return None
