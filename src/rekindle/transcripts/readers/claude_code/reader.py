"""Claude Code reader: one JSON object per line, in `projects/<folder>/<session>.jsonl`.

One answer of the model spans several lines with the same `message.id`, with the results of its first
calls between them, and occasionally a prompt or a line of another answer: up to two answers are kept
open until later lines show that they are complete. Resumed sessions repeat earlier answers and results
under new line ids; copies are recognized by `message.id` and tool id. A sub-agent's lines
(`isSidechain`) are a session of their own, whose parent is the session that the lines name. Injected
lines (`isMeta`), attachments, progress and bookkeeping are not messages; what a harness told the model
in them is in the `meta` of the message that follows. A compaction is recorded in the `meta` of
the message after it. Branches that the user left by going back are reported at the end, see `branches`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from rekindle.json_fields import (
    JsonObject,
    as_count,
    as_number,
    as_object,
    as_objects,
    drop_none,
    get_text,
    make_text_part,
    parse_timestamp,
    to_content,
)
from rekindle.judging.outcomes.requests import extract_request
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent
from rekindle.transcripts.jsonio.jsonl import read_line_events
from rekindle.transcripts.readers.session_builder import (
    MASKED_IDS,
    AnswerBuilder,
    SessionBuilder,
    SessionSwitch,
    make_inline_image,
    make_tool_call,
    parse_tokens,
    subtract_tokens,
)
from rekindle.types import JSON, Message, Session, Tokens, ToolCall

from .branches import BranchTree
from .line_fields import decode_line

SOURCE = "claude-code"

_MAX_OPEN_ANSWERS = 2
_MAX_HELD_PROMPTS = 8
_TYPES = ("user", "assistant", "system", "progress", "summary", "file-history-snapshot")
_MARKER_FIELDS = ("sessionId", "parentUuid", "leafUuid", "messageId")
_EXIT_CODE = re.compile(r"\s*(?:Error: )?Exit code (-?\d{1,9})\b")
# Fields of `toolUseResult`, by the meta names that all formats share.
_META_NAMES = {
    "interrupted": "interrupted",
    "returnCodeInterpretation": "exit_code_meaning",
    "agentId": "agent",
    "totalTokens": "agent_tokens",
    "totalToolUseCount": "agent_calls",
    "backgroundTaskId": "background",
    "status": "status",
    "code": "http_status",
}
_MAX_INJECTED, _MAX_INJECTED_CHARS = 20, 50_000
_TOKEN_NAMES = (
    *("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
)


def can_read(head: FileHead) -> bool:
    return any(
        line.get("type") in _TYPES and any(mark in line for mark in _MARKER_FIELDS)
        for line in head.objects
    )


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    file = _ClaudeFile()
    yield from read_line_events(path, file.read_entry, decode_line)
    yield from file.finish()


class _ClaudeFile:
    """The threads of one file, and which of them is active."""

    def __init__(self) -> None:
        self.threads: dict[str, _ClaudeThread] = {}
        self.switch = SessionSwitch()
        self.roots: dict[str, str] = {}
        # A summary refers to a line that is still to come, or to one of the last few.
        self.titles_by_leaf: dict[str, str] = {}
        self.recent: deque[tuple[str, _ClaudeThread]] = deque(maxlen=64)
        self.tree = BranchTree()

    def read_entry(self, number: int, line: JsonObject) -> Sequence[TranscriptEvent]:
        """Read one line and return the events that it completes."""
        kind = line.get("type")
        if kind in ("summary", "ai-title", "custom-title"):
            self._read_title(kind, line)
            return ()
        session = get_text(line, "sessionId")
        if session is None:
            return ()
        uuid = get_text(line, "uuid")
        if kind not in ("user", "assistant", "system"):
            self._add_to_tree(session, uuid, line)
            if kind == "attachment":
                self._get_thread(session, line).keep_injected(line.get("attachment"))
            return ()
        thread = self._get_thread(session, line)
        if uuid is not None:
            self.recent.append((uuid, thread))
            if self.titles_by_leaf and (title := self.titles_by_leaf.pop(uuid, None)):
                thread.set_title(title, 0)
        thread.update_session(line)
        raw = as_object(line.get("message"))
        if kind == "assistant":
            id = get_text(raw, "id") or uuid or f"line:{number}"
            self._add_to_tree(session, uuid, line, (id,))
            messages = thread.read_answer(id, raw, number, line)
        elif kind == "user":
            blocks = _parse_blocks(raw.get("content"))
            ids = _list_message_ids(number, uuid, line, blocks)
            self._add_to_tree(session, uuid, line, ids, blocks if ids else ())
            messages = thread.read_user(number, line, blocks)
        else:
            self._add_to_tree(session, uuid, line)
            messages = thread.read_system(line)
        return self.switch.append_messages(thread, messages)

    def finish(self) -> Iterator[TranscriptEvent]:
        """Yield the open answers and the sessions with everything learned from the file."""
        abandoned = self.tree.find_abandoned()
        for thread in self.threads.values():
            thread.abandoned = abandoned
            yield from self.switch.append_messages(thread, thread.close_answers())
        for thread in self.threads.values():
            yield from thread.finish()

    def _add_to_tree(
        self,
        session: str,
        uuid: str | None,
        line: JsonObject,
        ids: Sequence[str] = (),
        user_blocks: Sequence[JsonObject] = (),
    ) -> None:
        """Note where a line belongs; a sub-agent's lines are a session of their own."""
        if uuid is None or line.get("isSidechain") is True:
            return
        # The boundary of a compaction names the line before it in a field of its own.
        parent = get_text(line, "parentUuid", "logicalParentUuid")
        is_prompt = user_blocks and _is_prompt(user_blocks)
        time = parse_timestamp(line.get("timestamp")) if is_prompt else None
        self.tree.add_line(session, uuid, parent, ids, time)

    def _get_thread(self, session: str, line: JsonObject) -> _ClaudeThread:
        agent = None
        if line.get("isSidechain") is True:
            agent = get_text(line, "agentId") or f"sidechain-{self._find_root(line)}"
            agent = agent if agent.startswith(("agent-", "sidechain-")) else f"agent-{agent}"
        # The parent's id comes last, so that a prefix of it still matches only the parent.
        id = f"{agent}@{session}" if agent else session
        thread = self.threads.get(id)
        if thread is None:
            parent = session if agent else get_text(as_object(line.get("forkedFrom")), "sessionId")
            parent = None if parent == id else parent
            thread = self.threads[id] = _ClaudeThread(
                Session(id=id, source=SOURCE, parent=parent, sub_agent="agent" if agent else None)
            )
        return thread

    def _find_root(self, line: JsonObject) -> str:
        # Before agents had ids, only the chain of parents distinguished two sub-agents.
        uuid = get_text(line, "uuid") or ""
        root = self.roots.get(get_text(line, "parentUuid") or "", uuid)
        self.roots[uuid] = root
        return root

    def _read_title(self, kind: str, line: JsonObject) -> None:
        title = get_text(line, "summary", "aiTitle", "customTitle")
        if title is None:
            return
        if kind == "summary":
            leaf = get_text(line, "leafUuid") or ""
            owner = next((thread for uuid, thread in self.recent if uuid == leaf), None)
            if owner is None:
                self.titles_by_leaf[leaf] = title
            else:
                owner.set_title(title, 0)
        elif session := get_text(line, "sessionId"):
            self._get_thread(session, {}).set_title(title, 2 if kind == "custom-title" else 1)


