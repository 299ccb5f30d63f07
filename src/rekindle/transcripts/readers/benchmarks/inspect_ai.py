"""Inspect's logs: one JSON document, or `.eval`, a zip with a JSON file for each sample.

A sample is a session. A tool message says with `error` (`tool_error` in old logs) whether its call
failed; where it says nothing the call went well. What the sample scored is in the `meta` of its last
message. System prompts are no messages. Members of a zip are read as they are unpacked; a way of
packing that this Python does not know is damage.
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
    Record,
    content,
    count,
    number,
    present,
    record,
    records,
    seconds,
    text,
)
from rekindle.json_fields import text_part as said_part
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event, Learned, Opened
from rekindle.transcripts.jsonio.stream import Closed, Place, Step, steps, values
from rekindle.transcripts.readers.ids import MASKED, made_id
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall, replace

SOURCE = "inspect"

_ZIP = b"PK\x03\x04"
_NAME_AT = 30
# What the log begins with, in the order in which Inspect writes the members.
_MEMBERS = (b"_journal/", b"header.json", b"samples/", b"summaries.json")
_ZSTD = 93
# All that unpacking a broken or hostile zip may raise.
_UNREADABLE = (
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


def sniff(head: Head) -> bool:
    if head.data.startswith(_ZIP):
        return head.data[_NAME_AT:].startswith(_MEMBERS)
    about = record(head.fields.get("eval"))
    return "task" in about and "model" in about and ("run_id" in about or "task_id" in about)


def read(path: Path) -> Iterator[Event]:
    with path.open("rb") as file:
        packed = file.read(len(_ZIP)) == _ZIP
    return _read_zip(path) if packed else _read_json(path)


def _read_json(path: Path) -> Iterator[Event]:
    yield from _events(_Log(path), steps(path, _opens), "")


def _read_zip(path: Path) -> Iterator[Event]:
    log = _Log(path)
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            names = [*dict.fromkeys(archive.namelist())]
            yield from _read_header(log, archive, names)
            for name in names:
                if name.startswith("samples/") and name.endswith(".json"):
                    yield from _read_member(log, archive, name)
    except (*_UNREADABLE, NotImplementedError) as error:
        yield Damage(str(path), 1, f"not a whole zip: {error}")


def _read_header(log: _Log, archive: zipfile.ZipFile, names: list[str]) -> Iterator[Event]:
    # A run that was stopped has no header, only the journal of its beginning.
    header = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
    if header is not None:
        yield from _read_member(log, archive, header)


def _read_member(log: _Log, archive: zipfile.ZipFile, name: str) -> Iterator[Event]:
    where = f"{log.path}:{name}"
    try:
        with archive.open(name) as file:
            yield from _events(log, values(cast(Any, file), where, _opens), name)
    except NotImplementedError as error:
        packing = archive.getinfo(name).compress_type
        how = "zstd" if packing == _ZSTD else f"method {packing} ({error})"
        what = f"packed with {how}, which this Python cannot unpack; write the log as JSON with"
        yield Damage(where, 1, f"{what} `inspect log convert --to json`")
    except _UNREADABLE as error:
        yield Damage(where, 1, f"cannot be unpacked: {error}")
        yield from log.finish()


def _events(log: _Log, walk: Iterable[Step], member: str) -> Iterator[Event]:
    for step in walk:
        if isinstance(step, Damage):
            yield step
            continue
        if isinstance(step, Closed):
            if not step.place or _is_sample(step.place):
                yield from log.finish()
            continue
        *above, key = step.place
        if above[-1:] == ["messages"]:
            yield from log.take(step.value, key, step.line, member)
        elif step.place == ("eval",):
            log.about = record(step.value)
        elif _is_sample(tuple(above)) or (not above and (member or not log.about)):
            # Beside `eval` stands what is true of the whole log, not of a sample.
            log.learn(key, step.value)
    yield from log.finish()


def _is_sample(place: Place) -> bool:
    return len(place) == 2 and place[0] == "samples"


def _opens(place: Place) -> bool:
    # What is not wanted is opened as well, so that it can be passed over piece by piece.
    if place[0] == "samples":
        place = place[2:] if len(place) > 1 else ()
    return not place or (
        place[0] in ("messages", "events", "attachments", "store", "transcript") and len(place) == 1
    )


class _Log:
    """The samples of one log, one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.about: Record = {}
        self.made = 0
        self._clear()

    def _clear(self) -> None:
        self.facts: Record = {}
        self.session: Session | None = None
        self.calls: dict[str, str] = {}
        self.seen: set[str] = set()
        # The last message waits for the scores, which come after it.
        self.last: Message | None = None

    def learn(self, key: str | int, value: JSON) -> None:
        if isinstance(key, str):
            self.facts[key] = value

    def take(self, value: object, index: str | int, line: int, member: str) -> Iterator[Event]:
        """An element of `messages`."""
        said = record(value)
        place = f"item:{index + 1}" if isinstance(index, int) else f"item:{index}"
        if said.get("role") == "system":
            return
        if said.get("role") not in _ROLES:
            where = f"{self.path}:{member}" if member else str(self.path)
            yield Damage(where, line, f"{place}: expected a message with a role")
            return
        if self.session is None:
            self.session = self._session(member)
            yield Opened(self.session)
        if self.last is not None:
            yield self.last
        self.last = self._message(said, place)

    def _session(self, member: str) -> Session:
        self.made += 1
        run = text(self.about, "eval_id") or "-".join(
            name for key in ("run_id", "task_id") if (name := text(self.about, key))
        )
        sample, epoch = self.facts.get("id"), self.facts.get("epoch")
        if run and isinstance(sample, (int, str)):
            id = f"{sample}-{count(epoch) or 1}@{run}"
        else:
            id = made_id("inspect", self.path, f"{member} {self.made}")
        return Session(
            id=id,
            source=SOURCE,
            model=text(self.about, "model"),
            started=self._time("started_at") or 0.0,
        )

    def _time(self, name: str) -> float | None:
        return seconds(self.facts.get(name)) or seconds(self.about.get("created"))

    def _message(self, said: Record, place: str) -> Message:
        role = cast(str, said["role"])
        calls = tuple(
            _call(call, f"{place}:{index}")
            for index, call in enumerate(records(said.get("tool_calls")))
        )
        self.calls.update((call.id, call.name) for call in calls)
        id = text(said, "id") or ""
        name = place if id in MASKED or id in self.seen else id
        self.seen.add(name)
        answered = text(said, "tool_call_id") if role == "tool" else None
        parts = said.get("content")
        error = record(said.get("error"))
        return Message(
            role=role,
            content=_content(parts) or text(error, "message") or _content(parts),
            tool_calls=calls,
            tool_call_id=answered,
            name=self._tool(said, answered) if role == "tool" else None,
            reasoning=text(said, "reasoning") or _thoughts(parts),
            platform_message_id=name,
            meta=_result_facts(said) if role == "tool" else self._facts(said),
        )

    def _tool(self, said: Record, answered: str | None) -> str | None:
        name = self.calls.pop(answered, None) if answered else None
        return name or text(said, "function", "tool_call_function")

    def _facts(self, said: Record) -> dict[str, JSON] | None:
        broken = [
            problem
            for call in records(said.get("tool_calls"))
            if (problem := text(call, "parse_error"))
        ]
        return present({"parse_error": "\n".join(broken) or None})

    def finish(self) -> Iterator[Event]:
        """The end of a sample."""
        if self.last is not None:
            facts = {**(self.last.meta or {}), **_worth(record(self.facts.get("scores")))}
            yield replace(self.last, meta=present(facts))
        if self.session is not None:
            limit = record(self.facts.get("limit"))
            failed = "error" if record(self.facts.get("error")) else None
            yield Learned(
                replace(
                    self.session,
                    started=self._time("started_at") or 0.0,
                    ended=seconds(self.facts.get("completed_at")),
                    end_reason=failed or text(limit, "type"),
                    tokens=_tokens(record(self.facts.get("model_usage"))),
                )
            )
        self._clear()


