"""Claude Code: one JSON object per line, in `projects/<folder>/<session>.jsonl`.

One answer of the model spans several lines with the same `message.id`, with the results of its
first calls between them, and now and then a prompt or a line of another answer: up to two answers
are held open until what follows shows that they are complete. Resumed sessions write earlier
answers and results once more under new line ids; they are known by `message.id` and tool id.
A sub-agent's lines (`isSidechain`) are a session of their own, whose parent is the session that
the lines name. Injected lines (`isMeta`), progress and bookkeeping are no messages. A compaction
is told in the `meta` of the message after it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

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
from rekindle.transcripts.jsonio.jsonl import picking
from rekindle.transcripts.jsonio.jsonl import records as lines_of
from rekindle.types import JSON, Message, Session, Tokens, ToolCall, replace

from .session_builder import Turn

SOURCE = "claude-code"

_OPEN_TURNS = 2
_HELD_PROMPTS = 8
_TYPES = ("user", "assistant", "system", "progress", "summary", "file-history-snapshot")
_MARKS = ("sessionId", "parentUuid", "leafUuid", "messageId")
_EXIT_CODE = re.compile(r"\s*(?:Error: )?Exit code (-?\d{1,9})\b")
# What `toolUseResult` says beside the text, under the names that all formats share.
_FACTS = {
    "interrupted": "interrupted",
    "returnCodeInterpretation": "exit_code_meaning",
    "agentId": "agent",
    "totalTokens": "agent_tokens",
    "totalToolUseCount": "agent_calls",
    "backgroundTaskId": "background",
    "status": "status",
    "code": "http_status",
}
# Some copies have ids masked; a masked id names nothing.
_MASKED = {"", "REDACTED"}


class _About(TypedDict, total=False):
    """What is read of `toolUseResult`. The rest is the result once more, or whole files."""

    interrupted: Any
    returnCodeInterpretation: Any
    agentId: Any
    totalTokens: Any
    totalToolUseCount: Any
    backgroundTaskId: Any
    status: Any
    code: Any
    durationMs: Any
    totalDurationMs: Any
    durationSeconds: Any


class _Line(TypedDict, total=False):
    """What is read of a line."""

    type: Any
    subtype: Any
    sessionId: Any
    agentId: Any
    isSidechain: Any
    forkedFrom: Any
    uuid: Any
    parentUuid: Any
    leafUuid: Any
    timestamp: Any
    cwd: Any
    gitBranch: Any
    message: Any
    toolUseResult: _About | list[Any] | str | float | bool | None
    toolDenialKind: Any
    isMeta: Any
    isCompactSummary: Any
    isApiErrorMessage: Any
    compactMetadata: Any
    summary: Any
    aiTitle: Any
    customTitle: Any


_decode_line = picking(_Line)


def sniff(head: Head) -> bool:
    return any(
        line.get("type") in _TYPES and any(mark in line for mark in _MARKS) for line in head.records
    )


def read(path: Path) -> Iterator[Event]:
    file = _File()
    for entry in lines_of(path, _decode_line):
        if isinstance(entry, Damage):
            yield entry
        elif said := file.take(*entry):
            yield from said
    yield from file.finish()


class _File:
    """The threads of one file, and which of them spoke last."""

    def __init__(self) -> None:
        self.threads: dict[str, _Thread] = {}
        self.speaking: _Thread | None = None
        self.roots: dict[str, str] = {}
        # A summary names a line: one that is still to come, or one of the last few.
        self.promised: dict[str, str] = {}
        self.recent: deque[tuple[str, _Thread]] = deque(maxlen=64)

    def take(self, number: int, line: Record) -> Sequence[Event]:
        # Lists, not generators: most lines say nothing yet, and to start a generator takes longer.
        kind = line.get("type")
        if kind in ("summary", "ai-title", "custom-title"):
            self._name(kind, line)
            return ()
        session = text(line, "sessionId")
        if session is None or kind not in ("user", "assistant", "system"):
            return ()
        thread = self._thread(session, line)
        if uuid := text(line, "uuid"):
            self.recent.append((uuid, thread))
            if self.promised and (title := self.promised.pop(uuid, None)):
                thread.name(title, 0)
        thread.learn(line)
        if kind == "assistant":
            said = thread.answer(number, line)
        elif kind == "user":
            said = thread.listen(number, line)
        else:
            said = thread.note(line)
        return self._say(thread, said) if said else ()

    def finish(self) -> Iterator[Event]:
        for thread in self.threads.values():
            yield from self._say(thread, thread.close())
        for thread in self.threads.values():
            if thread.opened:
                yield Learned(replace(thread.session, tokens=thread.tokens))

    def _say(self, thread: _Thread, messages: Sequence[Message]) -> Sequence[Event]:
        if not messages or self.speaking is thread:
            return messages
        self.speaking = thread
        thread.opened = True
        return [Opened(thread.session), *messages]

    def _thread(self, session: str, line: Record) -> _Thread:
        agent = None
        if line.get("isSidechain") is True:
            agent = text(line, "agentId") or f"sidechain-{self._root(line)}"
            agent = agent if agent.startswith(("agent-", "sidechain-")) else f"agent-{agent}"
        # The parent's id stands last, so that a prefix of it still names the parent alone.
        id = f"{agent}@{session}" if agent else session
        thread = self.threads.get(id)
        if thread is None:
            parent = session if agent else text(record(line.get("forkedFrom")), "sessionId")
            parent = None if parent == id else parent
            thread = self.threads[id] = _Thread(Session(id=id, source=SOURCE, parent=parent))
        return thread

    def _root(self, line: Record) -> str:
        # Before agents had ids, only the chain of parents told two sub-agents apart.
        uuid = text(line, "uuid") or ""
        root = self.roots.get(text(line, "parentUuid") or "", uuid)
        self.roots[uuid] = root
        return root

    def _name(self, kind: str, line: Record) -> None:
        title = text(line, "summary", "aiTitle", "customTitle")
        if title is None:
            return
        if kind == "summary":
            leaf = text(line, "leafUuid") or ""
            owner = next((thread for uuid, thread in self.recent if uuid == leaf), None)
            if owner is None:
                self.promised[leaf] = title
            else:
                owner.name(title, 0)
        elif session := text(line, "sessionId"):
            self._thread(session, {}).name(title, 2 if kind == "custom-title" else 1)


class _Thread:
    """One conversation as far as it is read."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.tokens = Tokens()
        self.opened = False
        self.turns: dict[str, Turn] = {}
        # Ids alone, never content: the price of knowing a copy when it comes.
        self.seen: set[str] = set()
        self.marks: dict[str, JSON] = {}
        self.rank = -1

    def learn(self, line: Record) -> None:
        """Fill in what the session does not know of itself yet."""
        known = self.session
        if known.started and known.cwd and known.git_branch:
            return
        self.session = replace(
            known,
            started=known.started or seconds(line.get("timestamp")) or 0.0,
            cwd=known.cwd or text(line, "cwd"),
            git_branch=known.git_branch or text(line, "gitBranch"),
        )

    def name(self, title: str, rank: int) -> None:
        """Take a title; one that a person gave is not replaced by one that was made up."""
        if rank >= self.rank:
            self.rank = rank
            self.session = replace(self.session, title=title)

    def note(self, line: Record) -> Sequence[Message]:
        """A compaction, to be told with the next message; other system lines are bookkeeping."""
        if line.get("subtype") != "compact_boundary":
            return ()
        closed = self.close()
        about = record(line.get("compactMetadata"))
        self.marks["compacted"] = {
            "trigger": text(about, "trigger"),
            "tokens_before": count(about.get("preTokens")),
        }
        return closed

    def answer(self, number: int, line: Record) -> Sequence[Message]:
        """A line of an answer; gives what is complete because this one began."""
        said = record(line.get("message"))
        id = text(said, "id") or text(line, "uuid") or f"line:{number}"
        blocks = _blocks(said.get("content"))
        turn = self.turns.get(id)
        closed: Sequence[Message] = ()
        if turn is None:
            if id in self.seen:
                blocks = [block for block in blocks if self._is_new_call(block)]
                if not blocks:
                    return ()
                id = f"{id}+{blocks[0]['id']}"
            while len(self.turns) >= _OPEN_TURNS:
                closed = [*closed, *self._close(next(iter(self.turns)))]
            turn = self.turns[id] = Turn(id, seconds(line.get("timestamp")))
            turn.facts.update(self.marks)
            self.marks = {}
        self._add(turn, said, blocks, number)
        if line.get("isApiErrorMessage") is True:
            turn.facts["api_error"] = True
        return closed

    def _is_new_call(self, block: Record) -> bool:
        id = text(block, "id")
        return block.get("type") == "tool_use" and id is not None and f"call {id}" not in self.seen

    def _add(self, turn: Turn, said: Record, blocks: list[Record], number: int) -> None:
        for index, block in enumerate(blocks):
            kind = block.get("type")
            if kind == "text":
                if value := text(block, "text"):
                    turn.add_text(value)
            elif kind == "thinking":
                if value := text(block, "thinking"):
                    turn.add_thought(value)
            elif kind == "tool_use":
                turn.add_call(_call(block, f"line:{number}:{index}"))
            elif kind != "redacted_thinking":
                turn.add_part(block)
        turn.finish = text(said, "stop_reason") or turn.finish
        if usage := record(said.get("usage")):
            turn.usage = usage
        model = text(said, "model")
        if model is None or model == "<synthetic>":
            return
        if self.session.model is None:
            self.session = replace(self.session, model=model)
        elif model != self.session.model:
            turn.facts["model"] = model

    def listen(self, number: int, line: Record) -> Sequence[Message]:
        """A line from the user's side: results of calls, something typed, or both."""
        said = record(line.get("message")).get("content")
        if line.get("isCompactSummary") is True:
            compacted = record(self.marks.get("compacted"))
            self.marks["compacted"] = {**compacted, "summary": _plain(said)}
            return ()
        if line.get("isMeta") is True:
            return ()
        blocks = _blocks(said)
        results = [block for block in blocks if block.get("type") == "tool_result"]
        orphans: list[Message] = []
        for index, block in enumerate(results):
            about = record(line.get("toolUseResult")) if len(results) == 1 else {}
            orphans += self._result(block, line, about, f"line:{number}:{index}")
        if len(results) == len(blocks):
            return orphans
        return [*orphans, *self._prompt(number, line, blocks)]

    def _prompt(self, number: int, line: Record, blocks: list[Record]) -> Sequence[Message]:
        """Something typed; gives it, unless an answer is open that it has to wait for."""
        typed = [_part(block) for block in blocks if block.get("type") != "tool_result"]
        uuid = text(line, "uuid") or f"line:{number}"
        if f"line {uuid}" in self.seen:
            return ()
        self.seen.add(f"line {uuid}")
        prompt = Message(
            role="user",
            content=content(typed),
            platform_message_id=uuid,
            meta=self._take_marks(),
            timestamp=seconds(line.get("timestamp")),
        )
        newest = next(reversed(self.turns.values()), None)
        if newest is not None and len(newest.prompts) < _HELD_PROMPTS:
            # Typed while the answer was being written: the answer may go on after it.
            newest.prompts.append(prompt)
            return ()
        return [*self.close(), prompt]

    def _result(self, block: Record, line: Record, about: Record, place: str) -> Sequence[Message]:
        """The result of a call; gives it when no answer is open that it goes with."""
        call = text(block, "tool_use_id") or ""
        masked = call in _MASKED
        if not masked and f"result {call}" in self.seen:
            return ()
        self.seen.add(f"result {call}")
        owner = next((turn for turn in self.turns.values() if call in turn.calls), None)
        message = Message(
            role="tool",
            content=content([_part(part) for part in _blocks(block.get("content"))]),
            tool_call_id=call or None,
            name=owner.calls[call].name if owner else None,
            platform_message_id=f"{text(line, 'uuid') or ''}{place}" if masked else call,
            meta=present({**_facts(block, line, about), **(self._take_marks() or {})}),
            timestamp=seconds(line.get("timestamp")),
        )
        owner = owner or next(reversed(self.turns.values()), None)
        if owner is None:
            return (message,)
        owner.results.append(message)
        return ()

    def close(self) -> list[Message]:
        """The answers that are still open, each with what came meanwhile."""
        return [message for id in list(self.turns) for message in self._close(id)]

    def _close(self, id: str) -> list[Message]:
        turn = self.turns.pop(id)
        self.seen.add(id)
        self.seen.update(f"call {call}" for call in turn.calls)
        if turn.usage:
            self.tokens = self.tokens.plus(_tokens(turn.usage))
        return [turn.message(), *turn.results, *turn.prompts]

    def _take_marks(self) -> dict[str, JSON] | None:
        marks, self.marks = self.marks, {}
        return marks or None


