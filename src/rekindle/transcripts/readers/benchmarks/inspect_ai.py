"""Inspect log reader: one JSON document, or `.eval`, a zip with one JSON file per sample.

A sample is a session. A tool message has `error` (`tool_error` in old logs) if its call failed; without
it the call succeeded. The sample's scores are in the `meta` of its last message. System prompts are not
messages. Zip members are streamed; a compression method that this Python does not support is reported.
"""

from __future__ import annotations

import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from rekindle.json_fields import (
    JsonObject,
    as_count,
    as_number,
    as_object,
    as_objects,
    drop_none,
    get_text,
    make_text_part,
    parse_timestamp,
    to_content,
)
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.scanner import ContainerEnd, JsonPath, StreamItem
from rekindle.transcripts.jsonio.stream import iter_stream_values, iter_values
from rekindle.transcripts.readers.session_builder import (
    MASKED_IDS,
    SessionBuilder,
    join_thoughts,
    make_image_part,
    make_path_id,
    to_arguments,
)
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall

SOURCE = "inspect"

_ZIP = b"PK\x03\x04"
_NAME_OFFSET = 30
# First members of a log, in the order in which Inspect writes them.
_MEMBER_PREFIXES = (b"_journal/", b"header.json", b"samples/", b"summaries.json")
_ZSTD = 93
# Everything that reading a corrupt or hostile zip may raise.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    OverflowError,
)
_ROLES = ("user", "assistant", "tool")
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


def can_read(head: FileHead) -> bool:
    if head.data.startswith(_ZIP):
        return head.data[_NAME_OFFSET:].startswith(_MEMBER_PREFIXES)
    eval_metadata = as_object(head.fields.get("eval"))
    return (
        "task" in eval_metadata
        and "model" in eval_metadata
        and ("run_id" in eval_metadata or "task_id" in eval_metadata)
    )


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    with path.open("rb") as file:
        is_zip = file.read(len(_ZIP)) == _ZIP
    return _read_zip(path) if is_zip else _read_json(path)


def _read_json(path: Path) -> Iterator[TranscriptEvent]:
    yield from _read_items(_InspectLog(path), iter_values(path, _should_descend), "")


def _read_zip(path: Path) -> Iterator[TranscriptEvent]:
    log = _InspectLog(path)
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            names = [*dict.fromkeys(archive.namelist())]
            yield from _read_header(log, archive, names)
            for name in names:
                if name.startswith("samples/") and name.endswith(".json"):
                    yield from _read_member(log, archive, name)
    except (*_ZIP_ERRORS, NotImplementedError) as error:
        yield UnreadableEntry(str(path), 1, f"corrupt zip file: {error}")


def _read_header(
    log: _InspectLog, archive: zipfile.ZipFile, names: list[str]
) -> Iterator[TranscriptEvent]:
    # A run that was stopped has no header, only the journal of its start.
    header = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
    if header is not None:
        yield from _read_member(log, archive, header)


def _read_member(
    log: _InspectLog, archive: zipfile.ZipFile, name: str
) -> Iterator[TranscriptEvent]:
    location = f"{log.path}:{name}"
    try:
        with archive.open(name) as file:
            yield from _read_items(
                log, iter_stream_values(cast(Any, file), location, _should_descend), name
            )
    except NotImplementedError as error:
        compression = archive.getinfo(name).compress_type
        method = "zstd" if compression == _ZSTD else f"method {compression} ({error})"
        reason = f"compressed with {method}, which this Python cannot read; convert the log with"
        yield UnreadableEntry(location, 1, f"{reason} `inspect log convert --to json`")
    except _ZIP_ERRORS as error:
        yield UnreadableEntry(location, 1, f"cannot decompress: {error}")
        yield from log.finish()


def _read_items(
    log: _InspectLog, items: Iterable[StreamItem], member: str
) -> Iterator[TranscriptEvent]:
    for item in items:
        if isinstance(item, UnreadableEntry):
            yield item
            continue
        if isinstance(item, ContainerEnd):
            if not item.path or _is_sample_path(item.path):
                yield from log.finish()
            continue
        *above, key = item.path
        if above[-1:] == ["messages"]:
            yield from log.read_entry(item.value, key, item.line, member)
        elif item.path == ("eval",):
            log.eval_metadata = as_object(item.value)
        elif _is_sample_path(tuple(above)) or (not above and (member or not log.eval_metadata)):
            # Fields next to `eval` describe the whole log, not a sample.
            log.add_metadata(key, item.value)
    yield from log.finish()


