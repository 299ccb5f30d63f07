"""OpenHands: events, in the containers that its versions and evaluations put them into.

    a list of events                        a trajectory that was saved, one conversation
    one object per line with `history`      the output of an evaluation, one conversation each
    one event per line                      one conversation
    events/<n>.json, events/event-<n>-….json    one event per file, the conversation is the folder

What the events say is in `openhands_events.py`. A file of an event folder gives its own event, and
those before it that come later in the order of names (`10.json` stands before `2.json`): so the
files of a folder, read by name, tell its events in their order.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from rekindle.json_fields import Record, record, records, text
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event
from rekindle.transcripts.jsonio.document import pieces
from rekindle.transcripts.jsonio.jsonl import LONGEST_LINE, decode
from rekindle.transcripts.jsonio.jsonl import records as lines_of
from rekindle.transcripts.jsonio.partial import opening
from rekindle.types import Session

from .openhands_events import Conversation, is_event

SOURCE = "openhands"

_LISTS = {"history", "trajectory"}
_EVALUATIONS = (
    {"instance_id", "instruction", "test_result"},
    {"issue", "issue_type", "instruction"},
)
_FILE = re.compile(r"(?:event-)?(\d{1,12})(?:-[0-9A-Za-z-]+)?\.json")


def sniff(head: Head) -> bool:
    if any(is_event(line) or _has_events(line) for line in head.lines):
        return True
    if head.data.startswith(b"{"):
        first = head.records[0]
        if is_event(first) or any(marks <= first.keys() for marks in _EVALUATIONS):
            return True
    return _begins_event(opening(head.data, _LISTS))


def read(path: Path) -> Iterator[Event]:
    head = Head.of(path)
    first = head.records[0] if head.records else {}
    if path.parent.name == "events" and _FILE.fullmatch(path.name) and is_event(first):
        return _read_folder(path)
    return _read_lines(path) if _is_by_line(head, path) else _read_documents(path)


def _has_events(line: Record) -> bool:
    return any(is_event(event) for name in _LISTS for event in _events(line.get(name)))


def _events(history: object) -> list[Record]:
    """The events of a list; the oldest evaluations wrote pairs of them."""
    items = cast("list[object]", history) if isinstance(history, list) else []
    found: list[Record] = []
    for item in items:
        found += records(cast(object, item)) if isinstance(item, list) else records([item])
    return found


def _begins_event(begin: bytes) -> bool:
    try:
        value = decode(begin)
    except ValueError:
        # Longer than the head.
        told = b'"action"' in begin or b'"observation"' in begin or b'"kind"' in begin
        return told and b'"timestamp"' in begin and b'"source"' in begin
    return any(is_event(event) for event in _events([value]))


def _is_by_line(head: Head, path: Path) -> bool:
    """Whether every line stands for itself; else the file is one document, or several."""
    if head.data.startswith(b"["):
        try:
            whole = decode(head.data.split(b"\n", 1)[0])
        except ValueError:
            return False
        if _events(whole) and is_event(_events(whole)[0]):
            return False
    if any(is_event(line) or _has_events(line) for line in head.lines):
        return True
    with path.open("rb") as file:
        line = file.readline(LONGEST_LINE).strip()
        return line.startswith(b"{") and line.endswith(b"}") and bool(file.read(64).strip())


def _read_lines(path: Path) -> Iterator[Event]:
    whole = _conversation(path, path.stem, "")
    runs: Counter[str] = Counter()
    for entry in lines_of(path):
        if isinstance(entry, Damage):
            yield entry
            continue
        number, line = entry
        history = next((line[name] for name in _LISTS if isinstance(line.get(name), list)), None)
        if history is not None:
            name = text(line, "instance_id") or f"{path.stem}-{number}"
            runs[name] += 1
            one = _conversation(path, name, f"{name}\n{runs[name]}")
            one.learn(line)
            for index, event in enumerate(_events(history), 1):
                yield from one.take(event, f"item:{index}")
            yield from one.finish(_resolved(line))
        elif "action" in line or "observation" in line or "kind" in line:
            yield from whole.take(line, f"line:{number}")
    yield from whole.finish()


def _read_documents(path: Path) -> Iterator[Event]:
    one, about, document = _conversation(path, path.stem, ""), cast(Record, {}), 0
    for piece in pieces(path, _LISTS):
        if isinstance(piece, Damage):
            yield piece
            continue
        if piece.document != document:
            yield from one.finish(_resolved(about))
            document, about = piece.document, {}
            one = _conversation(path, f"{path.stem}-{document + 1}", str(document))
        try:
            value = decode(piece.data)
        except ValueError as error:
            yield Damage(str(path), piece.line, f"not JSON: {error}")
            continue
        if piece.item is not None:
            events = _events([value])
            if not events:
                yield Damage(str(path), piece.line, f"item {piece.item + 1}: expected an event")
            for index, event in enumerate(events):
                yield from one.take(event, f"item:{piece.item + 1}:{index}")
        elif piece.key is not None:
            about[piece.key] = value
            one.learn({piece.key: value})
    yield from one.finish(_resolved(about))


def _conversation(path: Path, name: str, place: str) -> Conversation:
    # A task is run many times and a trajectory has no id, so it goes by its file.
    named = f"{path.resolve()}\n{place}".encode("utf-8", "surrogateescape")
    id = f"{name[:200]}-{hashlib.sha256(named).hexdigest()[:12]}"
    return Conversation(Session(id=id, source=SOURCE))


def _resolved(about: Record) -> bool | None:
    """Whether the evaluation found the task solved."""
    report = record(about.get("report")) or record(record(about.get("test_result")).get("report"))
    for resolved in (about.get("resolved"), report.get("resolved"), about.get("success")):
        if isinstance(resolved, bool):
            return resolved
    return None


# -- a folder with one event per file -------------------------------------------------------------


def _read_folder(path: Path) -> Iterator[Event]:
    conversation = Conversation(Session(id=path.parent.parent.name, source=SOURCE))
    for file in _block(path):
        for entry in _event_in(file):
            if isinstance(entry, Damage):
                yield entry
            else:
                yield from conversation.take(entry, f"file:{file.name}")
    yield from conversation.finish()


def _block(path: Path) -> list[Path]:
    """The files to read with this one, in the order of their numbers."""
    numbers = {
        int(match[1]): file
        for file in path.parent.iterdir()
        if (match := _FILE.fullmatch(file.name))
    }
    order = sorted(numbers)
    match = _FILE.fullmatch(path.name)
    begin = end = order.index(int(match[1])) if match else 0
    while begin and numbers[order[begin - 1]].name > path.name:
        begin -= 1
    # The actions of one answer belong together.
    while begin and (answer := _answer(numbers[order[begin]])):
        if _answer(numbers[order[begin - 1]]) != answer:
            break
        begin -= 1
    while end + 1 < len(order) and (answer := _answer(numbers[order[end]])):
        if _answer(numbers[order[end + 1]]) != answer:
            break
        end += 1
    return [numbers[number] for number in order[begin : end + 1]]


def _event_in(file: Path) -> Iterator[Record | Damage]:
    try:
        if file.stat().st_size > LONGEST_LINE:
            raise ValueError(f"longer than {LONGEST_LINE >> 20} MiB")
        value = decode(file.read_bytes())
    except (OSError, ValueError) as error:
        yield Damage(str(file), 1, f"not an event: {error}")
        return
    if isinstance(value, dict):
        yield cast(Record, value)
    else:
        yield Damage(str(file), 1, f"expected an object, got {type(value).__name__}")


def _answer(file: Path) -> str | None:
    """The answer that this file's action belongs to, where several files share one."""
    event = next(_event_in(file), None)
    if not isinstance(event, dict) or event.get("kind") != "ActionEvent":
        return None
    return text(event, "llm_response_id")
