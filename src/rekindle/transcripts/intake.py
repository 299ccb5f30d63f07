"""Taking foreign transcripts into the store.

What makes a second intake safe: every message carries an id that its file repeats, which the
store answers with the old position; a file that has not changed since is known by its size and
time and is not opened; token counts are raised to what the file says, never added again.
Originals are only ever read.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ..errors import InvalidInput, NotFound, StoreError, TitleTaken
from ..store import Store
from ..types import MAX_NAME, MAX_TITLE, Message, Session, Tokens, replace
from . import FORMATS, Format, detect
from .transcript import Damage, Learned, Opened

Progress: TypeAlias = Callable[[int, int], None]

log = logging.getLogger(__name__)

_BATCH = 500
_BATCH_CHARACTERS = 4_000_000
# Folders that are large and never hold sessions.
_SKIPPED = {".git", "node_modules", "__pycache__"}
# How far back the last answer of a session is looked for when its file has grown.
_TAIL = 64
# Every damaged line is counted, but a file of garbage must not fill the memory with reports.
_REPORTED_DAMAGE = 100


class Failure(NamedTuple):
    """A file that could not be taken in, and why."""

    file: str
    why: str


class Intake(NamedTuple):
    """What an intake did: files read, sessions and messages that are new or grew, and the rest."""

    files: int = 0
    sessions: int = 0
    messages: int = 0
    unchanged: int = 0
    damaged: int = 0
    damage: tuple[Damage, ...] = ()
    failed: tuple[Failure, ...] = ()
    unknown: tuple[str, ...] = ()


class _Tally:
    """The same while it is being counted."""

    def __init__(self) -> None:
        self.files = 0
        self.touched: set[str] = set()
        self.messages = 0
        self.unchanged = 0
        self.damaged = 0
        self.damage: list[Damage] = []
        self.failed: list[Failure] = []
        self.unknown: list[str] = []

    def total(self) -> Intake:
        return Intake(
            files=self.files,
            sessions=len(self.touched),
            messages=self.messages,
            unchanged=self.unchanged,
            damaged=self.damaged,
            damage=tuple(self.damage),
            failed=tuple(self.failed),
            unknown=tuple(self.unknown),
        )


def take_in(store: Store, paths: Iterable[str | Path], progress: Progress | None = None) -> Intake:
    """Read the files, and all files below the folders, into the store.

    A file that cannot be read is reported in the answer and does not stop the rest; trouble with
    the store itself is raised. `progress` is told bytes done and bytes in all.
    """
    tally = _Tally()
    files = [*_files(paths, tally)]
    total = sum(size for _, size, _ in files)
    done = 0
    for path, size, stamp in files:
        if store.imported(str(path)) == stamp:
            tally.unchanged += 1
        elif _take_in_file(store, path, tally):
            store.mark_imported(str(path), stamp)
        done += size
        if progress:
            progress(done, total)
    return tally.total()


def _files(paths: Iterable[str | Path], tally: _Tally) -> Iterator[tuple[Path, int, str]]:
    """The regular files, with size and stamp. A folder's own come first: sub-agents lie below."""
    seen: set[Path] = set()
    for given in paths:
        root = Path(given)
        if not root.exists():
            tally.failed.append(Failure(str(root), "there is no such file"))
            continue
        for path in _below(root) if root.is_dir() else [root]:
            try:
                path = path.resolve()
                if path in seen or not path.is_file():
                    continue
                about = path.stat()
            except OSError as error:
                tally.failed.append(Failure(str(path), error.strerror or str(error)))
                continue
            seen.add(path)
            # With a new format, files that nobody could read before deserve another look.
            yield path, about.st_size, f"{about.st_size}:{about.st_mtime_ns}:{len(FORMATS)}"


def _below(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _SKIPPED)
        yield from (Path(root, name) for name in sorted(files))


def _take_in_file(store: Store, path: Path, tally: _Tally) -> bool:
    """Take in one file; whether it need not be looked at again until it changes."""
    try:
        format = detect(path)
        if format is None:
            tally.unknown.append(str(path))
            return True
        file = _File(store, path, tally)
        file.read(format)
    except StoreError:
        raise
    except (OSError, InvalidInput) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        tally.failed.append(Failure(str(path), why))
        return False
    except Exception as error:
        # One file with a shape that nobody has seen yet must not keep the others out.
        log.exception("cannot read %s", path)
        tally.failed.append(Failure(str(path), f"{type(error).__name__}: {error}"))
        return False
    tally.files += 1
    return True


