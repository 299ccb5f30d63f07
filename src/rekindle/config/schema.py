"""All settings by section. A new setting takes one line here."""

# ruff: noqa: RUF009
# Every default is a declaration, including calls such as Decimal(0).
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from .setting import NumberRange, declare_setting


@dataclass(frozen=True, slots=True)
class StoreSection:
    url: str = declare_setting(
        "sessions.db", "SQLite file or postgresql:// URL", env="REKINDLE_STORE", form="path"
    )
    replica: str = declare_setting(
        "", "postgresql:// URL of a read replica of the store, for lists, search and insights"
    )
    durability: Literal["full", "relaxed"] = declare_setting(
        "full", "full: committed messages survive a power failure"
    )
    busy_seconds: float = declare_setting(
        30.0, "seconds to wait for another writer", limits=NumberRange(0)
    )
    refresh: Literal["local", "always", "never"] = declare_setting(
        "local",
        "before reading, import new sessions of this machine's agents: into a local file (local), also"
        " into PostgreSQL (always), or not (never)",
    )
    tenant: str = declare_setting("", "tenant whose sessions commands read and write")
    api_key: str = declare_setting(
        "", "API key of a tenant: commands do what it allows; never shown", form="secret"
    )


@dataclass(frozen=True, slots=True)
class RetentionSection:
    undo_days: float = declare_setting(
        7.0, "days during which a pruned session can be restored", limits=NumberRange(0)
    )
    active_hours: float = declare_setting(
        24.0, "hours of inactivity before a session may be pruned", limits=NumberRange(0)
    )


@dataclass(frozen=True, slots=True)
class ListSection:
    limit: int = declare_setting(
        20, "rows shown by `sessions list`", limits=NumberRange(1, 100_000)
    )


@dataclass(frozen=True, slots=True)
class ModelSection:
    base_url: str = declare_setting(
        "https://api.openai.com/v1",
        "URL of the OpenAI-compatible model API",
        env="OPENAI_BASE_URL",
        form="address",
    )
    api_key: str = declare_setting(
        "", "API key for the model; never shown", env="OPENAI_API_KEY", form="secret"
    )
    name: str = declare_setting("", "name of the model", env="REKINDLE_MODEL")
    connect_seconds: float = declare_setting(
        10.0, "seconds to wait for a connection to the model", limits=NumberRange(0.1, 3600)
    )
    silence_seconds: float = declare_setting(
        120.0, "seconds to wait for the next part of an answer", limits=NumberRange(0.1, 86_400)
    )
    answer_seconds: float = declare_setting(
        900.0, "maximum seconds of one answer of the model", limits=NumberRange(0.1, 86_400)
    )
    attempts: int = declare_setting(
        5, "maximum attempts of a request to the model", limits=NumberRange(1, 100)
    )


@dataclass(frozen=True, slots=True)
class AgentSection:
    """Settings of the agent, in the terminal and in chats."""

    tools: str = declare_setting("all", "enabled toolsets and tools, separated by commas")
    extra_folders: str = declare_setting(
        "", "more folders that file tools may access, separated by colons"
    )
    max_steps: int = declare_setting(
        60, "maximum model steps per turn", limits=NumberRange(1, 10_000)
    )
    max_tokens: int = declare_setting(
        0, "maximum tokens per turn; 0: no limit", limits=NumberRange(0)
    )
    max_cost: Decimal = declare_setting(
        Decimal(0),
        "maximum cost per turn, by the model's prices; 0: no limit",
        limits=NumberRange(0),
    )
    context: int = declare_setting(
        0,
        "context of the model in tokens; 0: that of a well-known model, else what the model says when"
        " it rejects a request",
        limits=NumberRange(0),
    )
    answer_tokens: int = declare_setting(
        8_192,
        "tokens of the context that are kept for the answer, at most a quarter of it",
        limits=NumberRange(0),
    )
    compress_at: float = declare_setting(
        0.85,
        "share of the context that is used before it is compressed",
        limits=NumberRange(0.1, 1),
    )
    prompt: str = declare_setting(
        "", "what the agent is told about itself, at the start of its system prompt"
    )
    instruction_files: str = declare_setting(
        "SOUL.md,AGENTS.md,CLAUDE.md",
        "files of the working folder that are added to the system prompt, separated by commas",
    )
    instruction_chars: int = declare_setting(
        20_000, "maximum characters of an instruction file", limits=NumberRange(0, 1_000_000)
    )


