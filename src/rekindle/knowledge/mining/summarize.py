"""Summarize results and requests for templates: the structure of a result, the gist of a request.

Text from untrusted sources is never quoted. A short line printed by a local tool is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import msgspec

from rekindle.judging.rules.evidence import try_decode_json
from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.examples import JSON_FIELDS_PREFIX

MAX_LINE_CHARS = 80
MAX_REQUEST_CHARS = 160
MAX_JSON_KEYS = 8
_MAX_CHARS = 4_000
_QUOTABLE = frozenset(("shell", "code", "edit"))
_TAG = re.compile(r"</?([A-Za-z][\w-]*)(?:\s[^<>]*)?>")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_HEADING = re.compile(r"(?m)^[ \t]*(?:#{1,6}|[-*>])[ \t]+|\*\*|__")
_SPACES = re.compile(r"[^\S\n]+")
_HARNESS_HEADER = re.compile(
    r"(?s)\A(?:Chunk ID:.*?\n|Wall time:.*?\n|Process \w+ with.*?\n|Original token count:.*?\n"
    r"|Exit code: \d+\n|Command: [^\n]*\n|Total output lines: \d+\n)*(?:Output:\n|Stdout: )?"
)
_TASK_TAGS = split_words(
    """
    pr_description issue issue_description task user_query user_request problem_statement question
    instruction instructions objective
    """
)
_CLOSING_LINE = re.compile(
    r"\s*(?:</?[A-Za-z][^>]*>|<[\w: ]+>"
    r"|\[(?=[^\]]*exit\w{0,10} )[^\]]*\]|\S*[$#>]|\(.*\)|exit:? ?\d+)\s*"
)
_ERROR_START = re.compile(r"(?i)\W*(?:fail|error|fatal|exception|traceback|not ok)")
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")


def summarize_result(text: str, family: str, redact: Callable[[str], str], *, tainted: bool) -> str:
    """Summarize what a call returned."""
    text = _HARNESS_HEADER.sub("", text[: 40 * _MAX_CHARS]).strip()
    if not text:
        return "no output" if family in ("shell", "code") else ""
    if text[:1] in "{[" and text[-1:] in "}]":
        output = _unwrap_output(text) if family in _QUOTABLE else None
        if output is None:
            return _summarize_json(text)
        text = output.strip()
        if not text:
            return "no output"
    lines = [line for line in text.splitlines() if line.strip()]
    while lines and _CLOSING_LINE.fullmatch(lines[-1]):
        lines.pop()
    if not lines:
        return ""
    if tainted or family not in _QUOTABLE:
        return "" if family == "read" or len(lines) == 1 else _format_line_count(len(lines))
    # A secret may begin on an earlier line, so the lines before the last are redacted with it.
    tail = redact("\n".join([*lines[-60:-1], lines[-1][:_MAX_CHARS]])).splitlines()
    last = " ".join(tail[-1].split()) if tail else ""
    if (
        len(last) > MAX_LINE_CHARS
        or _ERROR_START.match(last)
        or not re.search(r"[A-Za-z]{2}", last)
    ):
        return _format_line_count(len(lines)) if len(lines) > 1 else ""
    return last if len(lines) == 1 else f"{_format_line_count(len(lines))}, the last: {last}"


def _format_line_count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines} lines"


class _OutputEnvelope(msgspec.Struct):
    """A program's output together with its exit code, as some tools return it."""

    output: str
    exit_code: int | None


_envelope_decoder = msgspec.json.Decoder(_OutputEnvelope)


def _unwrap_output(text: str) -> str | None:
    try:
        return _envelope_decoder.decode(text).output
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None


def _summarize_json(text: str) -> str:
    try:
        value: Any = try_decode_json(text)
    except msgspec.MsgspecError:
        return ""
    if isinstance(value, dict):
        names = [str(key) for key in cast("dict[object, object]", value)]
        if not names or not all(
            re.fullmatch(r"[A-Za-z_][\w-]{0,30}", name) for name in names[:MAX_JSON_KEYS]
        ):
            return "a JSON object"
        more = ", …" if len(names) > MAX_JSON_KEYS else ""
        return f"{JSON_FIELDS_PREFIX}{', '.join(names[:MAX_JSON_KEYS])}{more}"
    count = len(cast("list[object]", value)) if isinstance(value, list) else 0
    return f"a JSON list of {count}" if count else ""


def extract_own_words(text: str) -> str:
    """Return what the user wrote, without harness wrappers, quoted code and markup."""
    head = text[: 10 * _MAX_CHARS]
    elements = (found for found in _iter_elements(head) if found.name in _TASK_TAGS)
    if task := next(elements, None):
        text = head[task.start_tag_end : task.end_tag_start]
    own = _CODE.sub(" ", _remove_elements(text[:_MAX_CHARS]))
    return _TAG.sub(" ", _HEADING.sub("", own))


class _OutputElement(NamedTuple):
    """A tag, what is between it and the tag that closes it, and the positions of both."""

    name: str
    start: int
    start_tag_end: int
    end_tag_start: int
    end: int


def _iter_elements(text: str) -> Iterator[_OutputElement]:
    """Yield the elements of a text in order, nested ones too; a tag without its end is none."""
    tags = list(_TAG.finditer(text))
    closing: dict[str, re.Match[str]] = {}
    elements: list[_OutputElement] = []
    for tag in reversed(tags):
        if tag[0][1] == "/":
            closing[tag[1]] = tag
        elif end := closing.get(tag[1]):
            elements.append(_OutputElement(tag[1], tag.start(), tag.end(), end.start(), end.end()))
    yield from reversed(elements)


def _remove_elements(text: str) -> str:
    """Replace every element by a space, whatever it holds."""
    kept, at = list[str](), 0
    for element in _iter_elements(text):
        if element.start >= at:
            kept.append(text[at : element.start])
            at = element.end
    return " ".join((*kept, text[at:]))


def summarize_request(text: str, redact: Callable[[str], str]) -> str:
    """Summarize in one line what a user wanted; return nothing if the message has no own words."""
    text_only = _SPACES.sub(" ", redact(extract_own_words(text))).strip()
    if not re.search(r"[^\W\d_]{3}", text_only):
        return ""
    if len(text_only) <= MAX_REQUEST_CHARS:
        return " ".join(text_only.split())
    kept = ""
    for sentence in _SENTENCE.split(text_only):
        if kept and len(kept) + len(sentence) >= MAX_REQUEST_CHARS:
            break
        kept = f"{kept} {sentence.strip()}".strip()
        if len(kept) > MAX_REQUEST_CHARS:
            break
    words = " ".join(kept.split())
    return (
        words
        if len(words) <= MAX_REQUEST_CHARS
        else words[:MAX_REQUEST_CHARS].rsplit(" ", 1)[0] + " …"
    )


_ASSENT = re.compile(
    r"(?i)\W*(?:yes|yep|yeah|ok|okay|sure|certainly|correct|right|thanks?|thank you|great|perfect|please"
    r" (?:do|go|proceed|continue)|go ahead|proceed|continue|do it|looks? good|sounds? good|lgtm|no\b"
    r"|my (?:user|name|email)|i(?:'ll)? (?:confirm|agree|don't have|go with)|let's (?:go|proceed)"
    r"|please always|it's a|for both|confirming)"
)


def is_assent(text: str) -> bool:
    """Return whether the text only answers an earlier question."""
    return len(text.split()) < 4 or _ASSENT.match(text) is not None
