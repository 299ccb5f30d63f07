"""Resolve and open files inside the allowed folders, safe against symlinks.

A path is resolved first and must then be in an allowed folder. It is opened by walking down from that
folder without following any link: a resolved path contains none, so one that is found was put there
in between and is refused.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import NamedTuple

from rekindle.errors import ToolError
from rekindle.sandbox.protected_files import is_launch_file, is_secret_file
from rekindle.types import JSON

from .environment import get_home
from .tool import CallAssessment, ToolContext

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # do not block on a pipe
_MAX_LENGTH = 4096


class SandboxPath(NamedTuple):
    """A resolved path: the allowed folder that contains it, and the parts below."""

    root: str
    parts: tuple[str, ...]
    asked: str  # as written by the model, for messages

    @property
    def absolute(self) -> str:
        return os.path.join(self.root, *self.parts)


class FileVersion(NamedTuple):
    """The identity of one state of a file."""

    device: int
    inode: int
    size: int
    modified: int
    mode: int
    owner: tuple[int, int]


def resolve_path(context: ToolContext, asked: str) -> SandboxPath:
    """Resolve `asked` inside the allowed folders; relative paths start at the working folder."""
    path = _make_absolute(context, asked)
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError) as error:
        raise ToolError(f"{asked}: could not resolve the path: {error}") from None
    for root in resolve_roots(context):
        if real == root:
            return SandboxPath(root, (), asked)
        inside = root.rstrip("/") + "/"
        if real.startswith(inside):
            return SandboxPath(root, tuple(real[len(inside) :].split("/")), asked)
    folders = ", ".join(map(str, context.roots))
    raise ToolError(f"{asked}: outside the allowed folders ({folders})", refused=True)


def is_allowed(context: ToolContext, path: str) -> bool:
    """Return whether the path is inside an allowed folder."""
    try:
        resolve_path(context, path)
    except ToolError:
        return False
    return True


def resolve_roots(context: ToolContext) -> list[str]:
    """Return the allowed folders, resolved, without those nested in another.

    A nested folder adds nothing, and anyone who can write in the outer one could replace it with a link.
    """
    plain = sorted({os.path.abspath(root) for root in context.roots}, key=len)
    outer: list[str] = []
    for root in plain:
        if not any(root.startswith(other.rstrip("/") + "/") for other in outer):
            outer.append(root)
    return [os.path.realpath(root) for root in outer]


def _make_absolute(context: ToolContext, asked: str) -> str:
    if not asked or "\0" in asked or len(asked) > _MAX_LENGTH:
        raise ToolError(f"{asked[:80]!r}: not a valid path (empty, too long, or contains NUL)")
    try:
        os.fsencode(asked)
    except UnicodeEncodeError:
        raise ToolError(f"{asked!r}: not a valid file name") from None
    if asked == "~" or asked.startswith("~/"):
        home = get_home(context.environment)
        if home is None:
            raise ToolError(f"{asked}: the home folder is unknown; use an absolute path")
        asked = home + asked[1:]
    return os.path.join(os.path.abspath(context.cwd), asked)


@contextmanager
def open_parent(path: SandboxPath, *, create: bool = False) -> Generator[tuple[int, str]]:
    """Open the folder that contains the file; yield it with the file's name."""
    if not path.parts:
        raise ToolError(f"{path.asked}: this is a folder, not a file")
    opened = _open_without_links(path, path.parts[:-1], create=create)
    try:
        yield opened, path.parts[-1]
    finally:
        os.close(opened)


@contextmanager
def open_folder(path: SandboxPath) -> Generator[int]:
    """Open the folder itself."""
    opened = _open_without_links(path, path.parts, create=False)
    try:
        yield opened
    finally:
        os.close(opened)


def _open_without_links(path: SandboxPath, parts: tuple[str, ...], *, create: bool) -> int:
    try:
        current = os.open(path.root, _FOLDER_FLAGS)
    except OSError as error:
        raise _to_tool_error(path, error) from None
    for part in parts:
        try:
            if create:
                _ensure_folder(current, part)
            below = os.open(part, _FOLDER_FLAGS, dir_fd=current)
        except OSError as error:
            raise _to_tool_error(path, error) from None
        finally:
            os.close(current)
        current = below
    return current


