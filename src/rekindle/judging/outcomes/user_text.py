"""Find what a person wrote in messages with the role of the user.

Harnesses put much else there: reminders, the output of commands, prompts behind slash commands,
reports of other agents, and whatever the person pasted. None of it is the person's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_CHARS = 20_000  # of a message; what is longer was pasted
MAX_LINE_CHARS = 600

# The whole message was written by a harness or a model.
_GENERATED = (
    "Caveat:",
    "# AGENTS",
    "# CLAUDE",
    "[Request interrupted",
    "[Image",
    "This session is being continued",
    "Implement the following plan",
    "Base directory for this skill",
    "Review the code changes against",
    "Review the current code changes",
    "Please analyze this codebase and create",
    "You are ",
    "Stop hook feedback",
    "Another language model started",
    "Summarize the conversation",
    "Your task is to create a detailed summary",
    "API Error",
    "Operation stopped by",
    "System:",
)
_REQUEST_MARK = re.compile(r"(?m)^## My request for \w+:[ \t]*$")
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]{0,60})(?:\s[^<>\n]{0,200})?>")
SIMULATOR_SIGNAL = re.compile(r"#{2,3}[A-Z][A-Z-]{2,30}#{2,3}")  # how simulated users end a session
_FENCE = re.compile(r"[ \t]*(```|~~~|\"\"\")")
# A line that a program printed, or that quotes one: prompts, logs, diffs, traces, tables, test output.
_PRINTED_LINE = re.compile(
    r"""[ \t]*(?:
        [>|│┃❯❮➜⏎✓✔✗✘●•…╭╰├└─═$%@] | [+-]{3}\s | [#]\s?\d+\s | \d{2,4}[-:/.]\d\d | \d+\s*[|│:]
      | \[[\w:./@ -]{1,60}\](?:[ ]?\S|$) | (?:===|---)\s | (?:PASS|FAIL|OK|ERROR)$
      | (?:at|File|Traceback|Error|ERROR|WARN|INFO|DEBUG)\b.*[:(\d]
      | (?:PASS|FAIL|ok|panic|fatal|error|warning|remote)\b[:\t ]\s*\S.*[/:.]
      | [\w.-]+@[\w.-]+[:~ ] | [\w./-]+\.\w{1,5}:\d+ | \w+=\S+\s\w+= )""",
    re.VERBOSE,
)
# Where a program reports its failure, at the beginning of a line.
_FAILURE_LINE = re.compile(
    r"""(?m)^[ \t]*(?:\[[\w:./@-]{1,60}\][ ])?(?:
        ---\ FAIL | FAIL(?:ED)?\b | [Ee]rror(?:\[\w+\])?: | ERROR\b | fatal: | panic: | Traceback\ \(most
      | npm\ ERR! | ✗\  | ✘\  | \w+(?:Error|Exception):\  | \S+:\d+:\d+:\ (?:error|undefined)
      | make:\ \*\*\* | error\ TS\d )""",
    re.VERBOSE,
)
_INDENTED = re.compile(r"(?: {4}|\t)")
# A single line in a fence, below words that announce it: `We do it like this:`.
_ANNOUNCED_LINE = re.compile(
    r"(?m)^[ \t]*(\w[^\n`]{0,200}:)[ \t]*\n{1,2}[ \t]*```\w{0,12}\n([^\n`]{1,200})\n[ \t]*```[ \t]*$"
)


def extract_user_text(text: str) -> str:
    """Return the lines of a message that a person wrote, without what was quoted or pasted."""
    text = text[:MAX_CHARS].strip()
    if mark := _REQUEST_MARK.search(text):
        text = text[mark.end() :].strip()
    text = SIMULATOR_SIGNAL.sub("", _drop_elements(text)).strip()
    if text.startswith(_GENERATED):
        return ""
    return "\n".join(_iter_own_lines(text)).strip()


def list_announced_lines(text: str) -> list[tuple[str, str]]:
    """Return the words that announce a single line in a fence, and that line, of a person's message."""
    if not extract_user_text(text):
        return []
    found = _ANNOUNCED_LINE.findall(_drop_elements(text[:MAX_CHARS]))
    return [(words, line.strip()) for words, line in found]


def has_pasted_failure(text: str) -> bool:
    """Return whether a person pasted the output of a program that failed."""
    text = _drop_elements(text[:MAX_CHARS].strip())
    return not text.startswith(_GENERATED) and _FAILURE_LINE.search(text) is not None


def _drop_elements(text: str) -> str:
    """Drop XML elements with their contents; an element that is never closed ends the text."""
    kept: list[str] = []
    at = 0
    while opening := _TAG.search(text, at):
        kept.append(text[at : opening.start()])
        if opening[1]:
            at = opening.end()
            continue
        closing = text.find(f"</{opening[2]}>", opening.end())
        if closing < 0:
            # `List<String>` in a sentence opens nothing.
            if opening.start() and text[opening.start() - 1] not in "\n ":
                kept.append(opening[0])
                at = opening.end()
                continue
            return "".join(kept)
        at = closing + len(opening[2]) + 3
    kept.append(text[at:])
    return "".join(kept)


def _iter_own_lines(text: str) -> Iterator[str]:
    """Yield lines outside fences; behind a printed line, the rest of its paragraph was pasted too."""
    fence = ""
    is_pasted = False
    for line in text.splitlines():
        if mark := _FENCE.match(line):
            if not fence:
                # A fence that opens and closes on one line quotes that line only.
                fence = "" if line.count(mark[1]) > 1 else mark[1]
            elif mark[1] == fence:
                fence = ""
            continue
        if not line.strip():
            is_pasted = False
        elif len(line) > MAX_LINE_CHARS or _INDENTED.match(line) or _PRINTED_LINE.match(line):
            is_pasted = True
        if not fence and not is_pasted:
            yield line
