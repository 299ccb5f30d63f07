"""A session prepared for a writer: turns with calls and results, as an agent can represent them."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast
from uuid import UUID

from rekindle.json_fields import JsonObject, as_object, get_text
from rekindle.pages.text import replace_surrogates
from rekindle.transcripts.export.common import format_arguments, parse_arguments
from rekindle.types import MAX_TITLE_CHARS, Content, Message, Session, ToolCall

_BACKTICKS = re.compile(r"`{3,}")
_MAX_NAME_LENGTH = 100
# Parts with which an image may arrive.
_IMAGE_TYPES = ("image", "image_url", "input_image")

# What is counted as left out or changed.
IMAGES = "image"
ATTACHMENTS = "attachment"
SYSTEM_MESSAGES = "system message"
LONE_RESULTS = "result without its call"
CALLS_AS_TEXT = "call written as text"


class AgentRules(NamedTuple):
    """What an agent accepts.

    `tools` names the tools it has and the arguments that each requires; they decide which calls of other
    agents it is shown as calls. Its own calls are kept if their names and ids are valid.
    """

    agent: str
    session_id: re.Pattern[str]
    call_id: re.Pattern[str]
    tool_name: re.Pattern[str]
    tools: Mapping[str, frozenset[str]]
    accepts_text_arguments: bool = False
    accepts_open_calls: bool = True  # the agent itself completes calls without a result
    session_prefix: str = ""  # of ids that are not UUIDs


class TurnCallResult(NamedTuple):
    """The result of a call."""

    texts: tuple[str, ...]
    failed: bool
    exit_code: int | None
    time: float
    arrival: int  # results of calls that ran at the same time arrive in any order


class TurnCall(NamedTuple):
    """A call that the agent is shown as a call; `result` is None if it was cut off.

    `arguments` is an object, or else the text that the model wrote; `text` is that text if it was kept.
    """

    id: str
    name: str
    arguments: JsonObject | str
    result: TurnCallResult | None
    text: str = ""


class Turn(NamedTuple):
    """A prompt, or an answer with its calls.

    `id` is the agent's own id of the message, None if another program wrote it. `summary` replaces
    everything before this turn for the model.
    """

    role: str
    texts: tuple[str, ...]
    calls: tuple[TurnCall, ...]
    id: str | None
    time: float
    finish_reason: str | None = None
    model: str | None = None
    summary: str | None = None
    tokens_before: int = 0
    meta: Mapping[str, Any] = {}

    def list_results(self) -> list[tuple[TurnCall, TurnCallResult]]:
        """Return the calls that have a result, in the order in which the results arrived."""
        found = [(call, call.result) for call in self.calls if call.result is not None]
        return sorted(found, key=lambda pair: pair[1].arrival)


class WritableSession(NamedTuple):
    """A session as an agent can represent it. `omitted` counts what was left out or changed."""

    agent: str
    id: str
    session: Session
    folder: str
    is_native: bool  # the agent itself wrote the session
    turns: tuple[Turn, ...]
    omitted: Mapping[str, int]
    title: str | None = None  # that the agent is to show

    @property
    def provider(self) -> str | None:
        """The provider of the session's model, as the agent that is to resume it names it."""
        config = self.session.model_config if self.is_native else None
        return get_text(dict(config or {}), "provider")


def prepare_conversation(
    rules: AgentRules,
    session: Session,
    messages: Iterable[Message],
    folder: str,
    title: str | None = None,
) -> WritableSession:
    """Prepare a session for the writer of an agent."""
    is_native = session.source == rules.agent
    builder = _TurnBuilder(rules, session, is_native=is_native)
    turns = tuple(builder.build_turns(list(messages)))
    return WritableSession(
        agent=rules.agent,
        id=choose_session_id(rules, session),
        session=session,
        folder=folder,
        is_native=is_native,
        turns=turns,
        omitted=dict(builder.omitted),
        title=" ".join(replace_surrogates(title or "").split())[:MAX_TITLE_CHARS] or None,
    )


