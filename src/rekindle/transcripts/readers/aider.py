"""Aider chat history: Markdown, with all chats of a folder in one growing file.

    # aider chat started at 2026-01-31 10:00:00     a chat, which is a session
    #### what the user typed                        one line of a prompt
    > Applied edit to app.py                        output of Aider itself
    anything else                                   the model's answer

There are no tool calls. Aider's output after a message (edits, failed edits, output of tests and
linters) is kept as `notes` of that message; its output before the first message names the model. Aider
ends its own lines and the user's with two spaces, so quotations and headings in answers stay there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

from rekindle.json_fields import drop_none, parse_timestamp
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.jsonl import MAX_LINE_BYTES
from rekindle.types import JSON, Message, Session, Tokens

from .session_builder import SessionBuilder, make_hash_id, make_path_id

SOURCE = "aider"

_CHAT_HEADING = b"# aider chat started at "
_PROMPT_PREFIX = "#### "
_NOTE_PREFIX = "> "
_MODEL = re.compile(r"(?:Main model|Models?): (\S+)")
_FOLDER = re.compile(r"Git working dir: (\S.*)")
_EDITED = re.compile(r"Applied edit to (.+)")
_EDIT_FAILURES = (
    "The LLM did not conform to the edit format",
    "SEARCH/REPLACE block failed to match",
)
_SENT = re.compile(r"([\d.,]{1,15}[kM]?) (?:prompt tokens|sent)\b")
_RECEIVED = re.compile(r"([\d.,]{1,15}[kM]?) (?:completion tokens|received)\b")
_CACHE_WRITTEN = re.compile(r"([\d.,]{1,15}[kM]?) cache write\b")
_CACHE_READ = re.compile(r"([\d.,]{1,15}[kM]?) cache hit\b")
_COST = re.compile(r"\$(\d{1,9}(?:\.\d{1,12})?) (?:cost|message|send)\b")


def can_read(head: FileHead) -> bool:
    return any(line.startswith(_CHAT_HEADING) for line in head.data.split(b"\n", 20)[:20])


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    history = _AiderHistory(path)
    number = 0
    with path.open("rb") as file:
        while data := file.readline(MAX_LINE_BYTES):
            number += 1
            if len(data) == MAX_LINE_BYTES and not data.endswith(b"\n"):
                yield UnreadableEntry(
                    str(path), number, f"line is longer than {MAX_LINE_BYTES >> 20} MiB"
                )
            elif data.startswith(_CHAT_HEADING):
                started_text = data[len(_CHAT_HEADING) :].decode("utf-8", "replace")
                yield from history.start_chat(started_text, number)
            elif not history.chat.try_continue_answer(line := data.decode("utf-8", "replace")):
                yield from history.read_entry(line, number)
    yield from history.finish()


class _AiderHistory:
    """The chats of one file, read one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: set[str] = set()
        self.chat = _AiderChat("", 0)

    def start_chat(self, started_text: str, number: int) -> Iterator[TranscriptEvent]:
        yield from self.finish()
        self.chat = _AiderChat(started_text.strip(), number)

    def read_entry(self, line: str, number: int) -> Iterator[TranscriptEvent]:
        for message in self.chat.read_entry(line, number):
            yield from self._append_message(message)

    def finish(self) -> Iterator[TranscriptEvent]:
        for message in self.chat.close_message():
            yield from self._append_message(message)
        yield from self.chat.finish()

    def _append_message(self, message: Message) -> Sequence[TranscriptEvent]:
        if not self.chat.is_started:
            self.chat.set_fields(id=self._make_session_id(message))
            self.ids.add(self.chat.session.id)
        return self.chat.append_message(message)

    def _make_session_id(self, first: Message) -> str:
        # Start time, notes with the folder, and first line: identical in a copy of the file.
        if not self.chat.started_text:
            return make_path_id(SOURCE, self.path, "")
        identity = first.text.split("\n", 1)[0]
        identity = f"{self.chat.started_text}\n{self.chat.preface}\n{identity}"
        id = make_hash_id(SOURCE, identity)
        while id in self.ids:
            identity += "\n"
            id = make_hash_id(SOURCE, identity)
        return id


