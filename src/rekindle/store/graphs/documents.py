"""Documents of frameworks besides sessions: the long-term memory of graphs, state of applications.

A document has a namespace of labels and a key. It is a row of `graph_values` under a thread that no
graph can have; `kind` holds its times in a form that sorts by the last change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from rekindle.store.core.engine import Row, StorePart, Transaction
from rekindle.store.core.text_encoding import ESCAPE, escape_text, unescape_text

Namespace: TypeAlias = tuple[str, ...]

_END = "\x1f"  # ends a label; a label that has it is escaped
_AFTER_END = "\x20"
_NEVER = 9_999_999_999.0
_WIDTH = 17  # of a time
_UPDATED = slice(0, _WIDTH)
_CREATED = slice(_WIDTH + 1, 2 * _WIDTH + 1)
_EXPIRES = slice(2 * _WIDTH + 2, 3 * _WIDTH + 2)
_EXPIRY_SQL = f"substr(kind, {_EXPIRES.start + 1}, {_WIDTH})"
_PAGE = 64
_PLACES_PER_QUERY = 5_000  # PostgreSQL takes 65,535 parameters
_PLACE = "thread = ? AND namespace = ? AND channel = ?"
_UPSERT = (
    "INSERT INTO graph_values (thread, namespace, channel, version, kind, data)"
    " VALUES (?, ?, ?, '', ?, ?) ON CONFLICT (thread, namespace, channel, version) DO"
)
_KEEP_CREATED = (
    f" UPDATE SET kind = substr(excluded.kind, 1, {_WIDTH + 1})"
    f" || substr(graph_values.kind, {_CREATED.start + 1}, {_WIDTH})"
    f" || substr(excluded.kind, {_CREATED.stop + 1}), data = excluded.data"
)


class DocumentPlace(NamedTuple):
    """Where a document is: a namespace, and a key in it."""

    namespace: Namespace
    key: str


class Document(NamedTuple):
    """A stored document. `lifetime` is in seconds; reading may renew it."""

    place: DocumentPlace
    value: Mapping[str, Any]
    created: float
    updated: float
    lifetime: float | None = None


class DocumentChange(NamedTuple):
    """A document to store, or to delete if there is no value."""

    place: DocumentPlace
    value: Mapping[str, Any] | None
    lifetime: float | None = None


class Documents(StorePart):
    """The documents of a store, in collections. Use `store.documents`."""

    def put(self, collection: str, changes: Sequence[DocumentChange]) -> None:
        """Store and delete documents, all of them or none; durable on return."""
        now = self._clock()
        rows = [(_build_params(collection, one.place), one) for one in changes]

        def write_changes(tx: Transaction) -> None:
            for place, change in rows:
                if change.value is None:
                    tx.run(f"DELETE FROM graph_values WHERE {_PLACE}", place)
                else:
                    times = _format_times(now, change.lifetime)
                    data = _encode_value(change.value)
                    tx.run(_UPSERT + _KEEP_CREATED, (*place, times, data))

        self._write(write_changes)

    def add(self, collection: str, place: DocumentPlace, value: Mapping[str, Any]) -> bool:
        """Store a document unless there is one in its place; return whether it was stored."""
        params = _build_params(collection, place)
        times, data = _format_times(self._clock(), None), _encode_value(value)
        added = self._write(
            lambda tx: tx.run(f"{_UPSERT} NOTHING RETURNING 1", (*params, times, data))
        )
        return bool(added)

    def get(
        self, collection: str, places: Iterable[DocumentPlace], *, renew: bool = False
    ) -> dict[DocumentPlace, Document]:
        """Return those of these documents that exist; `renew` restarts their lifetimes."""
        found: dict[DocumentPlace, Document] = {}
        remaining, now = iter(places), self._clock()
        while page := [*islice(remaining, _PLACES_PER_QUERY)]:
            rows = self._select(*_build_places_query(collection, page, now))
            found |= {one.place: one for one in map(_row_to_document, rows)}
        if renew:
            self._renew(collection, found.values())
        return found

    def find(
        self,
        collection: str,
        prefix: Namespace = (),
        *,
        wanted: Mapping[str, Any] | None = None,
        limit: int | None = None,
        offset: int = 0,
        renew: bool = False,
    ) -> list[Document]:
        """Return the documents below a namespace, the last changed first.

        `wanted` holds conditions on fields: a value, or operators such as `{"$gt": 3}`.
        """
        condition, params = _build_condition(collection, prefix, self._clock())
        page = "" if wanted or limit is None else f" LIMIT {int(limit)} OFFSET {int(offset)}"
        rows = self._select(
            f"SELECT namespace, channel, kind, data FROM graph_values WHERE {condition}"
            f" ORDER BY kind DESC, namespace, channel{page}",
            params,
        )
        found = map(_row_to_document, rows)
        if wanted:
            found = (one for one in found if matches_filter(one.value, wanted))
        if not page:
            found = islice(found, offset, None if limit is None else offset + limit)
        documents = list(found)
        if renew:
            self._renew(collection, documents)
        return documents

    def load(self, collection: str, namespaces: Sequence[Namespace]) -> list[Document]:
        """Return the documents of these namespaces, without those below them."""
        remaining, found = map(_format_namespace, namespaces), list[Document]()
        while page := [*islice(remaining, _PAGE)]:
            rows = self._select(
                "SELECT namespace, channel, kind, data FROM graph_values WHERE thread = ?"
                f" AND namespace IN ({', '.join('?' for _ in page)}) AND {_EXPIRY_SQL} > ?",
                (_format_collection(collection), *page, _format_time(self._clock())),
            )
            found += map(_row_to_document, rows)
        return found

    def list_namespaces(self, collection: str, prefix: Namespace = ()) -> list[Namespace]:
        """Return the namespaces that have documents, sorted."""
        condition, params = _build_condition(collection, prefix, self._clock())
        rows = self._select(
            f"SELECT DISTINCT namespace FROM graph_values WHERE {condition}", params
        )
        return sorted(_parse_namespace(row[0]) for row in rows)

    def delete_below(self, collection: str, prefix: Namespace) -> None:
        """Delete all documents below a namespace."""
        condition, params = _build_condition(collection, prefix, 0.0)
        self._write(lambda tx: tx.run(f"DELETE FROM graph_values WHERE {condition}", params))

    def delete_expired(self, collection: str) -> int:
        """Delete the documents whose lifetime is over, and return their number."""
        sql = f"DELETE FROM graph_values WHERE thread = ? AND {_EXPIRY_SQL} <= ? RETURNING 1"
        params = (_format_collection(collection), _format_time(self._clock()))
        return len(self._write(lambda tx: tx.run(sql, params)))

    def _renew(self, collection: str, documents: Iterable[Document]) -> None:
        now = self._clock()
        rows = [
            (_format_time(now + one.lifetime), *_build_params(collection, one.place))
            for one in documents
            if one.lifetime is not None
        ]
        sql = (
            f"UPDATE graph_values SET kind = substr(kind, 1, {_EXPIRES.start}) || ?"
            f" || substr(kind, {_EXPIRES.stop + 1}) WHERE {_PLACE}"
        )
        if rows:
            self._write(lambda tx: tx.run_many(sql, rows))


def matches_filter(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether the fields of a document meet all conditions."""
    return all(_matches_value(value.get(name), condition) for name, condition in wanted.items())


