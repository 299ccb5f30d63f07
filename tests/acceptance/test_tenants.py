"""Tenants through the command: keys, walls, quotas, and a person's data."""

import json
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message
from rekindle.tenants import open_tenants
from tests.acceptance.test_cli import Rekindle
from tests.conftest import ENGINES
from tests.contract.tenant_rows import ID

WORDS = {"acme": "xylograph", "globex": "harpsichord"}
# Every command that reads sessions, or what was learned from them.
READS = (
    ("sessions", "list", "--json"), ("sessions", "list", "archived=any"), ("search", "{word}"),
    ("search", "{word}", "--json"), ("sessions", "search", "{word}"), ("sessions", "show", ID),
    ("sessions", "show", ID, "--json"), ("sessions", "export"), ("sessions", "stats"),
    ("sessions", "verify"), ("projects",), ("usage",), ("insights",),
    ("calls",), ("lessons",), ("memory", "list"), ("memory", "history"), ("gateway", "list"),
    ("gateway", "list", "--log"), ("gateway", "routes"), ("gateway", "status"), ("schedule", "list"),
    ("deliver", "list"), ("warm", "list"), ("warm", "notes", "list"), ("profile", ID), (),
)  # fmt: skip


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    (tmp_path / "rekindle").mkdir()
    return Rekindle(tmp_path)


@pytest.fixture(params=ENGINES)
def server(request: pytest.FixtureRequest, rekindle: Rekindle) -> dict[str, str]:
    """The store of a server with two tenants, which have the same session."""
    target = str(rekindle.store)
    if request.param == "postgresql":
        target = request.getfixturevalue("store_database")()
    with open_tenants(target) as tenants:
        tokens: dict[str, str] = {}
        for name, word in WORDS.items():
            tenants.add(name)
            tokens[name] = tenants.keys.add(name, scopes=["read", "write"]).token
            with tenants.open_store(name) as store:
                session = store.begin(id=ID, title=f"Plan {word}", owner="ada", model=word)
                store.append(session, Message("user", f"a {word} {name} of my own, please"))
                store.memory.add("ada", f"likes the {word}", actor="person")
    rekindle.env["REKINDLE_STORE"] = target
    return tokens


def test_a_key_reads_and_searches_its_own_tenant_whatever_it_asks_for(
    rekindle: Rekindle, server: dict[str, str]
) -> None:
    seen = 0
    for words in READS:
        line = [word.format(word=WORDS["globex"]) for word in words]
        done = rekindle.run(*line, REKINDLE_STORE_API_KEY=server["acme"], code=ANY)
        shown = (done.stdout + done.stderr).decode()
        assert "No such command" not in shown, line
        assert "globex" not in shown, line
        assert WORDS["globex"] not in shown.replace(line[-1] if line else "", "", 1), line
        seen += WORDS["acme"] in shown
    assert seen >= 5
    assert "not valid" in rekindle.refusal(
        "sessions", "list", code=1, REKINDLE_STORE_API_KEY=f"{server['acme']}x"
    )


class _Anything:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # pyright: ignore


ANY: Any = _Anything()


def test_tenants_keys_quotas_and_the_audit_log(rekindle: Rekindle) -> None:
    rekindle("tenants", "add", "acme")
    assert "already exists" in rekindle.refusal("tenants", "add", "acme")
    rekindle("tenants", "members", "add", "acme", "ada", "--role", "admin")
    assert rekindle.json("tenants", "members", "list", "acme")[0]["role"] == "admin"
    done = rekindle.run("tenants", "keys", "add", "acme", "--member", "ada", "--days", "1")
    token = done.stdout.decode().strip()
    [key] = rekindle.json("tenants", "keys", "list", "acme")
    assert key["scopes"] == ["read"]
    assert "hash" not in key
    reading: dict[str, Any] = {"REKINDLE_STORE_API_KEY": token}
    assert rekindle.json("sessions", "list", **reading) == []
    assert "write scope" in rekindle.refusal("sessions", "undo", "x", code=1, **reading)
    assert "without an API key" in rekindle.refusal("tenants", "list", code=1, **reading)
    rekindle("tenants", "quota", "acme", "--sessions", "0", "--messages", "5")
    assert rekindle.json("tenants", "quota", "acme")["quota"]["sessions"] == 0
    rekindle("tenants", "quota", "acme", "--sessions", "none")
    assert rekindle.json("tenants", "list")[0]["quota"]["sessions"] is None
    assert "revoked" in rekindle("tenants", "keys", "revoke", "acme", key["id"])
    assert "not valid" in rekindle.refusal("sessions", "list", code=1, **reading)
    rekindle("tenants", "members", "remove", "acme", "ada")
    assert "--yes" in rekindle.refusal("tenants", "remove", "acme")
    rekindle("tenants", "remove", "acme", "--yes")
    assert rekindle.json("tenants", "list") == []
    entries = rekindle.json("tenants", "audit", "acme")
    assert [one["action"] for one in entries] == [
        "tenant.remove", "member.remove", "key.revoke", "quota.set", "quota.set", "key.add",
        "member.add", "tenant.add",
    ]  # fmt: skip
    secret = token.rpartition("_")[2].encode()
    assert not [
        file for file in rekindle.home.rglob("*") if file.is_file() and secret in file.read_bytes()
    ]


def test_a_person_is_exported_and_erased_and_no_search_finds_them(
    rekindle: Rekindle, server: dict[str, str]
) -> None:
    file = rekindle.home / "ada.jsonl"
    rekindle("tenants", "export-person", "acme", "ada", file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert any(one.get("table") == "memory_facts" for one in lines)
    assert WORDS["acme"] in file.read_text()
    assert WORDS["globex"] not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    report = rekindle.json("tenants", "erase-person", "acme", "ada", "--yes")
    assert report["sessions"] == [ID]
    assert (report["left"], report["passages"]) == ([], 1)
    acme: dict[str, Any] = {"REKINDLE_STORE_TENANT": "acme"}
    assert rekindle.json("search", WORDS["acme"], **acme) == []
    assert rekindle.json("sessions", "list", **acme) == []
    assert "Nothing is stored" in rekindle.refusal(
        "tenants", "erase-person", "acme", "ada", "--yes"
    )
    globex: dict[str, Any] = {"REKINDLE_STORE_TENANT": "globex"}
    assert len(rekindle.json("search", WORDS["globex"], **globex)) == 1