class _ClaudeThread(SessionBuilder):
    """One conversation being read."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.open_answers: dict[str, AnswerBuilder] = {}
        self.title_rank = -1
        self.counted_tokens: dict[str, Tokens] = {}  # by message id

    def update_session(self, line: JsonObject) -> None:
        """Fill in session details that are not known yet."""
        known = self.session
        if not (known.started and known.cwd and known.git_branch):
            self.fill_fields(
                started=known.started or parse_timestamp(line.get("timestamp")),
                cwd=get_text(line, "cwd"),
                git_branch=get_text(line, "gitBranch"),
            )

    def set_title(self, title: str, rank: int) -> None:
        """Set the title, unless a higher-ranked one (such as the user's) is set."""
        if rank >= self.title_rank:
            self.title_rank = rank
            self.set_fields(title=title)

    def read_system(self, line: JsonObject) -> Sequence[Message]:
        """Record a compaction for the next message's `meta`; other system lines are ignored."""
        if line.get("subtype") != "compact_boundary":
            return ()
        closed = self.close_answers()
        metadata = as_object(line.get("compactMetadata"))
        self.pending_meta["compacted"] = {
            "trigger": get_text(metadata, "trigger"),
            "tokens_before": as_count(metadata.get("preTokens")),
        }
        return closed

    def keep_injected(self, value: object) -> None:
        """Record for the next message's `meta` what a harness told the model beside the messages."""
        text = "\n".join(_iter_texts(value))[:_MAX_INJECTED_CHARS]
        known = cast("list[JSON]", self.pending_meta.get("injected") or [])
        if text and len(known) < _MAX_INJECTED:
            self.pending_meta["injected"] = [*known, text]

    def read_answer(
        self, id: str, raw: JsonObject, number: int, line: JsonObject
    ) -> Sequence[Message]:
        """Read a line of an answer and return the messages that it completes."""
        blocks = _parse_blocks(raw.get("content"))
        answer = self.open_answers.get(id)
        closed: Sequence[Message] = ()
        if answer is None:
            if id in self.seen:
                blocks = [block for block in blocks if self._is_new_call(block)]
                if not blocks:
                    return ()
                id = f"{id}+{blocks[0]['id']}"
            while len(self.open_answers) >= _MAX_OPEN_ANSWERS:
                closed = [*closed, *self._close_answer(next(iter(self.open_answers)))]
            answer = self.open_answers[id] = self.open_answer(
                id, parse_timestamp(line.get("timestamp"))
            )
        answer.is_copied = line.get("forkedFrom") is not None
        self._add_blocks(answer, raw, blocks, number)
        if line.get("isApiErrorMessage") is True:
            answer.meta["api_error"] = True
        return closed

    def _is_new_call(self, block: JsonObject) -> bool:
        id = get_text(block, "id")
        return block.get("type") == "tool_use" and id is not None and f"call {id}" not in self.seen

    def _add_blocks(
        self, answer: AnswerBuilder, raw: JsonObject, blocks: list[JsonObject], number: int
    ) -> None:
        for index, block in enumerate(blocks):
            kind = block.get("type")
            if kind == "text":
                answer.add_text(get_text(block, "text"))
            elif kind == "thinking":
                answer.add_reasoning(get_text(block, "thinking"))
            elif kind == "tool_use":
                answer.add_call(_parse_tool_call(block, f"line:{number}:{index}"))
            elif kind != "redacted_thinking":
                answer.add_part(block)
        answer.finish_reason = get_text(raw, "stop_reason") or answer.finish_reason
        if usage := as_object(raw.get("usage")):
            answer.usage = usage
        model = get_text(raw, "model")
        if model is None or model == "<synthetic>":
            return
        answer.model = model
        if self.session.model is None:
            self.set_fields(model=model)
        if model != self.session.model:
            answer.meta["model"] = model

    def read_user(
        self, number: int, line: JsonObject, blocks: list[JsonObject]
    ) -> Sequence[Message]:
        """Read a line of the user's side: tool results, a prompt, or both."""
        if line.get("isCompactSummary") is True:
            compacted = as_object(self.pending_meta.get("compacted"))
            self.pending_meta["compacted"] = {**compacted, "summary": _join_text(blocks)}
            return ()
        if line.get("isMeta") is True:
            self.keep_injected(_join_text(blocks))
            return ()
        results = [block for block in blocks if block.get("type") == "tool_result"]
        orphans: list[Message] = []
        for index, block in enumerate(results):
            metadata = as_object(line.get("toolUseResult")) if len(results) == 1 else {}
            orphans += self._read_result(block, line, metadata, f"line:{number}:{index}")
        if len(results) == len(blocks):
            return orphans
        return [*orphans, *self._read_prompt(number, line, blocks)]

    def _read_prompt(
        self, number: int, line: JsonObject, blocks: list[JsonObject]
    ) -> Sequence[Message]:
        """Return the prompt, unless an open answer has to come first."""
        parts = [_parse_part(block) for block in blocks if block.get("type") != "tool_result"]
        uuid = get_text(line, "uuid") or f"line:{number}"
        if not self.is_new(f"line {uuid}"):
            return ()
        prompt = Message(
            role="user",
            content=to_content(parts),
            platform_message_id=uuid,
            meta=self.pop_pending_meta() or None,
            timestamp=parse_timestamp(line.get("timestamp")),
        )
        newest = next(reversed(self.open_answers.values()), None)
        if newest is not None and len(newest.prompts) < _MAX_HELD_PROMPTS:
            # Typed while the answer was being written, which may continue after it.
            newest.prompts.append(prompt)
            return ()
        return [*self.close_answers(), prompt]

    def _read_result(
        self, block: JsonObject, line: JsonObject, metadata: JsonObject, fallback_id: str
    ) -> Sequence[Message]:
        """Return the result, unless an open answer has to come first."""
        call = get_text(block, "tool_use_id") or ""
        masked = call in MASKED_IDS
        if not (self.is_new(f"result {call}") or masked):
            return ()
        owner = self._find_caller(call)
        message = Message(
            role="tool",
            content=to_content([_parse_part(part) for part in _parse_blocks(block.get("content"))]),
            tool_call_id=call or None,
            name=owner.calls[call].name if owner else None,
            platform_message_id=f"{get_text(line, 'uuid') or ''}{fallback_id}" if masked else call,
            meta=drop_none(
                {**_parse_result_meta(block, line, metadata), **self.pop_pending_meta()}
            ),
            timestamp=parse_timestamp(line.get("timestamp")),
        )
        owner = owner or next(reversed(self.open_answers.values()), None)
        if owner is None:
            return (message,)
        owner.results.append(message)
        return ()

    def _find_caller(self, call: str) -> AnswerBuilder | None:
        for answer in self.open_answers.values():
            if call in answer.calls:
                return answer
        return None

    def close_answers(self) -> list[Message]:
        """Return the open answers, each with what arrived in the meantime."""
        return [message for id in list(self.open_answers) for message in self._close_answer(id)]

    def _close_answer(self, id: str) -> list[Message]:
        answer = self.open_answers.pop(id)
        self.seen.add(id)
        for call in answer.calls:
            self.seen.add(f"call {call}")
        if answer.usage:
            self._count_usage(answer)
        return [answer.build(), *answer.results, *answer.prompts]

    def _count_usage(self, answer: AnswerBuilder) -> None:
        """Add what the answer used, once if it was closed before and continued."""
        id = answer.id.partition("+")[0]
        tokens = parse_tokens(answer.usage, *_TOKEN_NAMES)
        known = self.counted_tokens.get(id)
        self.counted_tokens[id] = tokens if known is None else Tokens(*map(max, tokens, known))
        new = tokens if known is None else subtract_tokens(tokens, known)
        written = as_object(answer.usage.get("cache_creation"))
        hourly = as_count(written.get("ephemeral_1h_input_tokens"))
        self.add_usage(
            new,
            time=answer.timestamp,
            model=answer.model,
            cache_write_1h=min(hourly, new.cache_write),
            prompt=tokens.input + tokens.cache_read + tokens.cache_write,
            is_copied=answer.is_copied,
        )


def _parse_blocks(raw_content: object) -> list[JsonObject]:
    return (
        [make_text_part(raw_content)]
        if isinstance(raw_content, str) and raw_content
        else as_objects(raw_content)
    )


def _list_message_ids(
    number: int, uuid: str | None, line: JsonObject, blocks: Sequence[JsonObject]
) -> Sequence[str]:
    """Return the ids of the messages that a user's line belongs to; none if a harness wrote it."""
    if line.get("isMeta") or line.get("isCompactSummary"):
        return ()
    calls = [
        get_text(block, "tool_use_id") or ""
        for block in blocks
        if block.get("type") == "tool_result"
    ]
    ids = [
        f"{uuid or ''}line:{number}:{index}" if call in MASKED_IDS else call
        for index, call in enumerate(calls)
    ]
    return ids if len(calls) == len(blocks) else (*ids, uuid or f"line:{number}")


def _is_prompt(blocks: Sequence[JsonObject]) -> bool:
    """Return whether a user wrote these blocks, and nothing else is among them."""
    kinds = {block.get("type") for block in blocks}
    if "tool_result" in kinds:
        return False
    return kinds > {"text"} or extract_request(_join_text(blocks)) is not None


def _iter_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _iter_texts(one)
    else:
        for one in as_object(value).values():
            yield from _iter_texts(one)


def _join_text(blocks: Sequence[JsonObject]) -> str:
    return "\n".join([block["text"] for block in blocks if get_text(block, "text")])


def _parse_part(block: JsonObject) -> dict[str, JSON]:
    source = as_object(block.get("source"))
    data = get_text(source, "data")
    if block.get("type") != "image" or data is None:
        return block
    return make_inline_image(get_text(source, "media_type"), data)


def _parse_tool_call(block: JsonObject, fallback_id: str) -> ToolCall:
    id = get_text(block, "id") or fallback_id
    return make_tool_call(id, get_text(block, "name"), block.get("input"))


def _parse_result_meta(
    block: JsonObject, line: JsonObject, metadata: JsonObject
) -> dict[str, JSON]:
    failed = block.get("is_error") is True
    meta: dict[str, JSON] = {"is_error": failed}
    if failed and (match := _EXIT_CODE.match(_join_text(_parse_blocks(block.get("content"))))):
        meta["exit_code"] = int(match[1])
    for name, fact in _META_NAMES.items() if metadata else ():
        value = metadata.get(name)
        if value and isinstance(value, (str, int, float)):
            meta[fact] = value
    milliseconds = as_number(metadata.get("durationMs")) or as_number(
        metadata.get("totalDurationMs")
    )
    meta["duration"] = (
        milliseconds / 1000 if milliseconds else as_number(metadata.get("durationSeconds"))
    )
    meta["denial"] = get_text(line, "toolDenialKind")
    return meta
