"""The words of the launcher: what it may reach is what was said, whatever the names of files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rekindle.sandbox import landlock
from rekindle.sandbox.file_view import ViewRequest, build_view
from rekindle.sandbox.landlock_launcher import split_words


def test_paths_and_command_arrive_as_they_were_given(tmp_path: Path) -> None:
    own, root = tmp_path / "own\n--", tmp_path / "work -- \udcff"
    for folder in (own, root):
        folder.mkdir(parents=True)
    view = build_view(
        ViewRequest(
            roots=(str(root),),
            environment={"HOME": str(tmp_path / "home"), "PATH": os.defpath},
            readable=(str(own),),
        )
    )
    words = landlock.build_command((), view, str(tmp_path))
    policy, command = split_words([*words, "echo", "--", "1"])
    assert command == ["echo", "--", "1"]
    assert str(root) in policy.write
    assert "/dev/null" in policy.devices
    assert not policy.network
    assert str(own) in policy.read


@pytest.mark.parametrize(
    "words", [["0", "1", "0", "0", "/usr", "true"], ["0", "2", "0", "0", "--"]]
)
def test_an_incomplete_policy_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match="incomplete"):
        split_words(words)


def test_the_launcher_loads_few_modules() -> None:
    """Every confined command waits for them."""
    *start, code = landlock.build_launcher("python3")
    assert start == ["python3", "-I", "-S", "-c"]
    code = code.replace("it.main()", "print(*sys.modules)")
    done = subprocess.run([*start, code], capture_output=True, text=True, check=True)
    assert not {"json", "re", "typing", "platform", "site"} & {*done.stdout.split()}