def _is_sample_path(json_path: JsonPath) -> bool:
    return len(json_path) == 2 and json_path[0] == "samples"


def _should_descend(json_path: JsonPath) -> bool:
    # Unneeded containers are descended into as well, so that they are skipped piece by piece.
    if json_path[0] == "samples":
        json_path = json_path[2:] if len(json_path) > 1 else ()
    return not json_path or (
        json_path[0] in ("messages", "events", "attachments", "store", "transcript")
        and len(json_path) == 1
    )


class _InspectLog:
    """The samples of one log, read one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.eval_metadata: JsonObject = {}
        self.sample_count = 0
        self._reset()

    def _reset(self) -> None:
        self.sample_metadata: JsonObject = {}
        self.builder: SessionBuilder | None = None

    def add_metadata(self, key: str | int, value: JSON) -> None:
        """Record a field of the sample that is not a message."""
        if isinstance(key, str):
            self.sample_metadata[key] = value

    def read_entry(
        self, value: object, index: str | int, line: int, member: str
    ) -> Iterator[TranscriptEvent]:
        """Read an element of `messages`."""
        raw = as_object(value)
        fallback_id = f"item:{index + 1}" if isinstance(index, int) else f"item:{index}"
        if raw.get("role") == "system":
            return
        if raw.get("role") not in _ROLES:
            location = f"{self.path}:{member}" if member else str(self.path)
            yield UnreadableEntry(location, line, f"{fallback_id}: expected a message with a role")
            return
        if self.builder is None:
            self.builder = SessionBuilder(self._create_session(member))
        # The last message is held back for the scores, which come after it.
        yield from self.builder.hold_message(_parse_message(raw, fallback_id, self.builder))

    def _create_session(self, member: str) -> Session:
        self.sample_count += 1
        run = get_text(self.eval_metadata, "eval_id") or "-".join(
            name for key in ("run_id", "task_id") if (name := get_text(self.eval_metadata, key))
        )
        sample, epoch = self.sample_metadata.get("id"), self.sample_metadata.get("epoch")
        if run and isinstance(sample, (int, str)):
            id = f"{sample}-{as_count(epoch) or 1}@{run}"
        else:
            id = make_path_id("inspect", self.path, f"{member} {self.sample_count}")
        return Session(
            id=id,
            source=SOURCE,
            model=get_text(self.eval_metadata, "model"),
            started=self._parse_timestamp("started_at") or 0.0,
        )

    def _parse_timestamp(self, name: str) -> float | None:
        return parse_timestamp(self.sample_metadata.get(name)) or parse_timestamp(
            self.eval_metadata.get("created")
        )

    def finish(self) -> Iterator[TranscriptEvent]:
        """Finish the sample: yield its last message and its session."""
        if self.builder is not None:
            scores = as_object(self.sample_metadata.get("scores"))
            yield from self.builder.release_message(_build_outcome_meta(scores))
            limit = as_object(self.sample_metadata.get("limit"))
            error = "error" if as_object(self.sample_metadata.get("error")) else None
            self.builder.set_fields(
                started=self._parse_timestamp("started_at") or 0.0,
                ended=parse_timestamp(self.sample_metadata.get("completed_at")),
                end_reason=error or get_text(limit, "type"),
                tokens=_parse_tokens(as_object(self.sample_metadata.get("model_usage"))),
            )
            yield from self.builder.finish()
        self._reset()


def _parse_message(raw: JsonObject, fallback_id: str, builder: SessionBuilder) -> Message:
    role = cast(str, raw["role"])
    calls = tuple(
        _parse_tool_call(call, f"{fallback_id}:{index}")
        for index, call in enumerate(as_objects(raw.get("tool_calls")))
    )
    builder.tool_names.update((call.id, call.name) for call in calls)
    id = get_text(raw, "id") or ""
    message_id = fallback_id if id in MASKED_IDS or id in builder.seen else id
    builder.seen.add(message_id)
    is_result = role == "tool"
    call_id = get_text(raw, "tool_call_id") if is_result else None
    name = builder.tool_names.pop(call_id, None) if call_id else None
    parts = raw.get("content")
    error = as_object(raw.get("error"))
    return Message(
        role=role,
        content=_parse_content(parts) or get_text(error, "message") or _parse_content(parts),
        tool_calls=calls,
        tool_call_id=call_id,
        name=name or get_text(raw, "function", "tool_call_function") if is_result else None,
        reasoning=get_text(raw, "reasoning") or _parse_reasoning(parts),
        platform_message_id=message_id,
        meta=_parse_result_meta(raw) if is_result else _parse_call_meta(raw),
    )


def _parse_call_meta(raw: JsonObject) -> dict[str, JSON] | None:
    problems = (get_text(call, "parse_error") for call in as_objects(raw.get("tool_calls")))
    return drop_none({"parse_error": "\n".join(filter(None, problems)) or None})


def _parse_result_meta(raw: JsonObject) -> dict[str, JSON] | None:
    error = as_object(raw.get("error"))
    old_error = get_text(raw, "tool_error")
    kind = get_text(error, "type")
    return drop_none(
        {
            "is_error": bool(error or old_error),
            "error": cast(JSON, error) or old_error,
            "refused": True if kind == "approval" else None,
            "status": kind,
        }
    )


def _build_outcome_meta(scores: JsonObject) -> dict[str, JSON]:
    """Return each scorer's value, and a numeric reward if there is exactly one."""
    values: dict[str, JSON] = {
        name: value
        for name, score in scores.items()
        if isinstance(value := as_object(score).get("value"), (str, int, float, bool))
    }
    if not values:
        return {}
    first = next(iter(values.values()))
    reward = _GRADES.get(first) if isinstance(first, str) else as_number(first)
    if isinstance(first, bool):
        reward = float(first)
    return {"scores": values, "reward": reward if len(values) == 1 else None}


