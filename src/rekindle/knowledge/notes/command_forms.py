"""Reduce command lines to the parts that a note may contain: program, subcommands, options, files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.path_names import is_file_name, is_odd_path, is_repository_path
from rekindle.shell.command_reader import drop_heredocs, iter_tokens, unwrap_shell
from rekindle.shell.risk import find_line_effects
from rekindle.shell.wrappers import is_assignment

from .harmless import (
    describe_assignment,
    describe_shape,
    is_command_word,
    is_constant,
    is_flag,
    is_number,
    is_own_subcommand,
    is_personal_option,
    is_plain_value,
    is_subcommand,
    keep_assignment,
    keep_option,
    keep_option_value,
    keep_path,
    keep_personal_value,
    keep_repository_path,
    keep_value,
)
from .programs import INTERPRETERS, PROGRAM_RUNNERS, is_known_program, is_own_program

MAX_COMMAND_CHARS = 4_000
MAX_FORMS = 12
MAX_FORM_CHARS = 200

_PROGRAM = re.compile(r"(?:\.{0,2}/)?[A-Za-z0-9_.+-]{1,40}(?:/[A-Za-z0-9_.+-]{1,40}){0,6}")
# Where programs are installed that no shell finds by their names: below the system, or below a home.
_INSTALLED = re.compile(
    r"(?:/(?:usr/local|opt|snap)/(?=[^/]+/)"
    r"|(?P<home>~|\$HOME|/root|/(?:home|Users)/[^/]{1,60})/(?=(?:go|bin|sdk|\.[a-z]{2,12})/))(?P<below>.+)"
)
# The drive of a path of Windows, as its own shells, Git Bash and WSL write it.
_DRIVE = re.compile(r"(?:(?:/mnt|/cygdrive)?/([A-Za-z])(?=/|$)|([A-Za-z]):(?=[/\\]|$))")
_WRAPPERS = split_words("sudo time timeout env nohup command exec nice stdbuf")
_ROUND_DURATION = re.compile(r"\d{1,2}0?[smh]?|1[25]00s?|1800s?|2400s?|3600s?")
_COREPACK = [["corepack", manager] for manager in ("npm", "pnpm", "yarn")]
_KEYWORDS = split_words(
    "if then fi do done else elif while until esac export return in set { } ( ) ! [ [["
)
_LOOPS = split_words("for select case function")  # what follows on this line is no command
# They say nothing about a project: everybody knows them.
_EVERYDAY = split_words(
    """
    : cd echo ls cat head tail grep rg sed wc find true false pwd sort xargs mkdir awk nl tr test cp
    mv rm touch which type printf uniq cut tee sleep kill ps diff read export source exit wait chmod
    less more stat file basename dirname date env realpath tree du df fd ln column jq yq open clear
    history man
    """
)
# How a failure of these was fixed says nothing either.
_PLAIN = split_words(
    """
    : cd echo ls cat head tail wc true false pwd mkdir test printf sleep kill which type exit wait date
    clear history man export source read touch
    """
)
_EVERYDAY_GIT = split_words(
    """
    status diff log show add commit branch checkout switch stash fetch pull push rev-parse remote blame
    merge rebase reset restore config init ls-files rev-list merge-base tag describe clone mv rm grep
    reflog shortlog cherry-pick worktree
    """
)
# The word behind these belongs to the command: `gh pr view`, `go mod tidy`.
_DEEP_WORDS = split_words(
    """
    run exec x tool task compose workspace mod work pr issue repo release workflow stash remote worktree
    submodule image container volume network run-script
    """
)
_RUNTIMES = split_words("bun deno php")  # they run files, scripts and subcommands of their own
_PATTERN_FIRST = split_words("rg grep egrep fgrep sed awk jq yq fd")


class CommandForm(NamedTuple):
    """One command of a line: its key (`go test`), its words with slots, the folder it ran in."""

    key: str
    text: str
    folder: str

    @property
    def files(self) -> list[str]:
        """The files of the repository that it names."""
        words = [one for one in self.text.split()[1:] if one[0] != "-" and "=" not in one]
        if self.key in _PATTERN_FIRST:
            words = words[1:]  # what it searches for may look like a file
        named = (one.removeprefix("./") for one in words if "*" not in one)
        folder = f"{self.folder}/" if self.folder else ""
        return [
            folder + one
            for one in named
            if one and one[0] not in "/<~" and one[:2] != ".." and is_file_name(one.rsplit("/")[-1])
        ]


class CommandLine(NamedTuple):
    """The commands of a line that say something about the project."""

    forms: tuple[CommandForm, ...]
    folder: str  # the folder that the line changed to, below the project's root


@lru_cache(maxsize=8_192)
def parse_command_line(command: str, root: str) -> CommandLine:
    """Reduce a command line to its forms; `root` is the folder in which the session works."""
    forms: list[CommandForm] = []
    folder = ""
    command = command[:MAX_COMMAND_CHARS]
    if find_line_effects(command):
        return CommandLine((), "")  # what destroys or reaches others is never learned
    for words in _iter_simple_commands(command):
        if words[0] == "cd" and len(words) == 2:
            folder = _resolve_folder(words[1].strip("'\""), folder, root)
            continue
        form = _build_form(words, folder, root)
        if form is not None and len(forms) < MAX_FORMS:
            forms.append(form)
    return CommandLine(tuple(forms), folder)


def is_everyday(key: str) -> bool:
    """Return whether everybody knows the command, so that it is no news about a project."""
    program, _, rest = key.partition(" ")
    subcommand = rest.partition(" ")[0]  # `git remote show` is as common as `git remote`
    return program in _EVERYDAY or (program == "git" and (not rest or subcommand in _EVERYDAY_GIT))


def is_everyday_run(key: str) -> bool:
    """Return whether the command only has another program run one that everybody knows."""
    program, _, run = key.partition(" ")
    return program in PROGRAM_RUNNERS and is_everyday(run)


def can_be_fixed(key: str) -> bool:
    """Return whether it says something about a project how a failure of the command was fixed."""
    return key.partition(" ")[0] not in _PLAIN


# ── words of a project's own programs that nobody knows


def list_doubtful_words(key: str, text: str) -> Iterator[str]:
    """Yield what may be a value after all: ` word` of a subcommand, `--option=word` of a constant."""
    program, _, rest = key.partition(" ")
    if not is_own_program(program):
        return
    first = rest.partition(" ")[0]
    if first and not is_subcommand(first, program, ""):
        yield f" {first}"
    words = text.split(" ")
    joined = (f"{option}={word}" for option, word in pairwise(words) if "=" not in option)
    for word in (*joined, *words):
        option, sign, value = word.partition("=")
        if sign and is_constant(option, value) and not is_plain_value(value):
            yield word


def get_value(doubtful: str) -> str:
    """Return the word itself of a doubtful word."""
    return doubtful.rpartition("=")[2].strip()


def hide_word(text: str, program: str, word: str) -> str:
    """Return the text of a command with a slot for a doubtful word of it."""
    if word[0] == " ":
        return text.replace(f"{program}{word}", f"{program} <value>", 1)
    option, _, value = word.partition("=")
    ended = f"{text} ".replace(f" {word} ", f" {option}=<value> ")
    return ended.replace(f" {option} {value} ", f" {option} <value> ")[:-1]


def relativize_path(path: str, root: str) -> str | None:
    """Return a path below the project's root, with slashes, or None if it is elsewhere."""
    path, root = _normalize_path(path), _normalize_path(root)
    if path.startswith("./"):
        path = path[2:]
    if root and path.startswith(root + "/"):
        path = path[len(root) + 1 :]
    if not path or path[0] in "/~$" or path.startswith("..") or path[1:2] == ":":
        return None
    return keep_path(path)


