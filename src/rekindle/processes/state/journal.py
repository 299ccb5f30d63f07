"""What is known about each process on disk: one folder for each, and no database.

    <home>/processes/<id>/record.json   who, what, where; written whole or not at all
                          ring          its output (ring.py)
                          exit          the exit code, written by the shim that waits for it

The record says `starting` before there is a process, and that survives a power cut. What follows
(the process id, the end) is worth nothing without the machine that ran it, until the end is known.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from rekindle.errors import JournalUnwritable
from rekindle.processes.backends.base import Size, Spec
from rekindle.processes.types import State, Watch
from rekindle.types import JSON

log = logging.getLogger(__name__)

_RECORD = "record.json"
_RING = "ring"
_GONE = ".gone-"
_WHY = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "it may not be written",
    errno.EPERM: "it may not be written",
    errno.EMFILE: "too many files are open",
    errno.EIO: "the disk fails",
}
T = TypeVar("T")


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a later program must know about a process. No value of its environment is here."""

    id: str
    owner: str
    argv: tuple[str, ...]
    place: str
    state: State
    started: float
    cwd: str = ""
    pty: Size | None = None
    ref: dict[str, JSON] = {}
    pid: int | None = None
    killing: bool = False
    ended: float | None = None
    code: int | None = None
    why: str = ""
    watches: tuple[Watch, ...] = ()
    session: str = ""
    total: int = 0  # bytes written, once it has ended

    def changed(self, **fields: JSON) -> Record:
        return msgspec.structs.replace(self, **fields)


class Journal:
    """The folder of all processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder, for nobody else to look into."""
        self.told(lambda: self.folder.mkdir(mode=0o700, parents=True, exist_ok=True))

    def home_of(self, id: str) -> Path:
        return self.folder / id

    def record_of(self, id: str) -> Path:
        return self.folder / id / _RECORD

    def ring_of(self, id: str) -> Path:
        return self.folder / id / _RING

    def spec(self, record: Record) -> Spec:
        """The process for its place, after a restart."""
        folder = self.home_of(record.id)
        return Spec(record.id, record.argv, record.cwd, {}, record.pty, folder)

    def create(self, record: Record) -> None:
        """Write a new process down, so that a power cut does not take it back."""

        def create() -> None:
            folder = self.home_of(record.id)
            folder.mkdir(mode=0o700)
            try:
                self._write(record, durable=True)
                _sync(self.folder)
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise

        self.told(create)

    def save(self, record: Record, *, durable: bool = False) -> None:
        """Replace the record."""
        self.told(lambda: self._write(record, durable=durable))

    def _write(self, record: Record, *, durable: bool) -> None:
        folder = self.home_of(record.id)
        new = folder / (_RECORD + ".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        file = os.open(new, flags, 0o600)
        try:
            data = msgspec.json.encode(record)
            while data:
                data = data[os.write(file, data) :]
            if durable:
                os.fsync(file)
        finally:
            os.close(file)
        os.rename(new, folder / _RECORD)
        if durable:
            _sync(folder)

    def load(self, id: str) -> Record | None:
        """The record of a process; None if there is none."""
        if not id or "/" in id or id.startswith("."):
            return None
        try:
            return msgspec.json.decode((self.folder / id / _RECORD).read_bytes(), type=Record)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("the record of process %s cannot be read: %s", id, error)
            return None

    def all(self) -> list[Record]:
        """Every process, oldest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        found = [one for name in names if (one := self.load(name))]
        return sorted(found, key=lambda one: (one.started, one.id))

    def tidy(self) -> None:
        """Remove what a crash left: folders that were going, and such as never had a record."""
        for name in os.listdir(self.folder):
            path = self.folder / name
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                continue
            if name.startswith(_GONE) or not (path / _RECORD).exists():
                shutil.rmtree(path, ignore_errors=True)

    def remove(self, id: str) -> None:
        """Forget a process: its folder is there with a record, or it is not there."""
        gone = self.folder / f"{_GONE}{id}"
        try:
            os.rename(self.folder / id, gone)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("process %s cannot be removed from the journal: %s", id, error)
            return
        shutil.rmtree(gone, ignore_errors=True)

    def told(self, act: Callable[[], T]) -> T:
        """Do something to the files of a process; JournalUnwritable says why it cannot be done."""
        try:
            return act()
        except OSError as error:
            why = _WHY.get(error.errno or 0, error.strerror or str(error))
            raise JournalUnwritable(f"{self.folder} cannot be written: {why}") from error


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
