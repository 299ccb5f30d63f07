from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rekindle.transcripts.jsonio.partial import find_first_element, parse_partial_fields

VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a"\\{}[],: é'), max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip
DOCUMENT = st.dictionaries(st.sampled_from("abcdef"), VALUE, min_size=1, max_size=5)
INDENT = st.sampled_from([None, 1])


def kind(value: Any) -> Any:
    return {} if isinstance(value, dict) else [] if isinstance(value, list) else ""


@given(DOCUMENT, INDENT, st.floats(0, 1))
def test_of_a_cut_object_all_fields_are_known_but_the_last(
    document: dict[str, Any], indent: int | None, share: float
) -> None:
    data = json.dumps(document, indent=indent).encode()
    cut = data[: 1 + int(share * (len(data) - 2))]
    fields = parse_partial_fields(cut)
    names = [*fields]
    assert names == [*document][: len(names)]
    for name in names[:-1]:
        assert fields[name] == document[name]
    if names:
        last = names[-1]
        # A value that is just about to begin could become anything.
        assert fields[last] in (document[last], kind(document[last]), "")


@given(DOCUMENT, INDENT)
def test_of_a_whole_object_all_fields_are_known(
    document: dict[str, Any], indent: int | None
) -> None:
    assert parse_partial_fields(json.dumps(document, indent=indent).encode()) == document


@given(st.lists(DOCUMENT, min_size=1, max_size=3), INDENT, st.booleans(), st.floats(0, 1))
def test_the_first_element_of_a_cut_list_is_given_as_far_as_it_goes(
    elements: list[dict[str, Any]], indent: int | None, is_inside: bool, share: float
) -> None:
    document = {"before": [1], "said": elements} if is_inside else elements
    data = json.dumps(document, indent=indent).encode()
    begin = data.index(b"{", data.index(b'"said"') if is_inside else 0)
    cut = data[: begin + 2 + int(share * (len(data) - begin - 2))]
    first = find_first_element(cut, {"said"})
    assert first
    assert data[begin:].startswith(first)
    if len(elements) > 1 and share == 1:
        assert json.loads(first) == elements[0]


def test_a_list_under_another_key_is_not_the_one_that_is_asked_for() -> None:
    data = b'{"info": {"messages": [{"a": 1}]}, "steps": [{"b": 2}, {"c'
    assert find_first_element(data, {"messages"}) == b""
    assert find_first_element(data, {"steps"}) == b'{"b": 2}'


def test_documents_on_lines_and_damage_are_looked_through_too() -> None:
    assert parse_partial_fields(b'{"a": 1}\n{"b": 2}\n') == {"a": 1}
    assert find_first_element(b'{"a": 1}\n{"said": [7, 8]}\n', {"said"}) == b"7"
    assert parse_partial_fields(b'{"a": 1, "b": nonsense, "c": 3, "d') == {"a": 1, "c": 3}
