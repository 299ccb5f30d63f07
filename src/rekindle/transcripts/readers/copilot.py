"""Copilot CLI: one event `{type, data, id, timestamp, parentId}` per line, in
`session-state/<session>/events.jsonl`.

An `assistant.message` is an answer, or one chunk of it where the answer was split. A call stands
in its `toolRequests`; `tool.execution_start` and `_complete` tell when it ran and how it ended.
`success` is about the tool: a command that failed is a success of the shell, and its exit code
stands in the last line of the output. What a sub-agent does is logged between the lines of its
parent, marked by `agentId` (formerly by the call that started it): a session of its own here.
Hooks, notifications and prompts that something else than a person wrote are no messages.
"""

from __future__ import annotations

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
from rekindle.transcripts.jsonio.jsonl import records as lines_of
from rekindle.types import JSON, Message, Session, Tokens, ToolCall, replace

from .ids import MASKED
from .session_builder import Turn

SOURCE = "copilot"

_EVENTS = {
    "session.start",
    "session.resume",
    "session.model_change",
    "system.message",
    "user.message",
    "assistant.turn_start",
    "assistant.message",
    "tool.execution_start",
    "tool.execution_complete",
    "hook.start",
}
# The shell's own last line, in today's words and in those of older versions.
_EXIT_CODE = re.compile(r"<(?:shellId: \S+ completed|exited) with exit code (-?\d{1,9})>\s*\Z")
_RUNNING = re.compile(
    r"<command (?:with shellId: \S+ is still running|started in (?:detached )?background)"
    r"[^<>]*>\s*\Z"
)
_TAIL = 400
_REFUSED = {"rejected", "denied"}
# Calls that wait for their end; one that never ends must not pile up.
_WAITING = 1024


def sniff(head: Head) -> bool:
    return any(
        line.get("type") in _EVENTS and isinstance(line.get("data"), dict)
        for line in head.records
        if isinstance(line.get("type"), str)
    )


def read(path: Path) -> Iterator[Event]:
    log = _Log(path)
    for entry in lines_of(path):
        if isinstance(entry, Damage):
            yield entry
        else:
            yield from log.take(*entry)
    yield from log.finish()


class _Log:
    """The threads of one log: the session itself and its sub-agents."""

    def __init__(self, path: Path) -> None:
        named = path.parent.name if path.stem == "events" else path.stem
        self.main = _Thread(Session(id=named or SOURCE, source=SOURCE))
        self.agents: dict[str, _Thread] = {}
        # Events used to name the call that started an agent; today's name the agent.
        self.started_by: dict[str, str] = {}
        self.speaking: _Thread | None = None

    def take(self, number: int, line: Record) -> Iterator[Event]:
        kind, data = text(line, "type") or "", record(line.get("data"))
        time = seconds(line.get("timestamp"))
        if kind in ("session.start", "session.resume", "session.context_changed"):
            self.main.introduce(data, time, renamed=self.speaking is None)
            return
        if kind.startswith("subagent."):
            # Told in the name of the agent, and about the call that its parent made.
            call = text(data, "toolCallId") or ""
            threads = (self.main, *self.agents.values())
            owner = next((thread for thread in threads if call in thread.calls), self.main)
            owner.note(kind, data, time)
            return
        thread = self._thread(text(line, "agentId"), text(data, "parentToolCallId"))
        place = text(line, "id") or f"line:{number}"
        if kind == "assistant.message":
            said = thread.answer(data, place, time)
        elif kind == "user.message":
            said = thread.listen(data, place, time)
        elif kind == "tool.execution_complete":
            said = thread.complete(data, place, time)
        else:
            thread.note(kind, data, time)
            return
        yield from self._say(thread, said)

    def finish(self) -> Iterator[Event]:
        threads = (self.main, *self.agents.values())
        for thread in threads:
            yield from self._say(thread, thread.close())
        for thread in threads:
            if thread.opened:
                yield Learned(thread.session)

    def _thread(self, agent: str | None, call: str | None) -> _Thread:
        if agent and call:
            self.started_by[call] = agent
        name = agent or self.started_by.get(call or "", call)
        if name is None:
            return self.main
        thread = self.agents.get(name)
        if thread is None:
            parent = self.main.session
            # The parent's id stands last, so that a prefix of it still names the parent alone.
            id = f"agent-{name.removeprefix('agent-')}@{parent.id}"
            known = replace(parent, id=id, parent=parent.id, title=None, tokens=Tokens())
            thread = self.agents[name] = _Thread(known)
        return thread

    def _say(self, thread: _Thread, messages: Iterator[Message]) -> Iterator[Event]:
        for message in messages:
            if self.speaking is not thread:
                self.speaking = thread
                thread.opened = True
                yield Opened(thread.session)
            yield message


