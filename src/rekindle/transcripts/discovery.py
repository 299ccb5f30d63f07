"""Discovery of files to import: below given paths, and where agents keep their sessions.

For an unchanged tree, only directory entries are read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from . import FORMATS

if TYPE_CHECKING:
    from rekindle.store import Store

ReportFailure: TypeAlias = Callable[[str, str], None]

# A few made-up sessions, for a machine that has none.
SAMPLE = Path(__file__).parent / "sample"
# Large folders that never contain sessions.
_SKIPPED_FOLDERS = {".git", "node_modules", "__pycache__"}
# Files that SQLite keeps next to a database. The newest sessions may be only in the WAL.
_WAL_SUFFIX = "-wal"
_SIDECAR_SUFFIXES = (_WAL_SUFFIX, "-shm", "-journal")


# Raised when readers learn to read more: files are then read once again. 1: when tokens were used.
# 2: which sessions are sub-agents, and which branches of a transcript were left behind.
READING_VERSION = 2


class DiscoveredFile(NamedTuple):
    """A regular file with its resolved path, and a stamp derived from its size and time."""

    path: str
    size: int
    mtime: float
    stamp: str


def find_files(
    paths: Iterable[str | Path], report_failure: ReportFailure
) -> Iterator[DiscoveredFile]:
    """Yield the files and all files below the folders, each once.

    `report_failure` is called with each path that cannot be read and the reason.
    """
    seen: set[str] = set()
    for given in paths:
        path = os.path.realpath(given)
        try:
            status = os.stat(path)
        except FileNotFoundError:
            report_failure(str(given), "file not found")
            continue
        except OSError as error:
            report_failure(str(given), error.strerror or str(error))
            continue
        if stat.S_ISDIR(status.st_mode):
            files = _walk_folder(path, report_failure)
        else:
            files = iter(
                [_make_discovered_file(path, status)] if stat.S_ISREG(status.st_mode) else []
            )
        for file in files:
            if file.path not in seen:
                seen.add(file.path)
                yield file


def _walk_folder(folder: str, report_failure: ReportFailure) -> Iterator[DiscoveredFile]:
    """Yield the files below a folder, its own first, because sub-agents are in subfolders."""
    folders = [folder]
    while folders:
        current = folders.pop()
        try:
            with os.scandir(current) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:
            report_failure(current, error.strerror or str(error))
            continue
        names = {entry.name for entry in entries}
        inner: list[str] = []
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                inner += [] if name in _SKIPPED_FOLDERS else [entry.path]
            elif not (name.endswith(_SIDECAR_SUFFIXES) and _is_sidecar(name, names)):
                file = _stat_entry(entry, f"{name}{_WAL_SUFFIX}" in names, report_failure)
                if file is not None:
                    yield file
        folders += reversed(inner)


def find_database(path: str) -> Path:
    """Return the database that a file belongs to, or the file itself."""
    for suffix in _SIDECAR_SUFFIXES:
        owner = path.removesuffix(suffix)
        if owner != path and os.path.exists(owner):
            return Path(owner)
    return Path(path)


def _is_sidecar(name: str, names: set[str]) -> bool:
    """Return whether a file belongs to the database next to it."""
    return any(
        name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in _SIDECAR_SUFFIXES
    )


def _stat_entry(
    entry: os.DirEntry[str], has_wal: bool, report_failure: ReportFailure
) -> DiscoveredFile | None:
    try:
        if entry.is_file(follow_symlinks=False):
            return _make_discovered_file(entry.path, entry.stat(), has_wal)
        if entry.is_symlink():
            path = os.path.realpath(entry.path)
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode):
                return _make_discovered_file(path, status)
    except OSError as error:
        report_failure(entry.path, error.strerror or str(error))
    return None


def _make_discovered_file(
    path: str, status: os.stat_result, has_wal: bool | None = None
) -> DiscoveredFile:
    stamp = f"{status.st_size}:{status.st_mtime_ns}:r{READING_VERSION}"
    wal = path + _WAL_SUFFIX
    if os.path.exists(wal) if has_wal is None else has_wal:
        wal_status = os.stat(wal)
        stamp += f"+{wal_status.st_size}:{wal_status.st_mtime_ns}"
    return DiscoveredFile(path, status.st_size, status.st_mtime, stamp)


def make_unknown_stamp(file: DiscoveredFile) -> str:
    """Return the stamp of an unsupported file, which changes when formats are added."""
    return f"{file.stamp}:{len(FORMATS)}"


def find_pending_files(store: Store, files: Iterable[DiscoveredFile]) -> list[DiscoveredFile]:
    """Return those of the files that are new or have changed since they were imported."""
    files = [*files]
    stamps = store.get_import_stamps(file.path for file in files)
    return [
        file
        for file in files
        if (stamp := stamps.get(file.path)) != file.stamp and stamp != make_unknown_stamp(file)
    ]


# -- the agents' own folders ----------------------------------------------------------------------


class SessionLocation(NamedTuple):
    """A folder or database of sessions, or with a `pattern` those below `root` that match it."""

    root: Path
    pattern: str = ""

    def list_existing(self) -> list[Path]:
        """Return the folders and databases that exist."""
        if self.pattern:
            return sorted(self.root.glob(self.pattern))
        return [self.root] if os.path.exists(self.root) else []

    def list_parents(self, home: Path) -> list[Path]:
        """Return the existing folders in which this location may appear, from the home down."""
        paths = [self.root] if self.pattern else []
        for number in range(1, self.pattern.count("/") + 1):
            parts = self.pattern.split("/")[:number]
            paths += self.root.glob("/".join(parts))
        paths += [
            parent
            for parent in self.root.parents
            if parent == home or parent.is_relative_to(home) or parent == self.root.parent
        ]
        return [path for path in paths if os.path.isdir(path)]


def find_session_paths(home: Path, env: Mapping[str, str], agent: str | None = None) -> list[Path]:
    """Return the existing session folders and databases of the user with this home and environment.

    Those of one agent if it is named, else those of all.
    """
    found: dict[Path, None] = {}
    for name in _LOCATIONS:
        for location in list_locations(name, home, env) if agent in (None, name) else ():
            for path in location.list_existing():
                found[Path(os.path.realpath(path))] = None
    return list(found)


def find_parent_folders(home: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the existing folders in which session folders and databases may appear."""
    found: dict[Path, None] = {}
    for agent in _LOCATIONS:
        for location in list_locations(agent, home, env):
            for path in location.list_parents(home):
                found[Path(os.path.realpath(path))] = None
    return list(found)


