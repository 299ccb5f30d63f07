"""Bring a stored conversation into the form that a provider accepts.

A function and not a method of the store: the rules of the providers are the agent's, and the store
stands below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from rekindle.agent.model.chat_completions import to_chat_message
from rekindle.agent.model.normalize import normalize_messages
from rekindle.agent.model.providers import PROVIDERS, Provider, is_system
from rekindle.errors import InvalidInput
from rekindle.store import Store
from rekindle.types import JSON, Message, Session


def load_conversation(
    store: Store,
    session: Session | str,
    provider: Provider = "openai",
    *,
    opening: Iterable[Message] = (),
) -> dict[str, JSON]:
    """Return the fields of a request with the session's messages, as `provider` accepts them.

    They are `messages` and, for Anthropic, `system`: `client.messages.create(model=…, **fields)`.
    `opening` are messages that are sent first and not stored, such as a system prompt.
    """
    return format_conversation([*opening, *store.messages(session)], provider)


def format_conversation(
    messages: Iterable[Message], provider: Provider = "openai"
) -> dict[str, JSON]:
    """Return the fields of a request with these messages, as `provider` accepts them."""
    if provider not in PROVIDERS:
        raise InvalidInput(f"provider: expected one of {', '.join(PROVIDERS)}; got {provider!r}")
    outgoing = normalize_messages(messages, provider)
    if provider != "anthropic":
        return {"messages": [to_chat_message(message, provider) for message in outgoing]}
    system = "\n\n".join(message.text for message in outgoing if is_system(message))
    rest = _merge_turns(message.to_anthropic() for message in outgoing if not is_system(message))
    return {"system": system, "messages": rest} if system else {"messages": rest}


def _merge_turns(messages: Iterable[Mapping[str, JSON]]) -> list[dict[str, JSON]]:
    """Merge consecutive messages of one role: the results of a turn must be in one message."""
    merged: list[dict[str, JSON]] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            blocks = cast("list[JSON]", merged[-1]["content"])
            blocks.extend(message["content"])
        else:
            merged.append({**message, "content": list(message["content"])})
    return merged
