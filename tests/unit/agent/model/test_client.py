"""The real SDK against the scripted model, over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from urllib.request import urlopen

import msgspec
import pytest

from rekindle import errors
from rekindle.agent.model.client import (
    CallDelta,
    Endpoint,
    Model,
    ModelResponse,
    ReasoningDelta,
    Retrying,
    RetryPolicy,
    StreamEnded,
    StreamEvent,
    TextDelta,
)
from rekindle.agent.model.stream import ResponseBuilder, parse_usage
from rekindle.testing import Script, ScriptedModel
from rekindle.types import Message, Tokens, ToolCall
from tests.ports import find_port
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

T = TypeVar("T")
USER = Message("user", "weather in Rome?")
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = {"name": "weather", "arguments": {"city": "Rome"}, "id": "call_1"}
BOTH = pytest.mark.parametrize("way", ["plain", "stream"])


def script(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"turns": [{"user": "weather", "steps": list(steps)}], **more}


class Pauses:
    """Sleeps without waiting, and keeps count."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def asking(server: ScriptedModel, use: Callable[[Model], Awaitable[T]], **settings: Any) -> T:
    async def run() -> T:
        given = {"sleep": Pauses(), "random": Random(7), **settings}
        endpoint = given.pop("endpoint", None) or Endpoint(server.url, "scripted", "key-1")
        async with Model(endpoint, **given) as model:
            return await use(model)

    return asyncio.run(run())


async def events_of(model: Model, messages: Sequence[Message]) -> list[StreamEvent]:
    return [event async for event in model.stream(messages, [TOOL])]


def answer_of(
    server: ScriptedModel, way: str, *messages: Message, **settings: Any
) -> ModelResponse:
    async def use(model: Model) -> ModelResponse:
        if way == "plain":
            return await model.complete(messages or [USER], [TOOL])
        last = (await events_of(model, messages or [USER]))[-1]
        assert isinstance(last, StreamEnded)
        return last.response

    return asking(server, use, **settings)


@BOTH
def test_an_answer_is_a_message_with_its_tokens_and_its_end(way: str):
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    step = {"text": "Sunny, with some clouds.", "reasoning": "Rome, hm.", "usage": usage}
    with ScriptedModel(script(step)) as server:
        answer = answer_of(server, way)
    said = Message(
        "assistant", "Sunny, with some clouds.", reasoning="Rome, hm.", finish_reason="stop"
    )
    assert answer == ModelResponse(said, Tokens(40, 20, 60, 0, 5), "stop", "scripted")
    [request] = server.requests
    assert request.key == "key-1"
    assert request.body["tools"] == [TOOL]
    assert request.outcome == "answered"


@BOTH
def test_parallel_calls_come_whole_and_broken_arguments_as_they_are(way: str):
    calls = [CALL, {"name": "weather", "arguments": '{"city": "Oslo', "id": "call_2"}]
    with ScriptedModel(script({"text": "Both.", "calls": calls, "chunk": 3})) as server:
        answer = answer_of(server, way)
    assert answer.finish == "tool_calls"
    assert answer.message.content == "Both."
    assert answer.message.tool_calls == (
        ToolCall("call_1", "weather", '{"city":"Rome"}'),
        ToolCall("call_2", "weather", '{"city": "Oslo'),
    )


def test_the_events_of_a_stream_add_up_to_the_answer():
    step = {"text": "one two three", "reasoning": "hm", "calls": [CALL], "chunk": 4}
    with ScriptedModel(script(step)) as server:
        events = asking(server, lambda model: events_of(model, [USER]))
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert texts == ["one ", "two ", "thre", "e"]
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["hm"]
    calls = [event for event in events if isinstance(event, CallDelta)]
    assert {(event.number, event.id, event.name) for event in calls} == {(0, "call_1", "weather")}
    assert "".join(event.arguments for event in calls) == '{"city":"Rome"}'
    assert isinstance(events[-1], StreamEnded)
    assert sum(isinstance(event, StreamEnded) for event in events) == 1


