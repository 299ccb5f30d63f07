"""Command lines as skeletons: what is worth remembering of a command, and how much it tells.

A command is shown without what only this moment needed: the way to the folder, what was cut off the
output. Its programs, their subcommands and options belong to the skeleton, the rest are slots.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rekindle.judging.rules.text_patterns import words

from .slots import mark, shaped_word

TRIVIAL, PLAIN, TELLING = 0, 1, 2
LONGEST = 320  # characters: a longer command is a script, and no example
MOST_LINES = 2

_INNER = re.compile(r"""\s*(?:\S*/)?(?:ba|z)?sh\s+-\w*c\s+(['"])(.*)\1\s*$""", re.DOTALL)
_HERE = re.compile(r"<<-?[ \t]*\\?(['\"]?)(\w+)\1([^\n]*)\n.*?(?:^[ \t]*\2[ \t]*$|\Z)", re.S | re.M)
_WAY = re.compile(r"^\s*cd\s+(\"[^\"]*\"|'[^']*'|[^\s;&|]+)\s*(?:&&|;|\n)\s*")
_REST = re.compile(
    r"""\s*(?: 2>\s*&1 | [12&]?>{1,2}\s*/dev/null | \|\s*(?:head|tail)(?:\s+-\w*)*(?:\s+\d+)?
    | \|\s*(?:cat|tee\s+\S+) | \|\|\s*(?:true|:|echo\s+(?:"[^"]*"|'[^']*'|\S+))
    | ;\s*echo\s+[^;&|]*\$\?[^;&|]* | ;\s*echo\s+(?:"[^"]*"|'[^']*') | [;&] )\s*$""",
    re.VERBOSE,
)
_WORD = re.compile(
    r"""(?P<joint>&&|\|\|?|;|\n|\(|\)|&(?!>))
    | (?P<mask><(?:secret:[\w.-]+|mail|phone|card|user)>)
    | (?P<stream>\d?>{1,2}(?:&\d)?|<{1,3}|&>)
    | (?P<word>(?:\\.|\$\([^)]*\)|'[^']*(?:'|$)|"(?:\\.|[^"\\])*(?:"|$)|[^\s'"|&;<>()\\]|\\$)+)""",
    re.VERBOSE | re.DOTALL,
)
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_CUT = re.compile(r"[|>;&]")
_SIGNS = re.compile(r"['\"|&;<>()\\\n]")
_JOINED = re.compile(r"[|;&\n<>`]|\$\(")
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:_-]{0,24}")
_MODULE = re.compile(r"[A-Za-z_][\w.]{0,60}")
_PROGRAM = re.compile(r"[\w./@+~-]{1,60}")

# Programs that run another: `uv run pytest` is pytest.
_RUNS_ANOTHER = words(
    "sudo doas time nohup env command exec xargs npx bunx pnpx timeout nice stdbuf"
)
_RUN_BY = {"uv": "run", "poetry": "run", "pipenv": "run", "pdm": "run", "hatch": "run",
           "rye": "run", "bundle": "exec", "mise": "exec"}  # fmt: skip
# Everybody knows these, and what they say is about this moment.
_EVERYDAY = words(
    """
    ls ll dir pwd cd cat head tail less more echo printf which type whereis grep egrep fgrep rg ag ack
    find fd tree wc sort uniq sed awk gawk cut tr column file stat du df ps date whoami hostname env
    export set unset true false test sleep wait read diff cmp jq xxd od hexdump strings basename
    dirname realpath readlink touch clear history man help id uname nl tee nproc free uptime tac rev
    for do done if then else fi while case esac in bat time kill pkill lsof jobs
    """
)
# … and these change something in the way everybody knows.
_HANDY = words("mkdir cp mv rm rmdir ln chmod chown tar unzip zip gzip gunzip apply_patch")
_GIT_LOOKS = words(
    """
    status diff log show branch rev-parse remote ls-files blame describe tag config reflog shortlog
    stash fetch grep cat-file ls-tree merge-base rev-list for-each-ref symbolic-ref
    """
)
INTERPRETERS = words(
    "python python2 python3 pypy3 node ruby perl php bash sh zsh java deno bun tsx ts-node"
)
_NO_SUBCOMMAND = INTERPRETERS | {"pytest"}
_ASKS = re.compile(r"(?:--version|-V|--help|-h|version|help)")
# Behind their subcommand stands what it works on.
_SHALLOW = words(
    """
    git make just task npm pnpm yarn bun cargo go pip pip3 pipx uv poetry apt apt-get brew docker podman
    kubectl helm terraform ruff mypy pyright black eslint prettier tsc jest vitest mocha dotnet mvn
    gradle gradlew rake bundle gem rspec composer mix flutter dart swift zig cmake ninja tox nox conda
    systemctl journalctl service ssh scp rsync curl wget psql mysql sqlite3 redis-cli gcc g++ clang
    """
)
# Their second word is one of their own too: `npm run build`, `gh pr view`.
_DEEP = words(
    "run compose exec stash remote config pr issue repo tool pip api run-script workspace"
)


class Line(NamedTuple):
    """A command line taken apart."""

    skeleton: str
    values: tuple[str, ...]
    tier: int  # TRIVIAL, PLAIN or TELLING
    work: str  # the program that tells most, with its subcommand


SCRIPT = Line(mark("script"), ("",), PLAIN, "script")


def line(command: str) -> Line:
    """The skeleton of a command line."""
    text = core(command)
    if not text:
        return Line("", (), TRIVIAL, "")
    if is_script(text):
        return SCRIPT
    return _Reading().read(text)


def is_script(command: str) -> bool:
    """Is this too long to be shown as an example?"""
    return len(command) > LONGEST or command.count("\n") >= MOST_LINES


def is_everyday(command: str) -> bool:
    """Is this a single command that everybody knows, and that only looks?"""
    first = command.split(None, 1)[0] if command else ""
    return first in _EVERYDAY and _JOINED.search(command) is None and "/" not in command[:40]


def core(command: str) -> str:
    """The command without the way to its folder and what was done to its output."""
    text = command.strip()
    if "sh -" in text[:40] and (inner := _INNER.match(text)):
        text = inner[2].strip()
    if "<<" in text:
        text = _HERE.sub(lambda found: f"<<{found[2]}{found[3]}", text)
    while text.startswith("cd ") and (way := _WAY.match(text)) and way.end() < len(text):
        if way[1][0] not in "/~$\"'" and way[1] != ".":
            break  # a folder inside: to know that one is worth something
        text = text[way.end() :]
    if _CUT.search(text):
        while (rest := _REST.search(text)) and rest.start() > 0:
            text = text[: rest.start()]
    return text.strip()


def words_of(command: str) -> list[str]:
    """The words and signs of a command line; what is quoted stays together."""
    return [found[0] for found in _WORD.finditer(command)]


class _Reading:
    """One pass over the words of a command line."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._values: list[str] = []
        self._tier = TRIVIAL
        self._work = ""
        self._fresh = True  # a program is expected
        self._program = ""
        self._subcommands = 0  # how many more words may be subcommands
        self._after_option = self._after_here = False

    def read(self, text: str) -> Line:
        if _SIGNS.search(text) is None:
            for word in text.split():
                self._word(word)
            return self._line()
        for found in _WORD.finditer(text):
            if sign := found["joint"]:
                self._parts.append(";" if sign == "\n" else sign)
                self._end_of_command()
            elif sign := found["stream"]:
                self._parts.append(sign)
                self._subcommands, self._after_here = 0, sign == "<<"
            else:
                self._word(found["mask"] or found["word"])
        return self._line()

    def _line(self) -> Line:
        self._end_of_command()
        if self._parts and _ASKS.fullmatch(self._parts[-1]):
            self._tier = TRIVIAL
        return Line(" ".join(self._parts), tuple(self._values), self._tier, self._work)

    def _word(self, word: str) -> None:
        if self._fresh:
            self._begin(word)
            return
        if self._after_here:
            self._after_here = False
            self._tier = max(self._tier, PLAIN)
            self._values.append("")
            self._parts.append(mark("text"))
            return
        form = _MODULE if self._program.endswith(" -m") else _SUBCOMMAND
        is_sub = self._subcommands > 0 and form.fullmatch(word) is not None
        if is_sub:
            self._subcommand(word)
        elif word[0] != "-" and not self._after_option:
            self._subcommands = 0
        self._after_option = word[0] == "-" and "=" not in word
        if word == "-m" and self._program.startswith("python"):
            self._program, self._subcommands = f"{self._program} -m", 1
        self._parts.append(shaped_word(word, self._values, literal=is_sub))

    def _begin(self, word: str) -> None:
        self._parts.append(shaped_word(word, self._values, literal=not _ASSIGNED.match(word)))
        if _ASSIGNED.match(word) or word in _RUNS_ANOTHER or word[0] == "-" or word.isdigit():
            return
        self._fresh = False
        self._program = word.rsplit("/", 1)[-1] if word[0] == "/" else word
        known = self._program in _EVERYDAY or self._program in _NO_SUBCOMMAND
        self._subcommands = 0 if known else 2

    def _subcommand(self, word: str) -> None:
        if self._program.endswith(" -m"):
            self._program, self._subcommands = f"{self._program} {word}", 0
            return
        if _RUN_BY.get(self._program) == word:
            self._fresh, self._program, self._subcommands = True, "", 0
            return
        is_first = " " not in self._program
        self._program = f"{self._program} {word}"
        is_deep = word in _DEEP or self._program.split()[0] not in _SHALLOW
        self._subcommands = int(is_first and is_deep)

    def _end_of_command(self) -> None:
        tier = _tier(self._program)
        if self._program and (tier > self._tier or not self._work):
            self._tier, self._work = max(tier, self._tier), self._program
        self._fresh, self._program, self._subcommands = True, "", 0


def _tier(program: str) -> int:
    name, _, sub = program.partition(" ")
    if not name or name in _EVERYDAY or not _PROGRAM.fullmatch(name):
        return TRIVIAL
    if name == "git":
        return TRIVIAL if not sub or sub.split()[0] in _GIT_LOOKS else PLAIN
    return PLAIN if name in _HANDY or name.startswith("<") else TELLING
