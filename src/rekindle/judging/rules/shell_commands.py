"""Takes a shell command apart, as far as one must to know which of its commands decides its end.

Not a shell: quotes, here-documents, pipes, lists and groups are understood, the rest is text. A
command that is too long is read from its beginning; what decides a long one is mostly a
here-document that is skipped anyway.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from .text_patterns import words

_LONGEST = 40_000
_MOST = 200  # commands in one line; more of them decide nothing


class Step(NamedTuple):
    """One simple command: how it hangs on the one before, its program, and what follows it."""

    joint: str
    program: str
    rest: str

    @property
    def text(self) -> str:
        return f"{self.program} {self.rest}"


_TOKEN = re.compile(
    r"""
    (?P<skip> '[^']*(?:'|$) | "(?:\\.|[^"\\])*(?:"|$) | \\. | \$\{[^}]*\} | (?<![^\s;&|(])\#[^\n]* )
    | <<-?[ \t]*\\?(?P<quote>['"]?)(?P<here>\w+)(?P=quote)
    | (?P<open>\$?\() | (?P<close>\))
    | (?P<joint> && | \|\|? (?:&)? | ;;? | (?<![<>&])&(?![>&]) | \n )
    """,
    re.VERBOSE | re.DOTALL,
)
_INNER = re.compile(
    r"""\s*(?:\S*/)?(?:ba|z|da|k)?sh\s+(?:-\w+\s+)*-\w*c\s+(['"])(.*)\1\s*$""", re.DOTALL
)


@lru_cache(maxsize=1024)
def steps(command: str) -> tuple[Step, ...]:
    """The simple commands in their order, wrappers such as `env`, `sudo` and `uv run` taken off."""
    if match := _INNER.match(command):
        inner = match[2]
        command = re.sub(r'\\(["$`\\])', r"\1", inner) if match[1] == '"' else inner
    found: list[Step] = []
    for joint, text in _pieces(command[:_LONGEST]):
        program, rest = _program(text)
        if program:
            found.append(Step(joint, program, rest))
        if len(found) >= _MOST:
            break
    return tuple(found)


def _pieces(command: str) -> list[tuple[str, str]]:
    pieces: list[tuple[str, str]] = []
    joint, start, at = "", 0, 0
    opaque: list[bool] = []  # one for each open bracket: whether it hides what is in it
    waiting: list[str] = []  # here-documents whose text begins after this line
    cuts: list[str] = []  # the current command, without the here-documents
    while match := _TOKEN.search(command, at):
        at = match.end()
        if match["here"]:
            waiting.append(match["here"])
        elif match["open"]:
            hidden = match["open"] == "$(" or (bool(opaque) and opaque[-1])
            opaque.append(hidden or bool(("".join(cuts) + command[start : match.start()]).strip()))
        elif match["close"]:
            if opaque:
                opaque.pop()
        elif sign := match["joint"]:
            if any(opaque) and sign != "\n":
                continue
            text = "".join(cuts) + command[start : match.start()]
            if sign == "\n":
                at = _after(command, at, waiting)
                if any(opaque):
                    cuts, start = [text + "\n"], at
                    continue
                waiting = []
            if text.strip(" \t\r\n(){}"):
                pieces.append((joint, text))
                joint = _joint(sign)
            elif sign not in ("\n", ";"):
                joint = _joint(sign)
            cuts, start = [], at
    pieces.append((joint, "".join(cuts) + command[start:]))
    if joint == "&" and not pieces[-1][1].strip():
        pieces.append(("&", "true"))  # left running: the shell ends well whatever becomes of it
    return pieces


def _joint(sign: str) -> str:
    if sign.startswith("|") and not sign.startswith("||"):
        return "|"
    return ";" if sign in ("\n", ";;") else sign


def _after(command: str, at: int, waiting: Sequence[str]) -> int:
    """Where the command goes on after its here-documents."""
    for tag in waiting:
        end = re.compile(rf"^[ \t]*{re.escape(tag)}[ \t]*$", re.MULTILINE).search(command, at)
        if end is None:
            return len(command)
        at = end.end()
    return at


_LEADING = re.compile(
    r"""
    \s+ | \\\n | \#[^\n]* | [({!](?=\s|\() | \(+
    | (?:do|then|else|elif|if|while|until|time|not|and|or)\b(?=\s)
    | [A-Za-z_]\w*\+?=(?:'[^']*'|"(?:\\.|[^"\\])*"|\$\([^)]*\)|[^\s'"])*(?=\s|$)
    | \d?>{1,2}&?\s*\S+
    """,
    re.VERBOSE | re.DOTALL,
)
_OPTIONS = r"(?:\s+-{1,2}[\w-]+(?:=\S*)?)*"
_WRAPPER = re.compile(
    rf"""
    (?: env (?:\s+-u\s+\S+ | \s+-\S+)*
      | (?:sudo|doas) (?:\s+-[ugh]\s+\S+ | \s+-\w+)*
      | (?:time|nohup|setsid|exec|builtin|unbuffer|caffeinate|chronic|rtk) (?:\s+-\w+)*
      | command (?!\s+-[vV])
      | nice (?:\s+-n\s+\S+ | \s+-\S+)* | ionice (?:\s+-\S+(?:\s+\d+)?)* | stdbuf (?:\s+-\S+)*
      | g?timeout (?:\s+-[ks]\s+\S+ | \s+-\S+)* \s+ [\d.]+[smhd]?
      | xvfb-run {_OPTIONS}
      | xargs (?:\s+-[InPLsdE]\s*\S+ | \s+-\S+)*
      | (?:uv|poetry|pipenv|pdm|hatch|rye|pixi) \s+ run {_OPTIONS} (?:\s+--with\s+\S+)*
      | conda \s+ run (?:\s+-[np]\s+\S+ | \s+--\S+)*
      | bundle \s+ exec | mise \s+ (?:exec|x) (?:\s+\S+)*? \s+ -- | direnv \s+ exec \s+ \S+
      | (?:npx|bunx|pnpx) {_OPTIONS} | (?:pnpm|yarn|npm) \s+ (?:exec|dlx|x) {_OPTIONS} (?:\s+--)?
      | docker \s+ (?:compose\s+)? exec (?:\s+-\w+ (?:\s+\S+=\S+)?)* \s+ [\w.-]+
    ) (?=\s+\S)
    """,
    re.VERBOSE,
)
_NOTHING = words("done fi esac } ) for case select function ;; in")
_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|\$\([^)]*\)|[^\s'"\\])+""", re.DOTALL)
_COMMON = words("test find diff cmp check time install which type")
_PYTHON_MODULE = re.compile(r"(?:-[A-Zbdisu]+\s+|-W\s*\S+\s+|-X\s*\S+\s+)*-m\s+([\w.]+)")


def _program(text: str) -> tuple[str, str]:
    """The program that a simple command runs, by its base name, and its arguments."""
    while match := _LEADING.match(text) or _WRAPPER.match(text):
        text = text[match.end() :]
    word = _WORD.match(text)
    if word is None or word[0] in _NOTHING:
        return "", ""
    program, rest = word[0].strip("'\"\\)"), text[word.end() :].strip(" \t\r\n)")
    if not program.startswith("./"):
        base = program.rsplit("/", 1)[-1]
        # A project's own bin/test is not the shell's `test`.
        program = program if base in _COMMON and program[:1] != "/" else base or program
    if program.startswith(("python", "pypy", "py")) and (module := _PYTHON_MODULE.match(rest)):
        return module[1], rest[module.end() :].strip()
    return program, rest


# What cannot fail where it stands at the end of a pipe.
FILTERS = words(
    """
    head tail tee cat sort uniq wc sed awk gawk cut tr column nl less more fold rev tac fmt paste xxd od
    hexdump base64 bat expand pr tsort numfmt ts pv
    """
)
# What ends well whatever came before it.
_CALM = words("echo printf true : pwd date sleep wait set export unset alias")
_ERREXIT = re.compile(r"(?:^|[;&|\s])set\s+-\w*e|bash\s+-\w*e\w*\s|set\s+-o\s+errexit")
_OWN_END = re.compile(r"exit\s*[\"']?\$")


class Ending(NamedTuple):
    """Which commands decide how the whole ends; none when nothing in it can make it fail."""

    steps: tuple[Step, ...]
    last: Step | None  # the one whose exit code is the whole's, when all before it went well
    alone: bool  # whether the last is the only one that decides

    @property
    def is_calm(self) -> bool:
        """Whether the command ends well whatever happens in it."""
        return self.last is not None and not self.steps


@lru_cache(maxsize=1024)
def ending(command: str) -> Ending:
    """Which commands of a list or pipe decide how it ends."""
    all_steps = steps(command)
    if not all_steps:
        return Ending((), None, False)
    last = all_steps[-1]
    if last.program == "exit" and _OWN_END.match(last.text):
        return Ending(all_steps[:-1], last, False)
    strict, careful = "pipefail" in command, _ERREXIT.search(command) is not None
    deciding = [last]
    index = len(all_steps) - 1
    while index > 0:
        joint = all_steps[index].joint
        index -= 1
        counts = joint == "&&" or (joint == "|" and strict) or (joint == ";" and careful)
        if counts:
            deciding.append(all_steps[index])
        elif joint != "|":
            break
    able = tuple(step for step in deciding if not _is_calm(step))
    return Ending(able, last, able == (last,))


def _is_calm(step: Step) -> bool:
    if step.program in _CALM or step.text.strip() in ("exit 0", "exit"):
        return True
    return step.joint == "|" and step.program in FILTERS
