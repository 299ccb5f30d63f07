"""SWE-agent reader: one document per run, `{trajectory, history, info, …}`, in `<instance>.traj`.

A step of `trajectory` has an action and its observation in one entry, and becomes one answer with its
result. `history` is what the model saw: the prompt, the observations as formatted for it, and, in
versions with function calling, its `tool_calls`. It may lack steps or the last observation, so the steps
lead, and history entries are found by their action. Demonstrations (`is_demo`) are not messages. A step
without an action ran nothing: the model was asked again. No version records whether an action failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from rekindle.json_fields import (
    JsonObject,
    as_number,
    as_object,
    as_objects,
    drop_none,
    get_text,
    to_content,
)
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.jsonl import decode_json
from rekindle.transcripts.jsonio.partial import find_first_element
from rekindle.transcripts.jsonio.stream import iter_elements
from rekindle.transcripts.readers.session_builder import (
    SessionBuilder,
    decode_text,
    join_thoughts,
    make_run_id,
    parse_cost,
    parse_function_call,
    parse_tokens,
)
from rekindle.types import JSON, Content, Message, Session, ToolCall, replace_fields

SOURCE = "swe-agent"

# The chosen one of several attempts is repeated next to them.
_LISTS = {"trajectory", "history", "attempts"}
_READ_KEYS = {"trajectory", "info", "replay_config"}
# Commands that SWE-agent adds to the shell, across its versions and tool bundles.
_TOOL_COMMANDS = frozenset(
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
# How far ahead to search the history for a step's entry.
_LOOKAHEAD = 8


def can_read(head: FileHead) -> bool:
    if not head.data.startswith(b"{"):
        return False
    first_step = find_first_element(head.data, {"trajectory"})
    first_step = first_step or find_first_element(
        find_first_element(head.data, {"attempts"}), {"trajectory"}
    )
    try:
        step = as_object(decode_json(first_step))
    except ValueError:
        # Longer than the head. OpenHands events look alike, but have a source.
        return (
            b'"action"' in first_step
            and b'"observation"' in first_step
            and b'"source"' not in first_step
        )
    return {"action", "observation"} <= step.keys()


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    run = _SweAgentRun(path)
    for element in iter_elements(path, _LISTS):
        if isinstance(element, UnreadableEntry):
            yield element
        elif element.key not in _READ_KEYS:
            continue
        elif element.key == "info":
            run.update_session(as_object(element.value))
        elif element.key == "replay_config":
            run.set_model(element.value)
        elif element.position is not None and isinstance(value := element.value, dict):
            yield from run.read_entry(cast(JsonObject, value), element.position)
        else:
            yield UnreadableEntry(str(path), element.line, "trajectory: expected a step")
    yield from run.finish()


class _SweAgentHistory:
    """What the model saw, read in parallel with the steps; its errors are reported there."""

    def __init__(self, path: Path) -> None:
        self.entries = self._iter_entries(path)
        self.lookahead: list[JsonObject] = []

    def _iter_entries(self, path: Path) -> Iterator[JsonObject]:
        for element in iter_elements(path, _LISTS):
            if isinstance(element, UnreadableEntry) or element.key != "history":
                continue
            if element.position is None:
                continue
            entry = as_object(element.value)
            if entry.get("role") != "system" and entry.get("is_demo") is not True:
                yield entry

    def take_prompts(self) -> Iterator[JsonObject]:
        """Yield the user messages before the first answer."""
        while self._fill_lookahead(1) and self.lookahead[0].get("role") == "user":
            yield self.lookahead.pop(0)

    def take_answer(self, action: str) -> tuple[JsonObject, list[JsonObject]]:
        """Return the answer with this action and the observations after it, or empty values."""
        self._fill_lookahead(_LOOKAHEAD)
        for index, entry in enumerate(self.lookahead):
            if entry.get("role") == "assistant" and entry.get("action") == action:
                del self.lookahead[: index + 1]
                observations: list[JsonObject] = []
                while self._fill_lookahead(1) and self.lookahead[0].get("role") in ("user", "tool"):
                    observations.append(self.lookahead.pop(0))
                return entry, observations
        return {}, []

    def _fill_lookahead(self, wanted: int) -> bool:
        while len(self.lookahead) < wanted:
            entry = next(self.entries, None)
            if entry is None:
                break
            self.lookahead.append(entry)
        return bool(self.lookahead)


class _SweAgentRun(SessionBuilder):
    """One run being read."""

    def __init__(self, path: Path) -> None:
        # Runs have no id, and a task is run many times.
        stem = path.name.removesuffix(".json").removesuffix(".traj")
        super().__init__(Session(id=make_run_id(stem, str(path.resolve())), source=SOURCE))
        self.history = _SweAgentHistory(path)

    def update_session(self, info: JsonObject) -> None:
        """Update the session from the run's `info`."""
        stats = as_object(info.get("model_stats"))
        self.set_fields(
            end_reason=get_text(info, "exit_status"),
            tokens=parse_tokens(stats, "tokens_sent", "tokens_received"),
            cost=parse_cost(stats.get("instance_cost")),
        )

    def set_model(self, config: object) -> None:
        """Set the session's model from the replay configuration."""
        model = as_object(as_object(as_object(decode_text(config)).get("agent")).get("model"))
        self.set_fields(model=get_text(model, "name", "model_name"))

    def read_entry(self, step: JsonObject, index: int) -> Iterator[TranscriptEvent]:
        """Read an element of `trajectory`."""
        if not self.is_started:
            state = as_object(decode_text(step.get("state")))
            self.set_fields(cwd=get_text(state, "working_dir"))
            yield from self.start_session()
            for number, raw in enumerate(self.history.take_prompts(), 1):
                yield _make_message("user", raw.get("content"), f"prompt:{number}")
        action = step.get("action") if isinstance(step.get("action"), str) else ""
        entry, observations = self.history.take_answer(cast(str, action)) if action else ({}, [])
        answer = _parse_answer(step, entry, f"step:{index + 1}")
        yield answer
        if answer.tool_calls:
            yield from _parse_results(step, observations, answer)
        elif observation := get_text(step, "observation"):
            yield _make_message("user", observation, f"step:{index + 1}:notice")


