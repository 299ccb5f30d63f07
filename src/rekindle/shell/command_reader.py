"""Read command lines of any quality, fast: those in transcripts may be truncated, masked or wrong.

Unlike `parser.py`, which refuses a line it cannot be sure of, this never fails and keeps every word
as it was written. Quotes, here-documents, pipes, lists and groups are understood, the rest is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from .wrappers import SHELLS, find_inner_program, get_basename, is_assignment, split_names

_MAX_COMMAND_CHARS = 40_000  # the tail of a longer one is usually a here-document
_MAX_COMMANDS = 200  # per command line; the rest is ignored

_SINGLE = r"'[^']*+(?:'|\Z)"
_DOUBLE = r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'
_SUBSTITUTION = r"""\$\((?:[^()'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*+"|\([^()]*\)){0,400}+\)"""
_HERE = r"""(?<!<)<<-?[ \t]*\\?(?P<quote>['"]?)(?P<tag>\w+)(?P=quote)"""
_TOKEN = re.compile(
    rf"""
    \\\n | (?P<redirect> \d?>{{1,2}} (?:&(?:\d|-)?|\|)? | &>{{1,2}} )
    | (?P<word> (?: [^\s'"|&;<>()\\$`\#]++ | (?<=[^\s;&|(])\# | \\[^\n] | {_SINGLE} | {_DOUBLE}
        | {_SUBSTITUTION} | \$\{{[^}}]{{0,400}}\}} | `[^`\n]{{0,400}}` | [$`] | \\\Z )++ )
    | (?P<operator> && | \|\| | \|&? | ;;? | & | \n )
    | (?P<bracket> [()] )
    | (?P<mask> <(?:secret:[\w.-]+|mail|phone|card|user)> )
    | (?P<here> {_HERE} )
    | (?P<input> <{{1,3}}&? )
    | (?P<comment> \#[^\n]* )
    """,
    re.VERBOSE | re.DOTALL,
)
# Inside double quotes a here-document can only be part of a substitution.
_HERE_OR_QUOTED = re.compile(
    rf"""(?P<here>{_HERE})|(?P<skip>{_SINGLE}|"(?:[^"\\$]|\\.|\$(?!\(\w+[ \t]*<<))*+"|\\.)|\n""",
    re.DOTALL,
)
_SHELL_C = re.compile(r"\s*([\w./-]*sh)\s+(?:-\w+\s+)*-\w*c\s+")
_WORD = re.compile(rf"(?:{_SINGLE}|{_DOUBLE}|\\.|[^\s'\"\\])++", re.DOTALL)
_QUOTED_PART = re.compile(rf"{_SINGLE}|{_DOUBLE}|\\.", re.DOTALL)
_ESCAPED = re.compile(r'\\(["$`\\])')

_LEADING_WORDS = split_names("do then else elif if while until time not and or ! {")
_OTHER_KEYWORDS = split_names("done fi esac } for case select function in")
# A project's own bin/test is not the shell builtin `test`.
_AMBIGUOUS_NAMES = split_names("test find diff cmp check time install which type")
_PYTHON_MODULE = re.compile(r"(?:-[WX]\s*\S+\s+|-(?![WX])[A-Zbdisu]+\s+)*-m\s+([\w.]+)")


class ShellToken(NamedTuple):
    """A word, an operator, a bracket, a redirection, the tag of a here-document, or a comment."""

    kind: str
    text: str
    start: int


class SimpleCommand(NamedTuple):
    """A simple command: the operator before it, its program and its arguments."""

    operator: str
    program: str
    arguments: str

    @property
    def text(self) -> str:
        return f"{self.program} {self.arguments}"


def iter_tokens(command: str) -> Iterator[ShellToken]:
    """Yield the tokens of a command line without here-documents; words keep their quotes."""
    for found in _TOKEN.finditer(command):
        if kind := found.lastgroup:
            yield ShellToken(kind, found[0], found.start())


@lru_cache(maxsize=1024)
def split_commands(command: str) -> tuple[SimpleCommand, ...]:
    """Return the simple commands in order, without wrappers such as `env`, `sudo` and `uv run`."""
    line = drop_heredocs(unwrap_shell(command)[:_MAX_COMMAND_CHARS])
    found: list[SimpleCommand] = []
    for operator, words, end in _iter_pieces(line):
        if simple := _parse_simple(operator, words, line, end):
            found.append(simple)
        if len(found) >= _MAX_COMMANDS:
            break
    return tuple(found)


def unwrap_shell(command: str) -> str:
    """Return the command line that `bash -lc '…'` runs; any other one unchanged."""
    start = _SHELL_C.match(command) if "sh" in command[:40] else None
    if start is None or get_basename(start[1]) not in SHELLS:
        return command
    word = _WORD.match(command, start.end())
    if word is None or command[word.end() :].strip():
        return command
    return _QUOTED_PART.sub(_strip_quotes, word[0])


def join_words(words: Sequence[object]) -> str:
    """Join an argument list into a command line; for `["bash", "-lc", "ls"]`, return `ls`."""
    texts = [str(word) for word in words]
    if len(texts) >= 3 and get_basename(texts[0]) in SHELLS and re.match(r"-\w*c$", texts[1]):
        return texts[2]
    return " ".join(text if text and " " not in text else repr(text) for text in texts)


def drop_heredocs(command: str) -> str:
    """Remove the bodies of here-documents; the lines that announce them stay."""
    if "<<" not in command:
        return command
    parts: list[str] = []
    tags: list[str] = []
    start = at = 0
    while found := _HERE_OR_QUOTED.search(command, at):
        at = found.end()
        if found["here"]:
            tags.append(found["tag"])
        elif not found["skip"] and tags:
            parts.append(command[start:at])
            start = at = _skip_bodies(command, at, tags)
            tags = []
    return "".join((*parts, command[start:]))


def _skip_bodies(command: str, at: int, tags: Sequence[str]) -> int:
    """Return the position after the here-documents that begin at `at`."""
    for tag in tags:
        end = re.compile(rf"^[ \t]*{re.escape(tag)}[ \t]*(?:\n|\Z)", re.MULTILINE).search(
            command, at
        )
        if end is None:
            return len(command)
        at = end.end()
    return at


def _strip_quotes(part: re.Match[str]) -> str:
    text = part[0]
    if text[0] == "\\":
        return text[1:]
    inner = text[1:-1] if text[-1] == text[0] else text[1:]
    return _ESCAPED.sub(r"\1", inner) if text[0] == '"' else inner


def _iter_pieces(line: str) -> Iterator[tuple[str, list[ShellToken], int]]:
    """Yield each command's operator, its words outside brackets, and where it ends."""
    operator = ""
    hidden: list[bool] = []  # per open bracket: whether to ignore operators inside
    words: list[ShellToken] = []
    has_tokens = has_command = is_target = False
    for token in iter_tokens(line):
        kind, text, start = token
        if kind == "operator":
            if hidden and hidden[-1]:
                continue
            if has_command:
                yield operator, words, start
            if has_command or text not in ("\n", ";"):
                operator = ";" if text in ("\n", ";;") else text[:1] if text == "|&" else text
            words, has_tokens, has_command, is_target = [], False, False, False
            continue
        if kind == "bracket":
            if text == "(":
                hidden.append(has_tokens or (bool(hidden) and hidden[-1]))
            elif hidden:
                hidden.pop()
        else:
            has_command = has_command or text not in ("{", "}")
            if kind in ("redirect", "input"):
                is_target = text[-1] in "<>&|"
            elif kind in ("word", "mask"):
                if not is_target and not (hidden and hidden[-1]):
                    words.append(token)
                is_target = False
        has_tokens = True
    if has_command:
        yield operator, words, len(line)
    elif operator == "&":
        yield operator, [ShellToken("word", "true", 0)], 4  # the shell exits with 0 regardless


def _parse_simple(
    operator: str, words: Sequence[ShellToken], line: str, end: int
) -> SimpleCommand | None:
    """Find the program of a simple command, by its base name, behind all wrappers."""
    texts = [word.text for word in words]
    index = 0
    while index < len(texts):
        if inner := find_inner_program(texts[index:]):
            index += inner
        elif texts[index] in _LEADING_WORDS or is_assignment(texts[index]):
            index += 1
        else:
            break
    if index == len(texts) or texts[index] in _OTHER_KEYWORDS:
        return None
    program = texts[index].strip("'\"\\")
    if not program.startswith("./"):
        base = get_basename(program)
        program = program if base in _AMBIGUOUS_NAMES and program[:1] != "/" else base or program
    arguments = line[words[index].start + len(texts[index]) : end].strip(" \t\r\n)")
    if program.startswith("py") and (module := _PYTHON_MODULE.match(arguments)):
        program, arguments = module[1], arguments[module.end() :].strip()
    return SimpleCommand(operator, program, arguments)
