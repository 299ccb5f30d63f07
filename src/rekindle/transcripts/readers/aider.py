"""Aider's chat history: Markdown, with all chats of a folder in one file that grows.

    # aider chat started at 2026-01-31 10:00:00     a chat, which is a session
    #### what the user typed                        one line of a prompt
    > Applied edit to app.py                        what Aider itself says
    anything else                                   the model's answer

There are no tool calls. What Aider says after a message (edits, failed edits, output of tests and
linters) is kept as `notes` of that message; what it says before the first tells the model. Aider ends
its own lines and the user's with two spaces, so a quotation or a heading in an answer stays in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from rekindle.json_fields import present, seconds
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event, Learned, Opened
from rekindle.transcripts.jsonio.jsonl import LONGEST_LINE
from rekindle.types import JSON, Message, Session, Tokens, replace

from .ids import hashed_id, made_id

SOURCE = "aider"

_HEADING = b"# aider chat started at "
_PROMPT = "#### "
_NOTE = "> "
_MODEL = re.compile(r"(?:Main model|Models?): (\S+)")
_FOLDER = re.compile(r"Git working dir: (\S.*)")
_EDITED = re.compile(r"Applied edit to (.+)")
_NOT_EDITED = ("The LLM did not conform to the edit format", "SEARCH/REPLACE block failed to match")
_SENT = re.compile(r"([\d.,]{1,15}[kM]?) (?:prompt tokens|sent)\b")
_RECEIVED = re.compile(r"([\d.,]{1,15}[kM]?) (?:completion tokens|received)\b")
_WRITTEN = re.compile(r"([\d.,]{1,15}[kM]?) cache write\b")
_READ = re.compile(r"([\d.,]{1,15}[kM]?) cache hit\b")
_COST = re.compile(r"\$(\d{1,9}(?:\.\d{1,12})?) (?:cost|message|send)\b")


def sniff(head: Head) -> bool:
    return any(line.startswith(_HEADING) for line in head.data.split(b"\n", 20)[:20])


def read(path: Path) -> Iterator[Event]:
    history = _History(path)
    number = 0
    with path.open("rb") as file:
        while data := file.readline(LONGEST_LINE):
            number += 1
            if len(data) == LONGEST_LINE and not data.endswith(b"\n"):
                yield Damage(str(path), number, f"longer than {LONGEST_LINE >> 20} MiB")
            elif data.startswith(_HEADING):
                moment = data[len(_HEADING) :].decode("utf-8", "replace")
                yield from history.begin(moment, number)
            elif not history.chat.goes_on(line := data.decode("utf-8", "replace")):
                yield from history.take(line, number)
    yield from history.end()


class _History:
    """The chats of one file, one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: set[str] = set()
        self.chat = _Chat("", 0)

    def begin(self, moment: str, number: int) -> Iterator[Event]:
        yield from self.end()
        self.chat = _Chat(moment.strip(), number)

    def take(self, line: str, number: int) -> Iterator[Event]:
        for message in self.chat.take(line, number):
            yield from self._say(message)

    def end(self) -> Iterator[Event]:
        for message in self.chat.end():
            yield from self._say(message)
        if self.chat.session is not None:
            yield Learned(self.chat.learned())

    def _say(self, message: Message) -> Iterator[Event]:
        if self.chat.session is None:
            id = self._id(message)
            self.ids.add(id)
            started = seconds(self.chat.moment) or 0.0
            self.chat.session = Session(id=id, source=SOURCE, started=started)
            self.chat.session = self.chat.learned()
            yield Opened(self.chat.session)
        yield message

    def _id(self, first: Message) -> str:
        # The time to the second, the folder in the notes, the first words: a copy has the same.
        if not self.chat.moment:
            return made_id(SOURCE, self.path, "")
        words = first.text.split("\n", 1)[0]
        words = f"{self.chat.moment}\n{self.chat.preface}\n{words}"
        id = hashed_id(SOURCE, words)
        while id in self.ids:
            words += "\n"
            id = hashed_id(SOURCE, words)
        return id


