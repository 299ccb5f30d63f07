"""mini-swe-agent reader: one document `{info, messages}` per run, in `<instance>.traj.json`.

Version 1 has no tool calls: the ```bash block of an answer is the call, and the user message after it
the result, whose first line is `<returncode>N</returncode>`. An answer with no block or with several ran
nothing, and the message after it says so. The last message of a run that submitted is the submission,
which the model never saw and which is not a result. Version 2 has native calls (`tool_calls`, or the
items of the Responses API) with the return code in `extra`; its last message has the role `exit` and is
bookkeeping. Whether the run solved its task is in the file `<instance>.report.json` next to it, if the
run was evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from rekindle.json_fields import (
    JsonObject,
    as_count,
    as_object,
    as_objects,
    drop_none,
    get_text,
    make_text_part,
    parse_timestamp,
    to_content,
)
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.jsonl import read_json_object
from rekindle.transcripts.jsonio.stream import iter_elements
from rekindle.transcripts.readers.session_builder import (
    SessionBuilder,
    join_thoughts,
    make_run_id,
    parse_cost,
    parse_exit_code,
    parse_function_call,
)
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall, replace_fields

SOURCE = "mini-swe-agent"

_MARKERS = (b'"mini_version"', b'"minisweagent.', b'"trajectory_format": "mini-swe-agent')
# Some prompts have the model write the block inside a function, so it may be indented.
_BLOCK_START = re.compile(r"```(?:bash|sh|shell|mswea_bash_command)[^\S\n]*\n")
_BLOCK_END = re.compile(r"\n[ \t]*```")
_RETURN_CODE = re.compile(r"\s*<returncode>(-?\d{1,9})</returncode>")
_REJECTION_PREFIXES = ("Command not executed", "Commands not executed")
_NOT_EXECUTED = "action was not executed"


def can_read(head: FileHead) -> bool:
    first = head.objects[0] if head.objects else {}
    # A corrupt SWE-agent trajectory is not among the parsed fields.
    if "info" not in first or b'"trajectory"' in head.data:
        return False
    # A long submission hides everything after it; SWE-agent writes its `info` last.
    submitted = b'"exit_status"' in head.data and b'"submission"' in head.data
    return submitted or any(mark in head.data for mark in _MARKERS)


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    run = _MiniSweAgentRun(path)
    for element in iter_elements(path, {"messages"}):
        if isinstance(element, UnreadableEntry):
            yield element
        elif element.position is None:
            run.update_session(element.key, element.value)
        elif isinstance(value := element.value, dict):
            yield from run.read_entry(cast(JsonObject, value), f"item:{element.position + 1}")
        else:
            reason = f"messages: item {element.position + 1} is not an object"
            yield UnreadableEntry(str(path), element.line, reason)
    yield from run.finish()


class _MiniSweAgentRun(SessionBuilder):
    """One run being read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.instance = path.name.removesuffix(".json").removesuffix(".traj")
        super().__init__(Session(id=self.instance, source=SOURCE))
        self.first_response_id: str | None = None
        self.submission: str | None = None
        self.pending_call: ToolCall | None = None

    def update_session(self, key: str | None, value: object) -> None:
        """Update the session from fields next to the messages."""
        if key == "instance_id" and isinstance(value, str):
            self.set_fields(title=value)
        if key != "info":
            return
        info = as_object(value)
        config = as_object(info.get("config"))
        submission = info.get("submission")
        self.submission = submission if isinstance(submission, str) else None
        self.set_fields(
            model=get_text(as_object(config.get("model")), "model_name") or self.session.model,
            cwd=get_text(as_object(config.get("environment")), "cwd"),
            end_reason=get_text(info, "exit_status"),
            cost=parse_cost(as_object(info.get("model_stats")).get("instance_cost")),
        )

    def read_entry(self, raw: JsonObject, fallback_id: str) -> Iterator[TranscriptEvent]:
        """Read an element of `messages`."""
        extra = as_object(raw.get("extra"))
        role = get_text(raw, "role")
        time = parse_timestamp(extra.get("timestamp"))
        if raw.get("type") == "function_call_output" or role == "tool":
            yield from self.hold_message(self._parse_result(raw, extra, fallback_id, time))
        elif role == "assistant" or (role is None and isinstance(raw.get("output"), list)):
            yield from self.hold_message(self._parse_answer(raw, extra, fallback_id, time))
        elif role == "user":
            yield from self.hold_message(self._parse_user_message(raw, extra, fallback_id, time))
        elif role == "exit":
            self.set_fields(end_reason=get_text(extra, "exit_status") or self.session.end_reason)

    def finish(self) -> Iterator[TranscriptEvent]:
        """Yield the last message and the session with everything learned from the file."""
        last = self.held_message
        if last is not None:
            if last.role == "tool" and last.content == self.submission:
                self.held_message = replace_fields(last, role="user", tool_call_id=None, name=None)
            resolved = _read_resolved(self.path, self.instance)
            yield from self.release_message({"resolved": resolved})
        yield from super().finish()

    def hold_message(self, message: Message) -> Sequence[TranscriptEvent]:
        if self.held_message is not None:
            # Prompts have no timestamp, answers do.
            self.fill_fields(started=self.held_message.timestamp or message.timestamp)
        return super().hold_message(message)

    def append_message(self, message: Message) -> Sequence[TranscriptEvent]:
        self.fill_fields(started=message.timestamp)
        if not self.is_started:
            # Runs have no id, tasks are run many times, and some runs overwrite the last: identify
            # a run by its first response, or by its path if that has no id either.
            identity = self.first_response_id or str(self.path.resolve())
            self.set_fields(id=make_run_id(self.instance, identity))
        return super().append_message(message)

    def _parse_answer(
        self, raw: JsonObject, extra: JsonObject, fallback_id: str, time: float | None
    ) -> Message:
        response = as_object(extra.get("response"))
        answer = _parse_answer_text(raw, response)
        self.first_response_id = (
            self.first_response_id or get_text(response, "id") or get_text(raw, "id")
        )
        self.fill_fields(model=get_text(response, "model"))
        self.add_usage(_parse_tokens(response or raw))
        native = _parse_native_calls(raw, fallback_id)
        calls = native or _parse_text_call(answer.content, extra, fallback_id)
        self.tool_names.update((call.id, call.name) for call in calls)
        self.pending_call = calls[0] if len(calls) == 1 and not native else None
        return Message(
            role="assistant",
            content=answer.content,
            tool_calls=calls,
            reasoning=answer.reasoning,
            finish_reason=answer.finish_reason,
            platform_message_id=fallback_id,
            timestamp=time
            or parse_timestamp(response.get("created") or response.get("created_at")),
        )

    def _parse_result(
        self, raw: JsonObject, extra: JsonObject, fallback_id: str, time: float | None
    ) -> Message:
        call = get_text(raw, "tool_call_id", "call_id")
        return Message(
            role="tool",
            content=_parse_content(raw.get("content", raw.get("output"))),
            tool_call_id=call,
            name=self.tool_names.pop(call, None) if call else None,
            platform_message_id=fallback_id,
            meta=_parse_result_meta(raw, extra),
            timestamp=time,
        )

    def _parse_user_message(
        self, raw: JsonObject, extra: JsonObject, fallback_id: str, time: float | None
    ) -> Message:
        """Parse a user message: the result of the call before it, or a separate message."""
        call, self.pending_call = self.pending_call, None
        message = Message(
            role="user",
            content=_parse_content(raw.get("content")),
            platform_message_id=fallback_id,
            timestamp=time,
        )
        if call is None and _RETURN_CODE.match(message.text[:200]):
            call = self._recover_call(fallback_id)
        if call is None or get_text(extra, "interrupt_type") == "FormatError":
            return message
        self.tool_names.pop(call.id, None)
        meta = _parse_result_meta(raw, extra)
        return replace_fields(message, role="tool", tool_call_id=call.id, name=call.name, meta=meta)

    def _recover_call(self, fallback_id: str) -> ToolCall | None:
        """Recover the call of an answer that ran although its command has an unknown format."""
        answer = self.held_message
        if answer is None or answer.role != "assistant" or answer.tool_calls:
            return None
        call = ToolCall(f"{fallback_id}:0", "bash", answer.text)
        self.held_message = replace_fields(answer, tool_calls=(call,))
        return call


