"""The chat command `/memory`: list facts, accept proposals, forget, undo."""

from __future__ import annotations

from rekindle.errors import InvalidInput
from rekindle.gateway.command_handlers import CommandContext, describe_conversation
from rekindle.store.conversations.memory import PERSON

USAGE = "[accept N | forget N | undo]"
_LATER = "New sessions will use this; the current one stays as it is."


def handle_memory(context: CommandContext) -> str:
    """Show or change facts."""
    words = context.argument.split()
    text = _change_memory(context, words) if words else _list_facts(context)
    return f"{text}\n{describe_conversation(context.session)}"


def _list_facts(context: CommandContext) -> str:
    memory = context.store.memory
    facts = memory.list(context.owner)
    proposals = memory.list(context.owner, proposed=True)
    lines = [f"{fact.number}. {fact.text}" for fact in facts] or ["Nothing is remembered yet."]
    if proposals:
        lines.append("Proposed, not yet remembered (/memory accept N, or /memory forget N):")
    for fact in proposals:
        note = "" if fact.replaces is None else f" (replaces {fact.replaces})"
        lines.append(f"{fact.number}. {fact.text}{note}")
    return "\n".join(lines)


def _change_memory(context: CommandContext, words: list[str]) -> str:
    _require_role(context)
    memory, owner, session = context.store.memory, context.owner, context.route.session
    if words == ["undo"]:
        change = memory.undo(owner, actor=PERSON, session=session)
        restored = "" if change.before_text is None else f" It is again: {change.before_text}"
        return f"Undone: {change.action} of fact {change.number}.{restored} {_LATER}"
    if len(words) != 2 or words[0] not in ("accept", "forget"):
        raise InvalidInput(f"use /memory {USAGE}")
    if not (words[1].isascii() and words[1].isdigit() and len(words[1]) <= 9):
        raise InvalidInput("give the number of a fact; /memory lists them")
    number = int(words[1])
    if words[0] == "accept":
        fact = memory.accept(owner, number, session=session)
        return f"Remembered as {fact.number}: {fact.text} {_LATER}"
    fact = memory.remove(owner, number, actor=PERSON, session=session)
    if fact.state == "proposed":
        return f"Rejected {number}: {fact.text}"
    return f"Forgot {number}: {fact.text} {_LATER} Use /memory undo to restore it."


def _require_role(context: CommandContext) -> None:
    gate = context.gateway_context.gate
    if gate is not None and gate.find_role(context.inbound.source) not in ("owner", "user"):
        raise InvalidInput("guests cannot change the memory")
