"""OpenTelemetry reader for agents' spans: GenAI, OpenInference (TRAIL) and OpenLLMetry.

A session is a conversation (`gen_ai.conversation.id`, `session.id`) or, without one, a trace. Each model
call repeats the whole history: its new messages are read, then its answer. A tool's span has whether the
call failed and how long it took; the text of a result is what the model received next, if anything.
Work that starts its own history while a call of the agent is pending belongs to a sub-agent and is a
session of its own. smolagents, which TRAIL's agents use, runs the code in an answer: each of its steps
is a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rekindle.json_fields import JsonObject, as_object, get_text
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.partial import find_first_element, parse_partial_fields
from rekindle.transcripts.readers.session_builder import SessionSwitch, make_hash_id
from rekindle.types import Message, Session

from .own_spans import is_own_span, read_own_messages, read_own_session
from .span_messages import parse_inputs, parse_outputs, parse_tokens
from .spans import OtelSpan, read_spans
from .thread import OtelThread, classify_span, hash_message

SOURCE = "otel"

_OTLP = ("resourceSpans", "resource_spans")
_OTLP_LOGS = ("resourceLogs", "resource_logs")
_CONVERSATION_KEYS = (
    "gen_ai.conversation.id",
    "session.id",
    "traceloop.association.properties.session_id",
)
# Conversations whose last messages are held back because later spans may complete them.
_MAX_OPEN_CONVERSATIONS = 64


def can_read(head: FileHead) -> bool:
    metadata = head.fields
    if any(name in metadata for name in _OTLP):
        return True
    if any(name in metadata for name in _OTLP_LOGS):
        return b"gen_ai." in head.data
    if "trace_id" in metadata and isinstance(metadata.get("spans"), list):
        return True
    if head.data.startswith(b"["):
        metadata = parse_partial_fields(find_first_element(head.data, ()))
    return any(_is_span(line) for line in (metadata, *head.objects[:1]))


def _is_span(metadata: JsonObject) -> bool:
    fields = {**as_object(metadata.get("context")), **metadata}
    return (
        "trace_id" in fields
        and "span_id" in fields
        and ("attributes" in metadata or "span_attributes" in metadata)
    )


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    file = _OtelFile(path)
    for span in read_spans(path):
        if isinstance(span, UnreadableEntry):
            yield span
        else:
            yield from file.read_entry(span)
    yield from file.finish()


class _OtelFile:
    """The conversations of one file, and which of their threads is active."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.conversations: dict[str, _OtelConversation] = {}
        # By trace, because not every span names its conversation.
        self.conversation_ids: dict[str, str] = {}
        self.recent: dict[str, _OtelConversation] = {}
        self.switch = SessionSwitch()

    def read_entry(self, span: OtelSpan) -> Iterator[TranscriptEvent]:
        """Read one span."""
        conversation_id = get_text(span.attributes, *_CONVERSATION_KEYS)
        if conversation_id is not None:
            self.conversation_ids.setdefault(span.trace, conversation_id)
        id = (
            conversation_id
            or self.conversation_ids.get(span.trace)
            or span.trace
            or make_hash_id("otel", str(self.path))
        )
        conversation = self.conversations.setdefault(id, _OtelConversation(id))
        yield from self._append_messages(conversation.read_span(span))
        self.recent.pop(id, None)
        self.recent[id] = conversation
        if len(self.recent) > _MAX_OPEN_CONVERSATIONS:
            # Flush the conversation that was idle for longest.
            yield from self._append_messages(self.recent.pop(next(iter(self.recent))).flush())

    def finish(self) -> Iterator[TranscriptEvent]:
        """Yield the held messages and the sessions with everything learned from the file."""
        for conversation in self.conversations.values():
            yield from self._append_messages(conversation.flush())
        for conversation in self.conversations.values():
            for thread in conversation.threads:
                yield from thread.finish()

    def _append_messages(
        self, messages: Iterator[tuple[OtelThread, Message]]
    ) -> Iterator[TranscriptEvent]:
        for thread, message in messages:
            yield from self.switch.append_messages(thread, (message,))


