"""A large store for the web pages: many sessions of several agents in many projects.

    python -m bench.interfaces.web_store FILE [--sessions N] [--messages M]

Sessions vary like real ones: most are short and a few very long, half have a title, and some are
sub-agents, archived or still running. Calls are judged, and outcomes are known.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from bench.workload import RHYTHM, SEED, build_vocabulary, make_prose
from rekindle import Filter, Store, open_store
from rekindle.learning.verdicts.judged_sessions import RULES_VERSION
from rekindle.learning.verdicts.session_outcomes import VERSION as OUTCOME_VERSION
from rekindle.store.learning.outcomes import JudgedCalls, StaleSession
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import (
    QUARTER_SECONDS,
    JudgedCall,
    Message,
    Session,
    SessionOutcome,
    Tokens,
    ToolCall,
    UsageEntry,
)

SESSIONS, MESSAGES = 100_000, 4_000_000
MEAN_BYTES = 160  # of a message
PROJECTS, SPAN_SECONDS = 200, 400 * 86_400
BATCH, VERDICT_BATCH = 500, 2_000  # sessions
SECONDS_PER_MESSAGE = 20
AGENTS = (
    ("claude-code", "claude-sonnet-4-5", "Bash"),
    ("codex", "gpt-5-codex", "shell"),
    ("opencode", "claude-opus-4-1", "bash"),
    ("gemini", "gemini-2.5-pro", "run_shell_command"),
)
WEIGHTS = (60, 25, 10, 5)
ERROR_RATE = 0.06


def fill_store(path: Path, sessions: int, messages: int, now: float | None = None) -> None:
    """Fill a new store with sessions that have this many messages in total, up to now."""
    now = time.time() if now is None else now
    batches = [range(at, min(at + BATCH, sessions)) for at in range(0, sessions, BATCH)]
    mean = messages / sessions
    with (
        open_store(path, durability="relaxed") as store,
        ProcessPoolExecutor(max(1, (os.cpu_count() or 2) - 1)) as pool,
    ):
        waiting: list[Future[list[SessionImport]]] = []
        for batch in batches:
            waiting.append(pool.submit(make_sessions, batch, sessions, mean, now))
            if len(waiting) > 4:
                store.import_batch(waiting.pop(0).result())
        for one in waiting:
            store.import_batch(one.result())
        judge_calls(store)
        for session in store.recent(max(1, sessions // 50), offset=sessions // 2):
            store.archive_session(session)


def make_sessions(
    numbers: Sequence[int], sessions: int, mean: float, now: float
) -> list[SessionImport]:
    """Make sessions, each from its own seed."""
    return [make_session(number, sessions, mean, now) for number in numbers]


def make_session(number: int, sessions: int, mean: float, now: float) -> SessionImport:
    rng = random.Random(f"{SEED}:web:{number}")
    source, model, tool = rng.choices(AGENTS, WEIGHTS)[0]
    # Many short ones and a few long ones; the power of two is 1.12 on average.
    count = max(2, round(mean * 2 ** rng.uniform(-4, 2.3) / 1.12))
    ended = now - SPAN_SECONDS * ((sessions - 1 - number) / sessions) ** 1.5
    started = ended - count * SECONDS_PER_MESSAGE
    messages = list(iter_messages(rng, count, tool, started))
    tokens = Tokens(rng.randrange(1_000, 5_000) * count, rng.randrange(50, 300) * count)
    project = min(int(rng.paretovariate(0.7)), PROJECTS)
    words = " ".join(rng.choices(build_vocabulary()[:5_000], k=rng.randrange(3, 8)))
    is_sub_agent = number > 0 and rng.random() < 0.08
    session = Session(
        id=make_id(number),
        source=source,
        model=model,
        title=f"{words} {number}"[:90] if rng.random() < 0.5 else None,
        cwd=f"/home/ada/src/project-{project}",
        git_branch="main",
        repository=f"example.com/team/project-{project}",
        started=started,
        last_active=ended,
        parent=make_id(number - 1) if is_sub_agent else None,
        sub_agent="explorer" if is_sub_agent else None,
        tokens=tokens,
    )
    entry = UsageEntry(int(ended) // QUARTER_SECONDS, model, tokens)
    return SessionImport(session=session, messages=messages, is_complete=True, usage=[entry])


def make_id(number: int) -> str:
    """Return the id of a session, which looks random."""
    digits = f"{random.Random(f'{SEED}:id:{number}').getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def iter_messages(rng: random.Random, count: int, tool: str, started: float) -> Iterator[Message]:
    """Yield messages in an agent's order: request, call, result, …, answer."""
    call: ToolCall | None = None
    for at in range(count):
        role, text = RHYTHM[at % len(RHYTHM)], make_prose(rng, MEAN_BYTES)
        sent = started + at * SECONDS_PER_MESSAGE
        if role == "call":
            arguments = (
                f'{{"command": "{rng.choice(build_vocabulary())} --line {rng.randrange(900)}"}}'
            )
            call = ToolCall(f"call_{rng.getrandbits(48):012x}", tool, arguments)
            yield Message(role="assistant", content=text, tool_calls=(call,), timestamp=sent)
        elif role == "tool" and call is not None:
            yield Message(role="tool", content=text, tool_call_id=call.id, timestamp=sent)
        else:
            yield Message(role=role, content=text, timestamp=sent)


# ── verdicts


def judge_calls(store: Store) -> None:
    """Store random verdicts for every call and every session."""
    waiting = store.find_stale_sessions(RULES_VERSION, Filter(archived=None))
    for first in range(0, len(waiting), VERDICT_BATCH):
        batch = waiting[first : first + VERDICT_BATCH]
        store.save_verdicts(RULES_VERSION, [make_verdicts(one) for one in batch])
    undecided = store.session_outcomes.find_stale(OUTCOME_VERSION)
    for first in range(0, len(undecided), VERDICT_BATCH):
        batch = undecided[first : first + VERDICT_BATCH]
        store.session_outcomes.save(
            OUTCOME_VERSION, [(one, make_outcome(one.num)) for one in batch]
        )


def make_verdicts(stale: StaleSession) -> JudgedCalls:
    rng = random.Random(f"{SEED}:verdicts:{stale.num}")
    calls: list[JudgedCall] = []
    for at in range(stale.messages):
        if RHYTHM[at % len(RHYTHM)] == "call":
            failed = rng.random() < ERROR_RATE
            calls.append(
                JudgedCall(
                    session=stale.session,
                    position=at,
                    number=0,
                    id=f"call_{at}",
                    tool="Bash",
                    kind="terminal",
                    digest=rng.getrandbits(40),
                    outcome="error" if failed else "ok",
                    failed=failed,
                    error_kind="command" if failed else None,
                    fault=None,
                    rule="exit-code",
                    confidence=0.9,
                    result_position=at + 1,
                )
            )
    return JudgedCalls(stale, calls, stale.messages, ())


def make_outcome(num: int) -> SessionOutcome:
    verdict = random.Random(f"{SEED}:outcome:{num}").choices(
        ("succeeded", "failed", "unknown"), (45, 12, 43)
    )[0]
    return SessionOutcome(verdict, "tests", 0.8, None)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.interfaces.web_store", description=__doc__
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    chosen = parser.parse_args()
    begin = time.monotonic()
    fill_store(chosen.file, chosen.sessions, chosen.messages)
    size = chosen.file.stat().st_size / 1e9
    print(f"{chosen.file}: {size:.2f} GB in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
