"""Tools switched on and off, and calls carried out: whatever happens, there is a result."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.agent.tools import schema_check
from rekindle.agent.tools.builtin.toolset import BUILTIN_TOOLS
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import Tool, ToolContext, ToolResult, build_schema
from rekindle.agent.tools.truncate import HeadTailBuffer, truncate_middle
from rekindle.errors import InvalidInput, ToolError
from rekindle.types import ToolCall
from tests.waiting import PATIENCE

CONTEXT = ToolContext(session="s", cwd=Path("/tmp"))
NUMBER = build_schema("count", count={"type": "integer", "minimum": 1, "maximum": 9})


def tool(name: str = "echo", handler: Any = lambda context, given: "hi", **fields: Any) -> Tool:
    values = {"toolset": "test", "description": "d", "parameters": build_schema(), **fields}
    return Tool(name=name, handler=handler, **values)


def run(one: Tool, given: str | Mapping[str, Any] = "{}", name: str | None = None) -> ToolResult:
    box = ToolRegistry([one]).select()
    return asyncio.run(box.run(ToolCall("1", name or one.name, given), CONTEXT))


def error_of(result: ToolResult) -> str:
    assert result.is_error
    return json.loads(result.content)["error"]


# -- what a session has


def test_toolsets_and_tools_are_switched_on_and_off() -> None:
    registry = ToolRegistry(
        [tool("a", toolset="x"), tool("b", toolset="x"), tool("c", toolset="y")]
    )
    assert list(registry.select().tools) == ["a", "b", "c"]
    assert list(registry.select(["x"]).tools) == ["a", "b"]
    assert list(registry.select(["x", "c"], off=["a"]).tools) == ["b", "c"]
    assert list(registry.select(["all"], off=["x"]).tools) == ["c"]
    assert list(registry.select([]).tools) == []
    assert registry.toolsets == {"x": ("a", "b"), "y": ("c",)}


def test_a_toolset_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(
        InvalidInput, match="unknown toolset or tool 'fils'; allowed: all, files, read"
    ):
        ToolRegistry([tool("read", toolset="files")]).select(["fils"])


@pytest.mark.parametrize("on", [["terminal"], ["all"], ["shell"], ["terminal", "process"]])
@pytest.mark.parametrize("off", [[], ["process"], ["background"]])
def test_process_goes_with_terminal_in_every_toolset(on: list[str], off: list[str]) -> None:
    shell, process = tool("terminal", toolset="shell"), tool("process", toolset="background")
    assert set(ToolRegistry([shell, process]).select(on, off).tools) == {"terminal", "process"}
    assert ToolRegistry([shell, process]).toolsets["shell"] == ("terminal", "process")


@pytest.mark.parametrize(("on", "off"), [(["process"], []), (["all"], ["terminal"])])
def test_there_is_no_process_without_terminal(on: list[str], off: list[str]) -> None:
    registry = ToolRegistry([tool("terminal"), tool("process", toolset="p")])
    assert list(registry.select(on, off).tools) == []


def test_every_tool_at_once_in_a_training_run_warns(caplog: pytest.LogCaptureFixture) -> None:
    registry = ToolRegistry([tool("a", toolset="x"), tool("b", toolset="y")])
    with caplog.at_level(logging.WARNING):
        assert "all 2 tools" in registry.select(training=True).warnings[0]
        assert "all 2 tools" in caplog.text
        assert registry.select(["x", "y"], training=True).warnings
        caplog.clear()
        assert registry.select(["x"], training=True).warnings == ()
        assert registry.select().warnings == ()
        assert caplog.text == ""


def test_a_name_is_taken_once_and_must_suit_every_provider() -> None:
    with pytest.raises(InvalidInput, match="a tool named 'a' already exists"):
        ToolRegistry([tool("a"), tool("a")])
    for name in ("", "a b", "a.b", "x" * 65, "ä"):
        with pytest.raises(InvalidInput, match=r"tool\.name"):
            ToolRegistry([tool(name)])


def test_a_tool_that_lacks_something_is_not_offered_and_says_why() -> None:
    def broken(context: ToolContext) -> str | None:
        raise OSError("disk")

    registry = ToolRegistry(
        [tool("a"), tool("b", missing=lambda context: "no disk"), tool("c", missing=broken)]
    )
    box = registry.select()
    assert [one["function"]["name"] for one in box.build_definitions(CONTEXT)] == ["a"]
    for name, why in (("b", "no disk"), ("c", "availability check failed")):
        result = asyncio.run(box.run(ToolCall("1", name, "{}"), CONTEXT))
        assert why in error_of(result)


def test_the_standard_tools_have_what_a_model_needs() -> None:
    box = ToolRegistry(BUILTIN_TOOLS).select()
    assert set(box.tools) == {
        "terminal",
        "read_file",
        "write_file",
        "patch",
        "search_files",
        "execute_code",
        "session_search",
        "todo",
    }
    for one in box.build_definitions(CONTEXT):
        function = one["function"]
        assert len(function["description"]) > 40
        assert function["parameters"]["additionalProperties"] is False
        json.dumps(one)
    assert all(one.emoji for one in BUILTIN_TOOLS)


# -- calls


def test_an_unknown_tool_is_answered_with_near_names() -> None:
    assert error_of(run(tool("read_file"), name="read_fil")) == (
        "unknown tool 'read_fil'; did you mean read_file?"
    )
    assert "did you mean read_file?" in error_of(run(tool("read_file"), name="READFILE"))
    assert "available: read_file" in error_of(run(tool("read_file"), name="zzz"))


def test_a_tool_that_is_switched_off_says_so() -> None:
    box = ToolRegistry([tool("a"), tool("b", toolset="y")]).select(["y"])
    result = asyncio.run(box.run(ToolCall("1", "a", "{}"), CONTEXT))
    assert error_of(result) == "the tool a is disabled in this session; use b"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"count": 1', "not valid JSON: Expecting ',' delimiter at character 12 of 11"),
        ("count=1", "not valid JSON"),
        ("[1]", "must be a JSON object, got [1]"),
        ('{"count": NaN}', "NaN is not valid in JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"count": ' + "9" * 5000 + "}", "not valid JSON"),
        ("", "count: missing"),
        ("{}", "count: missing"),
        ('{"count": "1"}', 'count: expected integer, got "1"'),
        ('{"count": true}', "count: expected integer, got true"),
        ('{"count": 1.5}', "count: expected integer, got 1.5"),
        ('{"count": null}', "count: expected integer, got null"),
        ('{"count": 10}', "count: 10 is not allowed; allowed: from 1 up to 9"),
        ('{"count": 1, "cuont": 2}', "cuont: unknown argument; did you mean count?"),
        ('{"count": 1, "x": 2}', "x: unknown argument; allowed: count"),
    ],
)
def test_wrong_arguments_are_answered_with_the_field_and_what_is_allowed(
    given: str, said: str
) -> None:
    ran: list[object] = []
    error = error_of(
        run(tool(handler=lambda context, given: ran.append(given), parameters=NUMBER), given)
    )
    assert said in error
    assert error.endswith("arguments: count (integer, required)")
    assert ran == []


@pytest.mark.parametrize(
    "given", ['{"count": 3}', '{"count": 3.0}', {"count": 3}, '"{\\"count\\": 3}"', ' {"count":3} ']
)
def test_right_arguments_reach_the_handler(given: str | Mapping[str, Any]) -> None:
    result = run(tool(handler=lambda context, given: repr(given), parameters=NUMBER), given)
    assert result.content == "{'count': 3}"


def test_null_stands_for_an_optional_argument_that_is_left_out() -> None:
    parameters = build_schema(a={"type": "string"}, b={"type": ["string", "null"]})
    result = run(
        tool(handler=lambda context, given: repr(given), parameters=parameters),
        '{"a": null, "b": null}',
    )
    assert result.content == "{'b': None}"


@pytest.mark.parametrize(
    ("one", "value", "said"),
    [
        ({"enum": ["a", "b"]}, "c", 'x: "c" is not allowed; allowed: "a", "b"'),
        ({"type": "string", "minLength": 1}, "", "x: must not be empty"),
        (
            {"type": "string", "maxLength": 2},
            "abc",
            "x: too long: 3 characters; allowed: up to 2",
        ),
        ({"type": "string", "pattern": "^a"}, "b", 'x: "b" does not match ^a'),
        (
            {"type": "array", "items": {"type": "integer"}},
            [1, "b"],
            'x[1]: expected integer, got "b"',
        ),
        ({"type": "array", "maxItems": 1}, [1, 2], "x: too many entries: 2"),
        ({"type": "array", "minItems": 1}, [], "x: needs at least 1 entries"),
        (build_schema("y", y={"type": "integer"}), {}, "x.y: missing"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "a", "x: expected integer, got"),
        ({"$ref": "#/$defs/Z"}, "a", "x: expected integer"),
        ({"exclusiveMinimum": 0}, 0, "x: 0 is not allowed; allowed: above 0"),
        ({"const": 1}, 2, "x: 2 is not allowed; allowed: 1"),
        ({"allOf": [{"type": "integer"}]}, "a", "x: expected integer"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ["a"], "x: expected string, got"),
        ({"enum": [1]}, True, "x: true is not allowed; allowed: 1"),
        ({"uniqueItems": True}, [1, 1], "x: [1, 1] has non-unique elements"),
        ({"type": "object", "patternProperties": {"^a": {"type": "null"}}}, {"ab": 1}, "x.ab: exp"),
    ],
)
def test_common_keywords_of_json_schema_are_checked(one: Any, value: Any, said: str) -> None:
    parameters = {**build_schema(x=one), "$defs": {"Z": {"type": "integer"}}}
    with pytest.raises(ToolError) as caught:
        schema_check.parse_arguments(parameters, {"x": value})
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    "one",
    [
        True,
        5,
        {"type": 5},
        {"type": "nonsense"},
        {"required": True},
        {"maximum": "9"},
        {"pattern": "("},
        {"$ref": "#/properties/x"},
        {"$ref": "http://localhost:9/schema"},
        {"$schema": {}},
    ],
)
def test_a_schema_that_cannot_be_checked_leaves_the_arguments_to_the_tool(
    one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers choose their schemas: none may end a turn, load a page or recurse forever."""
    loaded: list[object] = []
    monkeypatch.setattr("urllib.request.urlopen", loaded.append)
    assert schema_check.parse_arguments(build_schema(x=one), {"x": "a"}) == {"x": "a"}
    root = one if isinstance(one, dict) else {"required": one}
    assert schema_check.parse_arguments(root, {"x": "a"}) == {"x": "a"}
    assert loaded == []


