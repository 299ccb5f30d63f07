"""Invented sessions for mining: calls with what became of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from rekindle.judging.call_pairing import digest_call, get_call_work
from rekindle.knowledge.mining.call_reader import CallReader, MinedCall, SessionCalls
from rekindle.types import JSON, JudgedCall, ToolCall


class Did(NamedTuple):
    """A call of a session, said briefly; a command when it is text."""

    call: str | tuple[str, JSON]
    ok: bool = True
    sure: float = 0.95
    fault: str = "agent"


def run(*done: Did | str, users: Sequence[int] = (0,), cwd: str | None = None) -> list[MinedCall]:
    """The deeds of a session that made these calls, at the odd positions from 1 on."""
    calls: list[tuple[JudgedCall, ToolCall]] = []
    for number, one in enumerate(done):
        one = Did(one) if isinstance(one, str) else one
        tool, arguments = (
            ("terminal", {"command": one.call}) if isinstance(one.call, str) else one.call
        )
        call = ToolCall(f"c{number}", tool, json.dumps(arguments))
        verdict = JudgedCall(
            "s", 1 + 2 * number, 0, call.id, tool, get_call_work(call), digest_call(call),
            "ok" if one.ok else "error", not one.ok, None if one.ok else "command",
            None if one.ok else one.fault, "test", one.sure, None, 2 + 2 * number,
        )  # fmt: skip
        calls.append((verdict, call))
    return next(
        CallReader(lambda value: value, lambda _, call: call).read_sessions(
            [SessionCalls(calls, users, cwd)]
        )
    )