def _result_facts(said: Record) -> dict[str, JSON] | None:
    error = record(said.get("error"))
    old = text(said, "tool_error")
    kind = text(error, "type")
    return present(
        {
            "is_error": bool(error or old),
            "error": cast(JSON, error) or old,
            "refused": True if kind == "approval" else None,
            "status": kind,
        }
    )


def _worth(scores: Record) -> dict[str, JSON]:
    """What each scorer said, and as a number where there is one that says it."""
    told: dict[str, JSON] = {
        name: value
        for name, score in scores.items()
        if isinstance(value := record(score).get("value"), (str, int, float, bool))
    }
    if not told:
        return {}
    first = next(iter(told.values()))
    reward = _GRADES.get(first) if isinstance(first, str) else number(first)
    if isinstance(first, bool):
        reward = float(first)
    return {"scores": told, "reward": reward if len(told) == 1 else None}


def _call(call: Record, place: str) -> ToolCall:
    # Before 0.3 a call was in the OpenAI shape.
    function = record(call.get("function"))
    name = text(function, "name") or text(call, "function") or ""
    arguments = function.get("arguments", call.get("arguments"))
    if not isinstance(arguments, (str, dict)):
        arguments = "" if arguments is None else json.dumps(arguments)
    return ToolCall(text(call, "id") or place, name, cast("str | Record", arguments))


def _content(value: Any) -> Content:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        return json.dumps(value)
    return content([_part(part) for part in _parts(value) if part.get("type") != "reasoning"])


def _parts(value: Any) -> list[Record]:
    items = cast("list[object]", value)
    return [said_part(item) if isinstance(item, str) else record(item) for item in items]


def _part(part: Record) -> dict[str, JSON]:
    kind = part.get("type")
    if kind == "text":
        return said_part(text(part, "text") or "")
    if kind == "image" and (url := text(part, "image")):
        return {"type": "image_url", "image_url": {"url": url}}
    return part


def _thoughts(value: Any) -> str | None:
    if not isinstance(value, list):
        return None
    thoughts = (
        text(part, "reasoning", "summary") or ""
        for part in _parts(value)
        if part.get("type") == "reasoning"
    )
    return "\n\n".join(thought for thought in thoughts if thought) or None


def _tokens(usage: Record) -> Tokens:
    """The sum over the models that the sample used."""
    total = Tokens()
    for model in usage.values():
        used = record(model)
        given, output = count(used.get("input_tokens")), count(used.get("output_tokens"))
        read = count(used.get("input_tokens_cache_read"))
        # Some versions count what came from a cache as input too; the sum tells which.
        if count(used.get("total_tokens")) == given + output and read <= given:
            given -= read
        total = total.plus(
            Tokens(
                input=given,
                output=output,
                cache_read=read,
                cache_write=count(used.get("input_tokens_cache_write")),
                reasoning=count(used.get("reasoning_tokens")),
            )
        )
    return total