def _parse_tool_call(call: JsonObject, fallback_id: str) -> ToolCall:
    # Before 0.3, calls had the OpenAI format.
    function = as_object(call.get("function"))
    name = get_text(function, "name") or get_text(call, "function") or ""
    arguments = to_arguments(function.get("arguments", call.get("arguments")))
    return ToolCall(get_text(call, "id") or fallback_id, name, arguments)


def _parse_content(value: Any) -> Content:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        return json.dumps(value)
    return to_content(
        [_parse_part(part) for part in _parse_parts(value) if part.get("type") != "reasoning"]
    )


def _parse_parts(value: Any) -> list[JsonObject]:
    items = cast("list[object]", value)
    return [make_text_part(item) if isinstance(item, str) else as_object(item) for item in items]


def _parse_part(part: JsonObject) -> dict[str, JSON]:
    kind = part.get("type")
    if kind == "text":
        return make_text_part(get_text(part, "text") or "")
    if kind == "image" and (url := get_text(part, "image")):
        return make_image_part(url)
    return part


def _parse_reasoning(value: Any) -> str | None:
    if not isinstance(value, list):
        return None
    return join_thoughts(
        get_text(part, "reasoning", "summary")
        for part in _parse_parts(value)
        if part.get("type") == "reasoning"
    )


def _parse_tokens(usage: JsonObject) -> Tokens:
    """Sum the tokens over all models that the sample used."""
    total = Tokens()
    for model in usage.values():
        used = as_object(model)
        prompt, output = as_count(used.get("input_tokens")), as_count(used.get("output_tokens"))
        read = as_count(used.get("input_tokens_cache_read"))
        # Some versions include cached tokens in the input; the total reveals which.
        if as_count(used.get("total_tokens")) == prompt + output and read <= prompt:
            prompt -= read
        total = total.add(
            Tokens(
                input=prompt,
                output=output,
                cache_read=read,
                cache_write=as_count(used.get("input_tokens_cache_write")),
                reasoning=as_count(used.get("reasoning_tokens")),
            )
        )
    return total
