"""mini-swe-agent: one document `{info, messages}` per run, in `<instance>.traj.json`.

Version 1 knows no calls: the ```bash block of an answer is the call, and the message of the user
after it the result, whose first line is `<returncode>N</returncode>`. An answer with no block or
with several ran nothing, and the message after it says so. The last message of a run that submitted
is the submission, which the model never saw, and no result. Version 2 has native calls
(`tool_calls`, or the items of the Responses API) with the return code in `extra`; its last message
has the role `exit` and is bookkeeping. Whether the run solved its task stands in the file
`<instance>.report.json` beside it, if it was evaluated.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, cast

from rekindle.json_fields import (
    Record,
    content,
    count,
    number,
    present,
    record,
    records,
    seconds,
    text,
    text_part,
)
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event, Learned, Opened
from rekindle.transcripts.jsonio.document import pieces
from rekindle.transcripts.jsonio.jsonl import decode
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall, replace

SOURCE = "mini-swe-agent"

_MARKS = (b'"mini_version"', b'"minisweagent.', b'"trajectory_format": "mini-swe-agent')
# Some prompts have the model write its block inside a function, so it may be indented.
_BLOCK = re.compile(r"```(?:bash|sh|shell|mswea_bash_command)\s*\n(.*?)\n[ \t]*```", re.DOTALL)
_RETURN_CODE = re.compile(r"\s*<returncode>(-?\d{1,9})</returncode>")
_REJECTED = ("Command not executed", "Commands not executed")
_NOT_RUN = "action was not executed"
_REPORT_BYTES = 16 << 20


def sniff(head: Head) -> bool:
    first = head.records[0] if head.records else {}
    # In SWE-agent's list of steps there may be damage: then it is not among the fields.
    if "info" not in first or b'"trajectory"' in head.data:
        return False
    # A long submission hides all that comes after it; SWE-agent writes its `info` last.
    submitted = b'"exit_status"' in head.data and b'"submission"' in head.data
    return submitted or any(mark in head.data for mark in _MARKS)


def read(path: Path) -> Iterator[Event]:
    run = _Run(path)
    for piece in pieces(path, {"messages"}):
        if isinstance(piece, Damage):
            yield piece
            continue
        try:
            value = decode(piece.data)
        except ValueError as error:
            yield Damage(str(path), piece.line, f"{piece.key}: not JSON: {error}")
            continue
        if piece.item is None:
            run.learn(piece.key, value)
        elif isinstance(value, dict):
            yield from run.take(cast(Record, value), f"item:{piece.item + 1}")
        else:
            yield Damage(str(path), piece.line, f"messages: item {piece.item + 1} is no object")
    yield from run.finish()


class _Run:
    """One run as far as it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.instance = path.name.removesuffix(".json").removesuffix(".traj")
        self.session = Session(id=self.instance, source=SOURCE)
        self.first: str | None = None
        self.submission: str | None = None
        self.opened = False
        self.names: dict[str, str] = {}
        self.waiting: ToolCall | None = None
        # The message before this one: only the end of the list shows which is the last.
        self.held: Message | None = None

    def learn(self, key: str | None, value: object) -> None:
        """Take what stands beside the messages."""
        if key == "instance_id" and isinstance(value, str):
            self.session = replace(self.session, title=value)
        if key != "info":
            return
        info = record(value)
        config = record(info.get("config"))
        submission = info.get("submission")
        self.submission = submission if isinstance(submission, str) else None
        cost = number(record(info.get("model_stats")).get("instance_cost"))
        self.session = replace(
            self.session,
            model=text(record(config.get("model")), "model_name") or self.session.model,
            cwd=text(record(config.get("environment")), "cwd"),
            end_reason=text(info, "exit_status"),
            cost=Decimal(str(cost)) if cost and 0 < cost < 1e9 else Decimal(0),
        )

    def take(self, said: Record, place: str) -> Iterator[Event]:
        extra = record(said.get("extra"))
        role = text(said, "role")
        time = seconds(extra.get("timestamp"))
        if said.get("type") == "function_call_output" or role == "tool":
            yield from self._say(self._result(said, extra, place, time))
        elif role == "assistant" or (role is None and isinstance(said.get("output"), list)):
            yield from self._say(self._answer(said, extra, place, time))
        elif role == "user":
            yield from self._say(self._heard(said, extra, place, time))
        elif role == "exit":
            reason = text(extra, "exit_status") or self.session.end_reason
            self.session = replace(self.session, end_reason=reason)

    def finish(self) -> Iterator[Event]:
        last, self.held = self.held, None
        if last is not None:
            if last.role == "tool" and last.content == self.submission:
                last = replace(last, role="user", tool_call_id=None, name=None)
            resolved = _resolved(self.path, self.instance)
            yield from self._open(last.timestamp)
            yield replace(last, meta=present({**(last.meta or {}), "resolved": resolved}))
        if self.opened:
            yield Learned(self.session)

    def _say(self, message: Message) -> Iterator[Event]:
        held, self.held = self.held, message
        if held is not None:
            # Prompts have no time of their own, answers do.
            yield from self._open(held.timestamp or message.timestamp)
            yield held

    def _open(self, time: float | None) -> Iterator[Event]:
        if time and not self.session.started:
            self.session = replace(self.session, started=time)
        if not self.opened:
            self.opened = True
            # Runs have no id, the same task is run many times, and some runs overwrite the last:
            # what tells a run is its first answer, and the path where that has no id either.
            run = (self.first or str(self.path.resolve())).encode("utf-8", "surrogateescape")
            id = f"{self.instance}-{hashlib.sha256(run).hexdigest()[:12]}"
            self.session = replace(self.session, id=id)
            yield Opened(self.session)

    def _answer(self, said: Record, extra: Record, place: str, time: float | None) -> Message:
        response = record(extra.get("response"))
        spoken = _spoken(said, response)
        self.first = self.first or text(response, "id") or text(said, "id")
        self.session = replace(
            self.session,
            model=self.session.model or text(response, "model"),
            tokens=self.session.tokens.plus(_tokens(response or said)),
        )
        native = _native(said, place)
        calls = native or _in_text(spoken.content, extra, place)
        self.names.update((call.id, call.name) for call in calls)
        self.waiting = calls[0] if len(calls) == 1 and not native else None
        return Message(
            role="assistant",
            content=spoken.content,
            tool_calls=calls,
            reasoning=spoken.reasoning,
            finish_reason=spoken.finish,
            platform_message_id=place,
            timestamp=time or seconds(response.get("created") or response.get("created_at")),
        )

    def _result(self, said: Record, extra: Record, place: str, time: float | None) -> Message:
        call = text(said, "tool_call_id", "call_id")
        return Message(
            role="tool",
            content=_content(said.get("content", said.get("output"))),
            tool_call_id=call,
            name=self.names.pop(call, None) if call else None,
            platform_message_id=place,
            meta=_facts(said, extra),
            timestamp=time,
        )

    def _heard(self, said: Record, extra: Record, place: str, time: float | None) -> Message:
        """A message of the user: the result of the call before it, or something of its own."""
        call, self.waiting = self.waiting, None
        heard = Message(
            role="user",
            content=_content(said.get("content")),
            platform_message_id=place,
            timestamp=time,
        )
        if call is None and _RETURN_CODE.match(heard.text[:200]):
            call = self._unread(place)
        if call is None or text(extra, "interrupt_type") == "FormatError":
            return heard
        self.names.pop(call.id, None)
        facts = _facts(said, extra)
        return replace(heard, role="tool", tool_call_id=call.id, name=call.name, meta=facts)

    def _unread(self, place: str) -> ToolCall | None:
        """The call of an answer that was run, though its command is written as we do not know."""
        answer = self.held
        if answer is None or answer.role != "assistant" or answer.tool_calls:
            return None
        call = ToolCall(f"{place}:0", "bash", answer.text)
        self.held = replace(answer, tool_calls=(call,))
        return call


