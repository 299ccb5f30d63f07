"""Sessions with judged calls, made up by rules that are known, so that the statistics can be checked."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from rekindle.types import JudgedCall, JudgedSession, Session

Tool = tuple[str, str]  # name and kind of work

BASH: Tool = ("Bash", "terminal")
READ: Tool = ("Read", "file")
EDIT: Tool = ("Edit", "file")
RUN: Tool = ("execute_code", "code")


def call(
    number: int,
    failed: bool | None = False,
    tool: Tool = BASH,
    *,
    session: str = "s",
    position: int | None = None,
    id: str | None = None,
    digest: int | None = None,
    outcome: str | None = None,
    fault: str | None = None,
    kind: str | None = None,
) -> JudgedCall:
    """One call; each is made by a message of its own unless a position is given."""
    said = {True: "error", False: "ok", None: "unknown"}[failed]
    return JudgedCall(
        session=session,
        position=2 * number + 1 if position is None else position,
        number=0,
        id=id or f"call_{number}",
        tool=tool[0],
        kind=tool[1],
        digest=number if digest is None else digest,
        outcome=outcome or said,
        failed=failed,
        error_kind=kind or ("exit" if failed else None),
        fault=fault,
        rule="invented",
        confidence=1.0,
    )


def judged(
    name: str,
    failures: Sequence[bool | None],
    tools: Sequence[Tool] | None = None,
    *,
    messages: int | None = None,
    source: str = "codex",
    model: str | None = "gpt",
    parent: str | None = None,
    end_reason: str | None = None,
    compressions: tuple[int, ...] = (),
) -> JudgedSession:
    """A session of calls, one by one."""
    chosen = tools or [BASH] * len(failures)
    calls = tuple(
        call(number, failed, tool, session=name)
        for number, (failed, tool) in enumerate(zip(failures, chosen, strict=True))
    )
    session = Session(
        id=name,
        source=source,
        model=model,
        parent=parent,
        end_reason=end_reason,
        message_count=2 * len(calls) + 1 if messages is None else messages,
        tool_call_count=len(calls),
    )
    return JudgedSession(session, calls, compressions)


def survivors(
    seed: int, sessions: int, chance: Callable[[random.Random], float], *, stop: float = 0.25
) -> Iterator[JudgedSession]:
    """Nobody learns: each session has one chance of error, and many end after an error."""
    chances = random.Random(seed)
    for number in range(sessions):
        error, failures = chance(chances), list[bool]()
        while len(failures) < 400:
            failures.append(chances.random() < error)
            if chances.random() < (stop if failures[-1] else 0.012):
                break
        yield judged(f"s{number}", failures)


def drifting(seed: int, sessions: int, task: str) -> Iterator[JudgedSession]:
    """Nobody learns: each tool has one chance of error, but sessions end with other tools."""
    chances = random.Random(seed)
    main, other = ((RUN, READ), (EDIT, READ))[task == "file"]
    rates = {RUN: 0.15, READ: 0.02, EDIT: 0.12}
    for number in range(sessions):
        length = chances.randint(30, 90)
        tools: list[Tool] = []
        for place in range(length):
            share = 0.95 - 0.55 * place / length
            if task == "file":
                share = 0.3 + 0.6 * place / length
            tools.append(main if chances.random() < share else other)
        yield judged(f"{task}{number}", [chances.random() < rates[tool] for tool in tools], tools)


def learning(
    seed: int, sessions: int, tool: Tool = RUN, *, way: int = -1
) -> Iterator[JudgedSession]:
    """The chance of error really falls (or rises) with each call, and nothing else happens."""
    chances = random.Random(seed)
    for number in range(sessions):
        length = chances.choice((25, 40, 70, 120))
        start, end = (0.14, 0.03) if way < 0 else (0.03, 0.14)
        failures = [
            chances.random() < start + (end - start) * min(1.0, place / 80)
            for place in range(length)
        ]
        yield judged(f"{tool[0]}{number}", failures, [tool] * length)
