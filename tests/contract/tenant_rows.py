"""Rows in every table of a tenant, with the same keys as those of other tenants and its own word."""

from __future__ import annotations

import json
from typing import Any

from rekindle import Message, Store, ToolCall
from rekindle.store.conversations.message_rows import encode_message
from rekindle.store.core.columns import BLOB, KEY, REAL, ROWID, SERIAL, TEXT, Table, TableColumn
from rekindle.store.core.tables import TABLES
from rekindle.store.graphs.documents import DocumentChange, DocumentPlace
from rekindle.store.learning.preludes import encode_prelude
from rekindle.store.tenants.shared_tables import SHARED_TABLES

NOW = 1_790_000_000.0
ID = "shared"  # of everything that has a name
PROJECT = "github.com/acme/shop"
OWN = ("sessions", "messages")  # written by the store itself

# Columns whose text has a meaning: the word stands inside it, or they have none.
_FIXED: dict[str, Any] = {
    "state": "waiting",
    "chat_type": "dm", "platform": ID, "owner": ID, "person": ID, "user_id": ID,
    "key": ID,
    "session": ID, "project": PROJECT, "folder": "/work/shop", "version": "1", "thread": ID,
    "namespace": "", "day": "2026-11-18", "code": "hash", "until": None, "role": "user",
    "jobs.state": "active",
    "jobs.kind": "prompt", "jobs.session": "new", "experiments.state": "running",
    "approvals.state": "pending", "approvals.answer": None, "memory_facts.state": "active",
    "note_decisions.state": "added", "session_outcomes.verdict": "failed", "experiments.ended": None,
    "calls.outcome": "failed", "templates.state": "active", "outbox.inbox": None, "jobs.reason": None,
    "graph_checkpoints.parent": None, "memory_changes.action": "add", "rewinds.restored": None,
    "routes.previous": None, "routes.reset": None, "routes.usage": "{}",
    "routes.tokens": "[0, 0, 0, 0, 0]",
    "inbox.position": None, "inbox.session": None, "job_runs.inbox": 1, "job_runs.ended": None,
    "job_runs.state": "running", "judged_sessions.compressions": "[]", "inbox.attempts": 0,
    "graph_checkpoints.versions": '{"channel": "1"}', "graph_values.version": "1",
    "templates.is_shared": 1,
    "leases.expires": 0.0, "memory_facts.since": 0.0,
}  # fmt: skip
DOCUMENT = DocumentPlace((ID,), "key")


def fill(store: Store, word: str, sessions: list[str]) -> None:
    """Write sessions, and one row into every other table."""
    store.documents.put(ID, [DocumentChange(DOCUMENT, {"text": word})])
    call = ToolCall("1", "run", json.dumps({"command": word}))
    for id in (ID, *sessions):
        session = store.begin(
            id=id, owner=ID, user=word, title=f"{id} {word}", cwd="/work/shop", model=word,
            git_branch=word, template=ID, arm=word, source=ID,
        )  # fmt: skip
        store.append(
            session,
            Message("user", f"{word} asked why this does not work"),
            Message("assistant", f"{word} calls", tool_calls=(call,)),
            Message("tool", f"{word} exit 2", tool_call_id="1", name="run"),
        )
    store.observations.assign_project("/work/shop", PROJECT)
    body = encode_prelude([Message("system", word)])
    store._write(lambda tx: _plant(tx, word, body))  # pyright: ignore[reportPrivateUsage]


def _plant(tx: Any, word: str, body: bytes) -> None:
    num = tx.run("SELECT num FROM sessions WHERE id = ?", (ID,))[0][0]
    serials: dict[str, int] = {}
    for table in [one for one in TABLES if one in SHARED_TABLES and one.name not in OWN]:
        values = {
            column.name: _choose(table, column, word, num, body, serials)
            for column in table.columns
            if column.kind not in (SERIAL, ROWID)
        }
        marks = ", ".join("?" * len(values))
        row = tx.run(
            f"INSERT INTO {table.name} ({', '.join(values)}) VALUES ({marks}) RETURNING *",
            [*values.values()],
        )[0]
        names = [column.name for column in table.columns]
        offset = len(row) - len(names)  # a tenant's rows begin with the tenant
        if names[0] == "num":
            serials[table.name] = row[offset]
    tx.run(
        "UPDATE sessions SET changes = changes + 1, prelude = 'shared', system_prompt = 'shared'"
        " WHERE num = ?",
        (num,),
    )


def _choose(
    table: Table, column: TableColumn, word: str, num: int, body: bytes, serials: dict[str, int]
) -> Any:
    name = f"{table.name}.{column.name}"
    source = json.dumps({"platform": ID, "chat_id": word, "user_id": ID, "user_name": word})
    special: dict[str, Any] = {
        "routes.origin": source, "routes.listed_sessions": json.dumps([word]),
        "home_chats.source": source,
        "inbox.source": source, "outbox.target": source, "links.chat": source, "jobs.maker": source,
        "jobs.target": source, "jobs.rule": json.dumps(["every", "3600", word]),
        "inbox.body": encode_message(Message("user", word)), "preludes.body": body,
        "experiments.arms": json.dumps([["warm", 1.0]]), "experiments.settings": "{}",
        "templates.projects": json.dumps([PROJECT]),
        "templates.sources": json.dumps([word]),
        "folders.remotes": json.dumps({word: 1}), "graph_checkpoints.metadata": json.dumps({"a": word}),
    }  # fmt: skip
    if column.constraint:  # a reference
        return serials.get({"job": "jobs", "experiment": "experiments"}.get(column.name, ""), num)
    for key, found in ((name, special), (name, _FIXED), (column.name, _FIXED)):
        if key in found:
            return found[key]
    is_key = column.primary or column.unique or column.name in table.key.split(", ")
    if column.kind is BLOB:
        return word.encode()
    if column.kind in (TEXT, KEY):
        return ID if is_key else word
    return NOW + 1000 if column.kind is REAL else 1