class _Spoken(NamedTuple):
    """What an answer says, wherever its version keeps it."""

    content: Content
    reasoning: str | None
    finish: str | None


def _spoken(said: Record, response: Record) -> _Spoken:
    if isinstance(said.get("output"), list):
        items = records(said["output"])
        told = [
            text_part(value)
            for item in items
            if item.get("type") == "message"
            for part in records(item.get("content"))
            if (value := text(part, "text"))
        ]
        thoughts = [
            value
            for item in items
            if item.get("type") == "reasoning"
            for part in (*records(item.get("summary")), *records(item.get("content")))
            if (value := text(part, "text"))
        ]
        return _Spoken(content(told), "\n\n".join(thoughts) or None, text(said, "status"))
    choices = records(response.get("choices"))
    choice = choices[0] if choices else {}
    thought = text(said, "reasoning_content", "reasoning") or text(
        record(choice.get("message")), "reasoning_content", "reasoning"
    )
    return _Spoken(_content(said.get("content")), thought, text(choice, "finish_reason"))


def _content(value: object) -> Content:
    if isinstance(value, str):
        return value
    parts = records(value)
    for part in parts:
        if part.get("type") in ("input_text", "output_text") and "text" in part:
            part["type"] = "text"
    return content(parts)


def _native(said: Record, place: str) -> tuple[ToolCall, ...]:
    given = records(said.get("tool_calls"))
    if not given and isinstance(said.get("output"), list):
        given = [item for item in records(said["output"]) if item.get("type") == "function_call"]
    return tuple(_call(call, f"{place}:{index}") for index, call in enumerate(given))