def _matches_value(value: Any, condition: Any) -> bool:
    if not isinstance(condition, Mapping):
        return value == condition
    fields = cast(Mapping[str, Any], condition)
    if not any(name.startswith("$") for name in fields):
        return isinstance(value, Mapping) and matches_filter(cast(Mapping[str, Any], value), fields)
    return all(_compare_values(value, name, one) for name, one in fields.items())


def _compare_values(value: Any, operator: str, operand: Any) -> bool:
    match operator:
        case "$eq":
            return value == operand
        case "$ne":
            return value != operand
        case "$gt" | "$gte" | "$lt" | "$lte":
            return _compare_order(value, operator, operand)
        case _:
            raise ValueError(
                f"unknown operator {operator!r:.40}: use $eq, $ne, $gt, $gte, $lt, $lte"
            )


def _compare_order(value: Any, operator: str, operand: Any) -> bool:
    try:
        left, right = float(value), float(operand)
    except (TypeError, ValueError):
        return False
    return {
        "$gt": left > right,
        "$gte": left >= right,
        "$lt": left < right,
        "$lte": left <= right,
    }[operator]


def _encode_value(value: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:  # lone surrogates, which only escapes can hold
        return json.dumps(value, default=str).encode()


def _decode_value(data: bytes) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)


def _format_collection(collection: str) -> str:
    # In an escaped name, four digits follow this character: no thread of a graph has such a name.
    return f"{ESCAPE}documents/{collection}"


