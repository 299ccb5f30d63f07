"""Where a missing file is, and in which folder a command finds its project."""

from __future__ import annotations

import pytest

from rekindle.knowledge.notes.failures import recall_failure
from rekindle.knowledge.notes.playbook import Playbook
from tests.unit.knowledge.notes.test_recall import ROOT, bash, build, read

CARGO = "error: could not find `Cargo.toml` in `{}` or any parent directory"
NO_MODULE = "go: go.mod file not found in current directory or any parent directory"


def ask(playbook: Playbook, command: str, result: str, root: str = ROOT) -> str:
    return recall_failure(playbook, root, bash(command).call, result).text


def test_no_folder_is_named_for_a_project_that_is_not_known() -> None:
    go = build(*[[bash("go vet ./..."), read("main.go")]] * 3)
    assert "cd " not in ask(go, "cargo build", CARGO.format("/elsewhere"))
    rust = build(*[[bash("ls"), read("engine/Cargo.toml")]] * 3)
    assert f"`cd {ROOT}/engine` first" in ask(rust, "cargo build", CARGO.format("/elsewhere"))
    assert f"`cd {ROOT}` first" in ask(go, "git log", "fatal: not a git repository")


def test_the_folder_in_which_a_program_looked_is_not_named() -> None:
    rust = build(*[[bash("cargo build"), read("Cargo.toml")]] * 3)
    assert f"`cd {ROOT}` first" in ask(rust, "cargo build", CARGO.format("/elsewhere"))
    assert "cd " not in ask(rust, "cargo build", CARGO.format(ROOT))
    assert "cd " not in ask(rust, "cargo build", CARGO.format(f"{ROOT}/src"))
    web = build(*[[bash("npm test"), read("package.json")]] * 3)
    missing = "npm error enoent no such file or directory, open '{}/package.json'"
    assert f"`cd {ROOT}` first" in ask(web, "npm test", missing.format(f"{ROOT}/docs"))
    assert "cd " not in ask(web, "npm test", missing.format(ROOT))


def test_a_folder_that_has_no_such_project_any_more_is_not_named() -> None:
    playbook = build(*[[bash("go vet ./...")]] * 3)
    call = bash("go vet ./...").call
    gone = recall_failure(playbook, ROOT, call, NO_MODULE, is_present=lambda path: False)
    assert "cd " not in gone.text
    there = recall_failure(playbook, ROOT, call, NO_MODULE, is_present=lambda path: True)
    assert f"`cd {ROOT}` first" in there.text


@pytest.mark.parametrize("name", ["a`b", "a\nb", "a\u202eb", "a\u2066b", "a\x1bb"])
def test_a_folder_that_could_hide_something_is_never_named(name: str) -> None:
    playbook = build(*[[bash("go vet ./..."), read("README.md")]] * 3)
    gone = "cat: README.md: No such file or directory"
    assert "cd '" in ask(playbook, "go vet ./...", NO_MODULE, "/home/me/my project")
    for command, result in (("go vet ./...", NO_MODULE), ("cat README.md", gone)):
        assert "cd " in ask(playbook, command, result)
        assert "cd " not in ask(playbook, command, result, f"/home/me/{name}")
