"""Find the commands of a session that may follow a stranger's text.

Whatever an agent reads may tell it what to run: a README, the output of a package, a log, a ticket, a
row of a database, the name of a file or branch. So a command is an echo if a name in it stood in such
a text before. Its name is vouched for only by a session that ran it without having read it, by the
user's own words, or by the files that the repository's owner keeps for that: build files and
instructions for agents, which vouch for whole words (the name of a package), not for parts of them.
Names of known programs, their subcommands and files in use say nothing. Once a session got what cannot
be read here, such as an image, any name that nobody vouches for is an echo.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.notes.harmless import is_subcommand
from rekindle.knowledge.notes.programs import is_known_program
from rekindle.knowledge.notes.records import is_slot
from rekindle.shell.wrappers import is_assignment
from rekindle.types import ToolCall

from .inputs import SessionInput
from .own_text import is_own_text, is_vendored, reads_own_file
from .plain_text import simplify_text

MAX_TEXT_CHARS = 1_000_000  # of one text; a longer one is not read
MIN_NAME_CHARS = 3

_NAME = re.compile(r"[a-z]+")
_WORD = re.compile(r"@?[a-z0-9]++(?:[_./:@-]++[a-z0-9]++)*+")
# Where a project keeps the programs that it installs: the known ones among them are the same there.
_PROGRAM_FOLDER = re.compile(
    r"^(?:[\w.-]+/){0,6}(?:node_modules/\.bin|\.?venv/bin|\.?venv/Scripts|vendor/bin)/"
)
_KNOWN_VARIABLES = split_words(
    """
    bun cargo cc cgo ci color cxx debug deno display django docker editor env flask force gh git go
    gocache gofl goflags gomodcache gopath goproxy gotmpdir goos goarch gocoverdir home java jvm lang ld
    log mise mypy next no node npm pager path pip pnpm prisma py pytest python rack rails ruff rust
    rustflags shell term test tests tmp tmpdir tz uv verbose vite yarn
    """
)


class ForeignText:
    """The texts that a session has read so far and that strangers may have written."""

    def __init__(self, said: str = "", root: str = "") -> None:
        self._root = root
        self._own: set[str] = set()  # names that the user vouches for
        self._own_words: set[str] = set()  # whole words that the user or the owner vouches for
        self._texts: list[str] = []
        self._checked: dict[str, int] = {}  # how many texts do not have a name
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._is_blind = False
        self.add_said(said)

    def add_said(self, text: str) -> None:
        """Add words with which the user vouches for names."""
        lower = text.lower()
        self._own.update(_NAME.findall(lower))
        self._own_words.update(_WORD.findall(lower))

    def add_text(self, text: str) -> None:
        """Add a text that a stranger may have written."""
        if len(text) > MAX_TEXT_CHARS:
            self.add_unreadable()
            text = text[:MAX_TEXT_CHARS]
        lower = text.lower()
        self._texts.append(lower)
        if (plain := simplify_text(lower)) != lower:
            self._texts.append(plain)

    def add_unreadable(self) -> None:
        """Note that the model read what cannot be read here: nobody knows which names were in it."""
        self._is_blind = True

    def add_input(self, given: SessionInput) -> None:
        """Add what the model read beside results, and what its user did not write."""
        if given.text:
            self.add_text(given.text)
        if not given.is_readable:
            self.add_unreadable()

    def add_files(self, paths: Iterable[str]) -> None:
        """Add files of the repository that the session read, relative to its root."""
        for path in paths:
            if not is_vendored(path):
                parts = path.lower().split("/")
                self._files.add("/".join(parts))
                self._folders.update("/".join(parts[:at]) for at in range(1, len(parts)))

    def add_result(self, call: ToolCall, result: str) -> None:
        """Add what a call returned; what only the owner of the repository can have written vouches."""
        if not result:
            return
        if not is_own_text(call, self._root):
            self.add_text(result)
        elif reads_own_file(call, self._root):
            self._own_words.update(_WORD.findall(result[:MAX_TEXT_CHARS].lower()))

    def add_command(self, form: str) -> None:
        """Add a command that was no echo: what it prints may repeat the names in it."""
        for word in form.lower().split():
            self._own_words.update(_WORD.findall(word))
            self._own.update(_NAME.findall(word.partition("=")[2] or word))

    def is_echo(self, form: str, folder: str = "") -> bool:
        """Return whether a name in a command, run in this folder, stood in a foreign text before."""
        words = form.split()
        start = next((at for at, word in enumerate(words) if not is_assignment(word)), len(words))
        for number, word in enumerate(words):
            if is_slot(word):
                continue
            name, sign, value = word.partition("=")
            if is_assignment(word):
                variable = name.lower().split("_")[0]
                if variable not in _KNOWN_VARIABLES and self._has_foreign_name(name.lower()):
                    return True
            elif word[0] == "-" and not sign:
                continue
            rest = value if sign else word
            if self._is_foreign_word(rest, folder, is_program=number == start):
                return True
        return False

    def _is_foreign_word(self, word: str, folder: str, *, is_program: bool) -> bool:
        if self._is_known_word(word, folder, is_program=is_program):
            return False
        return self._has_foreign_name(word.lower())

    def _is_known_word(self, word: str, folder: str, *, is_program: bool) -> bool:
        if not word or is_slot(word):
            return True
        if is_program and is_known_program(_PROGRAM_FOLDER.sub("", word)):
            return True
        if word[0] in "/~" and is_known_program(word.rsplit("/", 1)[-1]):
            return True  # where it is installed: no other is kept with its folder
        lower = word.lower()
        path = lower.removeprefix("./").removesuffix("/...").rstrip("/")
        if path in ("", ".", "...") or lower in self._own_words:
            return True
        return self._is_file(path, folder)

    def _is_file(self, path: str, folder: str) -> bool:
        below = f"{folder.lower()}/{path}"
        known = self._files | self._folders
        return path in known or below in known

    def _has_foreign_name(self, word: str) -> bool:
        return any(self._is_foreign(name) for name in _NAME.findall(word))

    def _is_foreign(self, name: str) -> bool:
        if len(name) < MIN_NAME_CHARS or name in self._own or _is_common_name(name):
            return False
        return self._is_blind or self._stood(name)

    def _stood(self, name: str) -> bool:
        """Return whether a foreign text had a name."""
        checked = self._checked.get(name, 0)
        if checked < 0:
            return True
        pattern = re.compile(rf"(?<![a-z]){re.escape(name)}(?![a-z])")
        new = self._texts[checked:]
        found = any(name in text and pattern.search(text) for text in new)
        self._checked[name] = -1 if found else len(self._texts)
        return found


@lru_cache(maxsize=10_000)
def _is_common_name(name: str) -> bool:
    return is_known_program(name) or is_subcommand(name, "", "")
