"""Examples as they are kept: of one session, and of a project."""

from __future__ import annotations

import re

import msgspec

_DIGITS = re.compile(r"\d+(?:\.\d+)?")


class SessionExample(msgspec.Struct, array_like=True, frozen=True):
    """A request of a session, the command that closed it, and the answer, all with made-up values."""

    key: str
    form: str  # of the command, with slots
    asked: str
    command: str
    answer: str
    digest: int = 0  # of what was really asked

    @property
    def kind(self) -> tuple[str, str]:
        """What examples have in common that differ in nothing but their numbers."""
        return _describe_kind(self.key, self.asked)

    @property
    def digits(self) -> int:
        """The number of digits, which show how numbers are written."""
        return sum(char.isdigit() for char in self.asked)


class Example(msgspec.Struct, array_like=True, frozen=True):
    """An example that independent sessions share, and the numbers of these sessions."""

    key: str
    asked: str
    command: str
    answer: str
    sessions: tuple[int, ...]

    @property
    def kind(self) -> tuple[str, str]:
        """What examples have in common that differ in nothing but their numbers."""
        return _describe_kind(self.key, self.asked)


def _describe_kind(key: str, asked: str) -> tuple[str, str]:
    return key, _DIGITS.sub("#", asked)
