"""Every setting there is, by section. A line here is all that a new one takes."""

# ruff: noqa: RUF009
# Every default is a declaration, also that of an amount.
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from .setting import Limits, setting


@dataclass(frozen=True, slots=True)
class StoreSection:
    url: str = setting(
        "sessions.db", "SQLite file or postgresql:// URL", env="REKINDLE_STORE", form="path"
    )
    durability: Literal["full", "relaxed"] = setting("full", "full: a message survives power loss")
    busy_seconds: float = setting(30.0, "how long to wait for another writer", limits=Limits(0))


@dataclass(frozen=True, slots=True)
class RetentionSection:
    undo_days: float = setting(7.0, "days a pruned session can be brought back", limits=Limits(0))
    active_hours: float = setting(
        24.0, "hours without activity before a session may go", limits=Limits(0)
    )


@dataclass(frozen=True, slots=True)
class ListSection:
    limit: int = setting(20, "rows that `sessions list` shows", limits=Limits(1, 100_000))


@dataclass(frozen=True, slots=True)
class ModelSection:
    base_url: str = setting(
        "https://api.openai.com/v1",
        "where the model answers, in the OpenAI protocol",
        env="OPENAI_BASE_URL",
        form="address",
    )
    api_key: str = setting("", "the key for it; never shown", env="OPENAI_API_KEY", form="secret")
    name: str = setting("", "the model to ask", env="REKINDLE_MODEL")


@dataclass(frozen=True, slots=True)
class AgentSection:
    """What holds wherever the agent works: at a terminal, and in chats."""

    tools: str = setting("all", "toolsets and tools that are switched on, separated by commas")
    folders: str = setting(
        "", "folders that file tools may use beside the one they work in, separated by colons"
    )
    steps: int = setting(60, "steps of the model in one turn", limits=Limits(1, 10_000))
    tokens: int = setting(0, "tokens in one turn; 0: no limit", limits=Limits(0))
    cost: Decimal = setting(
        Decimal(0), "cost of one turn, as the model's price says; 0: no limit", limits=Limits(0)
    )
    context: int = setting(
        0,
        "tokens that the model can look at; 0: not known, so that it must complain first",
        limits=Limits(0),
    )


@dataclass(frozen=True, slots=True)
class ResetSection:
    mode: Literal["none", "idle", "daily", "both"] = setting(
        "both", "when a conversation starts anew by itself"
    )
    idle_minutes: int = setting(
        1440, "minutes without a message before it does", limits=Limits(1, 525_600)
    )
    hour: int = setting(4, "hour of the daily reset", limits=Limits(0, 23))
    zone: str = setting("local", "time zone of that hour; local: that of this machine", form="zone")


@dataclass(frozen=True, slots=True)
class KeysSection:
    direct: Literal["single", "shared"] = setting(
        "single", "direct messages: one conversation for all, or (shared) one for each chat"
    )
    thread: bool = setting(False, "each thread has a conversation of its own")
    user: bool = setting(False, "each user has a conversation of their own")


@dataclass(frozen=True, slots=True)
class ChatSection:
    reasoning: Literal["dim", "hide"] = setting("dim", "what the model thinks, at the terminal")
    # Not shared with the gateway: who trusts the agent at their own terminal trusts no strangers.
    approval: Literal["always", "dangerous", "refuse", "never"] = setting(
        "dangerous",
        "ask before every command, or a dangerous one; refuse those; or never ask (run everything)",
    )
    owner: str = setting(
        "",
        "whose the conversations at terminals are, in a shared store; your login name if not set",
    )
    history: int = setting(
        1000, "typed lines that are kept for the next time", limits=Limits(0, 100_000)
    )


