"""The agents that Rekindle can be installed into: one module for each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rekindle.coding_agents.agent import CodingAgent

from .claude_code import CLAUDE_CODE
from .codex import CODEX
from .gemini import GEMINI
from .mcp_client import MCP_CLIENT
from .opencode import OPENCODE
from .pi import PI

AGENTS: Mapping[str, CodingAgent] = MappingProxyType(
    {one.name: one for one in (CLAUDE_CODE, CODEX, OPENCODE, GEMINI, PI)}
)
# What `rekindle install` takes.
INSTALLABLE: Mapping[str, CodingAgent] = MappingProxyType({**AGENTS, MCP_CLIENT.name: MCP_CLIENT})
