"""Taking foreign transcripts into the store.

What makes a second intake safe: every message carries an id that its file repeats, which the
store answers with the old position; a file that has not changed since is known by its size and
time and is not opened; token counts are raised to what the file says, never added again.
A file is noted as taken in by the transaction that writes the last of it, so an intake that is
interrupted is completed by the next. Originals are only ever read.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias, cast

from rekindle.errors import InvalidInput, NotFound
from rekindle.store import Store
from rekindle.store.core.prefetch import Ahead
from rekindle.store.transfer.bulk_import import Arrival
from rekindle.types import MAX_NAME, MAX_TITLE, Message, Session, replace

from . import FORMATS, Format, detect
from .discovery import Found, find
from .events import Damage, Opened

if sys.platform == "win32":
    from pathlib import WindowsPath as _NativePath
else:
    from pathlib import PosixPath as _NativePath

Progress: TypeAlias = Callable[[int, int], None]

log = logging.getLogger(__name__)

# What is written together: a full-text index costs half in transactions of this size.
_BATCH = 2_000
_CHARACTERS = 2_000  # of a message, as a batch counts: long ones fill it sooner
_FEWEST = 250  # messages that are worth one towards the end
_ALLOCATED = 100_000  # values between two looks for cycles
# How many events of a file pass before the progress is told again.
_STEP = 200
# How the store says that it is the value, and not the store, that is wrong.
_UNSTORABLE = (ValueError, TypeError, ArithmeticError, RecursionError, NotFound)
# Every damaged line is counted, but a file of garbage must not fill the memory with reports.
_REPORTED_DAMAGE = 100


class Failure(NamedTuple):
    """A file that could not be taken in, and why."""

    file: str
    why: str


class Share(NamedTuple):
    """What came in one format: files read, sessions that are new or grew, and what is new in them."""

    files: int = 0
    sessions: int = 0
    messages: int = 0
    calls: int = 0
    damaged: int = 0


class Intake(NamedTuple):
    """What an intake did, in all and by format, and what it had to leave."""

    files: int = 0
    sessions: int = 0
    messages: int = 0
    calls: int = 0
    unchanged: int = 0
    damaged: int = 0
    formats: Mapping[str, Share] = {}
    damage: tuple[Damage, ...] = ()
    failed: tuple[Failure, ...] = ()
    unknown: tuple[str, ...] = ()


def take_in(store: Store, paths: Iterable[str | Path], progress: Progress | None = None) -> Intake:
    """Read the files, and all files below the folders, into the store.

    A file that cannot be read is reported in the answer and does not stop the rest; trouble with
    the store itself is raised. `progress` is told bytes done and bytes in all.
    """
    intake = _Intake(store)
    batches = _batches(intake, paths, progress)
    ahead = Ahead(lambda: next(batches, None))
    with _rarely_collected():
        while batch := ahead.take():
            intake.write(batch, ahead)
    return intake.total()


@contextmanager
def _rarely_collected() -> Generator[None]:
    """A batch is many small values at once and no cycle among them: to look for one costs 4%."""
    before = gc.get_threshold()
    gc.set_threshold(before[0] and max(before[0], _ALLOCATED), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _batches(
    intake: _Intake, paths: Iterable[str | Path], progress: Progress | None
) -> Iterator[_Batch]:
    """What the files say, in pieces that are worth a transaction."""
    files = [*find(paths, intake.fail)]
    stamps = intake.store.stamps(file.path for file in files)
    total = sum(file.size for file in files)
    done = given = 0
    for file in files:
        stamp = stamps.get(file.path)
        if stamp == file.stamp:
            intake.unchanged += 1
        elif stamp == _unknown(file):
            intake.unknown.append(file.path)
        else:
            taking = _File(intake, file, is_new=stamp is None)
            for batch in taking.take(_teller(progress, done, file.size, total)):
                given = done
                yield batch
        done += file.size
        if progress:
            progress(done, total)
        # Nothing is read while the last one is written, so it had better be small.
        if intake.count >= _FEWEST and 2 * (done - given) >= total - done:
            given = done
            yield intake.batch()
    yield intake.batch()


def _teller(
    progress: Progress | None, done: int, size: int, total: int
) -> Callable[[int], None] | None:
    return progress and (lambda within: progress(done + min(within, size), total))


def _unknown(file: Found) -> str:
    """The stamp of a file in no format that we know: with new formats it deserves another look."""
    return f"{file.stamp}:{len(FORMATS)}"


class _Batch(NamedTuple):
    """What goes into one transaction, and the files that are complete with it."""

    arrivals: list[tuple[Arrival, _File]]
    files: list[_File]


class _Intake:
    """An intake under way: what waits to be written, and what was counted."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.waiting = _Batch([], [])
        self.count = self.size = 0
        self.most = _BATCH // 2  # at first: nothing is written while it is read
        self.unchanged = 0
        self.tallies: dict[str, _Tally] = {}
        self.damage: list[Damage] = []
        self.failed: list[Failure] = []
        self.unknown: list[str] = []

    def fail(self, path: str, why: str) -> None:
        self.failed.append(Failure(path, why))

    def batch(self) -> _Batch:
        """Everything that waits, made ready as far as that can be done ahead."""
        waiting, self.waiting = self.waiting, _Batch([], [])
        self.count = self.size = 0
        self.most = _BATCH
        return waiting._replace(arrivals=[(self._ready(*one), one[1]) for one in waiting.arrivals])

    def _ready(self, arrival: Arrival, file: _File) -> Arrival:
        try:
            return self.store.ready(arrival) if file.is_new else arrival
        except _UNSTORABLE:
            return arrival  # to be told when it is written

    def write(self, batch: _Batch, meanwhile: Callable[[], None]) -> None:
        """Write a batch in one transaction; `meanwhile`, the next may be read."""
        if not (batch.arrivals or batch.files):
            return
        try:
            self._write(batch, meanwhile)
        except _UNSTORABLE:
            self._write_singly(batch)

    def _write_singly(self, batch: _Batch) -> None:
        """Find out what it is that cannot be stored, and store the rest."""
        for arrival, file in batch.arrivals:
            try:
                self._write(_Batch([(arrival, file)], []))
            except _UNSTORABLE as error:
                file.fail(f"session {arrival.session.id:.80}: {error}")
        self._write(_Batch([], batch.files))

    def _write(self, batch: _Batch, meanwhile: Callable[[], None] | None = None) -> None:
        # A file may fail by what it said in an earlier batch, when this one was read already.
        whole = [file for file in batch.files if not file.is_failed]
        marks = {file.found.path: file.stamp for file in whole}
        arrivals = [arrival for arrival, _ in batch.arrivals]
        arrived = self.store.take_in(arrivals, marks, meanwhile)
        for (arrival, file), new in zip(batch.arrivals, arrived, strict=True):
            file.tally.add(arrival.session.id, new.messages, new.calls)
            for why in new.refused:
                file.report(Damage(file.found.path, 0, f"session {arrival.session.id:.80}: {why}"))
        for file in whole:
            file.tally.files += 1

    def total(self) -> Intake:
        shares = {name: tally.share() for name, tally in sorted(self.tallies.items())}
        sums = Share(*map(sum, zip(*shares.values(), strict=True))) if shares else Share()
        return Intake(
            **sums._asdict(),
            unchanged=self.unchanged,
            formats=shares,
            damage=tuple(self.damage),
            failed=tuple(self.failed),
            unknown=tuple(self.unknown),
        )


