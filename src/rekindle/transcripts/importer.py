"""Import of foreign transcripts into the store.

Importing twice is safe: every message has an id that is stable across reads, for which the store
returns the existing position; an unchanged file is recognized by its size and time and is not opened;
token counts are raised to the file's values, never added again. A file is marked as imported in the
transaction that writes its last messages, so the next import completes an interrupted one. Original
files are only read.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias, cast

from rekindle.errors import InvalidInput, NotFound
from rekindle.store import Store
from rekindle.store.core.prefetch import Prefetch
from rekindle.store.transfer.bulk_import import SessionImport, SessionImportResult
from rekindle.types import (
    MAX_NAME_CHARS,
    MAX_TITLE_CHARS,
    Message,
    Session,
    Tokens,
    UsageEntry,
    replace_fields,
)

from . import TranscriptFormat, detect_format
from .discovery import DiscoveredFile, find_files, make_unknown_stamp
from .events import SessionStarted, SessionUpdated, UnreadableEntry
from .interpreter_tuning import configure_interpreter

if sys.platform == "win32":
    from pathlib import WindowsPath as _NativePath
else:
    from pathlib import PosixPath as _NativePath

ProgressCallback: TypeAlias = Callable[[int, int], None]

log = logging.getLogger(__name__)

_new_tuple = cast(Any, tuple).__new__

# Messages per transaction: at this size, full-text indexing costs half.
_BATCH_MESSAGES = 2_000
_CHARACTERS_PER_MESSAGE = 2_000  # long messages fill a batch sooner
_MIN_BATCH_MESSAGES = 250  # smallest batch written towards the end
_EVENTS_PER_PROGRESS = 200
# Errors by which the store rejects a value, as opposed to failing itself.
_UNSTORABLE_ERRORS = (ValueError, TypeError, ArithmeticError, RecursionError, NotFound)
# Every unreadable entry is counted, but a garbage file must not fill the memory with reports.
_MAX_REPORTS_PER_FILE = 100
# Within a quarter of an hour.
_MAX_ENTRY_TOKENS = 10**12
_MAX_ENTRY_COST = Decimal(100_000)


class ImportFailure(NamedTuple):
    """A file that could not be imported, and why."""

    file: str
    reason: str


class FormatCount(NamedTuple):
    """Counts for one format: files read, sessions added or changed, and new messages and calls.

    `new_sessions` are those of the sessions that the store did not have.
    """

    files: int = 0
    sessions: int = 0
    messages: int = 0
    calls: int = 0
    damaged: int = 0
    new_sessions: int = 0


class ImportReport(NamedTuple):
    """The result of an import, in total and by format, with everything that was skipped."""

    files: int = 0
    sessions: int = 0
    messages: int = 0
    calls: int = 0
    unchanged: int = 0
    damaged: int = 0
    new_sessions: int = 0
    formats: Mapping[str, FormatCount] = {}
    damage: tuple[UnreadableEntry, ...] = ()
    failed: tuple[ImportFailure, ...] = ()
    unknown: tuple[str, ...] = ()


def import_transcripts(
    store: Store,
    paths: Iterable[str | Path],
    progress: ProgressCallback | None = None,
    *,
    user: str | None = None,
    repositories: Mapping[str, str] | None = None,
) -> ImportReport:
    """Import the files, and all files below the folders, into the store.

    A file that cannot be read is reported in the result and does not stop the others; store errors are
    raised. `progress` is called with the bytes done and the total bytes. `user` is whose sessions they
    are where the files name nobody, `repositories` the remotes of folders where the files name none.
    """
    importer = _Importer(store, user, repositories or {})
    batches = _iter_batches(importer, paths, progress)
    prefetch = Prefetch(lambda: next(batches, None))
    with configure_interpreter():
        while batch := prefetch.get():
            importer.write_batch(batch, prefetch)
    return importer.build_report()


def _iter_batches(
    importer: _Importer, paths: Iterable[str | Path], progress: ProgressCallback | None
) -> Iterator[_ImportBatch]:
    """Yield the files' messages in batches that are worth a transaction."""
    files = [*find_files(paths, importer.report_failure)]
    stamps = importer.store.get_import_stamps(file.path for file in files)
    total_bytes = sum(file.size for file in files)
    done_bytes = done_at_last_batch = 0
    for file in files:
        stamp = stamps.get(file.path)
        if stamp == file.stamp:
            importer.unchanged += 1
        elif stamp == make_unknown_stamp(file):
            importer.unknown.append(file.path)
        else:
            file_import = _FileImport(importer, file, is_new=stamp is None)
            for batch in file_import.read_file(
                _make_file_progress(progress, done_bytes, file.size, total_bytes)
            ):
                done_at_last_batch = done_bytes
                yield batch
        done_bytes += file.size
        if progress:
            progress(done_bytes, total_bytes)
        # Nothing is read while the last batch is written, so keep it small.
        if (
            importer.pending_messages >= _MIN_BATCH_MESSAGES
            and 2 * (done_bytes - done_at_last_batch) >= total_bytes - done_bytes
        ):
            done_at_last_batch = done_bytes
            yield importer.take_batch()
    yield importer.take_batch()


