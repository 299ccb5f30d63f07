"""Judges a command by the output it wrote.

Without an exit code, the last lines are the evidence. They count only for the commands that decide
the exit code: commands before a `;`, failures hidden by a pipe or `|| true`, and other programs'
failures shown by `cat`, `grep` or `git log` do not count.
"""

from __future__ import annotations

import re
from itertools import takewhile

from . import deciding_commands, programs
from .error_lines import find_error_line, find_program_error, find_syntax_error
from .evidence import TAIL_CHARS, Evidence, get_last_lines, trim_middle
from .signatures import ALL_SIGNATURES, SUCCESS, SignatureRules
from .text_patterns import TextPattern
from .verdict import (
    Outcome,
    classify_error,
    make_error,
    make_expected,
    make_failure,
    make_ok,
    make_unknown,
)

# Every failure contains one of these words. Most outputs contain none and skip the slow checks.
FAILURE_HINTS = (
    "error", "fail", "fatal", "not found", "no such", "denied", "traceback", "cannot", "can't",
    "could", "unable", "panic", "abort", "invalid", "unknown", "usage", "unrecognized", "illegal",
    "exception", "permi", "***", "err!", "elifecycle", "conflict", "rejected", "nothing",
    "no changes", "issue", "offense", "reformat", "problem", "kill", "terminated", "segmentation",
    "exit", "✗", "✘", "✖", "❌", "●", "×", "🥊", "not ok", "command", "no matches", "unexpected",
    "unbound", "refused", "no space", "interrupt", "solution", "daemon", "missing", "required",
    "must be", "specify", "dumped", "style", "not recognized", "no tests", "collected 0", "bad ",
    "unmatched", "is a directory", "argument", "syntax", "timed out", "err_", "e: ", "no pull",
    "no default", "no git", "no checks", "no runs", "no commits", "node.js v", ".rb:", ".go:",
    "graphql", "http ", "gh: ", "get started", "x some", "unstaged", "yn0", "no rebase", "curl: ",
    "wget: ", "ssh: ", "  at ", "no module", "unused", "unlisted", "unresolved", "duplicate",
    "referenced", " line ", "undefined", "ld: ", "gem", "in (", "breakpoint", "floating",
    "docker: ", "no config", "incomplete", "incorrectly", "violation", "vulnerab", "declined",
    "kex_", "does not", "is not", "overwrite", "psql", "hh", "node:internal", "accepts", "differ",
    "cc1", "not complete", "do *not*", "categoryinfo", "^c", "deselected", "ignored", "\tat ",
)  # fmt: skip
_COMMAND_LINE = re.compile(r"Command: (.+)")
# The prompt that SWE-agent prints below every output.
_PROMPT = re.compile(
    r"\n?(?:^\((?:Open file|Current directory): .*\)\n){1,4}bash-\$\Z", re.MULTILINE
)
_BLANK_LINES = re.compile(r"\n[ \t]*\n(?:[ \t]*\n)+")
_TERMINAL_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_=>])"
)
_TRACEBACK = re.compile(r"^([ \t|+]*)Traceback \(most recent call last\):\n", re.MULTILINE)
_PYTHON_SYNTAX_ERROR = re.compile(
    r'^  File ".*", line \d+\n(?:.*\n){1,3}(?:Syntax|Indentation|Tab)Error: .*\s*\Z', re.MULTILINE
)
# A stack trace at the very end, as Node and Deno print it.
_FINAL_STACK = re.compile(
    r"^[^\S\n]+at .+:\d+:\d+\)?(?: \{(?:\n.*){0,12}\n\})?\s*(?:Node\.js v[\d.]+\s*)?\Z",
    re.MULTILINE,
)
_COMMITTED = re.compile(r"^\[\S+ (?:\(root-commit\) )?[0-9a-f]{7,}\] ", re.MULTILINE)
_RULER = re.compile(r"([=\-_*.~#])\1{30,}")
_PRINTS_TRACEBACK = re.compile(r"print_exc|format_exc|traceback")
_INLINE_SIGNATURES = ("end/exception", "end/stack")
_READER_SIGNATURES = ("git/", "forge/", "client/", "lookup/")
_CLIENT_PROGRAMS = {
    "client/curl": ("curl", "wget"),
    "client/ssh": ("ssh", "scp", "rsync", "git"),
    "client/postgres": ("psql",),
    "client/sqlite": ("sqlite3",),
    "client/mysql": ("mysql",),
}
_EXCEPTION = TextPattern("run/exception", "", confidence=0.92)
_CAUGHT = TextPattern("run/caught", "", confidence=0.75)

SignatureMatch = tuple[TextPattern, str]


def clean_output(text: str) -> str:
    """Return both ends of an output without colors and other terminal escapes."""
    text = _PROMPT.sub("", trim_middle(text)) if text.endswith("bash-$") else trim_middle(text)
    if "=" * 200 in text or "-" * 200 in text:
        text = _RULER.sub(lambda match: match[1] * 30, text)
    text = strip_terminal_escapes(text)
    return _BLANK_LINES.sub("\n\n", text) if "\n\n\n" in text else text


def strip_terminal_escapes(text: str) -> str:
    """Return a text without colors and other terminal escapes, and with plain ends of lines."""
    if "\x1b" in text:
        text = _TERMINAL_ESCAPES.sub("", text)
    return text.replace("\r", "\n") if "\r" in text else text


def parse_echoed_command(text: str) -> str:
    """Return the command that a result repeats above its output, as newer Codex versions do."""
    match = _COMMAND_LINE.match(text[:2_000])
    return match[1] if match else ""