def test_the_first_words_arrive_before_the_last_are_written():
    async def use(model: Model) -> list[float]:
        clock = asyncio.get_running_loop().time
        return [clock() async for event in model.stream([USER]) if isinstance(event, TextDelta)]

    step = {"text": "x" * 20, "chunk": 4, "pause": 0.05}
    with ScriptedModel(script(step)) as server:
        times = asking(server, use)
    assert times[-1] - times[0] > 0.1


@BOTH
def test_an_empty_answer_is_an_answer(way: str):
    with ScriptedModel(script({})) as server:
        answer = answer_of(server, way)
    assert answer.message == Message("assistant", "", finish_reason="stop")


@BOTH
def test_a_failure_that_may_pass_is_retried_with_growing_pauses(way: str):
    pauses = Pauses()
    step = {"text": "Sunny.", "faults": [{"status": 500}, {"status": 503}, {"status": 429}]}
    with ScriptedModel(script(step)) as server:
        answer = answer_of(server, way, sleep=pauses)
    assert answer.message.content == "Sunny."
    assert len(server.requests) == 4
    for bound, pause in zip((1, 2, 4), pauses.seconds, strict=True):
        assert bound / 2 <= pause <= bound


@BOTH
def test_the_pauses_are_the_same_with_the_same_seed(way: str):
    seen: list[list[float]] = []
    for _ in range(2):
        pauses = Pauses()
        with ScriptedModel(script({"text": "x", "faults": [{"status": 500}] * 3})) as server:
            answer_of(server, way, sleep=pauses, random=Random(1))
        seen.append(pauses.seconds)
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("given", "least"), [("7", 7.0), (7.5, 7.5), ("Thu, 01 Jan 1970 00:17:00 GMT", 20.0)]
)
def test_an_overloaded_endpoint_is_given_the_time_it_asks_for(given: str | float, least: float):
    pauses = Pauses()
    step = {"text": "Sunny.", "faults": [{"status": 429, "retry_after": given}]}
    with ScriptedModel(script(step)) as server:
        answer_of(server, "plain", sleep=pauses, clock=lambda: 1000.0)
    [pause] = pauses.seconds
    assert least <= pause <= least + 0.2


@BOTH
def test_an_endpoint_that_asks_for_too_long_a_pause_is_given_up(way: str):
    step = {"faults": [{"status": 429, "retry_after": "3600", "always": True}]}
    with (
        ScriptedModel(script(step)) as server,
        pytest.raises(errors.ModelOverloaded, match="try again in 3600 s") as caught,
    ):
        answer_of(server, way)
    assert caught.value.retry_after == 3600
    assert len(server.requests) == 1


@BOTH
@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (
            {"status": 400, "message": "bad temperature"},
            errors.ModelRequestRejected,
            "bad temperature",
        ),
        ({"status": 401}, errors.ModelRequestRejected, "check model.api_key"),
        ({"status": 404}, errors.ModelRequestRejected, "check model.name and model.base_url"),
        (
            {"status": 429, "code": "insufficient_quota"},
            errors.ModelRequestRejected,
            "out of credit",
        ),
        (
            {"status": 400, "code": "context_length_exceeded"},
            errors.ContextTooLong,
            "compress it",
        ),
        (
            {"status": 400, "message": "prompt is too long: 210000 tokens > 200000 maximum"},
            errors.ContextTooLong,
            "compress it",
        ),
        ({"status": 413}, errors.ContextTooLong, "compress it"),
    ],
)
def test_a_refusal_is_told_at_once_with_what_to_do(
    way: str, fault: dict[str, Any], error: type[errors.ModelError], words: str
):
    with (
        ScriptedModel(script({"faults": [{**fault, "always": True}]})) as server,
        pytest.raises(error, match=words),
    ):
        answer_of(server, way)
    assert len(server.requests) == 1


