"""Gemini CLI, in the containers that it writes under `~/.gemini/tmp/<project>/`.

    chats/session-….json    one chat record `{sessionId, projectHash, messages}`
    chats/session-….jsonl   the same as lines: its head, its messages, `$set` and `$rewindTo`
    checkpoint-….json       the history as the API gets it: a list of `{role, parts}`, bare or
                            under `history`

In a chat record a call holds its own result. A line with the id of an earlier message replaces
it, mostly the one right before it, so one message is held back until another begins; what a later
copy adds to a message that was told already is told as an answer of its own. The history has no
ids and no times: it goes by the path of its file and by places. The summary of a compressed
history (`<state_snapshot>`) is told in the `meta` of the message after it, and what the tool says
in the user's name to set up a conversation is no message.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from rekindle.json_fields import (
    Record,
    content,
    count,
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
from rekindle.transcripts.jsonio.jsonl import records as lines_of
from rekindle.transcripts.jsonio.partial import fields_so_far, opening
from rekindle.types import JSON, Message, Session, Tokens, ToolCall, replace

from .ids import made_id

SOURCE = "gemini"

_LISTS = {"messages", "history"}
_TYPES = ("user", "gemini", "info", "warning", "error")
_ROLES = ("user", "model", "function", "tool")
_EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,9})\s*$", re.MULTILINE)
_SHELLS = {"run_shell_command", "shell"}
_SNAPSHOT = "<state_snapshot>"
_SETUP = ("This is the Gemini CLI.", "<session_context>")
# What the tool lets the model say to its own words.
_THANKS = ("Got it. Thanks for the context!", "Got it. Thanks for the additional context!")
_DONE = ("success", "error", "cancelled")


def sniff(head: Head) -> bool:
    if any(_is_line(line) for line in head.records):
        return True
    first = fields_so_far(opening(head.data, _LISTS))
    return first.get("role") in _ROLES and isinstance(first.get("parts"), list)


def _is_line(line: Record) -> bool:
    """Whether this is a line of a chat record, or the record itself."""
    if isinstance(line.get("sessionId"), str) and isinstance(line.get("projectHash"), str):
        return True
    if isinstance(line.get("$rewindTo"), str) or isinstance(line.get("$set"), dict):
        return True
    return line.get("type") in _TYPES and "content" in line and isinstance(line.get("id"), str)


def read(path: Path) -> Iterator[Event]:
    # A head that holds its messages is a whole record: as a document it streams.
    head = Head.of(path)
    if head.is_lines and any(_is_line(line) and "messages" not in line for line in head.lines):
        return _read_lines(path)
    return _read_documents(path)


def _read_lines(path: Path) -> Iterator[Event]:
    chat = _Chat(path)
    for entry in lines_of(path):
        if isinstance(entry, Damage):
            yield entry
            continue
        number, line = entry
        if isinstance(line.get("$rewindTo"), str):
            yield from chat.rewind()
        elif "type" in line or "id" in line:
            yield from chat.take(line, f"line:{number}")
        else:
            about = record(line.get("$set")) or line
            chat.learn(about)
            # The whole history, written anew: what it shortened was told in full before.
            if renewed := records(about.get("messages")):
                yield from chat.close()
            for index, said in enumerate(renewed):
                yield from chat.take(said, f"line:{number}:{index}")
    yield from chat.finish()


def _read_documents(path: Path) -> Iterator[Event]:
    chat: _Chat | _History = _Chat(path)
    document = -1
    for piece in pieces(path, _LISTS):
        if isinstance(piece, Damage):
            yield piece
            continue
        if piece.document != document:
            yield from chat.finish()
            document = piece.document
            chat = _Chat(path, document)
        try:
            value = decode(piece.data)
        except ValueError as error:
            yield Damage(str(path), piece.line, f"not JSON: {error}")
            continue
        if piece.item is None:
            chat.learn({piece.key or "": value})
            continue
        said, place = record(value), f"item:{piece.item + 1}"
        if piece.item == 0 and not chat.named and isinstance(said.get("parts"), list):
            chat = _History(path, document)
        if not said:
            yield Damage(str(path), piece.line, f"{place}: expected a message")
        yield from chat.take(said, place)
    yield from chat.finish()


class _Conversation:
    """One conversation as far as it is read."""

    def __init__(self, path: Path, document: int = 0) -> None:
        self.path = path
        self.session = Session(
            id=made_id(SOURCE, path, f"document {document}" if document else ""), source=SOURCE
        )
        self.named = False
        self.opened = False
        self.seen: set[str] = set()
        self.marks: dict[str, JSON] = {}
        self.setting_up = False

    def learn(self, about: Record) -> None:
        """Take what stands beside the messages."""
        known, id = self.session, text(about, "sessionId")
        self.named = self.named or id is not None
        folders = about.get("directories")
        first = cast("list[object]", folders)[0] if isinstance(folders, list) and folders else None
        parent = self.path.parent.name if about.get("kind") == "subagent" else None
        self.session = replace(
            known,
            id=id if id and not self.opened else known.id,
            # A sub-agent's record lies in a folder with the name of its parent.
            parent=known.parent or (parent if parent != "chats" else None),
            title=text(about, "summary") or known.title,
            cwd=known.cwd or (first if isinstance(first, str) else None),
            started=known.started or seconds(about.get("startTime")) or 0.0,
        )

    def say(self, messages: Iterator[Message]) -> Iterator[Event]:
        for message in messages:
            if not self.opened:
                self.opened = True
                started = self.session.started or message.timestamp or 0.0
                self.session = replace(self.session, started=started)
                yield Opened(self.session)
            yield message

    def hear(self, parts: list[Record], id: str, time: float | None) -> Iterator[Message]:
        """The user's side of a turn: results of calls, something typed, or both."""
        typed = [part for part in parts if "functionResponse" not in part]
        said = content(_parts(typed))
        message = Message(role="user", content=said, platform_message_id=id, timestamp=time)
        if message.text.startswith(_SNAPSHOT):
            self.marks["compacted"] = {"summary": message.text}
            self.setting_up = True
        elif message.text.startswith(_SETUP):
            self.setting_up = True
        elif said and id not in self.seen:
            self.setting_up = False
            self.seen.add(id)
            yield replace(message, meta=present(self.take_marks()))

    def result(self, call: ToolCall, told: list[Record], status: str | None) -> Message:
        answers = [part for part in map(_response, told) if part]
        own = [part for part in answers if part.get("id") == call.id] or answers[:1]
        answer = own[0] if own else {}
        siblings = [part for part in told if not _response(part)] if len(answers) < 2 else []
        images = _parts([*records(answer.get("parts")), *siblings])
        output = _output(record(answer.get("response")))
        return Message(
            role="tool",
            content=content([*([] if output is None else [text_part(output)]), *images]),
            tool_call_id=call.id,
            name=call.name or None,
            platform_message_id=call.id,
            meta=present({**_facts(call.name, answer, status), **self.take_marks()}),
        )

    def finish(self) -> Iterator[Event]:
        if self.opened:
            yield Learned(self.session)

    def take_marks(self) -> dict[str, JSON]:
        marks, self.marks = self.marks, {}
        return marks


