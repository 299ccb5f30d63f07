"""What a template says of a result and of a request: the structure of the one, the gist of the other.

Text that strangers may have written is never quoted. A short line of a local tool is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

from rekindle.judging.rules.evidence import decoded
from rekindle.knowledge.examples import FIELDS

LONGEST_LINE = 80
LONGEST_REQUEST = 160
MOST_KEYS = 8
_LOOKED_AT = 4_000
_QUOTABLE = frozenset(("shell", "code", "edit"))
_TAGGED = re.compile(r"<([A-Za-z][\w-]*)(?:\s[^>]*)?>.*?</\1\s*>", re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z][\w-]*(?:\s[^>]*)?>")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_HEADING = re.compile(r"(?m)^[ \t]*(?:#{1,6}|[-*>])[ \t]+|\*\*|__")
_NOISE = re.compile(r"[^\S\n]+")
_FRAME = re.compile(
    r"(?s)\A(?:Chunk ID:.*?\n|Wall time:.*?\n|Process \w+ with.*?\n|Original token count:.*?\n"
    r"|Exit code: \d+\n|Command: [^\n]*\n|Total output lines: \d+\n)*(?:Output:\n|Stdout: )?"
)
_TASK = re.compile(
    r"<(pr_description|issue|issue_description|task|user_query|user_request|problem_statement|question"
    r"|instruction|instructions|objective)>(.*?)</\1>",
    re.DOTALL,
)
_CLOSING_LINE = re.compile(
    r"\s*(?:</?[A-Za-z]\w*[^>]*>|<[\w: ]+>|\[[^\]]*exit\w* \w*[^\]]*\]|\S*[$#>]|\(.*\)|exit:? ?\d+)\s*"
)
_BAD_NEWS = re.compile(r"(?i)\W*(?:fail|error|fatal|exception|traceback|not ok)")
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")


def result(text: str, family: str, redact: Callable[[str], str], *, tainted: bool) -> str:
    """A short account of what a call gave back."""
    text = _FRAME.sub("", text[: 40 * _LOOKED_AT]).strip()
    if not text:
        return "no output" if family in ("shell", "code") else ""
    if text[:1] in "{[" and text[-1:] in "}]":
        inside = _output(text) if family in _QUOTABLE else None
        if inside is None:
            return _of_json(text)
        text = inside.strip()
        if not text:
            return "no output"
    lines = [line for line in text.splitlines() if line.strip()]
    while lines and _CLOSING_LINE.fullmatch(lines[-1]):
        lines.pop()
    if not lines:
        return ""
    if tainted or family not in _QUOTABLE:
        return "" if family == "read" or len(lines) == 1 else _count(len(lines))
    # A secret may have begun on an earlier line: what stands before the last is redacted with it.
    tail = redact("\n".join([*lines[-60:-1], lines[-1][:_LOOKED_AT]])).splitlines()
    last = " ".join(tail[-1].split()) if tail else ""
    if len(last) > LONGEST_LINE or _BAD_NEWS.match(last) or not re.search(r"[A-Za-z]{2}", last):
        return _count(len(lines)) if len(lines) > 1 else ""
    return last if len(lines) == 1 else f"{_count(len(lines))}, the last: {last}"


def _count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines} lines"


class _Envelope(msgspec.Struct):
    """What a program printed, as some tools hand it over: beside how it ended."""

    output: str
    exit_code: int | None


_envelope = msgspec.json.Decoder(_Envelope)


def _output(text: str) -> str | None:
    try:
        return _envelope.decode(text).output
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None


def _of_json(text: str) -> str:
    try:
        value: Any = decoded(text)
    except msgspec.MsgspecError:
        return ""
    if isinstance(value, dict):
        names = [str(key) for key in cast("dict[object, object]", value)]
        if not names or not all(
            re.fullmatch(r"[A-Za-z_][\w-]{0,30}", name) for name in names[:MOST_KEYS]
        ):
            return "a JSON object"
        return f"{FIELDS}{', '.join(names[:MOST_KEYS])}{', …' if len(names) > MOST_KEYS else ''}"
    count = len(cast("list[object]", value)) if isinstance(value, list) else 0
    return f"a JSON list of {count}" if count else ""


def own_words(text: str) -> str:
    """What a user wrote, without what a harness put around it, quoted code and markup."""
    if task := _TASK.search(text[: 10 * _LOOKED_AT]):
        text = task[2]
    own = _CODE.sub(" ", _TAGGED.sub(" ", text[:_LOOKED_AT]))
    return _TAG.sub(" ", _HEADING.sub("", own))


def request(text: str, redact: Callable[[str], str]) -> str:
    """What a user wanted, in a line; empty where a message says nothing of its own."""
    own = _NOISE.sub(" ", redact(own_words(text))).strip()
    if not re.search(r"[^\W\d_]{3}", own):
        return ""
    if len(own) <= LONGEST_REQUEST:
        return " ".join(own.split())
    kept = ""
    for sentence in _SENTENCE.split(own):
        if kept and len(kept) + len(sentence) >= LONGEST_REQUEST:
            break
        kept = f"{kept} {sentence.strip()}".strip()
        if len(kept) > LONGEST_REQUEST:
            break
    words = " ".join(kept.split())
    return (
        words if len(words) <= LONGEST_REQUEST else words[:LONGEST_REQUEST].rsplit(" ", 1)[0] + " …"
    )


_ASSENT = re.compile(
    r"(?i)\W*(?:yes|yep|yeah|ok|okay|sure|certainly|correct|right|thanks?|thank you|great|perfect|please"
    r" (?:do|go|proceed|continue)|go ahead|proceed|continue|do it|looks? good|sounds? good|lgtm|no\b"
    r"|my (?:user|name|email)|i(?:'ll)? (?:confirm|agree|don't have|go with)|let's (?:go|proceed)"
    r"|please always|it's a|for both|confirming)"
)


def is_assent(said: str) -> bool:
    """Does this only answer what was asked before?"""
    return len(said.split()) < 4 or _ASSENT.match(said) is not None
