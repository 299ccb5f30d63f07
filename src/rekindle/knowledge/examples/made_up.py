"""Put made-up values for those of a request, the same in the command that closed it and the answer.

A command may write a value in another way than the request: a number with zeros in front or in other
units, a name in capitals, the first letters of a month. What is made up is written in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import cycle, pairwise

from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.common_words import get_stem, is_common_word
from rekindle.knowledge.wishes.doubtful_sentences import list_names

MADE_UP_WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
MADE_UP_TEXTS = ("some text", "other text")
_MADE_UP_DIGITS = ("345678912", "271934586", "562918437")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_MONTH_NUMBERS = {name.casefold(): number for number, name in enumerate(_MONTHS, 1)}
_MADE_UP_MONTH, _MADE_UP_YEAR, _MADE_UP_DAYS = "March", "2031", ("9", "14")
_YEAR = re.compile(r"(?:19|20)\d\d")
_PLAIN_WORDS = split_words(
    """
    a all an and are as at be been by for from had has have in is it its no not now of on or than that
    the there this to under was were will with
    cm euro euros feet g gram grams hour hours kg kilometers kilometres km m meter meters metre metres
    mile miles minute minutes mm percent second seconds ton tonne tonnes tons
    """
)
MADE_UP_VALUES = frozenset(
    word
    for text in (*MADE_UP_WORDS, *MADE_UP_TEXTS, _MADE_UP_MONTH)
    for word in (*text.split(), *text.title().split())
)
_FACTORS = (*(10**power for power in range(1, 7)), 60, 3_600)
# Digits of other alphabets are parts of words: what is no number is never calculated with.
_RUN = re.compile(r"[0-9]+(?:\.[0-9]+)?|(?:(?![0-9_])\w)+(?:['’][a-z]{1,2}(?![a-z]))?")
_SPACES = re.compile(r" {2,}")
_SPACE_BEFORE_SIGN = re.compile(r" (?=[.,;:?!])")
MAX_UNKNOWN_SHARE = 0.2  # of the words of a text, which are left out


class ValueMaker:
    """Makes up the values of one request, its command and its answer.

    `kept` are the words of the command that belong to it and not to the request.
    """

    def __init__(self, asked: str, kept: Iterable[str]) -> None:
        self._made: dict[str, str] = {}
        self._words = iter(MADE_UP_WORDS)
        self._digits = iter(_MADE_UP_DIGITS)
        self._runs = list_runs(asked)
        numbers = {run for run in self._runs if _is_number(run)}  # which are of the request
        self._kept = {word.casefold() for word in kept} - numbers
        self._sources = {run.casefold() for run in self._runs}
        pairs = [*pairwise(self._runs)]
        beside = [*pairs, *((after, before) for before, after in pairs)]
        self._days = {
            run
            for run, other in beside
            if _is_integer(run) and len(run) < 3 and other.casefold() in _MONTH_NUMBERS
        }

    def is_kept(self, run: str) -> bool:
        """Return whether a run of the command belongs to the command."""
        return run.casefold() in self._kept

    def add_value(self, run: str) -> bool:
        """Make up what a run of the command stands for; return whether the request has its source."""
        if run.casefold() in self._made or (run.casefold() in self._sources and self._make(run)):
            return True
        for source in self._runs:
            if (derive := _find_relation(source, run)) is not None and self._make(source):
                self._made[run.casefold()] = derive(self._made[source.casefold()])
                return True
        return False

    def rewrite_command(self, command: str) -> str:
        """Return the command with made-up values, all of which were added."""
        return _RUN.sub(
            lambda found: found[0] if self.is_kept(found[0]) else self._write(found[0]), command
        )

    def rewrite_request(self, asked: str) -> str | None:
        """Return the request with made-up values, without words that are not common."""
        names = list_names(asked)

        def is_allowed(run: str) -> bool:
            return run not in names and is_common_word(run)

        return self._rewrite(asked, is_allowed, frozenset())

    def rewrite_answer(self, answer: str, result: Iterable[str]) -> str | None:
        """Return the answer with made-up values, also for words of the result of the command.

        Of others only those of the request and the command are kept, and those that no sentence does
        without: what the agent has read may have told it what to say.
        """
        said = {get_stem(run) for run in (*self._runs, *self._kept)}

        def is_kept(run: str) -> bool:
            if run.casefold() in _PLAIN_WORDS:
                return True
            return get_stem(run) in said and is_common_word(run)

        return self._rewrite(answer, is_kept, frozenset(run.casefold() for run in result))

    def _rewrite(
        self, text: str, is_allowed: Callable[[str], bool], values: frozenset[str]
    ) -> str | None:
        """Return a text with made-up values, without words that are not allowed; None if they are many.

        `values` are words for which others are made up if they are not common.
        """
        words = unknown = 0

        def rewrite(found: re.Match[str]) -> str:
            nonlocal words, unknown
            run = found[0]
            words += 1
            if run.casefold() in self._made:
                return self._write(run)
            if self.is_kept(run) or (not _is_number(run) and is_allowed(run)):
                return run
            if _is_number(run) or (run.casefold() in values and not is_common_word(run)):
                return self._write(run) if self._make(run) else ""
            unknown += 1
            return ""

        rewritten = _SPACE_BEFORE_SIGN.sub("", _SPACES.sub(" ", _RUN.sub(rewrite, text))).strip()
        return rewritten if words and unknown <= MAX_UNKNOWN_SHARE * words else None

    def _make(self, run: str) -> bool:
        """Make up a value for a run; return False if there are none left."""
        plain = run.casefold()
        if plain in self._made:
            return True
        if plain in _MONTH_NUMBERS:
            made: str | None = _MADE_UP_MONTH
        elif _YEAR.fullmatch(run):
            made = _MADE_UP_YEAR
        elif run in self._days:
            made = _MADE_UP_DAYS[len(run) - 1]
        elif _is_number(run):
            digits = next(self._digits, None)
            made = _write_number(run, digits) if digits else None
        else:
            made = next(self._words, None)
        if made is not None:
            self._made[plain] = made
        return made is not None

    def _write(self, run: str) -> str:
        """Return what is made up for a run, in capitals where the run is."""
        made = self._made.get(run.casefold(), run)
        if made == _MADE_UP_MONTH and run.isupper():
            made = made[: len(run)]  # May is as short as the others in capitals
        if run.isupper() and len(run) > 1:
            return made.upper()
        return made.capitalize() if run.istitle() else made if _is_number(run) else made.lower()


def list_runs(text: str) -> list[str]:
    """Return the words and numbers of a text."""
    return _RUN.findall(text)


def _is_number(run: str) -> bool:
    return run[0] in "0123456789"


def _is_integer(run: str) -> bool:
    return run.isascii() and run.isdigit()


def _write_number(like: str, digits: str) -> str:
    """Write digits like a number, with as many of them and its point."""
    endless = cycle(digits)
    return "".join(char if char == "." else next(endless) for char in like)


def _find_relation(source: str, run: str) -> Callable[[str], str] | None:
    """Return how a run is written in terms of a word or number of the request, if it is."""
    month = _MONTH_NUMBERS.get(source.casefold())
    if month is not None:
        if len(run) == 3 and source.casefold().startswith(run.casefold()):
            return lambda made: made[:3]
        if _is_integer(run) and int(run) == month:
            return lambda made: str(_MONTH_NUMBERS[made.casefold()]).zfill(len(run))
        return None
    if not (_is_number(source) and _is_integer(run)):
        return None
    if _YEAR.fullmatch(source) and run == source[2:]:
        return lambda made: made[2:]
    if len(run) > len(source) and _is_integer(source) and run == source.zfill(len(run)):
        return lambda made: made.zfill(len(run))
    for factor in _FACTORS:
        if Decimal(source) and Decimal(source) * factor == Decimal(run):
            return lambda made: f"{Decimal(made) * factor:f}".removesuffix(".0")
    return None