class _Seat:
    """A session of the file in the store: what is there already, and what waits to be written."""

    def __init__(self, session: Session, known: list[Message], stored: Session | None) -> None:
        self.session = session
        self.time = session.started
        self.stored = stored
        self.batch: list[Message] = []
        self.size = 0
        self.last = max((message.position or 0 for message in known), default=-1)
        self.answers = [message for message in known if message.role == "assistant"]

    def add(self, message: Message) -> None:
        # What happened long ago must not look as if it happened now.
        self.time = message.timestamp or self.time
        message = replace(
            message,
            timestamp=self.time,
            platform_message_id=_bounded(message.platform_message_id),
        )
        self.batch.append(message)
        self.size += len(message.text)
        if rest := _rest(message, self.answers):
            self.batch.append(rest)


class _File:
    """One file on its way into the store."""

    def __init__(self, store: Store, path: Path, tally: _Tally) -> None:
        self.store = store
        self.path = path
        self.tally = tally
        self.seats: dict[str, _Seat] = {}
        self.damage = 0

    def read(self, format: Format) -> None:
        seat: _Seat | None = None
        for event in format.read(self.path):
            if isinstance(event, Opened):
                seat = self._seat(event.session)
            elif isinstance(event, Damage):
                self._report(event)
            elif isinstance(event, Learned):
                self._learn(self._seat(event.session), event.session)
            elif seat is not None:
                seat.add(event)
                if len(seat.batch) >= _BATCH or seat.size > _BATCH_CHARACTERS:
                    self._write(seat)

    def _seat(self, session: Session) -> _Seat:
        id = _bounded(session.id) or ""
        seat = self.seats.get(id)
        if seat is None:
            session = replace(
                session,
                id=id,
                parent=_bounded(session.parent),
                started=session.started or self.path.stat().st_mtime,
            )
            stored = self._stored(session.id)
            known: list[Message] = []
            if stored is not None:
                after = max(-1, stored.message_count - _TAIL)
                known = self.store.messages(stored.id, rewound=True, after=after)
            seat = self.seats[session.id] = _Seat(session, known, stored)
        return seat

    def _stored(self, id: str) -> Session | None:
        try:
            return self.store.session(id)
        except NotFound:
            return None

    def _write(self, seat: _Seat) -> None:
        if not seat.batch:
            return
        if seat.stored is None:
            seat.stored = self._begin(seat.session)
        positions = self.store.append(seat.stored, *seat.batch)
        new = {position for position in positions if position > seat.last}
        if new:
            seat.last = max(new)
            self.tally.messages += len(new)
            self.tally.touched.add(seat.session.id)
        seat.batch, seat.size = [], 0

    def _begin(self, session: Session) -> Session:
        return self.store.begin(
            id=session.id,
            source=session.source,
            model=session.model,
            parent=session.parent,
            cwd=session.cwd,
            git_branch=session.git_branch,
            started=session.started,
        )

    def _learn(self, seat: _Seat, told: Session) -> None:
        """Write what is left, then what only the end of the file knows."""
        self._write(seat)
        stored = self._stored(seat.session.id)
        if stored is None:
            return
        facts = {
            name: value
            for name in ("model", "cwd", "git_branch")
            if (value := getattr(told, name)) and not getattr(stored, name)
        }
        if facts:
            self.store.update(stored, **facts)
        pairs = zip(told.tokens, stored.tokens, strict=True)
        missing = Tokens(*(max(0, says - has) for says, has in pairs))
        if any(missing):
            self.store.add_usage(stored, missing)
        if told.title and not stored.title:
            self._name(stored, told.title)

    def _name(self, session: Session, title: str) -> None:
        title = " ".join(title.split())[:MAX_TITLE]
        try:
            self.store.rename(session, title)
        except TitleTaken:
            self.store.rename(session, self.store.next_title(title))

    def _report(self, damage: Damage) -> None:
        self.tally.damaged += 1
        self.damage += 1
        if self.damage <= _REPORTED_DAMAGE:
            self.tally.damage.append(damage)


def _bounded(name: str | None) -> str | None:
    """A name that the store's index can hold; nothing stops a foreign id from being a novel."""
    if name is None or len(name) <= MAX_NAME:
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def _rest(message: Message, answers: list[Message]) -> Message | None:
    """What the stored answer lacks, when its file was last read while it was being written.

    The store keeps what it has, so the rest becomes an answer of its own, right after it.
    """
    id = message.platform_message_id
    if message.role != "assistant" or id is None:
        return None
    had = [
        answer
        for answer in answers
        if answer.platform_message_id == id
        or (answer.platform_message_id or "").startswith(f"{id}+")
    ]
    if not had:
        return None
    known = {call.id for answer in had for call in answer.tool_calls}
    calls = tuple(call for call in message.tool_calls if call.id not in known)
    said = any(answer.text for answer in had)
    if not calls and (said or not message.text):
        return None
    return replace(
        message,
        content=None if said else message.content,
        tool_calls=calls,
        platform_message_id=f"{id}+{calls[0].id if calls else 'text'}",
    )
