"""Text and names found in a tree, with ripgrep and without: alike."""

from __future__ import annotations

import shutil
import time
import warnings
from pathlib import Path

import pytest

from rekindle.agent.tools.builtin import search_files
from rekindle.agent.tools.builtin.search_files import SEARCH_FILES
from rekindle.agent.tools.builtin.search_walk import is_ignored, parse_gitignore
from rekindle.agent.tools.tool import ToolContext
from tests.unit.agent.tools.calling import error, text


@pytest.fixture(params=["python", "ripgrep"])
def context(
    request: pytest.FixtureRequest, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> ToolContext:
    program = shutil.which("rg")
    if request.param == "ripgrep" and program is None:
        warnings.warn("RIPGREP IS NOT TESTED: rg is not installed", stacklevel=1)
        pytest.skip("rg is not installed")
    found = program if request.param == "ripgrep" else None
    monkeypatch.setattr(search_files.shutil, "which", lambda name, path=None: found)
    return context


@pytest.fixture
def tree(work: Path) -> Path:
    files = {
        "a.py": "import os\nprint('needle')\n",
        "b.txt": "no\nNeedle here\n",
        "src/c.py": "x = 1  # needle\n",
        "src/.hidden": "needle\n",
        "build/out.py": "needle\n",
        "notes.log": "needle\n",
        "src/keep.log": "needle\n",
        ".git/config": "needle\n",
        ".gitignore": "build/\n*.log\n!keep.log\n",
    }
    for name, content in files.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(content)
    (work / "image").write_bytes(b"\0needle")
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("needle")
    (work / "link").symlink_to(outside)
    (work / "link_file").symlink_to(outside / "secret")
    return work


def lines(context: ToolContext, **arguments: object) -> list[str]:
    return sorted(text(SEARCH_FILES, context, **arguments).split("\n"))


def test_text_is_found_with_file_and_line_but_not_what_git_ignores_nor_through_links(
    context: ToolContext, tree: Path
) -> None:
    assert lines(context, pattern="needle") == [
        "a.py:2:print('needle')",
        "src/.hidden:1:needle",
        "src/c.py:1:x = 1  # needle",
        "src/keep.log:1:needle",
    ]


def test_files_can_be_limited_by_glob_path_and_case(context: ToolContext, tree: Path) -> None:
    assert lines(context, pattern="needle", glob="*.py") == [
        "a.py:2:print('needle')",
        "src/c.py:1:x = 1  # needle",
    ]
    assert lines(context, pattern="needle", glob="src/*.py") == ["src/c.py:1:x = 1  # needle"]
    assert lines(context, pattern="needle", path="src", glob="*.{py,log}") == [
        "src/c.py:1:x = 1  # needle",
        "src/keep.log:1:needle",
    ]
    assert lines(context, pattern="NEEDLE", ignore_case=True, glob="*.txt") == [
        "b.txt:2:Needle here"
    ]
    assert lines(context, pattern="needle", path="src/c.py") == ["src/c.py:1:x = 1  # needle"]
    assert lines(context, pattern=r"^x\s=\s\d+\b", path=str(tree / "src")) == [
        "src/c.py:1:x = 1  # needle"
    ]
    assert lines(context, pattern=r"(?<=# )needle") == ["src/c.py:1:x = 1  # needle"]


def test_lines_around_a_match_are_shown_on_request(context: ToolContext, work: Path) -> None:
    (work / "a").write_text("1\n2\n3\n4\n5\n")
    assert text(SEARCH_FILES, context, pattern="3", context=1) == "a-2-2\na:3:3\na-4-4\n--"


def test_too_many_matches_are_bounded_and_said(context: ToolContext, work: Path) -> None:
    (work / "a").write_text("x\n" * 1000)
    (work / "b").write_text("x\n" * 1000)
    found = text(SEARCH_FILES, context, pattern="x", limit=5).split("\n")
    assert len(found) == 6
    assert found[-1].startswith("[first 5 matches; narrow")


def test_a_long_line_shows_the_part_that_matches(context: ToolContext, work: Path) -> None:
    (work / "a").write_text("ä" * 5000 + "needle" + "b" * 5000)
    found = text(SEARCH_FILES, context, pattern="needle")
    assert "needle" in found
    assert len(found) < 400
    assert found.endswith("…")


def test_nothing_found_is_no_failure(context: ToolContext, tree: Path) -> None:
    assert (
        text(SEARCH_FILES, context, pattern="absent")
        == "No matches found: no lines match 'absent'."
    )


def test_names_are_found_by_glob(context: ToolContext, tree: Path) -> None:
    assert lines(context, pattern="*.py", target="names") == ["a.py", "src/c.py"]
    assert lines(context, pattern="src/**", target="names") == [
        "src/.hidden",
        "src/c.py",
        "src/keep.log",
    ]
    assert lines(context, pattern="**/c.*", target="names") == ["src/c.py"]
    assert lines(context, pattern="c.py", target="names", path="src") == ["src/c.py"]


def test_wrong_requests_are_told(context: ToolContext, tree: Path) -> None:
    assert "not a regular expression" in error(SEARCH_FILES, context, pattern="(")
    assert "outside the allowed folders" in error(SEARCH_FILES, context, pattern="x", path="..")
    assert "outside the allowed folders" in error(SEARCH_FILES, context, pattern="x", path="link")
    assert "no such file or folder" in error(SEARCH_FILES, context, pattern="x", path="nowhere")


def test_a_pattern_that_takes_for_ever_is_ended(
    context: ToolContext, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "a").write_text("a" * 40 + "b")
    monkeypatch.setattr(search_files, "SECONDS", 1)
    began = time.monotonic()
    assert "took longer than 1 s" in error(SEARCH_FILES, context, pattern=r"^(a+)+(?=c)$")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("rules", "path", "is_folder", "ignored"),
    [
        ("*.pyc", "a/b.pyc", False, True),
        ("/top", "top", False, True),
        ("/top", "a/top", False, False),
        ("build/", "build", True, True),
        ("build/", "build", False, False),
        ("a/**/z", "a/b/c/z", False, True),
        ("a/*", "a/b", False, True),
        ("*.log\n!keep.log", "keep.log", False, False),
        ("# note\n\n  ", "note", False, False),
        ("[ab].txt", "b.txt", False, True),
        ("foo", "x/foo", True, True),
        ("doc/*.txt", "doc/sub/a.txt", False, False),
        ("[", "[", False, False),
        ("{a,b}", "a", False, False),
        ("{a,b}", "{a,b}", False, True),
        ("a**z", "a/z", False, False),
        ("a/**", "a", True, False),
        ("a/**", "a/b/c", False, True),
        ("a[!b]c", "a/c", False, False),
        ("a\\ ", "a ", False, True),
        ("!\na", "a", False, True),
    ],
)
def test_rules_of_gitignore(rules: str, path: str, is_folder: bool, ignored: bool) -> None:
    assert is_ignored((parse_gitignore(rules, ""),), path, is_folder) is ignored
