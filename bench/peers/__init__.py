"""The measured stores, and the packages that each needs."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from bench.peers.base import MeasuredStore


class StoreEntry(NamedTuple):
    title: str
    where: str  # module:class, loaded inside the store's own environment
    env: str
    packages: tuple[str, ...]
    lists: bool = False  # has a listing of recent sessions
    searches: bool = False  # has a full-text search, also newest first


OURS = "rekindle"  # the environment of the floors too: the same Python, the same SQLite library

ROSTER: dict[str, StoreEntry] = {
    "floor": StoreEntry("SQLite + full text", "bench.store.floors:IndexedFloor", OURS, ()),
    "plain": StoreEntry("SQLite, no index", "bench.store.floors:PlainFloor", OURS, ()),
    "shared": StoreEntry(
        "shared commits + full text", "bench.store.floors:SharedIndexedFloor", OURS, ()
    ),
    "shared_plain": StoreEntry(
        "shared commits, no index", "bench.store.floors:SharedPlainFloor", OURS, ()
    ),
    "rekindle": StoreEntry("Rekindle", "bench.peers.rekindle:RekindleAdapter", OURS, ()),
    "hermes": StoreEntry(
        "Hermes Agent",
        "bench.peers.hermes:HermesStore",
        "hermes",
        ("hermes-agent==0.19.0",),
        lists=True,
        searches=True,
    ),
    "openai_agents": StoreEntry(
        "OpenAI Agents",
        "bench.peers.openai_agents:OpenAIAgentsStore",
        "openai_agents",
        ("openai-agents",),
    ),
    "agno": StoreEntry(
        "Agno", "bench.peers.agno:AgnoStore", "agno", ("agno", "sqlalchemy[asyncio]"), lists=True
    ),
    "adk": StoreEntry(
        "Google ADK (SqliteSessionService)",
        "bench.peers.adk:AdkSqliteStore",
        "adk",
        ("google-adk", "sqlalchemy[asyncio]", "aiosqlite"),
        lists=True,
    ),
    "adk_database": StoreEntry(
        "Google ADK (DatabaseSessionService)",
        "bench.peers.adk:AdkDatabaseStore",
        "adk",
        ("google-adk", "sqlalchemy[asyncio]", "aiosqlite"),
        lists=True,
    ),
    "langgraph": StoreEntry(
        "LangGraph",
        "bench.peers.langgraph:LangGraphStore",
        "langgraph",
        ("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    "strands": StoreEntry(
        "Strands", "bench.peers.strands:StrandsStore", "strands", ("strands-agents",)
    ),
}

PEERS = tuple(name for name, entry in ROSTER.items() if entry.env != OURS)


def load_store_class(name: str) -> type[MeasuredStore]:
    module, _, kind = ROSTER[name].where.partition(":")
    return getattr(import_module(module), kind)
