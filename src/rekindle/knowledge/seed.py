"""Extract the seed of a session: what its agent was told, standing instructions, files and style."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from rekindle.judging.rules.text_patterns import split_words
from rekindle.types import Message, Seed, UserStyle

from .plain_words import keep_sentence

MAX_SYSTEM_CHARS = 500
FIRST_MESSAGES = 10
MAX_INSTRUCTIONS, MAX_INSTRUCTION_CHARS, MAX_INSTRUCTIONS_CHARS = 3, 200, 1_000
MAX_MARKERS = 20
MAX_EXTRACTED_NOTES = 5
_MAX_MESSAGE_CHARS = 4_000

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
# Said for every session to come, and not only for this one.
_STANDING = re.compile(r"(?i)\b(?:always|never|remember)\b")
_QUESTION = re.compile(
    r"\?\s*$|(?i:^\s*(?:what|why|how|when|where|who|which|is|are|can|could|does|do)\b)"
)
_IMPERATIVES = split_words(
    """
    add build change check clean commit compare convert copy create debug delete deploy describe do edit
    explain extract find fix format generate give implement improve install investigate let list look
    make merge migrate move open optimize please publish push read rebase refactor release remove rename
    replace review rewrite run save search send set show simplify start stop summarize test translate try
    turn undo update upgrade use verify wire write
    """
)


def extract_seed(
    messages: Iterable[Message], files: Sequence[str], is_said: Collection[int] = ()
) -> Seed:
    """Extract the seed of a session that used these files of the repository, most used first.

    `is_said` holds the positions of the messages that a user wrote. Of every text only words that
    are known to be harmless are kept.
    """
    names = frozenset((*files, *(path.rsplit("/", 1)[-1] for path in files)))
    system, texts = "", list[str]()
    instructions: list[str] = []
    for number, message in enumerate(messages):
        if message.role == "system" and not system:
            sentences = _keep_sentences(message.text[: 2 * MAX_SYSTEM_CHARS], names)
            system = _truncate_text(" ".join(sentences), MAX_SYSTEM_CHARS)
        if message.position not in is_said:
            continue
        texts.append(message.text[:_MAX_MESSAGE_CHARS])
        if number < FIRST_MESSAGES:
            instructions += [
                one for one in _keep_sentences(texts[-1], names) if _STANDING.search(one)
            ]
    return Seed(
        system,
        tuple(_limit_instructions(instructions)),
        tuple(files[:MAX_MARKERS]),
        measure_style(texts),
    )


def _keep_sentences(text: str, names: Collection[str]) -> list[str]:
    sentences = (" ".join(part.split()) for part in _SENTENCE.split(text))
    kept = (keep_sentence(one, names) for one in sentences if not one.endswith("?"))
    return [one for one in kept if one is not None]


def _limit_instructions(instructions: list[str]) -> list[str]:
    kept: list[str] = []
    for instruction in dict.fromkeys(instructions):
        instruction = _truncate_text(instruction, MAX_INSTRUCTION_CHARS)
        if (
            len(kept) < MAX_INSTRUCTIONS
            and sum(map(len, kept)) + len(instruction) <= MAX_INSTRUCTIONS_CHARS
        ):
            kept.append(instruction)
    return kept


def _truncate_text(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rsplit(" ", 1)[0] + "…"


def measure_style(user_texts: Sequence[str]) -> UserStyle:
    """Measure how a user writes to the agent: length, and the shares of questions and commands."""
    if not user_texts:
        return UserStyle()
    count = len(user_texts)
    questions = sum(_QUESTION.search(one.strip()) is not None for one in user_texts) / count
    orders = sum(_is_order(one) for one in user_texts) / count
    length = sum(map(len, user_texts)) / count
    manner = (
        "questions" if questions > max(orders, 0.4) else "commands" if orders > 0.4 else "mixed"
    )
    size = "short" if length < 80 else "long" if length > 400 else "medium"
    return UserStyle(
        count, round(length, 1), round(questions, 3), round(orders, 3), f"{size} {manner}"
    )


def _is_order(text: str) -> bool:
    first = re.match(r"\W*([A-Za-z]+)", text)
    return first is not None and first[1].lower() in _IMPERATIVES
