"""A tenant reads and changes its own rows only, with either wall alone and with both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle import Message, Store
from rekindle.errors import RekindleError
from rekindle.store import Filter
from rekindle.store.graphs.checkpoints import CheckpointQuery, ThreadKey
from rekindle.store.tenants.shared_tables import name_schemas, set_row_security
from rekindle.tenants import Tenants, open_tenants
from rekindle.types import Source, Tokens, Usage
from tests import servers
from tests.contract.tenant_rows import ID, NOW, PROJECT, fill

WALLS = ("files", "views and rows", "views", "rows")
READ_VERBS = ["find", "get", "list", "load", "search", "iter", "count", "is", "has", "sum", "describe", "export", "messages", "session", "recent", "resolve", "usage", "lineage", "children", "rewinds", "stats", "dump", "next", "iterate", "verify"]
# Not called: the end of the store, and what belongs to the directory of tenants.
NOT_CALLED = {"close", "location", "tenants"}


class World(NamedTuple):
    tenants: Tenants
    open: Callable[[str], Store]
    numbers: Iterator[int]


@pytest.fixture(scope="module", params=WALLS)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    walls, target = request.param, str(tmp_path_factory.mktemp("tenants") / "sessions.db")
    server: servers.Postgres | None = None
    if walls != "files":
        server = request.getfixturevalue("postgres")
        target = server.store_database()
    with open_tenants(target, clock=lambda: NOW) as tenants:

        def open_store(name: str) -> Store:
            store = tenants.open_store(name)
            if walls == "rows":
                engine: Any = store._engine  # pyright: ignore[reportPrivateUsage]
                views, *rest = engine._settings
                assert views == '"public_tenants"'
                engine._settings = ('"public_tenant_tables"', *rest)
            return store

        if server is not None:
            tenants.add("first")
            open_store("first").close()  # the first one makes the tables
            with psycopg.connect(target, autocommit=True) as connection:
                set_row_security(
                    lambda sql: connection.execute(sql),  # pyright: ignore
                    name_schemas("public"),
                    is_on=walls != "views",
                )
        yield World(tenants, open_store, count())
    if server is not None:
        server.drop(target)


def list_methods(store: Store) -> Iterator[tuple[str, Any]]:
    """All public methods of the store and of its parts, reading ones first."""
    found: dict[str, Any] = {}
    for name in dir(Store):
        if name.startswith("_") or name in NOT_CALLED:
            continue
        if isinstance(inspect.getattr_static(Store, name), cached_property):
            part = getattr(store, name)
            methods = [one for one in dir(part) if not one.startswith("_")]
            found |= {f"{name}.{one}": getattr(part, one) for one in methods}
        else:
            found[name] = getattr(store, name)
    assert len(found) > 180
    for name in sorted(found, key=lambda name: (not is_read(name), name)):
        yield name, found[name]


def is_read(name: str) -> bool:
    return name.rpartition(".")[2].split("_")[0] in READ_VERBS


def collect_arguments(victim: Store, word: str, path: Path) -> dict[str, Any]:
    """Values of another tenant for every parameter that has no default."""
    session = victim.session(ID)
    job = victim.jobs.list()[0]
    [inbound] = victim.inbox.list_waiting(ID)
    [outbound] = victim.inbox.list_outbound(ID)
    people = f"{ID}:{ID}"
    source = Source(ID, word, user_id=ID)
    return {
        "session": ID, "id": ID, "name": ID, "ids": [ID, "s2"], "sessions": [ID, "s2"], "owner": ID,
        "query": word, "text": word, "key": ID, "keys": [ID], "where": Filter(archived=None), "since": 0.0,
        "rules": "1", "version": "1", "nums": [*range(1, 2000)], "part": 0, "prefix": "", "prefixes": ("",),
        "path": word, "paths": [word], "positions": range(5), "position": 0, "before": 3, "count": 2,
        "after": -1, "limit": 50, "get_offset": lambda _: 0, "title": word, "project": PROJECT,
        "folders": ["/work/shop"], "person": ID, "people": [ID, people], "day": "2026-11-18",
        "platform": ID, "user_id": ID, "states": ("waiting", "failed"), "platforms": [ID], "source": source,
        "seconds": 60.0, "instance": word, "job": job, "outbound": outbound, "inbound": inbound,
        "template": ID, "versions": {"channel": "1"}, "thread": ID, "note": ID,
        "load_names.sessions": [session], "graph_checkpoints.find_latest.key": ThreadKey(ID),
        "graph_checkpoints.load_values.key": ThreadKey(ID),
        "graph_checkpoints.load_writes.key": ThreadKey(ID),
        "graph_checkpoints.iterate.query": CheckpointQuery(), "observations.load_sessions.sessions": [ID],
        # Writing.
        "reason": "done", "turns": 1, "origin": "s2", "messages": (), "message": Message("user", "mine"),
        "tokens": Tokens(1), "number": 1, "actor": "person", "lease_seconds": 1.0, "answer": "once",
        "answered_by": people, "older_than": 0.0, "code": "hash", "role": "guest", "event": "mine",
        "usage": Usage(Tokens(1)), "added": Usage(Tokens(1)), "model": "mine", "old": ID, "new": "s2",
        "route": victim.routes.get(ID), "lease": victim.session_leases.find(ID), "stamp": "mine",
        "lines": [], "items": [], "changes": lambda: None, "cwd": "/work/shop", "data": b"mine",
        "target": source, "chat": source, "old_owner": ID, "inbox": inbound.num, "due": NOW,
        "next_run": NOW, "state": "paused", "platform_message_id": "mine", "retry_after": 1.0,
        "tool": "mine", "summary": "mine", "digest": "mine", "runs": [ID], "needed": {}, "values": {},
        "experiment": victim.experiments.list_all()[0], "root": ID, "arm": "warm", "errors": [],
        "writes": [], "inbound_messages": [inbound], "replies": [], "verdicts": [], "judged": [],
        "observed": [], "pause": 1.0, "max_pending": 9, "backup.path": path / f"{word}.db",
        "graph_checkpoints.save_writes.key": ThreadKey(ID), "graph_checkpoints.copy_thread.source": ID,
        "graph_checkpoints.copy_thread.target": "copy", "observations.save_folders.folders": {},
        "inbox.start_turn.session": session, "inbox.append_in_turn.session": session,
    }  # fmt: skip


# Methods that take a whole value, which is the tenant's own then.
OF_OWN_VALUES = {
    "copy_to", "gateway_errors.add", "graph_checkpoints.save", "jobs.add", "links.unlink",
    "observations.propose_decision", "observations.save_decision", "prepare_import",
    "session_leases.acquire", "template_index.put",
}  # fmt: skip


def call(name: str, method: Any, arguments: dict[str, Any]) -> str | None:
    """What a method returns or raises, as text; None if there are no arguments for it."""
    given_arguments: dict[str, Any] = {}
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is not parameter.empty and parameter.name not in ("where", "limit"):
            continue
        key = next(
            (k for k in (f"{name}.{parameter.name}", parameter.name) if k in arguments), None
        )
        if key is None:
            return None
        given_arguments[parameter.name] = arguments[key]
    try:
        found = method(**given_arguments)
        return (
            repr([*found])
            if isinstance(found, Iterable) and not isinstance(found, str | bytes | dict)
            else repr(found)
        )
    except RekindleError as error:
        return str(error)


def take_snapshot(store: Store) -> list[str]:
    rows = [repr(row) for row in store.personal_data.export_rows(ID)]
    return [*rows, *map(repr, store.dump()), repr(store.stats())]


WORDS = st.lists(
    st.from_regex(r"q[bcdfghjkl]{7}", fullmatch=True), min_size=2, max_size=2, unique=True
)


@settings(max_examples=3)
@given(words=WORDS, sessions=st.lists(st.sampled_from(["s2", "s3", "Plan #2"]), unique=True))
def test_no_method_returns_or_changes_anything_of_another_tenant(
    world: World, tmp_path_factory: pytest.TempPathFactory, words: list[str], sessions: list[str]
) -> None:
    names = [f"tenant-{next(world.numbers)}" for _ in words]
    for name in names:
        world.tenants.add(name)
    with world.open(names[0]) as victim, world.open(names[1]) as attacker:
        fill(victim, words[0], sessions)
        fill(attacker, words[1], sessions)
        before = take_snapshot(victim)
        arguments = collect_arguments(victim, words[0], tmp_path_factory.mktemp("copy"))
        seen = {
            name for name, method in list_methods(victim)
            if is_read(name) and words[0] in (call(name, method, arguments) or "")
        }  # fmt: skip
        assert len(seen) > 40, sorted(seen)  # or else these calls show nothing
        # These give back what they are given.
        arguments |= {"load_names.sessions": [attacker.session(ID)], "next_title.title": "Plan"}
        skipped: set[str] = set()
        for name, method in list_methods(attacker):
            shown = call(name, method, arguments)
            if shown is None:
                skipped.add(name)
            elif is_read(name):
                assert words[0] not in shown, name
        assert skipped == OF_OWN_VALUES
        assert take_snapshot(victim) == before
