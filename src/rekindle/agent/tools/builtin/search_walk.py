"""Search a folder for file names or text. Runs as a separate program.

A regular expression written by a model may run forever and block its process, so the search gets a
process of its own that can be killed. It needs only the standard library and receives an open folder,
which it cannot leave: links are not followed.

    python search_walk.py <descriptor of the open folder> <request as JSON>

It writes one JSON line per match, and a last one that says whether there are more.
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

_MAX_FILE_BYTES = 20 * 1024 * 1024  # larger files are not source text
_SNIFF_BYTES = 8192
_MAX_LINE_CHARACTERS = 300
_SKIPPED_FOLDERS = {".git", ".hg", ".svn"}


class GitignoreRule(NamedTuple):
    """One line of a .gitignore."""

    pattern: re.Pattern[str]
    is_negated: bool
    folders_only: bool


class GitignoreFile(NamedTuple):
    """The rules of one .gitignore, and its folder (with a trailing slash, or empty)."""

    base: str
    rules: tuple[GitignoreRule, ...]

    def match_path(self, path: str, is_folder: bool) -> bool | None:
        """Return True if ignored, False if explicitly not ignored, None if no rule matches."""
        inside = path[len(self.base) :]
        for rule in reversed(self.rules):
            if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(inside):
                return not rule.is_negated
        return None


def glob_to_regex(glob: str, *, for_git: bool = False) -> str:
    """Convert a glob to a regular expression over paths: * stays in its folder, ** does not.

    In a rule of git, `**` must be a whole part of the path, braces have no meaning, and an unclosed
    character class is an error.
    """
    parts: list[str] = []
    index = 0
    while index < len(glob):
        starts_part = index == 0 or glob[index - 1] == "/"
        if glob.startswith("**/", index) and starts_part:
            parts.append("(?:.*/)?")
            index += 3
        elif glob.startswith("**", index) and (
            not for_git or (starts_part and index + 2 == len(glob))
        ):
            parts.append(".*")
            index += 2
        elif glob[index] == "*":
            parts.append("[^/]*")
            index += 1
        elif glob[index] == "?":
            parts.append("[^/]")
            index += 1
        elif glob[index] == "[" and (end := glob.find("]", index + 2)) > 0:
            inside = glob[index + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            parts.append(f"(?!/)[{'^' + inside[1:] if inside[0] == '!' else inside}]")
            index = end + 1
        elif for_git and glob[index] == "[":
            raise re.error("unclosed character class")
        elif not for_git and glob[index] == "{" and (end := glob.find("}", index)) > 0:
            choices = glob[index + 1 : end].split(",")
            parts.append("(?:" + "|".join(glob_to_regex(choice) for choice in choices) + ")")
            index = end + 1
        elif glob[index] == "\\" and index + 1 < len(glob):
            parts.append(re.escape(glob[index + 1]))
            index += 2
        else:
            parts.append(re.escape(glob[index]))
            index += 1
    return "".join(parts)


def parse_gitignore(text: str, base: str) -> GitignoreFile:
    """Parse the rules of a .gitignore, skipping invalid lines."""
    rules: list[GitignoreRule] = []
    for line in text.splitlines()[:5000]:
        kept = line.rstrip()
        line = line[: len(kept) + kept.endswith("\\")]  # with the blank that a backslash escapes
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
            expression = ("" if anchored else "(?:.*/)?") + glob_to_regex(line, for_git=True)
            pattern = re.compile(expression, re.DOTALL)
        except re.error:
            continue
        rules.append(GitignoreRule(pattern, negated, folders_only))
    return GitignoreFile(base, tuple(rules))


def is_ignored(stack: tuple[GitignoreFile, ...], path: str, is_folder: bool) -> bool:
    for rules in reversed(stack):
        ignored = rules.match_path(path, is_folder)
        if ignored is not None:
            return ignored
    return False


class FoundFile(NamedTuple):
    """A file: its path relative to the start, its name, and the open folder that contains it."""

    path: str
    name: str
    folder: int


def iter_files(folder: int, base: str, stack: tuple[GitignoreFile, ...]) -> Iterator[FoundFile]:
    """Iterate over regular files below an open folder, sorted by name, without ignored ones."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    has_rules = any(entry.name == ".gitignore" for entry in entries)
    data = read_text_file(folder, ".gitignore") if has_rules else None
    if data is not None:
        stack = (*stack, parse_gitignore(data.decode("utf-8", "replace"), base))
    for entry in entries:
        path = base + entry.name
        if entry.is_symlink() or entry.name in _SKIPPED_FOLDERS:
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_ignored(stack, path, is_folder):
            continue
        if not is_folder:
            yield FoundFile(path, entry.name, folder)
            continue
        try:
            below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        except OSError:
            continue
        try:
            yield from iter_files(below, f"{path}/", stack)
        finally:
            os.close(below)