@dataclass(frozen=True, slots=True)
class ResetSection:
    mode: Literal["none", "idle", "daily", "both"] = declare_setting(
        "both", "when a conversation is reset automatically"
    )
    idle_minutes: int = declare_setting(
        1440, "minutes of inactivity before a reset", limits=NumberRange(1, 525_600)
    )
    hour: int = declare_setting(4, "hour of the daily reset", limits=NumberRange(0, 23))
    time_zone: str = declare_setting(
        "local", "time zone of the reset hour; local: this machine's", form="zone"
    )


@dataclass(frozen=True, slots=True)
class KeysSection:
    direct: Literal["single", "shared"] = declare_setting(
        "single", "direct messages: one conversation for all (single) or one per chat (shared)"
    )
    per_thread: bool = declare_setting(False, "use a separate conversation for each thread")
    per_user: bool = declare_setting(False, "use a separate conversation for each user")


@dataclass(frozen=True, slots=True)
class ChatSection:
    reasoning: Literal["dim", "hide"] = declare_setting(
        "dim", "how the terminal shows the model's reasoning"
    )
    # Separate from the gateway's: trust at your own terminal does not extend to chat users.
    approval: Literal["always", "dangerous", "refuse", "never"] = declare_setting(
        "dangerous",
        "ask before every call that acts or only a dangerous one, refuse those, or never ask",
    )
    owner: str = declare_setting(
        "",
        "owner of terminal conversations in a shared store; default: your login name",
    )
    history: int = declare_setting(
        1000, "input lines kept in the history", limits=NumberRange(0, 100_000)
    )


@dataclass(frozen=True, slots=True)
class GatewaySection:
    platforms: str = declare_setting(
        "",
        "platforms to connect, separated by spaces: names such as matrix, set up with `rekindle gateway"
        " setup`, or module:function[=argument]",
    )
    busy_mode: Literal["queue", "steer", "interrupt"] = declare_setting(
        "queue",
        "a message that arrives during a turn waits (queue), joins the turn (steer), or ends it"
        " (interrupt)",
    )
    max_turns: int = declare_setting(100, "maximum concurrent turns", limits=NumberRange(1, 10_000))
    max_waiting: int = declare_setting(
        100, "maximum unanswered messages in a conversation; 0 for no limit", limits=NumberRange(0)
    )
    max_waiting_total: int = declare_setting(
        5_000,
        "maximum unanswered messages in the store, for all but owners; 0 for no limit",
        limits=NumberRange(0),
    )
    approval: Literal["always", "dangerous", "refuse", "never"] = declare_setting(
        "dangerous",
        "ask an owner before every call that acts or only a dangerous one, refuse those, or never ask",
    )
    approval_seconds: float = declare_setting(
        600.0, "how long an owner can answer such a question", limits=NumberRange(1, 86_400)
    )
    allow: str = declare_setting(
        "",
        "who may talk, besides those allowed with `rekindle gateway allow`: PLATFORM:USER[=ROLE],"
        " separated by spaces; USER may be *",
    )
    pairing: bool = declare_setting(
        True, "answer a stranger's direct message with a pairing code for the operator"
    )
    user_turns: int = declare_setting(
        200, "messages a user may send per day; 0: no limit", limits=NumberRange(0)
    )
    user_tokens: int = declare_setting(
        0, "tokens a user may use per day; 0: no limit", limits=NumberRange(0)
    )
    user_cost: Decimal = declare_setting(
        Decimal(0), "cost a user may cause per day; 0: no limit", limits=NumberRange(0)
    )
    guest_turns: int = declare_setting(
        20, "messages a guest may send per day; 0: no limit", limits=NumberRange(0)
    )
    guest_tokens: int = declare_setting(
        200_000, "tokens a guest may use per day; 0: no limit", limits=NumberRange(0)
    )
    guest_cost: Decimal = declare_setting(
        Decimal(0), "cost a guest may cause per day; 0: no limit", limits=NumberRange(0)
    )
    workdir: str = declare_setting("work", "working folder of the tools", form="path")
    groups: Literal["mention", "all"] = declare_setting(
        "mention",
        "messages of groups to answer: those that mention the bot or reply to it, or all",
    )
    max_file_mb: float = declare_setting(
        20.0,
        "largest file that is taken from owners and users, in megabytes; 0: none",
        limits=NumberRange(0, 1000),
    )
    images: bool = declare_setting(False, "show images to the model, if it accepts them")
    edit_seconds: float = declare_setting(
        1.0,
        "seconds between edits of a streamed answer; 0: send only complete ones",
        limits=NumberRange(0),
    )
    turn_attempts: int = declare_setting(
        3,
        "crashes tolerated per message before it is dropped",
        limits=NumberRange(1, 1000),
    )
    send_attempts: int = declare_setting(
        8, "maximum attempts to send a message", limits=NumberRange(1, 1000)
    )
    lease_seconds: float = declare_setting(
        30.0,
        "seconds until another gateway takes over the work of a dead one",
        limits=NumberRange(1),
    )
    session_wait_seconds: float = declare_setting(
        20.0,
        "seconds to wait for a session that is open in another program, before going on in a copy",
        limits=NumberRange(0, 86_400),
    )
    grace_seconds: float = declare_setting(
        20.0, "seconds for turns to finish on shutdown", limits=NumberRange(0)
    )
    keep_days: float = declare_setting(
        30.0, "days to keep delivered messages", limits=NumberRange(1)
    )
    memory_flush: bool = declare_setting(
        True, "let the agent save what it should remember before a conversation is reset"
    )
    health_port: int = declare_setting(
        0, "port of the local health page; 0: any free port", limits=NumberRange(0, 65_535)
    )