def _make_file_progress(
    progress: ProgressCallback | None, done: int, size: int, total: int
) -> Callable[[int], None] | None:
    return progress and (lambda within: progress(done + min(within, size), total))


class _ImportBatch(NamedTuple):
    """The content of one transaction, and the files that are complete with it."""

    arrivals: list[tuple[SessionImport, _FileImport]]
    files: list[_FileImport]


class _Importer:
    """A running import: pending writes and counters."""

    def __init__(self, store: Store, user: str | None, repositories: Mapping[str, str]) -> None:
        self.store = store
        self.user = user
        self.repositories = repositories
        self.pending = _ImportBatch([], [])
        self.pending_messages = self.pending_characters = 0
        self.batch_limit = (
            _BATCH_MESSAGES // 2
        )  # the first one is smaller: nothing is written while it is read
        self.unchanged = 0
        self.counters: dict[str, _FormatCounter] = {}
        self.damage: list[UnreadableEntry] = []
        self.failed: list[ImportFailure] = []
        self.unknown: list[str] = []

    def report_failure(self, path: str, reason: str) -> None:
        """Record a file that could not be imported."""
        self.failed.append(ImportFailure(path, reason))

    def take_batch(self) -> _ImportBatch:
        """Return everything pending, prepared for writing as far as possible."""
        waiting, self.pending = self.pending, _ImportBatch([], [])
        self.pending_messages = self.pending_characters = 0
        self.batch_limit = _BATCH_MESSAGES
        return waiting._replace(
            arrivals=[(self._prepare(*one), one[1]) for one in waiting.arrivals]
        )

    def _prepare(self, arrival: SessionImport, file: _FileImport) -> SessionImport:
        try:
            return self.store.prepare_import(arrival) if file.is_new else arrival
        except _UNSTORABLE_ERRORS:
            return arrival  # reported when it is written

    def write_batch(self, batch: _ImportBatch, read_ahead: Callable[[], None]) -> None:
        """Write a batch in one transaction; `read_ahead` is called while it is written."""
        if not (batch.arrivals or batch.files):
            return
        try:
            self._write_transaction(batch, read_ahead)
        except _UNSTORABLE_ERRORS:
            self._write_singly(batch)

    def _write_singly(self, batch: _ImportBatch) -> None:
        """Write sessions one by one to find those that cannot be stored."""
        for arrival, file in batch.arrivals:
            try:
                self._write_transaction(_ImportBatch([(arrival, file)], []))
            except _UNSTORABLE_ERRORS as error:
                file.fail(f"session {arrival.session.id:.80}: {error}")
        self._write_transaction(_ImportBatch([], batch.files))

    def _write_transaction(
        self, batch: _ImportBatch, read_ahead: Callable[[], None] | None = None
    ) -> None:
        # A file may fail in an earlier batch after this one was read.
        complete = [file for file in batch.files if not file.is_failed]
        stamps = {file.discovered.path: file.stamp for file in complete}
        arrivals = [arrival for arrival, _ in batch.arrivals]
        results = self.store.import_batch(arrivals, stamps, read_ahead)
        for (arrival, file), result in zip(batch.arrivals, results, strict=True):
            file.counter.add(arrival.session.id, result)
            for reason in result.rejected:
                file.report(
                    UnreadableEntry(
                        file.discovered.path, 0, f"session {arrival.session.id:.80}: {reason}"
                    )
                )
        for file in complete:
            file.counter.files += 1

    def build_report(self) -> ImportReport:
        """Return the report of the import."""
        counts = {name: counter.to_count() for name, counter in sorted(self.counters.items())}
        totals = (
            FormatCount(*map(sum, zip(*counts.values(), strict=True))) if counts else FormatCount()
        )
        return ImportReport(
            **totals._asdict(),
            unchanged=self.unchanged,
            formats=counts,
            damage=tuple(self.damage),
            failed=tuple(self.failed),
            unknown=tuple(self.unknown),
        )


