"""Sessions of Strands Agents: the same as in its files, on both engines."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from rekindle import Message, Store, open_store
from rekindle.integrations.strands import RekindleSessionManager, RekindleSessionRepository

from .crash import run_until_killed


class ScriptedStrandsModel(Model):
    """Asks for the weather if it is asked, and says how many messages it was given."""

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncGenerator[Any]:
        last = messages[-1]["content"][-1]
        yield {"messageStart": {"role": "assistant"}}
        if "weather" in last.get("text", ""):
            use = {"toolUseId": f"c{len(messages)}", "name": "find_weather"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"town": "Turin"}'}}}}
            reason = "tool_use"
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": f"{len(messages)} messages"}}}
            reason = "end_turn"
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}
        usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


@tool
def find_weather(town: str) -> str:
    """Tell the weather of a town."""
    return f"Sunny in {town}."


def ask(manager: Any, *questions: str, **fields: Any) -> Any:
    agent = Agent(
        model=ScriptedStrandsModel(),
        tools=[find_weather],
        session_manager=manager,
        callback_handler=None,
        **fields,
    )
    for question in questions:
        agent(question)
    return agent


def strip(messages: Any) -> Any:
    """Leave out what differs from run to run."""
    return [{"role": one["role"], "content": one["content"]} for one in messages]


def test_a_conversation_is_the_same_as_in_files(store: Store, tmp_path: Path) -> None:
    def talk(make: Any) -> Any:
        ask(make(), "How is the weather?", state={"mood": "good"})
        agent = ask(make(), "What should I pack?")
        return strip(agent.messages), agent.state.get()

    ours = talk(lambda: RekindleSessionManager("trip", store))
    assert ours == talk(lambda: FileSessionManager("trip", storage_dir=str(tmp_path)))
    assert ours[0][-1]["content"] == [{"text": "5 messages"}]
    session = store.session("trip")
    assert (session.source, session.tokens.input, session.tokens.output) == ("strands", 30, 15)
    assert [hit.session.id for hit in store.search("sunny", role="tool")] == ["trip"]
    roles = [one.role for one in store.messages("trip")]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


BLOCKS: list[dict[str, Any]] = [
    {"text": "Look"},
    {"image": {"format": "png", "source": {"bytes": b"\x89PNG\xff"}}},
    {"toolUse": {"toolUseId": "c", "name": "look", "input": {"x": [1, None]}}},
    {"toolResult": {"toolUseId": "c", "status": "error", "content": [{"text": "no"}]}},
    {"toolResult": {"toolUseId": "d", "status": "success", "content": [{"json": {"a": 1}}]}},
    {"toolResult": {"toolUseId": "e", "status": "success", "content": []}},
    {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
    {"reasoningContent": {"redactedContent": b"\x00"}},
    {"cachePoint": {"type": "default"}},
    {"text": "\x00 \ud800"},
]


def begin(repository: Any) -> Any:
    repository.create_session(Session("trip", SessionType.AGENT))
    repository.create_agent("trip", SessionAgent("a", {"n": 1}, {}))
    return repository


def add(repository: Any, number: int, *blocks: Any, agent: str = "a") -> SessionMessage:
    message: Any = {"role": "user", "content": list(blocks)}
    made = SessionMessage.from_message(message, number)
    repository.create_message("trip", agent, made)
    return made


def test_every_kind_of_block_comes_back(store: Store) -> None:
    repository = begin(RekindleSessionRepository(store))
    added = [add(repository, 0, *BLOCKS), add(repository, 1), add(repository, 2, {"text": "x"})]
    assert RekindleSessionRepository(store).list_messages("trip", "a") == added
    assert repository.list_messages("trip", "a", limit=1, offset=1) == added[1:2]
    assert repository.read_message("trip", "a", 2) == added[2]
    assert repository.read_message("trip", "a", 3) is None


def test_the_repository_does_what_the_one_of_files_does(store: Store, tmp_path: Path) -> None:
    def use(repository: Any) -> list[Any]:
        seen: list[Any] = [repository.read_session("trip") is None]
        begin(repository)
        seen.append(repository.read_agent("trip", "a").state)
        seen.append(repository.read_agent("trip", "b") is None)
        repository.update_agent("trip", SessionAgent("a", {"n": 2}, {"removed": 1}))
        agent = repository.read_agent("trip", "a")
        seen += [agent.state, agent.conversation_manager_state]
        seen.append(repository.list_messages("trip", "a"))
        repository.create_agent("trip", SessionAgent("b", {}, {}))
        add(repository, 0, {"text": "one"})
        add(repository, 0, {"text": "two"}, agent="b")
        seen.append([one.message for one in repository.list_messages("trip", "b")])
        for action in (
            lambda: repository.create_session(Session("trip", SessionType.AGENT)),
            lambda: repository.update_agent("trip", SessionAgent("no", {}, {})),
            lambda: repository.update_message("trip", "a", SessionMessage.from_message({}, 9)),  # pyright: ignore
            lambda: repository.delete_session("never there"),
        ):
            with pytest.raises(SessionException):
                action()
        repository.delete_session("trip")
        seen.append(repository.read_session("trip") is None)
        return [*seen, repository.read_agent("trip", "a") is None]

    theirs = use(FileSessionManager("other", storage_dir=str(tmp_path)))
    assert use(RekindleSessionRepository(store)) == theirs


def test_what_a_guardrail_replaced_is_not_found(store: Store) -> None:
    repository = begin(RekindleSessionRepository(store))
    add(repository, 0, {"text": "kept"})
    message = add(repository, 1, {"text": "forbidden words"})
    message.redact_message = {"role": "user", "content": [{"text": "[removed]"}]}
    repository.update_message("trip", "a", message)
    found = RekindleSessionRepository(store).list_messages("trip", "a")
    assert [one.to_message()["content"] for one in found] == [
        [{"text": "kept"}],
        [{"text": "[removed]"}],
    ]
    assert store.search("forbidden") == []


def test_undo_and_messages_of_other_programs_reach_the_agent(store: Store) -> None:
    ask(RekindleSessionManager("trip", store), "How is the weather?", "What should I pack?")
    store.undo("trip")
    store.append("trip", Message("user", "By hand"), Message("assistant", "Yes."))
    agent = ask(RekindleSessionManager("trip", store), "And now?")
    assert strip(agent.messages)[-1]["content"] == [{"text": "7 messages"}]
    ids = [
        one.message_id for one in RekindleSessionRepository(store).list_messages("trip", "default")
    ]
    assert ids == sorted(set(ids))


def test_sessions_of_other_programs_are_not_mixed_in(store: Store) -> None:
    store.append(store.begin(id="trip"), Message("user", "of somebody else"))
    agent = ask(RekindleSessionManager("trip", store), "Hello")
    assert len(agent.messages) == 2
    assert len(store.messages("trip")) == 1


def test_what_a_killed_process_stored_is_there(tmp_path: Path) -> None:
    run_until_killed(
        """
        from rekindle import open_store
        from rekindle.integrations.strands import RekindleSessionManager
        from tests.frameworks.test_strands import ask

        ask(RekindleSessionManager("trip", open_store("s.db")), "How is the weather?")
        die()
        """,
        tmp_path,
    )
    with open_store(tmp_path / "s.db") as store:
        agent = ask(RekindleSessionManager("trip", store), "More?")
    assert strip(agent.messages)[-1]["content"] == [{"text": "5 messages"}]
