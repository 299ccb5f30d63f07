"""What learning keeps of a session, as values, and words as hashes to compare them.

Recall needs no more of it than this, so this is quick to import.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

import msgspec

from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.wishes.records import SessionWish

OBSERVATION_VERSION = 4
ADVICE_MARK = "[From earlier sessions in this project]"  # before advice in the result of a call
MAX_REQUEST_CHARS = 6_000
MAX_REQUEST_WORDS = 120
WORD = re.compile(r"[A-Za-z][A-Za-z0-9]+")
_WORD_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_STOP_WORDS = split_words(
    """
    the and for that this with you can are not but have from was will all use what when should then into
    also only just like don need would make there about has its them they some more how out our now any
    see get add one please let were been being does did doing want
    """
)


class CommandUse(msgspec.Struct, array_like=True, frozen=True):
    """How often a session ran a form of a command."""

    key: str
    text: str
    folder: str
    worked: int
    failed: int


class FileUse(msgspec.Struct, array_like=True, frozen=True):
    """How often a session used a file."""

    path: str
    count: int


class Fix(msgspec.Struct, array_like=True, frozen=True):
    """A command that failed, how the failure looked, and the same command that worked soon after.

    One that is not informative differs only in values that a note does not keep; it still tells how
    often such a failure is fixed in a way that can be said.
    """

    key: str
    failed_text: str
    failed_folder: str
    kind: str
    look: tuple[int, ...]
    fixed_text: str
    fixed_folder: str
    steps: tuple[str, ...] = ()  # other commands of the line that worked, before it
    is_informative: bool = True


class SessionObservation(msgspec.Struct, array_like=True, frozen=True):
    """What learning keeps of one session."""

    session: str
    started: float
    words: tuple[int, ...]  # of the request, hashed
    commands: tuple[CommandUse, ...]
    files: tuple[FileUse, ...]
    fixes: tuple[Fix, ...]
    command_files: tuple[
        FileUse, ...
    ] = ()  # used by a command or a patch, and by no tool for files
    programs: tuple[int, ...] = ()  # programs that the user named, hashed
    remotes: tuple[str, ...] = ()  # that git named
    checks: tuple[str, ...] | None = None  # commands before the last commit, by key
    red_tests: tuple[str, ...] = ()  # that failed before the session changed a file
    wishes: tuple[SessionWish, ...] = ()
    echoes: tuple[str, ...] = ()  # forms that may follow what a stranger wrote


class PlaybookSession(msgspec.Struct, array_like=True, frozen=True):
    """A session that the playbook was learned from."""

    id: str
    started: float
    words: tuple[int, ...]


class ArgumentUse(msgspec.Struct, array_like=True, frozen=True):
    """An argument of a command, with the slot behind it, and the number of sessions that used it."""

    text: str
    sessions: int


class CommandForms(msgspec.Struct, array_like=True, frozen=True):
    """A form of a command: its text and folder, and how often it worked and failed."""

    text: str
    folder: str
    sessions: int
    worked: int
    failed: int


class PlaybookItem(msgspec.Struct, array_like=True, frozen=True):
    """A command or a file, and the numbers of the sessions that used it, oldest first."""

    name: str
    sessions: tuple[int, ...]
    uses: int
    worked: int = 0
    failed: int = 0
    forms: tuple[CommandForms, ...] = ()
    arguments: tuple[ArgumentUse, ...] = ()


def hash_request(text: str) -> tuple[int, ...]:
    """Return the hashed words of a request, so that requests can be compared and not read."""
    return tuple(sorted(hash_words(text[:MAX_REQUEST_CHARS])))[:MAX_REQUEST_WORDS]


def hash_words(text: str) -> set[int]:
    """Return the hashes of a text's words and of the parts of its compound words."""
    found: set[int] = set()
    for word in WORD.findall(text):
        parts = _WORD_PART.findall(word)
        for part in (*parts, word) if len(parts) > 1 else (word,):
            plain = part.lower()
            if len(plain) > 2 and plain not in _STOP_WORDS:
                found.add(hash_word(plain.removesuffix("s") if len(plain) > 4 else plain))
    return found


@lru_cache(maxsize=100_000)
def hash_word(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=4).digest(), "big")
