"""Where agents keep their sessions on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

# A few invented sessions, for a machine that has none.
SAMPLE = Path(__file__).parent / "sample"


def find(home: Path, env: Mapping[str, str]) -> list[Path]:
    """The folders and databases with sessions that exist, for the user of this home and environment."""
    found: dict[Path, None] = {}
    for agent in (
        _claude_code,
        _codex,
        _copilot,
        _opencode,
        _pi,
        _gemini,
        _hermes,
        _openhands,
        _mini,
        _inspect,
        _aider,
    ):
        for place in agent(home, env):
            if place.exists():
                found[place.resolve()] = None
    return list(found)


def _claude_code(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    # The variable replaces the usual folders, as it does for Claude Code itself.
    if chosen := env.get("CLAUDE_CONFIG_DIR"):
        for root in chosen.split(","):
            yield _expand(root.strip(), home) / "projects"
    else:
        yield home / ".claude" / "projects"
        yield home / ".config" / "claude" / "projects"


def _codex(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    chosen = env.get("CODEX_HOME")
    root = _expand(chosen, home) if chosen else home / ".codex"
    yield root / "sessions"
    yield root / "archived_sessions"


def _copilot(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    if chosen := env.get("COPILOT_HOME"):
        yield _expand(chosen, home) / "session-state"
        return
    if state := env.get("XDG_STATE_HOME"):
        yield _expand(state, home) / ".copilot" / "session-state"
    yield home / ".copilot" / "session-state"


def _opencode(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    data = env.get("XDG_DATA_HOME")
    root = (_expand(data, home) if data else home / ".local" / "share") / "opencode"
    # The database holds what the files held before; messages keep their ids, so both may be read.
    yield root / "storage" / "session"
    yield from sorted(root.glob("project/*/storage/session/info"))
    yield from sorted(root.glob("opencode*.db"))
    if chosen := env.get("OPENCODE_DB"):
        yield root / _expand(chosen, home)


def _pi(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    chosen = env.get("PI_CODING_AGENT_DIR")
    yield (_expand(chosen, home) if chosen else home / ".pi" / "agent") / "sessions"


def _gemini(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    chosen = env.get("GEMINI_CLI_HOME")
    root = (_expand(chosen, home) if chosen else home) / ".gemini"
    # A checkpoint is a copy of a chat without ids: read as well, it would count twice.
    yield from sorted(root.glob("tmp/*/chats"))


def _hermes(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    chosen = env.get("HERMES_HOME")
    root = _expand(chosen, home) if chosen else home / ".hermes"
    # What older versions kept in files may be in the database as well: messages keep their ids.
    yield root / "state.db"
    yield from sorted(root.glob("profiles/*/state.db"))
    yield root / "sessions"


def _openhands(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    chosen = env.get("OPENHANDS_PERSISTENCE_DIR")
    root = _expand(chosen, home) if chosen else home / ".openhands"
    folder = env.get("OPENHANDS_CONVERSATIONS_DIR")
    yield _expand(folder, home) if folder else root / "conversations"
    yield root / "sessions"


def _mini(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    chosen = env.get("MSWEA_GLOBAL_CONFIG_DIR")
    root = _expand(chosen, home) if chosen else home / ".config" / "mini-swe-agent"
    yield root / "last_mini_run.traj.json"


def _inspect(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    # Without the variable logs lie where the agent was started; it may also name a bucket.
    chosen = env.get("INSPECT_LOG_DIR")
    if chosen and "://" not in chosen:
        yield _expand(chosen, home)


def _aider(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    # Each repository has a history of its own, which nothing lists; outside of one it lies here.
    yield _expand(env.get("AIDER_CHAT_HISTORY_FILE") or "~/.aider.chat.history.md", home)


def _expand(path: str, home: Path) -> Path:
    return home / path[2:] if path.startswith("~/") else Path(path)
