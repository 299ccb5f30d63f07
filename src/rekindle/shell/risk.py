"""Find the reasons why a command line is dangerous and needs approval before it runs.

Every command that the shell would run is checked, also behind wrappers and inside shells started
with a command text. A line that cannot be parsed counts as dangerous, and so does a value that only
the shell will know, where it matters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from .parser import Redirect, ShellCommand, ShellWord, UnparsableCommand, split_commands
from .risk_rules import (
    DATABASE_CLIENTS,
    DESTRUCTIVE_CODE,
    DESTRUCTIVE_SQL,
    PREFIX_RULES,
    RISK_RULES,
    SECRET_PATHS,
    CommandArguments,
)

_MAX_FOLDERS = 32
_MAX_LAYERS = 20
_SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "csh", "tcsh", "rbash"])
_INTERPRETERS = re.compile(
    r"(python|pypy)[\d.]*|perl|ruby|node|nodejs|bun|deno|php|lua|Rscript|awk|gawk"
)
_DATA_SOURCES = frozenset(
    [
        "curl",
        "wget",
        "nc",
        "ncat",
        "netcat",
        "socat",
        "ssh",
        "base64",
        "xxd",
        "openssl",
        "gunzip",
        "zcat",
    ]
)
_HARMLESS_TARGETS = re.compile(r"/dev/(null|stdout|stderr|tty|fd/\d+)")
_VARIABLES_THAT_RUN_CODE = re.compile(
    r"(LD_PRELOAD|LD_AUDIT|BASH_ENV|ENV|PROMPT_COMMAND|SHELLOPTS|PS4)\+?="
)
# Programs that run another one, and their options that take a value.
_WRAPPERS: dict[str, str] = {
    "env": "uCS", "nohup": "", "nice": "n", "ionice": "cnp", "stdbuf": "ioe", "time": "fo",
    "timeout": "ks", "gtimeout": "ks", "command": "", "builtin": "", "exec": "a", "setsid": "",
    "xargs": "IndPLsEa", "busybox": "", "toybox": "", "strace": "eopsuP", "ltrace": "eopsu",
    "flock": "wE", "watch": "nd", "parallel": "jS", "unbuffer": "", "caffeinate": "t", "chronic": "",
    "unshare": "", "taskset": "", "chrt": "", "script": "", "then": "", "sudo": "ugpCDhRTr",
    "doas": "uC", "runuser": "ug",
}  # fmt: skip
_WRAPPERS_WITH_OPERAND = frozenset(
    {"timeout", "gtimeout", "flock", "taskset", "chrt"}
)  # they take one operand of their own
_REMOTE_RUNNERS = frozenset({"ssh", "docker", "podman", "kubectl", "nerdctl", "docker-compose"})


def find_risks(
    line: str, workdir: str, *, home: str, is_allowed: Callable[[str], bool]
) -> tuple[str, ...]:
    """Return why running this line in `workdir` needs approval; empty if it is harmless.

    `is_allowed` decides whether an absolute path may be written.
    """
    return tuple(dict.fromkeys(_RiskChecker(workdir, home, is_allowed).check_line(line, 0)))


class _RiskChecker:
    def __init__(self, workdir: str, home: str, is_allowed: Callable[[str], bool]) -> None:
        self._home = home
        self._is_allowed = is_allowed
        self._folders: set[str] | None = {workdir}  # possible working folders; None: unknown

    def check_line(self, line: str, layer: int) -> Iterator[str]:
        try:
            commands = split_commands(line, layer)
        except (UnparsableCommand, RecursionError) as error:
            yield f"cannot be parsed ({error})"
            return
        if layer > _MAX_LAYERS:
            yield "cannot be parsed (nested too deeply)"
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
        if not word.known or not word.text:
            return False
        if _HARMLESS_TARGETS.fullmatch(word.text):
            return True
        path = _expand_home(self._home, word.text)
        if os.path.isabs(path):
            return self._is_allowed(path)
        if self._folders is None:
            return False
        return all(self._is_allowed(os.path.join(one, path)) for one in self._folders)

    def _check_redirects(self, redirects: Sequence[Redirect]) -> Iterator[str]:
        for redirect in redirects:
            if ">" not in redirect.operator:
                continue
            target = redirect.target
            if redirect.operator == ">&" and re.fullmatch(r"\d*-?", target.text):
                continue
            if not target.known:
                yield "writes to a file that is not known in advance"
            elif not self._is_inside(target):
                yield f"writes outside the allowed folders: {target.text[:80]}"

    def _check_assignments(self, command: ShellCommand) -> Iterator[str]:
        words = (
            (*command.assignments, *command.words[1:])
            if _is_export(command)
            else command.assignments
        )
        if any(_VARIABLES_THAT_RUN_CODE.match(word.text) for word in words):
            yield "sets a variable that makes programs run code"

    # -- effects of a command

    def _check_command(
        self,
        words: Sequence[ShellWord],
        command: ShellCommand,
        all_words: list[ShellWord],
        fetches: bool,
        layer: int,
    ) -> Iterator[str]:
        """Yield the risks of one command and of the commands that it runs."""
        name = words[0]
        if not name.known or not name.text:
            yield "runs a program that is not known in advance"
            return
        program = _get_program(words)
        given = CommandArguments(tuple(words[1:]), self._is_inside)
        rule = RISK_RULES.get(program) or next(
            (one for start, one in PREFIX_RULES.items() if program.startswith(start)), None
        )
        if rule and (reason := rule(given)):
            yield f"{program} {reason}"
        if secret := next((w.text for w in given.words if SECRET_PATHS.search(w.text)), None):
            yield f"accesses a secret: {secret[:80]}"
        if program in DATABASE_CLIENTS and any(
            DESTRUCTIVE_SQL.search(word.text) for word in all_words
        ):
            yield f"{program} deletes data"
        if program in _SHELLS:
            yield from self._check_shell(given, command, layer)
        elif _INTERPRETERS.fullmatch(program):
            yield from self._check_interpreter(program, given, command, fetches)
        for inner in islice(_iter_inner_commands(program, given), _MAX_LAYERS):
            if layer >= _MAX_LAYERS:
                yield "cannot be parsed (nested too deeply)"
            elif isinstance(inner, str):
                yield from self.check_line(inner, layer + 1)
            else:
                yield from self._check_command(inner, command, all_words, fetches, layer + 1)

    def _check_shell(
        self, given: CommandArguments, command: ShellCommand, layer: int
    ) -> Iterator[str]:
        """Yield the risks of a shell: those of its command text, or that its input is unknown."""
        for number, word in enumerate(given.words):
            if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word.text):
                yield from self._check_shell_text(given.words[number + 1 :][:1], layer)
                return
            if word.is_pipe:
                yield "runs the output of another command"
                return
            if re.fullmatch(r"-[a-zA-Z]*s[a-zA-Z]*", word.text):
                break  # the rest are arguments of the script on stdin
            if not word.text.startswith(("-", "+")):
                return  # a script: treated like any other program
        documents = [r.target for r in command.redirects if r.operator in ("<<", "<<<")]
        if documents:
            yield from self._check_shell_text(documents, layer)
        elif not any(word.text in ("--version", "--help", "-n") for word in given.words):
            yield "runs the input of a shell"

    def _check_shell_text(self, words: Sequence[ShellWord], layer: int) -> Iterator[str]:
        for word in words:
            if not word.known:
                yield "runs a command that is not known in advance"
            else:
                yield from self.check_line(word.text, layer + 1)

    def _check_interpreter(
        self, program: str, given: CommandArguments, command: ShellCommand, fetches: bool
    ) -> Iterator[str]:
        if any(word.is_pipe for word in given.words):
            yield "runs the output of another command"
        script = next((w for w in given.words if not w.text.startswith("-")), None)
        if script is None and fetches and not any(r.operator == "<<" for r in command.redirects):
            yield f"{program} runs the output of another command"
        codes = [
            w for w, flag in zip(given.words[1:], given.texts, strict=False) if _takes_code(flag)
        ]
        codes += [w for w in given.words if w.text.startswith("-") and len(w.text) > 12]
        codes += [r.target for r in command.redirects if r.operator in ("<<", "<<<")]
        if program.endswith("awk"):
            codes += given.words
        if any(DESTRUCTIVE_CODE.search(code.text) for code in codes):
            yield f"{program} runs code that deletes files or starts programs"


def _takes_code(flag: str) -> bool:
    return flag in ("--eval", "--print") or bool(re.fullmatch(r"-\w*[cepErR]", flag))


def _iter_inner_commands(
    program: str, given: CommandArguments
) -> Iterator[tuple[ShellWord, ...] | str]:
    """Yield the commands that a program runs: as words, or as text for a shell."""
    if program in ("eval", "trap"):
        known = all(word.known for word in given.words)
        texts = given.texts if program == "eval" else given.texts[:1]
        yield " ".join(texts) if known else (ShellWord("", known=False),)
    elif program == "find":
        yield from _iter_find_actions(given.words)
    elif program == "source" or program == ".":
        if any(word.is_pipe for word in given.words):
            yield (ShellWord("", known=False),)
    elif program in _REMOTE_RUNNERS:
        yield from _iter_remote_commands(program, given)
    elif program in _WRAPPERS and (inner := _unwrap_command(program, given.words)):
        if program in ("xargs", "parallel"):
            yield (*_mark_placeholders(given.texts, inner), ShellWord("", known=False))
        elif program in ("watch", "script") and all(word.known for word in inner):
            yield " ".join(word.text for word in inner)
        else:
            yield inner
    yield from _iter_option_commands(program, given)


def _iter_option_commands(
    program: str, given: CommandArguments
) -> Iterator[tuple[ShellWord, ...] | str]:
    """Yield option values that are whole command lines."""
    flags = {"env": "-S", "su": "-c", "script": "-c", "runuser": "-c", "flock": "-c"}
    flag = flags.get(program)
    for number, word in enumerate(given.words):
        if flag is None:
            return
        if word.text == flag:
            for text in given.words[number + 1 :][:1]:
                yield text.text if text.known else (text,)
        elif program == "env" and word.text.startswith(("-S", "--split-string=")):
            yield word.text.removeprefix("--split-string=").removeprefix("-S")


def _unwrap_command(program: str, words: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    """Return a wrapper's words starting with the program that it runs."""
    takes_value = _WRAPPERS[program]
    skip = 1 if program in _WRAPPERS_WITH_OPERAND else 0
    index = 0
    while index < len(words):
        text = words[index].text
        if text == "--":
            index += 1
        elif text.startswith("-") and text != "-":
            index += 2 if len(text) == 2 and text[1] in takes_value else 1
        elif program in ("env", "sudo", "doas") and re.match(r"[A-Za-z_]\w*=", text):
            index += 1
        elif skip:
            skip -= 1
            index += 1
        else:
            return tuple(words[index:])
    return ()


