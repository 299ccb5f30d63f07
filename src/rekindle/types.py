"""Value types shared by all packages.

All of them are named tuples: immutable, compared by content, and as fast to build as a tuple,
because a loaded session consists of nothing else. (A frozen dataclass takes ten times as long to
build, and its module takes longer to import than everything that a first write needs.)
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from operator import add
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast

from rekindle.message import JSON as JSON
from rekindle.message import MAX_NAME_CHARS as MAX_NAME_CHARS
from rekindle.message import MAX_TIMESTAMP as MAX_TIMESTAMP
from rekindle.message import ROLES as ROLES
from rekindle.message import Content as Content
from rekindle.message import Message as Message
from rekindle.message import ToolCall as ToolCall
from rekindle.message import make_foreign_message as make_foreign_message
from rekindle.message import validate_message as validate_message
from rekindle.message import validate_name as validate_name

ChatType: TypeAlias = Literal["dm", "group", "channel", "thread"]
ResetMode: TypeAlias = Literal["none", "idle", "daily", "both"]
Role: TypeAlias = Literal["owner", "user", "guest"]  # of a person who may talk to the gateway
NoteKind: TypeAlias = Literal[
    "wish", "command", "pitfall", "workflow", "place", "baseline", "example"
]
NotePosition: TypeAlias = Literal["", "first", "last"]
TemplateState: TypeAlias = Literal["active", "quarantined", "retired"]
OverrideScope: TypeAlias = tuple[str | None, str | None]  # platform and chat type; None matches any

MAX_TITLE_CHARS = 100
QUARTER_SECONDS = 900  # every time zone is a multiple of it away from UTC
PROMPT_SIZES = (0, 100_000, 200_000, 272_000)  # tokens above which some models cost more

V = TypeVar("V", bound=tuple[Any, ...])
_new_tuple = cast(Any, tuple).__new__


class Tokens(NamedTuple):
    """Token counts of a session, or of one model call to add to it."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def add(self, other: Tokens) -> Tokens:
        """Return the sum of both counts."""
        return _new_tuple(Tokens, map(add, self, other))

    @property
    def total(self) -> int:
        return self.input + self.output


class Usage(NamedTuple):
    """Tokens used, and their cost."""

    tokens: Tokens = Tokens()
    cost: Decimal = Decimal(0)

    def add(self, other: Usage) -> Usage:
        """Return the sum of both usages."""
        return Usage(self.tokens.add(other.tokens), self.cost + other.cost)


class UsageEntry(NamedTuple):
    """What a model used within a quarter of an hour; `cost` is 0 unless the agent reports it.

    `above` is the highest of `PROMPT_SIZES` that the prompts exceeded: long ones cost more.
    """

    quarter: int  # number since 1970, UTC
    model: str
    tokens: Tokens
    cost: Decimal = Decimal(0)
    cache_write_1h: int = 0  # part of the cache writes: kept for an hour, at a higher price
    above: int = 0


class UsageSum(NamedTuple):
    """Entries of one day, key, model and kind of prompt, added up."""

    day: int  # number since 1970, local time
    key: str
    model: str
    above: int
    is_reported: bool  # whether the cost is that of the agent
    tokens: Tokens
    cache_write_1h: int
    cost: Decimal


class Price(NamedTuple):
    """The price of a million tokens of a model."""

    input: Decimal = Decimal(0)
    output: Decimal = Decimal(0)
    cache_read: Decimal = Decimal(0)
    cache_write: Decimal = Decimal(0)
    cache_write_1h: Decimal = Decimal(0)

    def compute_cost(self, tokens: Tokens, cache_write_1h: int = 0) -> Decimal:
        """Return the cost of these tokens, some of which may be cached for an hour."""
        written = max(0, tokens.cache_write - cache_write_1h)
        counts = (tokens.input, tokens.output, tokens.cache_read, written, cache_write_1h)
        parts = zip(self, counts, strict=True)
        return sum((price * count for price, count in parts), Decimal(0)) / 1_000_000


class Session(NamedTuple):
    """One conversation. Times are UTC seconds; counts exclude rewound messages."""

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
    repository: str | None = None  # as the transcript names it
    project: str | None = None  # assigned by learning
    preview: str | None = None
    archived: float | None = None
    pruned: float | None = None
    last_request: str | None = None  # of the user; the first is the preview
    sub_agent: str | None = None  # what kind of agent its parent started it as, if it did
    model_config: Mapping[str, JSON] | None = None
    tokens: Tokens = Tokens()
    cost: Decimal = Decimal(0)


class Hit(NamedTuple):
    """A search result: its session and message, the matching snippet, and the messages around it."""

    session: Session
    message: Message
    snippet: str
    before: tuple[Message, ...] = ()
    after: tuple[Message, ...] = ()


class JudgedCall(NamedTuple):
    """A tool call of a session, with its outcome.

    `outcome` is ok, error, expected (it ran and reported a negative result: a search without a hit,
    a failing test), refused or unknown. `failed` is whether the call did not do what it was asked
    to, None if unknown. `rule` names the rule that judged it, `confidence` how reliable that is.
    """

    session: str
    position: int  # of the message that makes the call
    number: int  # index among the calls of that message
    id: str
    tool: str
    kind: str  # code (a command that runs code too), file, research, terminal, general, …
    digest: int  # of tool and arguments; equal for repeated calls
    outcome: str
    failed: bool | None
    error_kind: str | None
    fault: str | None  # agent or environment, if the kind implies it
    rule: str
    confidence: float
    duration: float | None = None  # seconds
    result_position: int | None = None


