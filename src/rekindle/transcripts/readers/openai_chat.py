"""OpenAI chat: the shape that everybody can write, in the containers that people make of it.

    one message per line                              one conversation per file
    one object with `messages` per line, or per file  one conversation per object
    one list of messages per file                     one conversation
    one list of such objects, or of such lists        one conversation per element

`tool_calls` may be a list or a JSON text of one, `arguments` a text or an object. Calls and
results without ids are matched by their order. A conversation that has no id goes by the path of
its file, so the file may grow, and is new when it was moved.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from rekindle.json_fields import Record, count, present, record, records, seconds, text
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event, Learned, Opened
from rekindle.transcripts.jsonio.document import pieces
from rekindle.transcripts.jsonio.jsonl import decode
from rekindle.transcripts.jsonio.jsonl import records as lines_of
from rekindle.transcripts.jsonio.partial import fields_so_far, opening
from rekindle.transcripts.jsonio.stream import Closed, Place, documents, is_lines
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall, replace

from .ids import MASKED, made_id

SOURCE = "openai-chat"

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_ROLE = re.compile(rb'"role"\s*:\s*"(\w+)"')
_ABOUT = ("is_error", "exit_code", "duration", "status", "error")
# What nearly every message is made of, and nothing else.
_SPOKEN = frozenset(("role", "content", "tool_calls", "function_call", "tool_call_id", "name"))
# Calls that wait for their result; a call that never gets one must not pile up.
_WAITING = 256


def sniff(head: Head) -> bool:
    for line in head.records:
        if _is_message(line) or any(_is_message(said) for said in records(line.get("messages"))):
            return True
    first = opening(head.data, {"messages"})
    return _begins_message(opening(first, {"messages"}) if _is_conversation(first) else first)


def _is_conversation(first: bytes) -> bool:
    """Whether the first element of a list is not a message, but a conversation of its own."""
    return first.startswith(b"[") or isinstance(fields_so_far(first).get("messages"), list)


def _begins_message(first: bytes) -> bool:
    try:
        return _is_message(record(decode(first)))
    except ValueError:
        # Longer than the head: the role stands before or after the text, so look for both.
        match = _ROLE.search(first)
        return match is not None and match[1].decode() in _ROLES and b'"content"' in first


def read(path: Path) -> Iterator[Event]:
    head = Head.of(path)
    # A message may be longer than the head, which then is all one line.
    long = b"\n" not in head.data.strip() and any(_is_message(line) for line in head.records)
    if long or is_lines(head):
        return _read_lines(path)
    if head.data.startswith(b"[") and _is_conversation(opening(head.data, {"messages"})):
        return _read_list(path)
    return _read_documents(path)


def _is_message(value: Record) -> bool:
    return value.get("role") in _ROLES and ("content" in value or "tool_calls" in value)


def _read_lines(path: Path) -> Iterator[Event]:
    where = str(path.resolve())
    whole = Conversation(made_id("chat", where, ""))
    for entry in lines_of(path):
        if isinstance(entry, Damage):
            yield entry
            continue
        number, line = entry
        if isinstance(line.get("messages"), list):
            one = Conversation(made_id("chat", where, f"line {number}"))
            one.learn(line)
            for index, said in enumerate(cast("list[object]", line["messages"]), 1):
                yield from one.take(said, f"item:{index}", path, number)
            yield from one.finish()
        elif "role" in line:
            yield from whole.take(line, f"line:{number}", path, number)
        else:
            whole.learn(line)
    yield from whole.finish()


def _read_documents(path: Path) -> Iterator[Event]:
    # What stands beside the messages may come after them, so it is learned when it comes and the
    # id, which must be known before, is taken from the keys in front of the messages or the path.
    one = Conversation("")
    where = str(path.resolve())
    document = -1
    for piece in pieces(path, {"messages"}):
        if isinstance(piece, Damage):
            yield piece
            continue
        if piece.document != document:
            yield from one.finish()
            document = piece.document
            one = Conversation(made_id("chat", where, f"document {document}" if document else ""))
        try:
            value = decode(piece.data)
        except ValueError as error:
            yield Damage(str(path), piece.line, f"not JSON: {error}")
            continue
        if piece.item is not None:
            yield from one.take(value, f"item:{piece.item + 1}", path, piece.line)
        elif piece.key is not None:
            one.learn({piece.key: value})
    yield from one.finish()


def _read_list(path: Path) -> Iterator[Event]:
    one = Conversation("")
    where = str(path.resolve())
    element = None
    for step in documents(path, _opens):
        if isinstance(step, Damage):
            yield step
            continue
        if step.place[:1] != element:
            yield from one.finish()
            element = step.place[:1]
            one = Conversation(made_id("chat", where, f"element {element[0] if element else ''}"))
        if isinstance(step, Closed):
            continue
        if isinstance(step.place[-1], int):
            yield from one.take(step.value, f"item:{step.place[-1] + 1}", path, step.line)
        else:
            one.learn({step.place[-1]: step.value})
    yield from one.finish()


def _opens(place: Place) -> bool:
    return len(place) == 1 or (len(place) == 2 and place[1] == "messages")


class Conversation:
    """One conversation as far as it is read."""

    def __init__(self, id: str, source: str = SOURCE) -> None:
        self.session: Session = Session(id=id, source=source)
        self.opened = False
        self.waiting: deque[ToolCall] = deque(maxlen=_WAITING)
        # Ids alone, never content: some writers give all messages of one request the same.
        self.seen: set[str] = set()

    def learn(self, about: Record) -> None:
        """Take what stands beside the messages."""
        known = self.session
        id = text(about, "session_id", "conversation_id", "thread_id", "id")
        self.session = replace(
            known,
            id=id if id and not self.opened else known.id,
            parent=known.parent or text(about, "parent_session_id"),
            title=text(about, "title") or known.title,
            model=text(about, "model") or known.model,
            cwd=text(about, "cwd") or known.cwd,
            started=known.started or _time(about, "created_at", "created", "timestamp") or 0.0,
            tokens=known.tokens.plus(_tokens(about)),
        )

    def take(self, value: object, place: str, path: Path, line: int) -> Iterator[Event]:
        """One message as it was found; what is none is damage."""
        event = self.hear(value, place, path, line)
        if not self.opened and isinstance(event, Message):
            yield self.open()
        yield event

    def open(self) -> Opened:
        """The beginning of the session, for in front of its first message."""
        self.opened = True
        return Opened(self.session)

    def hear(self, value: object, place: str, path: Path, line: int) -> Message | Damage:
        """The message alone."""
        said = record(value)
        role = text(said, "role")
        if role is None or len(role) > 64:
            return Damage(str(path), line, f"{place}: expected a message with a role")
        role = "tool" if role == "function" else role
        name, answers = text(said, "name", "tool_name"), text(said, "tool_call_id")
        if role == "tool" and (answered := self._answered(answers)):
            name, answers = name or answered.name, answered.id
        calls: tuple[ToolCall, ...] = ()
        if said.get("tool_calls") or said.get("function_call"):
            calls = _calls(said, place)
            self.waiting.extend(calls)
        spoken = (role, _content(said.get("content")), calls, answers, name)
        if said.keys() <= _SPOKEN:
            return Message(*spoken, platform_message_id=place)
        message = Message(
            *spoken,
            reasoning=text(said, "reasoning_content", "reasoning", "thinking"),
            finish_reason=text(said, "finish_reason"),
            platform_message_id=self._name(said, place),
            meta=_facts(said),
            timestamp=_time(said, "timestamp", "created_at"),
        )
        self._note(said, message.timestamp)
        return message

    def finish(self) -> Iterator[Event]:
        if self.opened:
            yield Learned(self.session)

    def _note(self, said: Record, time: float | None) -> None:
        """Take what a message tells of its session; most tell nothing new."""
        known = self.session
        started = known.started or time or 0.0
        model = known.model or text(said, "model")
        if "usage" in said:
            tokens = known.tokens.plus(_tokens(said))
            self.session = replace(known, model=model, started=started, tokens=tokens)
        elif started != known.started or model != known.model:
            self.session = replace(known, model=model, started=started)

    def _name(self, said: Record, place: str) -> str:
        id = text(said, "id", "message_id", "uuid")
        if id is None or id in MASKED or id in self.seen:
            return place
        self.seen.add(id)
        return id

    def _answered(self, id: str | None) -> ToolCall | None:
        for call in self.waiting:
            if id is None or call.id == id:
                self.waiting.remove(call)
                return call
        return None


def _content(value: Any) -> Content:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = cast("list[object]", value)
        return [
            cast(Record, part) if isinstance(part, dict) else {"type": "text", "text": str(part)}
            for part in parts
        ]
    return json.dumps(value)


def _calls(said: Record, place: str) -> tuple[ToolCall, ...]:
    given = said.get("tool_calls")
    if isinstance(given, str):
        try:
            given = decode(given.encode("utf-8", "replace"))
        except ValueError:
            given = None
    calls = records(given)
    if legacy := record(said.get("function_call")):
        calls = [*calls, legacy]
    return tuple(_call(call, f"{place}:{index}") for index, call in enumerate(calls))


def _call(call: Record, place: str) -> ToolCall:
    function = record(call.get("function")) or call
    arguments = function.get("arguments", function.get("input"))
    if not isinstance(arguments, (str, dict)):
        arguments = "" if arguments is None else json.dumps(arguments)
    id = text(call, "id", "call_id", "tool_call_id") or place
    return ToolCall(id, text(function, "name") or "", cast("str | Record", arguments))


def _facts(said: Record) -> dict[str, JSON] | None:
    if said.keys().isdisjoint(_ABOUT):
        return None
    return present({name: said[name] for name in _ABOUT if name in said})


def _time(fields: Record, *names: str) -> float | None:
    for name in names:
        if name in fields and (time := seconds(fields[name])):
            return time
    return None


def _tokens(about: Record) -> Tokens:
    usage = record(about.get("usage"))
    if not usage:
        return Tokens()
    cached = count(record(usage.get("prompt_tokens_details")).get("cached_tokens"))
    details = record(usage.get("completion_tokens_details"))
    given = count(usage.get("prompt_tokens", usage.get("input_tokens")))
    return Tokens(
        input=max(0, given - cached),
        output=count(usage.get("completion_tokens", usage.get("output_tokens"))),
        cache_read=cached,
        reasoning=count(details.get("reasoning_tokens")),
    )