class _AiderChat(SessionBuilder):
    """One chat being read."""

    def __init__(self, started_text: str, heading_line: int) -> None:
        started = parse_timestamp(started_text) or 0.0
        super().__init__(Session(id="", source=SOURCE, started=started))
        self.started_text = started_text
        self.heading_line = heading_line
        self.preface = ""
        # The message being assembled: its role, its first line, and Aider's output after it.
        self.role = ""
        self.line = 0
        self.text_lines: list[str] = []
        self.notes: list[str] = []
        # Whether Aider's lines end with two spaces; an editor may have stripped them.
        self.is_marked: bool | None = None

    def try_continue_answer(self, line: str) -> bool:
        """Append a line that continues an answer (most do); return whether it was one."""
        if (
            self.role != "assistant"
            or self.notes
            or line.startswith((_NOTE_PREFIX, _PROMPT_PREFIX))
        ):
            return False
        self.text_lines.append(line.rstrip("\r\n"))
        return True

    def read_entry(self, line: str, number: int) -> Iterator[Message]:
        """Read a line and yield the message that it completes."""
        line = line.rstrip("\r\n")
        if line.startswith(_NOTE_PREFIX) and self._is_aider_line(line):
            self._read_note(line[len(_NOTE_PREFIX) :].removesuffix("  "))
        elif line.startswith(_PROMPT_PREFIX) and self._is_aider_line(line):
            if self.role != "user" or self.notes:
                yield from self.close_message()
                self.role, self.line = "user", number
            self.text_lines.append(line[len(_PROMPT_PREFIX) :].removesuffix("  "))
        elif self.role == "assistant" and not self.notes:
            self.text_lines.append(line)
        elif line.strip() and (self.heading_line or self.role):
            yield from self.close_message()
            self.role, self.line = "assistant", number
            self.text_lines.append(line)

    def _is_aider_line(self, line: str) -> bool:
        """Return whether Aider wrote this line, not the model."""
        if self.is_marked is None:
            self.is_marked = line.endswith("  ")
        return line.endswith("  ") or not self.is_marked

    def _read_note(self, note: str) -> None:
        if match := _MODEL.match(note):
            self.fill_fields(model=match[1])
        elif match := _FOLDER.match(note):
            self.fill_fields(cwd=match[1])
        if match := _SENT.search(note):
            cache_read, cache_write = (
                _parse_count(_CACHE_READ.search(note)),
                _parse_count(_CACHE_WRITTEN.search(note)),
            )
            usage = Tokens(
                _parse_count(match), _parse_count(_RECEIVED.search(note)), cache_read, cache_write
            )
            cost = _COST.search(note)
            self.add_usage(usage, Decimal(cost[1]) if cost else Decimal(0))
        if self.role:
            self.notes.append(note)
        elif len(self.preface) < 10_000:
            self.preface += f"{note}\n"

    def close_message(self) -> Iterator[Message]:
        """Yield the message being assembled."""
        text = "\n".join(self.text_lines).strip("\n")
        role, line, notes = self.role, self.line, self.notes
        self.role, self.text_lines, self.notes = "", [], []
        if role and (text or notes):
            yield Message(
                role=role,
                content=text,
                platform_message_id=f"line:{line - self.heading_line}",
                meta=drop_none(_build_meta(notes)),
            )


def _build_meta(notes: list[str]) -> dict[str, JSON]:
    edited = [match[1].strip() for note in notes if (match := _EDITED.match(note))]
    failed = any(mark in note for note in notes for mark in _EDIT_FAILURES)
    return {
        "edited": edited or None,
        "edit_failed": True if failed else None,
        "notes": "\n".join(notes).strip() or None,
    }


def _parse_count(match: re.Match[str] | None) -> int:
    """Parse a token count as Aider rounds it: `33,469`, `12k`, `1.2M`."""
    if match is None:
        return 0
    digits = match[1].replace(",", "")
    scale = {"k": 1_000, "M": 1_000_000}.get(digits[-1:], 1)
    try:
        return round(float(digits.rstrip("kM")) * scale)
    except ValueError:
        return 0
