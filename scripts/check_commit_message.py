"""Check a commit message: `area: imperative subject`, at most 72 characters, then a blank line.

Git runs this as the `commit-msg` hook, with the file of the message:

    python3 scripts/check_commit_message.py .git/COMMIT_EDITMSG
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MAX_SUBJECT = 72
EXAMPLE = "store: keep the write lock while a backup runs"

_SUBJECT = re.compile(r"(?P<areas>[a-z0-9][\w./-]*(?:, ?[a-z0-9][\w./-]*)*): (?P<text>\S.*)")
_WRITTEN_BY_GIT = re.compile(r"(Merge|Revert|Reapply) |(fixup|squash|amend)! ")
_SCISSORS = re.compile(r"# -+ >8 -+")

# Only verbs that are common in subjects: the ending alone misleads (embed, pass).
# fmt: off
_VERBS = (
    "add", "allow", "bump", "change", "check", "clean", "convert", "correct", "create",
    "delete", "describe", "document", "drop", "extend", "fix", "handle", "implement", "improve",
    "introduce", "keep", "load", "make", "measure", "merge", "move", "prevent", "print",
    "raise", "read", "reduce", "refactor", "remove", "rename", "replace", "report", "restore",
    "return", "reword", "rewrite", "run", "show", "skip", "speed", "split", "start", "stop",
    "store", "support", "switch", "test", "tidy", "tune", "update", "use", "validate", "wait",
    "write",
)
# fmt: on


def _list_forms(verb: str) -> set[str]:
    """Return the forms of a verb that are not the imperative."""
    stem = verb.removesuffix("e")
    doubled = verb + verb[-1]
    forms = {f"{verb}s", f"{verb}es", f"{stem}ed", f"{stem}ing", f"{doubled}ed", f"{doubled}ing"}
    if verb.endswith("y"):
        forms |= {f"{verb[:-1]}ies", f"{verb[:-1]}ied"}
    return forms - set(_VERBS)


_IMPERATIVES = {form: verb for verb in _VERBS for form in _list_forms(verb)}


def find_problems(message: str) -> list[str]:
    """Return what is wrong with the message, one sentence each; empty if it is fine."""
    lines = _strip_comments(message)
    if not lines:
        return ["the message is empty"]
    subject = lines[0]
    if _WRITTEN_BY_GIT.match(subject):
        return []
    problems: list[str] = []
    match = _SUBJECT.fullmatch(subject)
    if match is None:
        problems.append("the subject must be `area: subject`, with the area in lower case")
    else:
        word = match["text"].split()[0].lower()
        if word in _IMPERATIVES:
            problems.append(f"use the imperative: {_IMPERATIVES[word]!r}, not {word!r}")
    if len(subject) > MAX_SUBJECT:
        problems.append(f"the subject has {len(subject)} characters; {MAX_SUBJECT} are allowed")
    if subject.endswith("."):
        problems.append("the subject must not end with a period")
    if len(lines) > 1 and lines[1]:
        problems.append("the second line must be blank")
    return problems


def _strip_comments(message: str) -> list[str]:
    """Return the lines that Git keeps: no comments, nothing below the scissors line."""
    lines: list[str] = []
    for line in message.splitlines():
        if _SCISSORS.match(line):
            break
        if not line.startswith("#"):
            lines.append(line.rstrip())
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def main(arguments: list[str]) -> int:
    """Check the message in the given file and return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: check_commit_message.py FILE\n")
        return 2
    problems = find_problems(Path(arguments[0]).read_text(encoding="utf-8", errors="replace"))
    for problem in problems:
        sys.stderr.write(f"commit message: {problem}\n")
    if problems:
        sys.stderr.write(f"For example: {EXAMPLE}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