class _Chat(_Conversation):
    """A chat record. Messages have ids and times, calls hold their results."""

    def __init__(self, path: Path, document: int = 0) -> None:
        super().__init__(path, document)
        self.open: tuple[str, Record] | None = None

    def take(self, said: Record, place: str) -> Iterator[Event]:
        """One message as it was found; it is told when another one begins."""
        id = text(said, "id") or place
        if self.open is not None and self.open[0] != id:
            yield from self.close()
        self.open = (id, said)

    def rewind(self) -> Iterator[Event]:
        """The user went back: what was said has been said, and what follows tells of it."""
        yield from self.close()
        self.marks["rewound"] = True

    def finish(self) -> Iterator[Event]:
        yield from self.close()
        yield from super().finish()

    def close(self) -> Iterator[Event]:
        """Tell the message that is held back."""
        if self.open is not None:
            (id, said), self.open = self.open, None
            yield from self.say(self._messages(id, said))

    def _messages(self, id: str, said: Record) -> Iterator[Message]:
        kind, time = said.get("type"), seconds(said.get("timestamp"))
        parts = _listed(said.get("content"))
        if kind == "gemini":
            yield from self._answer(id, said, parts, time)
        elif kind == "user":
            for part in parts:
                # Copies that were made from the history have results on the user's side.
                if (call := text(_response(part), "id")) and f"result {call}" not in self.seen:
                    self.seen.add(f"result {call}")
                    name = text(_response(part), "name") or ""
                    yield replace(self.result(ToolCall(call, name), [part], None), timestamp=time)
            yield from self.hear(parts, id, time)
        elif kind == "error":
            self.marks["api_error"] = True

    def _answer(
        self, id: str, said: Record, parts: list[Record], time: float | None
    ) -> Iterator[Message]:
        made = records(said.get("toolCalls"))
        calls = {call.id: call for call in _calls(parts, id)}
        for index, item in enumerate(made):
            call = _call(item, f"{id}:call:{index}")
            calls[call.id] = call
        new = [call for call in calls.values() if f"call {call.id}" not in self.seen]
        self.seen.update(f"call {call.id}" for call in new)
        message = self._message(id, said, parts, new, time)
        if id not in self.seen:
            self.seen.add(id)
            self._learn(said)
            if not (message.content or new or message.reasoning):
                return
            yield replace(message, meta=present({**(message.meta or {}), **self.take_marks()}))
        elif new:
            yield replace(message, content=None, platform_message_id=f"{id}+{new[0].id}")
        for index, item in enumerate(made):
            call = _call(item, f"{id}:call:{index}")
            told, status = _listed(item.get("result")), text(item, "status")
            if f"result {call.id}" in self.seen or not (told or status in _DONE):
                continue
            self.seen.add(f"result {call.id}")
            result = self.result(call, told, status)
            about = {**(result.meta or {}), "agent": text(item, "agentId")}
            when = seconds(item.get("timestamp")) or time
            yield replace(result, meta=present(about), timestamp=when)

    def _message(
        self, id: str, said: Record, parts: list[Record], calls: list[ToolCall], time: float | None
    ) -> Message:
        thoughts = [_thought(item) for item in records(said.get("thoughts"))]
        thoughts += [part["text"] for part in parts if _is_thought(part)]
        model = text(said, "model")
        first = self.session.model
        return Message(
            role="assistant",
            content=content(_parts(parts)),
            tool_calls=calls,
            reasoning="\n\n".join(thought for thought in thoughts if thought) or None,
            platform_message_id=id,
            meta=present({"model": model if first and model != first else None}),
            timestamp=time,
        )

    def _learn(self, said: Record) -> None:
        self.session = replace(
            self.session,
            model=self.session.model or text(said, "model"),
            tokens=self.session.tokens.plus(_tokens(record(said.get("tokens")))),
        )


