"""What learning keeps of a session: values, slots in texts of commands, and words as hashes.

Recall needs no more of it than this, so this is quick to import.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

import msgspec

from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.examples.records import SessionExample
from rekindle.knowledge.wishes.records import SessionWish

OBSERVATION_VERSION = 11
ADVICE_MARK = "[From earlier sessions in this project]"  # before advice in the result of a call
MAX_REQUEST_CHARS = 6_000
MAX_REQUEST_WORDS = 120
WORD = re.compile(r"[A-Za-z][A-Za-z0-9]+")
_WORD_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
STOP_WORDS = split_words(
    """
    the and for that this with you can are not but have from was will all use what when should then into
    also only just like don need would make there about has its them they some more how out our now any
    see get add one please let were been being does did doing want
    """
)
_COMMON_BRANCHES = split_words("main master trunk develop development dev staging production HEAD")
_TIME_SHAPE = r"<[YMDHSNTZm:./-]{5,24}>"
_NUMBER_SHAPE = r"<number>[A-Za-z%]{0,3}"  # with its unit
_CODE_SHAPE = r"<VALUE>|<(?:[A-Z]|X{2,4})-N{1,8}>"
# Slots that say the shape of a value; what else a slot may be says only that there is one.
_SHAPE = re.compile(rf"<name>=\S+|'<text>'|{_NUMBER_SHAPE}|<url>|{_TIME_SHAPE}|{_CODE_SHAPE}")
_SLOT = re.compile(
    rf"'<text>'|{_NUMBER_SHAPE}|<(?:value|path|option|name|url)>|{_TIME_SHAPE}|{_CODE_SHAPE}"
)
_EXAMPLES = {"'<text>'": "'a b'", "<url>": "http://a", "<name>": "name"}
_MADE_UP = {"<name>": "speed", "'<text>'": "'some text'"}
_MADE_UP_WORDS = ("alpha", "beta", "gamma", "delta")
_TIME_LETTERS = ("YYYY", "YY", "MMM", "Mmm", "mmm", "MM", "DD", "NN", "HH", "SS")
_TIME_DIGITS = ("2000", "26", "JAN", "Jan", "jan", "01", "01", "01", "00", "00")


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
    remotes: tuple[str, ...] = ()  # that git named, as it spelled them
    checks: tuple[str, ...] | None = None  # commands before the last commit, by key
    red_tests: tuple[str, ...] = ()  # that failed before the session changed a file
    wishes: tuple[SessionWish, ...] = ()
    echoes: tuple[str, ...] = ()  # forms that may follow what a stranger wrote
    branch: tuple[int, ...] = ()  # see `hash_branch`
    examples: tuple[SessionExample, ...] = ()
    red_checks: tuple[str, ...] = ()  # the keys of the commands that ran `red_tests`
    has_failed: bool = False  # by its outcome: red tests at its end, a rejection by its user, …
    missing: tuple[str, ...] = ()  # tools that it asked for in vain, see `find_missing_tools`
    available: tuple[int, ...] = ()  # the hashed names of those that it had


class PlaybookSession(msgspec.Struct, array_like=True, frozen=True):
    """A session that the playbook was learned from."""

    id: str
    started: float
    words: tuple[int, ...]
    branch: tuple[int, ...] = ()


class ArgumentUse(msgspec.Struct, array_like=True, frozen=True):
    """An argument of a command, with the slot behind it, and the sessions that used it, by number."""

    text: str
    sessions: tuple[int, ...]


class CommandForms(msgspec.Struct, array_like=True, frozen=True):
    """A form of a command: its text and folder, and how often it worked and failed."""

    text: str
    folder: str
    sessions: int
    worked: int
    failed: int


class FailingForm(msgspec.Struct, array_like=True, frozen=True):
    """A form of a command that is known to fail, without the shapes of its slots."""

    text: str
    folder: str
    sessions: tuple[int, ...]  # in which it failed and never worked


class PlaybookItem(msgspec.Struct, array_like=True, frozen=True):
    """A command or a file, and the numbers of the sessions that used it, oldest first."""

    name: str
    sessions: tuple[int, ...]
    uses: int
    worked: int = 0
    failed: int = 0
    forms: tuple[CommandForms, ...] = ()
    arguments: tuple[ArgumentUse, ...] = ()


def count_form_slots(text: str) -> int:
    """Return the number of slots in the text of a command."""
    return len(_SLOT.findall(text))


def is_slot(word: str) -> bool:
    """Return whether a word of a form stands for a value, or for a name and its value."""
    return _SLOT.fullmatch(word) is not None or word.startswith("<name>=")


def join_folder(text: str, folder: str) -> str:
    """Return a form with the folder in which it runs."""
    return f"cd {folder} && {text}" if folder else text


@lru_cache(maxsize=20_000)
def drop_shapes(text: str) -> str:
    """Return a form with slots that do not say the shape of a value, so that forms can be compared."""
    return _SHAPE.sub(_drop_shape, text) if "<" in text else text


def _drop_shape(found: re.Match[str]) -> str:
    slot = found.group()
    return "<path>" if "/" in slot or slot.endswith(("<path>", "<url>")) else "<value>"


def merge_slots(text: str, other: str) -> str:
    """Return what two forms have in common that differ at most in the shapes of their slots."""
    if text == other:
        return text
    pairs = zip(text.split(" "), other.split(" "), strict=True)
    return " ".join(one if one == two else _merge_words(one, two) for one, two in pairs)


def _merge_words(word: str, other: str) -> str:
    if word.startswith("<name>=") and other.startswith("<name>="):
        return "<name>=<value>"
    return drop_shapes(word)


def list_constants(text: str) -> list[str]:
    """Return the words and numbers of a form that are no values, also those within its slots."""
    return re.findall(r"\d+|[^\W\d_]+", _SLOT.sub(_keep_constant, text))


def _keep_constant(found: re.Match[str]) -> str:
    slot = found.group()
    if slot.startswith("<number>"):
        return slot.removeprefix("<number>")  # its unit
    return slot[1] if slot[2:3] == "-" else " "  # the letter of a code


def fill_slots(text: str) -> str:
    """Return a form with an example for each slot, so that it can be read like a command."""
    return _SLOT.sub(_fill_slot, text)


def _fill_slot(found: re.Match[str]) -> str:
    slot = found.group()
    if slot.startswith("<number>"):
        return slot.replace("<number>", "000")
    if slot in _EXAMPLES or slot.strip("<>").islower():
        return _EXAMPLES.get(slot, "Value")
    for letters, digits in zip(_TIME_LETTERS, _TIME_DIGITS, strict=True):
        slot = slot.replace(letters, digits)
    return slot.strip("<>")


def make_up_values(form: str) -> str:
    """Return a form with a made-up value for each slot, which shows how such a value is written."""
    words = iter(_MADE_UP_WORDS)

    def make_up(found: re.Match[str]) -> str:
        slot = found.group()
        if slot.startswith("<number>"):
            return slot.replace("<number>", "120")
        if slot in ("<value>", "<VALUE>"):
            word = next(words)
            return word if slot.islower() else word.upper()
        if (code := re.fullmatch(r"<([A-Z]+)-(N+)>", slot)) is not None:
            return f"{code[1]}-{'12'.zfill(len(code[2]))}"
        return _MADE_UP.get(slot) or _fill_slot(found)

    return _SLOT.sub(make_up, form)


def hash_request(text: str) -> tuple[int, ...]:
    """Return the hashed words of a request, so that requests can be compared and not read."""
    return tuple(sorted(hash_words(text[:MAX_REQUEST_CHARS])))[:MAX_REQUEST_WORDS]


def hash_branch(branch: str | None) -> tuple[int, ...]:
    """Return the hashes of a branch and of its words, without whose it is; none for a common branch."""
    if not branch or branch in _COMMON_BRANCHES:
        return ()
    return (hash_word(branch), *sorted(hash_words(branch.partition("/")[2] or branch)))


def hash_words(text: str) -> set[int]:
    """Return the hashes of a text's words and of the parts of its compound words."""
    found: set[int] = set()
    for word in WORD.findall(text):
        parts = _WORD_PART.findall(word)
        for part in (*parts, word) if len(parts) > 1 else (word,):
            plain = part.lower()
            if len(plain) > 2 and plain not in STOP_WORDS:
                found.add(hash_word(plain.removesuffix("s") if len(plain) > 4 else plain))
    return found


@lru_cache(maxsize=100_000)
def hash_word(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=4).digest(), "big")