@BOTH
@pytest.mark.parametrize(
    ("status", "error"),
    [(500, errors.ModelUnreachable), (503, errors.ModelOverloaded), (529, errors.ModelOverloaded)],
)
def test_what_does_not_pass_is_reported_in_the_end(
    way: str, status: int, error: type[errors.ModelError]
):
    with (
        ScriptedModel(script({"faults": [{"status": status, "always": True}]})) as server,
        pytest.raises(error),
    ):
        answer_of(server, way, retry_policy=RetryPolicy(max_attempts=3))
    assert len(server.requests) == 3


BREAKS = [{"cut": 3}, {"stop": 3}, {"cut": 0}, {"garbage": True}, {"error": "the engine fell over"}]


@pytest.mark.parametrize("fault", BREAKS)
def test_a_stream_that_stops_in_the_middle_is_asked_for_again(fault: dict[str, Any]):
    step = {"text": "Sunny, with some clouds.", "faults": [fault]}
    with ScriptedModel(script(step)) as server:
        events = asking(server, lambda model: events_of(model, [USER]))
    [again] = [event for event in events if isinstance(event, Retrying)]
    after = events[events.index(again) + 1 :]
    texts = "".join(event.text for event in after if isinstance(event, TextDelta))
    assert texts == "Sunny, with some clouds."
    assert isinstance(events[-1], StreamEnded)
    assert events[-1].response.message.content == texts
    assert isinstance(again.error, (errors.StreamBroken, errors.ModelUnreachable))


@pytest.mark.parametrize("fault", BREAKS)
def test_a_stream_that_never_comes_to_its_end_is_no_answer(fault: dict[str, Any]):
    step = {"text": "Sunny, with some clouds.", "faults": [{**fault, "always": True}]}
    with (
        ScriptedModel(script(step)) as server,
        pytest.raises((errors.StreamBroken, errors.ModelUnreachable)) as caught,
    ):
        answer_of(server, "stream", retry_policy=RetryPolicy(max_attempts=2))
    assert len(server.requests) == 2
    if fault in ({"cut": 3}, {"stop": 3}):
        assert isinstance(caught.value, errors.StreamBroken)
        assert caught.value.partial_text == "Sunny, with some"


@pytest.mark.parametrize("fault", [{"cut": 0}, {"garbage": True}, {"error": "fell over"}])
def test_a_plain_answer_that_cannot_be_read_is_asked_for_again(fault: dict[str, Any]):
    with ScriptedModel(script({"text": "Sunny.", "faults": [fault]})) as server:
        assert answer_of(server, "plain").message.content == "Sunny."
    assert len(server.requests) == 2


def test_a_stream_that_breaks_after_its_end_is_a_finished_answer():
    step = {"text": "Sunny.", "chunk": 99, "faults": [{"cut": 3}]}
    with ScriptedModel(script(step)) as server:
        answer = answer_of(server, "stream")
    assert (answer.message.content, answer.tokens) == ("Sunny.", Tokens())
    assert len(server.requests) == 1


@BOTH
def test_an_endpoint_that_stays_silent_is_left(way: str):
    with ScriptedModel(script({"text": "late", "wait": 30})) as server:
        endpoint = Endpoint(server.url, "scripted", silence_seconds=0.2)
        with pytest.raises(errors.ModelUnreachable, match="timed out"):
            answer_of(server, way, endpoint=endpoint, retry_policy=RetryPolicy(max_attempts=1))


@BOTH
def test_an_answer_that_takes_too_long_as_a_whole_is_left(way: str):
    step = {"text": "x" * 400, "chunk": 1, "pause": 0.05, "wait": 0.05 if way == "stream" else 30}
    with ScriptedModel(script(step)) as server:
        endpoint = Endpoint(server.url, "scripted", answer_seconds=0.5)
        with pytest.raises(errors.ModelError, match=r"no complete response within 0\.5 s"):
            answer_of(server, way, endpoint=endpoint, retry_policy=RetryPolicy(max_attempts=1))


