"""Runs every reader on damaged and hostile files. For any file:

- nothing is raised, and no file takes long or much memory;
- events are valid messages of a session that has started, and damage with a location;
- undamaged parts are still read: everything before the damage and, in a file with one message per
  line, every other line;
- the store accepts all messages.
"""

from __future__ import annotations

import json
import random
import re
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from rekindle import open_store
from rekindle.transcripts import (
    FORMATS,
    SessionStarted,
    SessionUpdated,
    TranscriptEvent,
    TranscriptFormat,
    UnreadableEntry,
    detect_format,
)
from rekindle.transcripts.importer import import_transcripts
from rekindle.types import Message, validate_message
from soak.fuzz.damage import Damage, damage_file
from soak.fuzz.specimens import Specimen

FOUND = Path(tempfile.gettempdir()) / "rekindle-fuzz"
_SECONDS, _SECONDS_PER_MB = 5.0, 2.0  # of CPU
_MEMORY, _MEMORY_PER_BYTE = 96_000_000, 40
_STORED = 10  # one case in so many goes into a store
# How many brackets deep the messages stand, where it is not the list at the top or in the document.
_LEVELS = {"tau-bench": 3, "tau2": 4, "inspect": 4}
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]', re.DOTALL)
_SHORTEST = 12  # characters that make a text one of its kind
_TRIES = 300  # to make a reproducer smaller


class Finding(NamedTuple):
    """A broken promise and how to reproduce it."""

    format: str
    problem: str
    case: int
    specimen: str
    what: str
    file: Path


