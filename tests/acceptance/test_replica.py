"""Lists, search and insights from a read replica, and from the store itself while it is away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rekindle import Message, open_store
from tests import servers
from tests.acceptance.test_cli import Rekindle
from tests.waiting import wait_until

COMMANDS = (
    ("sessions", "list"),
    ("search", "needle"),
    ("insights", "--all"),
    ("usage", "--by", "session", "--all"),
)

pytestmark = pytest.mark.scale


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[servers.Postgres, servers.Postgres]]:
    try:
        primary = servers.Postgres()
    except servers.Missing as reason:
        pytest.skip(str(reason))
    replica = servers.Postgres(primary)
    yield primary, replica
    for server in (replica, primary):
        server.remove()


def count_messages(url: str) -> int:
    try:
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT count(*) FROM messages").fetchone()
            return row[0] if row else 0
    except psycopg.Error:  # the database has not arrived yet
        return 0


def test_commands_read_from_the_replica_and_from_the_store_while_it_is_away(
    pair: tuple[servers.Postgres, servers.Postgres], tmp_path: Path
) -> None:
    primary, replica = pair
    url = primary.database()
    copy = replica.url(url.rpartition("/")[2])
    with open_store(url) as store:
        store.append(store.begin(id="haystack", model="m"), Message("user", "a needle"))
    wait_until(lambda: count_messages(copy) == 1)
    rekindle = Rekindle(tmp_path)
    env: dict[str, Any] = {"REKINDLE_STORE": url, "REKINDLE_STORE_REPLICA": copy}

    primary.stop("fast")
    try:
        for words in COMMANDS:
            assert b"replica" not in rekindle.run(*words, **env).stderr
        assert "haystack" in rekindle("search", "needle", **env)
        # What may be written to, or must be up to date, does not come from a replica.
        env["REKINDLE_STORE_BUSY_SECONDS"] = "0"
        assert "cannot be reached" in rekindle.refusal(
            "sessions", "show", "haystack", code=1, **env
        )
    finally:
        primary.start()

    replica.stop("fast")
    try:
        done = rekindle.run("search", "needle", **env)
        assert b"haystack" in done.stdout
        assert b"Note: the replica is not used: " in done.stderr
    finally:
        replica.start()


def test_a_replica_is_a_server(tmp_path: Path, store_database: Callable[[], str]) -> None:
    env: dict[str, Any] = {"REKINDLE_STORE": store_database(), "REKINDLE_STORE_REPLICA": "copy.db"}
    said = Rekindle(tmp_path).refusal("sessions", "list", **env)
    assert "store.replica: expected a postgresql:// URL" in said