class _History(_Conversation):
    """A history as the API gets it. Calls and results without ids are matched by their order."""

    def __init__(self, path: Path, document: int = 0) -> None:
        super().__init__(path, document)
        self.waiting: deque[ToolCall] = deque()

    def take(self, said: Record, place: str) -> Iterator[Event]:
        yield from self.say(self._messages(said, place))

    def _messages(self, said: Record, place: str) -> Iterator[Message]:
        role, parts = said.get("role"), _listed(said.get("parts"))
        if role == "model":
            yield from self._answer(parts, place)
        elif role in _ROLES:
            for index, part in enumerate(parts):
                if answer := _response(part):
                    call = self._answered(answer, f"{place}:{index}")
                    yield replace(self.result(call, [part], None), platform_message_id=call.id)
            yield from self.hear(parts, place, None)

    def _answer(self, parts: list[Record], place: str) -> Iterator[Message]:
        calls = list(_calls(parts, place))
        self.waiting.extend(calls)
        thoughts = [part["text"] for part in parts if _is_thought(part)]
        message = Message(
            role="assistant",
            content=content(_parts(parts)),
            tool_calls=calls,
            reasoning="\n\n".join(thoughts) or None,
            platform_message_id=place,
        )
        if self.setting_up and not calls and message.text.startswith(_THANKS):
            return
        self.setting_up = False
        if message.content or calls or thoughts:
            yield replace(message, meta=present(self.take_marks()))

    def _answered(self, answer: Record, place: str) -> ToolCall:
        id, name = text(answer, "id"), text(answer, "name")
        for call in self.waiting:
            if call.id == id or (id is None and call.name == name):
                self.waiting.remove(call)
                return call
        return ToolCall(id or place, name or "")


