"""The values everyone speaks.

All of them are named tuples: immutable, equal by content, and built at the speed of a tuple, because
a loaded session is made of nothing else. (A frozen dataclass takes ten times as long to build, and
its module longer to import than everything that a first write needs.)
"""

# pyright: reportUnnecessaryIsInstance=false
# `checked` stands at the edge, where callers may not be typed.
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from operator import add
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast

from rekindle.errors import InvalidInput

JSON: TypeAlias = Any  # whatever JSON can say; nothing here looks inside without checking
Content: TypeAlias = str | Sequence[Mapping[str, JSON]] | None

ChatType: TypeAlias = Literal["dm", "group", "channel", "thread"]
ResetMode: TypeAlias = Literal["none", "idle", "daily", "both"]
PatternKind: TypeAlias = Literal["init", "sequence", "retry", "final", "example"]
TemplateState: TypeAlias = Literal["active", "quarantined", "retired"]
Place: TypeAlias = tuple[str | None, str | None]  # platform and chat type; None means each of them

MAX_TITLE = 100
LAST_MOMENT = 253_402_300_800.0  # the year 10000, in UTC seconds; NaN is not before it
MAX_NAME = 512  # ids, owners, sources: what an index entry holds on every engine

V = TypeVar("V", bound=tuple[Any, ...])


class ToolCall(NamedTuple):
    """One call inside an assistant message. `arguments` is what the model wrote, mostly JSON text."""

    id: str
    name: str
    arguments: str | Mapping[str, JSON] = ""


class _Entry(NamedTuple):
    role: str
    content: Content
    tool_calls: tuple[ToolCall, ...]
    tool_call_id: str | None
    name: str | None
    reasoning: str | None
    finish_reason: str | None
    platform_message_id: str | None
    meta: Mapping[str, JSON] | None
    timestamp: float | None
    position: int | None
    rewound: bool


_new = cast(Any, tuple).__new__
_SAID = 9  # the fields before `timestamp`
_INFINITE = float("inf")
_SCALARS = {str, int, bool, type(None)}  # what JSON can say without a closer look


