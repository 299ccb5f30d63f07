"""Find the project that a folder belongs to: its repository, or else the folder itself.

A project's key is the address of its repository without scheme, user and suffix
(`github.com/owner/name`), or `folder:/path` if no remote is known. Clones, worktrees and subfolders
of one repository share one key.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rekindle.errors import AmbiguousName, NotFound

if TYPE_CHECKING:
    from rekindle.types import Session

FOLDER_PREFIX = "folder:"
MIN_CLONE_FILES, MIN_CLONE_SHARE, MIN_CLONE_DEPTH = 5, 0.3, 2  # that a clone has in common
MIN_PRESENT_FILES, _MAX_SAMPLE = 3, 200  # files that show which project a folder is
MIN_TOKEN_CHARS, MIN_TOKEN_CHANGES = 16, 3  # between digits and letters
MIN_MENTIONS = 3  # of a remote whose name is not that of the folder
_MAX_CONFIG_CHARS, _MAX_POINTER_CHARS = 100_000, 4_000
_MAX_BRANCH_CHARS = 250
_SCHEME = re.compile(r"(?i)(?:git\+)?(https?|ssh|git|file|ftps?)://")
_HOST_AND_PATH = re.compile(
    r"(?:[^@/\s]{1,80}@)?([\w.-]{1,100}\.\w{2,20}|localhost)(?::\d+)?[:/](.+)"
)
_REPOSITORY_PATH = re.compile(r"[\w.~-]{1,100}(?:/[\w.~-]{1,100}){1,5}")
_DIGIT_CHANGE = re.compile(r"(?<=\d)[A-Za-z]|(?<=[A-Za-z])\d")
# Where git and its helpers keep worktrees, below the repository that they belong to.
_WORKTREE = re.compile(r"/\.(?:claude/|cursor/|codex/)?worktrees/.+$")
# One command that speaks of the repository in which it runs: what others print says nothing.
_ELSEWHERE = re.compile(r"\s(?:-C|--repo|-R|--git-dir)\b|mktemp")
_REST = r"[^;&|\n$`<>()]*(?:2>&1[ ]*)?(?:\|[ ]*(?:tail|head|cat)\b[^;&|\n$`<>()]*)?"
_GIT_COMMAND = re.compile(rf"git\s+(?:push|fetch|pull|clone|remote)\b{_REST}")
_PULL_REQUEST_COMMAND = re.compile(rf"gh\s+pr\s+(?:create|view|status|list)\b{_REST}")
_SHOWS_REMOTE = re.compile(r"git\s+remote\s+show\b")
_PULL_REQUEST = re.compile(
    r"^(?:url:[ \t]{1,4})?(https?://[\w.-]{1,100}/[\w.-]{1,100}/[\w.-]{1,100})/pull/\d+[ \t]*$",
    re.MULTILINE,
)
_GIT_REPORT = re.compile(r"^(?:To|From|origin\t) ?(\S+)", re.MULTILINE)
_REMOTE_REPORT = re.compile(r"^[ \t]{0,8}(?:Fetch|Push)[ \t]{1,4}URL: ?(\S+)", re.MULTILINE)
_MAX_REPORT_CHARS = 8_000
_MAX_NAMES_SHOWN = 5


class Repository(NamedTuple):
    """A repository on this machine: the folder of its main worktree, and the key of its remote."""

    root: str
    remote: str | None


def normalize_remote(url: str) -> str | None:
    """Return `host/owner/name` for any form of a remote's URL, or None if it is no such URL."""
    remote = shorten_remote(url)
    return None if remote is None else remote.lower()


