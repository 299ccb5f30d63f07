"""A session of OpenCode, out of its messages and parts, wherever they were kept.

A part of an answer is a call together with its result. `state.status` is about the tool: a command
that failed is completed, and its exit code stands in `state.metadata`. Older versions put all
steps of a turn into one message; a step is an answer here. What OpenCode adds to a prompt
(`synthetic`) is left out. A compaction asks for a summary and gets it as an answer: both are told
in the `meta` of the message after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import cast

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
from rekindle.transcripts.events import Damage, Event, Learned, Opened
from rekindle.types import JSON, Message, Session, Tokens, ToolCall, replace

from .ids import MASKED
from .session_builder import Turn

SOURCE = "opencode"

_ABORTED = "MessageAbortedError"


class Conversation:
    """One session as far as it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.session = Session(id="", source=SOURCE)
        self.opened = False
        self.seen: set[str] = set()
        self.marks: dict[str, JSON] = {}

    def learn(self, about: Record) -> None:
        """Take what is known of the session itself."""
        known = self.session
        time = record(about.get("time"))
        self.session = replace(
            known,
            id=known.id if self.opened else _named(about, "id") or known.id,
            parent=known.parent or _named(about, "parentID"),
            title=text(about, "title") or known.title,
            cwd=text(about, "directory") or known.cwd,
            started=seconds(time.get("created")) or known.started,
        )

    def take(self, value: object, place: str, line: int) -> Iterator[Event]:
        """One message with its parts as it was found; what is none is damage."""
        said = record(value)
        info = record(said.get("info"))
        if info.get("role") not in ("user", "assistant"):
            what = f"{place}: expected a message with info.role user or assistant"
            yield Damage(str(self.path), line, what)
            return
        if not self.opened:
            id = self.session.id or _named(info, "sessionID") or self.path.stem
            started = self.session.started or _created(info) or 0.0
            self.session = replace(self.session, id=id or SOURCE, started=started)
        id = _named(info, "id") or place
        if id in self.seen:
            return
        self.seen.add(id)
        parts = records(said.get("parts"))
        if self.session.model is None:
            model = text(info, "modelID") or text(record(info.get("model")), "modelID")
            self.session = replace(self.session, model=model)
        user = info.get("role") == "user"
        messages = self._listen(info, parts, id) if user else self._answer(info, parts, id)
        for message in messages:
            if not self.opened:
                self.opened = True
                yield Opened(self.session)
            yield message

    def finish(self) -> Iterator[Event]:
        if self.opened:
            yield Learned(self.session)

    def _listen(self, info: Record, parts: list[Record], id: str) -> Iterator[Message]:
        for part in parts:
            if part.get("type") == "compaction":
                trigger = "auto" if part.get("auto") is True else "manual"
                self.marks["compacted"] = {"trigger": trigger}
        if typed := [shown for part in parts if (shown := _typed(part))]:
            yield Message(
                role="user",
                content=content(typed),
                platform_message_id=id,
                meta=present(self._take_marks()),
                timestamp=_created(info),
            )

    def _answer(self, info: Record, parts: list[Record], id: str) -> Iterator[Message]:
        self._count(info, parts)
        if info.get("summary") is True:
            told = "\n".join(value for part in parts if (value := _said(part)))
            compacted = record(self.marks.get("compacted"))
            self.marks["compacted"] = {**compacted, "summary": told}
            return
        steps = list(self._steps(info, parts, id))
        error = record(info.get("error"))
        for step in steps:
            if step is steps[-1] and error:
                step.facts.update(_failure(error))
            yield step.message()
            yield from step.results
        if error.get("name") == _ABORTED:
            self.marks["aborted"] = True

    def _steps(self, info: Record, parts: list[Record], id: str) -> Iterator[Turn]:
        """The answers in one message: a new one begins where a step starts."""
        step, steps = self._begin(info, id), 1
        for index, part in enumerate(parts):
            kind = part.get("type")
            if kind == "step-start" and (step.speaks or step.thoughts):
                yield step
                steps += 1
                step = self._begin(info, f"{id}:{steps}")
            elif kind == "step-finish":
                step.finish = text(part, "reason")
            elif kind == "reasoning":
                if thought := text(part, "text"):
                    step.add_thought(thought)
            elif kind == "tool":
                _add_call(step, part, f"{id}:part:{index}", info)
            elif shown := _said(part):
                step.add_text(shown)
        step.finish = step.finish or text(info, "finish")
        # An answer of which nothing is there yet will be there the next time.
        if step.speaks or step.thoughts or (steps == 1 and info.get("error")):
            yield step

    def _begin(self, info: Record, id: str) -> Turn:
        step = Turn(id, _created(info))
        step.facts.update(self._take_marks())
        model = text(info, "modelID")
        if model != self.session.model:
            step.facts["model"] = model
        return step

    def _count(self, info: Record, parts: list[Record]) -> None:
        # Of a message with several steps, only the steps tell what all of them took.
        finished = [part for part in parts if part.get("type") == "step-finish"]
        known = self.session
        tokens = known.tokens
        for told in finished or [info]:
            tokens = tokens.plus(_tokens(record(told.get("tokens"))))
        paid = number(info.get("cost"))
        cost = Decimal(str(paid)) if paid and 0 < paid < 1e9 else Decimal(0)
        self.session = replace(
            known,
            cwd=known.cwd or text(record(info.get("path")), "cwd"),
            tokens=tokens,
            cost=known.cost + cost,
        )

    def _take_marks(self) -> dict[str, JSON]:
        marks, self.marks = self.marks, {}
        return marks


