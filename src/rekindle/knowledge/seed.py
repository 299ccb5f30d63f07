"""Extract the seed of a session: its system prompt, instructions, markers and style."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.mining.summarize import extract_own_words
from rekindle.types import Message, Seed, UserStyle

MAX_SYSTEM_CHARS = 500  # characters
FIRST_MESSAGES = 10
MAX_INSTRUCTIONS, MAX_INSTRUCTION_CHARS, MAX_INSTRUCTIONS_CHARS = 3, 200, 1_000
MAX_MARKERS = 20
_MAX_MESSAGE_CHARS = 4_000

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_INSTRUCTION_WORDS = re.compile(
    r"(?i)\b(?:always|never|must|don'?t|do not|only|make sure|ensure|prefer|avoid|instead of|use|without"
    r"|keep|should|remember|important|please)\b"
)
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
_URL_OR_NAME = re.compile(r"https?://[^\s'\"<>)\]}|]+|[\w.@+~/-]++")
_EXTENSION = re.compile(r"(?<=[\w@+-])\.[A-Za-z][A-Za-z0-9]{0,5}\b")
_NOT_A_FILE = re.compile(
    r"(?i)^(?:e\.g|i\.e|v?\d[\d.]*\w?|\w+\.(?:com|org|net|io|dev)|[\w.]+\(\)?)$"
)

Redact = Callable[[str], str]


def extract_seed(messages: Iterable[Message], redact: Redact, calls: Iterable[str] = ()) -> Seed:
    """Extract the seed of a session; `calls` are the arguments of its calls as redacted text."""
    system, user_texts = "", list[str]()
    instructions: list[str] = []
    markers: Counter[str] = Counter()
    for number, message in enumerate(messages):
        if message.role == "system" and not system:
            system = _truncate_text(redact(message.text[: 4 * MAX_SYSTEM_CHARS]), MAX_SYSTEM_CHARS)
        if message.role != "user":
            continue
        message_text = redact(extract_own_words(message.text[:_MAX_MESSAGE_CHARS]))
        if not message_text.strip():
            continue
        user_texts.append(message_text)
        markers.update(find_markers(message_text))
        if number < FIRST_MESSAGES:
            instructions += _extract_instructions(message_text)
    for text in calls:
        markers.update(find_markers(text))
    best = [marker for marker, _ in markers.most_common(MAX_MARKERS)]
    return Seed(
        system, tuple(_limit_instructions(instructions)), tuple(best), measure_style(user_texts)
    )


def _extract_instructions(text: str) -> list[str]:
    sentences = [" ".join(part.split()) for part in _SENTENCE.split(text)]
    sentences = [one for one in sentences if len(one.split()) >= 3]
    instructions = [
        one for one in sentences if _INSTRUCTION_WORDS.search(one) and not one.endswith("?")
    ]
    return instructions or sentences[:1]


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
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1].rsplit(" ", 1)[0] + "…"


def measure_style(user_texts: list[str]) -> UserStyle:
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


def find_markers(text: str) -> list[str]:
    """Return the files and URLs that a text names."""
    found: list[str] = _URL_OR_NAME.findall(text[:_MAX_MESSAGE_CHARS])
    clean = (_trim_marker(one).rstrip(".,;:") for one in found)
    return [one for one in clean if 4 < len(one) <= 160 and not _NOT_A_FILE.match(one)]


def _trim_marker(name: str) -> str:
    """Return a URL as it is, and a name up to its last extension; nothing if it has none."""
    if name.startswith(("http://", "https://")):
        return name
    ends = [found.end() for found in _EXTENSION.finditer(name)]
    if not ends:
        return ""
    start = max(name.rfind("//") + 1, name.rfind("~"), 0)  # what is before is no part of a path
    return name[start : ends[-1]]
