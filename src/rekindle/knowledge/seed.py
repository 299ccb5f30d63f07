"""What one session was about, beside its calls: its seed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from rekindle.judging.rules.text_patterns import words
from rekindle.knowledge.mining.summarize import own_words
from rekindle.types import Message, Seed, Style

MOST_SYSTEM = 500  # characters
FIRST_MESSAGES = 10
MOST_INSTRUCTIONS, LONGEST_INSTRUCTION, INSTRUCTIONS_IN_ALL = 3, 200, 1_000
MOST_MARKERS = 20
_LOOKED_AT = 4_000

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_RULE = re.compile(
    r"(?i)\b(?:always|never|must|don'?t|do not|only|make sure|ensure|prefer|avoid|instead of|use|without"
    r"|keep|should|remember|important|please)\b"
)
_QUESTION = re.compile(
    r"\?\s*$|(?i:^\s*(?:what|why|how|when|where|who|which|is|are|can|could|does|do)\b)"
)
_ORDERS = words(
    """
    add build change check clean commit compare convert copy create debug delete deploy describe do edit
    explain extract find fix format generate give implement improve install investigate let list look
    make merge migrate move open optimize please publish push read rebase refactor release remove rename
    replace review rewrite run save search send set show simplify start stop summarize test translate try
    turn undo update upgrade use verify wire write
    """
)
_MARKER = re.compile(
    r"https?://[^\s'\"<>)\]}|]+|(?:~|\.{1,2})?(?:[\w@+-][\w.@+-]*)?(?:/[\w.@+-]+)*/?[\w@+-]+\.[A-Za-z][A-Za-z0-9]{0,5}\b"
)
_NOT_A_FILE = re.compile(
    r"(?i)^(?:e\.g|i\.e|v?\d[\d.]*\w?|\w+\.(?:com|org|net|io|dev)|[\w.]+\(\)?)$"
)

Redact = Callable[[str], str]


def seed(messages: Iterable[Message], redact: Redact, calls: Iterable[str] = ()) -> Seed:
    """The seed of a session: `calls` are the arguments of its calls, as text, redacted already."""
    system, spoken = "", list[str]()
    rules: list[str] = []
    markers: Counter[str] = Counter()
    for number, message in enumerate(messages):
        if message.role == "system" and not system:
            system = _cut(redact(message.text[: 4 * MOST_SYSTEM]), MOST_SYSTEM)
        if message.role != "user":
            continue
        said = redact(own_words(message.text[:_LOOKED_AT]))
        if not said.strip():
            continue
        spoken.append(said)
        markers.update(marked(said))
        if number < FIRST_MESSAGES:
            rules += _instructions(said)
    for text in calls:
        markers.update(marked(text))
    best = [marker for marker, _ in markers.most_common(MOST_MARKERS)]
    return Seed(system, tuple(_fitting(rules)), tuple(best), style(spoken))


def _instructions(said: str) -> list[str]:
    sentences = [" ".join(part.split()) for part in _SENTENCE.split(said)]
    sentences = [one for one in sentences if len(one.split()) >= 3]
    told = [one for one in sentences if _RULE.search(one) and not one.endswith("?")]
    return told or sentences[:1]


def _fitting(rules: list[str]) -> list[str]:
    kept: list[str] = []
    for rule in dict.fromkeys(rules):
        rule = _cut(rule, LONGEST_INSTRUCTION)
        if len(kept) < MOST_INSTRUCTIONS and sum(map(len, kept)) + len(rule) <= INSTRUCTIONS_IN_ALL:
            kept.append(rule)
    return kept


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1].rsplit(" ", 1)[0] + "…"


def style(spoken: list[str]) -> Style:
    """How somebody speaks to the agent."""
    if not spoken:
        return Style()
    count = len(spoken)
    questions = sum(_QUESTION.search(one.strip()) is not None for one in spoken) / count
    orders = sum(_is_order(one) for one in spoken) / count
    length = sum(map(len, spoken)) / count
    manner = (
        "questions" if questions > max(orders, 0.4) else "commands" if orders > 0.4 else "mixed"
    )
    size = "short" if length < 80 else "long" if length > 400 else "medium"
    return Style(count, round(length, 1), round(questions, 3), round(orders, 3), f"{size} {manner}")


def _is_order(said: str) -> bool:
    first = re.match(r"\W*([A-Za-z]+)", said)
    return first is not None and first[1].lower() in _ORDERS


def marked(text: str) -> list[str]:
    """The files and addresses that a text names."""
    found: list[Any] = _MARKER.findall(text[:_LOOKED_AT])
    clean = (str(one).rstrip(".,;:") for one in found)
    return [one for one in clean if 4 < len(one) <= 160 and not _NOT_A_FILE.match(one)]