class _Tally:
    """A share while it is being counted."""

    def __init__(self) -> None:
        self.files = self.messages = self.calls = self.damaged = 0
        self.touched: set[str] = set()

    def add(self, session: str, messages: int, calls: int) -> None:
        self.messages += messages
        self.calls += calls
        if messages:
            self.touched.add(session)

    def share(self) -> Share:
        return Share(self.files, len(self.touched), self.messages, self.calls, self.damaged)


class _File:
    """One file on its way into the store."""

    def __init__(self, intake: _Intake, found: Found, *, is_new: bool) -> None:
        self.intake = intake
        self.found = found
        self.is_new = is_new
        self.tally = _Tally()  # until the format is known
        self.stamp = found.stamp
        self.seats: dict[str, _Seat] = {}
        self.spoken: dict[str, _Seat] = {}  # those with messages that wait
        self.damage = 0
        self.is_failed = False

    def take(self, tell: Callable[[int], None] | None) -> Iterator[_Batch]:
        """Read the file. What it says is written together with what others say."""
        path = _Watched(self.found.path)
        try:
            yield from self._read(path, detect(path), tell)
        except (OSError, InvalidInput) as error:
            self.fail((isinstance(error, OSError) and error.strerror) or str(error))
        except Exception as error:
            # One file with a shape that nobody has seen yet must not keep the others out.
            log.exception("cannot read %s", path)
            self.fail(f"{type(error).__name__}: {error}")
        self.hand_over()
        self.intake.waiting.files.append(self)

    def _read(
        self, path: _Watched, format: Format | None, tell: Callable[[int], None] | None
    ) -> Iterator[_Batch]:
        if format is None:
            self.intake.unknown.append(self.found.path)
            self.stamp = _unknown(self.found)
            return
        self.tally = self.intake.tallies.setdefault(format.name, self.tally)
        intake = self.intake
        seat: _Seat | None = None
        for number, event in enumerate(format.read(path)):
            if isinstance(event, Message):
                if seat is not None:
                    self._hear(seat, event)
            elif isinstance(event, Opened):
                seat = self._seat(event.session)
            elif isinstance(event, Damage):
                self.report(event)
            else:
                self._learn(event.session)
            if intake.count >= intake.most or intake.size >= intake.most * _CHARACTERS:
                self.hand_over()
                yield intake.batch()
            if tell and not number % _STEP:
                tell(path.place())

    def _hear(self, seat: _Seat, message: Message) -> None:
        if not seat.batch:
            self.spoken[seat.session.id] = seat
        self.intake.count += 1
        self.intake.size += seat.add(message)

    def _seat(self, session: Session) -> _Seat:
        id = _bounded(session.id) or ""
        seat = self.seats.get(id)
        if seat is None:
            seat = self.seats[id] = _Seat(session, self.found.time)
        return seat

    def _learn(self, told: Session) -> None:
        """Hand over the rest of a session with what only the end of the file knows."""
        id = _bounded(told.id) or ""
        seat = self.seats.pop(id, None) or _Seat(told, self.found.time)
        self.spoken.pop(id, None)
        session = _bounded_session(told, told.started or seat.session.started)
        self.intake.waiting.arrivals.append((Arrival(session, seat.take(), is_whole=True), self))
        self.intake.count += 1

    def hand_over(self) -> None:
        """Give what was heard so far to what waits to be written."""
        for seat in self.spoken.values():
            self.intake.waiting.arrivals.append((Arrival(seat.session, seat.take()), self))
        self.spoken.clear()

    def fail(self, why: str) -> None:
        if not self.is_failed:
            self.intake.fail(self.found.path, why)
        self.is_failed = True

    def report(self, damage: Damage) -> None:
        self.tally.damaged += 1
        self.damage += 1
        if self.damage <= _REPORTED_DAMAGE:
            self.intake.damage.append(damage)


