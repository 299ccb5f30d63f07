"""Pairs calls with their results, and judges them, over a stream of messages.

Results are matched by id, at any distance and in any order. Ids that a copy masked name nothing,
and some formats have none: there the oldest waiting call of that name is answered, or else the
oldest of the newest message that makes calls. A result that answers no waiting call is a copy of
one that came before, or an orphan, and is left aside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from rekindle.judging.rules.evidence import Evidence
from rekindle.types import Call, Message, ToolCall

from .judge import Rules, judge
from .tool_kinds import kind_of, runs_code

# Some copies have ids masked; a masked id names nothing.
MASKED = frozenset(("", "REDACTED", "[REDACTED]", "null", "None", "undefined"))


_NO_RESULT = Message("tool")


class Asked(NamedTuple):
    """A call and where it was made."""

    position: int
    number: int
    call: ToolCall


class Pair(NamedTuple):
    """A call and the result that answered it, if one did."""

    asked: Asked
    result: Message | None
    answered: int | None  # position of the result


class Waiting:
    """The calls that have no result yet."""

    def __init__(self) -> None:
        self._by_id: dict[str, deque[Asked]] = {}
        # In the order in which they were made; an answered one leaves at once.
        self._open: dict[tuple[int, int], Asked] = {}

    def ask(self, asked: Asked) -> None:
        self._open[asked.position, asked.number] = asked
        if asked.call.id not in MASKED:
            self._by_id.setdefault(asked.call.id, deque()).append(asked)

    def answer(self, result: Message) -> Asked | None:
        """The call that this result answers; it waits no longer."""
        id = result.tool_call_id
        asked = self._named(id) if id and id not in MASKED else self._nameless(result.name)
        if asked is not None:
            del self._open[asked.position, asked.number]
        return asked

    def rest(self) -> Iterator[Asked]:
        return iter(self._open.values())

    def _named(self, id: str) -> Asked | None:
        queue = self._by_id.get(id)
        if queue is None:
            return None
        asked = queue.popleft()
        if not queue:
            del self._by_id[id]
        return asked

    def _nameless(self, tool: str | None) -> Asked | None:
        asked = self._oldest(tool)
        if asked is not None and (queue := self._by_id.get(asked.call.id)):
            queue.remove(asked)
            if not queue:
                del self._by_id[asked.call.id]
        return asked

    def _oldest(self, tool: str | None) -> Asked | None:
        waiting = self._open.values()
        if tool:
            masked = (one for one in waiting if one.call.id in MASKED and one.call.name == tool)
            if asked := next(masked, None):
                return asked
            if asked := next((one for one in waiting if one.call.name == tool), None):
                return asked
        newest = max((one.position for one in waiting), default=None)
        return next((one for one in waiting if one.position == newest), None)


def pairs(messages: Iterable[Message], first: int = 0) -> Iterator[Pair]:
    """Each call with its result, when the result comes; at the end those that never got one.

    A message without a position of its own counts on from `first`.
    """
    waiting = Waiting()
    place = first - 1
    for message in messages:
        place = place + 1 if message.position is None else message.position
        for number, call in enumerate(message.tool_calls):
            waiting.ask(Asked(place, number, call))
        if message.role == "tool" and (asked := waiting.answer(message)) is not None:
            yield Pair(asked, message, place)
    for asked in waiting.rest():
        yield Pair(asked, None, None)


def judged(
    session: str, messages: Iterable[Message], first: int = 0, rules: Rules | None = None
) -> Iterator[Call]:
    """The calls of a session with their verdicts, in the order in which they were answered."""
    verdict = judge if rules is None else rules.judge
    for (position, number, call), result, answered in pairs(messages, first):
        outcome = verdict(call, result)
        yield Call(
            session,
            position,
            number,
            call.id,
            call.name,
            work_of(call),
            digest(call),
            *outcome,
            duration=_duration(result),
            answered=answered,
        )


def resume_at(calls: Iterable[Call], end: int) -> int:
    """The position from which a session that grew beyond `end` must be judged again.

    That is the earliest call without a result; and since what is read again must be whole, no
    call that was answered after it may have been made before it.
    """
    known = sorted(((call.position, call.answered) for call in calls), key=lambda one: one[0])
    start = min((position for position, answered in known if answered is None), default=end)
    for position, answered in reversed(known):
        if position < start and answered is not None and answered >= start:
            start = position
    return start


def work_of(call: ToolCall) -> str:
    """The kind of work a call does: that of its tool, but a command that runs code is code."""
    work = kind_of(call.name).work
    if work == "terminal" and runs_code(Evidence(call, _NO_RESULT).command):
        return "code"
    return work


def digest(call: ToolCall) -> int:
    """A number that is the same for the same tool with the same arguments."""
    given = call.arguments
    said = given.encode("utf-8", "replace") if isinstance(given, str) else _encoded(given)
    name = call.name.encode("utf-8", "replace")
    hashed = blake2b(said, digest_size=8, key=blake2b(name, digest_size=16).digest()).digest()
    return int.from_bytes(hashed, "big", signed=True)


def _encoded(arguments: object) -> bytes:
    try:
        return msgspec.json.encode(arguments, order="sorted")
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return repr(arguments).encode("utf-8", "replace")


def _duration(result: Message | None) -> float | None:
    taken = result.meta.get("duration") if result is not None and result.meta else None
    if isinstance(taken, (int, float)) and not isinstance(taken, bool):
        return float(taken)
    return None
