"""The checkpointer for LangGraph: its conformance suite, and real graphs, on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from rekindle import Message, Store
from rekindle.errors import StoreError
from rekindle.integrations.codecs.langgraph_values import ValueDecoder, ValueEncoder
from rekindle.integrations.langgraph import RekindleCheckpointer
from rekindle.store.graphs.checkpoints import (
    CheckpointQuery,
    GraphCheckpoint,
    GraphValue,
    ThreadKey,
)
from tests.waiting import PATIENCE

CAPABILITIES = 8  # of the suite: five that every checkpointer has, and three more
TALK: Any = {"configurable": {"thread_id": "talk"}}


def answer(state: MessagesState) -> dict[str, Any]:
    usage: Any = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    return {"messages": [AIMessage(f"{len(state['messages'])} messages", usage_metadata=usage)]}


def build_graph(store: Store, node: Any = answer) -> Any:
    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", node)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=RekindleCheckpointer(store))


def say(graph: Any, text: str) -> str:
    return graph.invoke({"messages": [HumanMessage(text)]}, TALK)["messages"][-1].text


def test_the_conformance_suite_passes(store: Store) -> None:
    @checkpointer_test(name=f"rekindle {store.location}")
    async def make() -> AsyncGenerator[RekindleCheckpointer]:
        yield RekindleCheckpointer(store)

    report = asyncio.run(validate(make))
    assert len(report.results) == CAPABILITIES
    failures = {name: result.failures for name, result in report.results.items()}
    assert {name: found for name, found in failures.items() if found} == {}
    assert all(result.passed and result.tests_passed for result in report.results.values())


def test_a_thread_goes_on_in_another_process_and_can_be_searched(store: Store) -> None:
    assert say(build_graph(store), "Where is the parser?") == "1 messages"
    assert say(build_graph(store), "And the lexer?") == "3 messages"
    assert [each.role for each in store.messages("talk")] == ["user", "assistant"] * 2
    session = store.session("talk")
    assert (session.source, session.tokens.input, session.tokens.output) == ("langgraph", 6, 4)
    assert [hit.session.id for hit in store.search("parser")] == ["talk"]


def test_an_interrupted_graph_resumes(store: Store) -> None:
    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(interrupt("May I?"))]}

    build_graph(store, ask).invoke({"messages": [HumanMessage("Delete it")]}, TALK)
    done = build_graph(store, ask).invoke(Command(resume="yes"), TALK)
    assert done["messages"][-1].text == "yes"


def test_the_checkpoint_of_an_input_shares_the_commit_of_the_first_step(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    committer: Any = store._committer  # pyright: ignore[reportPrivateUsage]
    transact, gathered = committer._transact, committer._gather_done

    def count(operations: Sequence[Any]) -> list[Any]:
        batches.append(len(operations))
        return transact(operations)

    class Patient:
        release = gathered.release

        def acquire(self, timeout: float = 0) -> bool:
            return gathered.acquire(timeout=PATIENCE)

    monkeypatch.setattr(committer, "_transact", count)
    monkeypatch.setattr(committer, "_gather_done", Patient())
    say(build_graph(store), "Hello")
    # The input, what it writes and the first step, perhaps also what the node writes; the last step.
    assert batches in ([3, 2], [4, 1])


def test_the_checkpoint_of_an_input_can_be_read_at_once(store: Store) -> None:
    saver = RekindleCheckpointer(store)
    place: Any = {"configurable": {"thread_id": "talk", "checkpoint_ns": ""}}
    for _ in range(20):
        one = empty_checkpoint()
        place = saver.put(place, one, {"source": "input", "step": -1}, {})
        found = saver.get_tuple(place)
        assert found is not None
        assert found.checkpoint["id"] == one["id"]
    assert len([*saver.list(None)]) == 20


def test_an_input_that_could_not_be_stored_is_an_error_of_the_first_step(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = RekindleCheckpointer(store)
    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")

    def fail(*_: Any) -> Future[None]:
        future = Future[None]()
        future.set_exception(StoreError("the disk is full"))
        return future

    monkeypatch.setattr(saver._rows, "submit", fail)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(StoreError, match="the disk is full"):
        say(graph.compile(checkpointer=saver), "Hello")


def test_history_forks_and_shrinks_without_losing_the_state(store: Store) -> None:
    graph = build_graph(store)
    for text in ("one", "two", "three"):
        say(graph, text)
    history = list(graph.get_state_history(TALK))
    assert len(history) == 9
    latest = graph.get_state(TALK)
    earlier = next(one for one in history if len(one.values.get("messages", ())) == 2)
    forked = graph.invoke({"messages": [HumanMessage("other")]}, earlier.config)
    assert [each.text for each in forked["messages"]] == [
        "one",
        "1 messages",
        "other",
        "3 messages",
    ]
    assert graph.get_state(latest.config).values == latest.values
    state = graph.get_state(TALK).values
    graph.checkpointer.prune(["talk"])
    assert len(list(graph.get_state_history(TALK))) == 1
    assert graph.get_state(TALK).values == state
    assert say(graph, "more") == "5 messages"


def test_a_step_stores_only_what_changed(store: Store) -> None:
    graph = build_graph(store)
    for number in range(6):
        say(graph, f"{number} " + "x" * 10_000)
    sizes = [len(row[0]) for row in select(store, "SELECT data FROM graph_checkpoints")]
    assert len(sizes) == 18
    assert max(sizes) < 5_000  # the messages are not in there


def test_pruned_values_are_gone(store: Store) -> None:
    graph = build_graph(store)
    for number in range(3):
        say(graph, f"{number}")
    graph.checkpointer.prune(["talk"])
    (versions,) = [
        len(one.versions) for one in store.graph_checkpoints.iterate(CheckpointQuery("talk"))
    ]
    assert len(select(store, "SELECT channel FROM graph_values")) <= versions
    graph.checkpointer.delete_thread("talk")
    for table in ("graph_checkpoints", "graph_values", "graph_writes"):
        assert select(store, f"SELECT count(*) FROM {table}")[0][0] == 0
    assert len(store.messages("talk")) == 6  # the session stays


def test_asyncio_gets_the_same(store: Store) -> None:
    async def talk() -> str:
        graph = build_graph(store)
        for text in ("one", "two"):
            result = await graph.ainvoke({"messages": [HumanMessage(text)]}, TALK)
        history = [one async for one in graph.aget_state_history(TALK)]
        assert len(history) == 6
        return result["messages"][-1].text

    assert asyncio.run(talk()) == "3 messages"


@pytest.mark.parametrize("thread", ["ä \x00 \ud800", "' OR 1=1", "x" * 400])
def test_names_of_threads_may_be_anything(store: Store, thread: str) -> None:
    checkpointer = RekindleCheckpointer(store, sessions=False)
    checkpoint: Any = {
        "v": 1, "id": "1", "ts": "", "channel_values": {"a": 1}, "channel_versions": {"a": 1},
        "versions_seen": {},
    }  # fmt: skip
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    checkpointer.put(config, checkpoint, {"source": "loop"}, {"a": 1})
    found = checkpointer.get_tuple(config)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": 1}
    assert found.config.get("configurable", {})["thread_id"] == thread


def test_a_message_that_was_undone_does_not_come_back(store: Store) -> None:
    say(build_graph(store), "one")
    store.undo("talk")
    say(build_graph(store), "two")
    assert [each.text for each in store.messages("talk")] == ["two", "3 messages"]
    assert store.messages("talk")[0] == Message(
        "user", "two", platform_message_id=store.messages("talk")[0].platform_message_id
    )


def select(store: Store, sql: str) -> list[Any]:
    with store._engine.begin_read() as tx:  # pyright: ignore[reportPrivateUsage]
        return list(tx.run(sql, ()))


def test_values_are_the_bytes_that_the_framework_writes() -> None:
    serde = JsonPlusSerializer()
    encoder = ValueEncoder(serde)
    call: Any = {"id": "c1", "name": "grep", "args": {"depth": 1, "nested": [{"on": True}]}}
    asked = HumanMessage("Where? \ud800 \0 été", id="m1")
    called = AIMessage("", tool_calls=[call], id="m2", response_metadata={"model_name": "large"})
    messages: list[AnyMessage] = [
        SystemMessage("Be brief."),
        asked,
        called,
        ToolMessage("found", tool_call_id="c1", artifact={"lines": (1, 2)}),
        ToolMessage("found", tool_call_id="c1", status="error"),
        AIMessage([{"type": "text", "text": "It is here."}], id="m3"),
    ]

    def check(value: Any) -> None:
        for _ in range(2):  # the second time as it was kept
            assert encoder.encode(value) == serde.dumps_typed(value)

    for value in (messages, messages[:1], messages * 3, [], None, b"x", "x"):
        check(value)
    many = messages[:1] * 65_536
    assert encoder.encode(many) == serde.dumps_typed(many)
    check([*messages, AIMessageChunk(content="a part")])
    check([*messages, {"role": "user", "content": "no message"}])
    check([*messages, HumanMessage("more", extra_field=[object.__name__])])
    asked.content = "There?"
    called.tool_calls[0]["args"]["depth"] = True  # equal to the number before, but not the same
    called.additional_kwargs["refusal"] = 1.0
    asked.id = None
    check(messages)


def test_a_message_that_is_loaded_again_is_not_serialized_again() -> None:
    serde = JsonPlusSerializer()
    dumped: list[Any] = []
    dump = serde.dumps_typed

    def count(obj: Any) -> tuple[str, bytes]:
        dumped.append(obj)
        return dump(obj)

    serde.dumps_typed = count
    encoder = ValueEncoder(serde)
    words = ["It", "is", "here."]
    text, id = " ".join(words), "-".join(words)
    first = encoder.encode([AIMessage(text, id=id)])  # its texts have other references too
    assert len(dumped) == 1
    assert encoder.encode([AIMessage(" ".join(words), id="-".join(words))]) == first
    assert len(dumped) == 1


def test_messages_that_are_loaded_again_are_equal_and_new() -> None:
    serde = JsonPlusSerializer()
    decoder = ValueDecoder(serde)
    call: Any = {"id": "c1", "name": "grep", "args": {"depth": 1, "nested": [{"on": True}, 1.0]}}
    messages: list[AnyMessage] = [
        SystemMessage("Be brief."),
        HumanMessage("Where? \ud800 \0 été", id="m1"),
        AIMessage("", tool_calls=[call], id="m2", response_metadata={"model_name": "large"}),
        ToolMessage("found", tool_call_id="c1", artifact={"lines": (1, 2), 3: None}),
        ToolMessage("found", tool_call_id="c1", artifact=b"found", status="error"),
        AIMessage([{"type": "text", "text": "It is here."}], id="m3"),
        AIMessageChunk(content="a part"),
        HumanMessage("more", extra_field=["kept"]),
    ]

    def check(value: Any) -> None:
        stored = GraphValue(*serde.dumps_typed(value))
        for _ in range(3):
            found, expected = decoder.decode(stored), serde.loads_typed(stored)
            assert found == expected
            assert repr(found) == repr(expected)
            if isinstance(value, list):
                for one, other in zip(found, expected, strict=True):
                    assert type(one) is type(other)
                    if isinstance(one, HumanMessage):
                        assert one.__getstate__() == other.__getstate__()
                        assert one.model_dump(exclude_unset=True) == other.model_dump(
                            exclude_unset=True
                        )
                        one.content = "changed"
                        one.additional_kwargs["changed"] = True

    for value in (messages, messages[:1], messages * 40, [], {"a": 1}, None, b"x", [b"x"]):
        check(value)
    check([*messages, {"role": "user"}])
    check([{1, 2}, messages[0], frozenset("a")])
    first, second = decoder.decode(GraphValue(*serde.dumps_typed([messages[2]] * 2)))
    first.tool_calls[0]["args"]["nested"].append("changed")
    assert second.tool_calls[0]["args"] == call["args"]


def test_a_message_that_was_loaded_before_is_not_validated_again() -> None:
    serde = JsonPlusSerializer()
    loaded: list[bytes] = []
    load = serde.loads_typed

    def count(data: tuple[str, bytes]) -> Any:
        loaded.append(data[1])
        return load(data)

    serde.loads_typed = count
    decoder = ValueDecoder(serde)
    messages: list[AnyMessage] = [HumanMessage(f"question {number}") for number in range(20)]
    for end in (19, 20, 20):
        stored = GraphValue(*serde.dumps_typed(messages[:end]))
        assert decoder.decode(stored) == messages[:end]
    assert len(loaded) == 2
    assert b"question 19" in loaded[1]
    assert b"question 18" not in loaded[1]


def test_damaged_bytes_are_left_to_the_serializer() -> None:
    serde = JsonPlusSerializer()
    kind, data = serde.dumps_typed([HumanMessage("question"), AIMessage("answer")])

    def load(load_value: Any, damaged: bytes) -> Any:
        try:
            return load_value(GraphValue(kind, damaged))
        except ValueError as error:
            return str(error)

    for damaged in (data[:-1], data + b"\x00", data[:3], data[:1], b"\xdc", data[1:]):
        found = load(ValueDecoder(serde).decode, damaged)
        assert found == load(serde.loads_typed, damaged)


def test_the_bytes_of_another_serializer_are_kept(store: Store) -> None:
    class Reversed(JsonPlusSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            kind, data = super().dumps_typed(obj)
            return kind, data[::-1]

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return super().loads_typed((data[0], data[1][::-1]))

    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    app = graph.compile(checkpointer=RekindleCheckpointer(store, serde=Reversed()))
    assert say(app, "Hello?") == "1 messages"
    assert say(app, "And now?") == "3 messages"


def test_a_checkpoint_is_read_while_others_are_written(store: Store) -> None:
    rows, key = store.graph_checkpoints, ThreadKey("busy")

    def save(id: str) -> None:
        value = GraphValue("null", b"")
        rows.save(GraphCheckpoint(key, id, None, None, value, {}, {}), {})

    def read_in_transaction() -> list[Any]:
        save("2")
        return [rows.load(key), rows.load(key, "2")]  # the state before the transaction

    save("1")
    before, missing = store.transaction(read_in_transaction)
    assert before is not None
    assert before.checkpoint.id == "1"
    assert missing is None
    found = rows.load(key)
    assert found is not None
    assert found.checkpoint.id == "2"
