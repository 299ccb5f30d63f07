"""Read and replace the configuration files of other programs.

A file is replaced as a whole, so that nobody reads half of it. Its mode and owner stay, and a link
stays a link. Installers of all homes wait for each other; a file that anyone else changed since it was
read is not replaced.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rekindle.errors import ConfigChanged, InvalidInput, RekindleError

MAX_FILE_BYTES = 64 * 1024 * 1024
LOCK_SECONDS = 10.0
_MAX_NEW_FOLDERS = 3  # that an installer creates for a file
# Claude Code and other programs in JavaScript lock a file by making a folder beside it. They renew it
# every few seconds; one that is older was left behind.
_STALE_LOCK_SECONDS = 10.0
_POLL_SECONDS = 0.02


def read_config(path: Path) -> bytes | None:
    """Return the content of a file, or None if it does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput(f"{path}: not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise InvalidInput(f"{path}: too large to edit")
        return file.read()


def decode_config(path: Path, content: bytes | None) -> str:
    """Return the content as text; raise InvalidInput if it is not UTF-8."""
    try:
        return (content or b"").decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: not valid UTF-8; nothing was changed") from None


def replace_config(path: Path, content: bytes, *, expected: bytes | None) -> None:
    """Replace the content of a file that still has the expected one, and create its folders.

    Raise `ConfigChanged` if it has another.
    """
    target = Path(os.path.realpath(path))
    folders = list_missing_folders(path)
    for folder in folders:
        folder.mkdir(exist_ok=True)
    fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".rekindle")
    draft = Path(name)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            _copy_attributes(target, file.fileno())
            file.flush()
            os.fsync(file.fileno())
        _require_unchanged(path, expected)
        os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        remove_folders(folders)
        raise


def delete_config(path: Path, *, expected: bytes) -> None:
    """Delete a file that still has the expected content; raise `ConfigChanged` if it has not."""
    _require_unchanged(path, expected)
    Path(os.path.realpath(path)).unlink(missing_ok=True)


def list_missing_folders(path: Path) -> list[Path]:
    """Return the folders above a file that do not exist, the outermost first."""
    folder = Path(os.path.realpath(path)).parent
    missing: list[Path] = []
    while not folder.exists():
        missing.insert(0, folder)
        folder = folder.parent
    return missing


def remove_folders(folders: list[Path]) -> None:
    """Remove those of the folders that are empty."""
    for folder in reversed(folders):
        try:
            folder.rmdir()
        except OSError:
            return


def _require_unchanged(path: Path, expected: bytes | None) -> None:
    if read_config(path) != expected:
        raise ConfigChanged(f"{path} was changed by another program; run the command again")


def _copy_attributes(target: Path, fd: int) -> None:
    try:
        status = os.stat(target)
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        os.fchmod(fd, 0o666 & ~umask)
        return
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        try:
            os.fchown(fd, status.st_uid, status.st_gid)
        except PermissionError:
            pass
    os.fchmod(fd, stat.S_IMODE(status.st_mode))


@contextmanager
def lock_config(path: Path, *, lock_folder: bool = False) -> Generator[None]:
    """Keep other installers from changing the file, and with `lock_folder` its own program too."""
    with ExitStack() as stack:
        for folder in _list_folders_to_lock(Path(os.path.realpath(path)).parent):
            stack.enter_context(_lock_folder_itself(folder))
        if lock_folder and path.parent.is_dir():
            stack.enter_context(_make_lock_folder(Path(f"{path}.lock")))
        yield


def _list_folders_to_lock(folder: Path) -> list[Path]:
    """Return the user's own folders above a file, the outermost first, and always the nearest one.

    The nearest one alone is not enough: an installer that is about to create folders locks the one
    above them, and the next one would find and lock what the first has just created. Those farther
    above are left to others who use them.
    """
    existing = [one for one in (folder, *folder.parents) if one.is_dir()]
    near = [one for one in folder.parents[:_MAX_NEW_FOLDERS] if one in existing[1:]]
    own = [one for one in near if one.stat().st_uid == os.geteuid()]
    return [*reversed(own), *existing[:1]]


@contextmanager
def _lock_folder_itself(folder: Path) -> Generator[None]:
    """Lock the folder itself, so that no lock file is left in someone else's folder."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:  # removed while we waited for the lock of the one above
        yield
        return
    try:
        _wait_for_lock(fd, folder)
        yield
    finally:
        os.close(fd)


def _wait_for_lock(fd: int, folder: Path) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return  # this file system has no locks; the comparison before writing remains
            if time.monotonic() > deadline:
                raise RekindleError(
                    f"{folder}: locked by another program for too long; try again"
                ) from None
        time.sleep(_POLL_SECONDS)


@contextmanager
def _make_lock_folder(lock: Path) -> Generator[None]:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            lock.mkdir()
            break
        except FileExistsError:
            if _is_stale(lock):
                remove_folders([lock])
            elif time.monotonic() > deadline:
                raise RekindleError(
                    f"{lock}: held by another program for too long; try again"
                ) from None
            else:
                time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        remove_folders([lock])


def _is_stale(lock: Path) -> bool:
    try:
        return time.time() - lock.stat().st_mtime > _STALE_LOCK_SECONDS
    except FileNotFoundError:
        return False
