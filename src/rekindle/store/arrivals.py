"""What an import brings: messages of many sessions, and what their files tell of them.

Everything that is given at once goes into one transaction. What the store has already is left as it
is, so that to bring the same again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from ..types import Message, Session, Tokens, replace
from . import titles
from .engine import Engine, Transaction
from .rows import MESSAGE_COLUMNS, encode_json, escaped, message_of, nano
from .sessions import (
    Growth,
    append,
    assign,
    by_num,
    growth_of,
    insert,
    put,
    stored_already,
    together,
    without_twins,
)
from .text import escape

# How far back the last answers of a session are looked for when more of it arrives.
TAIL = 64
_NOTHING = Session("")


class Arrival(NamedTuple):
    """Messages for the end of a session, which is begun if it is not there.

    `is_whole` says that `session` is all that its file tells: then tokens, cost, title and end count.
    """

    session: Session
    messages: Sequence[Message] = ()
    is_whole: bool = False


class Arrived(NamedTuple):
    """How much of it was new, and why some messages were refused."""

    messages: int = 0
    calls: int = 0
    refused: tuple[str, ...] = ()


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
            arrived.append(Arrived())
            continue
        if num is None:
            messages = without_twins(one.messages)
            num = _begin(tx, one, growth_of(messages, now))
            if num is not None:
                known[id] = num, None
                put(engine, tx, num, 0, messages, now, called, is_last=True)
                calls = sum(len(message.tool_calls) for message in messages)
                arrived.append(Arrived(len(messages), calls))
                continue
            num, _ = known[id] = _known(tx, [id])[id]  # somebody else began it just now
        tx.write_last()  # it may be of the same session
        arrived.append(_continue(engine, tx, one, now, num, called))
    return arrived


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
