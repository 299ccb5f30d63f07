"""Send the transcripts of this machine's agents to a server: only missing parts, in compressed chunks.

The server says how much of a file it has, and the hash of that. If the file begins with these bytes,
only the rest is sent; if it was rewritten or is shorter, it is sent anew. Nothing has to be remembered
here but which files were sent completely, so that unchanged ones cost no request.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from rekindle.errors import ServerRefused
from rekindle.files import write_new_file
from rekindle.projects import find_repository
from rekindle.transcripts import SessionStarted, detect_format, read_transcript
from rekindle.transcripts.discovery import DiscoveredFile, find_files

from .client import ApiClient
from .values import ImportCounts, TranscriptPlace, TranscriptState

CHUNK_BYTES = 1_000_000
STATE_FILE = "pushed.json"
MACHINE_FILE = "machine-id"
MAX_EVENTS = 100  # of a transcript, in which folders are looked for
_READ_BYTES = 1_000_000
_MAX_CONFLICTS = 3  # of a file that another program sends or changes at the same time
_DATABASE = b"SQLite format 3\0"


class PushFailure(NamedTuple):
    """A file that was not sent, and why."""

    file: str
    reason: str


class PushReport(NamedTuple):
    """The files and bytes (before compression) that were sent, and the import of the server."""

    files: int = 0
    sent_bytes: int = 0
    sessions: int = 0
    messages: int = 0
    unchanged: int = 0
    failed: tuple[PushFailure, ...] = ()


class _PushState(msgspec.Struct):
    """The stamps of files that were sent completely, by server and path."""

    servers: dict[str, dict[str, str]] = {}


class TranscriptPusher:
    """Sends transcripts of one machine to one server."""

    def __init__(self, client: ApiClient, url: str, home: Path) -> None:
        self._client = client
        self._file = home / STATE_FILE
        self._machine = load_machine_id(home)
        self._state = _load_state(self._file)
        self._sent = self._state.servers.setdefault(_hash_text(url.rstrip("/")), {})

    def push_files(
        self, paths: Iterable[Path], progress: Callable[[int, int], None] | None = None
    ) -> PushReport:
        """Send the files, and all files below the folders, as far as the server lacks them.

        Errors of the connection are raised; everything sent until then stays sent.
        """
        failed: list[PushFailure] = []
        files = [*find_files(paths, lambda path, why: failed.append(PushFailure(path, why)))]
        total, done = sum(file.size for file in files), 0
        report = PushReport()
        try:
            for file in files:
                report = self._push_next(file, report, failed)
                done += file.size
                if progress:
                    progress(done, total)
        finally:
            _save_state(self._file, self._state)
        return report._replace(failed=tuple(failed))

    def _push_next(
        self, file: DiscoveredFile, report: PushReport, failed: list[PushFailure]
    ) -> PushReport:
        if self._sent.get(file.path) == file.stamp:
            return report._replace(unchanged=report.unchanged + 1)
        try:
            sent = self._push_file(file)
        except OSError as error:
            failed.append(PushFailure(file.path, error.strerror or str(error)))
            return report
        except ServerRefused as refusal:
            if refusal.status not in (400, 409, 413):
                raise
            failed.append(PushFailure(file.path, str(refusal)))
            return report
        self._sent[file.path] = file.stamp
        if sent is None:
            return report
        counts, size = sent
        if counts.problem is not None:
            failed.append(PushFailure(file.path, counts.problem))
        return report._replace(
            files=report.files + 1,
            sent_bytes=report.sent_bytes + size,
            sessions=report.sessions + counts.sessions,
            messages=report.messages + counts.messages,
        )

    def _push_file(self, file: DiscoveredFile) -> tuple[ImportCounts, int] | None:
        """Send the missing part of a file and import it; None if it is no complete transcript."""
        path = Path(file.path)
        if not can_push(path):
            return None
        name = make_transcript_name(self._machine, file.path)
        with _open_content(path) as content:
            sent = self._send_content(name, content)
        place = TranscriptPlace(
            folder=path.parent.name[-255:],
            file=path.name[-255:],
            repositories=find_repositories(path),
        )
        return self._client.import_transcript(name, place), sent

    def _send_content(self, name: str, content: BinaryIO) -> int:
        state = self._client.get_transcript(name)
        sent = conflicts = 0
        offset = state.size if _has_prefix(content, state) else 0
        while True:
            is_restart = offset == 0 < state.size
            content.seek(offset)
            chunk = content.read(CHUNK_BYTES)
            if not chunk and not is_restart:
                return sent
            try:
                state = self._client.append_transcript(
                    name, chunk, offset=offset, restart=is_restart
                )
            except ServerRefused as refusal:
                conflicts += 1
                if refusal.status != 409 or conflicts > _MAX_CONFLICTS:
                    raise
                state = self._client.get_transcript(name)
                offset = state.size if _has_prefix(content, state) else 0
                continue
            offset += len(chunk)
            sent += len(chunk)


def can_push(path: Path) -> bool:
    """Return whether a file is a complete transcript: not a part of one, and nothing else."""
    format = detect_format(path)
    if format is None:
        return False
    if format.name == "opencode":
        return _is_database(path)
    return not (format.name == "openhands" and path.parent.name == "events")


def find_repositories(path: Path) -> dict[str, str]:
    """Return the remotes of the folders that the first sessions of a transcript worked in.

    The server cannot look into them, and most transcripts do not name the remote.
    """
    found: dict[str, str] = {}
    try:
        for event in islice(read_transcript(path), MAX_EVENTS):
            cwd = event.session.cwd if isinstance(event, SessionStarted) else None
            repository = find_repository(cwd) if cwd and cwd not in found else None
            if cwd and repository is not None and repository.remote:
                found[cwd] = repository.remote
    except Exception:  # noqa: BLE001  # a damaged file is sent too; the server says what is wrong
        return found
    return found


def make_transcript_name(machine: str, path: str) -> str:
    """Return the name of a file on the server: the same for the same path of the same machine."""
    return _hash_text(f"{machine}\0{path}")


def load_machine_id(home: Path) -> str:
    """Return the random id of this home, made at the first call."""
    file = home / MACHINE_FILE
    try:
        found = file.read_text().strip()
    except FileNotFoundError:
        found = ""
    if found:
        return found
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = uuid.uuid4().hex
    draft = file.with_name(f".{file.name}-{os.getpid()}")
    draft.write_text(f"{new}\n")
    try:
        os.link(draft, file)  # the first of two programs wins
    except FileExistsError:
        new = file.read_text().strip() or new
    finally:
        draft.unlink()
    return new


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _has_prefix(content: BinaryIO, state: TranscriptState) -> bool:
    """Return whether a file begins with the bytes that the server has."""
    content.seek(0)
    digest, left = hashlib.sha256(), state.size
    while left > 0:
        piece = content.read(min(left, _READ_BYTES))
        if not piece:
            return False
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest() == state.sha256


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_DATABASE)) == _DATABASE


@contextmanager
def _open_content(path: Path) -> Generator[BinaryIO]:
    """Open a file, or a copy of a database that includes its write-ahead log."""
    if not _is_database(path):
        with path.open("rb") as file:
            yield file
        return
    with tempfile.TemporaryDirectory(prefix="rekindle-push-") as folder:
        copy = Path(folder) / "copy.db"
        try:
            with (
                closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
        except sqlite3.Error as error:
            raise OSError(f"the database cannot be read: {error}") from None
        with copy.open("rb") as file:
            yield file


def _load_state(file: Path) -> _PushState:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_PushState)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return _PushState()


def _save_state(file: Path, state: _PushState) -> None:
    with suppress(OSError, UnicodeEncodeError):
        write_new_file(file, msgspec.json.encode(state), durable=False)  # else the server is asked
