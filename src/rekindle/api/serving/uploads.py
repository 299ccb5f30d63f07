"""Transcripts that clients push: their bytes, appended durably, and imported from there.

A client chooses nothing that becomes a path except the last two names, which are cleaned; the folder
of a tenant and that of a transcript are hashes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Collection, Generator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path

from rekindle.api.values import ImportCounts, TranscriptPlace, TranscriptState
from rekindle.errors import InvalidInput, NotFound, StoreFull, WrongOffset
from rekindle.store import Store
from rekindle.transcripts import SessionStarted, read_transcript
from rekindle.transcripts.importer import import_transcripts

FOLDER = Path("serve", "transcripts")  # in the home
MAX_TRANSCRIPT_BYTES = 2_000_000_000
MIN_FREE_BYTES = 500_000_000  # on the disk
_CONTENT, _PLACE = "content", "read"
_READ_BYTES = 1_000_000
_MAX_KNOWN = 1_000
_MAX_NAME_CHARS = 120
_NAME = re.compile(r"[0-9a-f]{64}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class _Upload:
    """One transcript: its file, and how much of it was hashed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.content = folder / _CONTENT
        self.lock = threading.Lock()
        self._size = 0
        self._hash = hashlib.sha256()

    def read_state(self) -> TranscriptState:
        """Return size and hash of the file so far."""
        try:
            size = self.content.stat().st_size
        except FileNotFoundError:
            size = 0
        if size < self._size:
            self.forget()
        if size > self._size:  # written by an earlier server
            with self.content.open("rb") as file:
                file.seek(self._size)
                while piece := file.read(_READ_BYTES):
                    self._add(piece)
        return TranscriptState(size=self._size, sha256=self._hash.hexdigest())

    def append(self, data: bytes) -> TranscriptState:
        """Append bytes and return once they are durable."""
        is_new = not self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        number = os.open(self.content, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            with os.fdopen(number, "ab", buffering=0) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                os.fsync(file.fileno())
        except OSError:
            os.truncate(self.content, self._size)  # no half of a chunk
            raise
        if is_new:
            _sync_folder(self.folder)
            _sync_folder(self.folder.parent)
        self._add(data)
        return TranscriptState(size=self._size, sha256=self._hash.hexdigest())

    def restart(self) -> None:
        """Discard the contents of the file."""
        if self.content.exists():
            os.truncate(self.content, 0)
        self.forget()

    def forget(self) -> None:
        """Forget the hash of what was there."""
        self._size, self._hash = 0, hashlib.sha256()

    def _add(self, data: bytes) -> None:
        self._hash.update(data)
        self._size += len(data)


class TranscriptUploads:
    """The transcripts of all tenants below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._mutex = threading.Lock()
        self._known: OrderedDict[Path, _Upload] = OrderedDict()

    def get_state(self, tenant: str, name: str) -> TranscriptState:
        """Return how much of a transcript is there."""
        with self._hold(tenant, name) as upload:
            return upload.read_state()

    def append_chunk(
        self, tenant: str, name: str, data: bytes, *, offset: int, restart: bool
    ) -> TranscriptState:
        """Append the next chunk; raise `WrongOffset` if it does not follow the existing ones."""
        with self._hold(tenant, name) as upload:
            state = upload.read_state()
            if restart and offset == 0:
                upload.restart()
            elif offset != state.size:
                raise WrongOffset(f"The server has {state.size} bytes of this transcript.")
            if offset + len(data) > MAX_TRANSCRIPT_BYTES:
                raise InvalidInput(f"A transcript has at most {MAX_TRANSCRIPT_BYTES:,} bytes.")
            self._check_disk()
            try:
                return upload.append(data)
            except OSError as error:
                raise StoreFull(f"The transcript cannot be stored: {error.strerror}.") from None

    def delete_all(self, tenant: str) -> None:
        """Delete everything that a tenant has pushed."""
        shutil.rmtree(self._get_folder(tenant), ignore_errors=True)

    def delete_sessions(self, tenant: str, sessions: Collection[str]) -> int:
        """Delete the transcripts of a tenant that hold any of these sessions; return how many."""
        try:
            names = sorted(one.name for one in self._get_folder(tenant).iterdir())
        except FileNotFoundError:
            return 0
        count = 0
        for name in names:
            with self._hold(tenant, name) as upload:
                if not _has_session(upload, sessions):
                    continue
                shutil.rmtree(upload.folder)
                upload.forget()
                count += 1
        return count

    def _get_folder(self, tenant: str) -> Path:
        return self._root / hashlib.sha256(tenant.encode()).hexdigest()[:32]

    def _check_disk(self) -> None:
        """Leave disk space for the store: a push must not stop others from writing."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if shutil.disk_usage(self._root).free < MIN_FREE_BYTES:
            raise StoreFull("The disk of the server is nearly full.")

    def import_sessions(
        self, store: Store, tenant: str, name: str, place: TranscriptPlace, user: str | None
    ) -> ImportCounts:
        """Import a transcript into the tenant's store, as sessions of a user."""
        with self._hold(tenant, name) as upload:
            if not upload.content.exists():
                raise NotFound("The server has no part of this transcript.")
            report = import_transcripts(
                store,
                [_link_content(upload, place)],
                user=user,
                repositories=place.repositories,
            )
        problem = report.failed[0].reason if report.failed else None
        if report.unknown:
            problem = "not a supported transcript"
        return ImportCounts(
            sessions=report.sessions,
            messages=report.messages,
            damaged=report.damaged,
            problem=problem,
        )

    @contextmanager
    def _hold(self, tenant: str, name: str) -> Generator[_Upload]:
        """Hold a transcript: one request at a time."""
        if not _NAME.fullmatch(name):
            raise InvalidInput("name: expected 64 hexadecimal digits")
        folder = self._get_folder(tenant) / name
        with self._mutex:
            upload = self._known.get(folder)
            if upload is None:
                upload = self._known[folder] = _Upload(folder)
            self._known.move_to_end(folder)
            if len(self._known) > _MAX_KNOWN:
                self._drop_idle()
        with upload.lock:
            yield upload

    def _drop_idle(self) -> None:
        for folder, upload in [*self._known.items()][: _MAX_KNOWN // 10]:
            if not upload.lock.locked():
                del self._known[folder]


def _has_session(upload: _Upload, sessions: Collection[str]) -> bool:
    """Return whether a transcript holds one of these sessions, or names one if it cannot be read."""
    try:
        for path in (upload.folder / _PLACE).glob("*/*"):
            for event in read_transcript(path):
                if isinstance(event, SessionStarted) and event.session.id in sessions:
                    return True
    except Exception:  # noqa: BLE001  # what nobody can read must not keep the others
        return _mentions_session(upload.content, sessions)
    return False


def _mentions_session(path: Path, sessions: Collection[str]) -> bool:
    if not path.exists() or not path.stat().st_size:  # which cannot be mapped
        return False
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        return any(data.find(id.encode("utf-8", "surrogateescape")) >= 0 for id in sessions)


def _link_content(upload: _Upload, place: TranscriptPlace) -> Path:
    """Return a path for readers: some agents name their sessions by the names of files."""
    folder = upload.folder / _PLACE / _clean_name(place.folder, "folder")
    path = folder / _clean_name(place.file, "transcript")
    if not path.exists() or not path.samefile(upload.content):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)
        os.link(upload.content, path)
    return path


def _clean_name(name: str, default: str) -> str:
    cleaned = _UNSAFE.sub("_", name).lstrip(".")[-_MAX_NAME_CHARS:].lstrip(".")
    return cleaned or default


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