def build_person_condition(owner: str) -> tuple[str, tuple[str, ...]]:
    """Build the condition for documents in a namespace of which a person, as stored, is a part."""
    end, start = escape_text(_END), _format_collection("")
    label = f"{end}{owner}{end}"
    # Neither engine has the other's function for a part of a text.
    condition = (
        f"substr(thread, 1, {len(start)}) = ? AND replace(? || namespace, ?, '') <> ? || namespace"
    )
    return condition, (start, end, label, end)


def _format_namespace(namespace: Namespace) -> str:
    labels = (label.replace("\x1e", "\x1e0").replace(_END, "\x1e1") for label in namespace)
    return escape_text("".join(f"{label}{_END}" for label in labels))


def _parse_namespace(text: str) -> Namespace:
    labels = unescape_text(text).split(_END)[:-1]
    return tuple(label.replace("\x1e1", _END).replace("\x1e0", "\x1e") for label in labels)


def _build_params(collection: str, place: DocumentPlace) -> tuple[str, str, str]:
    return (
        _format_collection(collection),
        _format_namespace(place.namespace),
        escape_text(place.key),
    )


def _build_places_query(
    collection: str, places: Sequence[DocumentPlace], now: float
) -> tuple[str, tuple[str, ...]]:
    """Build a query that looks up each place by the whole primary key, whatever else is there.

    With conditions joined by OR instead, both engines read the whole collection.
    """
    sql = (
        f"WITH wanted (namespace, channel) AS (VALUES {', '.join(['(?, ?)'] * len(places))})"
        " SELECT v.namespace, v.channel, v.kind, v.data FROM wanted CROSS JOIN graph_values v"
        " WHERE v.thread = ? AND v.namespace = wanted.namespace AND v.channel = wanted.channel"
        f" AND v.version = '' AND {_EXPIRY_SQL.replace('kind', 'v.kind')} > ?"
    )
    keys = (text for one in places for text in _build_params(collection, one)[1:])
    return sql, (*keys, _format_collection(collection), _format_time(now))


def _build_condition(collection: str, prefix: Namespace, now: float) -> tuple[str, list[str]]:
    condition, params = "thread = ?", [_format_collection(collection)]
    if prefix:
        first = _format_namespace(prefix)
        condition += " AND namespace >= ? AND namespace < ?"
        params += [first, first[:-1] + _AFTER_END]
    return f"{condition} AND {_EXPIRY_SQL} > ?", [*params, _format_time(now)]


def _format_time(time: float) -> str:
    return f"{min(max(time, 0.0), _NEVER):0{_WIDTH}.6f}"


def _format_times(now: float, lifetime: float | None) -> str:
    time = _format_time(now)
    if lifetime is None:
        return f"{time} {time} {_format_time(_NEVER)}"
    return f"{time} {time} {_format_time(now + lifetime)} {lifetime}"


def _row_to_document(row: Row) -> Document:
    namespace, key, kind, data = row
    lifetime = kind[_EXPIRES.stop + 1 :]
    return Document(
        DocumentPlace(_parse_namespace(namespace), unescape_text(key)),
        _decode_value(bytes(data)),
        float(kind[_CREATED]),
        float(kind[_UPDATED]),
        float(lifetime) if lifetime else None,
    )