class JudgedSession(NamedTuple):
    """A session with its calls in order, and the positions before which it was compressed."""

    session: Session
    calls: tuple[JudgedCall, ...]
    compressions: tuple[int, ...] = ()


class SessionOutcome(NamedTuple):
    """What became of a session, by which rule, how reliable that is, and the deciding position.

    `verdict` is succeeded, failed or unknown.
    """

    verdict: str = "unknown"
    rule: str = "none"
    confidence: float = 0.0
    where: int | None = None


class Rewind(NamedTuple):
    """A range of messages removed from a conversation, which can be restored."""

    id: int
    session: str
    kind: str
    since: int
    messages: int
    time: float
    restored: float | None = None


class Finding(NamedTuple):
    """A problem found by `verify`, and whether `repair` can fix it."""

    check: str
    where: str
    detail: str
    repairable: bool = True


class StoreStats(NamedTuple):
    """The contents of a store, and their size on disk."""

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
    by_model: Mapping[str, Usage]  # "" if the model is unknown
    first: float | None
    last: float | None


class Source(NamedTuple):
    """Where a message came from. Names and topic are untrusted text: sanitize them before display."""

    platform: str
    chat_id: str
    chat_name: str | None = None
    chat_type: ChatType = "dm"
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None


class Route(NamedTuple):
    """A conversation's key, and its current session."""

    key: str
    session: str
    origin: Source
    display_name: str
    created: float
    updated: float
    previous: str | None = None  # the previous session, for /back
    reset: str | None = None  # why it was reset automatically, until the user is notified
    tokens: Tokens = Tokens()
    usage: Mapping[str, Usage] = {}  # by model, over all its sessions
    owner: str | None = None  # of its sessions, if it is not the one that its key stands for


class ResetPolicy(NamedTuple):
    """When a conversation is reset automatically; `hour` is that of the daily reset in `time_zone`."""

    mode: ResetMode = "both"
    idle_minutes: int = 1440
    hour: int = 4
    time_zone: str = "UTC"


class KeyRule(NamedTuple):
    """What separates two conversations, beyond the chat.

    `direct`: whether all direct messages are one conversation (`single`), or each chat has its own
    (`shared`). `per_thread` and `per_user` give each thread or user its own.
    """

    direct: Literal["single", "shared"] = "single"
    per_thread: bool = False
    per_user: bool = False


class Overridable(NamedTuple, Generic[V]):
    """A default value, and the fields that are overridden in some scopes."""

    default: V
    overrides: Mapping[OverrideScope, Mapping[str, JSON]] = {}


class TemplateNote(NamedTuple):
    """One statement of a template, with the evidence for it.

    `command`, `folder` and `path` hold what it names. A pitfall has the command that `failed_command`
    was replaced by, a workflow the commands of its `steps`, and an example the request and the answer
    of a turn that consisted of its command.
    """

    id: str
    kind: NoteKind
    text: str
    command: str | None = None
    folder: str | None = None
    path: str | None = None
    failed_command: str | None = None
    steps: tuple[str, ...] = ()
    position: NotePosition = ""  # where in a session the command usually stands
    asked: str = ""
    answer: str = ""
    project: str | None = None
    sessions: int = 0
    worked: int = 0
    failed: int = 0
    last: str = ""  # the day it was last seen


class UserStyle(NamedTuple):
    """How a user writes to the agent."""

    messages: int = 0
    mean_length: float = 0.0
    questions: float = 0.0  # share
    commands: float = 0.0  # share
    preferred: str = ""


class Seed(NamedTuple):
    """What a session was about, besides its calls; only words that are known to be harmless."""

    system: str = ""
    instructions: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()  # files of the repository, most used first
    style: UserStyle = UserStyle()


class Template(NamedTuple):
    """What a session is warm-started from. `id` is the name of its file."""

    id: str
    name: str
    description: str = ""
    task_type: str = "mixed"
    tags: tuple[str, ...] = ()
    notes: tuple[TemplateNote, ...] = ()
    seed: Seed = Seed()
    sources: tuple[str, ...] = ()  # the sessions it was learned from
    state: TemplateState = "active"
    made: str = "built"  # built, extracted, merged, imported, automatic
    revision: int = 1  # incremented with every change
    created: float = 0.0
    updated: float = 0.0
    scan: Mapping[str, JSON] = {}  # what was scanned to build it
    project: str | None = None  # whose sessions it was learned from, if they have only one


def replace_fields(value: V, **changes: Any) -> V:
    """Return the value with some of its fields changed."""
    # Faster than `_replace`, which maps over all fields; a session has two dozen.
    kind: Any = type(value)
    positions = _get_field_positions(kind)
    fields = list(value[:])  # a slice: a message cannot be iterated over
    for name, new in changes.items():
        fields[positions[name]] = new
    return kind._make(fields)


@cache
def _get_field_positions(kind: Any) -> Mapping[str, int]:
    return {name: position for position, name in enumerate(kind._fields)}


def to_json_value(value: Any) -> Any:
    """Convert a value to JSON types: objects for named tuples, without empty fields."""
    names: tuple[str, ...] | None = getattr(value, "_fields", None)
    if names is not None:
        fields = dict(zip(names, value[:], strict=True))
        return {
            name: to_json_value(field) for name, field in fields.items() if field not in (None, ())
        }
    if isinstance(value, (tuple, list)):
        return [to_json_value(part) for part in cast(list[Any], value)]
    if isinstance(value, Mapping):
        return {
            name: to_json_value(field) for name, field in cast(Mapping[str, Any], value).items()
        }
    return str(value) if isinstance(value, Decimal) else value