def choose_session_id(rules: AgentRules, session: Session) -> str:
    """Return the id of a session for an agent: its own, or one that is derived from it.

    A session that has grown since it was handed over gets another one, and is handed over again.
    """
    if session.source == rules.agent and rules.session_id.fullmatch(session.id):
        return session.id
    key = f"{session.message_count} messages"
    if not rules.session_prefix:
        return derive_uuid(rules.agent, session.id, key)
    return f"{rules.session_prefix}{derive_hex(rules.agent, session.id, key)[:26]}"


class _TurnBuilder:
    """The turns of one session being prepared."""

    def __init__(self, rules: AgentRules, session: Session, *, is_native: bool) -> None:
        self.rules = rules
        self.session = session
        self.is_native = is_native
        self.omitted: Counter[str] = Counter()
        self.used_ids: set[str] = set()
        self.time = session.started

    def build_turns(self, messages: Sequence[Message]) -> Iterator[Turn]:
        """Yield the turns; a compaction belongs to the turn after it."""
        results = self._pair_results(messages)
        compacted: JsonObject = {}
        for index, message in enumerate(messages):
            compacted = as_object((message.meta or {}).get("compacted")) or compacted
            if message.timestamp is not None:
                self.time = message.timestamp
            if message.role not in ("user", "assistant"):
                continue
            turn = self._build_turn(message, results.get(index, {}), compacted)
            if turn.texts or turn.calls:
                compacted = {}
                yield turn

    def _pair_results(
        self, messages: Sequence[Message]
    ) -> dict[int, dict[int, tuple[int, Message]]]:
        """Return the results by the index of the answer and the number of the call in it."""
        open_calls: dict[str, deque[tuple[int, int]]] = {}
        paired: dict[int, dict[int, tuple[int, Message]]] = {}
        for index, message in enumerate(messages):
            for number, call in enumerate(message.tool_calls):
                open_calls.setdefault(call.id, deque()).append((index, number))
            if message.role in ("tool", "function"):
                waiting = open_calls.get(message.tool_call_id or "")
                if waiting:
                    answer, number = waiting.popleft()
                    paired.setdefault(answer, {})[number] = index, message
                else:
                    self.omitted[LONE_RESULTS] += 1
            elif message.role not in ("user", "assistant"):
                self.omitted[SYSTEM_MESSAGES] += 1
        return paired

    def _build_turn(
        self, message: Message, results: Mapping[int, tuple[int, Message]], compacted: JsonObject
    ) -> Turn:
        texts = self._list_texts(message.content)
        calls: list[TurnCall] = []
        for number, call in enumerate(message.tool_calls):
            result = self._build_result(results.get(number))
            kept = self._keep_call(call, result)
            if kept is None:
                self.omitted[CALLS_AS_TEXT] += 1
                texts = [*texts, format_call(call, result)]
            else:
                calls.append(kept)
        meta = message.meta or {}
        return Turn(
            role=message.role,
            texts=tuple(texts),
            calls=tuple(calls),
            id=message.platform_message_id if self.is_native else None,
            time=self.time,
            finish_reason=message.finish_reason if self.is_native else None,
            model=(get_text(dict(meta), "model") or self.session.model) if self.is_native else None,
            summary=get_text(compacted, "summary"),
            tokens_before=_parse_count(compacted.get("tokens_before")),
            meta=meta,
        )

    def _build_result(self, paired: tuple[int, Message] | None) -> TurnCallResult | None:
        if paired is None:
            return None
        arrival, message = paired
        meta = message.meta or {}
        code: object = meta.get("exit_code")
        return TurnCallResult(
            texts=tuple(self._list_texts(message.content)),
            failed=meta.get("is_error") is True,
            exit_code=code if isinstance(code, int) else None,
            time=self.time if message.timestamp is None else message.timestamp,
            arrival=arrival,
        )

    def _keep_call(self, call: ToolCall, result: TurnCallResult | None) -> TurnCall | None:
        """Return the call as the agent is shown it, or None if it has to become text."""
        rules = self.rules
        name = replace_surrogates(call.name)
        arguments = _parse_call_arguments(call)
        if isinstance(arguments, str):
            is_shown = self.is_native and rules.accepts_text_arguments
        else:
            needed = rules.tools.get(name)
            is_shown = self.is_native or (needed is not None and needed <= arguments.keys())
        if not (is_shown and rules.tool_name.fullmatch(name)):
            return None
        # Another agent's call without a result would look as if it were still running.
        if result is None and not (self.is_native and rules.accepts_open_calls):
            return None
        text = call.arguments if isinstance(call.arguments, str) else ""
        return TurnCall(self._choose_call_id(call.id), name, arguments, result, text)

    def _choose_call_id(self, id: str) -> str:
        number = len(self.used_ids)
        if not self.rules.call_id.fullmatch(id) or id in self.used_ids:
            id = f"call_{derive_hex(self.rules.agent, self.session.id, f'call {number}')[:24]}"
        self.used_ids.add(id)
        return id

    def _list_texts(self, content: Content) -> list[str]:
        """Return the texts of a message, with a mark for everything else."""
        if isinstance(content, str) or content is None:
            return [replace_surrogates(content)] if content else []
        return [text for part in content if (text := self._format_part(dict(part)))]

    def _format_part(self, part: JsonObject) -> str:
        value = part.get("text", part.get("refusal"))
        if isinstance(value, str):
            return replace_surrogates(value)
        if part.get("type") in _IMAGE_TYPES:
            self.omitted[IMAGES] += 1
            return "[image left out]"
        self.omitted[ATTACHMENTS] += 1
        return "[attachment left out]"