def shorten_remote(url: str) -> str | None:
    """Return `host/owner/name` as a remote's URL spells it, or None if it is no such URL."""
    url = url.strip().strip("'\"")
    if _SCHEME.match(url) is None and (url[:1] in "/.~" or ":" not in url.split("/")[0]):
        return None
    scheme = _SCHEME.match(url)
    if scheme is not None and scheme[1].lower() == "file":
        return None
    match = _HOST_AND_PATH.fullmatch(_SCHEME.sub("", url, count=1).split("?")[0].split("#")[0])
    if match is None:
        return None
    path = match[2].strip("/").removesuffix(".git").strip("/")
    if not _REPOSITORY_PATH.fullmatch(path):
        return None
    parts = [part for part in path.split("/") if not _looks_like_token(part)]
    return "/".join((match[1], *parts)) if parts else None


def _looks_like_token(part: str) -> bool:
    """Return whether a part of a remote's path is a token, which some hosts take there."""
    pieces = (piece for piece in re.split("[._~-]", part) if len(piece) >= MIN_TOKEN_CHARS)
    return any(len(_DIGIT_CHANGE.findall(piece)) >= MIN_TOKEN_CHANGES for piece in pieces)


def find_repository(folder: str | Path) -> Repository | None:
    """Return the repository that contains a folder of this machine, if there is one."""
    try:
        start = Path(folder).resolve()
        for path in (start, *start.parents):
            marker = path / ".git"
            if marker.is_dir():
                return Repository(str(path), _read_remote(marker))
            if marker.is_file():
                return _read_linked_worktree(path, marker)
    except (OSError, RuntimeError, ValueError):
        return None
    return None


def list_working_tree(folder: str | Path) -> list[str]:
    """Return a folder of this machine and those above it that belong to the same working tree."""
    found: list[str] = []
    try:
        start = Path(folder).resolve()
        if not start.is_dir():
            return []
        for path in (start, *start.parents):
            found.append(str(path))
            if (path / ".git").exists():
                return found
    except (OSError, RuntimeError, ValueError):
        return []
    return found[:1]  # in no repository


def find_branch(folder: str | Path) -> str | None:
    """Return the branch that is checked out in a folder of this machine, if there is one."""
    try:
        start = Path(folder).resolve()
        for path in (start, *start.parents):
            marker = path / ".git"
            if marker.is_file():
                pointer = read_file_start(marker, _MAX_POINTER_CHARS).strip()
                marker = path / pointer.removeprefix("gitdir:").strip()
            if marker.is_dir():
                head = read_file_start(marker / "HEAD", _MAX_POINTER_CHARS).strip()
                branch = head.removeprefix("ref: refs/heads/")
                return branch[:_MAX_BRANCH_CHARS] if branch and branch != head else None
    except (OSError, RuntimeError, ValueError):
        return None
    return None


def _read_linked_worktree(path: Path, marker: Path) -> Repository:
    """Follow the `.git` file of a worktree or submodule to the repository it belongs to."""
    text = read_file_start(marker, _MAX_POINTER_CHARS).strip()
    git_folder = (path / text.removeprefix("gitdir:").strip()).resolve()
    common = read_file_start(git_folder / "commondir", _MAX_POINTER_CHARS).strip()
    if not common:
        return Repository(str(path), _read_remote(git_folder))
    # A repository knows its worktrees: a folder that only says it is one of them is not.
    back = read_file_start(git_folder / "gitdir", _MAX_POINTER_CHARS).strip()
    if not back or (git_folder / back).resolve() != marker.resolve():
        return Repository(str(path), None)
    git_folder = (git_folder / common).resolve()
    root = git_folder.parent if git_folder.name == ".git" else git_folder
    return Repository(str(root), _read_remote(git_folder))


def read_file_start(file: Path, limit: int) -> str:
    """Return the beginning of a regular file, and "" for anything else: a pipe would never end."""
    try:
        number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        return ""
    with os.fdopen(number, encoding="utf-8", errors="replace") as opened:
        return opened.read(limit)


def _read_remote(git_folder: Path) -> str | None:
    """Return the key of `origin`, or of the only remote, as the repository's config has it."""
    from configparser import ConfigParser
    from configparser import Error as ConfigError

    text = read_file_start(git_folder / "config", _MAX_CONFIG_CHARS)
    parser = ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    try:
        parser.read_string("\n".join(line.strip() for line in text.splitlines()))
    except ConfigError:
        return None
    urls = {
        section[8:-1]: parser.get(section, "url", fallback=None)
        for section in parser.sections()
        if section.startswith('remote "')
    }
    url = urls.get("origin") or (next(iter(urls.values())) if len(urls) == 1 else None)
    return normalize_remote(url) if url else None


