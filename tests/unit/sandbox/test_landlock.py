"""The words of the launchers: what a command may reach is what was said, whatever the names of files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rekindle.sandbox import landlock
from rekindle.sandbox.file_view import FileView, ViewRequest, build_view

LAUNCHERS = landlock.list_launchers()
each_launcher = pytest.mark.parametrize(
    "launcher", LAUNCHERS, ids=["perl", "python"][-len(LAUNCHERS) :]
)


def view_of(root: Path, readable: Path) -> FileView:
    return build_view(
        ViewRequest(
            roots=(str(root),),
            environment={"HOME": str(root.parent / "home"), "PATH": os.defpath},
            readable=(str(readable),),
        )
    )


def run(
    words: Sequence[str], *command: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*words, *command], capture_output=True, cwd=cwd, timeout=60, check=False)


def test_perl_starts_commands_here() -> None:
    assert Path(LAUNCHERS[0][0]).name == "perl"


@each_launcher
def test_odd_paths_and_words_arrive_as_they_were_given(
    launcher: Sequence[str], tmp_path: Path
) -> None:
    own, root, other = tmp_path / "own\n--", tmp_path / "work -- \udcff", tmp_path / "other"
    for folder in (own, root, other):
        folder.mkdir(parents=True)
        (folder / "file").write_text("found")
    words = landlock.build_command(launcher, view_of(root, own), str(tmp_path / "tmp"))
    assert run(words, "printf", "%s|", "--", "a b", "1\n", "").stdout == b"--|a b|1\n||"
    assert run(words, "cat", str(own / "file")).stdout == b"found"
    assert run(words, "cp", str(own / "file"), str(root / "copy")).returncode == 0
    assert b"denied" in run(words, "cp", str(root / "file"), str(own / "copy")).stderr.lower()
    assert b"denied" in run(words, "cat", str(other / "file")).stderr.lower()
    assert b"found" not in run(words, "cat", str(other / "file")).stdout


@each_launcher
def test_a_command_gets_its_signals_and_no_privileges(
    launcher: Sequence[str], tmp_path: Path
) -> None:
    (root := tmp_path / "work").mkdir()
    words = landlock.build_command(launcher, view_of(root, root), str(tmp_path / "tmp"))
    piped = run([*words, "sh", "-c", "yes | head -n 1"])
    assert (piped.stdout, piped.stderr) == (b"y\n", b"")  # `yes` ends without complaint
    socket = run([*words, "bash", "-c", ": > /dev/udp/127.0.0.1/9"])
    assert b"not permitted" in socket.stderr


@each_launcher
@pytest.mark.parametrize(
    "words",
    [
        ["", "", "", "mips"],
        ["1,2,3,4,5", "", "", "1", "1", "/usr", "true"],
        ["1,2,3,4,5", "", "", "2", "--"],
    ],
)
def test_an_incomplete_policy_is_refused(launcher: Sequence[str], words: list[str]) -> None:
    done = run(launcher, *words)
    assert done.returncode == 126
    assert b"incomplete" in done.stderr or b"no system call filter for mips" in done.stderr


@each_launcher
def test_a_command_that_does_not_exist_is_named(launcher: Sequence[str], tmp_path: Path) -> None:
    (root := tmp_path / "work").mkdir()
    words = landlock.build_command(launcher, view_of(root, root), str(tmp_path / "tmp"))
    done = run(words, "no-such-program")
    assert done.returncode == 126
    assert b"No such file" in done.stderr


def test_variables_that_perl_obeys_never_reach_it() -> None:
    perl = ("/usr/bin/perl", "-f", "x.pl")
    assert landlock.choose_launcher(perl, {"PATH": "/bin"}) == perl
    for name in ("PERL5OPT", "PERL5LIB", "PERLLIB", "PERL_UNICODE"):
        assert landlock.choose_launcher(perl, {name: ""}) == landlock.build_python_launcher()


def test_the_launcher_in_python_loads_few_modules() -> None:
    """Every confined command waits for them."""
    *start, code = landlock.build_python_launcher()
    assert start[1:] == ["-I", "-S", "-c"]
    code = code.replace("it.main()", "print(*sys.modules)")
    done = subprocess.run([*start, code], capture_output=True, text=True, check=True)
    assert not {"json", "re", "typing", "platform", "site", "enum"} & {*done.stdout.split()}