class _MiniSweAgentAnswer(NamedTuple):
    """An answer's text, wherever its version keeps it."""

    content: Content
    reasoning: str | None
    finish_reason: str | None


def _parse_answer_text(raw: JsonObject, response: JsonObject) -> _MiniSweAgentAnswer:
    if isinstance(raw.get("output"), list):
        items = as_objects(raw["output"])
        text_parts = [
            make_text_part(value)
            for item in items
            if item.get("type") == "message"
            for part in as_objects(item.get("content"))
            if (value := get_text(part, "text"))
        ]
        thoughts = [
            value
            for item in items
            if item.get("type") == "reasoning"
            for part in (*as_objects(item.get("summary")), *as_objects(item.get("content")))
            if (value := get_text(part, "text"))
        ]
        return _MiniSweAgentAnswer(
            to_content(text_parts), join_thoughts(thoughts), get_text(raw, "status")
        )
    choices = as_objects(response.get("choices"))
    choice = choices[0] if choices else {}
    thought = get_text(raw, "reasoning_content", "reasoning") or get_text(
        as_object(choice.get("message")), "reasoning_content", "reasoning"
    )
    return _MiniSweAgentAnswer(
        _parse_content(raw.get("content")), thought, get_text(choice, "finish_reason")
    )


def _parse_content(value: object) -> Content:
    if isinstance(value, str):
        return value
    parts = as_objects(value)
    for part in parts:
        if part.get("type") in ("input_text", "output_text") and "text" in part:
            part["type"] = "text"
    return to_content(parts)