def _normalize_path(path: str) -> str:
    """Return a path with slashes; one of Windows as `d:/folder`, however its shell wrote it."""
    path = path.replace("\\", "/").rstrip("/")
    drive = _DRIVE.match(path)
    return f"{(drive[1] or drive[2]).lower()}:{path[drive.end() :]}" if drive else path


def is_absolute_path(path: str) -> bool:
    """Return whether a path does not depend on the folder that the shell is in."""
    return path[:1] in ("/", "~") or _DRIVE.match(path) is not None


def format_path(path: str) -> str:
    """Return an absolute path as every shell of its system takes it."""
    return path.replace("\\", "/") if path[1:2] == ":" else path


def _iter_simple_commands(command: str) -> Iterator[list[str]]:
    """Yield the words of each command, without redirections and the bodies of here-documents."""
    words: list[str] = []
    skips_target = False
    for token in iter_tokens(drop_heredocs(unwrap_shell(command))):
        if token.kind in ("operator", "bracket"):
            if words:
                yield words
            words, skips_target = [], False
        elif token.kind in ("redirect", "input", "here"):
            skips_target = token.kind != "here" and token.text[-1] not in "0123456789-"
        elif token.kind == "comment":
            continue
        elif skips_target:
            skips_target = False
        elif token.text in _LOOPS and not words:
            words.append(":")
        elif words or token.text not in _KEYWORDS:
            words.append(token.text)
    if words:
        yield words


def _resolve_folder(target: str, folder: str, root: str) -> str:
    if _normalize_path(target) == _normalize_path(root):
        return ""
    below = relativize_path(target, root)
    is_absolute = is_absolute_path(target)
    if below is None or (not is_absolute and is_odd_path(below)):
        return "" if is_absolute or target[:1] in "$-" else folder
    return below if is_absolute or not folder else f"{folder}/{below}"


