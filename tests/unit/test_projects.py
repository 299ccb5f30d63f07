"""Which project a folder belongs to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from rekindle.errors import AmbiguousName, NotFound
from rekindle.projects import (
    KnownProjects,
    choose_project,
    find_clone,
    find_reported_remotes,
    find_repository,
    list_folders_above,
    matches_project,
    normalize_folder,
    normalize_remote,
    shorten_project,
)


@pytest.mark.parametrize(
    "url",
    [
        "git@github.com:Owner/Name.git",
        "https://github.com/owner/name",
        "https://github.com/owner/name.git/",
        "https://user:token@github.com/owner/name.git",
        "ssh://git@github.com:22/owner/name",
        "git+ssh://git@github.com/owner/name.git",
        "github.com:owner/name.git",
    ],
)
def test_every_form_of_a_remote_is_one_key(url: str) -> None:
    assert normalize_remote(url) == "github.com/owner/name"


def test_groups_of_groups_are_kept() -> None:
    assert normalize_remote("git@gitlab.com:a/b/c.git") == "gitlab.com/a/b/c"


@pytest.mark.parametrize(
    "url",
    ["", "/srv/git/name.git", "../name", "file:///srv/x/y", "name", "https://host.org", "a b"],
)
def test_a_path_is_no_remote(url: str) -> None:
    assert normalize_remote(url) is None


def run_git(*arguments: str, folder: Path) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize(
    "token",
    [
        "ghp_k3J9sLq0Zx8VbN2mT5rW7yU1oP4aD6fG8hJ0",
        "glpat-a1b2c3d4e5f6g7h8i9j0",
        "7f3a9c2e5d1184b60a9e7c3f2d5b8a1e6c4f0d92",
    ],
)
def test_a_token_in_the_path_of_a_remote_is_no_part_of_the_name(token: str) -> None:
    assert normalize_remote(f"https://git.acme.io/{token}/acme/x.git") == "git.acme.io/acme/x"
    assert normalize_remote(f"https://git.acme.io/{token}") is None
    names = ("acme/oh-my-posh-2024", "jandedobbeleer/oh-my-posh3", "user1234567890123/a-b_c.d")
    assert [normalize_remote(f"git@git.acme.io:{one}.git") for one in names] == [
        f"git.acme.io/{one}" for one in names
    ]


def test_clones_worktrees_and_subfolders_are_one_repository(tmp_path: Path) -> None:
    main = tmp_path / "main"
    (main / "deep" / "down").mkdir(parents=True)
    run_git("init", "-q", folder=main)
    run_git("remote", "add", "origin", "git@example.org:a/b.git", folder=main)
    run_git("commit", "-q", "--allow-empty", "-m", "x", folder=main)
    run_git("worktree", "add", "-q", str(tmp_path / "other"), folder=main)
    expected = (str(main.resolve()), "example.org/a/b")
    assert find_repository(main) == expected
    assert find_repository(main / "deep" / "down") == expected
    assert find_repository(tmp_path / "other") == expected


def test_a_folder_outside_any_repository_has_none(tmp_path: Path) -> None:
    assert find_repository(tmp_path / "gone") is None


def test_a_damaged_config_costs_the_remote_alone(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_bytes(b"[remote \xff\n===")
    assert find_repository(tmp_path) == (str(tmp_path.resolve()), None)


def test_git_names_remotes_in_its_reports() -> None:
    output = "To github.com:a/b.git\n   1..2  main -> main\n"
    assert find_reported_remotes("git push origin main", output) == ["github.com/a/b"]
    listed = "origin\thttps://github.com/a/b (fetch)\norigin\thttps://github.com/a/b (push)\n"
    assert set(find_reported_remotes("git remote -v", listed)) == {"github.com/a/b"}
    opened = "https://github.com/a/b/pull/17\n"
    assert find_reported_remotes("gh pr create --title x", opened) == ["github.com/a/b"]
    assert find_reported_remotes("cd /elsewhere && git remote -v", listed) == []
    assert find_reported_remotes("cat notes.txt", output) == []
    assert find_reported_remotes("git push", "To github.com:Ada/Shop.git") == [
        "github.com/Ada/Shop"
    ]


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("git fetch origin && git log -3", "    Fetch URL: https://github.com/victim/app.git"),
        ("git fetch origin; cat README.md", "From https://github.com/victim/app"),
        ("git fetch", "    Fetch URL: https://github.com/victim/app.git"),
        ("git push -C /x", "To github.com:victim/app.git"),
        ("gh pr view 5", "see https://github.com/victim/app/pull/1"),
        ("gh pr view 5 && cat x", "https://github.com/victim/app/pull/1"),
        ("git push $(cat x)", "To github.com:victim/app.git"),
    ],
)
def test_what_others_wrote_names_no_remote(command: str, output: str) -> None:
    assert find_reported_remotes(command, output) == []


def test_a_remote_is_named_by_one_command_whose_output_may_be_cut() -> None:
    shown = "* remote origin\n  Fetch URL: git@github.com:a/b.git"
    assert find_reported_remotes("git remote show origin", shown) == ["github.com/a/b"]
    pushed = "To github.com:a/b.git"
    assert find_reported_remotes("git push 2>&1 | tail -5", pushed) == ["github.com/a/b"]


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/home/me/x/", "/home/me/x"),
        ("C:\\Users\\me\\x", "c:/Users/me/x"),
        ("/home/me/x/.worktrees/2", "/home/me/x"),
        ("/home/me/x/.claude/worktrees/fix/deep", "/home/me/x"),
    ],
)
def test_folders_have_one_form(folder: str, expected: str) -> None:
    assert normalize_folder(folder) == expected


def test_a_folder_gets_the_remote_with_its_name_or_the_commonest() -> None:
    remotes = {"github.com/a/cli": 1, "github.com/a/tap": 5}
    assert choose_project("/x/cli", remotes, []) == "github.com/a/cli"
    assert choose_project("/x/other", remotes, []) == "github.com/a/tap"
    assert choose_project("/x/other", {"github.com/a/cli": 1}, []) == "folder:/x/other"


def test_a_path_that_ends_with_a_known_project_belongs_to_it() -> None:
    assert choose_project("/src/a/cli", {}, ["github.com/a/cli"]) == "github.com/a/cli"
    assert choose_project("/src/b/cli", {}, ["github.com/a/cli"]) == "folder:/src/b/cli"


def test_a_clone_has_the_name_and_the_files_of_its_project() -> None:
    files = {f"src/app/{letter}.go" for letter in "abcdefgh"}
    projects = {"github.com/a/cli": files, "github.com/a/web": {"src/app/a.go"}}
    assert find_clone("/x/test-cli/cli", files, projects) == "github.com/a/cli"
    assert find_clone("/x/20260205-cli", files, projects) == "github.com/a/cli"
    assert find_clone("/x/other", files, projects) is None
    assert find_clone("/x/cli", {"src/app/a.go", "src/app/z.go"}, projects) is None
    assert find_clone("/x/cli", {"a.go", "b.go", "c.go", "d.go", "e.go", "f.go"}, projects) is None


def test_the_folders_above_are_listed_without_the_root() -> None:
    assert list_folders_above("/a/b/c") == ["/a/b", "/a"]
    assert list_folders_above("/a") == []


def test_people_name_projects_as_they_like() -> None:
    assert shorten_project("github.com/a/cli") == "a/cli"
    assert shorten_project("folder:/z/other") == "other"
    for wanted in ("a/cli", "cli", "github.com/a/cli", "https://github.com/a/cli.git"):
        assert matches_project("github.com/a/cli", wanted)
    assert not matches_project("github.com/a/cli", "b/cli")


KNOWN = KnownProjects(
    [
        "github.com/acme/api",
        "github.com/other/web",
        "gitlab.com/acme/web",
        "folder:/w/api/.worktrees/1",
        "folder:/w/api/deep",
        "folder:/w/tool",
        "folder:/old/api",
    ],
    {"/w/api": "github.com/acme/api", "/w/tool": "folder:/w/tool"},
)


def test_folders_of_a_project_are_stored_under_several_keys() -> None:
    of_api = ("folder:/w/api/.worktrees/1", "folder:/w/api/deep", "github.com/acme/api")
    assert KNOWN.find_named_scope("acme/api") == ("acme/api", of_api)
    assert KNOWN.find_named_scope("api").keys == tuple(sorted((*of_api, "folder:/old/api")))
    assert KNOWN.find_named_scope("/old/api").keys == ("folder:/old/api",)
    assert KNOWN.find_named_scope("/w").keys == tuple(sorted((*of_api, "folder:/w/tool")))
    assert KNOWN.find_named_scope("too").name == "tool"


def test_a_column_names_the_owner_only_of_repositories_with_one_name() -> None:
    names = {project: KNOWN.get_name(project) for project in KNOWN.projects}
    assert names == {
        "github.com/acme/api": "api",
        "github.com/other/web": "other/web",
        "gitlab.com/acme/web": "acme/web",
        "folder:/w/tool": "tool",
        "folder:/old/api": "api",
    }


@pytest.mark.parametrize(
    ("wanted", "error", "said"),
    [
        ("web", AmbiguousName, "acme/web, other/web"),
        ("e", AmbiguousName, "acme/api, acme/web, other/web"),
        ("wab", NotFound, "Did you mean"),
        ("zzz", NotFound, "Projects: acme/api, acme/web, api, other/web, tool."),
        ("/nowhere", NotFound, "'/nowhere'"),
        ("~\0", NotFound, "not found"),
        ("x" * 5000, NotFound, "not found"),
    ],
)
def test_an_unclear_name_is_answered_with_names(
    wanted: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)) as caught:
        KNOWN.find_named_scope(wanted)
    assert len(str(caught.value)) < 300


def test_a_folder_is_in_the_scope_of_its_repository(tmp_path: Path) -> None:
    root, inner = tmp_path / "api", tmp_path / "api" / "vendor" / "lib"
    for folder in (root, inner):
        (folder / ".git").mkdir(parents=True)
    keys = [f"folder:{root}", f"folder:{root}/src", f"folder:{root}2", "github.com/a/lib"]
    known = KnownProjects(keys, {str(inner): "github.com/a/lib"})
    scope = known.find_folder_scope(root)
    assert scope == ("api", (keys[0], keys[1]))
    assert known.get_project(keys[1]) == keys[0]
    assert known.find_folder_scope(inner) == ("a/lib", ("github.com/a/lib",))
    (root / ".git" / "config").write_text('[remote "origin"]\nurl = git@github.com:a/api.git')
    assert known.find_folder_scope(root / "src") == ("a/api", (keys[0], keys[1]))
    assert KnownProjects([], {}).find_folder_scope(root) == ("a/api", ())


def test_a_folder_without_a_repository_has_a_scope_if_sessions_worked_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    keys = [f"folder:{tmp_path}/me", f"folder:{tmp_path}/me/notes", f"folder:{tmp_path}"]
    known = KnownProjects(keys, {})
    assert known.find_folder_scope(tmp_path / "me" / "notes" / "x") == ("notes", (keys[1],))
    for folder in (tmp_path, tmp_path / "me", tmp_path / "me" / "other"):
        assert known.find_folder_scope(folder) is None