class FuzzReport:
    """The result of a run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.cases = 0
        self.by_format: dict[str, int] = {}
        self.findings: dict[tuple[str, str], Finding] = {}
        self.repeated = 0


class _BrokenPromise(Exception):
    """A broken promise, described by the message."""


class _TooSlow(BaseException):
    """Raised in a reader that takes too long; no Exception, so that the reader cannot catch it."""


def run(
    specimens: Sequence[Specimen],
    seed: int,
    *,
    formats: Sequence[str] = (),
    cases: range | None = None,
    until: Callable[[], bool] = lambda: False,
    tell: Callable[[FuzzReport], None] = lambda report: None,
) -> FuzzReport:
    """Damage the specimens of each format in turn, until all cases are done or time is up."""
    report = FuzzReport(seed)
    wanted = {
        name: [s for s in specimens if s.format == name] for name in formats or _list_formats()
    }
    for case in cases if cases is not None else iter(range(2**31)):
        for name, choice in wanted.items():
            if until():
                return report
            if choice:
                _run_case(report, name, choice, specimens, case)
                tell(report)
    return report


def _list_formats() -> list[str]:
    return [format.name for format in FORMATS]


def _run_case(
    report: FuzzReport, name: str, choice: Sequence[Specimen], all: Sequence[Specimen], case: int
) -> None:
    rng = random.Random(f"{report.seed}:{name}:{case}")
    specimen, other = rng.choice(choice), rng.choice(all)
    damaged = damage_file(rng, specimen.data, other.data)
    format = next(format for format in FORMATS if format.name == name)
    stranger = rng.choice(FORMATS)
    is_stored = not case % _STORED
    report.cases += 1
    report.by_format[name] = report.by_format.get(name, 0) + 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "damaged")
        problem = _find_problem(path, damaged, format, stranger, is_stored)
    if problem is None:
        return
    if (name, problem) in report.findings:
        report.repeated += 1
        return
    file = _save_reproducer(report.seed, name, case, damaged, format, stranger, problem)
    report.findings[name, problem] = Finding(name, problem, case, specimen.name, damaged.what, file)


def _find_problem(
    path: Path,
    damaged: Damage,
    format: TranscriptFormat,
    stranger: TranscriptFormat,
    is_stored: bool,
) -> str | None:
    """Return the promise that a file breaks, or None."""
    try:
        told = _read_events(path, damaged.data, format)
        _check_survivors(path, damaged, format, told)
        _read_events(path, damaged.data, stranger)
        if is_stored:
            _check_stored(path, damaged.data)
    except _BrokenPromise as broken:
        return str(broken)
    return None


def _read_events(path: Path, data: bytes, format: TranscriptFormat) -> list[TranscriptEvent]:
    """Return the events of a file after checking them, the time and the memory."""
    path.write_bytes(data)
    before = _read_peak_memory()
    try:
        with _limit_cpu(_SECONDS + _SECONDS_PER_MB * len(data) / 1e6):
            detect_format(path)
            told = [*format.read(path)]
    except _TooSlow:
        raise _BrokenPromise(f"{format.name} takes too long") from None
    except Exception as error:
        raise _BrokenPromise(f"{format.name} raises {_describe_error(error)}") from error
    if _read_peak_memory() - before > _MEMORY + _MEMORY_PER_BYTE * len(data):
        raise _BrokenPromise(f"{format.name} takes too much memory")
    _check_events(format, told)
    return told


def _describe_error(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "rekindle" in frame.filename] or frames
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__} in {place}: {str(error)[:100]}"


def _check_events(format: TranscriptFormat, told: Sequence[TranscriptEvent]) -> None:
    opened: set[str] = set()
    for event in told:
        if isinstance(event, (SessionStarted, SessionUpdated)):
            id = event.session.id
            if not (isinstance(id, str) and id):
                raise _BrokenPromise(f"{format.name} gives a session without an id")
            opened.add(id)
        elif isinstance(event, UnreadableEntry):
            if not (isinstance(event.line, int) and event.line >= 1 and event.what):
                raise _BrokenPromise(f"{format.name} gives damage without a place")
        elif not opened:
            raise _BrokenPromise(f"{format.name} gives a message before it opens a session")
        else:
            _check_message(format, event)


def _check_message(format: TranscriptFormat, message: Message) -> None:
    id = message.platform_message_id
    if not id:
        raise _BrokenPromise(f"{format.name} gives a message without an id")
    try:
        # The intake makes a name of any length fit.
        validate_message(message._replace(platform_message_id=id[:500]))
    except ValueError as error:
        raise _BrokenPromise(
            f"{format.name} gives an unsound message: {str(error)[:60]}"
        ) from error


# -- what must survive


class _SoundFile(NamedTuple):
    """The texts that a reader finds in the intact file, and the places of those that occur once."""

    texts: list[str]
    places: dict[str, list[int]]


_known: dict[tuple[str, bytes], _SoundFile] = {}


def _read_sound_file(path: Path, data: bytes, format: TranscriptFormat) -> _SoundFile:
    key = (format.name, sha256(data).digest())
    if key not in _known:
        told = _read_events(path, data, format)
        texts = [event.text for event in told if isinstance(event, Message)]
        alone = [text for text, count in Counter(texts).items() if count == 1]
        places = {text: _find_places(data, text) for text in alone if len(text) >= _SHORTEST}
        if len(_known) > 500:
            _known.clear()
        _known[key] = _SoundFile(texts, places)
    return _known[key]


def _check_survivors(
    path: Path, damaged: Damage, format: TranscriptFormat, told: list[TranscriptEvent]
) -> None:
    if damaged.base.startswith((b"SQLite", b"PK")):
        return
    sound = _read_sound_file(path, damaged.base, format)
    after = [event.text for event in told if isinstance(event, Message)]
    whole = _find_whole_end(damaged, format)
    before = [text for text in sound.texts if _is_before(sound.places.get(text), text, whole)]
    rest = iter(after)
    for text in before:
        if not any(text in one for one in rest):
            lost = "loses" if text not in after else "reorders"
            raise _BrokenPromise(f"{format.name} {lost} what stands before the damage")
    if damaged.lines is not None and _is_lines(damaged.base):
        every = "\n".join(after)
        for text, places in sound.places.items():
            lines = {damaged.base.count(b"\n", 0, place) for place in places}
            if lines and not lines & damaged.lines and text not in every:
                raise _BrokenPromise(f"{format.name} loses a line that was not touched")


def _is_before(places: list[int] | None, text: str, end: int) -> bool:
    return bool(places) and places is not None and places[-1] + len(text) <= end


def _find_whole_end(damaged: Damage, format: TranscriptFormat) -> int:
    """Return the end of the last complete line or list element before the damage."""
    base, first = damaged.base, damaged.first
    if _is_lines(base) or base[:1] not in b"[{":
        return base.rfind(b"\n", 0, first) + 1
    depth, starts = 0, [0]
    level = _LEVELS.get(format.name, 1 if base.startswith(b"[") else 2)
    for match in _TOKEN.finditer(base, 0, first):
        if match[0] in (b"{", b"["):
            if depth == level:
                starts.append(match.start())
            depth += 1
        elif match[0] in (b"}", b"]"):
            depth -= 1
    return starts[-1]


def _find_places(data: bytes, text: str) -> list[int]:
    """Return the places of a text in a file, in any JSON encoding."""
    once = json.dumps(text)[1:-1]
    ways = {text, once, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(once)[1:-1]}
    found: list[int] = []
    for way in ways:
        needle = way.encode("utf-8", "surrogatepass")
        at = data.find(needle)
        while at >= 0:
            found.append(at)
            at = data.find(needle, at + 1)
    return sorted(set(found))


def _is_lines(data: bytes) -> bool:
    lines = [line for line in data.split(b"\n") if line.strip()]
    return len(lines) > 1 and all(line[:1] == b"{" and line.rstrip()[-1:] == b"}" for line in lines)


def _check_stored(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with open_store(path.with_name("store.db"), durability="relaxed") as store:
        try:
            first = import_transcripts(store, [path])
            again = import_transcripts(store, [path])
        except Exception as error:
            raise _BrokenPromise(f"an import raises {_describe_error(error)}") from error
        for failure in first.failed:
            raise _BrokenPromise(f"an import fails: {failure.reason[:100]}")
        for one in first.damage:
            if one.line == 0:
                raise _BrokenPromise(f"the store refuses a message: {one.what[-100:]}")
        if again.messages:
            raise _BrokenPromise("a second import of the same file adds messages")
        for finding in store.verify():
            raise _BrokenPromise(f"the store is not sound: {finding.check}: {finding.detail[:80]}")


# -- bounds


def _read_peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def _limit_cpu(seconds: float) -> Iterator[None]:
    """Limit the CPU time of a block, which does not depend on the load of the machine."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooSlow

    old = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