class _FormatCounter:
    """A mutable `FormatCount`."""

    def __init__(self) -> None:
        self.files = self.messages = self.calls = self.damaged = 0
        self.changed_sessions: set[str] = set()
        self.new_sessions: set[str] = set()

    def add(self, session: str, result: SessionImportResult) -> None:
        self.messages += result.messages
        self.calls += result.calls
        if result.messages:
            self.changed_sessions.add(session)
        if result.is_new:
            self.new_sessions.add(session)

    def to_count(self) -> FormatCount:
        return FormatCount(
            files=self.files,
            sessions=len(self.changed_sessions),
            messages=self.messages,
            calls=self.calls,
            damaged=self.damaged,
            new_sessions=len(self.new_sessions),
        )


class _FileImport:
    """The import of one file."""

    def __init__(self, importer: _Importer, discovered: DiscoveredFile, *, is_new: bool) -> None:
        self.importer = importer
        self.discovered = discovered
        self.is_new = is_new
        self.counter = _FormatCounter()  # replaced once the format is known
        self.stamp = discovered.stamp
        self.buffers: dict[str, _SessionBuffer] = {}
        self.filled_buffers: dict[str, _SessionBuffer] = {}  # buffers with messages
        self.report_count = 0
        self.is_failed = False

    def read_file(self, report_progress: Callable[[int], None] | None) -> Iterator[_ImportBatch]:
        """Read the file. Its messages share batches with those of other files."""
        path = _ProgressPath(self.discovered.path)
        try:
            yield from self._read_events(path, detect_format(path), report_progress)
        except (OSError, InvalidInput) as error:
            self.fail((isinstance(error, OSError) and error.strerror) or str(error))
        except Exception as error:
            # One file of an unexpected shape must not stop the import of the others.
            log.exception("cannot read %s", path)
            self.fail(f"{type(error).__name__}: {error}")
        self.flush_buffers()
        self.importer.pending.files.append(self)

    def _read_events(
        self,
        path: _ProgressPath,
        format: TranscriptFormat | None,
        report_progress: Callable[[int], None] | None,
    ) -> Iterator[_ImportBatch]:
        if format is None:
            self.importer.unknown.append(self.discovered.path)
            self.stamp = make_unknown_stamp(self.discovered)
            return
        self.counter = self.importer.counters.setdefault(format.name, self.counter)
        importer = self.importer
        buffer: _SessionBuffer | None = None
        for number, event in enumerate(format.read(path)):
            if isinstance(event, Message):
                if buffer is not None:
                    self._add_message(buffer, event)
            elif isinstance(event, SessionStarted):
                buffer = self._get_buffer(event.session)
            elif isinstance(event, UnreadableEntry):
                self.report(event)
            else:
                self._complete_session(event)
            if (
                importer.pending_messages >= importer.batch_limit
                or importer.pending_characters >= importer.batch_limit * _CHARACTERS_PER_MESSAGE
            ):
                self.flush_buffers()
                yield importer.take_batch()
            if report_progress and not number % _EVENTS_PER_PROGRESS:
                report_progress(path.get_bytes_read())

    def _add_message(self, buffer: _SessionBuffer, message: Message) -> None:
        if not buffer.messages:
            self.filled_buffers[buffer.session.id] = buffer
        self.importer.pending_messages += 1
        self.importer.pending_characters += buffer.add(message)

    def _get_buffer(self, session: Session) -> _SessionBuffer:
        id = _limit_name(session.id) or ""
        buffer = self.buffers.get(id)
        if buffer is None:
            session = self._complete_fields(session)
            buffer = self.buffers[id] = _SessionBuffer(session, self.discovered.mtime)
        return buffer

    def _complete_fields(self, session: Session) -> Session:
        return replace_fields(
            session,
            user=session.user or self.importer.user,
            repository=session.repository or self.importer.repositories.get(session.cwd or ""),
        )

    def _complete_session(self, event: SessionUpdated) -> None:
        """Queue the rest of a session, with the details known only at the end of the file."""
        updated = self._complete_fields(event.session)
        id = _limit_name(updated.id) or ""
        buffer = self.buffers.pop(id, None) or _SessionBuffer(updated, self.discovered.mtime)
        self.filled_buffers.pop(id, None)
        session = _limit_session(updated, updated.started or buffer.session.started)
        entries = tuple(map(_limit_usage, event.usage))
        left = frozenset(_limit_name(one) or "" for one in event.abandoned)
        messages = buffer.take_messages()
        arrival = SessionImport(session, messages, True, usage=entries, abandoned=left)
        self.importer.pending.arrivals.append((arrival, self))
        self.importer.pending_messages += 1

    def flush_buffers(self) -> None:
        """Queue all buffered messages for writing."""
        for buffer in self.filled_buffers.values():
            self.importer.pending.arrivals.append(
                (SessionImport(buffer.session, buffer.take_messages()), self)
            )
        self.filled_buffers.clear()

    def fail(self, reason: str) -> None:
        """Record that the file could not be imported."""
        if not self.is_failed:
            self.importer.report_failure(self.discovered.path, reason)
        self.is_failed = True

    def report(self, entry: UnreadableEntry) -> None:
        """Record an unreadable entry of the file."""
        self.counter.damaged += 1
        self.report_count += 1
        if self.report_count <= _MAX_REPORTS_PER_FILE:
            self.importer.damage.append(entry)