class _Seat:
    """A session of the file, and what was heard of it."""

    def __init__(self, session: Session, moment: float) -> None:
        # What happened long ago must not look as if it happened now.
        self.time = session.started or moment
        self.session = _bounded_session(session, self.time)
        self.batch: list[Message] = []

    def add(self, message: Message) -> int:
        """Keep a message until it is written; about how much memory that takes."""
        _, content, calls, _, _, reasoning, _, id, _, time, _, _ = message
        if time is None or (id is not None and len(id) > MAX_NAME):
            time = self.time if time is None else time
            # Neither `replace` nor the constructor: half of all messages come without a time.
            message = Message._make((*message[:7], _bounded(id), message.meta, time, None, False))
        self.time = time
        self.batch.append(message)
        if isinstance(content, str) and not (calls or reasoning):
            return len(content)
        return _weight(message)

    def take(self) -> list[Message]:
        batch, self.batch = self.batch, []
        return batch


class _Watched(_NativePath):
    """A path that knows how far the file that was opened by it is read."""

    _opened: IO[Any] | None = None

    def open(self, *args: Any, **given: Any) -> IO[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        opened = cast("IO[Any]", super().open(*args, **given))
        self._opened = opened
        return opened

    def place(self) -> int:
        """Bytes read so far; 0 where the format does not read from beginning to end."""
        file = self._opened
        return 0 if file is None or file.closed else file.tell()


def _weight(message: Message) -> int:
    """About how many characters a message holds in memory."""
    _, content, calls, _, _, reasoning = message[:6]
    size = len(reasoning) if reasoning else 0
    if isinstance(content, str):
        size += len(content)
    elif content:
        size += sum(_extent(part) for part in content)
    for call in calls:
        given = call.arguments
        size += len(given) if isinstance(given, str) else _extent(given)
    return size


def _extent(part: Mapping[str, Any]) -> int:
    """The characters of the texts in a part, and in what it holds (a picture is one level down)."""
    size = 0
    for value in part.values():
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict):
            inner = cast("dict[str, object]", value).values()
            size += sum(len(one) for one in inner if isinstance(one, str))
    return size


def _bounded_session(session: Session, started: float) -> Session:
    """A session whose names an index can hold, with a title that a list can show."""
    return replace(
        session,
        id=_bounded(session.id) or "",
        parent=_bounded(session.parent),
        owner=_bounded(session.owner),
        started=started,
        title=" ".join(session.title.split())[:MAX_TITLE] if session.title else None,
    )


def _bounded(name: str | None) -> str | None:
    """A name that the store's index can hold; nothing stops a foreign id from being a novel."""
    if name is None or len(name) <= MAX_NAME:
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
