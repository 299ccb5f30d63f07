# ruff: noqa: E501  (a pattern stays on one line)
"""Error lines of shells and small tools: `name: message`, on a separate line.

They count only for the commands that decide the exit code, and only near the start or end of the
output: a printed file or log may contain such lines as well.
"""

from __future__ import annotations

import re
from collections.abc import Set

from .deciding_commands import DecidingCommands
from .evidence import get_last_lines, trim_middle
from .programs import is_inline_script
from .text_patterns import split_words

_MULTILINE = re.MULTILINE
_SHELL_NAME = (
    r"(?:(?:/\S*/)?-?(?:ba|z|da|k|fi)?sh|\(eval\)|(?:/|\./)?[\w./-]+\.sh|\w+:\w+|/tmp/\S+|<stdin>)"
)
_PROGRAM_ERRORS = (
    r"(?:command )?not found|No such file or directory|Permission denied|Is a directory|cannot execute\b.*"
    r"|bad interpreter\b.*|Exec format error|Not a directory"
)
# The shell could not parse the command.
_SYNTAX_ERRORS = r"syntax error|unexpected EOF|parse error|Syntax error|unmatched"
# The shell aborted the command without naming a program.
_COMMAND_ERRORS = (
    rf"no matches found: |{_SYNTAX_ERRORS}|[\w\[\]]+: unbound variable|\w+: parameter (?:null|not set)"
    r"|(?:\S+: )?bad substitution|event not found|\S+: ambiguous redirect|cannot create \S+: |\S+: cannot overwrite"
)
_SHELL_ERROR = re.compile(
    rf"^{_SHELL_NAME}:(?:\w+:)?\s?(?:-c: )?(?:line )?(?:\d+:)?\s*(?:"
    rf"(?P<who>[^\s:]+): (?:{_PROGRAM_ERRORS})"
    r"|(?:command not found|permission denied|no such file or directory|not a directory|exec format error"
    r"|bad interpreter): (?P<zsh_who>\S+)"
    rf"|(?:{_COMMAND_ERRORS})|cd: .*)",
    _MULTILINE,
)
_SHELL_SYNTAX_ERROR = re.compile(
    rf"^{_SHELL_NAME}:(?:\w+:)?\s?(?:-c: )?(?:line )?(?:\d+:)?\s*(?:{_SYNTAX_ERRORS}).*", _MULTILINE
)
_WINDOWS_ERROR = re.compile(
    r"^(?:\S+ ?: (?:The term '.+' is not recognized|A parameter cannot be found|Cannot find path)|ParserError:|'.+' is not recognized as an internal|.*\bCommandNotFoundException)",
    _MULTILINE,
)
_PROGRAM_ERROR = re.compile(
    r"^(?:/\S*/)?(?P<who>[a-z][\w+-]{0,20}|\[): (?P<what>\S.*)$", _MULTILINE
)
_KNOWN_PROGRAMS = split_words(
    """
    cat head tail less nl sed awk gawk mawk cut sort uniq tr wc xxd od hexdump strings ls tree stat file
    du df cp mv rm mkdir rmdir touch ln chmod chown chgrp grep egrep fgrep rg find fd diff cmp patch tar
    gzip gunzip zip unzip xargs tee curl wget ssh scp rsync kill pkill ps lsof dd mktemp realpath
    readlink basename install jq yq env timeout cd pushd source bc date xmllint openssl base64 test comm
    join split shasum sha256sum md5sum truncate column expr which printf psql sqlite3 ssh-keygen nc dig
    host kubectl docker sudo su python python2 python3 node perl ruby java javac gcc g++ clang cc ld ar
    rustc dot ffmpeg ffprobe convert magick pdftotext pandoc svn hg tmux screen journalctl crontab at
    nohup strace gdb open pbcopy
    """
)
# These lines look like errors but are not.
_HARMLESS = re.compile(
    r".*: binary file matches|warning|note|info|downloading|finding|found|extracting|removing leading|binary file"
    r"|debug|hint|using|added|nothing to be done|entering directory|leaving directory|.* is up to date"
    r"|created directory|\(standard input\)|deprecat|notice|v?\d+[.\d]*|\S+:\d+:",
    re.IGNORECASE,
)


def find_error_line(body: str, deciding: DecidingCommands) -> str | None:
    """Return the line in which the shell or a deciding program reports an error, if any."""
    names = {
        command.program.removeprefix("./")
        for command in deciding.commands
        if not is_inline_script(command)
    }
    if deciding.commands and not names:
        return None
    for match in _SHELL_ERROR.finditer(body):
        program = match["who"] or match["zsh_who"]
        if (
            program is None
            or not names
            or _get_basename(program) in names
            or not body[match.end() :].strip()
        ):
            return match[0]
    if match := _WINDOWS_ERROR.search(body):
        return match[0]
    return find_program_error(body, names)


def find_program_error(body: str, names: Set[str]) -> str | None:
    """Return the first error line of a program in `names`, or of any known one if it is empty."""
    for match in _PROGRAM_ERROR.finditer(trim_middle(body, 600, 900)):
        program, message = match["who"], match["what"]
        if (
            program in _KNOWN_PROGRAMS
            and (program in names or not names)
            and not _HARMLESS.match(message)
        ):
            return match[0]
    return None


def find_syntax_error(body: str) -> str | None:
    """Return the shell's syntax error if the last lines contain one, even if it is masked."""
    match = _SHELL_SYNTAX_ERROR.search(get_last_lines(body, 3))
    return match[0] if match else None


def _get_basename(path: str) -> str:
    return path.strip("'\"`").rsplit("/", 1)[-1]
