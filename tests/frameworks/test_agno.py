"""The database for Agno: the same sessions, runs and memories as in its own, on both engines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.db.base import SessionType
from agno.db.in_memory import InMemoryDb
from agno.db.schemas.memory import UserMemory
from agno.metrics import MessageMetrics
from agno.models.base import Model
from agno.models.response import ModelResponse

from rekindle import Message, Store, open_store
from rekindle.integrations.agno import RekindleDb

from .crash import run_until_killed


@dataclass
class ScriptedAgnoModel(Model):
    """Asks for the weather if it is asked, and says how many messages it was given."""

    id: str = "scripted"

    def invoke(self, messages: Any, **_: Any) -> ModelResponse:
        last = messages[-1]
        asked = [one for one in messages if one.role != "system"]
        usage = MessageMetrics(input_tokens=10, output_tokens=5, total_tokens=15)
        if last.role == "user" and "weather" in str(last.content):
            function = {"name": "find_weather", "arguments": '{"town": "Turin"}'}
            call = {"id": f"c{len(asked)}", "type": "function", "function": function}
            return ModelResponse(role="assistant", tool_calls=[call], response_usage=usage)
        text = f"{len(asked)} messages"
        return ModelResponse(role="assistant", content=text, response_usage=usage)

    async def ainvoke(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def invoke_stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def ainvoke_stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **_: Any) -> Any:
        return response

    def _parse_provider_response_delta(self, response: Any) -> Any:
        return response


def find_weather(town: str) -> str:
    """Tell the weather of a town."""
    return f"Sunny in {town}."


def ask(db: Any, *questions: str, **fields: Any) -> str:
    agent = Agent(
        id="guide",
        model=ScriptedAgnoModel(),
        db=db,
        tools=[find_weather],
        add_history_to_context=True,
        telemetry=False,
        **{"session_id": "trip", "user_id": "ada", **fields},
    )
    answer = ""
    for question in questions:
        answer = str(agent.run(question).content)
    return answer


def test_a_conversation_goes_on_as_in_memory_and_can_be_searched(store: Store) -> None:
    theirs = InMemoryDb()
    for question in ("How is the weather?", "What should I pack?"):
        # ours as if in another process each time
        assert ask(RekindleDb(store), question) == ask(theirs, question)
    session = store.session("trip", owner="ada")
    assert (session.source, session.tokens.input, session.tokens.output) == ("agno", 30, 15)
    messages = [one for one in store.messages("trip") if one.role != "system"]
    assert [one.role for one in messages] == [
        "user", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert [call.name for one in messages for call in one.tool_calls] == ["find_weather"]
    assert [hit.session.id for hit in store.search("sunny", role="tool")] == ["trip"]


def describe(db: Any) -> list[Any]:
    session = db.get_session("trip", SessionType.AGENT)
    last = db.get_session("trip", SessionType.AGENT, runs_limit=1)
    listed, total = db.get_sessions(SessionType.AGENT, user_id="ada", deserialize=False)
    return [
        [[one.role for one in run.messages] for run in session.runs],
        session.session_data,
        len(last.runs),
        [one["session_id"] for one in listed],
        total,
        db.get_session("trip", SessionType.AGENT, user_id="eve"),
        db.get_session("never there", SessionType.AGENT),
        len(db.get_runs(session_id="trip")),
        db.get_run(session.runs[0].run_id).content,
    ]


def test_sessions_and_runs_are_as_in_memory(store: Store) -> None:
    def use(db: Any) -> list[Any]:
        ask(db, "How is the weather?", "What should I pack?", session_state={"town": "Turin"})
        ask(db, "Hello", session_id="other", user_id="eve")
        seen = describe(db)
        db.rename_session("trip", SessionType.AGENT, "Journey")
        seen.append(db.get_session("trip", SessionType.AGENT).session_data["session_name"])
        seen.append(db.delete_session("trip", user_id="eve"))
        seen.append(db.delete_session("trip"))
        seen.append(db.delete_session("trip"))
        seen.append(db.get_session("trip", SessionType.AGENT))
        seen.append(len(db.get_sessions(SessionType.AGENT)))
        return seen

    assert use(RekindleDb(store)) == use(InMemoryDb())
    assert store.search("sunny") == []


def test_memories_are_kept_and_others_do_not_lose_theirs(store: Store) -> None:
    one, two = RekindleDb(store), RekindleDb(store)
    for number, db in enumerate((one, two, one)):
        memory = UserMemory(f"likes {number}", memory_id=f"m{number}", user_id="ada")
        db.upsert_user_memory(memory)
    read = one._read_json_file(one.memory_table_name)  # pyright: ignore[reportPrivateUsage]
    two.upsert_user_memory(UserMemory("new", memory_id="m9", user_id="ada"))
    one._write_json_file(one.memory_table_name, read[1:])  # pyright: ignore[reportPrivateUsage]
    found: Any = RekindleDb(store).get_user_memories(user_id="ada")
    assert sorted(memory.memory_id for memory in found) == ["m1", "m2", "m9"]
    two.delete_user_memory("m1")
    assert RekindleDb(store).get_user_memory("m1") is None


def test_a_run_that_is_stored_twice_counts_once(store: Store) -> None:
    db = RekindleDb(store)
    ask(db, "How is the weather?")
    run: Any = RekindleDb(store).get_session("trip").runs[0]
    before = (store.messages("trip"), store.session("trip").tokens)
    RekindleDb(store).upsert_run(run, "trip", "ada")
    assert (store.messages("trip"), store.session("trip").tokens) == before


def test_records_are_kept_apart_from_other_sessions_and_deleted_ones(store: Store) -> None:
    store.append(store.begin(id="trip"), Message("user", "of somebody else"))
    ask(RekindleDb(store), "Hello")
    assert len(store.messages("trip")) == 1
    (record,) = store.recent(source="agno")
    store.end(record, "done")
    store.prune_session(record)  # by a person: Agno still has it
    db = RekindleDb(store)
    assert ask(db, "Again") == "3 messages"
    (record,) = store.recent(source="agno")
    assert [one.text for one in store.messages(record)][-2:] == ["Again", "3 messages"]
    db.delete_session("trip")
    assert ask(db, "Anew") == "1 messages"
    assert [one.text for one in store.recent(source="agno") for one in store.messages(one)] == [
        "Anew",
        "1 messages",
    ]


def test_what_a_killed_process_stored_is_there(tmp_path: Path) -> None:
    run_until_killed(
        """
        from rekindle import open_store
        from rekindle.integrations.agno import RekindleDb
        from tests.frameworks.test_agno import ask

        ask(RekindleDb(open_store("s.db")), "How is the weather?")
        die()
        """,
        tmp_path,
    )
    with open_store(tmp_path / "s.db") as store:
        assert ask(RekindleDb(store), "More?") == "5 messages"
