"""Copilot CLI reader: one event `{type, data, id, timestamp, parentId}` per line, in
`session-state/<session>/events.jsonl`.

An `assistant.message` is an answer, or one chunk of it if the answer was split. Its calls are in
`toolRequests`; `tool.execution_start` and `_complete` record when a call ran and how it ended. `success`
is about the tool: a command that failed is a success of the shell, and its exit code is in the last
line of the output. A sub-agent's events are logged between those of its parent, marked by `agentId`
(formerly by the call that started it), and become a session of their own. Hooks, notifications and
prompts not written by a person are not messages.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

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
from rekindle.projects import normalize_remote
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent
from rekindle.transcripts.jsonio.jsonl import read_line_events
from rekindle.types import JSON, Message, Session, Tokens, ToolCall, replace_fields

from .session_builder import (
    MASKED_IDS,
    AnswerBuilder,
    SessionBuilder,
    SessionSwitch,
    make_inline_image,
    make_tool_call,
    parse_tokens,
)

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
# The shell's own last line, in current and older wording.
_EXIT_CODE = re.compile(r"<(?:shellId: \S+ completed|exited) with exit code (-?\d{1,9})>\s*\Z")
_RUNNING = re.compile(
    r"<command (?:with shellId: \S+ is still running|started in (?:detached )?background)"
    r"[^<>]*>\s*\Z"
)
_TAIL_LENGTH = 400
_REFUSAL_CODES = {"rejected", "denied"}
_TOKEN_NAMES = (
    *("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens"),
)
# Bounds memory for calls that never end.
_MAX_PENDING_CALLS = 1024


def can_read(head: FileHead) -> bool:
    return any(
        line.get("type") in _EVENTS and isinstance(line.get("data"), dict)
        for line in head.objects
        if isinstance(line.get("type"), str)
    )


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    log = _CopilotLog(path)
    yield from read_line_events(path, log.read_entry)
    yield from log.finish()


class _CopilotLog:
    """The threads of one log: the session itself and its sub-agents."""

    def __init__(self, path: Path) -> None:
        session_id = path.parent.name if path.stem == "events" else path.stem
        self.main = _CopilotThread(Session(id=session_id or SOURCE, source=SOURCE))
        self.agents: dict[str, _CopilotThread] = {}
        # Older events name the call that started an agent; newer ones name the agent.
        self.agents_by_call: dict[str, str] = {}
        self.switch = SessionSwitch()

    def read_entry(self, number: int, line: JsonObject) -> Iterator[TranscriptEvent]:
        """Read one line and yield the events that it completes."""
        kind, data = get_text(line, "type") or "", as_object(line.get("data"))
        time = parse_timestamp(line.get("timestamp"))
        if kind in ("session.start", "session.resume", "session.context_changed"):
            self.main.read_header(data, time, may_set_id=self.switch.active is None)
            return
        if kind.startswith("subagent."):
            # Logged under the agent, but about its parent's call.
            call = get_text(data, "toolCallId") or ""
            threads = (self.main, *self.agents.values())
            owner = next((thread for thread in threads if call in thread.calls), self.main)
            owner.read_event(kind, data, time)
            return
        thread = self._get_thread(get_text(line, "agentId"), get_text(data, "parentToolCallId"))
        fallback_id = get_text(line, "id") or f"line:{number}"
        if kind == "assistant.message":
            messages = thread.read_answer(data, fallback_id, time)
        elif kind == "user.message":
            messages = thread.read_prompt(data, fallback_id, time)
        elif kind == "tool.execution_complete":
            messages = thread.read_result(data, fallback_id, time)
        else:
            thread.read_event(kind, data, time)
            return
        yield from self.switch.append_messages(thread, [*messages])

    def finish(self) -> Iterator[TranscriptEvent]:
        """Yield the open answers and the sessions with everything learned from the file."""
        threads = (self.main, *self.agents.values())
        for thread in threads:
            yield from self.switch.append_messages(thread, [*thread.close_answer()])
        for thread in threads:
            yield from thread.finish()

    def _get_thread(self, agent: str | None, call: str | None) -> _CopilotThread:
        if agent and call:
            self.agents_by_call[call] = agent
        name = agent or self.agents_by_call.get(call or "", call)
        if name is None:
            return self.main
        thread = self.agents.get(name)
        if thread is None:
            parent = self.main.session
            # The parent's id comes last, so that a prefix of it still matches only the parent.
            id = f"agent-{name.removeprefix('agent-')}@{parent.id}"
            known = replace_fields(
                parent, id=id, parent=parent.id, title=None, tokens=Tokens(), sub_agent="agent"
            )
            thread = self.agents[name] = _CopilotThread(known)
        return thread


class _CopilotCall:
    """The details of a call that has not ended yet."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.started: float | None = None
        self.by_user = False
        self.meta: dict[str, JSON] = {}


