import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rekindle.coding_agents.config_edit.json_edit import (
    add_element,
    add_member,
    remove_value,
    replace_value,
)
from rekindle.coding_agents.config_edit.json_text import JsonDocument
from rekindle.errors import InvalidInput

ENTRY = {"command": "rekindle", "args": ["mcp"]}
STYLES = {
    "two spaces": '{\n  "a": 1,\n  "servers": {\n    "x": {"command": "y"}\n  }\n}\n',
    "tabs, no newline at the end": '{\n\t"a": 1,\n\t"servers": {\n\t\t"x": 1\n\t}\n}',
    "crlf": '{\r\n    "a": 1,\r\n    "servers": {\r\n        "x": 1\r\n    }\r\n}\r\n',
    "one line": '{"a": 1, "servers": {"x": 1}}',
    "minified": '{"a":1,"servers":{"x":1}}',
    "comments": '{\n  // first\n  "a": 1, // one\n  "servers": {\n    "x": 1 // z\n  } /* end */\n}\n',
    "trailing commas": '{\n  "a": 1,\n  "servers": {\n    "x": [1, 2,],\n  },\n}\n',
    "comma before a comment": '{\n  "servers": {\n    "x": 1, // why\n  }\n}\n',
    "closing bracket on the last line": '{\n  "servers": {\n    "x": 1}}',
    "byte order mark": '\ufeff{\n  "servers": {\n    "x": 1\n  }\n}\n',
    "strings that look like syntax": '{\n  "a": "} // no, \\" {",\n  "servers": {"x": "/*"}\n}\n',
    "blank lines": '\n\n{\n\n  "servers": {\n\n    "x": 1\n\n  }\n\n}\n\n',
    "without the object": '{\n  "a": 1\n}\n',
}


@pytest.mark.parametrize("text", STYLES.values(), ids=STYLES)
def test_adding_a_member_changes_nothing_else_and_can_be_undone(text: str) -> None:
    added = add_member(text, ["servers"], "rekindle", ENTRY)
    document = JsonDocument(added)
    assert document.load_path("servers", "rekindle") == ENTRY
    before = JsonDocument(text).load_value(JsonDocument(text).root)
    expected = {**before, "servers": {**before.get("servers", {}), "rekindle": ENTRY}}
    assert document.load_value(document.root) == expected
    has_servers = JsonDocument(text).find_node("servers") is not None
    path = ["servers", "rekindle"] if has_servers else ["servers"]
    assert remove_value(added, path) == text


def test_a_member_is_written_in_the_style_of_the_others() -> None:
    tabs = add_member('{\n\t"s": {\n\t\t"x": 1\n\t}\n}', ["s"], "r", {"k": [1]})
    assert tabs == (
        '{\n\t"s": {\n\t\t"x": 1,\n\t\t"r": {\n\t\t\t"k": [\n\t\t\t\t1\n\t\t\t]\n\t\t}\n\t}\n}'
    )
    assert add_member('{"a":1}', [], "b", [1, 2]) == '{"a":1,"b":[1,2]}'
    assert add_member('{ "a": 1 }', [], "b", 2) == '{ "a": 1, "b": 2 }'
    assert add_member("{}", [], "b", 2) == '{\n  "b": 2\n}'
    assert "\n" not in add_member('{\r\n  "a": 1\r\n}', [], "b", {"c": 1}).replace("\r\n", "")


def test_comments_stay_with_their_lines() -> None:
    text = '{\n  "a": 1 // about a\n  // about nothing\n}\n'
    added = add_member(text, [], "b", 2)
    assert added == '{\n  "a": 1, // about a\n  // about nothing\n  "b": 2\n}\n'
    assert remove_value(added, ["b"]) == text


@pytest.mark.parametrize("text", ["", "  \n", "// only a comment", "\ufeff"])
def test_a_text_without_a_value_counts_as_an_empty_object(text: str) -> None:
    added = add_member(text, ["a"], "b", 1)
    assert JsonDocument(added).load_path("a", "b") == 1
    assert added.startswith(text)


def test_elements_are_added_and_missing_arrays_created() -> None:
    text = add_element('{\n  "hooks": {}\n}\n', ["hooks", "Start"], {"a": 1})
    assert json.loads(text) == {"hooks": {"Start": [{"a": 1}]}}
    text = add_element(text, ["hooks", "Start"], {"a": 2})
    assert json.loads(text)["hooks"]["Start"] == [{"a": 1}, {"a": 2}]
    assert json.loads(remove_value(text, ["hooks", "Start", 0]))["hooks"]["Start"] == [{"a": 2}]


def test_a_value_is_replaced_where_it_stands() -> None:
    text = '{\n  "a": {"old": 1}, // kept\n  "b": 2\n}\n'
    assert replace_value(text, ["a"], 3) == '{\n  "a": 3, // kept\n  "b": 2\n}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "not a JSON object"),
        ("{,}", "line 1, column 2: a key is missing"),
        ('{\n  "a": 1\n  "b": 2}', "line 3, column 3"),
        ('{"a" 1}', "a colon is missing"),
        ('{"a": }', "a value is missing"),
        ('{"a": 1', "missing"),
        ('{"a": "x\ny"}', "unexpected character"),
        ('{"a": "\\q"}', "invalid escape"),
        ('{"a": 01}', "missing"),
        ('{"a": NaN}', "unexpected character"),
        ('{"a": 1} x', "unexpected character"),
        ('{"a": 1} 2', "text after the end"),
        ("{'a': 1}", "unexpected character"),
        ('{"a": /* open', "unexpected character"),
        ("{" * 10, "a key is missing"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ('{"s": 1}', '"s" is not an object'),
        ('{"s": null}', '"s" is not an object'),
        ('{"s": {}, "s": {}}', "more than once"),
    ],
)
def test_what_cannot_be_parsed_or_extended_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said.replace("(", r"\(")):
        add_member(text, ["s"], "r", 1)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


@given(
    value=OBJECTS,
    key=st.text(max_size=4),
    new=VALUES,
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
    inner=st.booleans(),
)
def test_any_object_survives_an_addition_and_its_removal(
    value: dict[str, Any], key: str, new: Any, indent: Any, inner: bool
) -> None:
    assume(key not in value)
    text = json.dumps(value, indent=indent)
    path = [] if not inner else [next((k for k in value if isinstance(value[k], dict)), key)]
    if inner:
        assume(path[0] in value and key not in value[path[0]])
    added = add_member(text, path, key, new)
    expected = json.loads(text)
    (expected[path[0]] if inner else expected)[key] = new
    assert json.loads(added) == expected
    removed = remove_value(added, [*path, key])
    container = value[path[0]] if inner else value
    # Of an empty container, only the space between its brackets may differ.
    assert removed == text if container else json.loads(removed) == value


@given(st.text(alphabet='{}[]",:/*\\ \n1a', max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        document = JsonDocument(text)
    except InvalidInput:
        return
    assert isinstance(document.load_value(document.root), dict)
    try:
        plain = json.loads(text)
    except ValueError:
        return
    assert document.load_value(document.root) == plain