def _parse_native_calls(raw: JsonObject, fallback_id: str) -> tuple[ToolCall, ...]:
    given = as_objects(raw.get("tool_calls"))
    if not given and isinstance(raw.get("output"), list):
        given = [item for item in as_objects(raw["output"]) if item.get("type") == "function_call"]
    return tuple(
        parse_function_call(call, f"{fallback_id}:{index}", "call_id", "id")
        for index, call in enumerate(given)
    )


def _parse_text_call(content: Content, extra: JsonObject, fallback_id: str) -> tuple[ToolCall, ...]:
    """Return the answer's command; no block, or more than one, is no call."""
    actions = as_objects(extra.get("actions"))
    commands = [command for action in actions if (command := get_text(action, "command"))]
    if not commands:
        commands = list(_iter_command_blocks(Message(role="assistant", content=content).text))
    if len(commands) != 1:
        return ()
    return (ToolCall(f"{fallback_id}:0", "bash", {"command": commands[0]}),)


def _iter_command_blocks(text: str) -> Iterator[str]:
    at = 0
    while (start := _BLOCK_START.search(text, at)) and (
        end := _BLOCK_END.search(text, start.end() - 1)
    ):
        yield text[start.end() : end.start()].strip()
        at = end.end()


def _parse_result_meta(raw: JsonObject, extra: JsonObject) -> dict[str, JSON] | None:
    output = raw.get("content", raw.get("output"))
    begin = Message(role="tool", content=_parse_content(output)).text[:200]
    code = extra.get("returncode")
    if code is None and (match := _RETURN_CODE.match(begin)):
        code = int(match[1])
    error = get_text(extra, "exception_info")
    kind = get_text(extra, "interrupt_type")
    refused = (
        error == _NOT_EXECUTED or kind == "UserRejection" or begin.startswith(_REJECTION_PREFIXES)
    )
    return drop_none(
        {
            "exit_code": None if refused else parse_exit_code(code),
            "refused": refused or None,
            "interrupted": kind == "UserInterruption" or None,
            "error": error,
        }
    )


def _parse_tokens(response: JsonObject) -> Tokens:
    usage = as_object(response.get("usage"))
    input_details = as_object(usage.get("prompt_tokens_details")) or as_object(
        usage.get("input_tokens_details")
    )
    cached = as_count(input_details.get("cached_tokens"))
    written = as_count(usage.get("cache_creation_input_tokens"))
    prompt = as_count(usage.get("prompt_tokens", usage.get("input_tokens")))
    output_details = as_object(
        usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    )
    return Tokens(
        input=max(0, prompt - cached - written),
        output=as_count(usage.get("completion_tokens", usage.get("output_tokens"))),
        cache_read=cached,
        cache_write=written,
        reasoning=as_count(output_details.get("reasoning_tokens")),
    )


def _read_resolved(path: Path, instance: str) -> bool | None:
    """Return whether the evaluation, if any, found the task solved."""
    report = path.with_name(f"{instance}.report.json")
    results = read_json_object(report)
    if isinstance(results, UnreadableEntry):
        return None
    resolved = results.get("resolved", as_object(results.get(instance)).get("resolved"))
    return resolved if isinstance(resolved, bool) else None