@BOTH
def test_an_address_where_nobody_answers_is_named(way: str):
    url = f"http://127.0.0.1:{find_port()}/v1"
    with ScriptedModel() as server:
        endpoint = Endpoint(url, "scripted")
        with pytest.raises(errors.ModelUnreachable, match=r"check model\.base_url") as caught:
            answer_of(server, way, endpoint=endpoint, retry_policy=RetryPolicy(max_attempts=2))
    assert url in str(caught.value)


def test_a_client_that_cannot_be_loaded_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ImportError("half an installation")

    monkeypatch.setattr("rekindle.agent.model.client.import_module", broken)
    with ScriptedModel() as server, pytest.raises(errors.InvalidSetting, match="half an inst"):
        asking(server, lambda model: model.complete([USER]))


def test_a_cancelled_answer_ends_the_request():
    async def use(model: Model) -> None:
        task = asyncio.create_task(model.complete([USER]))
        await until(lambda: bool(server.requests))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with ScriptedModel(script({"text": "late", "wait": 30})) as server:
        asking(server, use)
    assert [request.outcome for request in server.requests] == ["aborted"]


def test_a_stream_that_is_closed_early_ends_the_request():
    async def use(model: Model) -> None:
        async with aclosing(model.stream([USER])) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        await until(lambda: server.requests[0].outcome == "aborted")

    with ScriptedModel(script({"text": "x" * 4000, "chunk": 1, "pause": 0.05})) as server:
        asking(server, use)


@BOTH
def test_a_conversation_with_tools_goes_round(way: str):
    steps = [{"calls": [CALL]}, {"text": "It is {result} in answer to: {user}"}]
    with ScriptedModel(script(*steps)) as server:
        first = answer_of(server, way).message
        result = Message("tool", "21 degrees", tool_call_id="call_1")
        second = answer_of(server, way, USER, first, result)
    assert second.message.content == "It is 21 degrees in answer to: weather in Rome?"
    assert [request.violations for request in server.requests] == [[], []]
    assert server.requests[1].messages[1].tool_calls == first.tool_calls


@BOTH
def test_an_interrupted_conversation_is_sent_repaired(way: str):
    call = Message("assistant", None, [ToolCall("x" * 80, "weather", '{"city": ')])
    with ScriptedModel(script({"text": "fine"})) as server:
        answer = answer_of(server, way, USER, call, USER, USER)
    assert answer.message.content == "fine"
    assert server.requests[0].violations == []


def test_the_rules_of_the_provider_are_kept():
    call = Message("assistant", None, [ToolCall("call_1", "weather", "{}")])
    with ScriptedModel(script({"text": "fine"}, provider="mistral")) as server:
        endpoint = Endpoint(server.url, "mistral-small")
        answer_of(server, "plain", USER, call, USER, endpoint=endpoint)
    assert server.requests[0].violations == []


def test_the_signature_of_a_thought_goes_back_to_gemini():
    extra = {"google": {"thought_signature": "c2ln"}}
    gathering = ResponseBuilder()
    delta = {"index": 0, "id": "c1", "function": {"name": "weather"}, "extra_content": extra}
    list(gathering.add_chunk({"choices": [{"delta": {"tool_calls": [delta]}}]}))
    message = gathering.build_response().message
    with ScriptedModel(script({"text": "fine"}, {"text": "fine"}, provider="gemini")) as server:
        endpoint = Endpoint(server.url, "gemini-3-pro")
        answer_of(server, "plain", USER, message, endpoint=endpoint)
    assert server.requests[0].body["messages"][1]["tool_calls"][0]["extra_content"] == extra


