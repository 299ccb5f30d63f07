"""Reduce command lines to skeletons, and rate how informative they are.

A skeleton leaves out what only one moment needed: the `cd` to a folder and the truncation of output.
Programs, subcommands and options belong to the skeleton; everything else becomes slots.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rekindle.judging.rules.text_patterns import split_words
from rekindle.shell.command_reader import drop_heredocs, iter_tokens, unwrap_shell
from rekindle.shell.wrappers import (
    INTERPRETERS,
    SHELLS,
    WRAPPERS,
    ProgramWrapper,
    get_basename,
    is_assignment,
)

from .slots import make_mark, slot_word

TRIVIAL, PLAIN, INFORMATIVE = 0, 1, 2
MAX_COMMAND_CHARS = 320  # a longer command is a script, not an example
MAX_LINES = 2

_CD_PREFIX = re.compile(r"^\s*cd\s+(\"[^\"]*\"|'[^']*'|[^\s;&|]+)\s*(?:&&|;|\n)\s*")
_OUTPUT_SUFFIX = re.compile(
    r"""(?<!\s)\s*+(?: 2>\s*&1 | [12&]?>{1,2}\s*/dev/null | \|\s*(?:head|tail)(?:\s+-\w*)*(?:\s+\d+)?
    | \|\s*(?:cat|tee\s+\S+) | \|\|\s*(?:true|:|echo\s+(?:"[^"]*"|'[^']*'|\S+))
    | ;\s*echo\s(?=[^;&|]*\$\?)[^;&|]*+ | ;\s*echo\s+(?:"[^"]*"|'[^']*') | [;&] )\s*$""",
    re.VERBOSE,
)
_OPERATOR = re.compile(r"[|>;&]")
_SPECIAL_CHARACTER = re.compile(r"['\"|&;<>()\\\n]")
_COMPOUND = re.compile(r"[|;&\n<>`]|\$\(")
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:_-]{0,24}")
_MODULE = re.compile(r"[A-Za-z_][\w.]{0,60}")
_PROGRAM = re.compile(r"[\w./@+~-]{1,60}")

# Well known, and their output matters only in the moment.
_EVERYDAY = split_words(
    """
    ls ll dir pwd cd cat head tail less more echo printf which type whereis grep egrep fgrep rg ag ack
    find fd tree wc sort uniq sed awk gawk cut tr column file stat du df ps date whoami hostname env
    export set unset true false test sleep wait read diff cmp jq xxd od hexdump strings basename
    dirname realpath readlink touch clear history man help id uname nl tee nproc free uptime tac rev
    for do done if then else fi while case esac in bat time kill pkill lsof jobs
    """
)
# Well known, and they change something.
_COMMON_CHANGES = split_words(
    "mkdir cp mv rm rmdir ln chmod chown tar unzip zip gzip gunzip apply_patch"
)
_GIT_READ_COMMANDS = split_words(
    """
    status diff log show branch rev-parse remote ls-files blame describe tag config reflog shortlog
    stash fetch grep cat-file ls-tree merge-base rev-list for-each-ref symbolic-ref
    """
)
_NO_SUBCOMMAND = INTERPRETERS | SHELLS | {"pytest"}
_HELP_OPTION = re.compile(r"(?:--version|-V|--help|-h|version|help)")
# After their subcommand come its operands.
_SINGLE_SUBCOMMAND = split_words(
    """
    git make just task npm pnpm yarn bun cargo go pip pip3 pipx uv poetry apt apt-get brew docker podman
    kubectl helm terraform ruff mypy pyright black eslint prettier tsc jest vitest mocha dotnet mvn
    gradle gradlew rake bundle gem rspec composer mix flutter dart swift zig cmake ninja tox nox conda
    systemctl journalctl service ssh scp rsync curl wget psql mysql sqlite3 redis-cli gcc g++ clang
    """
)
# Followed by another subcommand: `npm run build`, `gh pr view`.
_NESTED_SUBCOMMANDS = split_words(
    "run compose exec stash remote config pr issue repo tool pip api run-script workspace"
)


class CommandSkeleton(NamedTuple):
    """A parsed command line."""

    skeleton: str
    values: tuple[str, ...]
    tier: int  # TRIVIAL, PLAIN or TELLING
    work: str  # the most informative program, with its subcommand


SCRIPT_SKELETON = CommandSkeleton(make_mark("script"), ("",), PLAIN, "script")


def build_skeleton(command: str) -> CommandSkeleton:
    """Build the skeleton of a command line."""
    text = strip_command(command)
    if not text:
        return CommandSkeleton("", (), TRIVIAL, "")
    if is_script(text):
        return SCRIPT_SKELETON
    return _SkeletonBuilder().build(text)


def is_script(command: str) -> bool:
    """Return whether the command is too long to be shown as an example."""
    return len(command) > MAX_COMMAND_CHARS or command.count("\n") >= MAX_LINES


def is_everyday_command(command: str) -> bool:
    """Return whether this is a single well-known command that only reads."""
    first = command.split(None, 1)[0] if command else ""
    return first in _EVERYDAY and _COMPOUND.search(command) is None and "/" not in command[:40]


