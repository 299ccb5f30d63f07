"""What a server learns by itself from pushed transcripts, and tells hooks: tenant by tenant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.api import values
from rekindle.config import load_config
from rekindle.tenants import open_tenants
from tests.acceptance.api_server import ApiServer
from tests.acceptance.test_cli import Rekindle
from tests.acceptance.transcripts import Told, run, write_claude
from tests.conftest import ENGINES
from tests.waiting import wait_until

FOLDER = "/work/shop"
DENIED = "open /root/.cache: permission denied"


@pytest.fixture(params=ENGINES)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApiServer]:
    home = tmp_path / "server"
    (home / "rekindle").mkdir(parents=True)
    if request.param == "postgresql":
        url = request.getfixturevalue("store_database")()
        (home / "rekindle" / "config.toml").write_text(f'[store]\nurl = "{url}"\n')
    server = ApiServer(home)
    try:
        yield server
    finally:
        server.kill()


def add_tenants(server: ApiServer, *names: str) -> dict[str, str]:
    target = load_config(server.rekindle.env).store.url
    with open_tenants(target) as tenants:
        for name in names:
            tenants.add(name)
        return {name: tenants.keys.add(name, scopes=("read", "write")).token for name in names}


def push_sessions(server: ApiServer, home: Path, key: str, word: str, cwd: str = FOLDER) -> None:
    """Push sessions of which the first runs into a failure and the second mends it."""
    folder = home / ".claude" / "projects" / "shop"
    folder.mkdir(parents=True)
    for number in range(4):
        calls = [
            run(f"make check-{word}", "ok"),
            run(f"go list ./{word}", DENIED, works=False),
            run(f"env GOCACHE=/tmp/{word} go list ./{word}", "ok"),
        ]
        write_claude(folder, Told(f"{word}-{number}", cwd, f"improve {number}", calls))
    Rekindle(home).run("push", "--to", server.url, REKINDLE_API_KEY=key)


def recall(server: ApiServer, key: str, folder: str = FOLDER, remote: str | None = None) -> str:
    asked = values.StartRecall(folder=folder, remote=remote, message="go on")
    with server.client(key) as client:
        return client.recall_at_start(asked).text


def run_hook(server: ApiServer, home: Path, key: str, event: str, **fields: object) -> str:
    """What the hook of a machine whose settings name the server says."""
    laptop = Rekindle(home)
    file = laptop.home / "rekindle" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(
        f'[server]\nurl = "{server.url}"\napi_key = "{key}"\n[warm]\ncontrol_share = 0\n'
    )
    answers: list[str] = []

    def ask() -> str:  # a machine under load may take longer than a hook waits
        given = {"session_id": f"new-{event}-{len(answers)}", "cwd": FOLDER, **fields}
        answers.append(laptop("hook", "claude-code", event, stdin=json.dumps(given).encode()))
        return answers[-1]

    wait_until(ask)
    return answers[-1]


def test_each_tenant_is_told_what_its_own_pushed_sessions_learned(
    server: ApiServer, tmp_path: Path
) -> None:
    keys = add_tenants(server, "red", "blue", "empty")
    for name in ("red", "blue"):
        push_sessions(server, tmp_path / name, keys[name], name)
    for name, other in (("red", "blue"), ("blue", "red")):
        wait_until(lambda name=name: f"make check-{name}" in recall(server, keys[name]))
        home = tmp_path / f"laptop-{name}"
        said = run_hook(server, home, keys[name], "start")
        assert f"make check-{name}" in said
        call = {"tool_name": "Bash", "tool_input": {"command": "go list ./x"}}
        mended = run_hook(server, home, keys[name], "failure", error=DENIED, **call)
        assert f"go list ./{name}" in mended
        assert other not in said + mended
    assert recall(server, keys["empty"]) == ""
    assert recall(server, server.key) == ""
    marks = server.rekindle.home / "rekindle" / "serve" / "learning"
    wait_until(lambda: not [*marks.iterdir()])
    assert "learning failed" not in server.log.read_text()


def test_a_killed_server_learns_later_what_was_pushed_before(tmp_path: Path) -> None:
    server = ApiServer(tmp_path / "server")
    try:
        key = add_tenants(server, "red")["red"]
        clone = tmp_path / "red" / "shop"
        (clone / ".git").mkdir(parents=True)
        (clone / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (clone / ".git" / "config").write_text(
            '[remote "origin"]\n\turl = https://ada:secret@github.com/acme/shop.git\n'
        )
        push_sessions(server, tmp_path / "red", key, "red", str(clone))
        server.kill()
        marks = server.rekindle.home / "rekindle" / "serve" / "learning"
        assert [*marks.iterdir()]
        # A run that was ended in the middle leaves its mark too, and a removed tenant does no harm.
        (marks / "0123456789abcdef.running").touch()
        server.start()
        assert recall(server, key, str(clone)) == ""
        wait_until(lambda: "make check-red" in recall(server, key, str(clone)))
        # The client said which repository that is, so clones on other machines are told too.
        assert "make check-red" in recall(server, key, "/home/bob/app", "github.com/acme/shop")
        assert recall(server, key, "/home/bob/app", "github.com/acme/other") == ""
        wait_until(lambda: not [*marks.iterdir()])
    finally:
        server.kill()