def list_locations(agent: str, home: Path, env: Mapping[str, str]) -> list[SessionLocation]:
    """Return where an agent keeps its sessions, the first choice first."""
    list_agent_locations = _LOCATIONS.get(agent)
    return list(list_agent_locations(home, env)) if list_agent_locations else []


def _list_claude_code_paths(home: Path, env: Mapping[str, str]) -> Iterator[SessionLocation]:
    # The variable replaces the default folders, as in Claude Code itself.
    if override := env.get("CLAUDE_CONFIG_DIR"):
        for root in override.split(","):
            yield SessionLocation(_expand_home(root.strip(), home) / "projects")
    else:
        yield SessionLocation(home / ".claude" / "projects")
        yield SessionLocation(home / ".config" / "claude" / "projects")


def _list_codex_paths(home: Path, env: Mapping[str, str]) -> Iterator[SessionLocation]:
    override = env.get("CODEX_HOME")
    root = _expand_home(override, home) if override else home / ".codex"
    yield SessionLocation(root / "sessions")
    yield SessionLocation(root / "archived_sessions")


def _list_copilot_paths(home: Path, env: Mapping[str, str]) -> Iterator[SessionLocation]:
    if override := env.get("COPILOT_HOME"):
        yield SessionLocation(_expand_home(override, home) / "session-state")
        return
    if state := env.get("XDG_STATE_HOME"):
        yield SessionLocation(_expand_home(state, home) / ".copilot" / "session-state")
    yield SessionLocation(home / ".copilot" / "session-state")


def _list_opencode_paths(home: Path, env: Mapping[str, str]) -> Iterator[SessionLocation]:
    data = env.get("XDG_DATA_HOME")
    root = (_expand_home(data, home) if data else home / ".local" / "share") / "opencode"
    # The database replaced the files; messages keep their ids, so both may be read.
    yield SessionLocation(root / "storage" / "session")
    yield SessionLocation(root, "project/*/storage/session/info")
    yield SessionLocation(root, "opencode*.db")
    if override := env.get("OPENCODE_DB"):
        yield SessionLocation(root / _expand_home(override, home))


