"""Which files a call reads, and which it makes."""

from __future__ import annotations

import pytest

from rekindle.knowledge.notes.calls import read_forms
from rekindle.knowledge.trust.session_files import list_created_files, list_read_files
from rekindle.types import ToolCall


def bash(command: str) -> ToolCall:
    return ToolCall("1", "Bash", {"command": command})


def list_read(call: ToolCall) -> list[str]:
    return list_read_files(call, read_forms(call, "/p"), "/p")


@pytest.mark.parametrize(
    "call",
    [
        bash("touch a/x.sh"), bash("curl -o a/x.sh https://x.example"), bash("echo 1 > a/x.sh"),
        bash("cp /tmp/x.sh a/x.sh"), bash("cat <<E >a/x.sh\n1\nE"), bash("echo 1 | tee a/x.sh"),
        ToolCall("1", "Write", {"file_path": "/p/a/x.sh", "content": "1"}),
        ToolCall("1", "apply_patch", "*** Begin Patch\n*** Add File: a/x.sh\n+1\n*** End Patch"),
    ],
)  # fmt: skip
def test_a_file_that_a_call_makes_is_created(call: ToolCall) -> None:
    assert "a/x.sh" in list_created_files(call, "/p")


def test_a_clone_is_created() -> None:
    assert "zork" in list_created_files(bash("git clone https://x.example/a/zork.git"), "/p")


@pytest.mark.parametrize(
    "call",
    [
        bash("cat a/x.sh"), bash("sed -n '1,9p' a/x.sh"),
        ToolCall("1", "Read", {"file_path": "/p/a/x.sh"}),
        ToolCall("1", "Edit", {"file_path": "/p/a/x.sh", "old_string": "1", "new_string": "2"}),
        ToolCall("1", "apply_patch", "*** Begin Patch\n*** Update File: a/x.sh\n*** End Patch"),
    ],
)  # fmt: skip
def test_a_file_that_was_there_is_read(call: ToolCall) -> None:
    assert "a/x.sh" in list_read(call)
    assert "a/x.sh" not in list_created_files(call, "/p")


@pytest.mark.parametrize(
    "call",
    [
        bash("touch a/x.sh"), bash("bash a/x.sh"),
        ToolCall("1", "mcp__git__get_file", {"path": "a/x.sh"}),
    ],
)  # fmt: skip
def test_nothing_else_reads_a_file(call: ToolCall) -> None:
    assert list_read(call) == []
