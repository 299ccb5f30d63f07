import subprocess
from pathlib import Path

import pytest

from rekindle.coding_agents.config_edit.diff import render_diff

LONG = [f"line {number}" for number in range(40)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("\n".join(LONG) + "\n", "\n".join([*LONG[:5], "new", *LONG[5:30], *LONG[32:]]) + "\n"),
        ("a", "a\nb\n"),
        ("a\nb\n", "a\nb"),
        ("x\n" * 20, "x\n" * 21),
    ],
)
def test_a_diff_is_what_patch_understands(before: str, after: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(before)
    patch = "\n".join(render_diff("file", before, after)) + "\n"
    command = ["patch", "--no-backup-if-mismatch", str(file)]
    done = subprocess.run(command, input=patch, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + patch
    assert "offset" not in done.stdout
    assert file.read_text() == after


def test_new_and_deleted_files_are_named_as_such() -> None:
    assert [*render_diff("f", None, "a\n")] == ["--- /dev/null", "+++ f", "@@ -0,0 +1 @@", "+a"]
    assert [*render_diff("f", "a\n", None)] == ["--- f", "+++ /dev/null", "@@ -1 +0,0 @@", "-a"]


def test_long_lines_are_cut() -> None:
    (line,) = [one for one in render_diff("f", None, "x" * 5000 + "\n") if one.startswith("+x")]
    assert len(line) < 500
