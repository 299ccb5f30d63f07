"""Writers that turn a stored session into the file that an agent resumes from.

A writer is one module with `RULES` (what the agent accepts) and `render_session`, which yields the file
piece by piece. `turns.py` prepares a session for all of them, `places.py` knows where each agent looks.
What an agent cannot represent becomes text or is counted as left out; nothing is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from types import ModuleType

from rekindle.errors import InvalidInput
from rekindle.types import Message, Session

from .turns import WritableSession, choose_session_id, prepare_conversation

_MODULES: Mapping[str, str] = {
    "claude-code": "claude_code",
    "codex": "codex",
    "opencode": "opencode",
    "pi": "pi",
    "gemini": "gemini",
}
AGENTS = tuple(_MODULES)

__all__ = ["AGENTS", "WritableSession", "convert_session", "find_session_id", "render_conversation"]


def find_session_id(agent: str, session: Session) -> str:
    """Return the id under which the agent has the session, or would have it."""
    return choose_session_id(_load_writer(agent).RULES, session)


def convert_session(
    agent: str,
    session: Session,
    messages: Iterable[Message],
    folder: str,
    title: str | None = None,
) -> WritableSession:
    """Return the session as the agent can represent it, to be resumed in `folder`.

    The agent shows `title`, by default the session's own.
    """
    rules, title = _load_writer(agent).RULES, title or session.title
    return prepare_conversation(rules, session, messages, folder, title)


def render_conversation(agent: str, conversation: WritableSession) -> Iterator[str]:
    """Yield the text of the agent's file."""
    return _load_writer(agent).render_session(conversation)


def _load_writer(agent: str) -> ModuleType:
    if agent not in _MODULES:
        raise InvalidInput(f"No writer for {agent!r:.40}. Known agents: {', '.join(AGENTS)}.")
    return import_module(f".{_MODULES[agent]}", __name__)
