"""Two gateways on one PostgreSQL, replaced one by one by a later version while messages flow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from soak.gateway.gateway_kills import kill_gateways

from rekindle import Message, open_store
from rekindle.errors import StoreTooNew
from rekindle.store.core.migrations import LATEST_VERSION
from rekindle.testing import ChatServer
from tests import command
from tests.waiting import PATIENCE, wait_until

NEWER = Path(__file__).with_name("newer_version.py")
ROOT = Path(__file__).parents[2]


def read_version(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT version FROM rekindle_version").fetchone()
        return row[0] if row else 0


def upgrade(url: str, kind: str, home: Path) -> None:
    """Let a later version open the store."""
    env = {**os.environ, "REKINDLE_STORE": url, "REKINDLE_HOME": str(home)}
    env["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
    words = [sys.executable, str(NEWER), kind, "sessions", "stats"]
    subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL)
    assert read_version(url) == LATEST_VERSION + 1


@pytest.mark.scale
def test_a_rolling_upgrade_loses_doubles_and_reorders_nothing(
    store_database: Callable[[], str], tmp_path: Path
) -> None:
    url = store_database()
    versions = ["old", "old", "new", "old", "new"]  # of each start; the fourth goes back once
    started: list[str] = []

    def start(words: list[str], **options: Any) -> subprocess.Popen[Any]:
        started.append(versions[len(started)])
        if started[-1] == "old":
            return command.start(words, **options)
        return subprocess.Popen([sys.executable, str(NEWER), "adds", *words], **options)

    def check_upgrade(number: int) -> None:
        wait_until(lambda: read_version(url) == LATEST_VERSION + 1)

    report = kill_gateways(
        url,
        tmp_path,
        kills=0,
        gateways=2,
        seed=7,
        pause=1.0,
        start=start,
        replaced=(0, 1, 1),
        progress=check_upgrade,
    )
    logs = "".join(log.read_text() for log in tmp_path.glob("*.log"))
    assert report.wrong == [], logs
    assert started == versions
    assert report.messages > 20
    assert report.deliveries > report.messages
    with psycopg.connect(url) as connection:
        moods = connection.execute("SELECT DISTINCT mood FROM messages").fetchall()
        assert moods == [("calm",)]


def test_an_older_version_goes_on_with_what_was_only_added_to(
    store_database: Callable[[], str], tmp_path: Path
) -> None:
    url = store_database()
    with open_store(url) as store:
        store.append(store.begin(id="one"), Message("user", "before"))
        upgrade(url, "adds", tmp_path)
        store.append("one", Message("user", "after"))
        with open_store(url) as again:
            again.append("one", Message("user", "opened anew"))
        said = [message.text for message in store.messages("one")]
        assert said == ["before", "after", "opened anew"]
        assert store.verify() == []
    with psycopg.connect(url) as connection:
        copies = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'rekindle_v%'"
        assert connection.execute(copies).fetchone() == (0,), "an addition needs no copy"


def test_an_older_version_stops_at_what_it_cannot_use(
    store_database: Callable[[], str], tmp_path: Path
) -> None:
    url = store_database()
    plain = re.compile(f"schema version {LATEST_VERSION + 1}, this Rekindle .* upgrade Rekindle")
    env = {**os.environ, "REKINDLE_STORE": url, "REKINDLE_HOME": str(tmp_path)}
    with open_store(url) as store, ChatServer() as server:
        store.append(store.begin(id="one"), Message("user", "before"))
        gateway_env = {
            **env,
            "REKINDLE_GATEWAY_PLATFORMS": f"rekindle.testing:connect={server.address}",
            "REKINDLE_MODEL": "none",
            "OPENAI_API_KEY": "none",
        }
        words = ["gateway", "run", "--quiet"]
        process = command.start(words, env=gateway_env, stderr=subprocess.PIPE)
        wait_until(lambda: server.listeners or process.poll() is not None)
        upgrade(url, "breaks", tmp_path)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1
        assert plain.search(said.decode())
        assert "Traceback" not in said.decode()
        with pytest.raises(StoreTooNew, match=plain):
            store.append("one", Message("user", "after"))
        assert [message.text for message in store.messages("one")] == ["before"]
    done = command.run(["sessions", "list"], env=env, capture_output=True)
    assert done.returncode == 1
    assert plain.search(done.stderr.decode())
    assert len(done.stderr.splitlines()) == 1
