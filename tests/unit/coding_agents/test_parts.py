import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.coding_agents.config_edit.parts import HookTable, JsonEntry, OwnFile, TomlTable
from rekindle.errors import InvalidInput
from rekindle.hooks.command import is_hook_command

COMMAND = "/home/ada/hooks/run codex start 2>/dev/null || true"
OLD = "'/home/a b/hooks/run' codex start"
OTHER = {"type": "command", "command": "echo hello"}


def build_table(**hooks: str) -> HookTable:
    wanted = {
        event: {"type": "command", "command": command, "timeout": 5}
        for event, command in hooks.items()
    }
    return HookTable(wanted, lambda command: is_hook_command(command, "codex"))


def group(*hooks: dict[str, Any]) -> dict[str, Any]:
    return {"hooks": [*hooks]}


def hook(command: str, **more: Any) -> dict[str, Any]:
    return {"type": "command", "command": command, **more}


def test_hooks_are_added_beside_those_of_others_and_only_once() -> None:
    text = json.dumps({"hooks": {"Start": [group(OTHER)]}}, indent=2)
    table = build_table(Start=COMMAND, Stop=COMMAND)
    assert table.check_state(text) == "absent"
    added = table.add_to(text)
    assert json.loads(added)["hooks"] == {
        "Start": [group(OTHER), group(hook(COMMAND, timeout=5))],
        "Stop": [group(hook(COMMAND, timeout=5))],
    }
    assert table.check_state(added) == "present"
    assert table.add_to(added) == added
    assert table.remove_from(added, text) == text


def test_a_hook_for_some_tools_alone_has_a_matcher() -> None:
    wanted = {"Call": {"type": "command", "command": COMMAND}}
    table = HookTable(wanted, lambda command: is_hook_command(command, "codex"), {"Call": "Bash"})
    added = table.add_to("")
    assert json.loads(added) == {"hooks": {"Call": [{"matcher": "Bash", "hooks": [hook(COMMAND)]}]}}
    assert table.check_state(added) == "present"
    assert table.add_to(added) == added
    assert table.remove_from(added, "").strip() == "{}"


def test_a_hook_that_the_user_moved_or_slowed_down_is_left_alone() -> None:
    text = json.dumps({"hooks": {"Start": [group(OTHER, hook(COMMAND, timeout=60))]}})
    table = build_table(Start=COMMAND)
    assert table.add_to(text) == text
    assert json.loads(table.remove_from(text, "")) == {"hooks": {"Start": [group(OTHER)]}}


def test_an_older_hook_is_replaced_in_its_place_and_doubles_are_removed() -> None:
    before = {"hooks": {"Start": [group(hook(OLD)), group(OTHER), group(hook(OLD))]}}
    table = build_table(Start=COMMAND)
    text = json.dumps(before, indent=2)
    assert table.check_state(text) == "stale"
    added = json.loads(table.add_to(text))
    assert added["hooks"]["Start"] == [group(hook(COMMAND, timeout=5)), group(OTHER)]


def test_a_hook_of_an_event_that_is_no_longer_used_is_removed() -> None:
    table = build_table(Start=COMMAND)
    text = json.dumps({"hooks": {"Stop": [group(hook(OLD))]}})
    assert table.check_state(table.add_to(text)) == "present"
    assert "Stop" not in json.loads(table.add_to(text))["hooks"]


def test_an_installation_with_a_missing_hook_is_stale() -> None:
    text = build_table(Start=COMMAND).add_to("{}")
    assert build_table(Start=COMMAND, Stop=COMMAND).check_state(text) == "stale"


def test_empty_containers_stay_only_if_they_were_there_before() -> None:
    table = build_table(Start=COMMAND)
    added = table.add_to('{"hooks": {}, "a": 1}')
    assert json.loads(table.remove_from(added, '{"hooks": {}}')) == {"hooks": {}, "a": 1}
    assert json.loads(table.remove_from(added, "")) == {"a": 1}


@pytest.mark.parametrize(
    "hooks", [[], 1, None, {"Start": {}}, {"Start": [1]}, {"Start": [{"hooks": 1}]}]
)
def test_hooks_of_an_unexpected_shape_are_never_destroyed(hooks: Any) -> None:
    text = json.dumps({"hooks": hooks})
    table = build_table(Start=COMMAND)
    assert table.remove_from(text, "") == text
    assert table.list_commands(text) == []
    try:
        added = json.loads(table.add_to(text))
    except InvalidInput:
        return
    assert added["hooks"]["Start"][: len(hooks.get("Start", []))] == hooks.get("Start", [])


