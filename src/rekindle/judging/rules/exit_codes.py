"""The meaning of a non-zero exit code for the command that returned it."""

from __future__ import annotations

from . import command_output, deciding_commands, programs
from .error_lines import find_error_line
from .evidence import Evidence, get_last_lines, trim_middle
from .verdict import Outcome, classify_error, make_error, make_expected

_KIND_BY_CODE = {124: "timeout", 130: "interrupted", 137: "interrupted", 143: "interrupted"}


def judge_exit_code(
    code: int, evidence: Evidence, body: str, rule: str, confidence: float
) -> Outcome:
    """Judge a command that exited with `code` and wrote `body`."""
    deciding = (
        evidence.deciding_commands
        if evidence.shape in ("shell", "call")
        else deciding_commands.find_deciding_commands("")
    )
    if not deciding.commands and (text := command_output.parse_echoed_command(evidence.text)):
        deciding = deciding_commands.find_deciding_commands(text)
    body = command_output.clean_output(body)
    error_line = find_error_line(body, deciding)
    if error_line is None and _is_empty_search(code, deciding, body):
        return make_expected(f"{rule}/search-without-hit", confidence, failed=False)
    if kind := _KIND_BY_CODE.get(code):
        return make_error(kind, rule, confidence)
    if code in (126, 127):
        return make_error("permission" if code == 126 else "command", rule, confidence)
    if error_line is None:
        if any(
            programs.is_test_runner(command) for command in deciding.commands
        ) and command_output.has_run_tests(body):
            return make_expected(f"{rule}/failing-tests", confidence, failed=True)
        if any(programs.is_linter(command) for command in deciding.commands) and body.strip():
            return make_expected(f"{rule}/findings", confidence, failed=True)
        if deciding.last is not None and code == 1 and programs.is_lookup(deciding.last):
            return make_expected(f"{rule}/not-there", confidence, failed=True)
    text = error_line or f"{get_last_lines(body, 8)}\n{trim_middle(body, 300, 0)}"
    return make_error(classify_error(text), rule, confidence)


def _is_empty_search(code: int, deciding: deciding_commands.DecidingCommands, body: str) -> bool:
    if code != 1 or deciding.last is None or not programs.is_search(deciding.last):
        return False
    # If an earlier command had ended the chain before the search, its failure would be visible.
    return deciding.is_single or command_output.find_signature(body, deciding) is None