def _list_pi_paths(home: Path, env: Mapping[str, str]) -> Iterator[SessionLocation]:
    override = env.get("PI_CODING_AGENT_DIR")
    root = _expand_home(override, home) if override else home / ".pi" / "agent"
    yield SessionLocation(root / "sessions")


def _list_gemini_paths(home: Path, env: Mapping[str, str]) -> Iterator[SessionLocation]:
    override = env.get("GEMINI_CLI_HOME")
    root = (_expand_home(override, home) if override else home) / ".gemini"
    # A checkpoint is a copy of a chat without ids, so importing it would count messages twice.
    yield SessionLocation(root, "tmp/*/chats")


def _list_hermes_paths(home: Path, env: Mapping[str, str]) -> Iterator[SessionLocation]:
    override = env.get("HERMES_HOME")
    root = _expand_home(override, home) if override else home / ".hermes"
    # Sessions in older files may also be in the database; messages keep their ids.
    yield SessionLocation(root / "state.db")
    yield SessionLocation(root, "profiles/*/state.db")
    yield SessionLocation(root / "sessions")


def _list_openhands_paths(home: Path, env: Mapping[str, str]) -> Iterator[SessionLocation]:
    override = env.get("OPENHANDS_PERSISTENCE_DIR")
    root = _expand_home(override, home) if override else home / ".openhands"
    folder = env.get("OPENHANDS_CONVERSATIONS_DIR")
    yield SessionLocation(_expand_home(folder, home) if folder else root / "conversations")
    yield SessionLocation(root / "sessions")


def _list_mini_swe_agent_paths(home: Path, env: Mapping[str, str]) -> Iterator[SessionLocation]:
    override = env.get("MSWEA_GLOBAL_CONFIG_DIR")
    root = _expand_home(override, home) if override else home / ".config" / "mini-swe-agent"
    yield SessionLocation(root / "last_mini_run.traj.json")


def _list_inspect_paths(home: Path, env: Mapping[str, str]) -> Iterator[SessionLocation]:
    # Without the variable, logs are where Inspect was started; it may also name a bucket.
    override = env.get("INSPECT_LOG_DIR")
    if override and "://" not in override:
        yield SessionLocation(_expand_home(override, home))


def _list_aider_paths(home: Path, env: Mapping[str, str]) -> Iterator[SessionLocation]:
    # Each repository has its own history, listed nowhere; this is the one outside of any.
    file = env.get("AIDER_CHAT_HISTORY_FILE") or "~/.aider.chat.history.md"
    yield SessionLocation(_expand_home(file, home))


_LOCATIONS: Mapping[str, Callable[[Path, Mapping[str, str]], Iterator[SessionLocation]]] = {
    "claude-code": _list_claude_code_paths,
    "codex": _list_codex_paths,
    "copilot": _list_copilot_paths,
    "opencode": _list_opencode_paths,
    "pi": _list_pi_paths,
    "gemini": _list_gemini_paths,
    "hermes": _list_hermes_paths,
    "openhands": _list_openhands_paths,
    "mini-swe-agent": _list_mini_swe_agent_paths,
    "inspect": _list_inspect_paths,
    "aider": _list_aider_paths,
}
# The variables by which agents are told to keep their sessions elsewhere.
LOCATION_VARIABLES = (
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "COPILOT_HOME",
    "XDG_STATE_HOME",
    "XDG_DATA_HOME",
    "OPENCODE_DB",
    "PI_CODING_AGENT_DIR",
    "GEMINI_CLI_HOME",
    "HERMES_HOME",
    "OPENHANDS_PERSISTENCE_DIR",
    "OPENHANDS_CONVERSATIONS_DIR",
    "MSWEA_GLOBAL_CONFIG_DIR",
    "INSPECT_LOG_DIR",
    "AIDER_CHAT_HISTORY_FILE",
)


def _expand_home(path: str, home: Path) -> Path:
    return home / path[2:] if path.startswith("~/") else Path(path)