def find_reported_remotes(command: str, output: str) -> list[str]:
    """Return the remotes that git or gh names in the output of this command, as it spells them."""
    command, output = command.strip(), output[:_MAX_REPORT_CHARS]
    if _ELSEWHERE.search(command):
        return []
    urls: list[str] = []
    if _GIT_COMMAND.fullmatch(command):
        urls += (_REMOTE_REPORT if _SHOWS_REMOTE.match(command) else _GIT_REPORT).findall(output)
    elif _PULL_REQUEST_COMMAND.fullmatch(command):
        urls += _PULL_REQUEST.findall(output)[:1]
    found = (shorten_remote(url) for url in urls)
    return [key for key in found if key is not None]


def normalize_folder(folder: str) -> str:
    """Return a folder's path in one form: with slashes, without a worktree's part."""
    path = folder.strip().replace("\\", "/")
    if path[1:2] == ":":
        path = path[0].lower() + path[1:]
    path = path.rstrip("/") or "/"
    return _WORKTREE.sub("", path) or path


def list_folders_above(folder: str) -> list[str]:
    """Return the folders above one (see `normalize_folder`), the nearest first, without the root."""
    parts = folder.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts) - 1, 1, -1)]


def is_below(folder: str, above: str) -> bool:
    """Return whether a folder is another one or below it (see `normalize_folder`)."""
    return folder == above or folder.startswith(f"{above.rstrip('/')}/")


def choose_project(folder: str, remotes: Mapping[str, int], known: Iterable[str]) -> str:
    """Return the project of a folder (see `normalize_folder`).

    That is the remote its sessions name most, above all one with the name of the folder; else a known
    project with which the path ends; else the folder itself.
    """
    last = folder.rpartition("/")[2].lower()
    ranked = sorted(remotes, key=lambda key: (key.rpartition("/")[2] == last, remotes[key]))
    if ranked:
        best = ranked[-1]
        if best.rpartition("/")[2] == last or remotes[best] >= MIN_MENTIONS:
            return best
    path = folder.lower()
    ending = (key for key in known if path.endswith("/" + shorten_project(key).lower()))
    return max(ending, key=len, default=FOLDER_PREFIX + folder)


def find_clone(
    folder: str, paths: AbstractSet[str], projects: Mapping[str, AbstractSet[str]]
) -> str | None:
    """Return the project of which a folder is a clone: named alike, and with the same files."""
    deep = {path for path in paths if path.count("/") >= MIN_CLONE_DEPTH}
    shared = {
        project: len(deep & files)
        for project, files in projects.items()
        if _is_named_like(folder, project.rpartition("/")[2])
    }
    best = max(shared, key=lambda project: shared[project], default=None)
    if best is None or shared[best] < max(MIN_CLONE_FILES, MIN_CLONE_SHARE * len(deep)):
        return None
    return best


def _is_named_like(folder: str, name: str) -> bool:
    words = re.split(r"[/._-]+", folder.lower())
    wanted = re.split(r"[._-]+", name.lower())
    return "".join(wanted) in words or all(word in words for word in wanted)


def has_files(folders: Iterable[str], paths: Sequence[str]) -> bool:
    """Return whether these files of a project are in one of the folders, as far as it has them."""
    inner = [path for path in paths if "/" in path and _is_inside(path)][:_MAX_SAMPLE]
    for folder in folders:
        present = sum(os.path.lexists(f"{folder}/{path}") for path in inner)
        if present >= max(MIN_PRESENT_FILES, MIN_CLONE_SHARE * len(inner)):
            return True
    return False


def _is_inside(path: str) -> bool:
    """Return whether a relative path stays inside its folder."""
    return not path.startswith(("/", "~")) and ".." not in path.split("/") and "\0" not in path