class _Chat:
    """One chat as far as it is read."""

    def __init__(self, moment: str, heading: int) -> None:
        self.moment = moment
        self.heading = heading
        self.session: Session | None = None
        self.preface = ""
        self.model: str | None = None
        self.folder: str | None = None
        self.tokens = Tokens()
        self.cost = Decimal(0)
        # What is being gathered: who speaks, since which line, and what Aider said after it.
        self.role = ""
        self.line = 0
        self.words: list[str] = []
        self.notes: list[str] = []
        # Whether Aider's lines end with two spaces; an editor may have taken them away.
        self.is_marked: bool | None = None

    def goes_on(self, line: str) -> bool:
        """Take a line in the middle of an answer, which most lines are."""
        if self.role != "assistant" or self.notes or line.startswith((_NOTE, _PROMPT)):
            return False
        self.words.append(line.rstrip("\r\n"))
        return True

    def take(self, line: str, number: int) -> Iterator[Message]:
        """A line; gives the message that is complete because this one began."""
        line = line.rstrip("\r\n")
        if line.startswith(_NOTE) and self._is_own(line):
            self._note(line[len(_NOTE) :].removesuffix("  "))
        elif line.startswith(_PROMPT) and self._is_own(line):
            if self.role != "user" or self.notes:
                yield from self.end()
                self.role, self.line = "user", number
            self.words.append(line[len(_PROMPT) :].removesuffix("  "))
        elif self.role == "assistant" and not self.notes:
            self.words.append(line)
        elif line.strip() and (self.heading or self.role):
            yield from self.end()
            self.role, self.line = "assistant", number
            self.words.append(line)

    def _is_own(self, line: str) -> bool:
        """Whether Aider wrote this line, and not the model."""
        if self.is_marked is None:
            self.is_marked = line.endswith("  ")
        return line.endswith("  ") or not self.is_marked

    def _note(self, said: str) -> None:
        if match := _MODEL.match(said):
            self.model = self.model or match[1]
        elif match := _FOLDER.match(said):
            self.folder = self.folder or match[1]
        if match := _SENT.search(said):
            cached, written = _count(_READ.search(said)), _count(_WRITTEN.search(said))
            spent = Tokens(_count(match), _count(_RECEIVED.search(said)), cached, written)
            self.tokens = self.tokens.plus(spent)
            if cost := _COST.search(said):
                self.cost += Decimal(cost[1])
        if self.role:
            self.notes.append(said)
        elif len(self.preface) < 10_000:
            self.preface += f"{said}\n"

    def end(self) -> Iterator[Message]:
        """The message that is being gathered."""
        words = "\n".join(self.words).strip("\n")
        role, line, notes = self.role, self.line, self.notes
        self.role, self.words, self.notes = "", [], []
        if role and (words or notes):
            yield Message(
                role=role,
                content=words,
                platform_message_id=f"line:{line - self.heading}",
                meta=present(_facts(notes)),
            )

    def learned(self) -> Session:
        assert self.session is not None
        return replace(
            self.session,
            model=self.model,
            cwd=self.folder,
            tokens=self.tokens,
            cost=self.cost,
        )


def _facts(notes: list[str]) -> dict[str, JSON]:
    edited = [match[1].strip() for note in notes if (match := _EDITED.match(note))]
    failed = any(mark in note for note in notes for mark in _NOT_EDITED)
    return {
        "edited": edited or None,
        "edit_failed": True if failed else None,
        "notes": "\n".join(notes).strip() or None,
    }


def _count(match: re.Match[str] | None) -> int:
    """A number of tokens as Aider rounds it: `33,469`, `12k`, `1.2M`."""
    if match is None:
        return 0
    digits = match[1].replace(",", "")
    scale = {"k": 1_000, "M": 1_000_000}.get(digits[-1:], 1)
    try:
        return round(float(digits.rstrip("kM")) * scale)
    except ValueError:
        return 0