class Message(_Entry):
    """One entry of a conversation, in the OpenAI chat shape.

    `timestamp` (UTC seconds), `position` and `rewound` are the store's knowledge about the entry,
    not part of what was said: they take no part in equality, so a message comes back equal to the
    one that went in. `meta` holds what a protocol says beside the text, such as `is_error`.
    """

    __slots__ = ()

    def __new__(
        cls,
        role: str,
        content: Content = None,
        tool_calls: Iterable[ToolCall] | None = (),
        tool_call_id: str | None = None,
        name: str | None = None,
        reasoning: str | None = None,
        finish_reason: str | None = None,
        platform_message_id: str | None = None,
        meta: Mapping[str, JSON] | None = None,
        timestamp: float | None = None,
        position: int | None = None,
        rewound: bool = False,
    ) -> Message:
        return _new(
            cls,
            (
                role,
                list(content) if isinstance(content, tuple) else content,
                tuple(tool_calls) if tool_calls else (),
                tool_call_id,
                name,
                reasoning,
                finish_reason,
                platform_message_id,
                meta,
                timestamp,
                position,
                rewound,
            ),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self[:_SAID] == other[:_SAID]

    def __ne__(self, other: object) -> bool:  # a tuple brings its own
        return not self == other

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # content may hold lists

    @property
    def text(self) -> str:
        """The readable text of the content, whatever its shape."""
        if isinstance(self.content, str):
            return self.content
        parts = (part.get("text") for part in self.content or () if isinstance(part, Mapping))
        return "\n".join(part for part in parts if isinstance(part, str))


class Tokens(NamedTuple):
    """Token counts of a session, or of one model call to add to them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def plus(self, other: Tokens) -> Tokens:
        return Tokens._make(map(add, self, other))

    @property
    def total(self) -> int:
        return self.input + self.output


class Usage(NamedTuple):
    """What was taken, and what it cost."""

    tokens: Tokens = Tokens()
    cost: Decimal = Decimal(0)

    def plus(self, other: Usage) -> Usage:
        return Usage(self.tokens.plus(other.tokens), self.cost + other.cost)


class Price(NamedTuple):
    """What a million tokens of a model cost."""

    input: Decimal = Decimal(0)
    output: Decimal = Decimal(0)
    cache_read: Decimal = Decimal(0)
    cache_write: Decimal = Decimal(0)

    def of(self, tokens: Tokens) -> Decimal:
        counts = (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)
        parts = zip(self, counts, strict=True)
        return sum((price * count for price, count in parts), Decimal(0)) / 1_000_000


class Session(NamedTuple):
    """One conversation. Times are UTC seconds; counts speak of what is not rewound."""

    id: str
    source: str = "local"
    owner: str | None = None
    user: str | None = None
    model: str | None = None
    title: str | None = None
    parent: str | None = None
    forked_at: int | None = None
    started: float = 0.0
    last_active: float = 0.0
    ended: float | None = None
    end_reason: str | None = None
    message_count: int = 0
    tool_call_count: int = 0
    template: str | None = None
    arm: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    preview: str | None = None
    archived: float | None = None
    pruned: float | None = None
    model_config: Mapping[str, JSON] | None = None
    tokens: Tokens = Tokens()
    cost: Decimal = Decimal(0)


class Hit(NamedTuple):
    """One search result: where it is, the text around the match, and the messages around it."""

    session: Session
    message: Message
    snippet: str
    before: tuple[Message, ...] = ()
    after: tuple[Message, ...] = ()


class Call(NamedTuple):
    """A tool call of a session, and what became of it.

    `outcome` is ok, error, expected (it ran, and said no: a search without a hit, a failing test),
    refused or unknown. `failed` tells whether the call did not do what it was asked, None where
    nothing speaks; `rule` names the rule that judged, `confidence` how far to trust it.
    """

    session: str
    position: int  # of the message that makes the call
    number: int  # among the calls of that message
    id: str
    tool: str
    work: str  # code (a command that runs code too), file, research, terminal, general, …
    digest: int  # of tool and arguments: the same call again has the same
    outcome: str
    failed: bool | None
    error_kind: str | None
    fault: str | None  # agent or environment, where the kind tells
    rule: str
    confidence: float
    duration: float | None = None  # seconds
    answered: int | None = None  # position of the result


class Judged(NamedTuple):
    """A session with all its calls in order, and the positions before which it was compressed."""

    session: Session
    calls: tuple[Call, ...]
    compressions: tuple[int, ...] = ()


class Rewind(NamedTuple):
    """A stretch of messages taken out of a conversation, ready to be brought back."""

    id: int
    session: str
    kind: str
    since: int
    messages: int
    time: float
    restored: float | None = None


class Finding(NamedTuple):
    """Something `verify` found wrong, and whether `repair` can mend it."""

    check: str
    where: str
    detail: str
    repairable: bool = True


class Stats(NamedTuple):
    """What a store holds, and what it costs on disk."""

    engine: str
    location: str
    version: int
    sessions: int
    archived: int
    pruned: int
    messages: int
    rewound: int
    text_bytes: int
    disk_bytes: int
    index_bytes: int
    by_source: Mapping[str, int]
    by_model: Mapping[str, Usage]  # "" where nobody said which model it was
    first: float | None
    last: float | None


class Source(NamedTuple):
    """Where a message came from. Names and topic are what strangers typed: clean before showing."""

    platform: str
    chat_id: str
    chat_name: str | None = None
    chat_type: ChatType = "dm"
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None


class Route(NamedTuple):
    """A conversation's key, and the session where it goes on."""

    key: str
    session: str
    origin: Source
    display_name: str
    created: float
    updated: float
    previous: str | None = None  # the session before this one: the way back
    reset: str | None = None  # why it started anew by itself, until the user was told
    tokens: Tokens = Tokens()
    usage: Mapping[str, Usage] = {}  # of each model, in all its sessions


class Policy(NamedTuple):
    """When a conversation starts anew by itself; `hour` is that of the daily reset in `zone`."""

    mode: ResetMode = "both"
    idle_minutes: int = 1440
    hour: int = 4
    zone: str = "UTC"


class KeyRule(NamedTuple):
    """What tells two conversations apart, beyond the chat.

    `direct`: do direct messages come from one person (`single`), or has each chat its own
    conversation (`shared`)? `thread` and `user` give each of those its own.
    """

    direct: Literal["single", "shared"] = "single"
    thread: bool = False
    user: bool = False


class Layered(NamedTuple, Generic[V]):
    """A value for everywhere, and the fields of it that differ in some places."""

    default: V
    changes: Mapping[Place, Mapping[str, JSON]] = {}


class Step(NamedTuple):
    """One call of a pattern, as it is shown again: slots such as `<path:py>` stand where it varies.

    `result` is a short account of what came back, empty where nothing is worth telling. `example`
    are the arguments of one such call as it was made for what was asked, redacted: what they are like
    is what a slot cannot tell.
    """

    tool: str
    arguments: Mapping[str, JSON]
    result: str = ""
    example: Mapping[str, JSON] | None = None


class Pattern(NamedTuple):
    """Something that worked before: one to six calls, and where that is known from.

    `kind`: `init` opens sessions, `final` closes them, `sequence` is a way of doing things, `retry`
    the call that mended an error, `example` a single call worth showing. For a retry `before` is
    the call that failed and `lesson` the difference.
    """

    id: str  # a digest of kind and steps: the same pattern has the same
    kind: PatternKind
    steps: tuple[Step, ...]
    asked: str = ""  # what the user wanted, redacted
    before: Step | None = None
    lesson: str = ""
    support: int = 1  # how often it was seen
    sessions: tuple[str, ...] = ()  # in which: its provenance, newest first, bounded
    seen_in: int = 1  # sessions in all
    last_seen: float = 0.0
    error_rate: float = 0.0  # of such calls elsewhere: where others fail, an example helps
    score: float = 0.0
    tainted: bool = False  # it may stem from words of strangers
    also: tuple[str, ...] = ()  # other requests that it served, redacted


class Style(NamedTuple):
    """How a user speaks to the agent."""

    messages: int = 0
    mean_length: float = 0.0
    questions: float = 0.0  # share
    commands: float = 0.0  # share
    preferred: str = ""


class Seed(NamedTuple):
    """What a session was about, beside its calls. All of it is redacted."""

    system: str = ""
    instructions: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()  # files and URLs, the most used first
    style: Style = Style()


class Template(NamedTuple):
    """What a warm session is started from. `id` is the name of its file."""

    id: str
    name: str
    description: str = ""
    task_type: str = "mixed"
    tags: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    seed: Seed = Seed()
    sources: tuple[str, ...] = ()  # the sessions it was learned from
    state: TemplateState = "active"
    made: str = "built"  # built, extracted, merged, imported, automatic
    revision: int = 1  # raised with every change
    created: float = 0.0
    updated: float = 0.0
    scan: Mapping[str, JSON] = {}  # what was looked at when it was built


def replace(value: V, **changes: Any) -> V:
    """The value, with some of its fields changed."""
    # Not `_replace`: it goes through all fields to change one, and a session has two dozen.
    kind: Any = type(value)
    fields = list(value)
    for name, new in changes.items():
        fields[kind._fields.index(name)] = new
    return kind._make(fields)


def plain(value: Any) -> Any:
    """A value as JSON can say it: objects for values, without the fields that say nothing."""
    names: tuple[str, ...] | None = getattr(value, "_fields", None)
    if names is not None:
        fields = dict(zip(names, value, strict=True))
        return {name: plain(field) for name, field in fields.items() if field not in (None, ())}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in cast(list[Any], value)]
    if isinstance(value, Mapping):
        return {name: plain(field) for name, field in cast(Mapping[str, Any], value).items()}
    return str(value) if isinstance(value, Decimal) else value


