"""A database for Agno: `Agent(db=RekindleDb(store), session_id="name")`.

A run is kept whole, with its session; its messages are also written to a session of the store, where
search, insights and notes find them. Whatever else Agno stores (memories, knowledge, evaluations,
traces) is kept row by row.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from copy import deepcopy
from threading import local
from typing import Any, cast

from agno.db.base import SessionType
from agno.db.json import JsonDb
from agno.db.utils import build_single_run_row, deserialize_session, filter_context_runs
from agno.session import AgentSession, TeamSession, WorkflowSession

from rekindle.errors import NotFound
from rekindle.store import Store
from rekindle.store.async_store import AsyncStore
from rekindle.store.graphs.documents import Document, DocumentChange, DocumentPlace, Namespace
from rekindle.types import Message, Tokens

from .codecs.agno_messages import convert_run, read_tokens
from .session_access import claim_session_id, delete_session, open_default_store

SOURCE = "agno"
COLLECTION = "agno"
Fields = dict[str, Any]
_KEYS = ("span_id", "trace_id", "memory_id", "run_id", "session_id", "id", "table_name")
_TYPES: dict[type, SessionType] = {
    AgentSession: SessionType.AGENT,
    TeamSession: SessionType.TEAM,
    WorkflowSession: SessionType.WORKFLOW,
}
_RECORDS = ("records",)
_COUNTED = "counted_tokens"  # of a run, in its row
_OPEN = ("PENDING", "RUNNING", "PAUSED")


class RekindleDb(JsonDb):
    """Keep the data of Agno in a Rekindle store.

    Without `store` it is the store of the settings, where the `rekindle` command finds it. The tables
    of Agno's base class have the names given in `tables`.
    """

    def __init__(self, store: Store | AsyncStore | None = None, **tables: str) -> None:
        found = store or open_default_store()
        self.store = found.store if isinstance(found, AsyncStore) else found
        super().__init__(db_path=self.store.location, **tables)
        self._documents = self.store.documents
        self._records: dict[str, str] = {}  # our sessions, by those of Agno
        self._seen = local()  # the rows that a thread has read, by table

    # -- sessions

    def upsert_session(self, session: Any, deserialize: bool | None = True) -> Any:
        """Store a session without its runs; return None if it is somebody else's."""
        row: Fields = session.to_dict(include_runs=False)
        row["session_type"] = _TYPES[type(session)].value
        place = DocumentPlace((self.session_table_name,), row["session_id"])
        before = self._documents.get(COLLECTION, [place]).get(place)
        now = int(time.time())
        if before is not None:
            owner = before.value.get("user_id")
            if owner is not None and owner != row.get("user_id"):
                return None
            row["created_at"] = before.value.get("created_at")
        row["created_at"] = row.get("created_at") or now
        row["updated_at"] = now
        if before is None or before.value != row:
            self._documents.put(COLLECTION, [DocumentChange(place, row)])
        if not deserialize:
            return {**row, "runs": [_to_fields(run) for run in cast(list[Any], session.runs or [])]}
        stored: Any = deserialize_session(None, row)
        stored.runs = session.runs
        return stored

    def get_session(
        self,
        session_id: str,
        session_type: SessionType | None = None,
        user_id: str | None = None,
        deserialize: bool | None = True,
        runs_limit: int | None = None,
    ) -> Any:
        """Return a session with its runs, or with its last ones; None if there is none."""
        place = DocumentPlace((self.session_table_name,), session_id)
        found = self._documents.get(COLLECTION, [place]).get(place)
        if found is None or (user_id is not None and found.value.get("user_id") != user_id):
            return None
        runs = self._get_session_runs_data(session_id)
        if runs_limit is not None:
            runs = filter_context_runs(runs)[-runs_limit:] if runs_limit else []
        row = {**found.value, "runs": runs}
        return deserialize_session(session_type, row) if deserialize else row

    def delete_session(self, session_id: str, user_id: str | None = None) -> bool:
        """Delete a session and its runs; its messages can be restored for some days."""
        place = DocumentPlace((self.session_table_name,), session_id)
        found = self._documents.get(COLLECTION, [place]).get(place)
        if found is None or (user_id is not None and found.value.get("user_id") != user_id):
            return False
        self._documents.put(COLLECTION, [DocumentChange(place, None)])
        self._delete_session_runs(session_id)
        record = DocumentPlace(_RECORDS, session_id)
        kept = self._documents.get(COLLECTION, [record]).get(record)
        if kept is not None:
            delete_session(self.store, str(kept.value["session"]))
            self._documents.put(COLLECTION, [DocumentChange(record, None)])
        self._records.pop(session_id, None)
        return True

    def delete_sessions(self, session_ids: list[str], user_id: str | None = None) -> None:
        """Delete several sessions and their runs."""
        for id in session_ids:
            self.delete_session(id, user_id)

    # -- runs

    def upsert_run(
        self,
        run: Any,
        session_id: str,
        user_id: str | None = None,
        run_index: int | None = None,
    ) -> None:
        """Store a run and add its messages to the session; both are durable when this returns."""
        row = build_single_run_row(
            run=run, session_id=session_id, user_id=user_id, run_index=run_index
        )
        place = self._find_place(self.runs_table_name, row)
        before = self._documents.get(COLLECTION, [place]).get(place)
        counted = Tokens()
        if before is not None:
            row["run_index"] = before.value.get("run_index", row["run_index"])
            counted = Tokens(*before.value.get(_COUNTED, ()))
        data = cast(Fields, row["run_data"])
        is_recorded = data.get("parent_run_id") is None and data.get("status") not in _OPEN
        messages = convert_run(data) if is_recorded else []
        tokens = (read_tokens(data) if messages else None) or counted
        row[_COUNTED] = list(tokens)
        used = Tokens(*(max(0, new - old) for new, old in zip(tokens, counted, strict=True)))

        def write() -> str | None:
            self._documents.put(COLLECTION, [DocumentChange(place, row)])
            if not messages:
                return None
            id = self._append(session_id, user_id, messages)
            if used != Tokens():
                self.store.add_usage(id, used, model=str(data.get("model") or "unknown"))
            return id

        record = self.store.transaction(write)
        if record is not None:
            self._records[session_id] = record

    def _append(self, session_id: str, user_id: str | None, messages: list[Message]) -> str:
        """Add the messages of a run to its record, and return the id of the record.

        Those that it has already are skipped by their ids.
        """
        cached = self._records.get(session_id)
        id = cached or self._find_record(session_id)
        try:
            self.store.append(id, *messages)
        except NotFound:
            if cached is not None:  # another process may have begun another one
                id = self._find_record(session_id)
            id = self._begin_record(session_id, id, user_id, messages)
        return id

    def _begin_record(
        self, session_id: str, id: str, user_id: str | None, messages: list[Message]
    ) -> str:
        fields: Fields = {"source": SOURCE, "owner": user_id, "cwd": os.getcwd()}
        try:
            self.store.append(self.store.begin(id=id, **fields), *messages)
        except NotFound:  # a person deleted it: go on in another one
            id = self._claim_record(session_id)
            self.store.append(self.store.begin(id=id, **fields), *messages)
        return id

    def _find_record(self, session_id: str) -> str:
        """Return the id of the session that records one of Agno, which may have it or one like it."""
        place = DocumentPlace(_RECORDS, session_id)
        found = self._documents.get(COLLECTION, [place]).get(place)
        return self._claim_record(session_id) if found is None else str(found.value["session"])

    def _claim_record(self, session_id: str) -> str:
        place = DocumentPlace(_RECORDS, session_id)
        id = claim_session_id(self.store, COLLECTION, session_id)
        self._documents.put(COLLECTION, [DocumentChange(place, {"session": id})])
        return id

    def _get_session_runs_data(self, session_id: str) -> list[Fields]:
        found = self._documents.load(COLLECTION, [(self.runs_table_name, session_id)])
        rows = sorted((dict(one.value) for one in found), key=_get_run_order)
        return [row["run_data"] for row in rows]

    def _delete_session_runs(self, session_id: str) -> int:
        namespace: Namespace = (self.runs_table_name, session_id)
        count = len(self._documents.load(COLLECTION, [namespace]))
        self._documents.delete_below(COLLECTION, namespace)
        return count

    # -- the rows of all tables, which the base class reads and writes whole

    def _read_json_file(
        self, filename: str, create_table_if_not_found: bool | None = True
    ) -> list[Fields]:
        found = self._documents.find(COLLECTION, (filename,))
        found.sort(key=_get_row_order)
        self._get_seen()[filename] = {one.place: one.value for one in found}
        return [deepcopy(dict(one.value)) for one in found]  # callers change them in place

    def _write_json_file(self, filename: str, data: list[Fields]) -> None:
        """Write what differs from what this thread has read: others may have added rows since."""
        rows = {self._find_place(filename, row): row for row in data}
        seen = self._get_seen().pop(filename, {})
        changes = [DocumentChange(place, None) for place in seen if place not in rows]
        changes += [
            DocumentChange(place, row) for place, row in rows.items() if seen.get(place) != row
        ]
        if changes:
            self._documents.put(COLLECTION, changes)

    def _get_seen(self) -> dict[str, dict[DocumentPlace, Mapping[str, Any]]]:
        found: dict[str, dict[DocumentPlace, Mapping[str, Any]]]
        found = vars(self._seen).setdefault("tables", {})
        return found

    def _find_place(self, table: str, row: Fields) -> DocumentPlace:
        key = next((str(row[name]) for name in _KEYS if row.get(name)), None)
        if key is None:
            key = json.dumps(row, sort_keys=True, default=str)[:200]
        if table == self.runs_table_name:
            return DocumentPlace((table, str(row["session_id"])), key)
        return DocumentPlace((table,), key)


def _to_fields(run: Any) -> Fields:
    return cast(Fields, run if isinstance(run, dict) else run.to_dict())


def _get_run_order(row: Fields) -> tuple[int, int]:
    return (row.get("run_index") or 0, row.get("created_at") or 0)


def _get_row_order(document: Document) -> tuple[float, str]:
    return (document.created, document.place.key)