@given(
    st.text()
    | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps)
)
def test_any_arguments_give_a_result(given: str) -> None:
    try:
        count = schema_check.parse_arguments(NUMBER, given)["count"]
    except ToolError:
        return
    assert isinstance(count, int)


def test_a_failing_handler_is_a_result() -> None:
    def fails(context: ToolContext, given: Any) -> str:
        raise ValueError("bad thing")

    async def fails_later(context: ToolContext, given: Any) -> str:
        raise KeyError("x")

    def leaves(context: ToolContext, given: Any) -> str:
        raise SystemExit(3)

    def stops(context: ToolContext, given: Any) -> str:
        raise StopIteration

    assert error_of(run(tool(handler=fails))) == "echo failed: ValueError: bad thing"
    assert error_of(run(tool(handler=fails_later))) == "echo failed: KeyError: 'x'"
    assert error_of(run(tool(handler=leaves))) == "echo failed: SystemExit: 3"
    assert "echo failed" in error_of(run(tool(handler=stops)))
    assert "which is not text" in error_of(run(tool(handler=lambda context, given: object())))


def test_a_refusal_is_marked_as_such() -> None:
    def refuses(context: ToolContext, given: Any) -> str:
        raise ToolError("not you", refused=True)

    result = run(tool(handler=refuses))
    assert error_of(result) == "not you"
    assert result.meta["refused"] is True