def _listed(said: object) -> list[Record]:
    """Parts, in any of the shapes in which they may be given: text, one part, or a list."""
    if isinstance(said, str):
        return [{"text": said}] if said else []
    if isinstance(said, list):
        return [part for item in cast("list[object]", said) for part in _one(item)]
    return _one(said)


def _one(item: object) -> list[Record]:
    return [{"text": item}] if isinstance(item, str) and item else records([item])


def _is_thought(part: Record) -> bool:
    return part.get("thought") is True and isinstance(part.get("text"), str)


def _parts(parts: list[Record]) -> list[dict[str, JSON]]:
    """What is to be read or seen in parts: no thoughts, no calls, no results."""
    found: list[dict[str, JSON]] = []
    for part in parts:
        inline = record(part.get("inlineData"))
        kind, data = text(inline, "mimeType") or "", text(inline, "data")
        if _is_thought(part):
            continue
        if value := text(part, "text"):
            found.append(text_part(value))
        elif data and kind.startswith("image/"):
            url = f"data:{kind};base64,{data}"
            found.append({"type": "image_url", "image_url": {"url": url}})
        elif inline or isinstance(part.get("fileData"), dict):
            found.append({"type": "file", **part})
    return found


def _response(part: Record) -> Record:
    return record(part.get("functionResponse"))


def _calls(parts: list[Record], place: str) -> Iterator[ToolCall]:
    for index, part in enumerate(parts):
        if made := record(part.get("functionCall")):
            yield _call(made, f"{place}:{index}")


def _call(made: Record, place: str) -> ToolCall:
    given = made.get("args")
    arguments = cast("str | Record", given) if isinstance(given, (str, dict)) else ""
    return ToolCall(text(made, "id") or place, text(made, "name") or "", arguments)


def _output(response: Record) -> str | None:
    """The text of a response. Tools of Gemini CLI answer with `output` or with `error`."""
    for name in ("output", "error"):
        if isinstance(value := response.get(name), str):
            return value
    return json.dumps(response, ensure_ascii=False) if response else None


def _facts(name: str, answer: Record, status: str | None) -> dict[str, JSON]:
    response = record(answer.get("response"))
    failed: bool | None = None
    if status in _DONE:
        failed = status != "success"
    elif status is None and ("error" in response or "output" in response):
        failed = bool(response.get("error"))
    facts: dict[str, JSON] = {"is_error": failed}
    if status == "cancelled":
        facts["refused"] = True
    output = response.get("output")
    if name in _SHELLS and isinstance(output, str) and (codes := _EXIT_CODE.findall(output)):
        # The command may print such a line too; the shell's own comes after it.
        facts["exit_code"] = int(codes[-1])
    return facts


def _thought(item: Record) -> str:
    told = (text(item, "subject"), text(item, "description"))
    return "\n".join(part for part in told if part)


def _tokens(told: Record) -> Tokens:
    cached, thoughts = count(told.get("cached")), count(told.get("thoughts"))
    return Tokens(
        # Here the input includes what came from the cache, and the output leaves the thoughts out.
        input=max(0, count(told.get("input")) - cached) + count(told.get("tool")),
        output=count(told.get("output")) + thoughts,
        cache_read=cached,
        reasoning=thoughts,
    )