def format_call(call: ToolCall, result: TurnCallResult | None) -> str:
    """Return a call and its result as text, in fences that neither of them can close."""
    name = " ".join(replace_surrogates(call.name).split())[:_MAX_NAME_LENGTH] or "unnamed tool"
    lines = [f"[Called {name}]", fence_text(format_arguments(call))]
    if result is None:
        lines.append("[No result was recorded]")
    else:
        label = "[It failed]" if result.failed else "[Result]"
        lines += [label, fence_text("\n".join(result.texts))]
    return "\n".join(lines)


def fence_text(text: str) -> str:
    """Return the text in a fence that is longer than every fence in it."""
    longest = max((len(found) for found in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _parse_call_arguments(call: ToolCall) -> JsonObject | str:
    arguments = parse_arguments(call)
    if isinstance(arguments, Mapping):
        return dict(cast("Mapping[str, Any]", arguments))
    if call.arguments == "":
        return {}
    return call.arguments if isinstance(call.arguments, str) else {}


def _parse_count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**53 else 0


# -- ids, times and lines -------------------------------------------------------------------------


def derive_uuid(agent: str, session: str, key: str = "") -> str:
    """Return a UUID that is always the same for this session and key."""
    return str(UUID(hex=derive_hex(agent, session, key)[:32], version=5))


def derive_hex(agent: str, session: str, key: str) -> str:
    """Return 64 hex digits that are always the same for this session and key."""
    identity = f"rekindle\n{agent}\n{session}\n{key}"
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()


def format_iso_time(seconds: float) -> str:
    """Format a time in UTC to the millisecond."""
    try:
        moment = datetime.fromtimestamp(max(0.0, seconds), UTC)
    except (OverflowError, ValueError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_milliseconds(seconds: float) -> int:
    """Return a time in milliseconds."""
    return round(max(0.0, seconds) * 1000)


def encode_line(value: JsonObject) -> str:
    """Encode one line of a file.

    It is ASCII alone: some readers split lines at U+2028, and others reject a lone surrogate.
    """
    return encode_document(value) + "\n"


def encode_document(value: JsonObject) -> str:
    """Encode a value as JSON, without numbers and characters that JSON does not have."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = "\\ud"
    if "\\ud" in text:  # a surrogate, possibly without its other half
        data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        plain = json.loads(data, parse_constant=lambda _: None)
        text = json.dumps(plain, separators=(",", ":"))
    return text
