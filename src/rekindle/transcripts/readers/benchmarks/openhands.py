"""OpenHands reader: finds events in the files of its versions and evaluations.

    a list of events                        a saved trajectory, one conversation
    one object per line with `history`      the output of an evaluation, one conversation each
    one event per line                      one conversation
    events/<n>.json, events/event-<n>-….json    one event per file, the conversation is the folder

Events are parsed by `OpenHandsConversation`. A file of an event folder yields its own event, and those
before it whose names sort later (`10.json` sorts before `2.json`): so reading the files of a folder by
name yields its events in order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from rekindle.json_fields import JsonObject, as_object, as_objects, get_text
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.jsonl import decode_json, read_json_lines, read_json_object
from rekindle.transcripts.jsonio.partial import find_first_element
from rekindle.transcripts.jsonio.stream import iter_elements
from rekindle.transcripts.readers.session_builder import make_run_id
from rekindle.types import Session

from .openhands_events import OpenHandsConversation, is_event

SOURCE = "openhands"

_LISTS = {"history", "trajectory"}
_EVALUATION_FIELDS = (
    {"instance_id", "instruction", "test_result"},
    {"issue", "issue_type", "instruction"},
)
_EVENT_FILE = re.compile(r"(?:event-)?(\d{1,12})(?:-[0-9A-Za-z-]+)?\.json")


def can_read(head: FileHead) -> bool:
    if any(is_event(line) or _has_events(line) for line in head.line_objects):
        return True
    if head.data.startswith(b"{"):
        first = head.objects[0]
        if is_event(first) or any(required <= first.keys() for required in _EVALUATION_FIELDS):
            return True
    return _starts_with_event(find_first_element(head.data, _LISTS))


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    head = FileHead.read(path)
    first = head.objects[0] if head.objects else {}
    if path.parent.name == "events" and _EVENT_FILE.fullmatch(path.name) and is_event(first):
        return _read_folder(path)
    return _read_lines(path) if _is_event_per_line(head) else _read_documents(path)


def _has_events(line: JsonObject) -> bool:
    return any(is_event(event) for name in _LISTS for event in _flatten_events(line.get(name)))


def _flatten_events(history: object) -> list[JsonObject]:
    """Return the events of a list; the oldest evaluations wrote pairs of them."""
    items = cast("list[object]", history) if isinstance(history, list) else []
    found: list[JsonObject] = []
    for item in items:
        found += as_objects(cast(object, item)) if isinstance(item, list) else as_objects([item])
    return found


def _starts_with_event(data: bytes) -> bool:
    try:
        value = decode_json(data)
    except ValueError:
        # Longer than the head.
        has_kind = b'"action"' in data or b'"observation"' in data or b'"kind"' in data
        return has_kind and b'"timestamp"' in data and b'"source"' in data
    return any(is_event(event) for event in _flatten_events([value]))


def _is_event_per_line(head: FileHead) -> bool:
    """Return whether each line stands alone; otherwise the file has one or more documents."""
    try:
        first = decode_json(head.data.split(b"\n", 1)[0])
    except ValueError:
        first = None
    is_list = isinstance(first, list) and any(map(is_event, _flatten_events(cast(object, first))))
    return head.has_document_per_line and not is_list


def _read_lines(path: Path) -> Iterator[TranscriptEvent]:
    file_conversation = _create_conversation(path, path.stem, "")
    runs: Counter[str] = Counter()
    for entry in read_json_lines(path):
        if isinstance(entry, UnreadableEntry):
            yield entry
            continue
        number, line = entry
        history = next((line[name] for name in _LISTS if isinstance(line.get(name), list)), None)
        if history is not None:
            name = get_text(line, "instance_id") or f"{path.stem}-{number}"
            runs[name] += 1
            conversation = _create_conversation(path, name, f"{name}\n{runs[name]}")
            conversation.update_session(line)
            for index, event in enumerate(_flatten_events(history), 1):
                yield from conversation.read_entry(event, f"item:{index}")
            yield from conversation.finish(_parse_resolved(line))
        elif "action" in line or "observation" in line or "kind" in line:
            yield from file_conversation.read_entry(line, f"line:{number}")
    yield from file_conversation.finish()


def _read_documents(path: Path) -> Iterator[TranscriptEvent]:
    conversation, document = _create_conversation(path, path.stem, ""), 0
    metadata: JsonObject = {}
    for element in iter_elements(path, _LISTS):
        if isinstance(element, UnreadableEntry):
            yield element
            continue
        if element.document != document:
            yield from conversation.finish(_parse_resolved(metadata))
            document, metadata = element.document, {}
            conversation = _create_conversation(path, f"{path.stem}-{document + 1}", str(document))
        if element.position is not None:
            events = _flatten_events([element.value])
            if not events:
                yield UnreadableEntry(
                    str(path), element.line, f"item {element.position + 1}: expected an event"
                )
            for index, event in enumerate(events):
                yield from conversation.read_entry(event, f"item:{element.position + 1}:{index}")
        elif element.key is not None:
            metadata[element.key] = element.value
            conversation.update_session({element.key: element.value})
    yield from conversation.finish(_parse_resolved(metadata))


def _create_conversation(path: Path, name: str, position: str) -> OpenHandsConversation:
    # Tasks are run many times and trajectories have no id, so use the file's path.
    id = make_run_id(name[:200], f"{path.resolve()}\n{position}")
    return OpenHandsConversation(Session(id=id, source=SOURCE))


def _parse_resolved(metadata: JsonObject) -> bool | None:
    """Return whether the evaluation found the task solved."""
    report = as_object(metadata.get("report")) or as_object(
        as_object(metadata.get("test_result")).get("report")
    )
    for resolved in (metadata.get("resolved"), report.get("resolved"), metadata.get("success")):
        if isinstance(resolved, bool):
            return resolved
    return None


# -- a folder with one event per file -------------------------------------------------------------


def _read_folder(path: Path) -> Iterator[TranscriptEvent]:
    conversation = OpenHandsConversation(Session(id=path.parent.parent.name, source=SOURCE))
    for file in _list_block_files(path):
        entry = read_json_object(file)
        if isinstance(entry, UnreadableEntry):
            yield entry
        else:
            yield from conversation.read_entry(entry, f"file:{file.name}")
    yield from conversation.finish()


def _list_block_files(path: Path) -> list[Path]:
    """Return the files to read with this one, in numerical order."""
    numbers = {
        int(match[1]): file
        for file in path.parent.iterdir()
        if (match := _EVENT_FILE.fullmatch(file.name))
    }
    order = sorted(numbers)
    match = _EVENT_FILE.fullmatch(path.name)
    begin = end = order.index(int(match[1])) if match else 0
    while begin and numbers[order[begin - 1]].name > path.name:
        begin -= 1
    # Keep the actions of one answer together.
    while begin and (answer := _read_answer_id(numbers[order[begin]])):
        if _read_answer_id(numbers[order[begin - 1]]) != answer:
            break
        begin -= 1
    while end + 1 < len(order) and (answer := _read_answer_id(numbers[order[end]])):
        if _read_answer_id(numbers[order[end + 1]]) != answer:
            break
        end += 1
    return [numbers[number] for number in order[begin : end + 1]]


def _read_answer_id(file: Path) -> str | None:
    """Return the answer that this file's action belongs to, if several files share one."""
    event = read_json_object(file)
    if isinstance(event, UnreadableEntry) or event.get("kind") != "ActionEvent":
        return None
    return get_text(event, "llm_response_id")
