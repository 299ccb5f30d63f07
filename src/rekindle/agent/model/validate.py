"""Is a conversation valid for its provider as it stands? Most are, and are sent without a change.

One pass that stops at the first doubt: what it accepts, `history.repaired` would not change. What it
does not accept may still be valid (contents in parts, late system messages, signed calls); such a
conversation takes the long way.
"""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.types import Content, Message, ToolCall

from .providers import EXTRA, Rules, is_object, is_sayable, is_speaker, is_system


def is_sound(messages: Sequence[Message], rules: Rules) -> bool:
    """Whether the conversation can be sent as it is. False where that is not plain to see."""
    if rules.signed:
        return False
    before: str | None = None  # the role before, without system messages
    waiting: set[str] = set()  # calls without a result
    used: set[str] = set()  # ids of all calls
    for message in messages:
        if not _is_plain(message, rules):
            return False
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
        elif waiting or not _may_follow(before, message, rules):
            return False
        if message.tool_calls:
            waiting = {call.id for call in message.tool_calls}
            if len(waiting) < len(message.tool_calls):
                return False
            if rules.unique_ids and not used.isdisjoint(waiting):
                return False
            used |= waiting
        if not is_system(message):
            before = message.role
    return not waiting and (before in ("user", "tool") or _may_end(before, rules))


def _may_end(before: str | None, rules: Rules) -> bool:
    return before == "assistant" and rules.assistant_last


def _may_follow(before: str | None, message: Message, rules: Rules) -> bool:
    if message.role == "user":
        return before != "user" and (before != "tool" or rules.user_after_result)
    if message.role == "assistant":
        return before not in (None, "assistant")
    return before is None  # a system message


def _is_plain(message: Message, rules: Rules) -> bool:
    """Is there nothing to change in the message itself?"""
    role, content, calls, _, name = message[:5]
    if role not in rules.parts:
        return False
    if content is None:
        if not calls:
            return False
    elif not _is_sayable_text(content):
        return False
    if calls and not (role == "assistant" and _are_plain(message, calls, rules)):
        return False
    return name is None or role == "tool" or is_speaker(rules, name)


def _is_sayable_text(content: Content) -> bool:
    if not isinstance(content, str) or not content or content.isspace():
        return False
    return is_sayable(content)


def _are_plain(message: Message, calls: Sequence[ToolCall], rules: Rules) -> bool:
    if len(calls) > rules.most_calls or (message.meta and EXTRA in message.meta):
        return False
    id_of, tool = rules.id.fullmatch, rules.tool.fullmatch
    return all(id_of(call.id) and tool(call.name) and is_object(call.arguments) for call in calls)