@dataclass(frozen=True, slots=True)
class ProcessesSection:
    """Settings of background processes; the supervisor gets them from its starter."""

    backend: str = declare_setting(
        "local", "backend of the terminal tool: local, container:NAME, ssh:HOST, …"
    )
    per_owner: int = declare_setting(
        64, "maximum concurrent processes per owner", limits=NumberRange(1, 10_000)
    )
    keep_minutes: float = declare_setting(
        30.0, "minutes to keep a process after it exits", limits=NumberRange(0, 100_000)
    )
    wait_seconds: float = declare_setting(
        600.0, "maximum seconds of one wait for a process", limits=NumberRange(1, 86_400)
    )


@dataclass(frozen=True, slots=True)
class WarmSection:
    """Settings for starting new sessions with what earlier ones learned."""

    enabled: bool = declare_setting(True, "tell new sessions what is known about their project")
    format: Literal["turns", "digest", "both"] = declare_setting(
        "both",
        "tell notes as a list in the system message, show examples as turns, or both",
    )
    max_notes: int = declare_setting(
        12, "maximum notes of a template per session", limits=NumberRange(1, 15)
    )
    max_tokens: int = declare_setting(
        1200, "maximum tokens for what a session is told", limits=NumberRange(50, 100_000)
    )
    at_failure: bool = declare_setting(
        True, "tell the agent how a call that failed was fixed in earlier sessions of the project"
    )
    before_call: bool = declare_setting(
        False, "stop a command once that is known to fail in the project, and tell what worked"
    )
    control_share: float = declare_setting(
        0.1, "share of sessions that start cold, as a control group", limits=NumberRange(0, 1)
    )


@dataclass(frozen=True, slots=True)
class ParallelSection:
    """Where sessions are judged, learned from and replayed."""

    jobs: int = declare_setting(
        0,
        "processes that judge, learn and replay; 0: one for each core, and none for short work",
        limits=NumberRange(0, 1024),
    )
    scheduler: str = declare_setting(
        "", "Dask scheduler whose workers do it instead: tcp://HOST:PORT or tls://HOST:PORT"
    )


@dataclass(frozen=True, slots=True)
class SandboxSection:
    """Settings of the sandbox that commands and code run in."""

    mode: Literal["auto", "bubblewrap", "landlock", "off"] = declare_setting(
        "auto", "how commands and code are confined; auto: the best that works on this machine"
    )
    network: bool = declare_setting(False, "let every command and all code reach the network")
    readable: str = declare_setting(
        "", "more files and folders that commands may read, separated by colons"
    )
    writable: str = declare_setting(
        "", "more folders that commands may change, separated by colons"
    )
    environment: str = declare_setting(
        "", "variables that commands get although they look like secrets, separated by commas"
    )


@dataclass(frozen=True, slots=True)
class PermissionsSection:
    """Rules about tool calls: `tool`, or `tool: the beginning of a command or path`."""

    allow: tuple[str, ...] = declare_setting((), "calls that need no approval")
    refuse: tuple[str, ...] = declare_setting((), "calls that are always refused")


