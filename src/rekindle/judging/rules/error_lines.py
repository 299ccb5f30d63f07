# ruff: noqa: E501  (a pattern stays on one line)
"""The complaints of shells and small tools: `name: what is wrong`, on a line of its own.

They count for the commands that decide how the whole ended, and near the ends of the output: a
file or a log that was shown may hold such lines as well.
"""

from __future__ import annotations

import re
from collections.abc import Set

from .evidence import ends, last_lines
from .programs import is_inline
from .shell_commands import Ending
from .text_patterns import words

_LINES = re.MULTILINE
_SHELL = (
    r"(?:(?:/\S*/)?-?(?:ba|z|da|k|fi)?sh|\(eval\)|(?:/|\./)?[\w./-]+\.sh|\w+:\w+|/tmp/\S+|<stdin>)"
)
_WHAT = (
    r"(?:command )?not found|No such file or directory|Permission denied|Is a directory|cannot execute\b.*"
    r"|bad interpreter\b.*|Exec format error|Not a directory"
)
# The whole command was not understood.
_UNPARSED = r"syntax error|unexpected EOF|parse error|Syntax error|unmatched"
# It was given up for a reason that names no program.
_WHOLE = (
    rf"no matches found: |{_UNPARSED}|[\w\[\]]+: unbound variable|\w+: parameter (?:null|not set)"
    r"|(?:\S+: )?bad substitution|event not found|\S+: ambiguous redirect|cannot create \S+: |\S+: cannot overwrite"
)
_UNABLE = re.compile(
    rf"^{_SHELL}:(?:\w+:)?\s?(?:-c: )?(?:line )?(?:\d+:)?\s*(?:"
    rf"(?P<who>[^\s:]+): (?:{_WHAT})"
    r"|(?:command not found|permission denied|no such file or directory|not a directory|exec format error"
    r"|bad interpreter): (?P<zsh_who>\S+)"
    rf"|(?:{_WHOLE})|cd: .*)",
    _LINES,
)
_GIVEN_UP = re.compile(
    rf"^{_SHELL}:(?:\w+:)?\s?(?:-c: )?(?:line )?(?:\d+:)?\s*(?:{_UNPARSED}).*", _LINES
)
_WINDOWS = re.compile(
    r"^(?:\S+ ?: (?:The term '.+' is not recognized|A parameter cannot be found|Cannot find path)|ParserError:|'.+' is not recognized as an internal|.*\bCommandNotFoundException)",
    _LINES,
)
_COMPLAINT = re.compile(r"^(?:/\S*/)?(?P<who>[a-z][\w+-]{0,20}|\[): (?P<what>\S.*)$", _LINES)
_COMPLAINERS = words(
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
# The form is that of a complaint, the matter is not.
_HARMLESS = re.compile(
    r".*: binary file matches|warning|note|info|downloading|finding|found|extracting|removing leading|binary file"
    r"|debug|hint|using|added|nothing to be done|entering directory|leaving directory|.* is up to date"
    r"|created directory|\(standard input\)|deprecat|notice|v?\d+[.\d]*|\S+:\d+:",
    re.IGNORECASE,
)


def complaint(body: str, end: Ending) -> str | None:
    """The line in which the shell or a deciding program says that it could not do its work."""
    names = {step.program.removeprefix("./") for step in end.steps if not is_inline(step)}
    if end.steps and not names:
        return None
    for match in _UNABLE.finditer(body):
        who = match["who"] or match["zsh_who"]
        if who is None or not names or _base(who) in names or not body[match.end() :].strip():
            return match[0]
    if match := _WINDOWS.search(body):
        return match[0]
    return own_complaint(body, names)


def own_complaint(body: str, names: Set[str]) -> str | None:
    """The line in which one of these programs, or any where none is named, complains itself."""
    for match in _COMPLAINT.finditer(ends(body, 600, 900)):
        who, what = match["who"], match["what"]
        if who in _COMPLAINERS and (who in names or not names) and not _HARMLESS.match(what):
            return match[0]
    return None


def given_up(body: str) -> str | None:
    """The shell's last word, where it did not understand the command, whatever is masked in it."""
    match = _GIVEN_UP.search(last_lines(body, 3))
    return match[0] if match else None


def _base(path: str) -> str:
    return path.strip("'\"`").rsplit("/", 1)[-1]