class _CopilotThread(SessionBuilder):
    """One conversation being read."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.answer: AnswerBuilder | None = None
        self.response_id: str | None = None
        self.calls: dict[str, _CopilotCall] = {}
        # Calls with masked ids are matched to results by order.
        self.masked_calls: deque[str] = deque(maxlen=_MAX_PENDING_CALLS)
        self.pending_reasoning: str | None = None

    def read_header(self, data: JsonObject, time: float | None, *, may_set_id: bool) -> None:
        """Read the start of a session, or what changed when it was resumed."""
        metadata = as_object(data.get("context")) or data
        id = get_text(data, "sessionId") if may_set_id else None
        self.set_fields(id=id or self.session.id, ended=None, end_reason=None)
        self.fill_fields(
            parent=get_text(data, "detachedFromSpawningParentSessionId"),
            model=get_text(data, "selectedModel"),
            cwd=get_text(metadata, "cwd"),
            git_branch=get_text(metadata, "branch"),
            repository=_find_repository(metadata),
            started=parse_timestamp(data.get("startTime")) or time,
        )

    def read_event(self, kind: str, data: JsonObject, time: float | None) -> None:
        """Read an event that is not a message for details about calls, session or history."""
        if kind == "tool.execution_start":
            call = self._get_call(data)
            call.name = get_text(data, "toolName") or call.name
            call.started = time
        elif kind == "tool.user_requested":
            self._get_call(data).by_user = True
        elif kind == "permission.completed":
            self._read_permission(data, time)
        elif kind.startswith("subagent.") and (name := get_text(data, "agentName")):
            self._get_call(data).meta["agent"] = name
        elif kind == "assistant.reasoning":
            self.pending_reasoning = get_text(data, "content")
        elif kind == "abort":
            self.pending_meta["aborted"] = True
        elif kind == "session.error":
            self.pending_meta["api_error"] = True
        elif kind == "session.compaction_complete" and data.get("success") is not False:
            self.pending_meta["compacted"] = {
                "trigger": get_text(data, "trigger"),
                "tokens_before": as_count(data.get("preCompactionTokens")),
                "summary": get_text(data, "summaryContent"),
            }
        elif kind == "session.model_change":
            self.fill_fields(model=get_text(data, "newModel"))
        elif kind == "session.title_changed":
            self.set_fields(title=get_text(data, "title") or self.session.title)
        elif kind == "session.shutdown":
            self._read_shutdown(data, time)

    def read_answer(
        self, data: JsonObject, fallback_id: str, time: float | None
    ) -> Iterator[Message]:
        """Read an answer, or a further chunk of the open one."""
        id = get_text(data, "messageId") or fallback_id
        if not self.is_new(f"answer {id}"):
            return
        response = get_text(data, "apiCallId")
        if self.answer is None or response is None or response != self.response_id:
            yield from self.close_answer()
            self.answer = self.open_answer(id, time)
            output = Tokens(output=as_count(data.get("outputTokens")))
            self.add_usage(output, time=time, model=get_text(data, "model"))
        answer, self.response_id = self.answer, response
        answer.add_reasoning(get_text(data, "reasoningText") or self.pending_reasoning)
        self.pending_reasoning = None
        answer.add_text(get_text(data, "content"))
        for index, request in enumerate(as_objects(data.get("toolRequests"))):
            call = _parse_tool_call(request, f"{fallback_id}:{index}")
            answer.add_call(call)
            if call.id != request.get("toolCallId"):
                self.masked_calls.append(call.id)
            self._get_call({"toolCallId": call.id}).name = call.name
        answer.meta["phase"] = get_text(data, "phase")
        self.fill_fields(model=(model := get_text(data, "model")))
        answer.meta["model"] = model if model != self.session.model else None
        # A response may be split into chunks.
        if as_count(data.get("chunkIndex")) + 1 >= as_count(data.get("chunkCount")):
            yield from self.close_answer()

    def read_prompt(
        self, data: JsonObject, fallback_id: str, time: float | None
    ) -> Iterator[Message]:
        """Read a prompt; input from a skill, another agent or the autopilot is skipped."""
        injected = get_text(data, "source") not in (None, "user")
        if injected or data.get("isAutopilotContinuation") is True:
            return
        if not self.is_new(f"user {fallback_id}"):
            return
        yield from self.close_answer()
        parts = [make_text_part(value)] if (value := get_text(data, "content")) else []
        attached = as_objects(data.get("attachments"))
        names = [name for file in attached if (name := get_text(file, "path", "displayName"))]
        parts += [part for file in attached if (part := _parse_image(file))]
        if parts or names:
            yield Message(
                role="user",
                content=to_content(parts),
                platform_message_id=fallback_id,
                meta=drop_none({"attachments": names or None, **self.pop_pending_meta()}),
                timestamp=time,
            )

    def read_result(
        self, data: JsonObject, fallback_id: str, time: float | None
    ) -> Iterator[Message]:
        """Read the result of a call, or of a command that the user ran."""
        id = get_text(data, "toolCallId") or ""
        if id in MASKED_IDS:
            id = self.masked_calls.popleft() if self.masked_calls else fallback_id
        if not self.is_new(f"result {id}"):
            return
        call = self.calls.pop(id, None) or _CopilotCall()
        meta = {**_parse_result_meta(data), **call.meta}
        if call.started and time and time >= call.started:
            meta["duration"] = round(time - call.started, 3)
        is_user_command = call.by_user or data.get("isUserRequested") is True
        message = Message(
            role="user" if is_user_command else "tool",
            content=_parse_output(data),
            tool_call_id=None if is_user_command else id,
            name=None if is_user_command else call.name,
            platform_message_id=id,
            meta=drop_none({**meta, **self.pop_pending_meta()}),
            timestamp=time,
        )
        if self.answer is not None:
            self.answer.results.append(message)
        else:
            yield message

    def close_answer(self) -> Iterator[Message]:
        """Yield the open answer and its results."""
        answer, self.answer, self.response_id = self.answer, None, None
        if answer is not None:
            yield answer.build()
            yield from answer.results

    def _get_call(self, data: JsonObject) -> _CopilotCall:
        call = self.calls.setdefault(get_text(data, "toolCallId") or "", _CopilotCall())
        if len(self.calls) > _MAX_PENDING_CALLS:
            del self.calls[next(iter(self.calls))]
        return call

    def _read_permission(self, data: JsonObject, time: float | None) -> None:
        kind = get_text(as_object(data.get("result")), "kind") or ""
        call = self._get_call(data)
        # The time spent waiting for approval is not part of the tool's duration.
        call.started = time or call.started
        if kind.startswith(("denied", "cancelled")):
            call.meta.update(refused=True, denial=kind)

    def _read_shutdown(self, data: JsonObject, time: float | None) -> None:
        total = Tokens()
        for model, metric in as_object(data.get("modelMetrics")).items():
            usage = as_object(as_object(metric).get("usage"))
            tokens = parse_tokens(usage, *_TOKEN_NAMES, is_cache_in_input=True)
            self.raise_usage(model, tokens, time)
            total = total.add(tokens)
        # A resumed session ends again and may or may not count from its start.
        pairs = zip(total, self.session.tokens, strict=True)
        self.set_fields(
            tokens=Tokens(*(max(pair) for pair in pairs)),
            ended=time,
            end_reason=get_text(data, "shutdownType"),
        )


def _parse_tool_call(request: JsonObject, fallback_id: str) -> ToolCall:
    id = get_text(request, "toolCallId") or ""
    id = fallback_id if id in MASKED_IDS else id
    return make_tool_call(id, get_text(request, "name"), request.get("arguments"))


def _parse_output(data: JsonObject) -> str | list[dict[str, JSON]] | None:
    result = as_object(data.get("result"))
    content = result.get("content")
    if not isinstance(content, str):
        return get_text(as_object(data.get("error")), "message")
    images = [
        part
        for item in as_objects(result.get("binaryResultsForLlm"))
        if (part := _parse_image(item))
    ]
    return [make_text_part(content), *images] if images else content


def _parse_image(item: JsonObject) -> dict[str, JSON] | None:
    kind, data = get_text(item, "mimeType") or "", get_text(item, "data")
    if data is None or not kind.startswith("image/"):
        return None
    return make_inline_image(kind, data)


def _parse_result_meta(data: JsonObject) -> dict[str, JSON]:
    meta: dict[str, JSON] = {}
    success = data.get("success")
    if isinstance(success, bool):
        meta["is_error"] = not success
    code = get_text(as_object(data.get("error")), "code")
    meta["error"] = code
    meta["refused"] = True if code in _REFUSAL_CODES else None
    content = get_text(as_object(data.get("result")), "content") or ""
    tail = content[-_TAIL_LENGTH:]
    if match := _EXIT_CODE.search(tail):
        meta["exit_code"] = int(match[1])
    elif _RUNNING.search(tail):
        meta["running"] = True
    return meta


def _find_repository(metadata: JsonObject) -> str | None:
    host, name = get_text(metadata, "repositoryHost"), get_text(metadata, "repository")
    return normalize_remote(f"https://{host or 'github.com'}/{name}") if name else None
