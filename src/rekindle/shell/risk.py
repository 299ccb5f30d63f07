"""Is a command line dangerous? Why a person should be asked before it runs.

Every command that the shell would run is looked at, behind wrappers and inside of shells that are
started with a text too. What cannot be read, and what only the shell will know where it matters,
counts as dangerous.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from rekindle.agent.tools.sandbox_paths import is_allowed
from rekindle.agent.tools.tool import ToolContext

from .parser import Command, Redirect, Unreadable, Word, split
from .risk_rules import CODE_LOSS, DATABASES, PREFIXES, RULES, SECRETS, SQL_LOSS, Arguments

_MOST_FOLDERS = 32
_MOST_LAYERS = 20
_SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "csh", "tcsh", "rbash"])
_INTERPRETERS = re.compile(
    r"(python|pypy)[\d.]*|perl|ruby|node|nodejs|bun|deno|php|lua|Rscript|awk|gawk"
)
_FETCHERS = frozenset(
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
_SETTINGS_THAT_RUN = re.compile(
    r"(LD_PRELOAD|LD_AUDIT|BASH_ENV|ENV|PROMPT_COMMAND|SHELLOPTS|PS4)\+?="
)
# Programs that run another, and which of their options take a value of their own.
_WRAPPERS: dict[str, str] = {
    "env": "uCS", "nohup": "", "nice": "n", "ionice": "cnp", "stdbuf": "ioe", "time": "fo",
    "timeout": "ks", "gtimeout": "ks", "command": "", "builtin": "", "exec": "a", "setsid": "",
    "xargs": "IndPLsEa", "busybox": "", "toybox": "", "strace": "eopsuP", "ltrace": "eopsu",
    "flock": "wE", "watch": "nd", "parallel": "jS", "unbuffer": "", "caffeinate": "t", "chronic": "",
    "unshare": "", "taskset": "", "chrt": "", "script": "", "then": "", "sudo": "ugpCDhRTr",
    "doas": "uC", "runuser": "ug",
}  # fmt: skip
_NUMBERED = frozenset(
    {"timeout", "gtimeout", "flock", "taskset", "chrt"}
)  # one operand of their own
_REMOTE = frozenset({"ssh", "docker", "podman", "kubectl", "nerdctl", "docker-compose"})


def reasons(line: str, context: ToolContext, workdir: str) -> tuple[str, ...]:
    """Why to ask before this line is run in `workdir`; empty when it is harmless."""
    return tuple(dict.fromkeys(_Judge(context, workdir).line(line, 0)))


class _Judge:
    def __init__(self, context: ToolContext, workdir: str) -> None:
        self._context = context
        self._folders: set[str] | None = {workdir}  # where a command may stand; None: anywhere

    def line(self, line: str, layer: int) -> Iterator[str]:
        try:
            commands = split(line, layer)
        except (Unreadable, RecursionError) as error:
            yield f"cannot be read ({error})"
            return
        if layer > _MOST_LAYERS:
            yield "cannot be read (too deep)"
            return
        for command in commands:
            self._follow(command.words)
        spoken = [t for one in commands for t in (*one.words, *(r.target for r in one.redirects))]
        fetches = any(_program(one.words) in _FETCHERS for one in commands)
        for command in commands:
            yield from self._redirects(command.redirects)
            yield from self._assigned(command)
            if command.words:
                yield from self._words(command.words, command, spoken, fetches, layer)

    # -- where a command stands, and where it writes

    def _follow(self, words: Sequence[Word]) -> None:
        """After a `cd` the command may stand in either folder: it could have failed."""
        program = _program(words)
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
            os.path.join(folder, _home(self._context, target)) for folder in self._folders
        }
        if len(self._folders) > _MOST_FOLDERS:
            self._folders = None

    def _is_inside(self, word: Word) -> bool:
        """Does this path lead into the allowed folders, wherever the command stands?"""
        if not word.known or not word.text:
            return False
        if _HARMLESS_TARGETS.fullmatch(word.text):
            return True
        path = _home(self._context, word.text)
        if os.path.isabs(path):
            return is_allowed(self._context, path)
        if self._folders is None:
            return False
        return all(is_allowed(self._context, os.path.join(one, path)) for one in self._folders)

    def _redirects(self, redirects: Sequence[Redirect]) -> Iterator[str]:
        for redirect in redirects:
            if ">" not in redirect.operator:
                continue
            target = redirect.target
            if redirect.operator == ">&" and re.fullmatch(r"\d*-?", target.text):
                continue
            if not target.known:
                yield "writes to a file that is not known beforehand"
            elif not self._is_inside(target):
                yield f"writes outside the allowed folders: {target.text[:80]}"

    def _assigned(self, command: Command) -> Iterator[str]:
        words = (*command.assigned, *command.words[1:]) if _exports(command) else command.assigned
        if any(_SETTINGS_THAT_RUN.match(word.text) for word in words):
            yield "sets a variable that makes programs run something"

    # -- what a command does

    def _words(
        self, words: Sequence[Word], command: Command, spoken: list[Word], fetches: bool, layer: int
    ) -> Iterator[str]:
        """What one command does, and what it lets others do."""
        name = words[0]
        if not name.known or not name.text:
            yield "runs a program that is not known beforehand"
            return
        program = _program(words)
        given = Arguments(tuple(words[1:]), self._is_inside)
        rule = RULES.get(program) or next(
            (one for start, one in PREFIXES.items() if program.startswith(start)), None
        )
        if rule and (reason := rule(given)):
            yield f"{program} {reason}"
        if secret := next((w.text for w in given.words if SECRETS.search(w.text)), None):
            yield f"touches a secret: {secret[:80]}"
        if program in DATABASES and any(SQL_LOSS.search(word.text) for word in spoken):
            yield f"{program} deletes data"
        if program in _SHELLS:
            yield from self._shell(given, command, layer)
        elif _INTERPRETERS.fullmatch(program):
            yield from self._interpreter(program, given, command, fetches)
        for inner in islice(_inner(program, given), _MOST_LAYERS):
            if layer >= _MOST_LAYERS:
                yield "cannot be read (too deep)"
            elif isinstance(inner, str):
                yield from self.line(inner, layer + 1)
            else:
                yield from self._words(inner, command, spoken, fetches, layer + 1)

    def _shell(self, given: Arguments, command: Command, layer: int) -> Iterator[str]:
        """A shell: what it is told to run, or that nobody knows what it will run."""
        for number, word in enumerate(given.words):
            if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word.text):
                yield from self._text(given.words[number + 1 :][:1], layer)
                return
            if word.runs:
                yield "runs what another command gives out"
                return
            if re.fullmatch(r"-[a-zA-Z]*s[a-zA-Z]*", word.text):
                break  # the rest are arguments of what comes as input
            if not word.text.startswith(("-", "+")):
                return  # a script, as harmless as any program
        documents = [r.target for r in command.redirects if r.operator in ("<<", "<<<")]
        if documents:
            yield from self._text(documents, layer)
        elif not any(word.text in ("--version", "--help", "-n") for word in given.words):
            yield "runs what is given to a shell as input"

    def _text(self, words: Sequence[Word], layer: int) -> Iterator[str]:
        for word in words:
            if not word.known:
                yield "runs a command that is not known beforehand"
            else:
                yield from self.line(word.text, layer + 1)

    def _interpreter(
        self, program: str, given: Arguments, command: Command, fetches: bool
    ) -> Iterator[str]:
        if any(word.runs for word in given.words):
            yield "runs what another command gives out"
        script = next((w for w in given.words if not w.text.startswith("-")), None)
        if script is None and fetches and not any(r.operator == "<<" for r in command.redirects):
            yield f"{program} runs what another command gives out"
        codes = [
            w for w, flag in zip(given.words[1:], given.texts, strict=False) if _takes_code(flag)
        ]
        codes += [w for w in given.words if w.text.startswith("-") and len(w.text) > 12]
        codes += [r.target for r in command.redirects if r.operator in ("<<", "<<<")]
        if program.endswith("awk"):
            codes += given.words
        if any(CODE_LOSS.search(code.text) for code in codes):
            yield f"{program} is given code that deletes files or runs programs"


def _takes_code(flag: str) -> bool:
    return flag in ("--eval", "--print") or bool(re.fullmatch(r"-\w*[cepErR]", flag))


def _inner(program: str, given: Arguments) -> Iterator[tuple[Word, ...] | str]:
    """The commands that a program is told to run: as words, or as a text for a shell."""
    if program in ("eval", "trap"):
        known = all(word.known for word in given.words)
        texts = given.texts if program == "eval" else given.texts[:1]
        yield " ".join(texts) if known else (Word("", known=False),)
    elif program == "find":
        yield from _executed(given.words)
    elif program == "source" or program == ".":
        if any(word.runs for word in given.words):
            yield (Word("", known=False),)
    elif program in _REMOTE:
        yield from _remote(program, given)
    elif program in _WRAPPERS and (inner := _wrapped(program, given.words)):
        if program in ("xargs", "parallel"):
            yield (*_fed(given.texts, inner), Word("", known=False))
        elif program in ("watch", "script") and all(word.known for word in inner):
            yield " ".join(word.text for word in inner)
        else:
            yield inner
    yield from _texts(program, given)


def _texts(program: str, given: Arguments) -> Iterator[tuple[Word, ...] | str]:
    """Options whose value is a whole command line."""
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


def _wrapped(program: str, words: Sequence[Word]) -> tuple[Word, ...]:
    """The words of a wrapper from the program on that it runs."""
    takes_value = _WRAPPERS[program]
    skip = 1 if program in _NUMBERED else 0
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "--":
            at += 1
        elif text.startswith("-") and text != "-":
            at += 2 if len(text) == 2 and text[1] in takes_value else 1
        elif program in ("env", "sudo", "doas") and re.match(r"[A-Za-z_]\w*=", text):
            at += 1
        elif skip:
            skip -= 1
            at += 1
        else:
            return tuple(words[at:])
    return ()


def _fed(options: Sequence[str], words: Sequence[Word]) -> tuple[Word, ...]:
    """The words of a command into which others are put, in place of a sign such as {}."""
    signs = {"{}"}
    for option, value in zip(options, (*options[1:], ""), strict=True):
        if option.startswith("-I"):
            signs.add(option[2:] or value)
    return tuple(Word(w.text, w.known and not any(s in w.text for s in signs)) for w in words)


def _executed(words: Sequence[Word]) -> Iterator[tuple[Word, ...]]:
    """What `find` does with the files that it finds."""
    for number, word in enumerate(words):
        if word.text == "-delete":
            yield (Word("rm"), Word("", known=False))
        elif word.text in ("-fprint", "-fprintf", "-fls"):
            yield (Word("tee"), *words[number + 1 : number + 2])
        elif word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            inner: list[Word] = []
            for each in words[number + 1 :]:
                if each.text in (";", "+"):
                    break
                inner.append(Word(each.text, each.known and "{}" not in each.text))
            if inner:
                yield tuple(inner)


def _remote(program: str, given: Arguments) -> Iterator[tuple[Word, ...] | str]:
    """A command for another machine or a container is judged as if it ran here."""
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
            yield " ".join(w.text for w in words[1:]) if known else (Word("", known=False),)
        return
    texts = [word.text for word in words]
    for number, text in enumerate(texts):
        if text in ("exec", "run"):
            # Where the name of the container ends is not worth knowing: try from every word on.
            for start in range(number + 1, min(len(words), number + 15)):
                if _basename(texts[start]) in (*RULES, *_SHELLS) and not texts[start].startswith(
                    "-"
                ):
                    yield tuple(words[start:])
                    return


def _exports(command: Command) -> bool:
    return _program(command.words) in ("export", "declare", "typeset", "env", "local", "readonly")


def _program(words: Sequence[Word]) -> str:
    return _basename(words[0].text) if words else ""


def _basename(text: str) -> str:
    return text.rsplit("/", 1)[-1]


def _home(context: ToolContext, path: str) -> str:
    if path == "~" or path.startswith("~/"):
        return context.environment.get("HOME", "/") + path[1:]
    return path
