"""Write sessions to Parquet files, a month at a time.

A file appears only once it is complete. A month whose sessions have not changed is not written again, so
an export that was interrupted goes on where it was. Sessions in the files that are no longer in the
store stay there.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from rekindle.errors import InvalidInput, NotFound
from rekindle.files import open_new_file
from rekindle.store import Filter, Store
from rekindle.transcripts.export.redact import SessionRedactor
from rekindle.types import JudgedSession, SessionOutcome, UsageEntry

from .tables import (
    COLUMNS,
    FORMAT_VERSION,
    TABLES,
    build_schema,
    call_to_row,
    get_file,
    get_month,
    message_to_row,
    require_library,
    session_to_row,
    usage_to_row,
)

Progress = Callable[[int, int], None]

PAGE_SIZE = 500  # messages
ROWS_PER_GROUP = 5_000
_DIGEST, _REDACTED = "rekindle.digest", "rekindle.redacted"


class ParquetReport(NamedTuple):
    """What an export did."""

    sessions: int
    written: tuple[str, ...]  # months
    unchanged: tuple[str, ...]


class _Month(NamedTuple):
    name: str
    sessions: Sequence[JudgedSession]
    numbers: Mapping[str, int]  # the place of each session in the order of their starts
    outcomes: Mapping[str, SessionOutcome]


def write_parquet(
    store: Store,
    chosen: Container[str],
    folder: Path,
    redactor: SessionRedactor | None = None,
    progress: Progress = lambda done, total: None,
) -> ParquetReport:
    """Write those sessions of the store, with their messages and judged calls."""
    require_library("pyarrow", "parquet")
    found = (
        one for one in store.iter_judged_sessions(Filter(archived=None)) if one.session.id in chosen
    )
    written: list[str] = []
    unchanged: list[str] = []
    count = 0
    for name, group in groupby(found, key=lambda one: get_month(one.session.started)):
        sessions = list(group)
        ids = [one.session.id for one in sessions]
        numbers = {id: count + index for index, id in enumerate(ids)}
        month = _Month(name, sessions, numbers, store.session_outcomes.load(ids))
        is_written = _write_month(store, month, folder, redactor)
        (written if is_written else unchanged).append(name)
        count += len(sessions)
        progress(count, 0)
    return ParquetReport(count, tuple(written), tuple(unchanged))


def _write_month(
    store: Store, month: _Month, folder: Path, redactor: SessionRedactor | None
) -> bool:
    metadata = {
        "rekindle.format": FORMAT_VERSION,
        _DIGEST: _compute_digest(month),
        _REDACTED: "no" if redactor is None else "yes",
    }
    files = {table: get_file(folder, table, month.name) for table in TABLES}
    known = {table: _read_metadata(file) for table, file in files.items()}
    for table, found in known.items():
        if found and found.get(_REDACTED) != metadata[_REDACTED]:
            raise InvalidInput(
                f"{files[table]} was written {'with' if redactor is None else 'without'} --redact:"
                " choose another folder"
            )
    if all(found == metadata for found in known.values()):
        return False
    rows = {
        "messages": _iter_message_rows(store, month, redactor),
        "usage": _iter_usage_rows(store, month),
        "calls": _iter_call_rows(month, redactor),
        "sessions": _iter_session_rows(month, redactor),
    }
    for table in TABLES:
        _write_table(files[table], table, rows[table], month.numbers, metadata)
    return True


def _compute_digest(month: _Month) -> str:
    digest = blake2b(digest_size=16)
    for session, calls, compressions in month.sessions:
        state = (session[:], compressions, month.outcomes.get(session.id), calls)
        digest.update(repr(state).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _read_metadata(file: Path) -> dict[str, str]:
    """Return the metadata of a file; nothing if it does not exist."""
    if not file.exists():
        return {}
    arrow, parquet = require_library("pyarrow", "parquet"), _load_parquet()
    try:
        found: Mapping[bytes, bytes] = parquet.read_schema(file).metadata or {}
    except (arrow.ArrowInvalid, OSError) as error:
        raise InvalidInput(f"{file} is damaged: {error}; move it away to write it again") from None
    decoded = {key.decode(): value.decode() for key, value in found.items()}
    return {key: value for key, value in decoded.items() if key.startswith("rekindle.")}


def _load_parquet() -> Any:
    return require_library("pyarrow.parquet", "parquet")


# ── rows


def _iter_session_rows(month: _Month, redactor: SessionRedactor | None) -> Iterator[dict[str, Any]]:
    for one in month.sessions:
        outcome = month.outcomes.get(one.session.id)
        number = month.numbers[one.session.id]
        if redactor is not None:
            one = one._replace(session=redactor.redact_session(one.session))
        yield session_to_row(one, outcome and outcome.verdict, number)


def _iter_call_rows(month: _Month, redactor: SessionRedactor | None) -> Iterator[dict[str, Any]]:
    for one in month.sessions:
        for call in one.calls:
            yield call_to_row(call if redactor is None else redactor.redact_judged_call(call))


def _iter_message_rows(
    store: Store, month: _Month, redactor: SessionRedactor | None
) -> Iterator[dict[str, Any]]:
    for one in month.sessions:
        id, after = one.session.id, -1
        try:
            while page := store.messages(id, after=after, limit=PAGE_SIZE, rewound=True):
                for message in page:
                    shown = message if redactor is None else redactor.redact_message(message)
                    yield message_to_row(id, shown)
                after = page[-1].position or 0
        except NotFound:
            continue  # deleted meanwhile


def _iter_usage_rows(store: Store, month: _Month) -> Iterator[dict[str, Any]]:
    for one in month.sessions:
        id = one.session.id
        try:
            entries = store.excerpts.load_usage_entries(id)
            for entry in entries:
                yield usage_to_row(id, entry, has_time=True)
            if entries:
                continue
            for model, used in store.usage(id).items():
                entry = UsageEntry(0, model, used.tokens, used.cost)
                yield usage_to_row(id, entry, has_time=False)
        except NotFound:
            continue  # deleted meanwhile


# ── files


def _write_table(
    file: Path,
    table: str,
    rows: Iterable[dict[str, Any]],
    ids: Container[str],
    metadata: Mapping[str, str],
) -> None:
    """Rewrite a file: its new rows, and those of sessions that only the old file has."""
    arrow, schema = require_library("pyarrow", "parquet"), build_schema(table, metadata)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = list(_iter_kept_tables(file, table, ids)) if file.exists() else []
    with (
        open_new_file(file) as target,
        _load_parquet().ParquetWriter(target, schema, compression="zstd") as writer,
    ):
        for old in kept:
            writer.write_table(old.cast(schema.remove_metadata()).replace_schema_metadata(metadata))
        for batch in _group_rows(rows):
            writer.write_table(arrow.Table.from_pylist(batch, schema=schema))


def _iter_kept_tables(file: Path, table: str, ids: Container[str]) -> Iterator[Any]:
    """Yield the rows of an old file that belong to none of these sessions."""
    from rekindle.store.core.text_encoding import unescape_text

    column = next(iter(COLUMNS[table]))
    old = _load_parquet().ParquetFile(file)
    for number in range(old.num_row_groups):
        group = old.read_row_group(number)
        mask = [unescape_text(id) not in ids for id in group.column(column).to_pylist()]
        if any(mask):
            yield group.filter(mask)


def _group_rows(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) >= ROWS_PER_GROUP:
            yield batch
            batch = []
    if batch:
        yield batch