def test_plain_and_async_handlers_run_beside_each_other() -> None:
    threads: set[int] = set()

    def slow(context: ToolContext, given: Any) -> str:
        threads.add(threading.get_ident())
        time.sleep(0.2)
        return "slow"

    async def both() -> list[ToolResult]:
        box = ToolRegistry([tool(handler=slow)]).select()
        calls = [box.run(ToolCall(str(n), "echo", "{}"), CONTEXT) for n in range(3)]
        ticks = 0
        gathered = asyncio.gather(*calls)
        while not gathered.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks > 3  # the loop went on meanwhile
        return await gathered

    assert [one.content for one in asyncio.run(both())] == ["slow"] * 3
    assert len(threads) == 3
    assert threading.get_ident() not in threads


def test_a_call_that_takes_too_long_is_stopped_and_says_so() -> None:
    stopped = threading.Event()

    def slow(context: ToolContext, given: Any) -> str:
        assert context.stop is not None
        if context.stop.wait(20):
            stopped.set()
        return "late"

    async def slow_async(context: ToolContext, given: Any) -> str:
        await asyncio.sleep(20)
        return "late"

    for handler in (slow, slow_async):
        result = run(tool(handler=handler, seconds=0.1))
        assert error_of(result) == "echo took longer than 0.1 s and was stopped"
    assert stopped.wait(PATIENCE)


