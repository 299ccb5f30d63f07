from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.errors import InvalidInput
from rekindle.sandbox.file_view import FileView, ViewRequest, build_view


def view(
    root: Path, home: Path, own: tuple[str, ...] = (), readable: tuple[str, ...] = ()
) -> FileView:
    environment = {"HOME": str(home), "PATH": "/usr/bin"}
    return build_view(ViewRequest((str(root),), environment, own, readable))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "project").mkdir(parents=True)
    return tmp_path / "home"


def test_the_workspace_is_writable_and_the_home_around_it_is_not_visible(home: Path) -> None:
    (home / ".ssh").mkdir()
    found = view(home / "project", home)
    assert found.list_paths("write") == [str(home / "project")]
    assert str(home) not in found.list_paths("read")
    assert str(home / ".ssh") not in found.list_paths("read")


def test_tools_below_the_home_are_readable(home: Path) -> None:
    (home / ".cargo" / "bin").mkdir(parents=True)
    assert str(home / ".cargo/bin") in view(home / "project", home).list_paths("read")


def test_credentials_of_the_workspace_are_hidden_and_examples_are_not(home: Path) -> None:
    for name in (".env", ".env.local", ".env.example", "sub/.env"):
        path = home / "project" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("TOKEN=x\n")
    (home / "project/server.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    (home / "project/public.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    hidden = view(home / "project", home).list_paths("hide")
    names = {path.removeprefix(f"{home}/project/") for path in hidden if path.startswith(str(home))}
    assert names == {".env", ".env.local", "sub/.env", "server.pem"}


def test_a_setting_shows_a_hidden_file(home: Path) -> None:
    (home / "project/.env").write_text("TOKEN=x\n")
    found = view(home / "project", home, readable=(".env",))
    assert str(home / "project/.env") not in found.list_paths("hide")


def test_git_can_commit_but_hooks_and_settings_are_locked(home: Path) -> None:
    git = home / "project/.git"
    (git / "hooks").mkdir(parents=True)
    (git / "config").write_text("")
    (home / "project/.vscode").mkdir()
    found = view(home / "project", home)
    assert found.list_paths("pin") == [str(git)]
    assert found.list_paths("lock") == [
        str(home / "project/.vscode"),
        str(git / "config"),
        str(git / "hooks"),
    ]


def test_in_the_home_itself_everything_that_begins_with_a_dot_is_hidden(home: Path) -> None:
    for name in (".ssh", ".config", ".pyenv"):
        (home / name).mkdir()
    (home / ".bashrc").write_text("")
    found = view(home, home)
    hidden = [path for path in found.list_paths("hide") if path.startswith(str(home))]
    assert hidden == [str(home / name) for name in (".bashrc", ".config", ".ssh")]
    assert str(home / ".pyenv") in found.list_paths("lock")


@pytest.mark.parametrize("folder", ["/", "/tmp", "/home", "/usr/lib", "/etc"])
def test_a_folder_that_holds_more_than_a_project_is_refused(folder: str, home: Path) -> None:
    with pytest.raises(InvalidInput, match="too broad"):
        view(Path(folder), home)


def test_no_setting_opens_our_own_folder(home: Path) -> None:
    own = home / "data" / "rekindle"
    own.mkdir(parents=True)
    (own / "sessions.db").touch()
    for readable in (home / "data", own, own / "sessions.db"):
        seen = view(home / "project", home, own=(str(own),), readable=(str(readable),))
        assert str(own) in seen.list_paths("hide") or not any(
            str(own).startswith(path) or path.startswith(str(own))
            for path in seen.list_paths("read")
        )


def test_our_own_folder_is_hidden_in_a_workspace_and_refused_as_one(home: Path) -> None:
    own = home / "project" / "rekindle"
    own.mkdir()
    assert str(own) in view(home / "project", home, own=(str(own),)).list_paths("hide")
    with pytest.raises(InvalidInput, match="own files"):
        view(own, home, own=(str(own),))
    (own / "work").mkdir()
    assert view(own / "work", home, own=(str(own),)).roots == (str(own / "work"),)
