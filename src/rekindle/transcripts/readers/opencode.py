"""OpenCode reader, for its export format, its storage folder and its database.

    opencode export                       one document `{info, messages: [{info, parts}]}`
    storage/session/<project>/<id>.json   the session, with `message/<session>/<id>.json` and
                                          `part/<message>/<id>.json` next to it
    opencode.db                           the same three in tables, for all sessions

The file of a single message or part is recognized but yields nothing: it is read with its session's
file.

A tool part of an answer is a call together with its result. `state.status` is about the tool: a command
that failed is completed, and its exit code is in `state.metadata`. Older versions put all steps of a
turn into one message; each step becomes an answer. Text that OpenCode adds to a prompt (`synthetic`) is
skipped. A compaction's request and its summary are recorded in the `meta` of the message after them.
"""

# pyright: reportUnknownMemberType=false
# apsw's stubs do not type bindings.
from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rekindle.json_fields import (
    JsonObject,
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
from rekindle.transcripts.jsonio.jsonl import decode_json, read_json_lines, read_json_object
from rekindle.transcripts.jsonio.partial import find_first_element, parse_partial_fields
from rekindle.transcripts.jsonio.stream import iter_elements
from rekindle.types import JSON, Message, Session, Tokens

from .session_builder import (
    MASKED_IDS,
    AnswerBuilder,
    SessionBuilder,
    make_image_part,
    make_tool_call,
    parse_cost,
    parse_exit_code,
    parse_tokens,
)
from .sqlite_file import iter_schema_bytes, open_sqlite_file

if TYPE_CHECKING:
    import apsw

SOURCE = "opencode"

_ABORTED_ERROR = "MessageAbortedError"
# Every SQLite file begins with this name and, five bytes later, three constant bytes.
# How OpenCode titles the session of a sub-agent.
_AGENT_IN_TITLE = re.compile(r"\(@([\w.-]{1,60}) subagent\)$")
_SQLITE_HEADER = re.compile(rb"SQLite format 3\0.{5}@  ", re.DOTALL)
# The CREATE statements are near the beginning of a database.
_PART_TABLE = re.compile(rb"""CREATE TABLE [`"]?part[`"]? ?\([^()]*message_id""")
_SELECT_SESSIONS = "SELECT * FROM session ORDER BY time_created, id"
# As bytes: text may not be UTF-8, and one bad row must not lose the others.
_SELECT_MESSAGES = (
    "SELECT id, CAST(data AS BLOB) FROM message WHERE session_id = ? ORDER BY time_created, id"
)
_SELECT_PARTS = "SELECT id, CAST(data AS BLOB) FROM part WHERE message_id = ? ORDER BY id"


def can_read(head: FileHead) -> bool:
    if _SQLITE_HEADER.match(head.data):
        return _is_session_database(head)
    if any(
        _is_export(line) or _is_message(line) or _is_storage_file(line) for line in head.objects
    ):
        return True
    return _is_message(parse_partial_fields(find_first_element(head.data, {"messages"})))


def _is_session_database(head: FileHead) -> bool:
    """Return whether the database has OpenCode's tables, which may be only in the WAL."""
    if _PART_TABLE.search(head.data):
        return True
    if head.path is None:
        return False
    return any(_PART_TABLE.search(data) for data in iter_schema_bytes(head.path))


def _is_export(line: JsonObject) -> bool:
    return isinstance(line.get("messages"), list) and "projectID" in as_object(line.get("info"))


def _is_message(line: JsonObject) -> bool:
    info = as_object(line.get("info"))
    return "sessionID" in info and "role" in info and isinstance(line.get("parts", []), list)


def _is_session(line: JsonObject) -> bool:
    id = get_text(line, "id") or ""
    return id.startswith("ses_") and isinstance(line.get("time"), dict) and "title" in line


def _is_storage_file(line: JsonObject) -> bool:
    """Return whether this is a storage file: a session, or a message or part of one."""
    owner = get_text(line, "sessionID") or ""
    return _is_session(line) or (
        owner.startswith("ses_")
        and ("role" in line or "messageID" in line)
        and isinstance(line.get("id"), str)
    )


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    head = FileHead.read(path)
    if _SQLITE_HEADER.match(head.data):
        return _read_database(path)
    if head.has_document_per_line and (
        any(_is_export(line) or _is_message(line) for line in head.line_objects)
        or not head.line_objects
    ):
        return _read_lines(path)
    if any(_is_storage_file(line) for line in head.objects):
        return _read_storage(path)
    return _read_documents(path)


def _read_documents(path: Path) -> Iterator[TranscriptEvent]:
    conversation = _OpenCodeConversation(path)
    document = 0
    for element in iter_elements(path, {"messages"}):
        if isinstance(element, UnreadableEntry):
            yield element
            continue
        if element.document != document:
            yield from conversation.finish()
            document, conversation = element.document, _OpenCodeConversation(path)
        if element.position is not None:
            yield from conversation.read_entry(
                element.value, f"item:{element.position + 1}", element.line
            )
        elif element.key == "info":
            conversation.update_session(as_object(element.value))
    yield from conversation.finish()


def _read_lines(path: Path) -> Iterator[TranscriptEvent]:
    """Read documents or messages that are on one line each."""
    file_conversation = _OpenCodeConversation(path)
    for entry in read_json_lines(path):
        if isinstance(entry, UnreadableEntry):
            yield entry
            continue
        number, line = entry
        if isinstance(line.get("messages"), list):
            conversation = _OpenCodeConversation(path)
            conversation.update_session(as_object(line.get("info")))
            for index, raw in enumerate(cast("list[object]", line["messages"]), 1):
                yield from conversation.read_entry(raw, f"item:{index}", number)
            yield from conversation.finish()
        elif _is_message(line):
            yield from file_conversation.read_entry(line, f"line:{number}", number)
        elif "projectID" in line:
            file_conversation.update_session(line)
    yield from file_conversation.finish()


def _read_storage(path: Path) -> Iterator[TranscriptEvent]:
    """Read a session with its messages and parts, file by file."""
    session = yield from _read_object(path)
    if session is None or not _is_session(session):
        return
    conversation = _OpenCodeConversation(path)
    conversation.update_session(session)
    id = get_text(session, "id") or ""
    # An older layout has `info`, `message` and `part` inside `session`.
    is_old_layout = path.parent.name == "info"
    root = path.resolve().parent.parent if is_old_layout else path.resolve().parent.parent.parent
    for file in _list_files(root / "message", id):
        info = yield from _read_object(file)
        if info is None:
            continue
        parts: list[JsonObject] = []
        for part_file in _list_files(
            root / "part" / id if is_old_layout else root / "part", file.stem
        ):
            part = yield from _read_object(part_file)
            if part is not None:
                parts.append(part)
        yield from conversation.read_entry({"info": info, "parts": parts}, file.stem, 1)
    yield from conversation.finish()


def _list_files(folder: Path, name: str) -> list[Path]:
    # Ids grow with time, so name order is message order. An id must not lead out of the folder.
    subfolder = folder / name
    return (
        sorted(subfolder.glob("*.json"))
        if subfolder.parent == folder and subfolder.is_dir()
        else []
    )


def _read_object(path: Path) -> Generator[UnreadableEntry, None, JsonObject | None]:
    entry = read_json_object(path)
    if isinstance(entry, UnreadableEntry):
        yield entry
        return None
    return entry


def _read_database(path: Path) -> Iterator[TranscriptEvent]:
    import apsw

    try:
        with open_sqlite_file(path) as database:
            for session in _iter_sessions(database):
                yield from _read_session(database, path, session)
    except (apsw.Error, UnicodeDecodeError) as error:
        yield UnreadableEntry(str(path), 1, f"cannot read the database: {error}")


def _iter_sessions(database: apsw.Connection) -> Iterator[JsonObject]:
    rows = database.execute(_SELECT_SESSIONS)
    for row in rows:
        names = [name for name, *_ in rows.get_description()]
        columns = dict(zip(names, row, strict=True))
        yield {
            **columns,
            "parentID": columns.get("parent_id"),
            "time": {"created": columns.get("time_created")},
        }


def _read_session(
    database: apsw.Connection, path: Path, session: JsonObject
) -> Iterator[TranscriptEvent]:
    conversation = _OpenCodeConversation(path)
    conversation.update_session(session)
    id = get_text(session, "id") or ""
    for message, data in database.execute(_SELECT_MESSAGES, (id,)):
        info = yield from _decode_row(path, "message", message, data)
        if info is None:
            continue
        info.setdefault("sessionID", id)
        parts: list[JsonObject] = []
        for part_id, part_data in database.execute(_SELECT_PARTS, (message,)):
            part = yield from _decode_row(path, "part", part_id, part_data)
            if part is not None:
                parts.append(part)
        yield from conversation.read_entry({"info": info, "parts": parts}, str(message), 1)
    yield from conversation.finish()


def _decode_row(
    path: Path, table: str, id: object, data: object
) -> Generator[UnreadableEntry, None, JsonObject | None]:
    """Decode the JSON of a row and add the id, which has its own column."""
    try:
        value = decode_json(data if isinstance(data, bytes) else b"")
    except ValueError as error:
        yield UnreadableEntry(str(path), 1, f"{table} {id}: not JSON: {error}")
        return None
    return {**as_object(value), "id": id}


# -- messages and parts, wherever they are stored -------------------------------------------------


class _OpenCodeConversation(SessionBuilder):
    """One session being read."""

    def __init__(self, path: Path) -> None:
        super().__init__(Session(id="", source=SOURCE))
        self.path = path

    def update_session(self, metadata: JsonObject) -> None:
        """Update the session from its own record."""
        known = self.session
        time = as_object(metadata.get("time"))
        if metadata.get("parentID"):
            agent = _AGENT_IN_TITLE.search(get_text(metadata, "title") or "")
            self.fill_fields(
                parent=_parse_id(metadata, "parentID"), sub_agent=agent[1] if agent else "agent"
            )
        self.set_fields(
            id=_parse_id(metadata, "id") or known.id,
            title=get_text(metadata, "title") or known.title,
            cwd=get_text(metadata, "directory") or known.cwd,
            started=parse_timestamp(time.get("created")) or known.started,
        )

    def read_entry(self, value: object, fallback_id: str, line: int) -> Iterator[TranscriptEvent]:
        """Read one raw message with its parts; anything else is reported as unreadable."""
        raw = as_object(value)
        info = as_object(raw.get("info"))
        if info.get("role") not in ("user", "assistant"):
            reason = f"{fallback_id}: expected a message with info.role user or assistant"
            yield UnreadableEntry(str(self.path), line, reason)
            return
        if not self.is_started:
            self.fill_fields(
                id=_parse_id(info, "sessionID") or self.path.stem or SOURCE,
                started=_parse_timestamp(info),
            )
        id = _parse_id(info, "id") or fallback_id
        if not self.is_new(id):
            return
        parts = as_objects(raw.get("parts"))
        used = {**as_object(info.get("model")), **info}
        self.fill_fields(
            model=get_text(used, "modelID"),
            model_config=drop_none({"provider": get_text(used, "providerID")}),
        )
        is_prompt = info.get("role") == "user"
        parse = self._parse_prompt if is_prompt else self._parse_answer
        yield from self.append_messages([*parse(info, parts, id)])

    def _parse_prompt(
        self, info: JsonObject, parts: list[JsonObject], id: str
    ) -> Iterator[Message]:
        for part in parts:
            if part.get("type") == "compaction":
                trigger = "auto" if part.get("auto") is True else "manual"
                self.pending_meta["compacted"] = {"trigger": trigger}
        if prompt_parts := [
            prompt_part for part in parts if (prompt_part := _parse_prompt_part(part))
        ]:
            yield Message(
                role="user",
                content=to_content(prompt_parts),
                platform_message_id=id,
                meta=drop_none(self.pop_pending_meta()),
                timestamp=_parse_timestamp(info),
            )

    def _parse_answer(
        self, info: JsonObject, parts: list[JsonObject], id: str
    ) -> Iterator[Message]:
        self._add_steps_usage(info, parts)
        if info.get("summary") is True:
            summary = "\n".join(value for part in parts if (value := _parse_text(part)))
            compacted = as_object(self.pending_meta.get("compacted"))
            self.pending_meta["compacted"] = {**compacted, "summary": summary}
            return
        steps = list(self._split_steps(info, parts, id))
        error = as_object(info.get("error"))
        for step in steps:
            if step is steps[-1] and error:
                step.meta.update(_parse_error_meta(error))
            yield step.build()
            yield from step.results
        if error.get("name") == _ABORTED_ERROR:
            self.pending_meta["aborted"] = True

    def _split_steps(
        self, info: JsonObject, parts: list[JsonObject], id: str
    ) -> Iterator[AnswerBuilder]:
        """Yield the answers in one message: a new one begins where a step starts."""
        step, steps = self._start_answer(info, id), 1
        for index, part in enumerate(parts):
            kind = part.get("type")
            if kind == "step-start" and (step.has_output or step.reasoning):
                yield step
                steps += 1
                step = self._start_answer(info, f"{id}:{steps}")
            elif kind == "step-finish":
                step.finish_reason = get_text(part, "reason")
            elif kind == "reasoning":
                step.add_reasoning(get_text(part, "text"))
            elif kind == "tool":
                _add_tool_call(step, part, f"{id}:part:{index}", info)
            else:
                step.add_text(_parse_text(part))
        step.finish_reason = step.finish_reason or get_text(info, "finish")
        # An answer that is still empty is picked up by the next import.
        if step.has_output or step.reasoning or (steps == 1 and info.get("error")):
            yield step

    def _start_answer(self, info: JsonObject, id: str) -> AnswerBuilder:
        step = self.open_answer(id, _parse_timestamp(info))
        model = get_text(info, "modelID")
        if model != self.session.model:
            step.meta["model"] = model
        return step

    def _add_steps_usage(self, info: JsonObject, parts: list[JsonObject]) -> None:
        # In a message with several steps, only the steps have the full usage.
        finished = [part for part in parts if part.get("type") == "step-finish"]
        total, prompt = Tokens(), 0
        for source in finished or [info]:
            usage = as_object(source.get("tokens"))
            usage = {**as_object(usage.get("cache")), **usage}
            tokens = parse_tokens(usage, "input", "output", "read", "write", "reasoning")
            total = total.add(tokens)
            prompt = max(prompt, tokens.input + tokens.cache_read + tokens.cache_write)
        self.add_usage(
            total,
            parse_cost(info.get("cost")),
            time=_parse_timestamp(info),
            model=get_text(info, "modelID"),
            prompt=prompt,
        )
        self.fill_fields(cwd=get_text(as_object(info.get("path")), "cwd"))


def _parse_id(fields: JsonObject, name: str) -> str | None:
    id = get_text(fields, name) or ""
    return None if id in MASKED_IDS else id


def _parse_timestamp(info: JsonObject) -> float | None:
    return parse_timestamp(as_object(info.get("time")).get("created"))


def _parse_text(part: JsonObject) -> str | None:
    return get_text(part, "text") if part.get("type") == "text" else None


def _parse_prompt_part(part: JsonObject) -> dict[str, JSON] | None:
    """Return a part that a person put into a prompt; None for injected text and bookkeeping."""
    kind = part.get("type")
    if kind == "text":
        is_injected = part.get("synthetic") is True or part.get("ignored") is True
        value = None if is_injected else get_text(part, "text")
    elif kind == "subtask":
        value = get_text(part, "prompt")
    else:
        return _parse_file(part) if kind == "file" else None
    return make_text_part(value) if value else None


def _parse_file(part: JsonObject) -> dict[str, JSON]:
    kind, url = get_text(part, "mime") or "", get_text(part, "url") or ""
    if kind.startswith("image/") and url.startswith("data:"):
        return make_image_part(url)
    return {"type": "file", "mime": kind, "filename": get_text(part, "filename"), "url": url}


def _add_tool_call(
    step: AnswerBuilder, part: JsonObject, fallback_id: str, info: JsonObject
) -> None:
    """Add a call, and its result if there is one."""
    state = as_object(part.get("state"))
    given = state.get("input")
    id = _parse_id(part, "callID") or _parse_id(part, "id") or fallback_id
    given = given or get_text(state, "raw") or given
    call = make_tool_call(id, get_text(part, "tool"), given)
    step.add_call(call)
    if state.get("status") not in ("completed", "error"):
        return
    ended = parse_timestamp(as_object(state.get("time")).get("end"))
    step.results.append(
        Message(
            role="tool",
            content=_parse_output(state),
            tool_call_id=id,
            name=call.name or None,
            platform_message_id=id,
            meta=drop_none(_parse_result_meta(state)),
            timestamp=ended or _parse_timestamp(info),
        )
    )


def _parse_output(state: JsonObject) -> str | list[dict[str, JSON]] | None:
    metadata = as_object(state.get("metadata"))
    if state.get("status") == "error":
        # For an interrupted call, the model receives the partial output.
        partial_output = metadata.get("output") if metadata.get("interrupted") is True else None
        return partial_output if isinstance(partial_output, str) else get_text(state, "error")
    output = state.get("output")
    images = [_parse_file(file) for file in as_objects(state.get("attachments"))]
    if not isinstance(output, str):
        return images or None
    return [make_text_part(output), *images] if images else output


def _parse_result_meta(state: JsonObject) -> dict[str, JSON]:
    metadata, time = as_object(state.get("metadata")), as_object(state.get("time"))
    meta: dict[str, JSON] = {"is_error": state.get("status") == "error"}
    meta["exit_code"] = parse_exit_code(metadata.get("exit"))
    since, until = as_number(time.get("start")), as_number(time.get("end"))
    if since and until and until >= since:
        meta["duration"] = round((until - since) / 1000, 3)
    meta["interrupted"] = True if metadata.get("interrupted") is True else None
    meta["agent"] = _parse_id(metadata, "sessionId")
    return meta


def _parse_error_meta(error: JsonObject) -> dict[str, JSON]:
    name = get_text(error, "name")
    message = get_text(as_object(error.get("data")), "message") or get_text(error, "message")
    return {"error": message or name, "api_error": None if name == _ABORTED_ERROR else True}