def _ensure_folder(folder: int, name: str) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        pass


@contextmanager
def open_file(path: SandboxPath) -> Generator[tuple[int, FileVersion]]:
    """Open a regular file for reading; yield it with its version."""
    with open_parent(path) as (folder, name):
        try:
            opened = os.open(name, _FILE_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            hint = _suggest_names(path.asked, name, os.listdir(folder))
            raise ToolError(f"{path.asked}: no such file{hint}") from None
        except OSError as error:
            raise _to_tool_error(path, error) from None
    try:
        status = os.fstat(opened)
        if stat.S_ISDIR(status.st_mode):
            raise ToolError(f"{path.asked}: is a folder; list it with search_files")
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(f"{path.asked}: is not a regular file")
        yield opened, _to_version(status)
    finally:
        os.close(opened)


def _to_version(status: os.stat_result) -> FileVersion:
    owner = (status.st_uid, status.st_gid)
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return FileVersion(*state, stat.S_IMODE(status.st_mode), owner)


def replace_file(path: SandboxPath, data: bytes, *, expected: FileVersion | None = None) -> bool:
    """Replace the whole content atomically, keeping the mode; return True if the file is new.

    With `expected`, fail if the file has changed since it was read.
    """
    with open_parent(path, create=True) as (folder, name):
        try:
            old = _read_version(path, folder, name)
            if expected is not None and old != expected:
                raise ToolError(f"{path.asked}: changed since it was read; read it again")
            _replace_atomically(folder, name, data, old)
        except OSError as error:
            raise _to_tool_error(path, error) from None
    return old is None


def _read_version(path: SandboxPath, folder: int, name: str) -> FileVersion | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{path.asked}: this is a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{path.asked}: is not a regular file", refused=True)
    return _to_version(status)


def _replace_atomically(folder: int, name: str, data: bytes, old: FileVersion | None) -> None:
    temporary = f".{os.urandom(6).hex()}.rekindle"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(temporary, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _copy_permissions(file.fileno(), old)
            os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


def _copy_permissions(opened: int, old: FileVersion) -> None:
    status = os.fstat(opened)
    if (status.st_uid, status.st_gid) != old.owner:
        try:
            os.fchown(opened, *old.owner)
        except PermissionError:  # only root can change the owner; keep the new content anyway
            pass
    os.fchmod(opened, old.mode)


def _to_tool_error(path: SandboxPath, error: OSError) -> ToolError:
    if error.errno == errno.ENOENT:
        return ToolError(f"{path.asked}: no such file or folder")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return ToolError(f"{path.asked}: part of the path is not a folder, or is a link")
    return ToolError(f"{path.asked}: {error.strerror or error}")


def _suggest_names(asked: str, name: str, names: list[str]) -> str:
    """Suggest similar names in the same folder, in case the model mistyped."""
    found = get_close_matches(name, names[:5000], n=3)
    shown = [os.path.join(os.path.dirname(asked), one) for one in found]
    return f"; did you mean {' or '.join(shown)}?" if shown else ""


def assess_read(context: ToolContext, arguments: Mapping[str, JSON]) -> CallAssessment:
    """Assess the reading of a file: a person is asked about credentials."""
    path = resolve_path(context, str(arguments.get("path", ".")))
    reasons = ("reads credentials",) if is_secret_path(path) else ()
    return CallAssessment(path.asked, reasons, acts=False)


def assess_write(context: ToolContext, arguments: Mapping[str, JSON]) -> CallAssessment:
    """Assess a change of a file: a person is asked about credentials and files that run code later."""
    path = resolve_path(context, str(arguments["path"]))
    reasons: list[str] = []
    if is_secret_path(path):
        reasons.append("changes credentials")
    if is_launch_file(path.absolute, (path.root,)):
        reasons.append("changes a file that runs code later")
    return CallAssessment(path.asked, tuple(reasons))


def is_secret_path(path: SandboxPath) -> bool:
    """Return whether a file holds credentials, or lies in a folder of them."""
    return any(
        is_secret_file(os.path.join(path.root, *path.parts[: count + 1]))
        for count in range(len(path.parts))
    )
