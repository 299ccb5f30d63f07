"""What an exit code other than zero means for the command that gave it."""

from __future__ import annotations

from . import command_output, programs, shell_commands
from .error_lines import complaint
from .evidence import Evidence, ends, last_lines
from .verdict import Outcome, error, expected, kind_from

_BY_SIGNAL = {124: "timeout", 130: "interrupted", 137: "interrupted", 143: "interrupted"}


def of_exit(code: int, evidence: Evidence, body: str, rule: str, confidence: float) -> Outcome:
    """The outcome of a command that ended with `code`, given what it wrote."""
    end = evidence.ending if evidence.shape in ("shell", "call") else shell_commands.ending("")
    if not end.steps and (told := command_output.told_command(evidence.text)):
        end = shell_commands.ending(told)
    body = command_output.plain(body)
    complained = complaint(body, end)
    if complained is None and _found_nothing(code, end, body):
        return expected(f"{rule}/search-without-hit", confidence, failed=False)
    if kind := _BY_SIGNAL.get(code):
        return error(kind, rule, confidence)
    if code in (126, 127):
        return error("permission" if code == 126 else "command", rule, confidence)
    if complained is None:
        if any(programs.is_test(step) for step in end.steps) and command_output.is_red(body):
            return expected(f"{rule}/failing-tests", confidence, failed=True)
        if any(programs.is_lint(step) for step in end.steps) and body.strip():
            return expected(f"{rule}/findings", confidence, failed=True)
        if end.last is not None and code == 1 and programs.is_lookup(end.last):
            return expected(f"{rule}/not-there", confidence, failed=True)
    told = complained or f"{last_lines(body, 8)}\n{ends(body, 300, 0)}"
    return error(kind_from(told), rule, confidence)


def _found_nothing(code: int, end: shell_commands.Ending, body: str) -> bool:
    if code != 1 or end.last is None or not programs.is_search(end.last):
        return False
    # Where others could have ended the chain before the search, their failure would show.
    return end.alone or command_output.signature(body, end) is None