def test_reasoning_goes_back_only_where_it_is_wanted():
    said = Message("assistant", "hm", reasoning="deep")
    with ScriptedModel(script({"text": "fine"})) as server:
        answer_of(server, "plain", USER, said, USER)
        endpoint = Endpoint(server.url, "deepseek", reasoning_field="reasoning_content")
        answer_of(server, "plain", USER, said, USER, endpoint=endpoint)
    sent = [request.body["messages"][1] for request in server.requests]
    assert sent[0] == {"role": "assistant", "content": "hm"}
    assert sent[1] == {"role": "assistant", "content": "hm", "reasoning_content": "deep"}


def test_options_go_into_every_request():
    with ScriptedModel(script({"text": "fine"})) as server:
        endpoint = Endpoint(server.url, "scripted", options={"temperature": 0.5})
        answer_of(server, "plain", endpoint=endpoint)
    assert server.requests[0].body["temperature"] == 0.5


def test_a_model_without_a_name_is_refused():
    with pytest.raises(errors.InvalidSetting, match=r"model\.name"):
        Model(Endpoint("http://127.0.0.1:1/v1", ""))


def gathered(*deltas: list[dict[str, Any]]) -> list[ToolCall]:
    gathering = ResponseBuilder()
    for delta in deltas:
        list(gathering.add_chunk({"choices": [{"index": 0, "delta": {"tool_calls": delta}}]}))
    return list(gathering.build_response().message.tool_calls)


def part(arguments: str, **fields: Any) -> dict[str, Any]:
    name = fields.pop("name", None)
    return {"function": {"name": name, "arguments": arguments}, **fields}


def test_calls_are_joined_however_an_endpoint_numbers_them():
    want = [ToolCall("a", "x", "{}"), ToolCall("b", "y", "[]")]
    numbered = [[part("{", index=0, id="a", name="x")], [part("[", index=1, id="b", name="y")]]
    assert gathered(*numbered, [part("}", index=0)], [part("]", index=1)]) == want
    same_index = [[part("{}", index=0, id="a", name="x")], [part("[]", index=0, id="b", name="y")]]
    assert gathered(*same_index) == want
    unnumbered = [part("{", id="a", name="x"), part("}"), part("[", id="b", name="y"), part("]")]
    assert gathered(unnumbered) == want
    repeated_id = [[part("{", index=0, id="a", name="x")], [part("}", index=0, id="a", name="x")]]
    assert gathered(*repeated_id) == want[:1]


@pytest.mark.parametrize(
    "chunk",
    [
        None,
        "text",
        {},
        {"choices": None},
        {"choices": ["x"]},
        {"choices": [{"delta": {"content": 7, "tool_calls": [3, {"function": "f"}]}}]},
        {"usage": {"prompt_tokens": "many", "prompt_tokens_details": 3}},
    ],
)
def test_what_has_the_wrong_shape_counts_as_absent(chunk: object):
    gathering = ResponseBuilder()
    assert [event for event in gathering.add_chunk(chunk) if isinstance(event, TextDelta)] == []
    assert gathering.finish == ""
    assert gathering.tokens == Tokens()


def test_tokens_written_to_a_cache_are_told_apart():
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "cache_creation_input_tokens": 30}
    assert parse_usage(usage) == Tokens(input=70, output=1, cache_write=30)


def test_the_scripted_model_gives_the_same_answer_to_the_same_history():
    steps = script({"calls": [{"name": "weather"}]}, {"text": "done"})
    answers: list[ModelResponse] = []
    for _ in range(2):
        with ScriptedModel(steps) as server:
            answers += [answer_of(server, "plain"), answer_of(server, "stream")]
    assert all(answer == answers[0] for answer in answers)


def test_the_last_words_of_the_user_choose_the_turn():
    turns = [
        {"user": "alpha", "steps": [{"text": "A"}]},
        {"user": "beta", "steps": [{"text": "B"}]},
    ]
    with ScriptedModel({"turns": turns}) as server:
        for text, want in [
            ("alpha then beta", "B"),
            ("beta then alpha", "A"),
            ("x", "You said: x"),
        ]:
            assert answer_of(server, "plain", Message("user", text)).message.content == want