COMMANDS = st.sampled_from(["echo hello", COMMAND, OLD, "rekindle hook gemini start"])
HOOKS = st.fixed_dictionaries(
    {}, optional={"type": st.just("command"), "command": COMMANDS | st.integers()}
)
GROUPS = st.fixed_dictionaries(
    {}, optional={"matcher": st.just("*"), "hooks": st.lists(HOOKS | st.none(), max_size=3)}
)
EVENTS = st.dictionaries(
    st.sampled_from(["Start", "Stop", "Other"]), st.lists(GROUPS | st.integers(), max_size=3)
)


def drop_ours(hooks: dict[str, Any]) -> dict[str, Any]:
    """The hooks of others: without ours, and without groups and events that are then empty."""
    kept: dict[str, Any] = {}
    for event, groups in hooks.items():
        rest: list[Any] = []
        for one in groups:
            inner = one.get("hooks") if isinstance(one, dict) else None
            if inner:
                theirs = [hook for hook in inner if not is_ours(hook)]
                if theirs or theirs == inner:
                    rest.append({**one, "hooks": theirs})
            else:
                rest.append(one)
        if rest:
            kept[event] = rest
    return kept


def iter_hooks(hooks: dict[str, Any]) -> Iterator[Any]:
    for groups in hooks.values():
        for one in groups:
            yield from one.get("hooks", []) if isinstance(one, dict) else []


def is_ours(hook: Any) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and is_hook_command(command, "codex")


@given(hooks=EVENTS, indent=st.sampled_from([None, 2, "\t"]))
def test_hooks_of_others_survive_whatever_stands_beside_them(
    hooks: dict[str, Any], indent: Any
) -> None:
    table = build_table(Start=COMMAND, Stop=COMMAND)
    text = json.dumps({"hooks": hooks, "a": 1}, indent=indent)
    added = table.add_to(text)
    assert table.check_state(added) == "present"
    assert table.add_to(added) == added
    theirs = drop_ours(hooks)
    assert drop_ours(json.loads(added)["hooks"]) == theirs
    removed = json.loads(table.remove_from(added, ""))
    assert drop_ours(removed.get("hooks", {})) == theirs
    assert not any(map(is_ours, iter_hooks(removed.get("hooks", {}))))
    assert removed["a"] == 1


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (COMMAND, True),
        (OLD, True),
        ("rekindle hook codex end 2>/dev/null || true", True),
        ("rekindle hook gemini end", False),
        ("/x/hooks/run codex", False),
        ("/x/hooks/run codex fly", False),
        ("echo codex start", False),
        ("", False),
        ("codex", False),
    ],
)
def test_our_hooks_are_recognized_by_their_command(command: str, expected: bool) -> None:
    assert is_hook_command(command, "codex") is expected


SERVER = {"command": "/opt/rekindle", "args": ["mcp"]}


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (JsonEntry(("mcpServers", "rekindle"), SERVER), '{\n  "a": 1\n}\n'),
        (TomlTable(("mcp_servers", "rekindle"), SERVER), "a = 1\n"),
    ],
)
def test_a_server_is_added_once_and_removed_without_a_trace(
    part: JsonEntry | TomlTable, text: str
) -> None:
    assert part.check_state(text) == "absent"
    added = part.add_to(text)
    assert part.check_state(added) == "present"
    assert part.add_to(added) == added
    assert part.list_commands(added) == ["/opt/rekindle"]
    assert part.remove_from(added, text) == text
    old = added.replace("/opt/rekindle", "/old/rekindle")
    assert part.check_state(old) == "stale"
    assert part.check_state(part.add_to(old)) == "present"


def test_what_the_user_added_to_a_server_stays() -> None:
    part = JsonEntry(("mcpServers", "rekindle"), SERVER)
    text = json.dumps({"mcpServers": {"rekindle": {**SERVER, "command": "old", "env": {"A": "1"}}}})
    assert json.loads(part.add_to(text))["mcpServers"]["rekindle"] == {**SERVER, "env": {"A": "1"}}


def test_a_file_of_another_author_is_neither_replaced_nor_removed() -> None:
    part = OwnFile("// Written by us\nnew", "// Written by us")
    assert part.check_state("// Written by us\nold") == "stale"
    assert part.add_to("// Written by us\nold") == part.content
    assert part.remove_from("// mine", "") == "// mine"
    with pytest.raises(InvalidInput, match="move it away"):
        part.add_to("// mine")
