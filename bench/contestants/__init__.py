"""Who takes part, and what must be installed for it."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from .shape import Contestant


class Entry(NamedTuple):
    title: str
    where: str  # module:class, loaded inside the contestant's own environment
    env: str
    packages: tuple[str, ...]
    lists: bool = False  # has a listing of recent sessions
    searches: bool = False  # has a full-text search, also newest first


OURS = "rekindle"  # the environment of the floors too: the same Python, the same SQLite library

ROSTER: dict[str, Entry] = {
    "floor": Entry("SQLite + full text", "bench.floor:Indexed", OURS, ()),
    "plain": Entry("SQLite, no index", "bench.floor:Plain", OURS, ()),
    "shared": Entry("shared commits + full text", "bench.floor:SharedIndexed", OURS, ()),
    "shared_plain": Entry("shared commits, no index", "bench.floor:SharedPlain", OURS, ()),
    "rekindle": Entry("Rekindle", "bench.contestants.rekindle:Rekindle", OURS, ()),
    "hermes": Entry(
        "Hermes Agent",
        "bench.contestants.hermes:Hermes",
        "hermes",
        ("hermes-agent==0.19.0",),
        lists=True,
        searches=True,
    ),
    "openai_agents": Entry(
        "OpenAI Agents",
        "bench.contestants.openai_agents:OpenAIAgents",
        "openai_agents",
        ("openai-agents",),
    ),
    "agno": Entry(
        "Agno", "bench.contestants.agno:Agno", "agno", ("agno", "sqlalchemy[asyncio]"), lists=True
    ),
    "adk": Entry(
        "Google ADK (SqliteSessionService)",
        "bench.contestants.adk:AdkSqlite",
        "adk",
        ("google-adk", "sqlalchemy[asyncio]", "aiosqlite"),
        lists=True,
    ),
    "adk_database": Entry(
        "Google ADK (DatabaseSessionService)",
        "bench.contestants.adk:AdkDatabase",
        "adk",
        ("google-adk", "sqlalchemy[asyncio]", "aiosqlite"),
        lists=True,
    ),
    "langgraph": Entry(
        "LangGraph",
        "bench.contestants.langgraph:LangGraph",
        "langgraph",
        ("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    "strands": Entry(
        "Strands", "bench.contestants.strands:Strands", "strands", ("strands-agents",)
    ),
}

PEERS = tuple(name for name, entry in ROSTER.items() if entry.env != OURS)


def contestant(name: str) -> type[Contestant]:
    module, _, kind = ROSTER[name].where.partition(":")
    return getattr(import_module(module), kind)
