"""Load what judged calls did and what went wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rekindle.judging.call_summary import find_problem, find_refusal_reason, summarize_call
from rekindle.store import Store
from rekindle.types import JudgedCall, Message, Session, ToolCall


class CallDetail(NamedTuple):
    """A judged call: what it did and what went wrong, each in one line, and when it was made.

    The problem of a refused call is the reason that was given, if there is one.
    """

    call: JudgedCall
    summary: str
    problem: str
    time: float | None


def load_call_details(
    store: Store, session: Session, calls: Sequence[JudgedCall]
) -> list[CallDetail]:
    """Return the details of some calls of a session."""
    wanted = {call.position for call in calls}
    wanted |= {call.result_position for call in calls if call.result_position is not None}
    messages = store.load_messages_at(session.id, wanted)
    return [_describe_call(call, session, messages) for call in calls]


def load_calls(store: Store, session: str, calls: Sequence[JudgedCall]) -> list[ToolCall | None]:
    """Return the calls as the agent made them; None for one that was removed meanwhile."""
    messages = store.load_messages_at(session, {call.position for call in calls})
    return [_find_call(call, messages) for call in calls]


def _find_call(call: JudgedCall, messages: dict[int, Message]) -> ToolCall | None:
    asking = messages.get(call.position)
    if asking is None or call.number >= len(asking.tool_calls):
        return None
    return asking.tool_calls[call.number]


def _describe_call(call: JudgedCall, session: Session, messages: dict[int, Message]) -> CallDetail:
    asking = messages.get(call.position)
    result = None if call.result_position is None else messages.get(call.result_position)
    made = _find_call(call, messages)
    if asking is None or made is None:
        return CallDetail(call, call.tool, "", None)  # removed meanwhile
    time = (result and result.timestamp) or asking.timestamp
    folder = session.cwd
    is_refused = call.outcome == "refused"
    problem = find_refusal_reason(result) if is_refused else find_problem(made, result, folder)
    return CallDetail(call, summarize_call(made, folder), problem, time)
