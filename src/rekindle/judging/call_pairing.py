"""Pair tool calls with their results and judge them, over a stream of messages.

Results are matched by id, at any distance and in any order. Some copies mask their ids and some
formats have none: such a result answers the oldest pending call with the same tool name, or else the
oldest pending call of the newest message that makes calls. A result that answers no pending call is a
copy of an earlier one, or an orphan, and is ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from rekindle.judging.rules.evidence import Evidence
from rekindle.types import JudgedCall, Message, ToolCall

from .judge import Judge, judge_call
from .tool_kinds import classify_tool, runs_code

# Some copies mask their ids; a masked id identifies no call.
MASKED_IDS = frozenset(("", "REDACTED", "[REDACTED]", "null", "None", "undefined"))


_NO_RESULT = Message("tool")


class LocatedCall(NamedTuple):
    """A call and the position of the message that makes it."""

    position: int
    number: int
    call: ToolCall


class PairedCall(NamedTuple):
    """A call and its result, if it has one."""

    located: LocatedCall
    result: Message | None
    answered: int | None  # position of the result


class PendingCalls:
    """The calls that have no result yet."""

    def __init__(self) -> None:
        self._by_id: dict[str, deque[LocatedCall]] = {}
        # In call order; an answered call is removed at once.
        self._open: dict[tuple[int, int], LocatedCall] = {}

    def add(self, located: LocatedCall) -> None:
        """Add a call that waits for its result."""
        self._open[located.position, located.number] = located
        if located.call.id not in MASKED_IDS:
            self._by_id.setdefault(located.call.id, deque()).append(located)

    def resolve(self, result: Message) -> LocatedCall | None:
        """Remove and return the call that this result answers."""
        id = result.tool_call_id
        located = (
            self._pop_by_id(id)
            if id and id not in MASKED_IDS
            else self._pop_without_id(result.name)
        )
        if located is not None:
            del self._open[located.position, located.number]
        return located

    def iter_remaining(self) -> Iterator[LocatedCall]:
        """Iterate over the calls that never got a result."""
        return iter(self._open.values())

    def _pop_by_id(self, id: str) -> LocatedCall | None:
        queue = self._by_id.get(id)
        if queue is None:
            return None
        located = queue.popleft()
        if not queue:
            del self._by_id[id]
        return located

    def _pop_without_id(self, tool: str | None) -> LocatedCall | None:
        located = self._find_oldest(tool)
        if located is not None and (queue := self._by_id.get(located.call.id)):
            queue.remove(located)
            if not queue:
                del self._by_id[located.call.id]
        return located

    def _find_oldest(self, tool: str | None) -> LocatedCall | None:
        waiting = self._open.values()
        if tool:
            masked = (one for one in waiting if one.call.id in MASKED_IDS and one.call.name == tool)
            if located := next(masked, None):
                return located
            if located := next((one for one in waiting if one.call.name == tool), None):
                return located
        newest = max((one.position for one in waiting), default=None)
        return next((one for one in waiting if one.position == newest), None)


def pair_calls(messages: Iterable[Message], first: int = 0) -> Iterator[PairedCall]:
    """Yield each call with its result once the result arrives; at the end, those without one.

    A message without a position is numbered consecutively, starting at `first`.
    """
    pending = PendingCalls()
    position = first - 1
    for message in messages:
        position = position + 1 if message.position is None else message.position
        for number, call in enumerate(message.tool_calls):
            pending.add(LocatedCall(position, number, call))
        if message.role == "tool" and (located := pending.resolve(message)) is not None:
            yield PairedCall(located, message, position)
    for located in pending.iter_remaining():
        yield PairedCall(located, None, None)


def judge_calls(
    session: str, messages: Iterable[Message], first: int = 0, custom_judge: Judge | None = None
) -> Iterator[JudgedCall]:
    """Yield the calls of a session with their verdicts, in the order of their results."""
    judge_one = judge_call if custom_judge is None else custom_judge.judge
    for (position, number, call), result, answered in pair_calls(messages, first):
        outcome = judge_one(call, result)
        yield JudgedCall(
            session,
            position,
            number,
            call.id,
            call.name,
            get_call_work(call),
            digest_call(call),
            *outcome,
            duration=_get_duration(result),
            result_position=answered,
        )


def find_rejudge_position(calls: Iterable[JudgedCall], end: int) -> int:
    """Return the position from which to judge again a session that grew beyond `end`.

    This is the earliest call without a result, moved back until no call before it was answered
    after it.
    """
    known = sorted(
        ((call.position, call.result_position) for call in calls), key=lambda one: one[0]
    )
    start = min((position for position, answered in known if answered is None), default=end)
    for position, answered in reversed(known):
        if position < start and answered is not None and answered >= start:
            start = position
    return start


def get_call_work(call: ToolCall) -> str:
    """Return the kind of work a call does: its tool's kind, but `code` if a command runs code."""
    work = classify_tool(call.name).work
    if work == "terminal" and runs_code(Evidence(call, _NO_RESULT).command):
        return "code"
    return work


def digest_call(call: ToolCall) -> int:
    """Return a number that is equal for equal tools with equal arguments."""
    arguments = call.arguments
    encoded = (
        arguments.encode("utf-8", "replace")
        if isinstance(arguments, str)
        else _encode_arguments(arguments)
    )
    name = call.name.encode("utf-8", "replace")
    hashed = blake2b(encoded, digest_size=8, key=blake2b(name, digest_size=16).digest()).digest()
    return int.from_bytes(hashed, "big", signed=True)


def _encode_arguments(arguments: object) -> bytes:
    try:
        return msgspec.json.encode(arguments, order="sorted")
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return repr(arguments).encode("utf-8", "replace")


def _get_duration(result: Message | None) -> float | None:
    taken = result.meta.get("duration") if result is not None and result.meta else None
    if isinstance(taken, (int, float)) and not isinstance(taken, bool):
        return float(taken)
    return None
