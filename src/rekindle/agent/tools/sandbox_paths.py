"""Files that a tool may touch: those inside the allowed folders, whatever links lead where.

A path is resolved first and must then lie in an allowed folder. It is opened by walking down from
that folder without following a single link: after the resolving there is none left on the way, so
one that is met was put there in between, and is refused.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import NamedTuple

from rekindle.errors import ToolError

from .environment import home_of
from .tool import ToolContext

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not block us
_LONGEST = 4096


class Place(NamedTuple):
    """A resolved path: the allowed folder it lies in, and the way down from there."""

    root: str
    parts: tuple[str, ...]
    asked: str  # as the model wrote it, for messages

    @property
    def path(self) -> str:
        return os.path.join(self.root, *self.parts)


class Version(NamedTuple):
    """What tells one state of a file from the next."""

    device: int
    inode: int
    size: int
    changed: int
    mode: int
    owner: tuple[int, int]


def locate(context: ToolContext, asked: str) -> Place:
    """Where `asked` leads, if a tool may go there; relative paths start from the working folder."""
    path = _absolute(context, asked)
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError) as error:
        raise ToolError(f"{asked}: this path cannot be followed: {error}") from None
    for root in allowed(context):
        if real == root:
            return Place(root, (), asked)
        inside = root.rstrip("/") + "/"
        if real.startswith(inside):
            return Place(root, tuple(real[len(inside) :].split("/")), asked)
    folders = ", ".join(map(str, context.roots))
    raise ToolError(f"{asked}: outside the allowed folders ({folders})", refused=True)


def is_allowed(context: ToolContext, path: str) -> bool:
    """Does this path lead into an allowed folder?"""
    try:
        locate(context, path)
    except ToolError:
        return False
    return True


def allowed(context: ToolContext) -> list[str]:
    """The allowed folders, resolved. One that lies in another is left out.

    It adds nothing, and whoever may write in the outer one could put a link in its place.
    """
    plain = sorted({os.path.abspath(root) for root in context.roots}, key=len)
    outer: list[str] = []
    for root in plain:
        if not any(root.startswith(other.rstrip("/") + "/") for other in outer):
            outer.append(root)
    return [os.path.realpath(root) for root in outer]


def _absolute(context: ToolContext, asked: str) -> str:
    if not asked or "\0" in asked or len(asked) > _LONGEST:
        raise ToolError(f"{asked[:80]!r}: not a path (empty, too long, or with a NUL in it)")
    try:
        os.fsencode(asked)
    except UnicodeEncodeError:
        raise ToolError(f"{asked!r}: no file can have this name") from None
    if asked == "~" or asked.startswith("~/"):
        home = home_of(context.environment)
        if home is None:
            raise ToolError(f"{asked}: the home folder is not known; give the full path")
        asked = home + asked[1:]
    return os.path.join(os.path.abspath(context.cwd), asked)


@contextmanager
def folder_of(place: Place, *, make: bool = False) -> Generator[tuple[int, str]]:
    """The open folder that holds the file, and the file's name in it."""
    if not place.parts:
        raise ToolError(f"{place.asked}: is a folder")
    opened = _walk(place, place.parts[:-1], make=make)
    try:
        yield opened, place.parts[-1]
    finally:
        os.close(opened)


@contextmanager
def open_folder(place: Place) -> Generator[int]:
    """The folder itself, open."""
    opened = _walk(place, place.parts, make=False)
    try:
        yield opened
    finally:
        os.close(opened)


def _walk(place: Place, parts: tuple[str, ...], *, make: bool) -> int:
    try:
        current = os.open(place.root, _FOLDER)
    except OSError as error:
        raise _told(place, error) from None
    for part in parts:
        try:
            if make:
                _made(current, part)
            below = os.open(part, _FOLDER, dir_fd=current)
        except OSError as error:
            raise _told(place, error) from None
        finally:
            os.close(current)
        current = below
    return current


def _made(folder: int, name: str) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        pass


@contextmanager
def open_file(place: Place) -> Generator[tuple[int, Version]]:
    """A regular file, open for reading, and which state of it that is."""
    with folder_of(place) as (folder, name):
        try:
            opened = os.open(name, _FILE, dir_fd=folder)
        except FileNotFoundError:
            near = _near(place.asked, name, os.listdir(folder))
            raise ToolError(f"{place.asked}: no such file{near}") from None
        except OSError as error:
            raise _told(place, error) from None
    try:
        facts = os.fstat(opened)
        if stat.S_ISDIR(facts.st_mode):
            raise ToolError(f"{place.asked}: is a folder; search_files lists what is in it")
        if not stat.S_ISREG(facts.st_mode):
            raise ToolError(f"{place.asked}: is not a regular file")
        yield opened, _version(facts)
    finally:
        os.close(opened)


def _version(facts: os.stat_result) -> Version:
    owner = (facts.st_uid, facts.st_gid)
    state = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return Version(*state, stat.S_IMODE(facts.st_mode), owner)


def replace_file(place: Place, data: bytes, *, expected: Version | None = None) -> bool:
    """Put a whole new content in place at once, with the old mode; True if the file is new.

    With `expected`, only if the file is still what was read.
    """
    with folder_of(place, make=True) as (folder, name):
        try:
            old = _current(place, folder, name)
            if expected is not None and old != expected:
                raise ToolError(f"{place.asked}: changed meanwhile; read it again")
            _swap(folder, name, data, old)
        except OSError as error:
            raise _told(place, error) from None
    return old is None


def _current(place: Place, folder: int, name: str) -> Version | None:
    try:
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(facts.st_mode):
        raise ToolError(f"{place.asked}: is a folder")
    if not stat.S_ISREG(facts.st_mode):
        raise ToolError(f"{place.asked}: is not a regular file", refused=True)
    return _version(facts)


def _swap(folder: int, name: str, data: bytes, old: Version | None) -> None:
    beside = f".{os.urandom(6).hex()}.rekindle"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(beside, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _keep(file.fileno(), old)
            os.fsync(file.fileno())
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(beside, dir_fd=folder)
        raise


def _keep(opened: int, old: Version) -> None:
    facts = os.fstat(opened)
    if (facts.st_uid, facts.st_gid) != old.owner:
        try:
            os.fchown(opened, *old.owner)
        except PermissionError:  # only root may give files away; the content matters more
            pass
    os.fchmod(opened, old.mode)


def _told(place: Place, error: OSError) -> ToolError:
    if error.errno == errno.ENOENT:
        return ToolError(f"{place.asked}: no such file or folder")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return ToolError(f"{place.asked}: a part of the path is not a folder, or is a link")
    return ToolError(f"{place.asked}: {error.strerror or error}")


def _near(asked: str, name: str, names: list[str]) -> str:
    """Names in the same folder that look alike; the model may have mistyped."""
    found = get_close_matches(name, names[:5000], n=3)
    shown = [os.path.join(os.path.dirname(asked), one) for one in found]
    return f"; did you mean {' or '.join(shown)}?" if shown else ""
