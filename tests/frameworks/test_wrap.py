"""Clients that record their calls: OpenAI's own client against scripted answers, and LiteLLM."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI

from rekindle import InvalidInput, Message, Store, open_store, wrap

KEY = "sk-proj-A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6"
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'},
}
USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def answer_chat(request: dict[str, Any]) -> dict[str, Any]:
    """Call a tool if asked for a sum, else say how many messages came."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": f"{len(request['messages'])} messages",
    }
    if "sum" in str(request["messages"][-1]["content"]):
        message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {
        "id": "chat1", "object": "chat.completion", "created": 1, "model": "scripted-1",
        "choices": [choice], "usage": USAGE,
    }  # fmt: skip


def stream_chat(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    message = answer_chat(request)["choices"][0]["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if message.get("tool_calls"):
        function = CALL["function"]
        deltas += [
            {"tool_calls": [{"index": 0, **CALL, "function": {"name": "add", "arguments": ""}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": function["arguments"][:8]}}]},  # pyright: ignore
            {"tool_calls": [{"index": 0, "function": {"arguments": function["arguments"][8:]}}]},  # pyright: ignore
        ]
    else:
        deltas += [{"content": part} for part in message["content"].partition(" ")]
    frame = {"id": "chat1", "object": "chat.completion.chunk", "created": 1, "model": "scripted-1"}
    for delta in deltas:
        yield {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    yield {**frame, "choices": [], "usage": USAGE}


def answer_response(request: dict[str, Any]) -> dict[str, Any]:
    given = request["input"]
    count = 1 if isinstance(given, str) else len(given)
    text = {"type": "output_text", "text": f"{count} items", "annotations": []}
    message = {
        "id": "m1", "type": "message", "role": "assistant", "status": "completed",
        "content": [text],
    }  # fmt: skip
    usage = {
        "input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    return {
        "id": f"resp_{count}", "object": "response", "created_at": 1, "model": "scripted-1",
        "status": "completed", "output": [message], "usage": usage, "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [],
    }  # fmt: skip


def stream_response(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    whole = answer_response(request)
    unfinished = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "sequence_number": 0, "response": unfinished}
    yield {"type": "response.completed", "sequence_number": 1, "response": whole}


def serve(request: httpx.Request) -> httpx.Response:
    body = json.loads(request.content)
    if body["model"] == "refused":
        return httpx.Response(400, json={"error": {"message": "no", "type": "invalid"}})
    is_chat = request.url.path.endswith("/chat/completions")
    if not body.get("stream"):
        return httpx.Response(200, json=(answer_chat if is_chat else answer_response)(body))
    events = (stream_chat if is_chat else stream_response)(body)
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    text = "".join(lines) + ("data: [DONE]\n\n" if is_chat else "")
    return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})


def make_client(**fields: Any) -> OpenAI:
    http = httpx.Client(transport=httpx.MockTransport(serve))
    return OpenAI(
        api_key=KEY, base_url="http://scripted/v1", http_client=http, max_retries=0, **fields
    )


def make_async_client() -> AsyncOpenAI:
    http = httpx.AsyncClient(transport=httpx.MockTransport(serve))
    return AsyncOpenAI(api_key=KEY, base_url="http://scripted/v1", http_client=http, max_retries=0)


def show(store: Store, session: str | None = None) -> list[tuple[str, str]]:
    (found,) = store.recent() if session is None else [store.session(session)]
    return [(one.role, one.text) for one in store.messages(found)]


def talk(create: Callable[..., Any]) -> list[Any]:
    """Have a conversation with a call of a tool, as programs have it."""
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is the sum of 1 and 2?"},
    ]
    calling = create(messages)
    messages.append(calling)
    messages.append({"role": "tool", "tool_call_id": "c1", "content": "3"})
    messages.append(create(messages))
    messages.append({"role": "user", "content": "Thanks"})
    messages.append(create(messages))
    return messages


TALK = [
    ("system", "Be brief."),
    ("user", "What is the sum of 1 and 2?"),
    ("assistant", ""),
    ("tool", "3"),
    ("assistant", "4 messages"),
    ("user", "Thanks"),
    ("assistant", "6 messages"),
]


def test_a_conversation_with_tools_is_one_session(store: Store) -> None:
    client = wrap(make_client(), store, owner="ada", title="Sums")

    def create(messages: list[Any]) -> Any:
        return client.chat.completions.create(model="m", messages=messages).choices[0].message

    talk(create)
    assert show(store) == TALK
    (session,) = store.recent()
    assert (session.owner, session.title, session.source) == ("ada", "Sums", "wrapped-client")
    assert tuple(session.tokens) == (18, 15, 12, 0, 6)
    assert list(store.usage(session)) == ["scripted-1"]
    (call,) = [call for one in store.messages(session) for call in one.tool_calls]
    assert call == ("c1", "add", '{"a": 1, "b": 2}')


def test_streams_are_passed_on_and_recorded(store: Store) -> None:
    client = wrap(make_client(), store)

    def create(messages: list[Any]) -> Any:
        text, calls = "", ""
        with client.chat.completions.create(model="m", messages=messages, stream=True) as stream:
            assert stream.response.status_code == 200  # what else a stream has stays there
            for chunk in stream:
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    for call in choice.delta.tool_calls or []:
                        calls += (call.function and call.function.arguments) or ""
        if not calls:
            return {"role": "assistant", "content": text}
        function = {"name": "add", "arguments": calls}
        return {"role": "assistant", "tool_calls": [{**CALL, "function": function}]}

    talk(create)
    assert show(store) == TALK
    assert store.recent()[0].tokens.output == 15


def test_asyncio_gets_the_same(store: Store) -> None:
    client = wrap(make_async_client(), store)

    async def create(messages: list[Any], stream: bool) -> str:
        if not stream:
            done: Any = await client.chat.completions.create(model="m", messages=messages)
            return done.choices[0].message.content
        text = ""
        async for chunk in await client.chat.completions.create(
            model="m", messages=messages, stream=True
        ):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
        return text

    async def run() -> None:
        talks = [[{"role": "user", "content": f"Hello {n}"}] for n in range(4)]
        for stream in (False, True, False):
            answers = await asyncio.gather(*(create(one, stream) for one in talks))
            for one, text in zip(talks, answers, strict=True):
                one += [{"role": "assistant", "content": text}, {"role": "user", "content": "More"}]

    asyncio.run(run())
    sessions = store.recent()
    assert sorted(show(store, one.id)[0][1] for one in sessions) == [f"Hello {n}" for n in range(4)]
    for one in sessions:
        assert [text for _, text in show(store, one.id)][1:] == [
            "1 messages", "More", "3 messages", "More", "5 messages",
        ]  # fmt: skip


def test_responses_are_recorded_with_what_they_continue(store: Store) -> None:
    client = wrap(make_client(), store)
    first = client.responses.create(model="m", input="Hello", instructions="Be brief.")
    items: list[Any] = [{"role": "user", "content": "More"}, {"role": "user", "content": "please"}]
    stream = client.responses.create(
        model="m", input=items, previous_response_id=first.id, stream=True
    )
    assert [event.type for event in stream] == ["response.created", "response.completed"]
    client.responses.create(model="m", input="End", previous_response_id="resp_2")
    assert show(store) == [
        ("system", "Be brief."), ("user", "Hello"), ("assistant", "1 items"), ("user", "More"),
        ("user", "please"), ("assistant", "2 items"), ("user", "End"), ("assistant", "1 items"),
    ]  # fmt: skip
    assert tuple(store.recent()[0].tokens)[:3] == (18, 15, 12)


def test_a_named_session_goes_on_in_another_process(store: Store) -> None:
    messages: list[Any] = [{"role": "user", "content": f"My key is {KEY}"}]
    for _ in range(2):
        client = wrap(make_client(), store, session="plan")
        done: Any = client.chat.completions.create(model="m", messages=messages)
        messages += [done.choices[0].message, {"role": "user", "content": "More"}]
    assert [text for _, text in show(store, "plan")][1:] == ["1 messages", "More", "3 messages"]


def test_secrets_are_not_stored(store: Store) -> None:
    client = wrap(make_client(), store)
    github = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    messages: list[Any] = [{"role": "user", "content": f"keys: {KEY} and {github}"}]
    client.chat.completions.create(model="m", messages=messages, extra_headers={"x": KEY})
    stored = b"".join(store.dump())
    assert KEY.encode() not in stored
    assert github.encode() not in stored
    assert messages[0]["content"].count(KEY) == 1  # the caller's own list is untouched


def test_a_store_that_fails_is_logged_once_and_calls_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rekindle.integrations.wrapping.recorder.PAUSE_SECONDS", 0.0)
    store = open_store(tmp_path / "s.db")
    store.close()
    client = wrap(make_client(), store)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            messages: Any = [{"role": "user", "content": "Hello"}]
            done = client.chat.completions.create(model="m", messages=messages)
            assert done.choices[0].message.content == "1 messages"
            chunks = [*client.chat.completions.create(model="m", messages=messages, stream=True)]
            assert len(chunks) == 6
    warnings = [one for one in caplog.records if "not recorded" in one.getMessage()]
    assert len(warnings) == 1
    assert KEY not in caplog.text


def test_odd_requests_are_left_to_the_client(store: Store) -> None:
    client = wrap(make_client(), store)
    with pytest.raises(BadRequestError):
        client.chat.completions.create(model="refused", messages=[])
    odd: Any = [{"role": "user", "content": "x", "tool_calls": "nonsense"}]
    done = client.chat.completions.create(model="m", messages=odd)
    assert done.choices[0].message.content == "1 messages"
    assert store.recent() == []


def test_an_interrupted_stream_keeps_what_came(store: Store) -> None:
    client = wrap(make_client(), store)
    messages: Any = [{"role": "user", "content": "Hello"}]
    with client.chat.completions.create(model="m", messages=messages, stream=True) as stream:
        next(stream)
        next(stream)
    assert show(store) == [("user", "Hello"), ("assistant", "1")]


def test_a_client_is_wrapped_once(store: Store) -> None:
    client = wrap(wrap(make_client(), store), store, session="plan")
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello"}])
    assert [one.id for one in store.recent()] == ["plan"]
    with pytest.raises(InvalidInput, match="expected an OpenAI client"):
        wrap(object(), store)


def test_a_module_of_functions_stays_as_it_is(store: Store) -> None:
    module: Any = ModuleType("litellm")
    module.completion = lambda model, messages, **_: answer_chat({"messages": messages})
    calls = wrap(module, store)
    question = [{"role": "user", "content": "Hello"}]
    assert calls.completion("m", question)["choices"][0]["message"]["content"] == "1 messages"
    module.completion("m", [{"role": "user", "content": "not recorded"}])
    assert show(store) == [("user", "Hello"), ("assistant", "1 messages")]


@pytest.mark.litellm
def test_litellm_is_recorded(store: Store) -> None:
    litellm = importlib.import_module("litellm")
    calls = wrap(litellm, store)
    question: list[Any] = [{"role": "user", "content": "Hello"}]

    async def run() -> None:
        done = calls.completion("gpt-4o", question, mock_response="One.")
        question.extend([done.choices[0].message, {"role": "user", "content": "More"}])
        done = await calls.acompletion(model="gpt-4o", messages=question, mock_response="Two.")
        question.extend([done.choices[0].message, {"role": "user", "content": "Stream"}])
        stream = calls.completion(
            model="gpt-4o", messages=question, mock_response="Three.", stream=True
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        question.extend(
            [{"role": "assistant", "content": text}, {"role": "user", "content": "End"}]
        )
        pending = await calls.acompletion(
            model="gpt-4o", messages=question, mock_response="Four.", stream=True
        )
        assert [chunk async for chunk in pending]

    asyncio.run(run())
    assert [text for _, text in show(store)] == [
        "Hello", "One.", "More", "Two.", "Stream", "Three.", "End", "Four.",
    ]  # fmt: skip
    assert store.recent()[0].tokens.output > 0


def test_other_programs_see_a_recorded_session(store: Store) -> None:
    client = wrap(make_client(), store, session="plan")
    messages: Any = [{"role": "user", "content": "Where is the parser?"}]
    client.chat.completions.create(model="m", messages=messages)
    assert [hit.session.id for hit in store.search("parser")] == ["plan"]
    store.undo("plan")
    store.append("plan", Message("user", "By hand"))
    assert show(store, "plan") == [("user", "By hand")]