def hash_folder(project: str | None) -> str | None:
    """Return the key of a project for a file: a folder without its path, which may name people."""
    if project is None or not project.startswith(FOLDER_PREFIX):
        return project
    from hashlib import blake2b

    return FOLDER_PREFIX + blake2b(project.encode("utf-8", "replace"), digest_size=8).hexdigest()


def shorten_project(key: str) -> str:
    """Return the name that people use for a project: `owner/name`, or the folder's last part."""
    if key.startswith(FOLDER_PREFIX):
        return key.rstrip("/").rpartition("/")[2] or key
    return key.partition("/")[2] or key


def matches_project(key: str, wanted: str) -> bool:
    """Return whether a project is the one that a person means by `wanted`."""
    wanted = wanted.strip().rstrip("/")
    if key == wanted or key == normalize_remote(wanted):
        return True
    return shorten_project(key).lower() == wanted.lower() or key.lower().endswith(
        "/" + wanted.lower()
    )


def get_project_key(session: Session) -> str | None:
    """Return the key that a session is stored under, as SQL has it (see `build_project_key`)."""
    folder = None if session.cwd is None else FOLDER_PREFIX + session.cwd
    return session.project or session.repository or folder


def _get_last_part(key: str) -> str:
    return shorten_project(key).rpartition("/")[2]


# ── scopes


class ProjectScope(NamedTuple):
    """The sessions of a project: its name, and the keys that they are stored under."""

    name: str
    keys: tuple[str, ...]