def checked(message: Message) -> Message:
    """Return `message`, or refuse it with the field that is wrong."""
    if not isinstance(message, Message):
        raise InvalidInput(f"expected a Message, got {type(message).__name__}")
    role, content, calls, call_id, name, reasoning, finish, platform_id, meta, at = message[:10]
    if not isinstance(role, str) or not 0 < len(role) <= 64:
        raise InvalidInput(f"message.role: expected 1 to 64 characters, got {role!r:.80}")
    if content is not None and not isinstance(content, str):
        _check_parts(content)
    if calls:
        _check_calls(calls)
    # Every message that is stored comes by here: what most of them lack is passed over without a call.
    if not (
        (call_id is None or isinstance(call_id, str))
        and (name is None or isinstance(name, str))
        and (reasoning is None or isinstance(reasoning, str))
        and (finish is None or isinstance(finish, str))
    ):
        _check_text(message, "tool_call_id", "name", "reasoning", "finish_reason")
    if platform_id is not None:
        checked_name("message.platform_message_id", platform_id)
    if meta is not None:
        if not isinstance(meta, Mapping):
            raise InvalidInput(f"message.meta: expected a mapping, got {type(meta).__name__}")
        _check_json("message.meta", meta)
    if at is not None and not (isinstance(at, (int, float)) and abs(at) < LAST_MOMENT):
        raise InvalidInput(f"message.timestamp: expected UTC seconds, got {at!r:.80}")
    return message


