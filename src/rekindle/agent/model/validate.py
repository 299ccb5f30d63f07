"""Decide whether a conversation can be sent unchanged, as most can.

A single pass that stops at the first doubt: `normalize.normalize_messages` would not change what it
accepts. What it rejects may still be valid (content parts, late system messages, signed calls); such
a conversation is normalized in full.
"""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.types import Content, Message, ToolCall

from .providers import (
    EXTRA_CONTENT,
    ProviderRules,
    is_encodable,
    is_json_object,
    is_system,
    is_valid_author,
)


def can_send_unchanged(messages: Sequence[Message], rules: ProviderRules) -> bool:
    """Return whether the conversation can be sent as it is; False if in doubt."""
    if rules.needs_signature:
        return False
    previous: str | None = None  # the previous role, ignoring system messages
    pending: set[str] = set()  # calls without a result
    used: set[str] = set()  # ids of all calls
    for message in messages:
        if not _needs_no_change(message, rules):
            return False
        if message.role == "tool":
            if message.tool_call_id not in pending:
                return False
            pending.remove(message.tool_call_id)
        elif pending or not _can_follow(previous, message, rules):
            return False
        if message.tool_calls:
            pending = {call.id for call in message.tool_calls}
            if len(pending) < len(message.tool_calls):
                return False
            if rules.needs_unique_ids and not used.isdisjoint(pending):
                return False
            used |= pending
        if not is_system(message):
            previous = message.role
    return not pending and (previous in ("user", "tool") or _can_end(previous, rules))


def _can_end(previous: str | None, rules: ProviderRules) -> bool:
    return previous == "assistant" and rules.allows_assistant_last


def _can_follow(previous: str | None, message: Message, rules: ProviderRules) -> bool:
    if message.role == "user":
        return previous != "user" and (previous != "tool" or rules.allows_user_after_result)
    if message.role == "assistant":
        return previous not in (None, "assistant")
    return previous is None  # a system message


def _needs_no_change(message: Message, rules: ProviderRules) -> bool:
    """Return whether the message itself needs no change."""
    role, content, calls, _, name = message[:5]
    if role not in rules.parts:
        return False
    if content is None:
        if not calls:
            return False
    elif not _is_encodable_text(content):
        return False
    if calls and not (role == "assistant" and _are_valid_calls(message, calls, rules)):
        return False
    return name is None or role == "tool" or is_valid_author(rules, name)


def _is_encodable_text(content: Content) -> bool:
    if not isinstance(content, str) or not content or content.isspace():
        return False
    return is_encodable(content)


def _are_valid_calls(message: Message, calls: Sequence[ToolCall], rules: ProviderRules) -> bool:
    if len(calls) > rules.max_calls or (message.meta and EXTRA_CONTENT in message.meta):
        return False
    match_id, match_name = rules.id.fullmatch, rules.tool.fullmatch
    return all(
        match_id(call.id) and match_name(call.name) and is_json_object(call.arguments)
        for call in calls
    )
