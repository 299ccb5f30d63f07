"""Build the command line of bubblewrap for a view."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .file_view import FileView

_LOCK = "/run/workspace.lock"
SCRATCH = "/scratch"  # where the scratch folder of a call is seen
_NAMESPACES = (
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-uts",
    "--unshare-cgroup-try",
)


def build_command(
    program: str,
    options: Sequence[str],
    view: FileView,
    *,
    cwd: str,
    temporary: str = "",
    scratch: str = "",
    placeholders: Sequence[str] = (),
    lock: str = "",
) -> list[str]:
    """Return the words that precede the confined command.

    `temporary` is the folder seen as /tmp, `scratch` the one seen as /scratch. An
    empty folder that cannot be changed is seen at `placeholders`; `lock` is held while the command runs.
    """
    words = [program, *_NAMESPACES, *options, "--cap-drop", "ALL", "--hostname", "sandbox"]
    words += [] if view.network else ["--unshare-net"]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run", "--tmpfs", "/var"]
    # A folder that outlives the call may hold links, which bubblewrap would follow to a mount in it.
    is_free = not any(mount.path.startswith("/tmp/") for mount in view.mounts)
    words += ["--bind", temporary, "/tmp"] if temporary and is_free else ["--tmpfs", "/tmp"]
    words += ["--symlink", "/tmp", "/var/tmp", "--symlink", "/run", "/var/run"]
    if view.home not in view.roots and view.home != "/":
        words += ["--tmpfs", view.home]
    words += _build_mounts(view)
    for path in placeholders:
        words += ["--perms", "0555", "--tmpfs", path, "--remount-ro", path]
    if lock:
        words += ["--ro-bind", lock, _LOCK, "--lock-file", _LOCK]
    if scratch:
        words += ["--bind", scratch, SCRATCH]
    return [*words, "--remount-ro", "/", "--chdir", SCRATCH if cwd == scratch else cwd, "--"]


def _build_mounts(view: FileView) -> list[str]:
    words: list[str] = []
    for kind, path in view.mounts:
        if kind == "read" and path.count("/") == 1 and os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif kind == "read":
            words += ["--ro-bind-try", path, path]
        elif kind in ("write", "pin"):
            words += ["--bind", path, path]
        elif kind == "lock":
            words += ["--ro-bind", path, path]
        elif os.path.isdir(path):
            words += ["--perms", "0111", "--tmpfs", path]
        else:
            words += ["--ro-bind", "/dev/null", path]
    return words