class KnownProjects:
    """The projects that sessions are stored under.

    `keys` are those of sessions: the project that learning assigned, else the repository that the
    transcript names, else the folder. `folders` are the projects that learning assigned to folders.
    """

    def __init__(self, keys: Iterable[str], folders: Mapping[str, str]) -> None:
        self._folders = folders
        self._keys: dict[str, list[str]] = {}
        self._projects: dict[str, str] = {}
        for key in keys:
            self._keys.setdefault(self.get_project(key), []).append(key)
        self._counts = Counter(_get_last_part(one).lower() for one in self._keys if _is_remote(one))

    @property
    def projects(self) -> list[str]:
        """The keys of all projects."""
        return [*self._keys]

    def get_project(self, key: str) -> str:
        """Return the project of the sessions that are stored under a key."""
        project = self._projects.get(key)
        if project is None:
            project = self._projects[key] = self._find_project(key)
        return project

    def get_keys(self, project: str) -> tuple[str, ...]:
        """Return the keys that the sessions of a project are stored under."""
        return tuple(self._keys.get(project, ()))

    def get_name(self, project: str) -> str:
        """Return a project's name for a column: without an owner, unless two repositories share it."""
        last = _get_last_part(project)
        is_shared = _is_remote(project) and self._counts[last.lower()] > 1
        return shorten_project(project) if is_shared else last

    def find_session_project(self, session: Session) -> str | None:
        """Return the project of a session."""
        key = get_project_key(session)
        return None if key is None else self.get_project(key)

    def _find_project(self, key: str) -> str:
        if not key.startswith(FOLDER_PREFIX):
            return key
        folder = normalize_folder(key.removeprefix(FOLDER_PREFIX))
        if folder in self._folders:
            return self._folders[folder]
        above = (self._folders.get(one) for one in list_folders_above(folder))
        return next((one for one in above if _is_remote(one)), None) or FOLDER_PREFIX + folder

    def find_folder_scope(self, folder: str | Path) -> ProjectScope | None:
        """Return the scope of the project that a folder of this machine is in, if it is in one.

        The scope of a repository without sessions has no keys.
        """
        name, repository = normalize_folder(str(folder)), find_repository(folder)
        if repository is None:
            return self._find_plain_folder_scope(name)
        root = normalize_folder(repository.root)
        project = self._folders.get(name) or self._folders.get(root)
        project = project or repository.remote or FOLDER_PREFIX + root
        keys = self._collect_keys(project, root)
        self._projects |= dict.fromkeys(keys, project)
        return ProjectScope(shorten_project(project), keys)

    def _find_plain_folder_scope(self, folder: str) -> ProjectScope | None:
        """Return the scope of a folder that is not in a repository, if sessions worked there."""
        for name in (folder, *list_folders_above(folder)):
            if is_below(normalize_folder(str(Path.home())), name):
                return None  # a home folder is no project, nor is what it is in
            project = self._folders.get(name, FOLDER_PREFIX + name)
            if project in self._keys:
                return ProjectScope(shorten_project(project), self._collect_keys(project, name))
        return None

    def _collect_keys(self, project: str, root: str) -> tuple[str, ...]:
        """Return the keys of a project, and of folders below its root that are no other repository."""
        found = set(self._keys.get(project, ()))
        for other, keys in self._keys.items():
            if not _is_remote(other) and is_below(other.removeprefix(FOLDER_PREFIX), root):
                found.update(keys)
        return tuple(sorted(found))

    def find_named_scope(self, wanted: str) -> ProjectScope:
        """Return the scope that a person means by a name, `owner/name`, a folder, or a part of it.

        Raise `NotFound` or `AmbiguousName`, which list names that are near.
        """
        wanted = wanted.strip()
        if wanted.startswith(("/", "~", ".")) and "\0" not in wanted:
            return self._find_path_scope(wanted)
        for matches in (matches_project, _has_last_part, _contains_name):
            found = [project for project in self._keys if matches(project, wanted)]
            remotes = [project for project in found if _is_remote(project)]
            is_partial = matches is _contains_name
            if len(found if is_partial else remotes) > 1:
                names = _format_names(found if is_partial else remotes)
                raise AmbiguousName(f"Several projects match {wanted!r:.80}: {names}.")
            if found:
                keys = sorted(key for project in found for key in self._keys[project])
                return ProjectScope(shorten_project((remotes or found)[0]), tuple(keys))
        raise NotFound(self._describe_missing(wanted))

    def _find_path_scope(self, wanted: str) -> ProjectScope:
        path = normalize_folder(os.path.abspath(os.path.expanduser(wanted)))
        scope = self.find_folder_scope(path)
        if scope is not None and scope.keys:
            return scope
        keys = self._collect_keys(FOLDER_PREFIX + path, path)
        keys += tuple(
            key
            for folder, project in self._folders.items()
            if _is_remote(project) and is_below(folder, path)
            for key in self._keys.get(project, ())
        )
        if not keys:
            raise NotFound(self._describe_missing(wanted))
        return ProjectScope(path.rpartition("/")[2] or path, tuple(sorted(set(keys))))

    def _describe_missing(self, wanted: str) -> str:
        from difflib import get_close_matches

        names: dict[str, str] = {}
        for project in self._keys:
            name = shorten_project(project)
            names |= {name.lower(): name, _get_last_part(project).lower(): name}
        near = get_close_matches(wanted.lower(), names, _MAX_NAMES_SHOWN, 0.5)
        hint = ", ".join({names[one]: None for one in near})
        known = f" Did you mean {hint}?" if near else ""
        if not near and 0 < len(self._keys) <= _MAX_NAMES_SHOWN:
            known = f" Projects: {_format_names(self._keys)}."
        return f"Project not found: {wanted!r:.80}.{known} List them with `rekindle projects`."


def _is_remote(project: str | None) -> bool:
    return project is not None and not project.startswith(FOLDER_PREFIX)


def _has_last_part(project: str, wanted: str) -> bool:
    return _get_last_part(project).lower() == wanted.lower()


def _contains_name(project: str, wanted: str) -> bool:
    return wanted.lower() in shorten_project(project).lower()


def _format_names(projects: Iterable[str]) -> str:
    names = sorted({shorten_project(project) for project in projects})
    more = ", …" if len(names) > _MAX_NAMES_SHOWN else ""
    return ", ".join(names[:_MAX_NAMES_SHOWN]) + more