def _make_message(role: str, raw_content: object, id: str) -> Message:
    return Message(role=role, content=_parse_content(raw_content), platform_message_id=id)


def _parse_answer(step: JsonObject, entry: JsonObject, fallback_id: str) -> Message:
    calls = tuple(
        parse_function_call(call, f"{fallback_id}:{number}")
        for number, call in enumerate(as_objects(entry.get("tool_calls") or step.get("tool_calls")))
    )
    action = get_text(step, "action")
    if not calls and action and action.strip():
        calls = (ToolCall(f"{fallback_id}:0", _parse_tool_name(action), {"command": action}),)
    thoughts = (
        *as_objects(entry.get("thinking_blocks")),
        *as_objects(step.get("thinking_blocks")),
    )
    raw_content = entry.get("content") or step.get("response") or step.get("thought")
    return replace_fields(
        _make_message("assistant", raw_content, fallback_id),
        tool_calls=calls,
        reasoning=join_thoughts(get_text(block, "thinking") for block in thoughts),
    )


def _parse_tool_name(action: str) -> str:
    word = _WORD.match(action)
    return word[1] if word and word[1] in _TOOL_COMMANDS else "bash"


def _parse_results(
    step: JsonObject, observations: list[JsonObject], answer: Message
) -> Iterator[Message]:
    """Yield a step's observations as the model saw them, or as the tool returned them."""
    fallback_id = answer.platform_message_id or ""
    calls = answer.tool_calls
    meta = drop_none({"duration": as_number(step.get("execution_time"))})
    if not observations:
        observation = step.get("observation")
        yield _make_result(
            observation if isinstance(observation, str) else "", calls[0], fallback_id, meta
        )
    for position, entry in enumerate(observations[: len(calls)]):
        ids = entry.get("tool_call_ids")
        named_calls = [call for call in calls if isinstance(ids, list) and call.id in ids]
        call = named_calls[0] if named_calls else calls[position]
        yield _make_result(entry.get("content"), call, f"{fallback_id}:{position}", meta)


def _make_result(
    raw_content: object, call: ToolCall, fallback_id: str, meta: dict[str, JSON] | None
) -> Message:
    message = _make_message("tool", raw_content, f"{fallback_id}:result")
    return replace_fields(message, tool_call_id=call.id, name=call.name, meta=meta)


def _parse_content(raw_content: object) -> Content:
    return raw_content if isinstance(raw_content, str) else to_content(as_objects(raw_content))