class _Call:
    """What is known of a call before it ends."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.since: float | None = None
        self.by_user = False
        self.facts: dict[str, JSON] = {}


class _Thread:
    """One conversation as far as it is read."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.opened = False
        self.turn: Turn | None = None
        self.response: str | None = None
        self.calls: dict[str, _Call] = {}
        # Calls with masked ids: only the order tells which result is whose.
        self.masked: deque[str] = deque(maxlen=_WAITING)
        self.seen: set[str] = set()
        self.marks: dict[str, JSON] = {}
        self.thought: str | None = None

    def introduce(self, data: Record, time: float | None, *, renamed: bool) -> None:
        """The beginning of a session, or what changed when it was taken up again."""
        known, about = self.session, record(data.get("context")) or data
        id = text(data, "sessionId") if renamed else None
        self.session = replace(
            known,
            id=id or known.id,
            parent=known.parent or text(data, "detachedFromSpawningParentSessionId"),
            model=known.model or text(data, "selectedModel"),
            cwd=known.cwd or text(about, "cwd"),
            git_branch=known.git_branch or text(about, "branch"),
            started=known.started or seconds(data.get("startTime")) or time or 0.0,
            ended=None,
            end_reason=None,
        )

    def note(self, kind: str, data: Record, time: float | None) -> None:
        """An event that is no message, for what it tells about calls, session or history."""
        if kind == "tool.execution_start":
            call = self._call(data)
            call.name = text(data, "toolName") or call.name
            call.since = time
        elif kind == "tool.user_requested":
            self._call(data).by_user = True
        elif kind == "permission.completed":
            self._permit(data, time)
        elif kind.startswith("subagent.") and (name := text(data, "agentName")):
            self._call(data).facts["agent"] = name
        elif kind == "assistant.reasoning":
            self.thought = text(data, "content")
        elif kind == "abort":
            self.marks["aborted"] = True
        elif kind == "session.error":
            self.marks["api_error"] = True
        elif kind == "session.compaction_complete" and data.get("success") is not False:
            self.marks["compacted"] = {
                "trigger": text(data, "trigger"),
                "tokens_before": count(data.get("preCompactionTokens")),
                "summary": text(data, "summaryContent"),
            }
        elif kind == "session.model_change":
            self._learn_model(text(data, "newModel"))
        elif kind == "session.title_changed":
            self.session = replace(self.session, title=text(data, "title") or self.session.title)
        elif kind == "session.shutdown":
            self._end(data, time)

    def answer(self, data: Record, place: str, time: float | None) -> Iterator[Message]:
        """An answer, or a further chunk of the one that is open."""
        id = text(data, "messageId") or place
        if f"answer {id}" in self.seen:
            return
        self.seen.add(f"answer {id}")
        response = text(data, "apiCallId")
        if self.turn is None or response is None or response != self.response:
            yield from self.close()
            self.turn = Turn(id, time)
            self.turn.facts.update(self._take_marks())
            self._count_output(data)
        turn, self.response = self.turn, response
        if thought := text(data, "reasoningText") or self.thought:
            turn.add_thought(thought)
        self.thought = None
        if value := text(data, "content"):
            turn.add_text(value)
        for index, request in enumerate(records(data.get("toolRequests"))):
            call = _requested(request, f"{place}:{index}")
            turn.add_call(call)
            if call.id != request.get("toolCallId"):
                self.masked.append(call.id)
            self._call({"toolCallId": call.id}).name = call.name
        turn.facts["phase"] = text(data, "phase")
        model = text(data, "model")
        self._learn_model(model)
        turn.facts["model"] = model if model != self.session.model else None
        # A response that was cut into chunks goes on; any other is complete.
        if count(data.get("chunkIndex")) + 1 >= count(data.get("chunkCount")):
            yield from self.close()

    def listen(self, data: Record, place: str, time: float | None) -> Iterator[Message]:
        """A prompt; what a skill, another agent or the autopilot put in is none."""
        injected = text(data, "source") not in (None, "user")
        if injected or data.get("isAutopilotContinuation") is True or f"user {place}" in self.seen:
            return
        self.seen.add(f"user {place}")
        yield from self.close()
        parts = [text_part(value)] if (value := text(data, "content")) else []
        attached = records(data.get("attachments"))
        names = [name for file in attached if (name := text(file, "path", "displayName"))]
        parts += [part for file in attached if (part := _image(file))]
        if parts or names:
            yield Message(
                role="user",
                content=content(parts),
                platform_message_id=place,
                meta=present({"attachments": names or None, **self._take_marks()}),
                timestamp=time,
            )

    def complete(self, data: Record, place: str, time: float | None) -> Iterator[Message]:
        """The result of a call, or of a command that the user ran."""
        id = text(data, "toolCallId") or ""
        if id in MASKED:
            id = self.masked.popleft() if self.masked else place
        if f"result {id}" in self.seen:
            return
        self.seen.add(f"result {id}")
        call = self.calls.pop(id, None) or _Call()
        facts = {**_facts(data), **call.facts}
        if call.since and time and time >= call.since:
            facts["duration"] = round(time - call.since, 3)
        user = call.by_user or data.get("isUserRequested") is True
        message = Message(
            role="user" if user else "tool",
            content=_output(data),
            tool_call_id=None if user else id,
            name=None if user else call.name,
            platform_message_id=id,
            meta=present({**facts, **self._take_marks()}),
            timestamp=time,
        )
        if self.turn is not None:
            self.turn.results.append(message)
        else:
            yield message

    def close(self) -> Iterator[Message]:
        turn, self.turn, self.response = self.turn, None, None
        if turn is not None:
            yield turn.message()
            yield from turn.results

    def _call(self, data: Record) -> _Call:
        call = self.calls.setdefault(text(data, "toolCallId") or "", _Call())
        if len(self.calls) > _WAITING:
            del self.calls[next(iter(self.calls))]
        return call

    def _permit(self, data: Record, time: float | None) -> None:
        kind = text(record(data.get("result")), "kind") or ""
        call = self._call(data)
        # A person thought about it until now: that is not the time that the tool took.
        call.since = time or call.since
        if kind.startswith(("denied", "cancelled")):
            call.facts.update(refused=True, denial=kind)

    def _learn_model(self, model: str | None) -> None:
        if self.session.model is None and model:
            self.session = replace(self.session, model=model)

    def _count_output(self, data: Record) -> None:
        told = Tokens(output=count(data.get("outputTokens")))
        self.session = replace(self.session, tokens=self.session.tokens.plus(told))

    def _end(self, data: Record, time: float | None) -> None:
        metrics = record(data.get("modelMetrics")).values()
        total = Tokens()
        for usage in (record(record(metric).get("usage")) for metric in metrics):
            total = total.plus(_tokens(usage))
        # A session that was taken up again ends again, and may or may not count from its start.
        pairs = zip(total, self.session.tokens, strict=True)
        self.session = replace(
            self.session,
            tokens=Tokens(*(max(pair) for pair in pairs)),
            ended=time,
            end_reason=text(data, "shutdownType"),
        )

    def _take_marks(self) -> dict[str, JSON]:
        marks, self.marks = self.marks, {}
        return marks


