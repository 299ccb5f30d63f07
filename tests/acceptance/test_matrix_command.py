"""`rekindle matrix` where there is no server: what it says, asks and refuses.

The tests with a real server are in tests/matrix/home.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from tests.acceptance.test_cli import Rekindle
from tests.ports import find_port
from tests.servers import Postgres

VERBS = (
    "setup", "status", "restart", "logs", "create-user", "backup", "restore", "update", "teardown",
)  # fmt: skip
PHRASE = "yes-delete-everything"


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    (tmp_path / "rekindle").mkdir()
    return Rekindle(tmp_path)


def make_server(rekindle: Rekindle) -> Path:
    """Write the files of a server that was never started."""
    folder = rekindle.home / "rekindle" / "matrix"
    (folder / "media").mkdir(parents=True)
    (folder / "media" / "picture").write_text("x")
    settings = {
        "server_name": "example.org",
        "postgres_data": str(folder / "postgres"),
        "postgres_port": 1,
        "client_port": 2,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return folder


def test_the_help_names_every_verb_with_an_example(rekindle: Rekindle) -> None:
    text = rekindle("matrix", "--help")
    for verb in VERBS:
        assert f"  {verb} " in text
        assert f"rekindle matrix {verb}" in rekindle("matrix", verb, "--help")


@pytest.mark.parametrize(
    "words", [("restart",), ("logs",), ("create-user", "ada"), ("backup",), ("update",)]
)
def test_without_a_server_the_error_says_how_to_create_one(
    rekindle: Rekindle, words: tuple[str, ...]
) -> None:
    said = rekindle.refusal("matrix", *words)
    assert said == (
        "rekindle: There is no Matrix server here. Create one with `rekindle matrix setup`.\n"
    )


def test_the_status_without_a_server_is_a_failure(rekindle: Rekindle) -> None:
    assert "no Matrix server" in rekindle("matrix", "status", code=1)
    assert rekindle.json("matrix", "status", code=1)["set_up"] is False


def test_a_server_needs_a_name_and_writes_nothing_without_one(rekindle: Rekindle) -> None:
    assert "Name the server: rekindle matrix setup example.org" in rekindle.refusal(
        "matrix", "setup"
    )
    assert "cannot be the name" in rekindle.refusal("matrix", "setup", "Not A Name")
    assert "ports must differ" in rekindle.refusal(
        "matrix", "setup", "example.org", "--client-port=9001", "--federation-port=9001"
    )
    assert not (rekindle.home / "rekindle" / "matrix").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user for PostgreSQL")
def test_a_folder_that_the_database_cannot_enter_is_refused_at_once(
    rekindle: Rekindle, postgres: Postgres
) -> None:
    rekindle.home.chmod(0o700)
    ports = (f"--client-port={find_port()}", f"--federation-port={find_port()}")
    words = ("matrix", "setup", "example.org", *ports)
    for _ in range(2):
        said = "".join(rekindle.run(*words, code=1).stderr.decode().splitlines()[-1:])
        assert "cannot enter" in said
        assert "--postgres-data /var/lib/rekindle/postgres" in said
    assert not (rekindle.home / "rekindle" / "matrix" / "environments").exists()


def test_nothing_is_deleted_without_a_terminal_or_the_option(rekindle: Rekindle) -> None:
    folder = make_server(rekindle)
    for stdin in (b"", f"{PHRASE}\n".encode()):
        said = rekindle.refusal("matrix", "teardown", stdin=stdin)
        assert f"Nothing was deleted. Confirm it with --{PHRASE}" in said
    assert "No such option" in rekindle.refusal("matrix", "teardown", "--yes")
    assert (folder / "media" / "picture").exists()


@pytest.mark.parametrize("answer", ["", "y", "yes", "YES-DELETE-EVERYTHING", f"{PHRASE}!"])
def test_only_the_whole_phrase_deletes(rekindle: Rekindle, answer: str) -> None:
    folder = make_server(rekindle)
    shown = rekindle.terminal("matrix", "teardown", answer=f"{answer}\n", code=1)
    assert f"Type {PHRASE} to go on" in shown
    assert "Last backup: none" in shown
    assert "Nothing was changed" in shown
    assert (folder / "media" / "picture").exists()


def test_the_phrase_deletes_everything_but_backups(rekindle: Rekindle) -> None:
    folder = make_server(rekindle)
    backups = rekindle.home / "rekindle" / "matrix-backups"
    backups.mkdir()
    (backups / "one.tar.gz").write_text("x")
    shown = rekindle.terminal("matrix", "teardown", answer=f"{PHRASE}\n")
    assert "Deleted the Matrix server" in shown
    assert not folder.exists()
    assert (backups / "one.tar.gz").exists()
    assert "no Matrix server" in rekindle.refusal("matrix", "teardown", f"--{PHRASE}")


def test_a_damaged_server_can_be_deleted(rekindle: Rekindle) -> None:
    folder = make_server(rekindle)
    (folder / "settings.json").write_text('{"server_na')
    assert "damaged" in rekindle.refusal("matrix", "status", code=1)
    rekindle("matrix", "teardown", f"--{PHRASE}")
    assert not folder.exists()


def write_archive(path: Path, entries: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


MANIFEST = json.dumps({"format": 1, "synapse": "1.163.2"}).encode()


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"other": b"x"}, "not a backup of a Matrix server"),
        ({"manifest.json": b"[]"}, "not a backup of a Matrix server"),
        ({"manifest.json": b"{broken"}, "not a backup"),
        ({"manifest.json": b'{"format": 2}'}, "another version"),
        ({"manifest.json": MANIFEST}, "database.dump is missing"),
        ({"manifest.json": MANIFEST, "../evil": b"x"}, "unexpected entry '../evil'"),
        ({"manifest.json": MANIFEST, "/tmp/evil": b"x"}, "unexpected entry"),
        ({"manifest.json": MANIFEST, "media/../../evil": b"x"}, "unexpected entry"),
        ({"manifest.json": MANIFEST, "gateway/state/../../../evil": b"x"}, "unexpected entry"),
        ({"manifest.json": MANIFEST, "environment/bin/python": b"x"}, "unexpected entry"),
    ],
)
def test_an_archive_that_is_no_backup_is_refused(
    rekindle: Rekindle, entries: dict[str, bytes], problem: str
) -> None:
    archive = write_archive(rekindle.home / "a.tar.gz", entries)
    assert problem in rekindle.refusal("matrix", "restore", archive)
    assert list(rekindle.home.rglob("evil")) == []
    assert not (rekindle.home / "rekindle" / "matrix").exists()


def test_a_link_in_an_archive_is_refused(rekindle: Rekindle) -> None:
    archive = write_archive(rekindle.home / "a.tar.gz", {"manifest.json": MANIFEST})
    with tarfile.open(archive, "w:gz") as tar:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(MANIFEST)
        tar.addfile(entry, io.BytesIO(MANIFEST))
        link = tarfile.TarInfo("secrets.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert "unexpected entry 'secrets.json'" in rekindle.refusal("matrix", "restore", archive)


def test_a_file_that_is_no_archive_is_refused(rekindle: Rekindle) -> None:
    (rekindle.home / "text").write_text("hello")
    assert "is not a backup" in rekindle.refusal("matrix", "restore", "text")
    assert "no such file" in rekindle.refusal("matrix", "restore", "missing")
    folder = make_server(rekindle)
    archive = write_archive(rekindle.home / "a.tar.gz", {"manifest.json": MANIFEST})
    assert "already" in rekindle.refusal("matrix", "restore", archive)
    assert (folder / "media" / "picture").exists()