def test_an_endless_step_calls_for_ever():
    with ScriptedModel(script({"calls": [{"name": "nosuch"}], "endless": True})) as server:
        history = [USER]
        for _ in range(5):
            answer = answer_of(server, "plain", *history).message
            assert [call.name for call in answer.tool_calls] == ["nosuch"]
            history += [answer, Message("tool", "no", tool_call_id=answer.tool_calls[0].id)]


def test_the_scripted_model_refuses_what_the_provider_would():
    import openai

    messages: Any = [
        {"role": "user", "content": "x"},
        {"role": "tool", "content": "y", "tool_call_id": "z"},
    ]
    with (
        ScriptedModel() as server,
        openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="which has no pending call"),
    ):
        client.chat.completions.create(model="m", messages=messages)
    assert server.requests[0].outcome == "refused"


def test_a_script_with_an_unknown_word_is_refused():
    with pytest.raises(msgspec.ValidationError, match="stepz"):
        ScriptedModel({"turns": [{"user": "x", "stepz": []}]})


def program(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rekindle.testing", "model", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def test_the_scripted_model_runs_as_a_program_and_starts_again_on_its_port(tmp_path: Path):
    file, log = tmp_path / "script.json", tmp_path / "log.jsonl"
    file.write_text(json.dumps(script({"text": "Sunny.", "calls": [{"name": "weather"}]})))
    answers: list[ModelResponse] = []
    port = "0"
    for _ in range(2):
        running = program("--script", str(file), "--port", port, "--log", str(log))
        assert running.stdout is not None
        url = running.stdout.readline().strip()
        port = url.split(":")[-1].split("/")[0]

        async def ask(url: str = url) -> ModelResponse:
            async with Model(Endpoint(url, "scripted")) as model:
                return await model.complete([USER])

        answers.append(asyncio.run(ask()))
        with urlopen(f"{url}/requests") as told:
            assert [one["outcome"] for one in json.load(told)] == ["answered"]
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0
    assert answers[0] == answers[1]
    assert [json.loads(line)["outcome"] for line in log.read_text().splitlines()] == [
        "answered",
        "answered",
    ]


def test_a_script_that_cannot_be_read_is_a_mistake_of_the_user(tmp_path: Path):
    file = tmp_path / "script.json"
    file.write_text('{"turns": [{"user": 7}]}')
    running = program("--script", str(file))
    _, told = running.communicate(timeout=PATIENCE)
    assert running.returncode == 2
    assert "turns[0].user" in told


def test_a_hundred_conversations_are_answered_at_once():
    async def use(model: Model) -> list[ModelResponse]:
        asked = [model.complete([Message("user", f"number {n}")]) for n in range(100)]
        return await asyncio.gather(*asked)

    with ScriptedModel(
        msgspec.convert({"otherwise": [{"text": "{user}", "wait": 0.2}]}, Script)
    ) as s:
        answers = asking(s, use)
    assert [answer.message.content for answer in answers] == [f"number {n}" for n in range(100)]


@pytest.mark.parametrize(
    ("url", "proxy", "is_read"),
    [
        ("https://127.0.0.1:9/v1", None, True),
        ("http://127.0.0.1:9/v1", None, False),
        ("http://127.0.0.1:9/v1", "https://127.0.0.1:8", True),  # the proxy has a certificate
    ],
)
def test_certificates_are_read_only_where_they_are_needed(
    url: str, proxy: str | None, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in {*os.environ}:
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    if proxy:
        monkeypatch.setenv("http_proxy", proxy)
    read: list[object] = []
    create = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda *a, **b: read.append(a) or create())

    async def load() -> None:
        async with Model(Endpoint(url, "any")) as model:
            await model.load_client()

    asyncio.run(load())
    assert bool(read) == is_read