def _requested(request: Record, place: str) -> ToolCall:
    given = request.get("arguments")
    arguments = cast("str | Record", given) if isinstance(given, (str, dict)) else ""
    id = text(request, "toolCallId") or ""
    return ToolCall(place if id in MASKED else id, text(request, "name") or "", arguments)


def _output(data: Record) -> str | list[dict[str, JSON]] | None:
    result = record(data.get("result"))
    said = result.get("content")
    if not isinstance(said, str):
        return text(record(data.get("error")), "message")
    images = [part for item in records(result.get("binaryResultsForLlm")) if (part := _image(item))]
    return [text_part(said), *images] if images else said


def _image(item: Record) -> dict[str, JSON] | None:
    kind, data = text(item, "mimeType") or "", text(item, "data")
    if data is None or not kind.startswith("image/"):
        return None
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}


def _facts(data: Record) -> dict[str, JSON]:
    facts: dict[str, JSON] = {}
    success = data.get("success")
    if isinstance(success, bool):
        facts["is_error"] = not success
    code = text(record(data.get("error")), "code")
    facts["error"] = code
    facts["refused"] = True if code in _REFUSED else None
    said = text(record(data.get("result")), "content") or ""
    tail = said[-_TAIL:]
    if match := _EXIT_CODE.search(tail):
        facts["exit_code"] = int(match[1])
    elif _RUNNING.search(tail):
        facts["running"] = True
    return facts


def _tokens(usage: Record) -> Tokens:
    read, written = count(usage.get("cacheReadTokens")), count(usage.get("cacheWriteTokens"))
    return Tokens(
        # Here the input includes what came from the cache and what went into it.
        input=max(0, count(usage.get("inputTokens")) - read - written),
        output=count(usage.get("outputTokens")),
        cache_read=read,
        cache_write=written,
        reasoning=count(usage.get("reasoningTokens")),
    )
