"""Builders that all readers share: one for a session and its messages, one for a split answer.

A session is opened once, right before its first message, and repeated at the end with everything learned
from the file. Details that belong to the next message (`pending_meta`) and a message that must wait for
the end (`held_message`) are kept here as well.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from operator import lt, sub
from pathlib import Path
from typing import Any, cast

from rekindle.json_fields import (
    JsonObject,
    as_count,
    as_number,
    as_object,
    drop_none,
    get_text,
    make_text_part,
    to_content,
)
from rekindle.transcripts.events import SessionStarted, SessionUpdated, TranscriptEvent
from rekindle.transcripts.jsonio.jsonl import decode_json
from rekindle.types import (
    JSON,
    PROMPT_SIZES,
    QUARTER_SECONDS,
    Message,
    Session,
    Tokens,
    ToolCall,
    Usage,
    UsageEntry,
    replace_fields,
)

# Some exports mask ids; a masked id identifies nothing.
MASKED_IDS = frozenset({"", "REDACTED"})
_MAX_COST = 1e9
_MAX_TIME = 253_402_300_800.0  # the end of the year 9999
_NO_COST = Decimal(0)


class SessionBuilder:
    """One session being read."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.is_started = False
        # For the `meta` of the next message.
        self.pending_meta: dict[str, JSON] = {}
        self.tool_names: dict[str, str] = {}
        # Ids only, never content: needed to recognize copies.
        self.seen: set[str] = set()
        # Held back because only the end shows which message is the last.
        self.held_message: Message | None = None
        self.abandoned: frozenset[str] = frozenset()  # ids of messages on branches left behind
        # By quarter of an hour, model and size of the prompt; the first two if they are known.
        self._entries: dict[tuple[int | None, str | None, int], UsageEntry] = {}
        self._copied = Usage()  # in the session's totals, but used by its parent

    def set_fields(self, **fields: Any) -> None:
        """Set fields of the session; after its first message the id cannot change any more."""
        if self.is_started:
            fields.pop("id", None)
        self.session = replace_fields(self.session, **fields)

    def fill_fields(self, **fields: Any) -> None:
        """Set those fields of the session that are not known yet, from values that are not empty."""
        known = self.session
        new = {name: fields[name] for name in fields if fields[name] and not getattr(known, name)}
        if new:
            self.session = replace_fields(known, **new)

    def add_usage(
        self,
        tokens: Tokens,
        cost: Decimal = _NO_COST,
        *,
        time: float | None = None,
        model: str | None = None,
        cache_write_1h: int = 0,
        prompt: int | None = None,
        is_copied: bool = False,
    ) -> None:
        """Add what a model call used to the session's totals.

        `prompt` is the size of the prompt, if it is not the sum of the input tokens. A fork repeats
        its parent's calls, which `is_copied` marks: the parent used those tokens.
        """
        known = self.session
        self.session = replace_fields(
            known, tokens=known.tokens.add(tokens), cost=known.cost + cost
        )
        if is_copied:
            self._copied = self._copied.add(Usage(tokens, cost))
        else:
            prompt = _measure_prompt(tokens) if prompt is None else prompt
            self._add_entry(model or "", tokens, time, prompt, cost, cache_write_1h)

    def set_usage(
        self,
        total: Tokens,
        *,
        time: float | None,
        model: str | None,
        prompt: int,
        is_copied: bool = False,
    ) -> None:
        """Set the session's totals, as a format counts them that adds up itself."""
        before = self.session.tokens
        is_restarted = any(map(lt, total, before))
        used = total if is_restarted else Tokens(*map(sub, total, before))
        self.session = replace_fields(self.session, tokens=total)
        if is_copied:
            self._copied = Usage(total)
        elif any(used):
            self._add_entry(model or "", used, time, prompt)

    def raise_usage(self, model: str, total: Tokens, time: float | None) -> None:
        """Add what a model used in total, beyond the calls that are known."""
        known = Tokens()
        for entry in self._entries.values():
            known = known.add(entry.tokens) if entry.model == model else known
        if any(rest := subtract_tokens(total, known)):
            self._add_entry(model, rest, time, 0)

    def _add_entry(
        self,
        model: str,
        tokens: Tokens,
        time: float | None,
        prompt: int,
        cost: Decimal = _NO_COST,
        cache_write_1h: int = 0,
    ) -> None:
        above = PROMPT_SIZES[max(0, bisect_left(PROMPT_SIZES, prompt) - 1)]
        is_dated = time is not None and 0 <= time < _MAX_TIME
        quarter = int(time or 0) // QUARTER_SECONDS if is_dated else None
        key = quarter, model or None, above
        if known := self._entries.get(key):
            tokens = known.tokens.add(tokens)
            cost += known.cost
            cache_write_1h += known.cache_write_1h
        self._entries[key] = UsageEntry(quarter or 0, model, tokens, cost, cache_write_1h, above)

    def _build_entries(self) -> tuple[UsageEntry, ...]:
        """Return when the models used the session's tokens; empty if no time is known."""
        session, own = self.session, self.session.model or ""
        quarters = [quarter for quarter, _, _ in self._entries if quarter is not None]
        last = max(quarters, default=int(session.started) // QUARTER_SECONDS)
        if self._copied != Usage() and not self._entries:
            self._add_entry(own, Tokens(), None, 0)  # a fork that did nothing yet
        if not (self._entries and last):
            return ()
        rest = subtract_tokens(session.tokens, self._copied.tokens)
        cost = session.cost - self._copied.cost
        if cost > sum(entry.cost for entry in self._entries.values()):
            # The agent reports a cost, but not of which call.
            return (UsageEntry(last, own, rest, cost),)
        for entry in self._entries.values():
            rest = subtract_tokens(rest, entry.tokens)
        if any(rest):
            self._add_entry(own, rest, None, 0)
        built: dict[tuple[int, str, int], UsageEntry] = {}
        for (quarter, model, above), entry in self._entries.items():
            key = last if quarter is None else quarter, model or own, above
            known = built.get(key, UsageEntry(*key[:2], Tokens(), above=above))
            built[key] = known._replace(
                tokens=known.tokens.add(entry.tokens),
                cost=known.cost + entry.cost,
                cache_write_1h=known.cache_write_1h + entry.cache_write_1h,
            )
        return tuple(built.values())

    def is_new(self, id: str) -> bool:
        """Return whether this id was not seen before, and remember it."""
        if id in self.seen:
            return False
        self.seen.add(id)
        return True

    def pop_pending_meta(self) -> dict[str, JSON]:
        """Return the details that were waiting for this message."""
        meta, self.pending_meta = self.pending_meta, {}
        return meta

    def open_answer(self, id: str, timestamp: float | None) -> AnswerBuilder:
        """Return a builder for an answer, with the details that were waiting for it."""
        answer = AnswerBuilder(id, timestamp)
        answer.meta.update(self.pop_pending_meta())
        return answer

    def start_session(self) -> Sequence[TranscriptEvent]:
        """Return the session's start event, unless it was started before."""
        if self.is_started:
            return ()
        self.is_started = True
        return (SessionStarted(self.session),)

    # These return sequences: most messages are one event, and starting a generator is slower.

    def append_message(self, message: Message) -> Sequence[TranscriptEvent]:
        """Return the message, after the session's start if it is the first."""
        if self.is_started:
            return (message,)
        return (*self.start_session(), message)

    def append_messages(self, messages: Sequence[Message]) -> Sequence[TranscriptEvent]:
        """Return the messages, after the session's start if they are the first."""
        if not messages or self.is_started:
            return messages
        return (*self.start_session(), *messages)

    def hold_message(self, message: Message) -> Sequence[TranscriptEvent]:
        """Hold a message back and return the one that was held before."""
        held, self.held_message = self.held_message, message
        return () if held is None else self.append_message(held)

    def release_message(self, meta: Mapping[str, JSON]) -> Sequence[TranscriptEvent]:
        """Return the held message, with the details of the whole session added to its `meta`."""
        held, self.held_message = self.held_message, None
        return () if held is None else self.append_message(add_meta(held, meta))

    def finish(self) -> Iterator[TranscriptEvent]:
        """Yield the session with everything learned from the file."""
        if self.is_started:
            yield SessionUpdated(self.session, self._build_entries(), self.abandoned)


class SessionSwitch:
    """The stream of a file that alternates between sessions; each switch repeats the start."""

    def __init__(self) -> None:
        self.active: SessionBuilder | None = None

    def append_messages(
        self, session: SessionBuilder, messages: Sequence[Message]
    ) -> Sequence[TranscriptEvent]:
        """Return the messages, after the session's start if another one was active."""
        if not messages or self.active is session:
            return messages
        self.active = session
        session.is_started = True
        return [SessionStarted(session.session), *messages]


class AnswerBuilder:
    """The parts of one answer, plus the tool results and prompts that arrived in the meantime."""

    def __init__(self, id: str, timestamp: float | None) -> None:
        self.id = id
        self.timestamp = timestamp
        self.parts: list[dict[str, JSON]] = []
        self.reasoning: list[str] = []
        self.calls: dict[str, ToolCall] = {}
        self.results: list[Message] = []
        self.prompts: list[Message] = []
        self.finish_reason: str | None = None
        self.usage: JsonObject = {}  # from the answer's last line
        self.model: str | None = None
        self.is_copied = False  # from the parent of a fork
        self.meta: dict[str, JSON] = {}

    @property
    def has_output(self) -> bool:
        """Whether the answer has content or tool calls, not only reasoning."""
        return bool(self.parts or self.calls)

    def add_text(self, value: str | None) -> None:
        if value:
            self.add_part(make_text_part(value))

    def add_part(self, part: Mapping[str, JSON]) -> None:
        # A resumed session repeats earlier lines: an identical part is a copy.
        if part not in self.parts:
            self.parts.append(dict(part))

    def add_reasoning(self, value: str | None) -> None:
        if value and value not in self.reasoning:
            self.reasoning.append(value)

    def add_call(self, call: ToolCall) -> None:
        self.calls.setdefault(call.id, call)

    def build(self) -> Message:
        """Return the answer as one message."""
        return Message(
            role="assistant",
            content=to_content(self.parts),
            tool_calls=tuple(self.calls.values()),
            reasoning="\n\n".join(self.reasoning) or None,
            finish_reason=self.finish_reason,
            platform_message_id=self.id,
            meta=drop_none(self.meta),
            timestamp=self.timestamp,
        )


def add_meta(message: Message, meta: Mapping[str, JSON]) -> Message:
    """Return the message with these details added to its `meta`."""
    return replace_fields(message, meta=drop_none({**(message.meta or {}), **meta}))


def join_thoughts(thoughts: Iterable[str | None]) -> str | None:
    """Return the reasoning of an answer, whose parts a format keeps apart."""
    return "\n\n".join(thought for thought in thoughts if thought) or None


def make_image_part(url: str) -> dict[str, JSON]:
    """Return an image as a content part."""
    return {"type": "image_url", "image_url": {"url": url}}


def make_inline_image(kind: str | None, data: str) -> dict[str, JSON]:
    """Return an image that is in the file itself as a content part."""
    return make_image_part(f"data:{kind or 'image/png'};base64,{data}")


# -- ids ------------------------------------------------------------------------------------------


def make_path_id(kind: str, path: Path | str, position: str) -> str:
    """Return an id that is stable while the file grows and unique across files.

    A `path` given as text must already be resolved, since resolving it checks every parent folder.
    """
    resolved = path if isinstance(path, str) else path.resolve()
    return make_hash_id(kind, f"{resolved}\n{position}")


def make_hash_id(kind: str, identity: str) -> str:
    """Return an id derived from the hash of `identity`."""
    return f"{kind}-{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def make_run_id(name: str, identity: str) -> str:
    """Return the id of a run of a named task, which may be run many times."""
    digest = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{name}-{digest[:12]}"


# -- calls, tokens and codes ----------------------------------------------------------------------


def make_tool_call(id: str, name: str | None, arguments: object) -> ToolCall:
    """Return a call; arguments that are neither text nor an object count as missing."""
    is_valid = isinstance(arguments, (str, dict))
    return ToolCall(id, name or "", cast("str | JsonObject", arguments) if is_valid else "")


def parse_function_call(call: JsonObject, fallback_id: str, *id_names: str) -> ToolCall:
    """Parse a call in the OpenAI format, whose name and arguments may be under `function`."""
    function = as_object(call.get("function")) or call
    id = get_text(call, *(id_names or ("id",))) or fallback_id
    return make_tool_call(id, get_text(function, "name"), function.get("arguments"))


def to_arguments(value: Any) -> str | JsonObject:
    """Return the arguments of a call: text as it was written, an object, or any other value as JSON."""
    if isinstance(value, (str, dict)):
        return cast("str | JsonObject", value)
    return "" if value is None else json.dumps(value)


def parse_tokens(usage: JsonObject, *names: str, is_cache_in_input: bool = False) -> Tokens:
    """Return the counts in these fields, which are named in the order of `Tokens`.

    Rekindle's input excludes cached tokens; many formats include them.
    """
    tokens = Tokens(*map(as_count, map(usage.get, names)))
    if not is_cache_in_input:
        return tokens
    new = max(0, tokens.input - tokens.cache_read - tokens.cache_write)
    return Tokens(new, *tokens[1:])


def _measure_prompt(tokens: Tokens) -> int:
    return tokens.input + tokens.cache_read + tokens.cache_write


def subtract_tokens(total: Tokens, known: Tokens) -> Tokens:
    """Return the counts beyond those that are known."""
    return Tokens(*(max(0, now - then) for now, then in zip(total, known, strict=True)))


def parse_cost(value: object) -> Decimal:
    """Return a cost in dollars, or 0 if it is not a plausible one."""
    cost = as_number(value) or 0.0
    return Decimal(str(cost)) if 0 < cost < _MAX_COST else Decimal(0)


def parse_exit_code(value: object) -> int | None:
    """Return an exit code, or None if it is not an integer that JSON can hold."""
    is_code = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53
    return cast(int, value) if is_code else None


def decode_text(value: object) -> Any:
    """Return the JSON value in a text, None if it is not JSON, and any other value unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return decode_json(value.encode("utf-8", "replace"))
    except ValueError:
        return None
