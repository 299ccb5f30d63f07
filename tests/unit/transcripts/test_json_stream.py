from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.transcripts import UnreadableEntry
from rekindle.transcripts.jsonio import scanner, stream
from rekindle.transcripts.jsonio.scanner import ContainerEnd, JsonPath, JsonValue
from rekindle.transcripts.jsonio.stream import iter_stream_values, iter_values

TREE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def opens(place: JsonPath) -> bool:
    return len(place) < 3


def rebuilt(given: list[Any]) -> Any:
    """The document that the walk took apart; only lists and objects with keys of their own."""
    out: dict[JsonPath, Any] = {}
    for step in given:
        if isinstance(step, JsonValue):
            out[step.path] = step.value
    return out


def taken(document: Any, place: JsonPath = ()) -> dict[JsonPath, Any]:
    """What a walk through this document must give."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    out: dict[JsonPath, Any] = {}
    for key, value in items:
        below = (*place, key)
        if isinstance(value, (dict, list)) and opens(below):
            out |= taken(value, below)
        else:
            out[below] = value
    return out


@given(TREE, st.sampled_from([1, 2, 3, 7, 64]), st.sampled_from([None, 1]))
def test_a_walk_gives_every_value_wherever_the_text_is_cut_into_chunks(
    tree: Any, chunk: int, indent: int | None
) -> None:
    document = tree if isinstance(tree, (dict, list)) else [tree]
    data = json.dumps(document, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or chunk, chunk))

    given = list(iter_stream_values(Slow(data), "f", opens))
    assert not [step for step in given if isinstance(step, UnreadableEntry)]
    expected = taken(json.loads(data.decode("utf-8", "replace")))
    assert rebuilt(given) == expected
    assert given[-1] == ContainerEnd(0, ())


def test_a_value_that_is_no_json_is_located_and_the_others_survive(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a": [\n{"b": oops},\n7,\n{"c" 1}, tru],\nx: 3,\n"d": 5}')
    given = list(iter_values(path, opens))
    assert rebuilt(given) == {("a", 1): 7, ("d",): 5}
    assert [(d.line, d.what.split(":")[0]) for d in given if isinstance(d, UnreadableEntry)] == [
        (2, "a[0].b"),
        (4, "a[2]"),
        (4, "a[3]"),
        (5, "the document"),
    ]


def test_a_document_that_was_cut_gives_what_came_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a": [1, {"b": 2}, {"b": "not clo')
    given = list(iter_values(path, opens))
    assert rebuilt(given) == {("a", 0): 1, ("a", 1, "b"): 2}
    assert [d.what for d in given if isinstance(d, UnreadableEntry)] == [
        "unexpected end of document, 3 levels deep"
    ]


def test_a_bad_line_costs_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": [1]}\n{"a": [2\n[{{\n{"a": [3]}\n')
    given = list(iter_values(path, opens))
    assert [step.value for step in given if isinstance(step, JsonValue)] == [1, 3]
    assert [step.line for step in given if isinstance(step, UnreadableEntry)] == [2, 3]


@pytest.mark.parametrize("text", ['[\n{"a": 1}\n]', '{"x": [\n{"a": 1}\n]}', '[{"a": 1}]'])
def test_a_document_that_is_laid_out_is_not_taken_for_lines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    given = list(iter_values(path, opens))
    assert [step.value for step in given if isinstance(step, JsonValue)] == [1]
    assert not [step for step in given if isinstance(step, UnreadableEntry)]


def test_depth_without_end_is_damage_and_not_a_crash() -> None:
    data = b'[7, {"a":' * 50_000
    given = list(iter_stream_values(io.BytesIO(data), "f", lambda _: True))
    assert given[0] == JsonValue(0, 1, (0,), 7)
    assert isinstance(given[-1], UnreadableEntry)
    deep = b'{"a": ' + b"[" * 50_000 + b"]" * 50_000 + b', "b": 1}'
    given = list(iter_stream_values(io.BytesIO(deep), "f", lambda _: False))
    assert [step.what for step in given if isinstance(step, UnreadableEntry)] == [
        "a: nested too deeply"
    ]
    assert rebuilt(given) == {("b",): 1}


def test_lists_in_lists_cost_the_memory_of_a_few_values(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    element = json.dumps({"messages": [{"text": "x" * 5_000}] * 3_000, "n": 1})
    path.write_text(f"[{element},\n{element}]")
    tracemalloc.start()
    try:
        count = sum(isinstance(step, JsonValue) for step in iter_values(path, opens))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 6_002
    assert peak < 8_000_000 < path.stat().st_size / 3


def test_a_value_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "MAX_LINE_BYTES", 3 << 20)
    data = b'[1, "' + b"x" * (9 << 20)
    given = list(iter_stream_values(io.BytesIO(data), "f", opens))
    assert given[0] == JsonValue(0, 1, (0,), 1)
    assert "longer than 3 MiB" in given[-1].what  # pyright: ignore[reportAttributeAccessIssue]


@given(
    st.lists(TREE, max_size=3) | st.dictionaries(st.text(max_size=4), TREE, max_size=3),
    st.sampled_from([None, 1]),
)
def test_a_sound_document_gives_what_a_walk_gives_with_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, document: Any, indent: int | None
) -> None:
    path = tmp_path_factory.mktemp("sound") / "file.json"
    path.write_text(json.dumps(document, indent=indent))
    walked = list(iter_stream_values(io.BytesIO(path.read_bytes()), str(path), opens))
    assert list(stream.iter_document_values(path, opens)) == walked


def test_a_key_that_is_there_twice_costs_neither_of_its_values(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"runs": [\n{"said": [1, 2],\n "said": [3]}, {"said": [4]}]}')
    given = list(stream.iter_document_values(path, lambda _: True))
    assert given == list(
        iter_stream_values(io.BytesIO(path.read_bytes()), str(path), lambda _: True)
    )
    assert [step.value for step in given if isinstance(step, JsonValue)] == [1, 2, 3, 4]


def test_text_between_documents_is_reported_once() -> None:
    data = b'{"a": 1}\nKilled\nstarted again\n{"b": 2}\nKilled\n'
    items = list(iter_stream_values(io.BytesIO(data), "log", lambda _: False))
    assert [item.value for item in items if isinstance(item, JsonValue)] == [1, 2]
    assert [item.line for item in items if isinstance(item, UnreadableEntry)] == [2, 5]


def test_a_document_whose_beginning_is_lost_continues_at_its_next_key() -> None:
    data = b'"x"\n  },\n  "messages": [\n    {"n": 1},\n    {"n": 2}\n  ]\n}\n'
    items = list(iter_stream_values(io.BytesIO(data), "cut", lambda path: path == ("messages",)))
    found = [(item.path, item.value) for item in items if isinstance(item, JsonValue)]
    assert found == [(("messages", 0), {"n": 1}), (("messages", 1), {"n": 2})]
