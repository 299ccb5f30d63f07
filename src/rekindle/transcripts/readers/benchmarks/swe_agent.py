"""SWE-agent: one document per run, `{trajectory, history, info, …}`, in `<instance>.traj`.

A step of `trajectory` has an action and its observation in one entry, and is one answer with its
result. `history` is what the model saw: the prompt, the observations as they were laid out for it,
and, in the versions that let the model call functions, its `tool_calls`. It may lack steps, or the
last observation, so the steps lead, and the entries of the history are found by their action.
Demonstrations (`is_demo`) are no messages. A step without an action ran nothing: the model was asked
again. No version says whether an action failed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import cast

from rekindle.json_fields import Record, content, count, number, present, record, records, text
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event, Learned, Opened
from rekindle.transcripts.jsonio.document import Piece, pieces
from rekindle.transcripts.jsonio.jsonl import decode
from rekindle.transcripts.jsonio.partial import opening
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall, replace

SOURCE = "swe-agent"

# Of several attempts the one that was chosen stands beside them once more.
_LISTS = {"trajectory", "history", "attempts"}
_TOLD = {"trajectory", "info", "replay_config"}
# What the interface of the agent adds to the shell, over its versions and its bundles of tools.
_COMMANDS = frozenset(
    (
        *("open", "goto", "scroll_up", "scroll_down", "create", "edit", "insert", "submit"),
        *("search_dir", "search_file", "find_file", "str_replace_editor", "view_image"),
        *("filemap", "set_cursors", "undo_edit", "submit_review", "exit_forfeit", "exit_cost"),
        *("exit_format", "exit_context", "exit_api", "skip", "connect_start", "connect_sendline"),
        *("connect_exec", "connect_stop", "debug_start", "debug_stop", "debug_step", "debug_exec"),
        *("debug_continue", "debug_add_breakpoint", "decompile", "disassemble"),
    )
)
_WORD = re.compile(r"\s*(\w+)")
# How far ahead in the history the entry of a step is looked for.
_AHEAD = 8


def sniff(head: Head) -> bool:
    if not head.data.startswith(b"{"):
        return False
    begin = opening(head.data, {"trajectory"})
    begin = begin or opening(opening(head.data, {"attempts"}), {"trajectory"})
    try:
        step = record(decode(begin))
    except ValueError:
        # Longer than the head. A list of events looks alike, but an event has a source.
        return b'"action"' in begin and b'"observation"' in begin and b'"source"' not in begin
    return {"action", "observation"} <= step.keys()


def read(path: Path) -> Iterator[Event]:
    run = _Run(path)
    for piece in pieces(path, _LISTS):
        if isinstance(piece, Damage):
            yield piece
            continue
        if piece.key not in _TOLD:
            continue
        value = _decoded(piece, path)
        if isinstance(value, Damage):
            yield value
        elif piece.key == "info":
            run.learn(record(value))
        elif piece.key == "replay_config":
            run.learn_model(value)
        elif piece.item is not None and isinstance(value, dict):
            yield from run.step(cast(Record, value), piece.item)
        else:
            yield Damage(str(path), piece.line, "trajectory: expected a step")
    yield from run.finish()


def _decoded(piece: Piece, path: Path) -> object:
    try:
        return decode(piece.data)
    except ValueError as error:
        return Damage(str(path), piece.line, f"{piece.key}: not JSON: {error}")


class _History:
    """What the model saw, read beside the steps; damage in it is told where the steps are read."""

    def __init__(self, path: Path) -> None:
        self.entries = self._read(path)
        self.ahead: list[Record] = []

    def _read(self, path: Path) -> Iterator[Record]:
        for piece in pieces(path, _LISTS):
            if isinstance(piece, Damage) or piece.key != "history" or piece.item is None:
                continue
            entry = record(_decoded(piece, path))
            if entry.get("role") != "system" and entry.get("is_demo") is not True:
                yield entry

    def prompts(self) -> Iterator[Record]:
        """What the user says before the first answer."""
        while self._fill(1) and self.ahead[0].get("role") == "user":
            yield self.ahead.pop(0)

    def of(self, action: str) -> tuple[Record, list[Record]]:
        """The answer with this action and the observations after it; empty where there is none."""
        self._fill(_AHEAD)
        for index, entry in enumerate(self.ahead):
            if entry.get("role") == "assistant" and entry.get("action") == action:
                del self.ahead[: index + 1]
                seen: list[Record] = []
                while self._fill(1) and self.ahead[0].get("role") in ("user", "tool"):
                    seen.append(self.ahead.pop(0))
                return entry, seen
        return {}, []

    def _fill(self, wanted: int) -> bool:
        while len(self.ahead) < wanted:
            entry = next(self.entries, None)
            if entry is None:
                break
            self.ahead.append(entry)
        return bool(self.ahead)


class _Run:
    """One run as far as it is read."""

    def __init__(self, path: Path) -> None:
        named = str(path.resolve()).encode("utf-8", "surrogateescape")
        # Runs have no id, and the same task is run many times.
        stem = path.name.removesuffix(".json").removesuffix(".traj")
        id = f"{stem}-{hashlib.sha256(named).hexdigest()[:12]}"
        self.session = Session(id=id, source=SOURCE)
        self.history = _History(path)
        self.opened = False

    def learn(self, info: Record) -> None:
        stats = record(info.get("model_stats"))
        cost = number(stats.get("instance_cost"))
        self.session = replace(
            self.session,
            end_reason=text(info, "exit_status"),
            tokens=Tokens(
                input=count(stats.get("tokens_sent")), output=count(stats.get("tokens_received"))
            ),
            cost=Decimal(str(cost)) if cost and 0 < cost < 1e9 else Decimal(0),
        )

    def learn_model(self, config: object) -> None:
        if isinstance(config, str):
            config = _parsed(config)
        model = record(record(record(config).get("agent")).get("model"))
        self.session = replace(self.session, model=text(model, "name", "model_name"))

    def step(self, step: Record, index: int) -> Iterator[Event]:
        if not self.opened:
            self.opened = True
            self.session = replace(self.session, cwd=_folder(step))
            yield Opened(self.session)
            for number, said in enumerate(self.history.prompts(), 1):
                yield _message("user", said.get("content"), f"prompt:{number}")
        action = step.get("action") if isinstance(step.get("action"), str) else ""
        entry, seen = self.history.of(cast(str, action)) if action else ({}, [])
        answer = _answer(step, entry, f"step:{index + 1}")
        yield answer
        if answer.tool_calls:
            yield from _results(step, seen, answer)
        elif observed := text(step, "observation"):
            yield _message("user", observed, f"step:{index + 1}:notice")

    def finish(self) -> Iterator[Event]:
        if self.opened:
            yield Learned(self.session)


def _message(role: str, said: object, id: str) -> Message:
    return Message(role=role, content=_content(said), platform_message_id=id)


def _answer(step: Record, entry: Record, place: str) -> Message:
    calls = tuple(
        _call(call, f"{place}:{number}")
        for number, call in enumerate(records(entry.get("tool_calls") or step.get("tool_calls")))
    )
    action = text(step, "action")
    if not calls and action and action.strip():
        calls = (ToolCall(f"{place}:0", _tool(action), {"command": action}),)
    thoughts = (
        *records(entry.get("thinking_blocks")),
        *records(step.get("thinking_blocks")),
    )
    said = entry.get("content") or step.get("response") or step.get("thought")
    return replace(
        _message("assistant", said, place),
        tool_calls=calls,
        reasoning="\n\n".join(t for block in thoughts if (t := text(block, "thinking"))) or None,
    )


def _call(call: Record, place: str) -> ToolCall:
    function = record(call.get("function")) or call
    given = function.get("arguments")
    arguments = cast("str | Record", given) if isinstance(given, (str, dict)) else ""
    return ToolCall(text(call, "id") or place, text(function, "name") or "", arguments)


def _tool(action: str) -> str:
    word = _WORD.match(action)
    return word[1] if word and word[1] in _COMMANDS else "bash"


def _results(step: Record, seen: list[Record], answer: Message) -> Iterator[Message]:
    """The observation of a step, as the model saw it; without a history, as the tool gave it."""
    place = answer.platform_message_id or ""
    calls = answer.tool_calls
    facts = present({"duration": number(step.get("execution_time"))})
    if not seen:
        observed = step.get("observation")
        yield _result(observed if isinstance(observed, str) else "", calls[0], place, facts)
    for number_, entry in enumerate(seen[: len(calls)]):
        ids = entry.get("tool_call_ids")
        named = [call for call in calls if isinstance(ids, list) and call.id in ids]
        call = named[0] if named else calls[number_]
        yield _result(entry.get("content"), call, f"{place}:{number_}", facts)


def _result(said: object, call: ToolCall, place: str, facts: dict[str, JSON] | None) -> Message:
    message = _message("tool", said, f"{place}:result")
    return replace(message, tool_call_id=call.id, name=call.name, meta=facts)


def _content(said: object) -> Content:
    return said if isinstance(said, str) else content(records(said))


def _folder(step: Record) -> str | None:
    state = step.get("state")
    return text(record(_parsed(state) if isinstance(state, str) else state), "working_dir")


def _parsed(value: str) -> object:
    try:
        return decode(value.encode("utf-8", "replace"))
    except ValueError:
        return None