class _SessionBuffer:
    """A session of the file and its buffered messages."""

    def __init__(self, session: Session, default_time: float) -> None:
        # Old sessions must not appear to be new.
        self.last_time = session.started or default_time
        self.session = _limit_session(session, self.last_time)
        self.messages: list[Message] = []

    def add(self, message: Message) -> int:
        """Buffer a message and return its approximate size in memory."""
        _, content, calls, _, _, reasoning, _, id, meta, time, _, _ = message[:]
        if time is None or (id is not None and len(id) > MAX_NAME_CHARS):
            time = self.last_time if time is None else time
            # Half of all messages have no time, and this is the fastest way to copy them.
            message = _new_tuple(Message, (*message[:7], _limit_name(id), meta, time, None, False))
        self.last_time = time
        self.messages.append(message)
        if isinstance(content, str) and not (calls or reasoning):
            return len(content)
        return _estimate_size(message)

    def take_messages(self) -> list[Message]:
        messages, self.messages = self.messages, []
        return messages


class _ProgressPath(_NativePath):
    """A path that knows how far the file opened through it has been read."""

    _file: IO[Any] | None = None

    def open(self, *args: Any, **given: Any) -> IO[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        file = cast("IO[Any]", super().open(*args, **given))
        self._file = file
        return file

    def get_bytes_read(self) -> int:
        """Return the bytes read so far; 0 if the format does not read sequentially."""
        file = self._file
        return 0 if file is None or file.closed else file.tell()


def _estimate_size(message: Message) -> int:
    """Return roughly how many characters a message holds in memory."""
    _, content, calls, _, _, reasoning = message[:6]
    size = len(reasoning) if reasoning else 0
    if isinstance(content, str):
        size += len(content)
    elif content:
        size += sum(_count_characters(part) for part in content)
    for call in calls:
        arguments = call.arguments
        size += len(arguments) if isinstance(arguments, str) else _count_characters(arguments)
    return size


def _count_characters(part: Mapping[str, Any]) -> int:
    """Count the characters in a part's texts, including one level down (images)."""
    size = 0
    for value in part.values():
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict):
            inner = cast("dict[str, object]", value).values()
            size += sum(len(one) for one in inner if isinstance(one, str))
    return size


def _limit_session(session: Session, started: float) -> Session:
    """Limit the session's names to what an index can hold, and its title for display."""
    return replace_fields(
        session,
        id=_limit_name(session.id) or "",
        parent=_limit_name(session.parent),
        owner=_limit_name(session.owner),
        started=started,
        title=" ".join(session.title.split())[:MAX_TITLE_CHARS] if session.title else None,
    )


def _limit_usage(entry: UsageEntry) -> UsageEntry:
    """Limit a usage entry to what an index can hold, and sums over many of them too."""
    return entry._replace(
        model=_limit_name(entry.model) or "",
        tokens=Tokens(*(min(count, _MAX_ENTRY_TOKENS) for count in entry.tokens)),
        cost=min(entry.cost, _MAX_ENTRY_COST),
        cache_write_1h=min(entry.cache_write_1h, _MAX_ENTRY_TOKENS),
    )


def _limit_name(name: str | None) -> str | None:
    """Limit a name to what the store's index can hold; foreign ids have no length limit."""
    if name is None or len(name) <= MAX_NAME_CHARS:
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
