"""pi writer: a header and entries linked by `id` and `parentId`.

The reader identifies a message by its role and its time in milliseconds, which are therefore kept.
Reasoning is left out, because providers accept only what they signed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rekindle.json_fields import JsonObject

from .turns import (
    AgentRules,
    Turn,
    TurnCall,
    TurnCallResult,
    WritableSession,
    derive_hex,
    encode_line,
    format_iso_time,
    to_milliseconds,
)

RULES = AgentRules(
    agent="pi",
    session_id=re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?"),
    call_id=re.compile(r"[A-Za-z0-9_.:|+/=-]{1,512}"),
    tool_name=re.compile(r"[A-Za-z0-9_-]{1,128}"),
    tools={
        "bash": frozenset({"command"}),
        "read": frozenset({"path"}),
        "write": frozenset({"path", "content"}),
    },
)
_VERSION = 3
_TIMED_ID = re.compile(r"(user|assistant|bashExecution):(\d{1,15})")
_ENTRY_ID = re.compile(r"[0-9a-f]{8}")
_FULL_OUTPUT = "[Output truncated. Full output: "


def render_session(conversation: WritableSession) -> Iterator[str]:
    """Yield the lines of the session's file."""
    started = format_iso_time(conversation.session.started)
    header = {"type": "session", "version": _VERSION, "id": conversation.id}
    yield encode_line({**header, "timestamp": started, "cwd": conversation.folder})
    chain = _EntryChain(conversation)
    if conversation.title:
        name = conversation.title
        yield chain.render_entry("session_info", conversation.session.started, name=name)
    for turn in conversation.turns:
        if turn.summary:
            yield chain.render_compaction(turn, turn.summary)
        yield from chain.render_turn(turn)


class _EntryChain:
    """The entries written so far, each linked to the one before it."""

    def __init__(self, conversation: WritableSession) -> None:
        self.conversation = conversation
        self.parent: str | None = None
        self.seen: set[str] = set()

    def render_turn(self, turn: Turn) -> Iterator[str]:
        """Yield a message and the results of its calls."""
        role, moment = _parse_timed_id(turn)
        texts = [{"type": "text", "text": text} for text in turn.texts]
        if turn.role == "assistant":
            message = self._build_answer(turn, texts)
        elif role == "bashExecution" and (command := _build_command(turn)):
            message = command
        else:
            message = {"role": "user", "content": texts}
        id = turn.id if _ENTRY_ID.fullmatch(turn.id or "") else None
        yield self.render_entry("message", turn.time, id, message={**message, "timestamp": moment})
        # Of a call without a result, pi itself says that there is none.
        for call, result in turn.list_results():
            yield self._render_result(call, result)

    def _build_answer(self, turn: Turn, texts: list[JsonObject]) -> JsonObject:
        calls = [
            {"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.arguments}
            for call in turn.calls
        ]
        no_cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0)
        usage: JsonObject = dict.fromkeys(
            ("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0
        )
        return {
            "role": "assistant",
            "content": [*texts, *calls],
            "api": "unknown",
            "provider": self.conversation.provider or "unknown",
            "model": turn.model or self.conversation.session.model or "unknown",
            "usage": {**usage, "cost": no_cost},
            "stopReason": turn.finish_reason or ("toolUse" if calls else "stop"),
        }

    def _render_result(self, call: TurnCall, result: TurnCallResult) -> str:
        message = {
            "role": "toolResult",
            "toolCallId": call.id,
            "toolName": call.name,
            "content": [{"type": "text", "text": text} for text in result.texts],
            "isError": result.failed,
            "timestamp": to_milliseconds(result.time),
        }
        return self.render_entry("message", result.time, message=message)

    def render_compaction(self, turn: Turn, summary: str) -> str:
        """Return a compaction after which nothing before it is sent."""
        return self.render_entry(
            "compaction",
            turn.time,
            summary=summary,
            firstKeptEntryId="",
            tokensBefore=turn.tokens_before,
        )

    def render_entry(self, kind: str, time: float, id: str | None = None, **fields: Any) -> str:
        """Return an entry that follows the last one."""
        if id is None or id in self.seen:
            id = self._derive_id()
        entry = {"type": kind, "id": id, "parentId": self.parent}
        self.parent = id
        self.seen.add(id)
        return encode_line({**entry, "timestamp": format_iso_time(time), **fields})

    def _derive_id(self) -> str:
        number = len(self.seen)
        while True:
            id = derive_hex("pi", self.conversation.id, f"entry {number}")[:8]
            if id not in self.seen:
                return id
            number += 1_000_000


def _parse_timed_id(turn: Turn) -> tuple[str, int]:
    """Return the role and the time that pi gave the message."""
    found = _TIMED_ID.fullmatch(turn.id or "")
    return (found[1], int(found[2])) if found else (turn.role, to_milliseconds(turn.time))


def _build_command(turn: Turn) -> JsonObject | None:
    """Return a command that the user ran, from the prompt that the reader made of it."""
    command = turn.meta.get("command")
    if not isinstance(command, str):
        return None
    text = "\n".join(turn.texts).removeprefix(f"Ran `{command}`\n")
    output, _, notes = text.removeprefix("```\n").rpartition("\n```")
    _, is_cut, full_path = notes.rpartition(_FULL_OUTPUT)
    return {
        "role": "bashExecution",
        "command": command,
        "output": output,
        "exitCode": turn.meta.get("exit_code"),
        "cancelled": turn.meta.get("interrupted") is True,
        "truncated": bool(is_cut),
        "fullOutputPath": full_path.removesuffix("]") if is_cut else None,
        "excludeFromContext": turn.meta.get("hidden") is True,
    }
