"""One sandbox: what it is made of, and how a command line is wrapped to run in it."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from . import bubblewrap, landlock
from .file_view import FileView, ViewRequest, build_view
from .launch_files import LaunchFiles
from .workspace_lock import WorkspaceLock

# off: the settings say so; none: nothing works on this machine.
SandboxMode: TypeAlias = Literal["bubblewrap", "landlock", "off", "none"]

_KEEP_SECONDS = 7 * 86_400  # how long a session's temporary files are kept
# Variables that name folders and sockets which a command does not see.
_OUTSIDE_VARIABLES = frozenset(
    (
        "TMPDIR",
        "TMP",
        "TEMP",
        "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS",
        "XAUTHORITY",
        "DISPLAY",
    )
)


class SandboxOptions(NamedTuple):
    """What the settings add to a sandbox: folders, the network, and Rekindle's own folders to hide."""

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    network: bool = False
    own: tuple[str, ...] = ()


class ConfinedCommand(NamedTuple):
    """The words that precede a command, its folder and environment, and what to restore after it."""

    wrapper: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    launch_files: LaunchFiles
    aside: str

    def restore_launch_files(self) -> list[str]:
        """Undo changes to files that run code later; return their paths."""
        return self.launch_files.restore(self.aside)


class ConfineRequest(NamedTuple):
    """A command to confine: its session, workspace, folder and environment.

    `user_environment` says where the user's home, programs and SSH agent are. `scratch` is a folder for
    this call alone. With `network` it reaches the network. With `background` it outlives the program
    that starts it.
    """

    session: str
    roots: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    user_environment: Mapping[str, str]
    scratch: str = ""
    network: bool = False
    background: bool = False


class Sandbox(NamedTuple):
    """A way to confine commands. `program` is the one that does it, `problem` why none could be had."""

    mode: SandboxMode
    program: tuple[str, ...] = ()
    options: SandboxOptions = SandboxOptions()
    problem: str = ""

    @property
    def is_active(self) -> bool:
        return self.mode in ("bubblewrap", "landlock")

    def describe_mode(self) -> str:
        """Describe the sandbox in one line."""
        if self.mode == "off":
            return "off (sandbox.mode)"
        if self.mode == "none":
            return f"none, so every command needs approval ({self.problem})"
        network = "network allowed" if self.options.network else "no network"
        return f"{self.mode}, {network}"

    def build_view(self, request: ConfineRequest) -> FileView:
        """Return which files the command sees; raise InvalidInput if its workspace is too wide."""
        options = self.options
        return build_view(
            ViewRequest(
                roots=request.roots,
                environment=request.user_environment,
                own=options.own,
                readable=options.readable,
                writable=options.writable,
                network=request.network or options.network,
            )
        )

    def find_gaps(self, request: ConfineRequest) -> tuple[str, ...]:
        """Return what this kind of sandbox cannot prevent in the workspace of a command."""
        if self.mode != "landlock":
            return ()
        hidden = self.build_view(request).list_paths("hide")
        inside = [path for path in hidden if any(path.startswith(f"{r}/") for r in request.roots)]
        gaps = [f"can read {os.path.basename(path)} of the workspace" for path in inside[:3]]
        if request.background:
            gaps.append("can change files of the workspace that run code later")
        return tuple(gaps)

    def confine(self, request: ConfineRequest) -> ConfinedCommand:
        """Wrap a command so that it runs in this sandbox."""
        view = self.build_view(request)
        base = _open_private_base()
        private = _create_session_folder(base, request.session)
        locks = [WorkspaceLock.open(base, root) for root in view.roots]
        removed = [lock.remove_placeholders() for lock in locks]
        if any(removed):
            view = self.build_view(request)
        view, placeholders = _protect_background(view, locks, starts=request.background)
        temporary = os.path.join(private, "tmp")
        os.makedirs(temporary, mode=0o700, exist_ok=True)
        environment = {
            name: value
            for name, value in request.environment.items()
            if name not in _OUTSIDE_VARIABLES and not name.startswith("REKINDLE_")
        }
        if self.mode == "landlock":
            launcher = landlock.choose_launcher(self.program, environment)
            wrapper = landlock.build_command(launcher, view, temporary, request.scratch)
            if os.path.realpath(environment.get("HOME", "")) != request.scratch:
                environment["HOME"] = environment["TMPDIR"] = temporary
            cwd = request.cwd
        else:
            wrapper = bubblewrap.build_command(
                self.program[0],
                self.program[1:],
                view,
                cwd=request.cwd,
                temporary=temporary,
                placeholders=placeholders,
                lock=locks[0].path if request.background and locks else "",
                scratch=request.scratch,
            )
            cwd = bubblewrap.SCRATCH if request.cwd == request.scratch else request.cwd
        files = LaunchFiles.record(view.roots, view.home, locked=self.mode == "bubblewrap")
        return ConfinedCommand(
            tuple(wrapper), cwd, environment, files, os.path.join(private, "aside")
        )


def _protect_background(
    view: FileView, locks: Sequence[WorkspaceLock], *, starts: bool
) -> tuple[FileView, list[str]]:
    """Return the view without files that a running background command may exchange for links.

    For a command that `starts` in the background, also return where folders must stand.
    """
    placeholders: list[str] = []
    for lock in locks:
        inside = f"{lock.root}/"
        own = [m.path for m in view.mounts if m.kind != "write" and m.path.startswith(inside)]
        if lock.is_held:
            known = lock.read_protected()
            kept = [m for m in view.mounts if m.path not in own or m.path in known]
            view, own = view._replace(mounts=tuple(kept)), [path for path in own if path in known]
        if starts:
            missing = lock.list_placeholders() if lock.root != view.home else []
            lock.write_protected(own, missing)
            placeholders += missing
    return view, placeholders


def _open_private_base() -> str:
    """Return the private folder of our temporary files."""
    base = os.path.join(tempfile.gettempdir(), f"rekindle-sandbox-{os.getuid()}")
    try:
        os.mkdir(base, 0o700)
    except FileExistsError:
        status = os.lstat(base)
        if (
            not stat.S_ISDIR(status.st_mode)
            or status.st_uid != os.getuid()
            or status.st_mode & 0o077
        ):
            base = tempfile.mkdtemp(prefix="rekindle-sandbox-")
    return base


def _create_session_folder(base: str, session: str) -> str:
    """Return the folder of a session's temporary files."""
    name = hashlib.blake2b(session.encode("utf-8", "replace"), digest_size=12).hexdigest()
    path = os.path.join(base, name)
    if not os.path.isdir(path):
        _remove_old_folders(base)
        os.makedirs(path, mode=0o700, exist_ok=True)
    os.utime(path)
    return path


def _remove_old_folders(base: str) -> None:
    for entry in os.scandir(base):
        try:
            if entry.name == "locks":
                continue
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > _KEEP_SECONDS:
                shutil.rmtree(entry.path, ignore_errors=True)
        except OSError:
            continue