def _mark_placeholders(options: Sequence[str], words: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    """Mark words that contain a placeholder such as {} as unknown."""
    placeholders = {"{}"}
    for option, value in zip(options, (*options[1:], ""), strict=True):
        if option.startswith("-I"):
            placeholders.add(option[2:] or value)
    return tuple(
        ShellWord(w.text, w.known and not any(s in w.text for s in placeholders)) for w in words
    )


def _iter_find_actions(words: Sequence[ShellWord]) -> Iterator[tuple[ShellWord, ...]]:
    """Yield the actions that `find` takes on the files it finds."""
    for number, word in enumerate(words):
        if word.text == "-delete":
            yield (ShellWord("rm"), ShellWord("", known=False))
        elif word.text in ("-fprint", "-fprintf", "-fls"):
            yield (ShellWord("tee"), *words[number + 1 : number + 2])
        elif word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            inner: list[ShellWord] = []
            for each in words[number + 1 :]:
                if each.text in (";", "+"):
                    break
                inner.append(ShellWord(each.text, each.known and "{}" not in each.text))
            if inner:
                yield tuple(inner)


def _iter_remote_commands(
    program: str, given: CommandArguments
) -> Iterator[tuple[ShellWord, ...] | str]:
    """Yield commands for another machine or a container; they are judged as if run here."""
    words = list(given.words)
    if program == "ssh":
        while words and words[0].text.startswith("-"):
            del words[
                : 2
                if words[0].text[1:2] in "bcDeFIiJLlmOopQRSWw" and len(words[0].text) == 2
                else 1
            ]
        if len(words) > 1:
            known = all(word.known for word in words[1:])
            yield " ".join(w.text for w in words[1:]) if known else (ShellWord("", known=False),)
        return
    texts = [word.text for word in words]
    for number, text in enumerate(texts):
        if text in ("exec", "run"):
            # The command's position depends on the options: take the first word that is a program.
            for start in range(number + 1, min(len(words), number + 15)):
                if _get_basename(texts[start]) in (*RISK_RULES, *_SHELLS) and not texts[
                    start
                ].startswith("-"):
                    yield tuple(words[start:])
                    return


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
    return _get_basename(words[0].text) if words else ""


def _get_basename(text: str) -> str:
    return text.rsplit("/", 1)[-1]


def _expand_home(home: str, path: str) -> str:
    if path == "~" or path.startswith("~/"):
        return home + path[1:]
    return path
