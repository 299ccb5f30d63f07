"""Find the commands of a session that may follow a stranger's text.

Whatever an agent reads may tell it what to run: a README, the output of a package, a log, a ticket, a
row of a database, the name of a file or branch. So a command is an echo if a name in it stood in such
a text before. Its name is vouched for only by a session that ran it without having read it, by the
user's own words, or by the files that the repository's owner keeps for that: build files and
instructions for agents, which vouch for whole words (the name of a package), not for parts of them.
Names of known programs, their subcommands and files in use say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from rekindle.judging.rules.evidence import Evidence
from rekindle.judging.rules.text_patterns import split_words
from rekindle.judging.tool_kinds import classify_tool
from rekindle.knowledge.notes.command_forms import relativize_path
from rekindle.knowledge.notes.harmless import is_subcommand
from rekindle.knowledge.notes.programs import is_known_program
from rekindle.knowledge.notes.records import is_slot
from rekindle.shell.command_reader import split_commands
from rekindle.types import Message, ToolCall

MAX_RESULT_CHARS = 100_000
MIN_NAME_CHARS = 3

_NO_RESULT = Message("tool")
_PATH_KEYS = ("file_path", "path", "filePath", "filename", "notebook_path", "target_file")
_NAME = re.compile(r"[a-z]+")
_WORD = re.compile(r"@?[a-z0-9]++(?:[_./:@-]++[a-z0-9]++)*+")
# Where a project keeps the programs that it installs: the known ones among them are the same there.
_PROGRAM_FOLDER = re.compile(
    r"^(?:[\w.-]+/){0,6}(?:node_modules/\.bin|\.?venv/bin|\.?venv/Scripts|vendor/bin)/"
)
_PROSE = re.compile(r"(?i)(?:\.(?:md|mdx|rst|txt|adoc|html?|pdf|log|csv|jsonl?)|/readme|^readme)$")
_VENDORED = re.compile(r"(?:^|/)(?:node_modules|vendor|site-packages|\.venv|third_party|target)/")
# What the owner of a repository writes for agents and builds.
_OWN_FILE = re.compile(
    r"(?:^|/)(?:(?:CLAUDE|AGENTS|GEMINI|CONTRIBUTING)(?:\.local)?\.md|\.cursorrules|package\.json"
    r"|[\w.-]*[Mm]akefile|[\w.-]+\.mk|[Jj]ustfile|[Tt]askfile\.ya?ml|mise\.toml|\.mise\.toml"
    r"|pyproject\.toml|tox\.ini|noxfile\.py|Cargo\.toml|go\.mod|Rakefile|Gemfile|build\.gradle(?:\.kts)?"
    r"|pom\.xml|\.pre-commit-config\.yaml|lefthook\.ya?ml|turbo\.json|nx\.json|deno\.jsonc?)$"
)
_LISTINGS = re.compile(
    r"(?:mise tasks?(?: ls)?|(?:just|task) (?:--list|-l)|make (?:help|-qp)|(?:npm|pnpm|yarn) run)$"
)
_READERS = split_words("cat head tail sed bat less more nl awk")
_KNOWN_VARIABLES = split_words(
    """
    bun cargo cc cgo ci color cxx debug deno display django docker editor env flask force gh git go
    gocache gofl goflags gomodcache gopath goproxy gotmpdir goos goarch gocoverdir home java jvm lang ld
    log mise mypy next no node npm pager path pip pnpm prisma py pytest python rack rails ruff rust
    rustflags shell term test tests tmp tmpdir tz uv verbose vite yarn
    """
)


class ForeignText:
    """The texts that a session has read so far and that strangers may have written."""

    def __init__(self, said: str = "", root: str = "") -> None:
        self._root = root
        self._own = {*_NAME.findall(said.lower())}  # the user vouches for these
        self._own_words: set[str] = set()  # and the owner of the repository for these
        self._texts: list[str] = []
        self._foreign: set[str] = set()
        self._files: set[str] = set()

    def add_files(self, paths: Iterable[str]) -> None:
        """Add files of the repository that the session used, relative to its root."""
        for path in paths:
            parts = path.split("/")
            self._files.update("/".join(parts[: at + 1]) for at in range(len(parts)))

    def add_result(self, call: ToolCall, result: str) -> None:
        """Add what a call returned; what only the owner of the repository can have written vouches."""
        if not result:
            return
        text = result[:MAX_RESULT_CHARS].lower()
        if not _is_own_text(call):
            self._texts.append(text)
        elif _reads_own_file(call, self._root):
            self._own_words.update(_WORD.findall(text))

    def add_command(self, form: str) -> None:
        """Add a command that was no echo: what it prints may repeat the names in it."""
        self._own.update(self._iter_names(form))

    def is_echo(self, form: str, folder: str = "") -> bool:
        """Return whether a name in a command, run in this folder, stood in a foreign text before."""
        return any(self._is_foreign(name) for name in self._iter_names(form, folder))

    def _iter_names(self, form: str, folder: str = "") -> Iterable[str]:
        for number, word in enumerate(form.split()):
            name, sign, value = word.partition("=")
            if is_slot(word) or (word[0] == "-" and not sign):
                continue
            if sign and word[0] != "-":  # an assignment
                variable = name.lower().split("_")[0]
                yield from () if variable in _KNOWN_VARIABLES else _NAME.findall(name.lower())
            rest = value if sign else word
            if self._is_known_word(rest, folder, is_program=number == 0):
                continue
            yield from _NAME.findall(rest.lower())

    def _is_known_word(self, word: str, folder: str, *, is_program: bool) -> bool:
        if is_program and is_known_program(_PROGRAM_FOLDER.sub("", word)):
            return True
        if word[0] in "/~" and is_known_program(word.rsplit("/", 1)[-1]):
            return True  # where it is installed: no other is kept with its folder
        path = word.removeprefix("./").removesuffix("/...").rstrip("/")
        if path in ("", ".", "...") or path in self._files or path.startswith("/tmp/"):
            return True
        return f"{folder}/{path}" in self._files or word.lower() in self._own_words

    def _is_foreign(self, name: str) -> bool:
        if len(name) < MIN_NAME_CHARS or name in self._own or _is_common_name(name):
            return False
        if name not in self._foreign:
            pattern = re.compile(rf"(?<![a-z]){name}(?![a-z])")
            if not any(name in text and pattern.search(text) for text in self._texts):
                return False
            self._foreign.add(name)
        return True


@lru_cache(maxsize=10_000)
def _is_common_name(name: str) -> bool:
    return is_known_program(name) or is_subcommand(name, "", "")


def _is_own_text(call: ToolCall) -> bool:
    """Return whether the result of a call is code or a build file of the repository, or a report."""
    evidence = Evidence(call, _NO_RESULT)
    if evidence.shape in ("edit", "note"):
        return True
    if evidence.shape in ("read", "search"):
        arguments = evidence.arguments
        path = next((arguments[key] for key in _PATH_KEYS if arguments.get(key)), "")
        return isinstance(path, str) and _is_own_file(path)
    if classify_tool(call.name).shape != "shell":
        return False
    commands = split_commands(evidence.command)
    return bool(commands) and all(
        _LISTINGS.match(one.text.strip())
        or (one.program in _READERS and _names_own_files(one.arguments))
        or one.program in ("cd", "echo")
        for one in commands
    )


def _reads_own_file(call: ToolCall, root: str) -> bool:
    """Return whether a call reads nothing but build files and instructions for agents below `root`."""
    evidence = Evidence(call, _NO_RESULT)
    if evidence.shape == "read":
        arguments = evidence.arguments
        named = [next((arguments[key] for key in _PATH_KEYS if arguments.get(key)), "")]
    elif classify_tool(call.name).shape == "shell":
        commands = split_commands(evidence.command)
        if not all(one.program in _READERS for one in commands):
            return False
        named = [file for one in commands for file in _list_files(one.arguments)]
    else:
        return False
    paths = [relativize_path(one, root) if isinstance(one, str) else None for one in named]
    return bool(paths) and all(
        one and _OWN_FILE.search(one) and not _VENDORED.search(one) for one in paths
    )


def _list_files(arguments: str) -> list[str]:
    return [word for word in arguments.split() if word[0] not in "-'\"|>0123456789"]


def _names_own_files(arguments: str) -> bool:
    files = _list_files(arguments)
    return bool(files) and all(_OWN_FILE.search(word) for word in files)


def _is_own_file(path: str) -> bool:
    if _OWN_FILE.search(path):
        return True
    return not _PROSE.search(path) and not _VENDORED.search(path) and "." in path.rsplit("/", 1)[-1]