def _build_form(words: list[str], folder: str, root: str) -> CommandForm | None:
    shown: list[str] = []
    index = 0
    while index < len(words) and (
        is_assignment(words[index])
        or words[index] in _WRAPPERS
        or (shown[-1:] == ["timeout"] and words[index][0] != "-")
        or words[index:][:2] in _COREPACK
    ):
        kept = _keep_leading_word(words[index])
        shown += [kept] if kept and words[index] not in ("time", "sudo") else []
        index += 1
    word = words[index] if index < len(words) else ""
    installed = _shorten_installed(word)
    if not installed and (not _PROGRAM.fullmatch(word) or word[0] == "-"):
        return None
    program = installed or (word.rsplit("/", 1)[-1] if word[0] == "/" else word)
    name = program.rsplit("/", 1)[-1]
    if name in _KEYWORDS or (
        not installed and (keep_path(program) is None or ("/" in program and is_odd_path(program)))
    ):
        return None
    key, rest = _read_arguments(name, program, words[index + 1 :], root)
    text = " ".join([*shown, program, *rest])
    return CommandForm(key, text, folder) if len(text) <= MAX_FORM_CHARS else None


def _keep_leading_word(word: str) -> str | None:
    """Return what stands before a program: an assignment, a wrapper, or how long it may take."""
    if "=" in word:
        return keep_assignment(word)
    is_kept = word in _WRAPPERS or word == "corepack" or _ROUND_DURATION.fullmatch(word)
    return word if is_kept else keep_value(word)


def _shorten_installed(word: str) -> str:
    """Return where a known program is installed, without whose home that is; empty if not known."""
    found = _INSTALLED.fullmatch(word) if "/" in word else None
    if found is None or not is_known_program(word.rsplit("/", 1)[-1]):
        return ""
    if keep_path(found["below"]) is None:
        return ""
    return f"~/{found['below']}" if found["home"] else word


def _read_arguments(name: str, program: str, words: list[str], root: str) -> tuple[str, list[str]]:
    """Return the key of a command and its arguments with slots."""
    key, shown = [name], list[str]()
    depth = 0 if name in _EVERYDAY or _runs_file(name, words) else 1
    is_own = depth == 1 and is_own_program(name)
    takes_value = False
    for number, word in enumerate(words[:24]):
        if word in ("-", "--"):
            shown.append(word)
            continue
        if word[0] == "-":
            option = keep_option(word, name)
            if option is None:
                option = "<option>"
            takes_value = "=" not in word and not (len(key) == 1 and is_flag(word))
            if _names_script(word, name):
                key.append(word)
                depth, takes_value = 1, False
            shown.append(option)
            continue
        is_first = number == 0 and len(words) > 1 and is_own
        if (depth and not takes_value) and (
            is_subcommand(word, name, key[-1] if key[1:] else "")
            or (is_first and is_own_subcommand(word, name))
        ):
            key.append(word)
            shown.append(word)
            depth = int(word in _DEEP_WORDS or is_first)
            continue
        bare = word.strip("'\"")
        option = words[number - 1] if takes_value else ""
        if option and is_personal_option(option, name):
            shown.append(keep_personal_value(word))
            takes_value = False
            continue
        kept = _keep_own_value(bare, option) if is_own else _keep_known_value(bare, option, name)
        path = _keep_argument_path(bare, root)
        is_target = len(key) == 1 or (name in _RUNTIMES and key[1:] == ["run"])
        if path and name in INTERPRETERS and is_target and not takes_value:
            key.append(path)
        depth = depth if takes_value else 0
        shown.append(kept or path or describe_assignment(word) or keep_value(word))
        takes_value = False
    return " ".join(key), shown


def _names_script(option: str, name: str) -> bool:
    """Return whether the word behind an option is what an interpreter runs: a module or a script."""
    return (option == "-m" and name.startswith("python")) or (option == "--run" and name == "node")


def _runs_file(name: str, words: list[str]) -> bool:
    """Return whether a program runs the file that it is given; some also have subcommands."""
    if name not in INTERPRETERS:
        return False
    first = words[0] if words and words[0][0] != "-" else ""
    return name not in _RUNTIMES or "/" in first or is_file_name(first)


def _keep_known_value(word: str, option: str, program: str) -> str | None:
    """Return what a known program is given, if it is a subcommand of many or harmless there."""
    if option:
        return keep_option_value(word, option, program)
    is_kept = is_command_word(word) or (program in PROGRAM_RUNNERS and is_known_program(word))
    return word if is_kept and is_known_program(program) else None


def _keep_own_value(word: str, option: str) -> str | None:
    """Return what a project's own program is given, if that is a constant or a decimal number."""
    if is_constant(option, word):
        return word
    return describe_shape(word) if "." in word and is_number(word) else None


def _keep_argument_path(word: str, root: str) -> str | None:
    """Return an argument that is a path as it was written, if it is below the root or harmless."""
    if word.startswith("./"):
        return keep_repository_path(word)
    below = relativize_path(word, root) if any(sign in word for sign in "/.*") else None
    is_below = below is not None and is_absolute_path(word)  # so it names a folder of the project
    return below if below is not None and (is_below or is_repository_path(below)) else None