class _OtelConversation:
    """The threads of one conversation: the agent's own and those of its sub-agents."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.threads: list[OtelThread] = []
        # Threads of nested agents, by the agent's span.
        self.agent_threads: dict[str, OtelThread] = {}
        self.seen: set[str] = set()
        # Log records of model calls without an answer yet, by span.
        self.log_records: dict[str, list[OtelSpan]] = {}

    def read_span(self, span: OtelSpan) -> Iterator[tuple[OtelThread, Message]]:
        """Read one span or log record and yield new messages with their threads."""
        if span.is_log:
            yield from self._read_log_record(span)
            return
        if is_own_span(span):
            yield from self._read_own_span(span)
            return
        kind = classify_span(span)
        if span.id in self.seen or not kind:
            # Some exports repeat a span, or log records already covered it.
            return
        self.seen.add(span.id)
        if kind == "model":
            yield from self._read_model_call(span)
        elif kind == "agent":
            # Its history is that of the model calls inside it, which were read before.
            if not any(thread.is_started or thread.has_held_messages for thread in self.threads):
                yield from self._read_model_call(span)
        else:
            thread = self._find_owner(span)
            thread.update_session(span)
            if kind == "tool":
                thread.read_tool_span(span)
            else:
                thread.read_step_span(span)

    def _read_own_span(self, span: OtelSpan) -> Iterator[tuple[OtelThread, Message]]:
        """Read a span that Rekindle wrote: it numbers its messages, and each is read once."""
        thread = self.threads[0] if self.threads else self._create_thread(span, None)
        thread.update_session(span)
        thread.fill_fields(**read_own_session(span))
        if classify_span(span) == "agent":
            thread.add_usage(parse_tokens(span.attributes), time=span.start)
        for position, message in read_own_messages(span):
            if position > thread.position:
                thread.position = position
                yield thread, message

    def _read_log_record(self, span: OtelSpan) -> Iterator[tuple[OtelThread, Message]]:
        """Read a log record; the last one about a model call has its answer."""
        log_records = self.log_records.setdefault(span.id, [])
        log_records.append(span)
        if span.name.endswith((".choice", ".details")):
            events = tuple(
                event for log_record in self.log_records.pop(span.id) for event in log_record.events
            )
            if span.id not in self.seen:
                self.seen.add(span.id)
                yield from self._read_model_call(log_records[0]._replace(events=events))

    def _read_model_call(self, span: OtelSpan) -> Iterator[tuple[OtelThread, Message]]:
        history = parse_inputs(span)
        thread = self._find_thread(span, history)
        thread.update_session(span)
        for message in thread.read_model_call(span, history, parse_outputs(span)):
            yield thread, message

    def flush(self) -> Iterator[tuple[OtelThread, Message]]:
        """Yield the messages that are held back."""
        for thread in self.threads:
            for message in thread.flush():
                yield thread, message

    def _find_owner(self, span: OtelSpan) -> OtelThread:
        """Return the thread that requested the work of this span."""
        call = get_text(span.attributes, "gen_ai.tool.call.id", "tool_call.id")
        for thread in self.threads:
            if call is not None and call in thread.pending_calls:
                return thread
        if span.agents:
            return self._get_agent_thread(span)
        return self.threads[-1] if self.threads else self._create_thread(span, None)

    def _find_thread(self, span: OtelSpan, history: list[Message]) -> OtelThread:
        """Return the thread whose history the model was given."""
        first = next((message for message in history if message.role == "user"), None)
        if not self.threads:
            return self._create_thread(span, None)
        if span.agents:
            return self._get_agent_thread(span)
        if first is None:
            return self.threads[-1]
        digest = hash_message(first)
        for thread in reversed(self.threads):
            if digest in thread.digest_counts:
                return thread
        last = self.threads[-1]
        if last.has_pending_call_outside(history):
            return self._create_thread(span, last)
        return last

    def _get_agent_thread(self, span: OtelSpan) -> OtelThread:
        """Return the thread of the agent that contains this span."""
        main = self.threads[0] if self.threads else self._create_thread(span, None)
        *above, agent = span.agents
        if not above:
            return main
        if agent not in self.agent_threads:
            self.agent_threads[agent] = self._create_thread(
                span, self.agent_threads.get(above[-1], main)
            )
        return self.agent_threads[agent]

    def _create_thread(self, span: OtelSpan, parent: OtelThread | None) -> OtelThread:
        id = self.id if parent is None else f"{span.id}@{self.id}"
        owner = parent.session.id if parent else None
        agent = "agent" if parent else None
        thread = OtelThread(Session(id=id, source=SOURCE, parent=owner, sub_agent=agent))
        self.threads.append(thread)
        return thread