def _named(fields: Record, name: str) -> str | None:
    id = text(fields, name) or ""
    return None if id in MASKED else id


def _created(info: Record) -> float | None:
    return seconds(record(info.get("time")).get("created"))


def _said(part: Record) -> str | None:
    return text(part, "text") if part.get("type") == "text" else None


def _typed(part: Record) -> dict[str, JSON] | None:
    """What a person put into a prompt; the rest was added for the model or is bookkeeping."""
    kind = part.get("type")
    if kind == "text":
        added = part.get("synthetic") is True or part.get("ignored") is True
        value = None if added else text(part, "text")
    elif kind == "subtask":
        value = text(part, "prompt")
    else:
        return _file(part) if kind == "file" else None
    return text_part(value) if value else None


def _file(part: Record) -> dict[str, JSON]:
    kind, url = text(part, "mime") or "", text(part, "url") or ""
    if kind.startswith("image/") and url.startswith("data:"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "mime": kind, "filename": text(part, "filename"), "url": url}


def _add_call(step: Turn, part: Record, place: str, info: Record) -> None:
    """A call, and its result if there is one."""
    state = record(part.get("state"))
    given = state.get("input")
    arguments = cast("str | Record", given) if isinstance(given, (str, dict)) else ""
    id = _named(part, "callID") or _named(part, "id") or place
    call = ToolCall(id, text(part, "tool") or "", arguments or text(state, "raw") or arguments)
    step.add_call(call)
    if state.get("status") not in ("completed", "error"):
        return
    ended = seconds(record(state.get("time")).get("end"))
    step.results.append(
        Message(
            role="tool",
            content=_output(state),
            tool_call_id=id,
            name=call.name or None,
            platform_message_id=id,
            meta=present(_facts(state)),
            timestamp=ended or _created(info),
        )
    )


def _output(state: Record) -> str | list[dict[str, JSON]] | None:
    about = record(state.get("metadata"))
    if state.get("status") == "error":
        # Of a call that was stopped, the model gets what there was until then.
        kept = about.get("output") if about.get("interrupted") is True else None
        return kept if isinstance(kept, str) else text(state, "error")
    said = state.get("output")
    images = [_file(file) for file in records(state.get("attachments"))]
    if not isinstance(said, str):
        return images or None
    return [text_part(said), *images] if images else said


def _facts(state: Record) -> dict[str, JSON]:
    about, time = record(state.get("metadata")), record(state.get("time"))
    facts: dict[str, JSON] = {"is_error": state.get("status") == "error"}
    code = about.get("exit")
    if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**31:
        facts["exit_code"] = code
    since, until = number(time.get("start")), number(time.get("end"))
    if since and until and until >= since:
        facts["duration"] = round((until - since) / 1000, 3)
    facts["interrupted"] = True if about.get("interrupted") is True else None
    facts["agent"] = _named(about, "sessionId")
    return facts


def _failure(error: Record) -> dict[str, JSON]:
    name = text(error, "name")
    told = text(record(error.get("data")), "message") or text(error, "message")
    return {"error": told or name, "api_error": None if name == _ABORTED else True}


def _tokens(told: Record) -> Tokens:
    cache = record(told.get("cache"))
    return Tokens(
        input=count(told.get("input")),
        output=count(told.get("output")),
        cache_read=count(cache.get("read")),
        cache_write=count(cache.get("write")),
        reasoning=count(told.get("reasoning")),
    )