@dataclass(frozen=True, slots=True)
class McpSection:
    start_seconds: float = declare_setting(
        20.0, "seconds to wait for the servers to start", limits=NumberRange(0.1, 600)
    )
    token: str = declare_setting(
        "",
        "token that clients of `rekindle mcp --http` send; default: a new one at each start",
        form="secret",
    )


@dataclass(frozen=True, slots=True)
class ServerSection:
    """Settings for reaching a server that was started with `rekindle serve`."""

    url: str = declare_setting(
        "",
        "URL of a `rekindle serve` that hooks ask for notes, and that `rekindle push` sends to",
        form="address",
    )
    api_key: str = declare_setting(
        "", "API key for that server; never shown", env="REKINDLE_API_KEY", form="secret"
    )


# -- tables that the user names


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server, reached by a command over its pipes or by a URL."""

    command: str = declare_setting("", "program to start; it communicates over stdin and stdout")
    args: tuple[str, ...] = declare_setting((), "arguments of the program")
    env: Mapping[str, str] = declare_setting(
        {}, "environment variables of the program", form="secret"
    )
    cwd: str = declare_setting("", "working folder of the program")
    url: str = declare_setting("", "URL of the server, instead of a program", form="address")
    headers: Mapping[str, str] = declare_setting({}, "HTTP headers for the URL", form="secret")
    timeout: float = declare_setting(
        120.0, "maximum seconds per call", limits=NumberRange(0.1, 3600)
    )
    enabled: bool = declare_setting(True, "false: do not connect")
    sandbox: bool = declare_setting(
        False, "run the program in the sandbox; its tools then need no approval"
    )
    type: Literal["stdio", "http"] = declare_setting(
        "", "accepted for compatibility; command or url already implies it"
    )


@dataclass(frozen=True, slots=True)
class LimitTable:
    """Limits of one model."""

    context: int = declare_setting(
        0, "context of this model in tokens; 0: agent.context", limits=NumberRange(0)
    )
    answer: int = declare_setting(
        0, "tokens kept for the answer of this model; 0: agent.answer_tokens", limits=NumberRange(0)
    )


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices of a model per million tokens."""

    input: Decimal = declare_setting(
        Decimal(0), "price of a million input tokens", limits=NumberRange(0)
    )
    output: Decimal = declare_setting(
        Decimal(0), "price of a million output tokens", limits=NumberRange(0)
    )
    cache_read: Decimal | None = declare_setting(
        None, "price of a million tokens read from the cache; default: input", limits=NumberRange(0)
    )
    cache_write: Decimal | None = declare_setting(
        None,
        "price of a million tokens written to the cache; default: input",
        limits=NumberRange(0),
    )
    cache_write_1h: Decimal | None = declare_setting(
        None,
        "price of a million tokens cached for an hour; default: cache_write",
        limits=NumberRange(0),
    )


# Renamed settings: old name to new name. The file is still read, with a note that says the new name.
RENAMED: Mapping[str, str] = {
    "agent.folders": "agent.extra_folders",
    "agent.steps": "agent.max_steps",
    "agent.tokens": "agent.max_tokens",
    "agent.cost": "agent.max_cost",
    "reset.zone": "reset.time_zone",
    "keys.thread": "keys.per_thread",
    "keys.user": "keys.per_user",
    "gateway.arriving": "gateway.busy_mode",
    "gateway.turns": "gateway.max_turns",
    "processes.place": "processes.backend",
    "warm.form": "warm.format",
    "warm.patterns": "warm.max_notes",
    "warm.max_examples": "warm.max_notes",
    "warm.tokens": "warm.max_tokens",
    "warm.share_cold": "warm.control_share",
}
# Settings of one part that now hold for both: to take one for the other could widen what is allowed.
MERGED: Mapping[str, str] = {
    f"{section}.{key}": RENAMED.get(f"agent.{key}", f"agent.{key}")
    for section in ("chat", "gateway")
    for key in ("tools", "folders", "steps", "tokens", "context")
}
MOVED: Mapping[str, str] = {**RENAMED, **MERGED}
# Settings that have no effect any more; a file with them is still read, with a note.
UNUSED = frozenset(("warm.min_score", "warm.floor"))