def has_failure_hint(text: str) -> bool:
    """Return whether an output contains any word that could indicate a failure."""
    low = text.lower()
    return any(hint in low for hint in FAILURE_HINTS)


def find_signature(
    body: str,
    deciding: deciding_commands.DecidingCommands,
    signatures: SignatureRules = ALL_SIGNATURES,
    script: str = "",
) -> SignatureMatch | None:
    """Return the failure signature in an output and the text that matched, if any."""
    if deciding.commands and all(programs.is_reader(command) for command in deciding.commands):
        if any(programs.is_inline_script(command) for command in deciding.commands):
            return _find_inline_failure(body, script, signatures)
        return _find_reader_failure(body, deciding, signatures)
    if SUCCESS.match(get_last_lines(body, 1)):
        return None
    found = _find_exception(body) or signatures.find_anywhere(body, deciding)
    if found and found[0] is _CAUGHT:
        return (
            signatures.find_in_last_lines(found[1]) or found
        )  # the text after the traceback decides
    if found and found[0].name == "git/nothing" and _COMMITTED.search(body):
        return None  # printed by a `git status` after the commit
    return found or signatures.find_in_last_lines(get_last_lines(body, 3))


def _find_inline_failure(
    body: str, script: str, signatures: SignatureRules
) -> SignatureMatch | None:
    """Find the exception of an inline script; anything else it prints does not count."""
    if _PRINTS_TRACEBACK.search(script):
        return None  # the script prints tracebacks on purpose
    found = _find_exception(body) or signatures.find_in_last_lines(get_last_lines(body, 1))
    return (
        found if found and (found[0] is _EXCEPTION or found[0].name in _INLINE_SIGNATURES) else None
    )


def _find_exception(text: str) -> SignatureMatch | None:
    """Return the exception that ended a script, if it is the last thing in the output."""
    window = text[-TAIL_CHARS:]
    if "  at " in window and _FINAL_STACK.search(window):
        return _EXCEPTION, get_last_lines(window, 12)
    if "Error: " in window and (match := _PYTHON_SYNTAX_ERROR.search(window)):
        return _EXCEPTION, match[0]
    traces = list(_TRACEBACK.finditer(window))
    if not traces:
        return None
    margin = traces[-1][1]
    lines = window[traces[-1].end() :].splitlines()
    frames = sum(1 for _ in takewhile(lambda line: line.startswith(f"{margin} "), lines))
    after = [line for line in lines[frames + 1 :] if line.strip()]
    if frames >= len(lines) or len(after) > 4:
        return None
    exception = lines[frames].strip()
    if _is_caught(window[: traces[0].start()], exception):
        return _CAUGHT, "\n".join(after)
    return _EXCEPTION, exception


def _is_caught(before: str, exception: str) -> bool:
    """Return whether the script reported the exception itself before printing the traceback."""
    message = exception.partition(": ")[2][:200]
    return len(message) > 5 and message in get_last_lines(before, 1)


def _find_reader_failure(
    body: str, deciding: deciding_commands.DecidingCommands, signatures: SignatureRules
) -> SignatureMatch | None:
    """Find the failure of a command that prints other text; only its first line counts."""
    if len(body) > 1_000:
        return None
    found = signatures.find_anywhere(body.lstrip().split("\n", 1)[0], deciding)
    if found is None or not found[0].name.startswith(_READER_SIGNATURES):
        return None
    client_programs = _CLIENT_PROGRAMS.get(found[0].name)
    return (
        found
        if client_programs is None
        or any(command.program in client_programs for command in deciding.commands)
        else None
    )


def has_run_tests(body: str) -> bool:
    """Return whether a test runner got as far as running tests."""
    tail = body[-TAIL_CHARS:]
    return "build failed]" not in tail and "could not compile" not in tail


def judge_output(evidence: Evidence, signatures: SignatureRules) -> Outcome:
    """Judge the output of a command whose exit code is unknown."""
    body = clean_output(evidence.text)
    if not body.strip():
        return make_unknown("text/empty")
    if not has_failure_hint(body):
        return make_ok("text/no-sign", 0.85)
    deciding = (
        evidence.deciding_commands
        if evidence.shape == "shell"
        else deciding_commands.find_deciding_commands("")
    )
    if syntax_error := find_syntax_error(body):
        return make_error(classify_error(syntax_error), "text/complaint", 0.9)
    if deciding.always_succeeds:
        # The last command of a pipe may still reject its own options.
        last = deciding.last.program if deciding.last else ""
        error_line = find_program_error(body, {last}) if last in deciding_commands.FILTERS else None
        if error_line is None:
            return make_ok("text/masked", 0.85)
        return make_error(classify_error(error_line), "text/complaint", 0.9)
    if error_line := find_error_line(body, deciding):
        return make_error(classify_error(error_line), "text/complaint", 0.9)
    found = find_signature(body, deciding, signatures, evidence.command)
    if found is None:
        return make_ok("text/no-sign", 0.8)
    pattern, line = found
    if pattern is _CAUGHT:
        return make_ok("text/run/caught", pattern.confidence)
    if pattern.outcome == "expected" or _is_expected_finding(deciding, pattern, body):
        return make_expected(f"text/{pattern.name}", pattern.confidence, failed=True)
    return make_failure(
        pattern.kind or classify_error(line),
        pattern.outcome,
        f"text/{pattern.name}",
        pattern.confidence,
    )


def _is_expected_finding(
    deciding: deciding_commands.DecidingCommands, pattern: TextPattern, body: str
) -> bool:
    """Return whether the failure is what a test runner or linter was run to find."""
    if pattern.name.startswith("build/") and not has_run_tests(body):
        return False
    return any(
        programs.is_test_runner(command) or programs.is_linter(command)
        for command in deciding.commands
    )
