import tomllib

import pytest

from rekindle.coding_agents.config_edit.toml_edit import (
    add_table,
    find_table,
    remove_table,
    replace_table,
)
from rekindle.errors import InvalidInput

PATH = ("mcp_servers", "rekindle")
ENTRY = {"command": "/opt/a b/rekindle", "args": ["mcp"]}
TEXTS = {
    "empty": "",
    "settings": '# mine\nmodel = "x"  # why\n\n[a]\nb = 1\n',
    "another server": '[mcp_servers.other]\ncommand = "x"\n',
    "crlf": '[a]\r\nb = "x"\r\n',
    "a string like a header": 'text = """\n[mcp_servers.rekindle]\n"""\n[z]\n',
    "an array of tables": "[[mcp]]\na = 1\n[[mcp]]\na = 2\n",
    "an array over lines": "[a]\nb = [\n  [1],\n  [2],\n]\n",
    "quoted keys": '[projects."/a.b/c"]\ntrust_level = "trusted"\n',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_adding_a_table_changes_nothing_else_and_can_be_undone(text: str) -> None:
    added = add_table(text, PATH, ENTRY)
    assert added.startswith(text)
    assert find_table(added, PATH) == ENTRY
    if text != TEXTS["a string like a header"]:
        assert remove_table(added, PATH) == text


def test_a_string_that_looks_like_the_table_is_never_cut() -> None:
    added = add_table(TEXTS["a string like a header"], PATH, ENTRY)
    with pytest.raises(InvalidInput, match="by hand"):
        remove_table(added, PATH)


def test_a_text_without_a_newline_at_the_end_gets_one() -> None:
    added = add_table("a = 1", PATH, {"command": "x"})
    assert added == 'a = 1\n\n[mcp_servers.rekindle]\ncommand = "x"\n'


def test_tables_that_the_agent_added_inside_are_removed_as_well() -> None:
    text = add_table("a = 1\n", PATH, ENTRY)
    text += '\n[mcp_servers.rekindle.tools.search]\napproval_mode = "approve"\n[b]\nc = 1\n'
    assert tomllib.loads(remove_table(text, PATH)) == {"a": 1, "b": {"c": 1}}


def test_an_older_table_is_replaced() -> None:
    text = add_table("a = 1\n", PATH, {"command": "old"}) + "\n[b]\nc = 1\n"
    replaced = tomllib.loads(replace_table(text, PATH, ENTRY))
    assert replaced == {"a": 1, "b": {"c": 1}, "mcp_servers": {"rekindle": ENTRY}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "not valid TOML"),
        ('mcp_servers = {x = {command = "y"}}\n', "by hand"),
        ("mcp_servers = 1\n", "not a table"),
        ("a = " + "[" * 10_000, "not valid TOML"),
    ],
)
def test_what_cannot_be_extended_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        add_table(text, PATH, ENTRY)
