"""Find the side effects of a command line: those that need approval, and those not to be repeated.

Every command that the shell would run is checked, also behind wrappers and inside shells started
with a command text. A line that cannot be parsed counts as dangerous, and so does a value that only
the shell will know, where it matters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from .effects import CommandArguments, CommandEffect, EffectLevel
from .inner_commands import iter_inner_commands
from .parser import Redirect, ShellCommand, ShellWord, UnparsableCommand, parse_commands
from .risk_rules import (
    DATABASE_CLIENTS,
    DELETING_SQL,
    DESTRUCTIVE_CODE,
    DESTRUCTIVE_SQL,
    SECRET_PATHS,
    apply_rules,
)
from .wrappers import SHELLS, get_basename, is_interpreter, split_names

_UNPARSABLE = "cannot be parsed"
_MAX_FOLDERS = 32
_MAX_LAYERS = 20
_DATA_SOURCES = split_names("curl wget nc ncat netcat socat ssh base64 xxd openssl gunzip zcat")
_HARMLESS_TARGETS = re.compile(r"/dev/(null|stdout|stderr|tty|fd/\d+)")
_VARIABLES_THAT_RUN_CODE = re.compile(
    r"(LD_PRELOAD|LD_AUDIT|BASH_ENV|ENV|PROMPT_COMMAND|SHELLOPTS|PS4)\+?="
)
# Wherever a command runs, these belong to the machine or to the person.
_ANY_HOME = "/home/user"
_SYSTEM_PATH = re.compile(
    rf"/(?:bin|boot|dev(?!/shm/)|etc|lib\w*|proc|sbin|sys|usr|System|Library)(?:/|$)|/(?!tmp$)[^/]*$"
    rf"|{_ANY_HOME}/\.(?:bash|zsh|profile|ssh|config/fish)"
)
# In learned commands: a slot or a mask, and a here-document whose body was left out.
_SLOT = re.compile(r"<[a-z][\w-]*(?:[:#][\w.+#-]*)?>|<[A-Z][A-Zm:./-]{2,24}>")
_BARE_HERE = re.compile(r"<<(?!<)-?[ \t]*[^\s<]\S*")


def find_risks(
    line: str, workdir: str, *, home: str, is_allowed: Callable[[str], bool]
) -> tuple[str, ...]:
    """Return why running this line in `workdir` needs approval; empty if it is harmless.

    `is_allowed` decides whether an absolute path may be written.
    """
    effects = _EffectChecker(workdir, home, is_allowed).check_line(line, 0)
    return tuple(dict.fromkeys(one.reason for one in effects if one.level == EffectLevel.RISKY))


@lru_cache(maxsize=1_024)
def find_line_effects(line: str) -> tuple[CommandEffect, ...]:
    """Return the effects of a line from a transcript or a template, wherever it may run."""
    if "<" in line:
        line = _SLOT.sub("SLOT", line)
        line = line if "\n" in line else _BARE_HERE.sub("<<< TEXT", line)
    checker = _EffectChecker("project", _ANY_HOME, _is_ordinary_path, trusts_unknown=True)
    return tuple(checker.check_line(line, 0))


class _EffectChecker:
    def __init__(
        self,
        workdir: str,
        home: str,
        is_allowed: Callable[[str], bool],
        *,
        trusts_unknown: bool = False,
    ) -> None:
        self._home = home
        self._is_allowed = is_allowed
        self._trusts_unknown = trusts_unknown  # paths that only the shell will know
        self._folders: set[str] | None = {workdir}  # possible working folders; None: unknown

    def check_line(self, line: str, layer: int) -> Iterator[CommandEffect]:
        try:
            commands = parse_commands(line, layer)
        except (UnparsableCommand, RecursionError) as error:
            yield CommandEffect(f"{_UNPARSABLE} ({error})")
            return
        if layer > _MAX_LAYERS:
            yield CommandEffect(f"{_UNPARSABLE} (nested too deeply)")
            return
        for command in commands:
            self._track_cd(command.words)
        all_words = [
            t for one in commands for t in (*one.words, *(r.target for r in one.redirects))
        ]
        fetches = any(_get_program(one.words) in _DATA_SOURCES for one in commands)
        for command in commands:
            yield from self._check_redirects(command.redirects)
            yield from self._check_assignments(command)
            if command.words:
                yield from self._check_command(command.words, command, all_words, fetches, layer)

    # -- working folder and write targets

    def _track_cd(self, words: Sequence[ShellWord]) -> None:
        """Track a `cd`. It may fail, so later commands may run in either folder."""
        program = _get_program(words)
        if program in ("pushd", "popd"):
            self._folders = None
        if program != "cd" or self._folders is None:
            return
        operands = [word for word in words[1:] if not word.text.startswith("-")]
        if any(word.text == "-" for word in words[1:]) or any(not w.known for w in operands):
            self._folders = None
            return
        target = operands[0].text if operands else "~"
        self._folders |= {
            os.path.join(folder, _expand_home(self._home, target)) for folder in self._folders
        }
        if len(self._folders) > _MAX_FOLDERS:
            self._folders = None

    def _is_inside(self, word: ShellWord) -> bool:
        """Return whether the path is in an allowed folder, wherever the command runs."""
        if not word.known:
            return self._trusts_unknown
        if not word.text:
            return False
        if _HARMLESS_TARGETS.fullmatch(word.text):
            return True
        path = _expand_home(self._home, word.text)
        if os.path.isabs(path):
            return self._is_allowed(path)
        if self._folders is None:
            return self._trusts_unknown
        return all(self._is_allowed(os.path.join(one, path)) for one in self._folders)

    def _check_redirects(self, redirects: Sequence[Redirect]) -> Iterator[CommandEffect]:
        for redirect in redirects:
            if ">" not in redirect.operator:
                continue
            target = redirect.target
            if redirect.operator == ">&" and re.fullmatch(r"\d*-?", target.text):
                continue
            if self._is_inside(target):
                continue
            if not target.known:
                yield CommandEffect("writes to a file that is not known in advance")
            else:
                yield CommandEffect(f"writes outside the allowed folders: {target.text[:80]}")

    def _check_assignments(self, command: ShellCommand) -> Iterator[CommandEffect]:
        words = (
            (*command.assignments, *command.words[1:])
            if _is_export(command)
            else command.assignments
        )
        if any(_VARIABLES_THAT_RUN_CODE.match(word.text) for word in words):
            yield CommandEffect("sets a variable that makes programs run code")

    # -- effects of a command

    def _check_command(
        self,
        words: Sequence[ShellWord],
        command: ShellCommand,
        all_words: list[ShellWord],
        fetches: bool,
        layer: int,
    ) -> Iterator[CommandEffect]:
        """Yield the risks of one command and of the commands that it runs."""
        name = words[0]
        if not name.known or not name.text:
            yield CommandEffect("runs a program that is not known in advance")
            return
        program = _get_program(words)
        given = CommandArguments(tuple(words[1:]), self._is_inside)
        yield from apply_rules(program, given)
        if secret := next((w.text for w in given.words if SECRET_PATHS.search(w.text)), None):
            yield CommandEffect(f"accesses a secret: {secret[:80]}")
        if program in DATABASE_CLIENTS:
            yield from _check_sql(program, all_words)
        if program in SHELLS:
            yield from self._check_shell(given, command, layer)
        elif (is_interpreter(program) and program != "java") or program.endswith("awk"):
            yield from self._check_interpreter(program, given, command, fetches)
        for inner in islice(iter_inner_commands(program, given), _MAX_LAYERS):
            if layer >= _MAX_LAYERS:
                yield CommandEffect(f"{_UNPARSABLE} (nested too deeply)")
            elif isinstance(inner, str):
                yield from self.check_line(inner, layer + 1)
            else:
                yield from self._check_command(inner, command, all_words, fetches, layer + 1)

    def _check_shell(
        self, given: CommandArguments, command: ShellCommand, layer: int
    ) -> Iterator[CommandEffect]:
        """Yield the risks of a shell: those of its command text, or that its input is unknown."""
        for number, word in enumerate(given.words):
            if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word.text):
                yield from self._check_shell_text(given.words[number + 1 :][:1], layer)
                return
            if word.is_pipe:
                yield CommandEffect("runs the output of another command")
                return
            if re.fullmatch(r"-[a-zA-Z]*s[a-zA-Z]*", word.text):
                break  # the rest are arguments of the script on stdin
            if not word.text.startswith(("-", "+")):
                return  # a script: treated like any other program
        documents = [r.target for r in command.redirects if r.operator in ("<<", "<<<")]
        if documents:
            yield from self._check_shell_text(documents, layer)
        elif not any(word.text in ("--version", "--help", "-n") for word in given.words):
            yield CommandEffect("runs the input of a shell")

    def _check_shell_text(self, words: Sequence[ShellWord], layer: int) -> Iterator[CommandEffect]:
        for word in words:
            if not word.known:
                yield CommandEffect("runs a command that is not known in advance")
            else:
                yield from self.check_line(word.text, layer + 1)

    def _check_interpreter(
        self, program: str, given: CommandArguments, command: ShellCommand, fetches: bool
    ) -> Iterator[CommandEffect]:
        if any(word.is_pipe for word in given.words):
            yield CommandEffect("runs the output of another command")
        script = next((w for w in given.words if not w.text.startswith("-")), None)
        if script is None and fetches and not any(r.operator == "<<" for r in command.redirects):
            yield CommandEffect(f"{program} runs the output of another command")
        codes = [
            w for w, flag in zip(given.words[1:], given.texts, strict=False) if _takes_code(flag)
        ]
        codes += [w for w in given.words if w.text.startswith("-") and len(w.text) > 12]
        codes += [r.target for r in command.redirects if r.operator in ("<<", "<<<")]
        if program.endswith("awk"):
            codes += given.words
        if any(DESTRUCTIVE_CODE.search(code.text) for code in codes):
            yield CommandEffect(f"{program} runs code that deletes files or starts programs")


def _is_ordinary_path(path: str) -> bool:
    return _SYSTEM_PATH.match(path) is None


def _check_sql(program: str, words: Sequence[ShellWord]) -> Iterator[CommandEffect]:
    if any(DESTRUCTIVE_SQL.search(word.text) for word in words):
        yield CommandEffect(f"{program} deletes data")
    elif any(DELETING_SQL.search(word.text) for word in words):
        yield CommandEffect(f"{program} deletes some data", EffectLevel.DESTRUCTIVE)


def _takes_code(flag: str) -> bool:
    return flag in ("--eval", "--print") or bool(re.fullmatch(r"-\w*[cepErR]", flag))


def _is_export(command: ShellCommand) -> bool:
    return _get_program(command.words) in (
        "export",
        "declare",
        "typeset",
        "env",
        "local",
        "readonly",
    )


def _get_program(words: Sequence[ShellWord]) -> str:
    return get_basename(words[0].text) if words else ""


def _expand_home(home: str, path: str) -> str:
    if path == "~" or path.startswith("~/"):
        return home + path[1:]
    return path