# -- a reproducer


def _save_reproducer(
    seed: int,
    name: str,
    case: int,
    damaged: Damage,
    format: TranscriptFormat,
    stranger: TranscriptFormat,
    problem: str,
) -> Path:
    """Save a file that reproduces the problem, made as small as quickly possible."""

    def shows(data: bytes) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "damaged")
            try:
                for reader in (format, stranger):
                    _read_events(path, data, reader)
                if "import" in problem or "store" in problem:
                    _check_stored(path, data)
            except _BrokenPromise as broken:
                return str(broken) == problem
        return False

    FOUND.mkdir(exist_ok=True)
    file = FOUND / f"{name}-{seed}-{case}"
    is_quick = "long" not in problem and "memory" not in problem
    data = (
        _shrink_reproducer(damaged.data, shows)
        if is_quick and shows(damaged.data)
        else damaged.data
    )
    file.write_bytes(data)
    return file


def _shrink_reproducer(data: bytes, shows: Callable[[bytes], bool]) -> bytes:
    """Remove first lines and then bytes while the problem remains."""
    limit = time.monotonic() + 20
    tries = 0
    for parts in (data.splitlines(keepends=True), None):
        pieces: Sequence[bytes] = parts if parts else [bytes([byte]) for byte in data]
        step = max(1, len(pieces) // 2)
        while step and tries < _TRIES and time.monotonic() < limit:
            at = 0
            while at < len(pieces) and tries < _TRIES and time.monotonic() < limit:
                tries += 1
                without = [*pieces[:at], *pieces[at + step :]]
                if without and shows(b"".join(without)):
                    pieces = without
                else:
                    at += step
            step //= 2
        data = b"".join(pieces)
        tries = 0
    return data
