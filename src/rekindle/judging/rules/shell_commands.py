"""Splits a shell command as far as needed to find the commands that decide its exit code.

Not a full parser: quotes, here-documents, pipes, lists and groups are understood, the rest is text.
Very long commands are truncated; their tail is usually a here-document, which is skipped anyway.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from .text_patterns import split_words

_MAX_COMMAND_CHARS = 40_000
_MAX_COMMANDS = 200  # per command line; the rest is ignored


class SimpleCommand(NamedTuple):
    """A simple command: the operator before it, its program and its arguments."""

    operator: str
    program: str
    arguments: str

    @property
    def text(self) -> str:
        return f"{self.program} {self.arguments}"


_TOKEN = re.compile(
    r"""
    (?P<skip> '[^']*(?:'|$) | "(?:\\.|[^"\\])*(?:"|$) | \\. | \$\{[^}]{0,400}\}
      | (?<![^\s;&|(])\#[^\n]* )
    | <<-?[ \t]*\\?(?P<quote>['"]?)(?P<here>\w+)(?P=quote)
    | (?P<open>\$?\() | (?P<close>\))
    | (?P<joint> && | \|\|? (?:&)? | ;;? | (?<![<>&])&(?![>&]) | \n )
    """,
    re.VERBOSE | re.DOTALL,
)
_SHELL_C = re.compile(
    r"""\s*(?:\S*/)?(?:ba|z|da|k)?sh\s+(?:-\w+\s+)*-\w*c\s+(['"])(.*)\1\s*$""", re.DOTALL
)


@lru_cache(maxsize=1024)
def split_commands(command: str) -> tuple[SimpleCommand, ...]:
    """Return the simple commands in order, without wrappers such as `env`, `sudo` and `uv run`."""
    if match := _SHELL_C.match(command):
        inner = match[2]
        command = re.sub(r'\\(["$`\\])', r"\1", inner) if match[1] == '"' else inner
    found: list[SimpleCommand] = []
    for operator, text in _split_pieces(command[:_MAX_COMMAND_CHARS]):
        program, arguments = _parse_program(text)
        if program:
            found.append(SimpleCommand(operator, program, arguments))
        if len(found) >= _MAX_COMMANDS:
            break
    return tuple(found)


def _split_pieces(command: str) -> list[tuple[str, str]]:
    pieces: list[tuple[str, str]] = []
    operator, start, at = "", 0, 0
    opaque: list[bool] = []  # per open bracket: whether to ignore operators inside
    heredoc_tags: list[str] = []  # here-documents that start after this line
    parts: list[str] = []  # the current command without here-documents
    while match := _TOKEN.search(command, at):
        at = match.end()
        if match["here"]:
            heredoc_tags.append(match["here"])
        elif match["open"]:
            hidden = match["open"] == "$(" or (bool(opaque) and opaque[-1])
            opaque.append(hidden or bool(("".join(parts) + command[start : match.start()]).strip()))
        elif match["close"]:
            if opaque:
                opaque.pop()
        elif sign := match["joint"]:
            if any(opaque) and sign != "\n":
                continue
            text = "".join(parts) + command[start : match.start()]
            if sign == "\n":
                at = _skip_heredocs(command, at, heredoc_tags)
                if any(opaque):
                    parts, start = [text + "\n"], at
                    continue
                heredoc_tags = []
            if text.strip(" \t\r\n(){}"):
                pieces.append((operator, text))
                operator = _normalize_operator(sign)
            elif sign not in ("\n", ";"):
                operator = _normalize_operator(sign)
            parts, start = [], at
    pieces.append((operator, "".join(parts) + command[start:]))
    if operator == "&" and not pieces[-1][1].strip():
        pieces.append(("&", "true"))  # in the background: the shell exits with 0 regardless
    return pieces


def _normalize_operator(sign: str) -> str:
    if sign.startswith("|") and not sign.startswith("||"):
        return "|"
    return ";" if sign in ("\n", ";;") else sign


def _skip_heredocs(command: str, at: int, tags: Sequence[str]) -> int:
    """Return the position after the here-documents."""
    for tag in tags:
        end = re.compile(rf"^[ \t]*{re.escape(tag)}[ \t]*$", re.MULTILINE).search(command, at)
        if end is None:
            return len(command)
        at = end.end()
    return at


_LEADING = re.compile(
    r"""
    \s+ | \\\n | \#[^\n]* | [({!](?=\s|\() | \(+
    | (?:do|then|else|elif|if|while|until|time|not|and|or)\b(?=\s)
    | [A-Za-z_]\w*\+?=(?:'[^']*'|"(?:\\.|[^"\\])*"|\$\([^)]{0,400}\)|[^\s'"])*(?=\s|$)
    | \d?>{1,2}&?\s*\S+
    """,
    re.VERBOSE | re.DOTALL,
)
_OPTIONS = r"(?:\s+-{1,2}[\w-]+(?:=\S*)?)*+"
_WRAPPER = re.compile(
    rf"""
    (?: env (?:\s+-u\s+\S+ | \s+-\S+)*+
      | (?:sudo|doas) (?:\s+-[ugh]\s+\S+ | \s+-\w+)*+
      | (?:time|nohup|setsid|exec|builtin|unbuffer|caffeinate|chronic|rtk) (?:\s+-\w+)*+
      | command (?!\s+-[vV])
      | nice (?:\s+-n\s+\S+ | \s+-\S+)*+ | ionice (?:\s+-\S+(?:\s+\d+)?)*+ | stdbuf (?:\s+-\S+)*+
      | g?timeout (?:\s+-[ks]\s+\S+ | \s+-\S+)*+ \s+ [\d.]+[smhd]?
      | xvfb-run {_OPTIONS}
      | xargs (?:\s+-[InPLsdE]\s*\S+ | \s+-\S+)*+
      | (?:uv|poetry|pipenv|pdm|hatch|rye|pixi) \s+ run {_OPTIONS} (?:\s+--with\s+\S+)*+
      | conda \s+ run (?:\s+-[np]\s+\S+ | \s+--\S+)*+
      | bundle \s+ exec | mise \s+ (?:exec|x) (?:\s+\S+)*? \s+ -- | direnv \s+ exec \s+ \S+
      | (?:npx|bunx|pnpx) {_OPTIONS} | (?:pnpm|yarn|npm) \s+ (?:exec|dlx|x) {_OPTIONS} (?:\s+--)?
      | docker \s+ (?:compose\s+)? exec (?:\s+-\w+ (?:\s+\S+=\S+)?)*+ \s+ [\w.-]+
    ) (?=\s+\S)
    """,
    re.VERBOSE,
)
_KEYWORDS = split_words("done fi esac } ) for case select function ;; in")
_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|\$\([^)]{0,400}\)|[^\s'"\\])+""", re.DOTALL)
_AMBIGUOUS_NAMES = split_words("test find diff cmp check time install which type")
_PYTHON_MODULE = re.compile(r"(?:-[WX]\s*\S+\s+|-(?![WX])[A-Zbdisu]+\s+)*-m\s+([\w.]+)")


def _parse_program(text: str) -> tuple[str, str]:
    """Return the program of a simple command, by its base name, and its arguments."""
    while match := _LEADING.match(text) or _WRAPPER.match(text):
        text = text[match.end() :]
    word = _WORD.match(text)
    if word is None or word[0] in _KEYWORDS:
        return "", ""
    program, arguments = word[0].strip("'\"\\)"), text[word.end() :].strip(" \t\r\n)")
    if not program.startswith("./"):
        base = program.rsplit("/", 1)[-1]
        # A project's own bin/test is not the shell builtin `test`.
        program = program if base in _AMBIGUOUS_NAMES and program[:1] != "/" else base or program
    if program.startswith(("python", "pypy", "py")) and (module := _PYTHON_MODULE.match(arguments)):
        return module[1], arguments[module.end() :].strip()
    return program, arguments


# They practically never fail at the end of a pipe.
FILTERS = split_words(
    """
    head tail tee cat sort uniq wc sed awk gawk cut tr column nl less more fold rev tac fmt paste xxd od
    hexdump base64 bat expand pr tsort numfmt ts pv
    """
)
# They succeed whatever came before.
_ALWAYS_SUCCEEDING = split_words("echo printf true : pwd date sleep wait set export unset alias")
_ERREXIT = re.compile(r"(?:^|[;&|\s])set\s+-\w*e|bash\s+-\w*e\w*\s|set\s+-o\s+errexit")
_EXIT_WITH_VARIABLE = re.compile(r"exit\s*[\"']?\$")


class DecidingCommands(NamedTuple):
    """The commands that decide the exit code; empty if none of them can fail."""

    commands: tuple[SimpleCommand, ...]
    last: SimpleCommand | None  # its exit code is returned if all before it succeeded
    is_single: bool  # whether `last` alone decides

    @property
    def always_succeeds(self) -> bool:
        """Whether the command succeeds whatever happens in it."""
        return self.last is not None and not self.commands


@lru_cache(maxsize=1024)
def find_deciding_commands(command: str) -> DecidingCommands:
    """Find the commands of a list or pipe that decide its exit code."""
    commands = split_commands(command)
    if not commands:
        return DecidingCommands((), None, False)
    last = commands[-1]
    if last.program == "exit" and _EXIT_WITH_VARIABLE.match(last.text):
        return DecidingCommands(commands[:-1], last, False)
    pipefail, errexit = "pipefail" in command, _ERREXIT.search(command) is not None
    deciding = [last]
    index = len(commands) - 1
    while index > 0:
        operator = commands[index].operator
        index -= 1
        counts = operator == "&&" or (operator == "|" and pipefail) or (operator == ";" and errexit)
        if counts:
            deciding.append(commands[index])
        elif operator != "|":
            break
    fallible = tuple(simple for simple in deciding if not _always_succeeds(simple))
    return DecidingCommands(fallible, last, fallible == (last,))


def _always_succeeds(command: SimpleCommand) -> bool:
    if command.program in _ALWAYS_SUCCEEDING or command.text.strip() in ("exit 0", "exit"):
        return True
    return command.operator == "|" and command.program in FILTERS