def _call(call: Record, place: str) -> ToolCall:
    function = record(call.get("function")) or call
    given = function.get("arguments")
    arguments = cast("str | Record", given) if isinstance(given, (str, dict)) else ""
    return ToolCall(text(call, "call_id", "id") or place, text(function, "name") or "", arguments)


def _in_text(said: Content, extra: Record, place: str) -> tuple[ToolCall, ...]:
    """The one command of an answer; no block, or more than one, is no call."""
    actions = records(extra.get("actions"))
    commands = [command for action in actions if (command := text(action, "command"))]
    if not commands:
        found = _BLOCK.findall(Message(role="assistant", content=said).text)
        commands = [command.strip() for command in found]
    if len(commands) != 1:
        return ()
    return (ToolCall(f"{place}:0", "bash", {"command": commands[0]}),)


def _facts(said: Record, extra: Record) -> dict[str, JSON] | None:
    output = said.get("content", said.get("output"))
    begin = Message(role="tool", content=_content(output)).text[:200]
    code = extra.get("returncode")
    if code is None and (match := _RETURN_CODE.match(begin)):
        code = int(match[1])
    error = text(extra, "exception_info")
    kind = text(extra, "interrupt_type")
    refused = error == _NOT_RUN or kind == "UserRejection" or begin.startswith(_REJECTED)
    whole = isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**53
    return present(
        {
            "exit_code": code if whole and not refused else None,
            "refused": refused or None,
            "interrupted": kind == "UserInterruption" or None,
            "error": error,
        }
    )


def _tokens(response: Record) -> Tokens:
    usage = record(response.get("usage"))
    about = record(usage.get("prompt_tokens_details")) or record(usage.get("input_tokens_details"))
    cached = count(about.get("cached_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    given = count(usage.get("prompt_tokens", usage.get("input_tokens")))
    more = record(usage.get("completion_tokens_details") or usage.get("output_tokens_details"))
    return Tokens(
        input=max(0, given - cached - written),
        output=count(usage.get("completion_tokens", usage.get("output_tokens"))),
        cache_read=cached,
        cache_write=written,
        reasoning=count(more.get("reasoning_tokens")),
    )


def _resolved(path: Path, instance: str) -> bool | None:
    """Whether the evaluation, if there was one, found the task solved."""
    report = path.with_name(f"{instance}.report.json")
    try:
        if report.stat().st_size > _REPORT_BYTES:
            return None
        told = record(decode(report.read_bytes()))
    except (OSError, ValueError):
        return None
    resolved = told.get("resolved", record(told.get(instance)).get("resolved"))
    return resolved if isinstance(resolved, bool) else None
