"""Process state on disk: one folder per process, no database.

    <home>/processes/<id>/record.json   owner, command, backend, state; replaced atomically
                          ring          its output (ring_buffer.py)
                          exit          the exit code, written by the shim that waits for it

The `starting` record is durable before the process exists, and survives a power cut. Later updates
(process id, exit) need no fsync until the exit is known: they are worthless after a reboot.
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
from rekindle.processes.backends.base import ProcessSpec, TerminalSize
from rekindle.processes.types import ProcessState, Watch
from rekindle.types import JSON

log = logging.getLogger(__name__)

_RECORD_FILE = "record.json"
_RING_FILE = "ring"
_DELETED_PREFIX = ".gone-"
_ERROR_REASONS = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "disk quota exceeded",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EMFILE: "too many open files",
    errno.EIO: "disk I/O error",
}
T = TypeVar("T")


# On disk, so that a process started by an older version is found again.
_FILE_KEYS = {"backend": "place", "exit_code": "code", "reason": "why"}


class ProcessRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename=_FILE_KEYS):
    """What a later program must know about a process. Contains no environment values."""

    id: str
    owner: str
    argv: tuple[str, ...]
    backend: str
    state: ProcessState
    started: float
    cwd: str = ""
    pty: TerminalSize | None = None
    ref: dict[str, JSON] = {}
    pid: int | None = None
    killing: bool = False
    ended: float | None = None
    exit_code: int | None = None
    reason: str = ""
    watches: tuple[Watch, ...] = ()
    session: str = ""
    total: int = 0  # bytes written, set at the exit
    name: str = ""
    after: str = ""  # the id of the process it waits for, or has waited for
    confined: bool = False  # started by a wrapper such as a sandbox, which is not kept

    def replace(self, **fields: JSON) -> ProcessRecord:
        return msgspec.structs.replace(self, **fields)


class Journal:
    """The folder of all processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Create the folder, private to this user."""
        self.run_guarded(lambda: self.folder.mkdir(mode=0o700, parents=True, exist_ok=True))

    def get_folder(self, id: str) -> Path:
        return self.folder / id

    def get_record_path(self, id: str) -> Path:
        return self.folder / id / _RECORD_FILE

    def get_ring_path(self, id: str) -> Path:
        return self.folder / id / _RING_FILE

    def build_spec(self, record: ProcessRecord) -> ProcessSpec:
        """Build the spec of a process for its backend, after a restart."""
        folder = self.get_folder(record.id)
        return ProcessSpec(record.id, record.argv, record.cwd, {}, record.pty, folder)

    def create(self, record: ProcessRecord) -> None:
        """Write the record of a new process durably."""

        def create_files() -> None:
            folder = self.get_folder(record.id)
            folder.mkdir(mode=0o700)
            try:
                self._write(record, durable=True)
                _sync_folder(self.folder)
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise

        self.run_guarded(create_files)

    def save(self, record: ProcessRecord, *, durable: bool = False) -> None:
        """Replace the record."""
        self.run_guarded(lambda: self._write(record, durable=durable))

    def _write(self, record: ProcessRecord, *, durable: bool) -> None:
        folder = self.get_folder(record.id)
        new = folder / (_RECORD_FILE + ".new")
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
        os.rename(new, folder / _RECORD_FILE)
        if durable:
            _sync_folder(folder)

    def load(self, id: str) -> ProcessRecord | None:
        """Load the record of a process; return None if there is none."""
        if not id or "/" in id or id.startswith("."):
            return None
        try:
            return msgspec.json.decode(
                (self.folder / id / _RECORD_FILE).read_bytes(), type=ProcessRecord
            )
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("cannot read the record of process %s: %s", id, error)
            return None

    def load_all(self) -> list[ProcessRecord]:
        """Load all records, oldest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        records = [one for name in names if (one := self.load(name))]
        return sorted(records, key=lambda one: (one.started, one.id))

    def remove_leftovers(self) -> None:
        """Remove leftovers of a crash: folders being deleted, and folders without a record."""
        for name in os.listdir(self.folder):
            path = self.folder / name
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                continue
            if name.startswith(_DELETED_PREFIX) or not (path / _RECORD_FILE).exists():
                shutil.rmtree(path, ignore_errors=True)

    def remove(self, id: str) -> None:
        """Remove a process atomically: its folder exists with a record, or not at all."""
        doomed = self.folder / f"{_DELETED_PREFIX}{id}"
        try:
            os.rename(self.folder / id, doomed)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("process %s cannot be removed from the journal: %s", id, error)
            return
        shutil.rmtree(doomed, ignore_errors=True)

    def run_guarded(self, action: Callable[[], T]) -> T:
        """Run a file operation; raise JournalUnwritable with the reason if it fails."""
        try:
            return action()
        except OSError as error:
            reason = _ERROR_REASONS.get(error.errno or 0, error.strerror or str(error))
            raise JournalUnwritable(f"{self.folder} cannot be written: {reason}") from error


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
