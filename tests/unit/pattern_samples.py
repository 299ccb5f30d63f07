"""Hostile texts for a pattern: runs of common characters, and of what the pattern itself repeats."""

from __future__ import annotations

import re
import re._parser as sre  # type: ignore[import-not-found]
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

CHOICES = 3  # alternatives that are tried, of each group
MANY = 50  # a repetition that goes on longer than this can be pumped
UNITS = (
    *"aA0_-./\\:=@,;'\"`#$%&*+?!|<>()[]{}~",
    *(" ", "\n", "\t", "\r\n", "é", "中", "\0"),
    *("a ", "a.", "a-", "a/", "a=", "a:", "a@", "a,", "a\n", "0.", "0 ", "0:", "A_", "./", "-a "),
    *("' ", '" ', "\\'", "a'", 'a"', "](", "<a", "<a>", "</", " \n", "\n ", "\n- ", "$(", "${"),
    *("://", "http://", "%20", "a=a ", "a: a\n", "Error: ", "a.a/", "/a.", "@a.", "eyJ"),
)
ENDS = ("", "\0")  # behind a run: the text ends, or something follows that nothing takes
CANDIDATES = [chr(code) for code in (*range(97, 123), *range(32, 127), 9, 10, 0xE9, 0)]

HostileText = Callable[[int], str]


class Choice(NamedTuple):
    """How often a sample has an optional part, and which of the alternatives."""

    least: int
    branch: int


def iter_hostile_texts(pattern: re.Pattern[Any]) -> Iterator[tuple[str, HostileText]]:
    """Yield a description of each hostile text, and how to make it of about a given length."""
    for start, unit in dict.fromkeys((*(("", unit) for unit in UNITS), *iter_pumps(pattern))):
        for end in ENDS:
            yield f"{start!r} + {unit!r} * n + {end!r}", create_run(start, unit, end)


def create_run(start: str, unit: str, end: str) -> HostileText:
    return lambda size: start + unit * (size // len(unit)) + end


def iter_pumps(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """Yield what leads to each repetition of the pattern, and what it repeats."""
    source = pattern.pattern
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    flags = pattern.flags & (re.VERBOSE | re.IGNORECASE | re.DOTALL | re.MULTILINE)
    nodes = sre.parse(text, flags)
    for choice in product((0, 1), range(CHOICES)):
        for start, unit in find_pumps(nodes, "", Choice(*choice)):
            if unit:
                yield start, unit
                yield "", f"{start}{unit} "


def find_pumps(nodes: Iterable[Any], before: str, choice: Choice) -> Iterator[tuple[str, str]]:
    for operator, argument in nodes:
        for branch in list_branches(operator, argument):
            yield from find_pumps(branch, before, choice)
        if is_repetition(operator) and argument[1] > MANY:
            yield before, write_sample(argument[2], choice)
        before += write_sample([(operator, argument)], choice)


def is_repetition(operator: Any) -> bool:
    return operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


def list_branches(operator: Any, argument: Any) -> list[Any]:
    """Return the parts of a node that are patterns themselves."""
    if operator is sre.BRANCH:
        return argument[1]
    if operator is sre.SUBPATTERN:
        return [argument[3]]
    if operator is sre.ATOMIC_GROUP:
        return [argument]
    return [argument[2]] if is_repetition(operator) else []


def write_sample(nodes: Iterable[Any], choice: Choice) -> str:
    """Write a short text that the nodes take, assertions and references aside."""
    return "".join(write_node_sample(operator, argument, choice) for operator, argument in nodes)


def write_node_sample(operator: Any, argument: Any, choice: Choice) -> str:
    if operator is sre.LITERAL:
        return chr(argument)
    if operator is sre.ANY:
        return "a"
    if operator in (sre.IN, sre.NOT_LITERAL):
        return find_member(operator, argument)
    if is_repetition(operator):
        return write_sample(argument[2], choice) * max(argument[0], choice.least)
    branches = list_branches(operator, argument)
    return write_sample(branches[choice.branch % len(branches)], choice) if branches else ""


def find_member(operator: Any, argument: Any) -> str:
    """Return a character of a set."""
    if operator is sre.NOT_LITERAL:
        return "a" if argument != ord("a") else "b"
    return next((char for char in CANDIDATES if is_member(char, argument)), "")


def is_member(char: str, items: Any) -> bool:
    excludes, found, code = False, False, ord(char)
    for operator, value in items:
        if operator is sre.NEGATE:
            excludes = True
        elif operator is sre.LITERAL:
            found |= code == value
        elif operator is sre.RANGE:
            found |= value[0] <= code <= value[1]
        elif operator is sre.CATEGORY:
            found |= is_in_category(char, str(value))
    return found != excludes


def is_in_category(char: str, category: str) -> bool:
    letter = {"WORD": "w", "DIGIT": "d", "SPACE": "s"}[category.rsplit("_", 1)[1]]
    return re.match(f"\\{letter.upper() if 'NOT' in category else letter}", char) is not None
