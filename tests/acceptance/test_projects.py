"""The project of sessions: columns, terms, the scope of the folder one is in, and searches in it."""

from __future__ import annotations

import json
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest

from rekindle import Message, Store, Tokens, open_store
from tests.acceptance.stores import make_store
from tests.acceptance.test_cli import Rekindle

API, WEB = "github.com/acme/api", "github.com/acme/web"


class Folders:
    """A home with two repositories, a repository without sessions, and a folder without any."""

    def __init__(self, home: Path) -> None:
        self.api = self._make_repository(home / "src" / "api", "git@github.com:acme/api.git")
        self.web = self._make_repository(home / "src" / "web", "https://github.com/acme/web")
        self.new = self._make_repository(home / "src" / "new", "git@github.com:acme/new.git")
        self.plain = home / "plain"
        for folder in (self.api / "deep", self.plain):
            folder.mkdir()

    def _make_repository(self, folder: Path, remote: str) -> Path:
        (folder / ".git").mkdir(parents=True)
        (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {remote}\n')
        return folder


def add(store: Store, id: str, text: str, **fields: str | None) -> None:
    repository = fields.pop("repository", None)
    session = store.begin(id=id, title=id, **fields)  # pyright: ignore
    store.append(session, Message(role="user", content=text))
    if repository:
        store.update(session, repository=repository)


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    (tmp_path / "rekindle").mkdir()
    return Rekindle(tmp_path)


@pytest.fixture
def folders(rekindle: Rekindle) -> Folders:
    found = Folders(rekindle.home)
    make_store(rekindle.store)
    with open_store(rekindle.store) as store:
        named = {"repository": API, "source": "codex", "model": "gpt-5", "git_branch": "main"}
        add(store, "named", "fix the timeout", **named)
        add(store, "rooted", "timeout and retry", cwd=str(found.api), source="claude-code",
            model="claude-opus-4", git_branch="fix/login")  # fmt: skip
        add(store, "deep", "no such luck", cwd=str(found.api / "deep"), source="claude-code")
        add(store, "web", "timeout of the page", repository=WEB, source="codex")
        add(store, "chat", "timeout on the phone", source="telegram", owner="ada")
    return found


def list_ids(rekindle: Rekindle, folder: Path, *words: str) -> set[str]:
    found = run_in(rekindle, folder, "sessions", "list", *words, "--json")
    return {one["id"] for one in json.loads(found.stdout)}


def run_in(
    rekindle: Rekindle, folder: Path, *words: str, code: int = 0
) -> subprocess.CompletedProcess[bytes]:
    home, rekindle.home = rekindle.home, folder
    try:
        return rekindle.run(*words, code=code)
    finally:
        rekindle.home = home


def show_in(rekindle: Rekindle, folder: Path, *words: str) -> str:
    home, rekindle.home = rekindle.home, folder
    try:
        return rekindle.terminal(*words, NO_COLOR="1")
    finally:
        rekindle.home = home


ALL = {"named", "rooted", "deep", "web", "chat"}
OF_API = {"named", "rooted", "deep"}


def test_a_list_is_that_of_the_repository_one_is_in(rekindle: Rekindle, folders: Folders) -> None:
    assert list_ids(rekindle, folders.api) == OF_API
    assert list_ids(rekindle, folders.api / "deep") == OF_API
    assert list_ids(rekindle, folders.web) == {"web"}
    assert list_ids(rekindle, folders.api, "--all") == ALL
    assert list_ids(rekindle, folders.api, "project=web") == {"web"}
    for outside in (folders.new, folders.plain, rekindle.home):
        assert list_ids(rekindle, outside) == ALL


def test_a_terminal_says_which_project_is_shown(rekindle: Rekindle, folders: Folders) -> None:
    shown = show_in(rekindle, folders.api, "sessions", "list")
    assert shown.startswith("Sessions of acme/api. Use --all for every project.\n")
    assert "project" not in shown.splitlines()[1]  # it is the same for all
    shown = show_in(rekindle, folders.new, "sessions", "list")
    assert shown.startswith("No sessions of acme/new yet. These are from every project.\n")
    shown = show_in(rekindle, folders.plain, "sessions", "list")
    head, *rows = shown.splitlines()
    at = head.index("project")
    assert {row[at:].split()[0] for row in rows} == {"api", "deep", "web", "chat"}
    assert not run_in(rekindle, folders.api, "sessions", "list").stderr


def test_who_finds_nothing_in_a_project_learns_where_it_was_sought(
    rekindle: Rekindle, folders: Folders
) -> None:
    for words in (["sessions", "list", "source=telegram"], ["search", "phone"]):
        for more in ([], ["--json"]):
            done = run_in(rekindle, folders.api, *words, *more)
            assert done.stdout.strip() in (b"", b"[]")
            assert done.stderr.endswith(b" in acme/api. Use --all for every project.\n")


@pytest.mark.parametrize(
    ("terms", "found"),
    [
        ("project=api", OF_API - {"deep"}),  # the folder `deep` is not known to be below `api`
        ("project=ACME/api", {"named"}),
        (f"project={API}", {"named"}),
        ("project=git@github.com:acme/api.git", {"named"}),
        ("project=src/api", {"rooted"}),
        ("project=~/src/api", OF_API),
        ("project=./src/api/deep", OF_API),
        ("project=~/src", {"rooted", "deep"}),
        ("project=we", {"web"}),
        ("branch=main", {"named"}),
        ("branch~login", {"rooted"}),
        ("model~OPUS", {"rooted"}),
        ("project=api model=gpt-5 since=1h", {"named"}),
        ("since=today", ALL),
        ("since=yesterday until=today", ALL),
        ("until=yesterday", set()),
        ("until=2h", set()),
    ],
)
def test_terms_select_by_project_branch_model_and_age(
    rekindle: Rekindle, folders: Folders, terms: str, found: set[str]
) -> None:
    assert list_ids(rekindle, rekindle.home, *terms.split()) == found


def test_a_name_that_is_wrong_or_fits_several_is_answered_with_names(
    rekindle: Rekindle, folders: Folders
) -> None:
    said = rekindle.refusal("sessions", "list", "project=apu")
    assert "Project not found: 'apu'. Did you mean" in said
    assert "acme/api" in said
    assert "rekindle projects" in said
    said = rekindle.refusal("sessions", "list", "project=acme")
    assert "Several projects match 'acme': acme/api, acme/web." in said
    assert "acme/api" in rekindle.refusal("sessions", "archive", "project=apu", "--yes")
    said = rekindle.refusal("sessions", "list", "project=apu", "--owner", "ada")
    assert "acme" not in said  # ada's sessions are in none


def test_words_and_phrases_are_left_out_of_a_search(rekindle: Rekindle, folders: Folders) -> None:
    def search(*words: str, folder: Path = rekindle.home) -> set[str]:
        done = run_in(rekindle, folder, "search", "--json", *words)
        return {hit["session"]["id"] for hit in json.loads(done.stdout)}

    assert search("timeout") == {"named", "rooted", "web", "chat"}
    assert search("timeout", "-retry", "-phone") == {"named", "web"}
    assert search("timeout", "-of the page", "-n", "9") == {"named", "rooted", "chat"}
    assert search("timeout", '-"the page" -retry') == {"named", "chat"}
    assert search("timeout", "-notes", "-n1", "--newest") == {"chat"}
    assert search("timeout", "--", "-retry") == {"named", "web", "chat"}
    assert search("timeout", "-retry", folder=folders.api) == {"named"}
    assert search("timeout", "-retry", "-a", folder=folders.api) == {"named", "web", "chat"}
    assert search("timeout", "project=web", folder=folders.api) == {"web"}
    assert search("timeout", "since=1h", "source=telegram") == {"chat"}
    assert search("timeout", "until=yesterday") == set()
    assert search("timeout", "--session", "web", folder=folders.api) == {"web"}
    assert rekindle("search", "timeout") == rekindle("sessions", "search", "timeout")
    assert "acme/" not in rekindle("search", "page")
    assert "  web  " in rekindle("search", "page")
    assert b"Nothing to search for" in rekindle.run("search", "-retry").stderr


def test_projects_are_listed_with_sessions_agents_and_cost(
    rekindle: Rekindle, folders: Folders
) -> None:
    with open_store(rekindle.store) as store:
        store.observations.assign_project(str(folders.api), API)
    found = {one["name"]: one for one in rekindle.json("projects")}
    api = found["acme/api"]
    assert (api["project"], api["sessions"]) == (API, 2)
    assert api["agents"] == {"codex": 1, "claude-code": 1}
    assert found[None]["sessions"] == 1
    head, *rows = rekindle("projects").splitlines()
    assert head.split() == ["project", "sessions", "agents", "active", "cost", "$"]
    assert {row.split()[0] for row in rows} == {
        "acme/api", "acme/web", "~/src/api/deep", "(none)",
    }  # fmt: skip
    assert [one["project"] for one in rekindle.json("projects", "--owner", "ada")] == [None]
    assert [one["name"] for one in rekindle.json("projects", "project=web")] == ["acme/web"]


def test_usage_is_that_of_the_project(rekindle: Rekindle, folders: Folders) -> None:
    with open_store(rekindle.store) as store:
        for id, model, cost in (("named", "a-1", "1"), ("deep", "b-1", "2"), ("web", "a-1", "4")):
            store.add_usage(id, Tokens(input=10), Decimal(cost), model=model)

    def cost(*words: str, folder: Path = folders.api) -> str:
        found = run_in(rekindle, folder, "usage", *words, "--json")
        return json.loads(found.stdout)["total"]["cost"]

    assert (cost(), cost("--all"), cost(folder=folders.plain)) == ("3", "7", "7")
    assert (cost("project=web"), cost("--project", "acme/web")) == ("4", "4")
    assert (cost("week", "model~A-", "since=7d"), cost("model=b-1")) == ("1", "2")
    assert (cost("until=yesterday"), cost("source=codex", "-a")) == ("0", "5")
    assert cost("--by", "project") == "7"
    assert "year" in rekindle.refusal("usage", "year")
    costs = {one["name"]: one["cost"] for one in rekindle.json("projects")}
    assert (costs["acme/api"], costs["acme/web"]) == ("1", "4")


def test_statistics_are_of_the_store_or_of_what_terms_select(
    rekindle: Rekindle, folders: Folders
) -> None:
    whole = json.loads(run_in(rekindle, folders.api, "sessions", "stats", "--json").stdout)
    assert (whole["sessions"], whole["messages"]) == (5, 5)
    assert whole["by_project"] == {
        API: 1, WEB: 1, "": 1, f"folder:{folders.api}": 1, f"folder:{folders.api}/deep": 1,
    }  # fmt: skip
    part = rekindle.json("sessions", "stats", "project=~/src/api")
    assert (part["sessions"], part["messages"]) == (3, 3)
    assert part["by_source"] == {"claude-code": 2, "codex": 1}
    assert "acme/web" in rekindle("sessions", "stats")
    assert "acme/web" not in rekindle("sessions", "stats", "project=api")


def test_other_commands_that_read_have_the_same_scope(rekindle: Rekindle, folders: Folders) -> None:
    def count(*words: str, folder: Path = folders.api) -> int:
        return json.loads(run_in(rekindle, folder, *words, "--json").stdout)["totals"]["sessions"]

    assert count("insights") == 3
    assert count("insights", "--all") == 5
    assert count("insights", "project=web") == 1
    assert "acme/web" in rekindle("sessions", "show", "web")
    exported = run_in(rekindle, folders.api, "sessions", "export").stdout
    assert exported.count(b'"telegram"') == 1  # a backup is one of everything
    exported = run_in(rekindle, folders.api, "sessions", "export", "project=web").stdout
    assert b"of the page" in exported
    assert b"phone" not in exported
