"""OpenTelemetry spans of agents: GenAI, OpenInference (TRAIL) and OpenLLMetry.

A session is a conversation (`gen_ai.conversation.id`, `session.id`) or, without one, a trace. Each
call of the model tells the whole history again: what is new in it is taken, then its answer. A tool's
span tells whether the call failed and how long it took; the text of a result is the one that the
model was given next, where there is one. Work that begins on its own history while a call of the
agent waits is a sub-agent's, and a session of its own. smolagents, which TRAIL's agents are made of,
runs the code in an answer: each of its steps is a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rekindle.json_fields import Record, record, text
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event, Learned, Opened
from rekindle.transcripts.jsonio.partial import fields_so_far, opening
from rekindle.transcripts.readers.ids import hashed_id
from rekindle.types import Message, Session

from .span_messages import inputs, outputs
from .spans import Span, spans
from .thread import Thread, digest_of, kind_of

SOURCE = "otel"

_OTLP = ("resourceSpans", "resource_spans")
_LOGS = ("resourceLogs", "resource_logs")
_CONVERSATION = (
    "gen_ai.conversation.id",
    "session.id",
    "traceloop.association.properties.session_id",
)
# Conversations whose last words are held back, because more about them may come.
_OPEN = 64


def sniff(head: Head) -> bool:
    about = head.fields
    if any(name in about for name in _OTLP):
        return True
    if any(name in about for name in _LOGS):
        return b"gen_ai." in head.data
    if "trace_id" in about and isinstance(about.get("spans"), list):
        return True
    if head.data.startswith(b"["):
        about = fields_so_far(opening(head.data, ()))
    return any(_is_span(line) for line in (about, *head.records[:1]))


def _is_span(about: Record) -> bool:
    named = {**record(about.get("context")), **about}
    return (
        "trace_id" in named
        and "span_id" in named
        and ("attributes" in about or "span_attributes" in about)
    )


def read(path: Path) -> Iterator[Event]:
    file = _File(path)
    for span in spans(path):
        if isinstance(span, Damage):
            yield span
        else:
            yield from file.take(span)
    yield from file.finish()


class _File:
    """The conversations of one file, and which of their threads spoke last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.conversations: dict[str, _Conversation] = {}
        # By trace: not every span names the conversation that it is part of.
        self.named: dict[str, str] = {}
        self.recent: dict[str, _Conversation] = {}
        self.speaking: Thread | None = None

    def take(self, span: Span) -> Iterator[Event]:
        told = text(span.attributes, *_CONVERSATION)
        if told is not None:
            self.named.setdefault(span.trace, told)
        id = told or self.named.get(span.trace) or span.trace or hashed_id("otel", str(self.path))
        one = self.conversations.setdefault(id, _Conversation(id))
        yield from self._say(one.take(span))
        self.recent.pop(id, None)
        self.recent[id] = one
        if len(self.recent) > _OPEN:
            # The one that was silent for longest says what it holds back.
            yield from self._say(self.recent.pop(next(iter(self.recent))).settle())

    def finish(self) -> Iterator[Event]:
        for one in self.conversations.values():
            yield from self._say(one.settle())
        for one in self.conversations.values():
            for thread in one.threads:
                if thread.opened:
                    yield Learned(thread.session)

    def _say(self, said: Iterator[tuple[Thread, Message]]) -> Iterator[Event]:
        for thread, message in said:
            if self.speaking is not thread:
                self.speaking = thread
                thread.opened = True
                yield Opened(thread.session)
            yield message


class _Conversation:
    """The threads of one conversation: the agent's own, and those of its sub-agents."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.threads: list[Thread] = []
        # By the span of the agent inside another agent that they are the history of.
        self.inner: dict[str, Thread] = {}
        self.seen: set[str] = set()
        # Log records about a model call that has not answered yet, by span.
        self.notes: dict[str, list[Span]] = {}

    def take(self, span: Span) -> Iterator[tuple[Thread, Message]]:
        if span.is_log:
            yield from self._note(span)
            return
        kind = kind_of(span)
        if span.id in self.seen or not kind:
            # Some exports repeat a span; what logs told of it already is known as well.
            return
        self.seen.add(span.id)
        if kind == "model":
            yield from self._answer(span)
        elif kind == "agent":
            # Its history is that of the model calls inside it, which came before.
            if not any(thread.opened or thread.is_waiting for thread in self.threads):
                yield from self._answer(span)
        else:
            thread = self._owner(span)
            thread.learn(span)
            if kind == "tool":
                thread.finish_call(span)
            else:
                thread.finish_step(span)

    def _note(self, span: Span) -> Iterator[tuple[Thread, Message]]:
        """A log record: the last one about a model call tells its answer."""
        notes = self.notes.setdefault(span.id, [])
        notes.append(span)
        if span.name.endswith((".choice", ".details")):
            events = tuple(event for note in self.notes.pop(span.id) for event in note.events)
            if span.id not in self.seen:
                self.seen.add(span.id)
                yield from self._answer(notes[0]._replace(events=events))

    def _answer(self, span: Span) -> Iterator[tuple[Thread, Message]]:
        given = inputs(span)
        thread = self._thread(span, given)
        thread.learn(span)
        for message in thread.answer(span, given, outputs(span)):
            yield thread, message

    def settle(self) -> Iterator[tuple[Thread, Message]]:
        for thread in self.threads:
            for message in thread.settle():
                yield thread, message

    def _owner(self, span: Span) -> Thread:
        """The thread that asked for the work of this span."""
        call = text(span.attributes, "gen_ai.tool.call.id", "tool_call.id")
        for thread in self.threads:
            if call is not None and call in thread.calls:
                return thread
        if span.agents:
            return self._agent(span)
        return self.threads[-1] if self.threads else self._new(span, None)

    def _thread(self, span: Span, given: list[Message]) -> Thread:
        """The thread whose history the model was given."""
        first = next((said for said in given if said.role == "user"), None)
        if not self.threads:
            return self._new(span, None)
        if span.agents:
            return self._agent(span)
        if first is None:
            return self.threads[-1]
        mark = digest_of(first)
        for thread in reversed(self.threads):
            if mark in thread.known:
                return thread
        last = self.threads[-1]
        if last.waits_beyond(given):
            return self._new(span, last)
        return last

    def _agent(self, span: Span) -> Thread:
        """The thread of the agent that the span lies in."""
        main = self.threads[0] if self.threads else self._new(span, None)
        *above, agent = span.agents
        if not above:
            return main
        if agent not in self.inner:
            self.inner[agent] = self._new(span, self.inner.get(above[-1], main))
        return self.inner[agent]

    def _new(self, span: Span, parent: Thread | None) -> Thread:
        id = self.id if parent is None else f"{span.id}@{self.id}"
        owner = parent.session.id if parent else None
        thread = Thread(Session(id=id, source=SOURCE, parent=owner))
        self.threads.append(thread)
        return thread