def _check_parts(content: object) -> None:
    if not isinstance(content, list):
        kind = type(content).__name__
        raise InvalidInput(f"message.content: expected text or a list of parts, got {kind}")
    for part in cast(list[object], content):
        if not isinstance(part, Mapping):
            kind = type(part).__name__
            raise InvalidInput(f"message.content: expected a mapping for each part, got {kind}")
    _check_json("message.content", cast(object, content))


def _check_json(field: str, value: object, *, allow_nan: bool = False) -> None:
    if isinstance(value, Mapping):
        facts = cast(Mapping[object, object], value).items()
        for key, fact in facts:
            kind = type(fact)
            is_plain = kind in _SCALARS or (kind is float and abs(cast(float, fact)) < _INFINITE)
            if not is_plain or type(key) is not str:
                break
        else:
            return
    import json

    try:
        json.dumps(value, allow_nan=allow_nan)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{field}: JSON cannot say this: {error}") from None


def _check_calls(calls: Iterable[ToolCall]) -> None:
    for call in calls:
        if not isinstance(call, ToolCall):
            raise InvalidInput(f"message.tool_calls: expected ToolCall, got {type(call).__name__}")
        if not isinstance(call.id, str) or not isinstance(call.name, str):
            raise InvalidInput(f"message.tool_calls: id and name must be text, got {call!r:.80}")
        if isinstance(call.arguments, Mapping):
            _check_json("message.tool_calls.arguments", call.arguments, allow_nan=True)
        elif not isinstance(call.arguments, str):
            kind = type(call.arguments).__name__
            raise InvalidInput(
                f"message.tool_calls.arguments: expected text or a mapping, got {kind}"
            )


def _check_text(message: Message, *fields: str) -> None:
    for field in fields:
        value = getattr(message, field)
        if not (value is None or isinstance(value, str)):
            raise InvalidInput(f"message.{field}: expected text, got {type(value).__name__}")


def checked_name(field: str, value: str) -> str:
    """Return `value` if an index on every engine can hold it as a name."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME:
        raise InvalidInput(f"{field}: expected 1 to {MAX_NAME} characters, got {value!r:.80}")
    return value
