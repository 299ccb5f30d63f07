"""The commands that link the identities of one person on several platforms, and undo that.

The person proves that both are theirs: `/link` in a direct message on one platform replies with a
code, and `/link CODE` in a direct message on another platform uses it. The first identity stands for
the person: its role and limits hold for both, and its conversations are those of both.
"""

from __future__ import annotations

from rekindle.errors import InvalidInput
from rekindle.gateway.command_handlers import CommandContext, describe_conversation
from rekindle.gateway.context import GatewayContext, derive_owner, get_owner
from rekindle.routing.sanitize import clean_text
from rekindle.routing.source import LOCAL
from rekindle.store.conversations.links import LinkedIdentity
from rekindle.types import Source

from .gate import Gate, make_code

LINK_SECONDS = 600.0
MAX_WRONG_CODES = 5  # per identity and hour


def link_identity(context: CommandContext) -> str:
    """Reply with a code, or link this identity to the one that made the code."""
    gate = _require_gate(context)
    if not context.argument:
        code = make_code()
        context.store.links.save_code(context.inbound.source, code, LINK_SECONDS)
        return (
            "To be the same person on another platform, send me this there, in a direct message,"
            f" within {LINK_SECONDS / 60:.0f} minutes:\n/link {code[:4]}-{code[4:]}\n"
            "Whoever sends it gets your role and sees your conversations: do not pass it on.\n"
            f"{describe_conversation(context.session)}"
        )
    return f"{_use_code(context, gate)}\n{describe_conversation(context.session)}"


def unlink_identity(context: CommandContext) -> str:
    """Undo the link of this identity, or of all that are linked to it."""
    gate, source = _require_gate(context), context.inbound.source
    own = context.store.links.find(source.platform, source.user_id or "")
    if own is not None and own.person is not None:
        found = [own]
    else:
        found = context.store.links.list_linked(gate.find_person(source))
    if not found:
        raise InvalidInput("you are not linked to another platform")
    for identity in found:
        _separate_identity(context.gateway_context, gate, identity)
        if identity is own:
            _notify_person(
                context, identity, f"You are no longer linked to {_format_identity(source)}."
            )
        else:
            _post_notice(context.gateway_context, gate, identity.chat,
                  f"You are no longer linked to {_format_identity(source)}.")  # fmt: skip
    names = ", ".join(_format_identity(identity.chat) for identity in found if identity is not own)
    text = (
        f"Unlinked: {names}." if names else "Unlinked. Your conversations here are separate again."
    )
    return f"{text}\n{describe_conversation(context.session)}"


def _require_gate(context: CommandContext) -> Gate:
    source, gate = context.inbound.source, context.gateway_context.gate
    if gate is None or source.platform == LOCAL:
        raise InvalidInput("a terminal cannot be linked; use a chat of the gateway")
    if source.chat_type != "dm" or not source.user_id:
        raise InvalidInput("send this in a direct message")
    return gate


def _use_code(context: CommandContext, gate: Gate) -> str:
    links, source = context.store.links, context.inbound.source
    if links.count_wrong_codes(source, 3600.0) >= MAX_WRONG_CODES:
        return "Too many wrong codes. Try again in an hour."
    if gate.find_owner(source) is not None:
        raise InvalidInput("you are already linked; send /unlink first")
    maker = links.use_code(context.argument)
    if maker is None:  # no error: the log entry has to be kept
        links.record_wrong_code(source)
        return "This code is wrong or has expired. Send /link on the other platform for a new one."
    person = gate.find_person(maker.chat)
    known = {person.partition(":")[0], *(one.platform for one in links.list_linked(person))}
    if source.platform in known:
        raise InvalidInput(f"you already have a linked account on {clean_text(source.platform)}")
    role = gate.find_role(maker.chat)
    if role is None:
        raise InvalidInput("the person who created this code no longer has access")
    owner = gate.find_owner(maker.chat) or derive_owner(
        context.gateway_context.build_key(maker.chat, role), maker.chat
    )
    links.link(source, person, owner, get_owner(context.route))
    context.store.routes.open(context.inbound.key, source, owner=owner)
    _post_notice(context.gateway_context, gate, maker.chat,
          f"You are now linked to {_format_identity(source)}. Send /unlink to undo it.")  # fmt: skip
    return (
        f"You are now linked to {_format_identity(maker.chat)}, with the same role ({role}) and"
        " conversations. Send /unlink to undo it."
    )


def _separate_identity(
    gateway_context: GatewayContext, gate: Gate, identity: LinkedIdentity
) -> None:
    """Separate an identity; its sessions get the owner that they would have by themselves."""
    role = gate.find_unlinked_role(identity.chat) or "guest"
    key = gateway_context.build_key(identity.chat, role)
    owner = derive_owner(key, identity.chat)
    gateway_context.executor.store.links.unlink(identity, owner)


def _notify_person(context: CommandContext, identity: LinkedIdentity, text: str) -> None:
    """Tell the identity that stands for the person, if it has made a code from a chat."""
    platform, _, user_id = (identity.person or "").partition(":")
    root = context.store.links.find(platform, user_id)
    gate = context.gateway_context.gate
    if root is not None and gate is not None:
        _post_notice(context.gateway_context, gate, root.chat, text)


def _post_notice(gateway_context: GatewayContext, gate: Gate, chat: Source, text: str) -> None:
    key = gateway_context.build_key(chat, gate.find_role(chat) or "guest")
    gateway_context.executor.store.inbox.post(key, chat, text)


def _format_identity(source: Source) -> str:
    who = clean_text(source.user_name) or clean_text(source.user_id)
    return f"{who} on {clean_text(source.platform)}"
