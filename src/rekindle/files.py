"""Write files that appear complete or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PRIVATE = 0o600
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def open_new_file(
    path: Path, *, mode: int = PRIVATE, in_place: bool = False, durable: bool = True
) -> Generator[BinaryIO]:
    """Open a file that takes the place of `path` once it is complete; until then, the old one stays.

    With `in_place`, an old file keeps its mode, and a link stays a link. A file that is not `durable`
    may be empty after a power failure.
    """
    target = Path(os.path.realpath(path)) if in_place else path
    if in_place and target.exists():
        mode = target.stat().st_mode & 0o777
    name = f"{target.parent}/.{target.name}.{os.urandom(4).hex()}.part"
    number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    try:
        with os.fdopen(number, "wb") as file:
            os.fchmod(number, mode)
            yield file
            file.flush()
            if durable:
                os.fsync(number)
        os.replace(name, target)
    except BaseException as error:
        os.unlink(name)
        if isinstance(error, OSError) and error.errno in _NO_ROOM and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_new_file(
    path: Path,
    content: bytes | str,
    *,
    mode: int = PRIVATE,
    in_place: bool = False,
    durable: bool = True,
) -> None:
    """Write a file that takes the place of `path` once it is complete (see `open_new_file`)."""
    data = content.encode() if isinstance(content, str) else content
    with open_new_file(path, mode=mode, in_place=in_place, durable=durable) as file:
        file.write(data)


def sync_path(path: str) -> None:
    """Flush a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
