"""What an import brings: messages of many sessions, and what their files tell of them.

Everything that is given at once goes into one transaction. What the store has already is left as it
is, so that to bring the same again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from rekindle.errors import InvalidInput
from rekindle.store.core.engine import Engine, Row, Transaction
from rekindle.store.core.rows import (
    MESSAGE_COLUMNS,
    MESSAGE_VALUES,
    encode_json,
    escaped,
    message_of,
    nano,
    rest_of_row,
)
from rekindle.store.core.text_encoding import escape
from rekindle.store.sessions import titles
from rekindle.store.sessions.sessions import (
    REMEMBERED_CALLS,
    Growth,
    append,
    assign,
    by_num,
    checked_session,
    growth_of,
    insert,
    stored_already,
    together,
    tool_names,
    without_twins,
)
from rekindle.types import Message, Session, Tokens, checked, replace

# How far back the last answers of a session are looked for when more of it arrives.
TAIL = 64
_NOTHING = Session("")


class Ready(NamedTuple):
    """The messages of a new session, as far as they can be made rows without the store."""

    rows: Sequence[Row]  # without session and position
    words: Sequence[str]
    called: Mapping[str, str]  # the tools of calls that have no result yet
    growth: Growth


class Arrival(NamedTuple):
    """Messages for the end of a session, which is begun if it is not there.

    `is_whole` says that `session` is all that its file tells: then tokens, cost, title and end count.
    """

    session: Session
    messages: Sequence[Message] = ()
    is_whole: bool = False
    refused: tuple[str, ...] = ()  # why messages were left out
    ready: Ready | None = None


class Arrived(NamedTuple):
    """How much of it was new, and why some messages were refused."""

    messages: int = 0
    calls: int = 0
    refused: tuple[str, ...] = ()


def sound(arrival: Arrival) -> Arrival:
    """An arrival with the messages that can be stored, and what is wrong with the others."""
    checked_session(arrival.session)
    good: list[Message] = []
    wrong: list[str] = []
    for message in arrival.messages:
        try:
            good.append(checked(message))
        except InvalidInput as error:
            wrong.append(str(error))
    return arrival._replace(messages=good, refused=(*arrival.refused, *wrong))


def ready(engine: Engine, arrival: Arrival, now: float) -> Arrival:
    """An arrival with its messages made ready, as those of a new session."""
    return arrival._replace(
        ready=_ready(engine, arrival.messages, now) if arrival.messages else None
    )


def _ready(engine: Engine, messages: Sequence[Message], now: float) -> Ready:
    messages = without_twins(messages)
    called: dict[tuple[int, str], str] = {}
    tools = tool_names(None, 0, messages, called)
    rows = [
        rest_of_row(message, now if message.timestamp is None else message.timestamp, names)
        for message, names in zip(messages, tools, strict=True)
    ]
    open_calls = {id: name for (_, id), name in called.items()}
    return Ready(rows, engine.words(messages), open_calls, growth_of(messages, now))


def arrive(
    engine: Engine,
    tx: Transaction,
    arrivals: Sequence[Arrival],
    now: float,
    called: dict[tuple[int, str], str],
) -> list[Arrived]:
    """Store what is new of each arrival. A session that was pruned stays as it is."""
    known = _known(tx, {escape(one.session.id): None for one in arrivals})
    arrived: list[Arrived] = []
    for one in arrivals:
        id = escape(one.session.id)
        num, pruned = known.get(id, (None, None))
        if pruned is not None or (num is None and not one.messages):
            arrived.append(Arrived(refused=one.refused))
            continue
        if num is None:
            made = one.ready or _ready(engine, one.messages, now)
            num = _begin(tx, one, made.growth)
            if num is not None:
                known[id] = num, None
                _put(engine, tx, num, made, called)
                arrived.append(Arrived(made.growth.messages, made.growth.calls, one.refused))
                continue
            num, _ = known[id] = _known(tx, [id])[id]  # somebody else began it just now
        tx.write_last()  # it may be of the same session
        new = _continue(engine, tx, one, now, num, called)
        arrived.append(new._replace(refused=one.refused))
    return arrived


def _put(
    engine: Engine, tx: Transaction, num: int, made: Ready, called: dict[tuple[int, str], str]
) -> None:
    """Write the messages of a new session, at the end of the transaction."""
    rows: list[Row] = [(num, position, *row) for position, row in enumerate(made.rows)]
    tx.insert_last("messages", MESSAGE_VALUES, rows)
    size = sum([len(row[-1] or row[-2] or "") for row in rows])
    engine.index(tx, num, 0, len(rows), size, made.words)
    called |= {(num, id): name for id, name in made.called.items()}
    if len(called) > REMEMBERED_CALLS:
        called.clear()


def _known(tx: Transaction, ids: Iterable[str]) -> dict[str, tuple[int, float | None]]:
    """Which of these sessions are there: number, and when it was pruned."""
    found: dict[str, tuple[int, float | None]] = {}
    for marks, some in together([*ids]):
        sql = f"SELECT id, num, pruned FROM sessions WHERE id IN ({marks})"
        found |= {id: (num, pruned) for id, num, pruned in tx.run(sql, some)}
    return found


def _begin(tx: Transaction, arrival: Arrival, growth: Growth) -> int | None:
    """Write the row of a new session with all that is told of it; None if it is there."""
    session = arrival.session
    columns: dict[str, Any] = {
        "changes": 1,
        "next_position": growth.messages,
        "message_count": growth.messages,
        "tool_call_count": growth.calls,
        "preview": growth.preview,
    }
    if arrival.is_whole:
        columns |= _usage(_NOTHING, session.tokens, session.cost)
    else:
        session = replace(session, title=None)
    latest = max(session.started, growth.latest)
    return insert(tx, replace(session, last_active=latest), columns)


def _continue(
    engine: Engine,
    tx: Transaction,
    arrival: Arrival,
    now: float,
    num: int,
    called: dict[tuple[int, str], str],
) -> Arrived:
    """Store what a session lacks of an arrival."""
    messages, arrived = arrival.messages, Arrived()
    if messages:
        known = stored_already(tx, num, messages)
        end = _next_position(tx, num)  # on PostgreSQL nobody else moves it from here on
        messages = [*_completed(tx, num, end, messages, known)]
        added = append(engine, tx, arrival.session.id, messages, now, num, called, known=known)
        placed = zip(added.positions, messages, strict=True)
        new = {at: len(message.tool_calls) for at, message in placed if at >= end}
        arrived = Arrived(len(new), sum(new.values()))
    if arrival.is_whole:
        _learn(tx, num, arrival.session)
    return arrived


def _next_position(tx: Transaction, num: int) -> int:
    return tx.run("SELECT next_position FROM sessions WHERE num = ?", (num,))[0][0]


def _completed(
    tx: Transaction,
    num: int,
    end: int,
    messages: Sequence[Message],
    known: Mapping[str | None, int],
) -> Iterator[Message]:
    """The messages, and after an answer that was stored half-written what it lacked."""
    answers: list[Message] | None = None
    for message in messages:
        yield message
        if message.role != "assistant" or message.platform_message_id not in known:
            continue
        if answers is None:
            rows = tx.run(
                f"SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.session = ?"
                " AND m.position >= ? AND m.role = 'assistant'",
                (num, end - TAIL),
            )
            answers = [message_of(row) for row in rows]
        if rest := _rest(message, answers):
            yield rest


def _rest(message: Message, answers: Sequence[Message]) -> Message | None:
    """What the stored answer lacks, when its file was last read while it was being written.

    The store keeps what it has, so the rest becomes an answer of its own, right after it.
    """
    id = message.platform_message_id
    had = [
        answer
        for answer in answers
        if answer.platform_message_id == id
        or (answer.platform_message_id or "").startswith(f"{id}+")
    ]
    if not had:
        return None
    known = {call.id for answer in had for call in answer.tool_calls}
    calls = tuple(call for call in message.tool_calls if call.id not in known)
    said = any(answer.text for answer in had)
    if not calls and (said or not message.text):
        return None
    return replace(
        message,
        content=None if said else message.content,
        tool_calls=calls,
        platform_message_id=f"{id}+{calls[0].id if calls else 'text'}",
    )


def _learn(tx: Transaction, num: int, told: Session) -> None:
    """Fill in what the store does not know of a session yet.

    Tokens and cost are raised to what was told, never added; the first end and the first title stay.
    """
    stored = by_num(tx, num)
    columns: dict[str, Any] = {}
    texts = {
        name: value
        for name in ("owner", "user", "model", "parent", "cwd", "git_branch")
        if (value := getattr(told, name)) and not getattr(stored, name)
    }
    if texts.get("parent") == told.id:
        del texts["parent"]
    columns |= escaped({"user_name" if name == "user" else name: v for name, v in texts.items()})
    if told.model_config and not stored.model_config:
        columns["model_config"] = encode_json(told.model_config)
    if 0 < told.started < stored.started:
        columns["started"] = told.started
    if told.ended is not None and stored.ended is None:
        columns |= {"ended": told.ended, **escaped({"end_reason": told.end_reason})}
    columns |= _usage(stored, told.tokens, told.cost)
    title = titles.clean(told.title) if told.title and not stored.title else None
    if title:
        owner = escape(told.owner or stored.owner or "")
        names = ("title", "title_base", "title_number")
        columns |= dict(zip(names, titles.claim(tx, owner, title), strict=True))
    if columns:
        assign(tx, num, columns)


def _usage(stored: Session, tokens: Tokens, cost: Decimal) -> dict[str, int]:
    """The counts that are higher than what is stored."""
    names = ("input", "output", "read", "write", "reasoning")
    counts = zip(names, tokens, stored.tokens, strict=True)
    columns = {f"tokens_{name}": says for name, says, has in counts if says > has}
    return {**columns, "cost_nano": nano(cost)} if cost > stored.cost else columns
