from __future__ import annotations

import pytest

from rekindle.agent.model.providers import PROVIDERS, Provider, detect_provider, find_violations
from rekindle.types import Message, ToolCall, make_foreign_message
from tests.cases import check_each

USER = Message("user", "go")
SIGNED = {"extra_content": {"abcdef123": {"google": {"thought_signature": "c2ln"}}}}


def call(id: str = "abcdef123", name: str = "read_file", arguments: str = "{}") -> Message:
    return Message("assistant", None, [ToolCall(id, name, arguments)], meta=SIGNED)


def result(id: str | None = "abcdef123", content: str = "x") -> Message:
    return Message("tool", content, tool_call_id=id)


# What is wrong with a conversation, and who refuses it.
ALL = set(PROVIDERS)
REFUSED: dict[str, tuple[list[Message], set[str]]] = {
    "nothing": ([], ALL),
    "only a system message": ([Message("system", "s")], ALL),
    "an unknown role": ([make_foreign_message("info", "s"), USER], ALL),
    "a developer": ([Message("developer", "s"), USER], ALL - {"openai"}),
    "the assistant first": ([Message("assistant", "hi"), USER], ALL),
    "the assistant last": ([USER, Message("assistant", "hi")], ALL - {"openai"}),
    "two users in a row": ([USER, USER], ALL),
    "two assistants in a row": ([USER, Message("assistant", "a"), Message("assistant", "b"), USER], ALL),
    "a late system message": ([USER, Message("system", "s")], ALL - {"openai"}),
    "a blank user": ([Message("user", " ")], ALL),
    "a blank assistant": ([USER, Message("assistant", ""), USER], ALL),
    "a blank text beside a call": (
        [USER, Message("assistant", "", call().tool_calls, meta=SIGNED), result()], ALL
    ),
    "a blank result": ([USER, call(), result(content="")], ALL),
    "half a character": ([Message("user", "\ud800")], ALL),
    "an unanswered call": ([USER, call()], ALL),
    "a call answered too late": ([USER, call(), USER, result()], ALL),
    "a result without a call": ([USER, result()], ALL),
    "a doubled result": ([USER, call(), result(), result()], ALL),
    "a result without an id": ([USER, call(), result(None)], ALL),
    "the user after a result": ([USER, call(), result(), USER], {"mistral"}),
    "an id of 65 characters": ([USER, call("x" * 65), result("x" * 65)], ALL),
    "an id with a point": ([USER, call("a.b"), result("a.b")], ALL - {"openai"}),
    "an id with an underscore": ([USER, call("call_0"), result("call_0")], {"gemini", "mistral"}),
    "an id used twice": ([USER, call(), result(), call(), result()], ALL - {"openai"}),
    "a tool name with a blank": ([USER, call(name="my tool"), result()], ALL),
    "a tool name with a digit first": ([USER, call(name="9x"), result()], {"gemini"}),
    "arguments that are no object": ([USER, call(arguments="[1]"), result()], ALL),
    "arguments that break off": ([USER, call(arguments='{"a": '), result()], ALL),
    "a call without a signature": (
        [USER, Message("assistant", None, call().tool_calls), result()], {"gemini"}
    ),
    "a name with a blank": ([Message("user", "x", name="Ada L")], ALL),
    "a name": ([Message("user", "x", name="ada")], ALL - {"openai"}),
    "calls of a user": ([Message("user", "x", call().tool_calls), result()], ALL),
    "129 calls": (
        [USER, Message("assistant", None, [ToolCall(f"a{n:08}", "t", "{}") for n in range(129)],
                       meta={"extra_content": {"a00000000": 1}}),
         *(result(f"a{n:08}") for n in range(129))],
        ALL,
    ),
    "a picture from the assistant": (
        [USER, Message("assistant", [{"type": "image_url", "image_url": {"url": "data:,"}}]), USER], ALL
    ),
    "a picture without an address": ([Message("user", [{"type": "image_url", "image_url": {}}])], ALL),
    "a sound": ([Message("user", [{"type": "input_audio", "input_audio": {}}])], {"anthropic"}),
    "a thought": ([Message("user", [{"type": "thinking", "thinking": "hm"}])], ALL),
}  # fmt: skip


@check_each("provider", PROVIDERS)
@check_each("fault", REFUSED)
def test_each_provider_refuses_what_it_does_not_take(provider: Provider, fault: str):
    messages, refusing = REFUSED[fault]
    assert bool(find_violations(provider, messages)) == (provider in refusing)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_ordinary_conversation_is_taken_by_all(provider: Provider):
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    messages = [
        Message("system", "s"),
        Message("user", [{"type": "text", "text": "what is it?"}, picture]),
        call(),
        result(),
        Message("assistant", "a cat"),
        USER,
    ]
    assert find_violations(provider, messages) == []


def test_a_violation_names_its_place():
    found = find_violations("mistral", [USER, call("call_0"), result("call_0")])
    assert found == ["messages[1].tool_calls[0].id: 'call_0' does not match [a-zA-Z0-9]{9}"]


@pytest.mark.parametrize(
    ("base_url", "model", "provider"),
    [
        ("https://api.openai.com/v1", "gpt-5", "openai"),
        ("http://127.0.0.1:8080/v1", "qwen2.5-coder", "openai"),
        ("https://api.anthropic.com/v1/", "claude-sonnet-4-5", "anthropic"),
        ("https://openrouter.ai/api/v1", "anthropic/claude-opus-4.6", "anthropic"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", "gemini-3-pro", "gemini"),
        ("https://api.mistral.ai/v1", "devstral-small-latest", "mistral"),
        ("http://127.0.0.1:8000/v1", "mistralai/Ministral-8B", "mistral"),
        ("https://api.mistral.ai/v1", "labs-x", "mistral"),
    ],
)
def test_the_provider_is_known_by_model_and_address(base_url: str, model: str, provider: Provider):
    assert detect_provider(base_url, model) == provider
