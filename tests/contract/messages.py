"""Short ways to say what the tests say often."""

from __future__ import annotations

from typing import Any

from rekindle import Message, Session, Store, ToolCall


def user(text: str, **fields: Any) -> Message:
    return Message(role="user", content=text, **fields)


def answer(text: str, **fields: Any) -> Message:
    return Message(role="assistant", content=text, **fields)


def call(
    name: str, arguments: str = "{}", *, id: str = "call_1", text: str | None = None
) -> Message:
    return Message(role="assistant", content=text, tool_calls=(ToolCall(id, name, arguments),))


def result(text: str, *, id: str = "call_1", **fields: Any) -> Message:
    return Message(role="tool", content=text, tool_call_id=id, **fields)


def turns(*questions: str) -> list[Message]:
    """A user message and an answer for each question."""
    return [said for text in questions for said in (user(text), answer(f"{text}!"))]


def started(store: Store, *texts: str, **fields: Any) -> Session:
    """A session that has these user messages."""
    session = store.begin(**fields)
    store.append(session, *map(user, texts or ("hello",)))
    return store.session(session.id)


def texts(store: Store, session: Session | str, **options: Any) -> list[Any]:
    return [message.content for message in store.messages(session, **options)]


def found(store: Store, query: str, **options: Any) -> list[Any]:
    """What the hits say, in no particular order."""
    return sorted(hit.message.text for hit in store.search(query, **options))


def dumped(store: Store) -> list[bytes]:
    return list(store.dump())