def _blocks(said: object) -> list[Record]:
    return [text_part(said)] if isinstance(said, str) and said else records(said)


def _plain(said: object) -> str:
    return "\n".join(block["text"] for block in _blocks(said) if text(block, "text"))


def _part(block: Record) -> dict[str, JSON]:
    source = record(block.get("source"))
    data = text(source, "data")
    if block.get("type") != "image" or data is None:
        return block
    url = f"data:{text(source, 'media_type') or 'image/png'};base64,{data}"
    return {"type": "image_url", "image_url": {"url": url}}


def _call(block: Record, place: str) -> ToolCall:
    given = block.get("input")
    arguments = cast("str | Record", given) if isinstance(given, (str, dict)) else ""
    return ToolCall(text(block, "id") or place, text(block, "name") or "", arguments)


def _facts(block: Record, line: Record, about: Record) -> dict[str, JSON]:
    failed = block.get("is_error") is True
    facts: dict[str, JSON] = {"is_error": failed}
    if failed and (match := _EXIT_CODE.match(_plain(block.get("content")))):
        facts["exit_code"] = int(match[1])
    for name, fact in _FACTS.items() if about else ():
        value = about.get(name)
        if value and isinstance(value, (str, int, float)):
            facts[fact] = value
    milliseconds = number(about.get("durationMs")) or number(about.get("totalDurationMs"))
    facts["duration"] = (
        milliseconds / 1000 if milliseconds else number(about.get("durationSeconds"))
    )
    facts["denial"] = text(line, "toolDenialKind")
    return facts


def _tokens(usage: Record) -> Tokens:
    return Tokens(
        input=count(usage.get("input_tokens")),
        output=count(usage.get("output_tokens")),
        cache_read=count(usage.get("cache_read_input_tokens")),
        cache_write=count(usage.get("cache_creation_input_tokens")),
    )
