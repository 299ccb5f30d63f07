"""Looks through a folder for names or for text. Runs as a program of its own.

A regular expression that a model wrote may take for ever, and while it is matched nothing else runs
in its process: so the search has one that can be ended. It needs only the standard library, and is
given an open folder, out of which no link leads it: links are not followed.

    python search_walk.py <number of the open folder> <request as JSON>

It writes one JSON line for each find and a last one that says what was left out.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

_LARGEST = 20 * 1024 * 1024  # a file beyond that is no source text
_SNIFFED = 8192
_LINE = 300
_NEVER = {".git", ".hg", ".svn"}


class Rule(NamedTuple):
    """One line of a .gitignore."""

    pattern: re.Pattern[str]
    negated: bool
    folders_only: bool


class Rules(NamedTuple):
    """The rules of one .gitignore, and the folder they stand in (with a slash, or empty)."""

    base: str
    rules: tuple[Rule, ...]

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """True: ignored; False: not ignored after all; None: nothing is said about it."""
        inside = path[len(self.base) :]
        for rule in reversed(self.rules):
            if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(inside):
                return not rule.negated
        return None


def glob_regex(glob: str) -> str:
    """A glob as a regular expression over paths: * stays in its folder, ** does not."""
    out: list[str] = []
    at = 0
    while at < len(glob):
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            out.append("(?:.*/)?")
            at += 3
        elif glob.startswith("**", at):
            out.append(".*")
            at += 2
        elif glob[at] == "*":
            out.append("[^/]*")
            at += 1
        elif glob[at] == "?":
            out.append("[^/]")
            at += 1
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            inside = glob[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"[{'^' + inside[1:] if inside[0] == '!' else inside}]")
            at = end + 1
        elif glob[at] == "{" and (end := glob.find("}", at)) > 0:
            choices = glob[at + 1 : end].split(",")
            out.append("(?:" + "|".join(glob_regex(choice) for choice in choices) + ")")
            at = end + 1
        elif glob[at] == "\\" and at + 1 < len(glob):
            out.append(re.escape(glob[at + 1]))
            at += 2
        else:
            out.append(re.escape(glob[at]))
            at += 1
    return "".join(out)


def parse_ignore(text: str, base: str) -> Rules:
    """The rules of a .gitignore; lines that make no sense are left out."""
    rules: list[Rule] = []
    for line in text.splitlines()[:5000]:
        line = line.rstrip()
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        line = line[1:] if negated else line
        folders_only = line.endswith("/")
        line = line.rstrip("/")
        anchored = "/" in line
        line = line.lstrip("/")
        if not line:
            continue
        try:
            pattern = re.compile(("" if anchored else "(?:.*/)?") + glob_regex(line), re.DOTALL)
        except re.error:
            continue
        rules.append(Rule(pattern, negated, folders_only))
    return Rules(base, tuple(rules))


def is_ignored(stack: tuple[Rules, ...], path: str, is_folder: bool) -> bool:
    for rules in reversed(stack):
        verdict = rules.verdict(path, is_folder)
        if verdict is not None:
            return verdict
    return False


class Found(NamedTuple):
    """A file: its path from the start, its name, and the open folder that holds it."""

    path: str
    name: str
    folder: int


def walk(folder: int, base: str, stack: tuple[Rules, ...]) -> Iterator[Found]:
    """Regular files below an open folder, in order of their names, without ignored ones."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    has_rules = any(entry.name == ".gitignore" for entry in entries)
    data = read(folder, ".gitignore") if has_rules else None
    if data is not None:
        stack = (*stack, parse_ignore(data.decode("utf-8", "replace"), base))
    for entry in entries:
        path = base + entry.name
        if entry.is_symlink() or entry.name in _NEVER:
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_ignored(stack, path, is_folder):
            continue
        if not is_folder:
            yield Found(path, entry.name, folder)
            continue
        try:
            below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        except OSError:
            continue
        try:
            yield from walk(below, f"{path}/", stack)
        finally:
            os.close(below)


def read(folder: int, name: str) -> bytes | None:
    """The content of a regular text file of reasonable size, else None."""
    try:
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(opened, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST:
            return None
        try:
            start = file.read(_SNIFFED)
            return None if b"\0" in start else start + file.read()
        except OSError:
            return None


def matches_glob(glob: str | None, found: Found) -> bool:
    """A glob with a slash is about the path, one without about the name."""
    if glob is None:
        return True
    if "/" in glob or "{" in glob:
        anywhere = "" if "/" in glob else "(?:.*/)?"
        return (
            re.fullmatch(anywhere + glob_regex(glob.lstrip("/")), found.path, re.DOTALL) is not None
        )
    return fnmatch.fnmatchcase(found.name, glob)


def around(line: str, start: int) -> str:
    """The part of a long line that holds the match."""
    if len(line) <= _LINE:
        return line
    begin = max(min(start - _LINE // 3, len(line) - _LINE), 0)
    end = begin + _LINE
    return f"{'…' if begin else ''}{line[begin:end]}{'…' if end < len(line) else ''}"


def say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def search_text(request: dict[str, Any], files: Iterator[Found]) -> None:
    flags = 0 if request["case"] else re.IGNORECASE
    pattern = re.compile(request["pattern"], flags)
    limit, count, looked_at, context = request["limit"], 0, 0, request["context"]
    for found in files:
        if not matches_glob(request["glob"], found):
            continue
        data = read(found.folder, found.name)
        if data is None:
            continue
        looked_at += 1
        lines = data.decode("utf-8", "replace").split("\n")
        for number, line in enumerate(lines):
            line = line.rstrip("\r")
            match = pattern.search(line)
            if match is None:
                continue
            if count >= limit:
                return say({"more": True, "files": looked_at})
            count += 1
            near = range(max(number - context, 0), min(number + context + 1, len(lines)))
            beside = [[at + 1, around(lines[at], 0)] for at in near if at != number]
            text = around(line, match.start())
            say({"path": found.path, "line": number + 1, "text": text, "beside": beside})
    return say({"more": False, "files": looked_at})


def search_names(request: dict[str, Any], files: Iterator[Found]) -> None:
    count, looked_at = 0, 0
    for found in files:
        looked_at += 1
        if not matches_glob(request["pattern"], found) or not matches_glob(request["glob"], found):
            continue
        if count >= request["limit"]:
            return say({"more": True, "files": looked_at})
        count += 1
        say({"path": found.path})
    return say({"more": False, "files": looked_at})


def main(folder: int, request: dict[str, Any]) -> None:
    stack = tuple(parse_ignore(text, "") for text in request["ignored"])
    search = search_text if request["target"] == "content" else search_names
    search(request, walk(folder, "", stack))


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
