"""Find the commands of a command line that decide its exit code."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from rekindle.shell.command_reader import SimpleCommand, split_commands

from .text_patterns import split_words

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
