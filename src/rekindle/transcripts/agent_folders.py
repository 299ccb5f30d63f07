"""Default locations of agents' sessions on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

# A few made-up sessions, for a machine that has none.
SAMPLE = Path(__file__).parent / "sample"


def find_session_paths(home: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the existing session folders and databases of the user with this home and environment."""
    found: dict[Path, None] = {}
    for list_paths in (
        _list_claude_code_paths,
        _list_codex_paths,
        _list_copilot_paths,
        _list_opencode_paths,
        _list_pi_paths,
        _list_gemini_paths,
        _list_hermes_paths,
        _list_openhands_paths,
        _list_mini_swe_agent_paths,
        _list_inspect_paths,
        _list_aider_paths,
    ):
        for path in list_paths(home, env):
            if path.exists():
                found[path.resolve()] = None
    return list(found)


def _list_claude_code_paths(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    # The variable replaces the default folders, as in Claude Code itself.
    if override := env.get("CLAUDE_CONFIG_DIR"):
        for root in override.split(","):
            yield _expand_home(root.strip(), home) / "projects"
    else:
        yield home / ".claude" / "projects"
        yield home / ".config" / "claude" / "projects"


def _list_codex_paths(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    override = env.get("CODEX_HOME")
    root = _expand_home(override, home) if override else home / ".codex"
    yield root / "sessions"
    yield root / "archived_sessions"


def _list_copilot_paths(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    if override := env.get("COPILOT_HOME"):
        yield _expand_home(override, home) / "session-state"
        return
    if state := env.get("XDG_STATE_HOME"):
        yield _expand_home(state, home) / ".copilot" / "session-state"
    yield home / ".copilot" / "session-state"


def _list_opencode_paths(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    data = env.get("XDG_DATA_HOME")
    root = (_expand_home(data, home) if data else home / ".local" / "share") / "opencode"
    # The database replaced the files; messages keep their ids, so both may be read.
    yield root / "storage" / "session"
    yield from sorted(root.glob("project/*/storage/session/info"))
    yield from sorted(root.glob("opencode*.db"))
    if override := env.get("OPENCODE_DB"):
        yield root / _expand_home(override, home)


def _list_pi_paths(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    override = env.get("PI_CODING_AGENT_DIR")
    yield (_expand_home(override, home) if override else home / ".pi" / "agent") / "sessions"


def _list_gemini_paths(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    override = env.get("GEMINI_CLI_HOME")
    root = (_expand_home(override, home) if override else home) / ".gemini"
    # A checkpoint is a copy of a chat without ids, so importing it would count messages twice.
    yield from sorted(root.glob("tmp/*/chats"))


def _list_hermes_paths(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    override = env.get("HERMES_HOME")
    root = _expand_home(override, home) if override else home / ".hermes"
    # Sessions in older files may also be in the database; messages keep their ids.
    yield root / "state.db"
    yield from sorted(root.glob("profiles/*/state.db"))
    yield root / "sessions"


def _list_openhands_paths(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    override = env.get("OPENHANDS_PERSISTENCE_DIR")
    root = _expand_home(override, home) if override else home / ".openhands"
    folder = env.get("OPENHANDS_CONVERSATIONS_DIR")
    yield _expand_home(folder, home) if folder else root / "conversations"
    yield root / "sessions"


def _list_mini_swe_agent_paths(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    override = env.get("MSWEA_GLOBAL_CONFIG_DIR")
    root = _expand_home(override, home) if override else home / ".config" / "mini-swe-agent"
    yield root / "last_mini_run.traj.json"


def _list_inspect_paths(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    # Without the variable, logs are where Inspect was started; it may also name a bucket.
    override = env.get("INSPECT_LOG_DIR")
    if override and "://" not in override:
        yield _expand_home(override, home)


def _list_aider_paths(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    # Each repository has its own history, listed nowhere; this is the one outside of any.
    yield _expand_home(env.get("AIDER_CHAT_HISTORY_FILE") or "~/.aider.chat.history.md", home)


def _expand_home(path: str, home: Path) -> Path:
    return home / path[2:] if path.startswith("~/") else Path(path)
