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

from rekindle.knowledge.common_words import is_common_word
from rekindle.knowledge.notes.harmless import is_command_word, is_plain_value, is_subcommand
from rekindle.knowledge.notes.programs import INTERPRETERS, is_known_program
from rekindle.knowledge.notes.records import is_slot
from rekindle.knowledge.path_names import is_plain_folder
from rekindle.shell.wrappers import is_assignment
from rekindle.types import ToolCall

from .inputs import ModelInput
from .known_names import KNOWN_OPTIONS, KNOWN_PLATFORMS, KNOWN_VARIABLES, SCRIPT_RUNNERS
from .own_text import is_own_text, is_reading_own_file, is_vendored
from .plain_text import normalize_text
from .temporary_paths import is_harmless_place

MAX_TEXT_CHARS = 1_000_000  # of one text; a longer one is not read
MIN_NAME_CHARS = 3

_NAME = re.compile(r"[a-z]+")
_WORD = re.compile(r"@?[a-z0-9]++(?:[_./:@-]++[a-z0-9]++)*+")
# Where a project keeps the programs that it installs: the known ones among them are the same there.
_PROGRAM_FOLDER = re.compile(
    r"^(?:[\w.-]+/){0,6}(?:node_modules/\.bin|\.?venv/bin|\.?venv/Scripts|vendor/bin)/"
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
        self._created: set[str] = set()
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
        if (plain := normalize_text(lower)) != lower:
            self._texts.append(plain)

    def add_unreadable(self) -> None:
        """Note that the model read what cannot be read here: nobody knows which names were in it."""
        self._is_blind = True

    def add_input(self, given: ModelInput) -> None:
        """Add what the model read beside results, and what its user did not write."""
        if given.text:
            self.add_text(given.text)
        if not given.is_readable:
            self.add_unreadable()

    def add_created_files(self, paths: Iterable[str]) -> None:
        """Add files that the session made: what they are called, a stranger may have said."""
        self._created.update(path for path in map(str.lower, paths) if path not in self._files)

    def add_files(self, paths: Iterable[str]) -> None:
        """Add files of the repository that the session read, relative to its root."""
        for path in map(str.lower, paths):
            above = ["/".join(path.split("/")[:at]) for at in range(1, path.count("/") + 1)]
            if not is_vendored(path) and self._created.isdisjoint((path, *above)):
                self._files.add(path)
                self._folders.update(above)

    def add_result(self, call: ToolCall, result: str, *, is_unchanged: bool = True) -> None:
        """Add what a call returned; what only the owner of the repository can have written vouches.

        A file that the session changed says what the agent put there.
        """
        if not result:
            return
        if not is_own_text(call, self._root):
            self.add_text(result)
        elif is_unchanged and is_reading_own_file(call, self._root):
            self._own_words.update(_WORD.findall(result[:MAX_TEXT_CHARS].lower()))

    def add_command(self, form: str, folder: str = "") -> None:
        """Add a command that was no echo: what it prints may repeat the names in it."""
        for word in (*form.lower().split(), folder.lower()):
            self._own_words.update(_WORD.findall(word))
            self._own.update(_NAME.findall(word))

    def is_echo(self, form: str, folder: str = "") -> bool:
        """Return whether a name in a command, run in this folder, stood in a foreign text before."""
        words = form.split()
        start = next((at for at, word in enumerate(words) if not is_assignment(word)), len(words))
        runs_scripts = {*words[start : start + 1]} & (SCRIPT_RUNNERS | INTERPRETERS)
        before = ""
        for number, word in enumerate(words):
            name, sign, value = word.partition("=")
            is_named = bool(sign) and (word[0] == "-" or is_assignment(word))
            if self._is_foreign_name(name if is_named else word, is_value=not is_named):
                return True
            value, before, option = (value, word, name) if is_named else (word, word, before)
            if is_slot(value) or value[:1] in ("-", "") or is_harmless_place(option, value):
                continue
            is_known = (
                self._is_known_program(value)
                if number == start and not is_named
                else self._is_known_argument(
                    value, folder, is_script=bool(runs_scripts & SCRIPT_RUNNERS)
                )
            )
            # What such a folder is called runs nothing: it is foreign only if it is known to be.
            is_folder = number > start and not runs_scripts and is_plain_folder(_trim_path(value))
            if not is_known and self._is_foreign_word(value.lower(), is_sure=is_folder):
                return True
        return False

    def has_name(self, name: str) -> bool:
        """Return whether a stranger wrote a name, such as that of a test, in a text that was read."""
        return self._has_stood(name.lower())

    def is_foreign_folder(self, folder: str) -> bool:
        """Return whether a stranger may have named a folder, and the session read no file in it."""
        path = folder.lower()
        if not path or path in self._folders:
            return False
        return any(self._is_foreign_word(part) for part in path.split("/"))

    def _is_foreign_name(self, word: str, *, is_value: bool) -> bool:
        """Return whether the name of an option or variable is foreign."""
        lower = word.lower()
        if word[:2] == "--":
            return self._is_foreign_option(lower)
        if is_value or word[:1] == "-":
            return False
        return lower.split("_")[0] not in KNOWN_VARIABLES and self._is_foreign_word(lower)

    def _is_foreign_option(self, option: str) -> bool:
        name = option[2:]
        if name in KNOWN_OPTIONS or len(name) < MIN_NAME_CHARS or name in self._own_words:
            return False
        if self._is_blind and (name.count("-") > 2 or self._has_foreign_name(name)):
            return True
        return self._has_stood(name if "-" in name else option)

    def _is_known_program(self, word: str) -> bool:
        if is_known_program(_PROGRAM_FOLDER.sub("", word)):
            return True
        if word[0] in "/~" and is_known_program(word.rsplit("/", 1)[-1]):
            return True  # where it is installed: no other is kept with its folder
        lower = word.lower()
        return lower.removeprefix("./") in self._files and "/" in lower

    def _is_known_argument(self, word: str, folder: str, *, is_script: bool) -> bool:
        lower = word.lower()
        path = _trim_path(lower)
        if path in ("", ".", "...") or lower in self._own_words:
            return True
        paths = {path, f"{folder.lower()}/{path}"}
        if not paths.isdisjoint(self._files) and ("/" in lower or "." in lower):
            return True
        # `npm run tools` runs a script: a folder of that name says nothing.
        return not paths.isdisjoint(self._folders) and ("/" in lower or not is_script)

    def _is_foreign_word(self, word: str, *, is_sure: bool = False) -> bool:
        """Return whether a word stood in a foreign text: as a whole, or a name in it.

        With `is_sure`, it must have stood in one that can be read here.
        """
        path = _trim_path(word)
        if path in KNOWN_PLATFORMS:
            return False
        wholes = {path, path.rsplit("/", 1)[-1]}
        may_have_stood = self._has_stood if is_sure else self._may_have_stood
        if any(not self._is_known_whole(one) and may_have_stood(one) for one in wholes):
            return True
        return self._has_foreign_name(word, is_sure=is_sure)

    def _is_known_whole(self, word: str) -> bool:
        return len(word) < 2 or word in self._own_words or _is_common_word(word)

    def _may_have_stood(self, word: str) -> bool:
        return self._is_blind or self._has_stood(word)

    def _has_foreign_name(self, word: str, *, is_sure: bool = False) -> bool:
        return any(self._is_foreign(name, is_sure=is_sure) for name in _NAME.findall(word))

    def _is_foreign(self, name: str, *, is_sure: bool) -> bool:
        if len(name) < MIN_NAME_CHARS or name in self._own or _is_common_name(name):
            return False
        return (self._is_blind and not is_sure) or self._has_stood(name)

    def _has_stood(self, name: str) -> bool:
        """Return whether a foreign text had a name."""
        checked = self._checked.get(name, 0)
        if checked < 0:
            return True
        letters = "a-z" if name.isalpha() else "a-z0-9_"
        pattern = re.compile(rf"(?<![{letters}]){re.escape(name)}(?![{letters}])")
        new = self._texts[checked:]
        found = any(name in text and pattern.search(text) for text in new)
        self._checked[name] = -1 if found else len(self._texts)
        return found


def _trim_path(word: str) -> str:
    """Return a path without what says that it is one of this folder, or all that is below it."""
    return word.removeprefix("./").removesuffix("/...").rstrip("/")


@lru_cache(maxsize=10_000)
def _is_common_word(word: str) -> bool:
    """Return whether a whole word is one that texts about any project have."""
    if is_plain_value(word) or is_command_word(word) or is_known_program(word):
        return True
    return re.search("[a-z]", word) is None or (word.isalpha() and is_common_word(word))


@lru_cache(maxsize=10_000)
def _is_common_name(name: str) -> bool:
    return is_known_program(name) or is_subcommand(name, "", "")
