"""The conversations that every store gets: generated from seeds, so that all get the same bytes.

Only the standard library is used, because the environment of each peer imports this file.
Every session has its own seed, so the first hundred sessions are the same whether a hundred or a
hundred thousand are generated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import NamedTuple

SEED = 20261
SESSIONS = 1_000
MESSAGES = 40
MEAN_BYTES = 650
VOCABULARY = 30_000
LONGEST = 20_000
SPREAD = 1.0  # sigma of the log-normal sizes: many short turns, a few long tool results

RHYTHM = ("user", "call", "tool", "call", "tool", "assistant")
TOOLS = ("read_file", "run_command", "search_code", "edit_file", "fetch_page")


class WorkloadCall(NamedTuple):
    id: str
    name: str
    arguments: str


class WorkloadMessage(NamedTuple):
    """One message, in a format of its own that adapters convert."""

    role: str
    text: str
    call: WorkloadCall | None = None
    answers: str | None = None

    @property
    def text_bytes(self) -> int:
        return len(self.text) + (len(self.call.arguments) if self.call else 0)


class Conversation(NamedTuple):
    """One session with all its messages."""

    id: str
    messages: list[WorkloadMessage]

    @property
    def text_bytes(self) -> int:
        return sum(message.text_bytes for message in self.messages)


@cache
def build_vocabulary() -> tuple[str, ...]:
    """Return synthetic words, most frequent first: shorter ones earlier, with some identifiers."""
    rng = random.Random(f"{SEED}:words")
    onset = (*"bcdfghlmnprstvw", "tr", "st", "pl")
    core, coda = "aeiou", "nrstl"
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        syllables = 1 + min(3, int(math.log10(len(words) + 1) * rng.uniform(0.5, 1.1)))
        word = "".join(rng.choice(onset) + rng.choice(core) for _ in range(syllables))
        word += rng.choice(coda) if rng.random() < 0.5 else ""
        if len(words) > 200 and rng.random() < 0.05:
            word += rng.choice("_./-") + rng.choice(list(words)[:200])
        words.setdefault(word)
    return tuple(words)


@cache
def _accumulate_frequencies() -> tuple[float, ...]:
    return tuple(accumulate(1 / (rank + 2.7) for rank in range(VOCABULARY)))


@cache
def _compute_mean_word() -> float:
    total = _accumulate_frequencies()[-1]
    weights = (1 / (rank + 2.7) / total for rank in range(VOCABULARY))
    return sum(w * (len(word) + 1) for w, word in zip(weights, build_vocabulary(), strict=True))


def make_prose(rng: random.Random, mean_bytes: float) -> str:
    """Return random words with Zipf-like frequencies, in a log-normal number."""
    size = rng.lognormvariate(math.log(mean_bytes) - SPREAD**2 / 2, SPREAD)
    count = max(1, round(min(size, LONGEST) / _compute_mean_word()))
    return " ".join(rng.choices(build_vocabulary(), cum_weights=_accumulate_frequencies(), k=count))


def make_conversation(
    index: int, messages: int = MESSAGES, mean_bytes: float = MEAN_BYTES
) -> Conversation:
    """Return session number `index`, in an agent's order: request, call, result, …, answer."""
    rng = random.Random(f"{SEED}:{index}:{messages}:{mean_bytes}")
    minute, second = divmod(index, 60)
    hour, minute = divmod(minute, 60)
    day, hour = divmod(hour, 24)
    name = f"202601{day + 1:02d}_{hour:02d}{minute:02d}{second:02d}_{rng.getrandbits(32):08x}"
    said: list[WorkloadMessage] = []
    pending: str | None = None
    for number in range(messages):
        kind = RHYTHM[number % len(RHYTHM)]
        text = make_prose(rng, mean_bytes)
        if kind == "call":
            pending = f"call_{rng.getrandbits(48):012x}"
            path = f"src/{rng.choice(build_vocabulary())}.py"
            arguments = f'{{"path": "{path}", "line": {rng.randrange(900)}}}'
            said.append(
                WorkloadMessage(
                    "assistant", text, WorkloadCall(pending, rng.choice(TOOLS), arguments)
                )
            )
        elif kind == "tool":
            said.append(WorkloadMessage("tool", text, answers=pending))
        else:
            said.append(WorkloadMessage(kind, text))
    return Conversation(name, said)


def iter_conversations(
    count: int, messages: int = MESSAGES, mean_bytes: float = MEAN_BYTES
) -> Iterator[Conversation]:
    return (make_conversation(index, messages, mean_bytes) for index in range(count))


def make_queries(
    count: int = 200,
    sessions: int = SESSIONS,
    messages: int = MESSAGES,
    mean_bytes: float = MEAN_BYTES,
) -> list[str]:
    """Return two-word queries that match at least one message, from rare to common words."""
    rng = random.Random(f"{SEED}:queries")
    rank = {word: place for place, word in enumerate(build_vocabulary()) if word.isalpha()}
    bands = ((10, 100), (50, 500), (200, 3_000), (1_000, VOCABULARY))
    chosen: list[str] = []
    while len(chosen) < count:
        low, high = bands[len(chosen) % len(bands)]
        said = rng.choice(make_conversation(rng.randrange(sessions), messages, mean_bytes).messages)
        words = sorted({w for w in said.text.split() if low <= rank.get(w, -1) < high})
        if len(words) >= 2:
            chosen.append(" ".join(rng.sample(words, 2)))
    return chosen
