"""What an overview is computed from: the facts of each session, and what notes know of failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from rekindle.types import Session, Tokens


class CommandCount(NamedTuple):
    """How often a session ran a project command, such as `npm test`."""

    name: str
    worked: int
    failed: int


class SessionFacts(NamedTuple):
    """A session with its project, its time at work and its cost."""

    session: Session
    project: str  # its key; empty if unknown
    day: int  # on which it started, local time, since 1970
    seconds: float | None = None  # at work; None if its transcript has no times
    tokens: Tokens = Tokens()
    cost: Decimal = Decimal(0)
    unpriced: int = 0  # tokens of models without a known price
    costs_by_day: Mapping[int, Decimal] = {}
    commands: Sequence[CommandCount] = ()


class Mend(NamedTuple):
    """A command that failed and what worked instead, as the notes of a project know it."""

    project: str
    command: str
    failed: str
    worked: str
    sessions: tuple[str, ...]  # newest first


class RedTest(NamedTuple):
    """A test that failed before anything was changed."""

    project: str
    name: str
    sessions: tuple[str, ...]  # newest first


class KnownFailures(NamedTuple):
    """What the notes of the projects know about failures."""

    mends: Sequence[Mend] = ()
    red_tests: Sequence[RedTest] = ()