def read_text_file(folder: int, name: str) -> bytes | None:
    """Return the content of a regular text file of reasonable size, else None."""
    try:
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(opened, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            return None
        try:
            start = file.read(_SNIFF_BYTES)
            return None if b"\0" in start else start + file.read()
        except OSError:
            return None


def matches_glob(glob: str | None, file: FoundFile) -> bool:
    """Return whether the file matches; a glob with a slash applies to the path, else to the name."""
    if glob is None:
        return True
    if "/" in glob or "{" in glob:
        anywhere = "" if "/" in glob else "(?:.*/)?"
        return (
            re.fullmatch(anywhere + glob_to_regex(glob.lstrip("/")), file.path, re.DOTALL)
            is not None
        )
    return fnmatch.fnmatchcase(file.name, glob)


def cut_around_match(line: str, start: int) -> str:
    """Return the part of a long line around the match."""
    if len(line) <= _MAX_LINE_CHARACTERS:
        return line
    begin = max(min(start - _MAX_LINE_CHARACTERS // 3, len(line) - _MAX_LINE_CHARACTERS), 0)
    end = begin + _MAX_LINE_CHARACTERS
    return f"{'…' if begin else ''}{line[begin:end]}{'…' if end < len(line) else ''}"


def write_json_line(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def search_text(request: dict[str, Any], files: Iterator[FoundFile]) -> None:
    flags = 0 if request["case"] else re.IGNORECASE
    pattern = re.compile(request["pattern"], flags)
    limit, count, searched, context = request["limit"], 0, 0, request["context"]
    for file in files:
        if not matches_glob(request["glob"], file):
            continue
        data = read_text_file(file.folder, file.name)
        if data is None:
            continue
        searched += 1
        lines = data.decode("utf-8", "replace").split("\n")
        for number, line in enumerate(lines):
            line = line.rstrip("\r")
            match = pattern.search(line)
            if match is None:
                continue
            if count >= limit:
                return write_json_line({"more": True, "files": searched})
            count += 1
            near = range(max(number - context, 0), min(number + context + 1, len(lines)))
            context_lines = [
                [index + 1, cut_around_match(lines[index], 0)] for index in near if index != number
            ]
            text = cut_around_match(line, match.start())
            write_json_line(
                {"path": file.path, "line": number + 1, "text": text, "beside": context_lines}
            )
    return write_json_line({"more": False, "files": searched})


def search_names(request: dict[str, Any], files: Iterator[FoundFile]) -> None:
    count, searched = 0, 0
    for file in files:
        searched += 1
        if not matches_glob(request["pattern"], file) or not matches_glob(request["glob"], file):
            continue
        if count >= request["limit"]:
            return write_json_line({"more": True, "files": searched})
        count += 1
        write_json_line({"path": file.path})
    return write_json_line({"more": False, "files": searched})


def run_search(folder: int, request: dict[str, Any]) -> None:
    stack = tuple(parse_gitignore(text, "") for text in request["ignored"])
    search = search_text if request["target"] == "content" else search_names
    search(request, iter_files(folder, "", stack))


if __name__ == "__main__":
    run_search(int(sys.argv[1]), json.loads(sys.argv[2]))
