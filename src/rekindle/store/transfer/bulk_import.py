"""Bulk import: store the messages of many sessions, and what their files say about them.

All items passed at once go into one transaction. What the store already has is left unchanged, so
importing the same data again changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from rekindle.errors import InvalidInput
from rekindle.store.core.engine import Engine, Row, Transaction
from rekindle.store.core.filter import iter_in_clauses
from rekindle.store.core.rows import (
    MESSAGE_ROWS,
    MESSAGE_VALUES,
    SESSION_ROWS,
    USAGE_COLUMNS,
    drop_duplicates,
    load_fast_encoder,
    measure_text,
    message_to_values,
    usage_to_row,
)
from rekindle.store.core.text_encoding import escape_text
from rekindle.store.sessions import rewind, titles, usage_entries
from rekindle.store.sessions.requests import SessionDelta, compute_delta
from rekindle.store.sessions.sessions import (
    MAX_PENDING_CALLS,
    append_messages,
    check_session,
    collect_tool_names,
    find_stored_positions,
    get_session_by_num,
    insert_session,
    set_columns,
)
from rekindle.types import Message, Session, Tokens, UsageEntry, replace_fields, validate_message

# How many positions to look back for the last answers when more of a session is imported.
RECENT_POSITIONS = 64
_EMPTY_SESSION = Session("")


class PreparedMessages(NamedTuple):
    """The messages of a new session, converted to rows as far as possible without the store."""

    rows: Sequence[Row]  # without session and position
    words: Sequence[str]
    pending_calls: Mapping[str, str]  # tools of calls that have no result yet
    delta: SessionDelta


class SessionImport(NamedTuple):
    """Messages to append to a session, which is created if it does not exist.

    `is_complete` means that `session` holds everything its file says; only then are tokens, cost, title
    and end taken from it.
    """

    session: Session
    messages: Sequence[Message] = ()
    is_complete: bool = False
    rejected: tuple[str, ...] = ()  # why messages were dropped
    prepared: PreparedMessages | None = None
    usage: Sequence[UsageEntry] = ()  # when its models used their tokens, if it is complete
    abandoned: Collection[str] = ()  # platform ids of messages on branches left behind, likewise


class SessionImportResult(NamedTuple):
    """The number of new messages and calls of an imported session, and why messages were rejected.

    `is_new` if the store did not have the session.
    """

    messages: int = 0
    calls: int = 0
    rejected: tuple[str, ...] = ()
    is_new: bool = False


def drop_invalid_messages(item: SessionImport) -> SessionImport:
    """Return the item with its valid messages only, and the errors of the others."""
    check_session(item.session)
    valid: list[Message] = []
    errors: list[str] = []
    for message in item.messages:
        try:
            valid.append(validate_message(message))
        except InvalidInput as error:
            errors.append(str(error))
    return item._replace(messages=valid, rejected=(*item.rejected, *errors))


def prepare_import(engine: Engine, item: SessionImport, now: float) -> SessionImport:
    """Return the item with its messages prepared as those of a new session."""
    return item._replace(
        prepared=_prepare_messages(engine, item.messages, now) if item.messages else None
    )


def _prepare_messages(engine: Engine, messages: Sequence[Message], now: float) -> PreparedMessages:
    messages = drop_duplicates(messages)
    pending_calls: dict[tuple[int, str], str] = {}
    tools = collect_tool_names(None, 0, messages, pending_calls)
    encode = load_fast_encoder()
    rows = [
        message_to_values(
            message, now if message.timestamp is None else message.timestamp, names, None, encode
        )
        for message, names in zip(messages, tools, strict=True)
    ]
    open_calls = {id: name for (_, id), name in pending_calls.items()}
    return PreparedMessages(
        rows, engine.extract_words(messages), open_calls, compute_delta(messages, now)
    )


def write_imports(
    engine: Engine,
    tx: Transaction,
    items: Sequence[SessionImport],
    now: float,
    pending_calls: dict[tuple[int, str], str],
) -> list[SessionImportResult]:
    """Store the new parts of each item. Pruned sessions are left unchanged."""
    known = _find_sessions(tx, {escape_text(item.session.id): None for item in items})
    results: list[SessionImportResult] = []
    for item in items:
        id = escape_text(item.session.id)
        num, pruned = known.get(id, (None, None))
        if pruned is not None or (num is None and not item.messages):
            results.append(SessionImportResult(rejected=item.rejected))
            continue
        if num is None:
            prepared = item.prepared or _prepare_messages(engine, item.messages, now)
            num = _insert_session(tx, item, prepared.delta)
            if num is not None:
                known[id] = num, None
                usage_entries.raise_entries(tx, num, item.usage)
                _write_messages(engine, tx, num, prepared, pending_calls)
                if item.abandoned:
                    tx.flush_deferred()
                    rewind.sync_branches(tx, num, item.abandoned, now)
                results.append(
                    SessionImportResult(
                        messages=prepared.delta.messages,
                        calls=prepared.delta.calls,
                        rejected=item.rejected,
                        is_new=True,
                    )
                )
                continue
            num, _ = known[id] = _find_sessions(tx, [id])[id]  # another writer has just created it
        tx.flush_deferred()  # an earlier item may belong to the same session
        new = _extend_session(engine, tx, item, now, num, pending_calls)
        results.append(new._replace(rejected=item.rejected))
    return results


def _write_messages(
    engine: Engine,
    tx: Transaction,
    num: int,
    prepared: PreparedMessages,
    pending_calls: dict[tuple[int, str], str],
) -> None:
    """Write the messages of a new session at the end of the transaction."""
    rows: list[Row] = [(num, position, *row) for position, row in enumerate(prepared.rows)]
    tx.defer_insert("messages", MESSAGE_VALUES, rows)
    engine.index(tx, num, 0, len(rows), measure_text(rows), prepared.words)
    pending_calls |= {(num, id): name for id, name in prepared.pending_calls.items()}
    if len(pending_calls) > MAX_PENDING_CALLS:
        pending_calls.clear()


def _find_sessions(tx: Transaction, ids: Iterable[str]) -> dict[str, tuple[int, float | None]]:
    """Return the number and prune time of those sessions that exist."""
    found: dict[str, tuple[int, float | None]] = {}
    for placeholders, batch in iter_in_clauses([*ids]):
        sql = f"SELECT id, num, pruned FROM sessions WHERE id IN ({placeholders})"
        found |= {id: (num, pruned) for id, num, pruned in tx.run(sql, batch)}
    return found


def _insert_session(tx: Transaction, item: SessionImport, delta: SessionDelta) -> int | None:
    """Insert the row of a new session with everything known about it; return None if it exists."""
    session = item.session
    columns: dict[str, Any] = {
        "changes": 1,
        "next_position": delta.messages,
        "message_count": delta.messages,
        "tool_call_count": delta.calls,
        "preview": delta.requests.preview,
        "last_request": delta.requests.last,
    }
    if item.is_complete:
        columns |= _select_higher_counts(_EMPTY_SESSION, session.tokens, session.cost)
    else:
        session = replace_fields(session, title=None)
    latest = max(session.started, delta.latest)
    return insert_session(tx, replace_fields(session, last_active=latest), columns)


def _extend_session(
    engine: Engine,
    tx: Transaction,
    item: SessionImport,
    now: float,
    num: int,
    pending_calls: dict[tuple[int, str], str],
) -> SessionImportResult:
    """Store the messages and fields that an existing session lacks."""
    messages, result = item.messages, SessionImportResult()
    if messages:
        known = find_stored_positions(tx, num, messages)
        end = _next_position(tx, num)  # on PostgreSQL no other writer changes it from here on
        messages = [*_complete_partial_answers(tx, num, end, messages, known)]
        added = append_messages(
            engine, tx, item.session.id, messages, now, num, pending_calls, known_positions=known
        )
        positioned = zip(added.positions, messages, strict=True)
        new = {at: len(message.tool_calls) for at, message in positioned if at >= end}
        result = SessionImportResult(len(new), sum(new.values()))
    if item.is_complete:
        _fill_missing_fields(tx, num, item.session)
        usage_entries.raise_entries(tx, num, item.usage)
        rewind.sync_branches(tx, num, item.abandoned, now)
    return result


def _next_position(tx: Transaction, num: int) -> int:
    return tx.run("SELECT next_position FROM sessions WHERE num = ?", (num,))[0][0]


def _complete_partial_answers(
    tx: Transaction,
    num: int,
    end: int,
    messages: Sequence[Message],
    known: Mapping[str | None, int],
) -> Iterator[Message]:
    """Yield the messages and, after an answer that was stored half-written, its missing part."""
    answers: list[Message] | None = None
    for message in messages:
        yield message
        if message.role != "assistant" or message.platform_message_id not in known:
            continue
        if answers is None:
            rest = "WHERE m.session = ? AND m.position >= ? AND m.role = 'assistant'"
            answers = MESSAGE_ROWS.find(tx, rest, (num, end - RECENT_POSITIONS))
        if rest := _extract_missing_part(message, answers):
            yield rest


def _extract_missing_part(message: Message, answers: Sequence[Message]) -> Message | None:
    """Return what the stored answer lacks, if its file was last read while it was being written.

    Stored messages never change, so the rest becomes a separate answer right after it.
    """
    id = message.platform_message_id
    stored_parts = [
        answer
        for answer in answers
        if answer.platform_message_id == id
        or (answer.platform_message_id or "").startswith(f"{id}+")
    ]
    if not stored_parts:
        return None
    known = {call.id for answer in stored_parts for call in answer.tool_calls}
    calls = tuple(call for call in message.tool_calls if call.id not in known)
    has_text = any(answer.text for answer in stored_parts)
    if not calls and (has_text or not message.text):
        return None
    return replace_fields(
        message,
        content=None if has_text else message.content,
        tool_calls=calls,
        platform_message_id=f"{id}+{calls[0].id if calls else 'text'}",
    )


def _fill_missing_fields(tx: Transaction, num: int, imported: Session) -> None:
    """Fill in the fields of a session that the store does not know yet.

    Tokens and cost are raised to the imported values, never added; the first end and title are kept.
    """
    stored = get_session_by_num(tx, num)
    values = {
        field: value
        for field, column in SESSION_ROWS.columns.items()
        if column.imported and (value := getattr(imported, field)) and not getattr(stored, field)
    }
    if values.get("parent") == imported.id:
        del values["parent"]
    if 0 < imported.started < stored.started:
        values["started"] = imported.started
    if imported.ended is not None and stored.ended is None:
        values |= {"ended": imported.ended, "end_reason": imported.end_reason}
    columns = SESSION_ROWS.build_columns(values)
    columns |= _select_higher_counts(stored, imported.tokens, imported.cost)
    title = titles.clean_title(imported.title) if imported.title and not stored.title else None
    if title:
        owner = escape_text(imported.owner or stored.owner or "")
        names = ("title", "title_base", "title_number")
        columns |= dict(zip(names, titles.claim_title(tx, owner, title), strict=True))
    if columns:
        set_columns(tx, num, columns)


def _select_higher_counts(stored: Session, tokens: Tokens, cost: Decimal) -> dict[str, int]:
    """Return the columns of those counts that are higher than the stored ones."""
    said, known = usage_to_row(tokens, cost), usage_to_row(stored.tokens, stored.cost)
    counts = zip(USAGE_COLUMNS, said, known, strict=True)
    return {name: says for name, says, has in counts if says > has}