@dataclass(frozen=True, slots=True)
class GatewaySection:
    platforms: str = setting("", "what to connect: module:function[=argument], separated by spaces")
    arriving: Literal["queue", "steer", "interrupt"] = setting(
        "queue", "a message during a turn waits for its own, joins the turn, or stops it"
    )
    turns: int = setting(100, "turns that run at once", limits=Limits(1, 10_000))
    approval: Literal["refuse", "never"] = setting(
        "refuse", "dangerous commands: refused, since nobody can be asked, or (never) run"
    )
    workdir: str = setting("work", "the folder where tools work", form="path")
    edit_seconds: float = setting(
        1.0, "between two looks at an answer that is being written; 0: whole ones", limits=Limits(0)
    )
    turn_attempts: int = setting(
        3,
        "programs that may die while they answer a message, before it is given up",
        limits=Limits(1, 1000),
    )
    send_attempts: int = setting(8, "attempts to send something", limits=Limits(1, 1000))
    lease_seconds: float = setting(
        30.0, "seconds after which others take over what a dead gateway left", limits=Limits(1)
    )
    grace_seconds: float = setting(20.0, "for turns to end when it is stopped", limits=Limits(0))
    keep_days: float = setting(30.0, "days that delivered mail is remembered", limits=Limits(1))
    health_port: int = setting(
        0, "of the health page on this machine; 0: a free one", limits=Limits(0, 65_535)
    )


@dataclass(frozen=True, slots=True)
class ProcessesSection:
    """Background processes. Whoever starts their supervisor gives it these limits."""

    place: str = setting(
        "local", "where the tool terminal runs commands: local, container:NAME, ssh:HOST, …"
    )
    per_owner: int = setting(64, "processes of one owner at once", limits=Limits(1, 10_000))
    keep_minutes: float = setting(
        30.0, "minutes that a process is remembered after its end", limits=Limits(0, 100_000)
    )
    wait_seconds: float = setting(
        600.0, "seconds that one wait for a process may take", limits=Limits(1, 86_400)
    )


@dataclass(frozen=True, slots=True)
class WarmSection:
    """How new sessions are started with what earlier ones have shown."""

    enabled: bool = setting(True, "start sessions warm where a template fits")
    form: Literal["turns", "digest", "both"] = setting(
        "both",
        "show examples as turns, tell of them in the system message, or each as it can be",
    )
    patterns: int = setting(3, "examples that a session gets at most", limits=Limits(1, 8))
    tokens: int = setting(1200, "tokens that they may take", limits=Limits(50, 100_000))
    floor: float = setting(
        0.35, "how well an example must fit what is asked, from 0 to 1", limits=Limits(0, 1)
    )
    share_cold: float = setting(
        0.1, "share of the sessions that start cold, to compare with", limits=Limits(0, 1)
    )


@dataclass(frozen=True, slots=True)
class McpSection:
    start_seconds: float = setting(
        20.0, "seconds to wait for the servers at the start", limits=Limits(0.1, 600)
    )


# -- tables that have a name of the user's choice


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server of tools: reached by a command that speaks over its pipes, or by a URL."""

    command: str = setting("", "the program to start, which speaks over its pipes")
    args: tuple[str, ...] = setting((), "what the program is given")
    env: Mapping[str, str] = setting({}, "environment variables of the program", form="secret")
    cwd: str = setting("", "the folder where the program is started")
    url: str = setting("", "where the server answers, instead of a program", form="address")
    headers: Mapping[str, str] = setting({}, "headers for that address", form="secret")
    timeout: float = setting(120.0, "seconds that one call may take", limits=Limits(0.1, 3600))
    enabled: bool = setting(True, "false: it is left alone")
    type: Literal["stdio", "http"] = setting(
        "", "as other programs write it; command or url says the same"
    )


@dataclass(frozen=True, slots=True)
class PriceTable:
    """What a million tokens of a model cost."""

    input: Decimal = setting(Decimal(0), "a million tokens of input", limits=Limits(0))
    output: Decimal = setting(Decimal(0), "a million tokens of output", limits=Limits(0))
    cache_read: Decimal | None = setting(
        None, "a million tokens from the cache; not set: as input", limits=Limits(0)
    )
    cache_write: Decimal | None = setting(
        None, "a million tokens into the cache; not set: as input", limits=Limits(0)
    )


# Settings that have moved, and where to.
MOVED: Mapping[str, str] = {
    f"{section}.{key}": f"agent.{key}"
    for section in ("chat", "gateway")
    for key in ("tools", "folders", "steps", "tokens", "context")
}