def test_a_time_out_of_the_handler_itself_is_its_failure() -> None:
    async def fails(context: ToolContext, given: Any) -> str:
        raise TimeoutError("the server")

    assert error_of(run(tool(handler=fails))) == "echo failed: TimeoutError: the server"


def test_cancelling_reaches_the_handler_and_is_passed_on() -> None:
    seen: list[str] = []
    stopped = threading.Event()

    async def waits(context: ToolContext, given: Any) -> str:
        try:
            await asyncio.sleep(20)
        finally:
            seen.append("cancelled")
        return ""

    def blocks(context: ToolContext, given: Any) -> str:
        assert context.stop is not None
        if context.stop.wait(20):
            stopped.set()
        return ""

    async def main(one: Tool) -> None:
        task = asyncio.create_task(
            ToolRegistry([one]).select().run(ToolCall("1", "echo", ""), CONTEXT)
        )
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main(tool(handler=waits)))
    assert seen == ["cancelled"]
    asyncio.run(main(tool(handler=blocks)))
    assert stopped.wait(PATIENCE)


def test_a_long_result_is_cut_with_the_cut_said() -> None:
    text = "a" * 5000 + "b" * 5000
    result = run(tool(handler=lambda context, given: text, characters=1000))
    assert len(result.content) <= 1000
    assert result.content.startswith("aaa")
    assert result.content.endswith("bbb")
    head, _, rest = result.content.partition("\n[… ")
    count, _, tail = rest.partition(" characters left out …]\n")
    assert int(count.replace(",", "")) + len(head) + len(tail) == 10_000


def test_half_of_a_surrogate_pair_never_gets_into_a_result() -> None:
    assert run(tool(handler=lambda context, given: "a\ud800b")).content == "a?b"


def test_a_result_becomes_the_message_that_answers_the_call() -> None:
    call = ToolCall("42", "echo", "{}")
    result = asyncio.run(ToolRegistry([tool()]).select().run(call, CONTEXT))
    message = result.to_message(call)
    assert (message.role, message.tool_call_id, message.name, message.content) == (
        "tool",
        "42",
        "echo",
        "hi",
    )
    assert set(message.meta or {}) == {"duration"}


@given(st.text(max_size=400), st.integers(0, 300))
def test_cut_keeps_to_its_limit_and_counts_right(text: str, limit: int) -> None:
    short = truncate_middle(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        assert len(short) <= max(limit, 60)
        assert "characters left out" in short


@given(st.text(max_size=300), st.integers(1, 40), st.integers(1, 7))
def test_collected_output_never_cuts_a_character(text: str, limit: int, step: int) -> None:
    data = text.encode("utf-8", "replace")
    kept = HeadTailBuffer(limit)
    for start in range(0, len(data), step):
        kept.feed(data[start : start + step])
    whole, shown = data.decode(), kept.get_text()
    if len(whole) <= limit:
        assert shown == whole
    else:
        head, _, rest = shown.partition("\n[… ")
        count, _, tail = rest.rpartition(" characters left out …]\n")
        assert "\ufffd" not in shown or "\ufffd" in whole
        assert shown.startswith(whole[: limit * 2 // 3])
        assert shown.endswith(whole[len(whole) - (limit - limit * 2 // 3) :])
        assert f"{len(whole) - limit:,} characters left out" in shown
        assert head is not None
        assert count is not None
        assert tail is not None