def strip_command(command: str) -> str:
    """Strip the `cd` to the folder and the handling of output from a command."""
    text = drop_heredocs(unwrap_shell(command)).strip()
    while (
        text.startswith("cd ") and (prefix := _CD_PREFIX.match(text)) and prefix.end() < len(text)
    ):
        if prefix[1][0] not in "/~$\"'" and prefix[1] != ".":
            break  # a subfolder is worth knowing
        text = text[prefix.end() :]
    if _OPERATOR.search(text):
        while (suffix := _OUTPUT_SUFFIX.search(text)) and suffix.start() > 0:
            text = text[: suffix.start()]
    return text.strip()


def split_command(command: str) -> list[str]:
    """Split a command line into words and operators; quoted text stays together."""
    return [token.text for token in iter_tokens(command)]


class _SkeletonBuilder:
    """One pass over the words of a command line."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._values: list[str] = []
        self._tier = TRIVIAL
        self._work = ""
        self._expects_program = True
        self._wrapper, self._before = ProgramWrapper(), ""  # whose program is expected; last word
        self._program = ""
        self._subcommands = 0  # number of further words that may be subcommands
        self._after_option = False

    def build(self, text: str) -> CommandSkeleton:
        if _SPECIAL_CHARACTER.search(text) is None:
            for word in text.split():
                self._add_word(word)
            return self._finish()
        for kind, sign, _ in iter_tokens(text):
            if kind == "word" or kind == "mask":
                self._add_word(sign)
            elif kind == "operator" or kind == "bracket":
                if sign != "\n" or self._parts:
                    self._parts.append(";" if sign == "\n" else sign)
                self._end_command()
            elif kind == "here":
                self._add_heredoc()
            elif kind != "comment":
                self._parts.append(sign)
                self._subcommands = 0
        return self._finish()

    def _finish(self) -> CommandSkeleton:
        self._end_command()
        if self._parts and _HELP_OPTION.fullmatch(self._parts[-1]):
            self._tier = TRIVIAL
        return CommandSkeleton(" ".join(self._parts), tuple(self._values), self._tier, self._work)

    def _add_word(self, word: str) -> None:
        if self._expects_program:
            self._begin_command(word)
            return
        form = _MODULE if self._program.endswith(" -m") else _SUBCOMMAND
        is_sub = self._subcommands > 0 and form.fullmatch(word) is not None
        if is_sub:
            self._add_subcommand(word)
        elif word[0] != "-" and not self._after_option:
            self._subcommands = 0
        self._after_option = word[0] == "-" and "=" not in word
        if word == "-m" and self._program.startswith("python"):
            self._program, self._subcommands = f"{self._program} -m", 1
        self._parts.append(slot_word(word, self._values, literal=is_sub))

    def _add_heredoc(self) -> None:
        self._parts += ("<<", make_mark("text"))
        self._values.append("")
        self._subcommands, self._tier = 0, max(self._tier, PLAIN)

    def _begin_command(self, word: str) -> None:
        is_value = is_assignment(word) or self._before in self._wrapper.value_options
        self._parts.append(slot_word(word, self._values, literal=not is_value))
        self._before = word
        if is_value or word[0] == "-" or word.isdigit():
            return
        wrapper = WRAPPERS.get(word)
        if wrapper is not None and not wrapper.subcommands:
            self._wrapper = wrapper
            return
        self._expects_program = False
        self._program = get_basename(word) if word[0] == "/" else word
        known = self._program in _EVERYDAY or self._program in _NO_SUBCOMMAND
        self._subcommands = 0 if known else 2

    def _add_subcommand(self, word: str) -> None:
        if self._program.endswith(" -m"):
            self._program, self._subcommands = f"{self._program} {word}", 0
            return
        wrapper = WRAPPERS.get(self._program)
        if wrapper is not None and word in wrapper.subcommands and not wrapper.operands:
            self._expects_program, self._program, self._subcommands = True, "", 0
            self._wrapper = wrapper
            return
        is_first = " " not in self._program
        self._program = f"{self._program} {word}"
        is_deep = word in _NESTED_SUBCOMMANDS or self._program.split()[0] not in _SINGLE_SUBCOMMAND
        self._subcommands = int(is_first and is_deep)

    def _end_command(self) -> None:
        tier = _rate_program(self._program)
        if self._program and (tier > self._tier or not self._work):
            self._tier, self._work = max(tier, self._tier), self._program
        self._expects_program, self._program, self._subcommands = True, "", 0
        self._wrapper, self._before = ProgramWrapper(), ""


def _rate_program(program: str) -> int:
    name, _, sub = program.partition(" ")
    if not name or name in _EVERYDAY or not _PROGRAM.fullmatch(name):
        return TRIVIAL
    if name == "git":
        return TRIVIAL if not sub or sub.split()[0] in _GIT_READ_COMMANDS else PLAIN
    return PLAIN if name in _COMMON_CHANGES or name.startswith("<") else INFORMATIVE
