"""Judges the output of a command by what the command itself wrote.

Where a harness gives no exit code, the last lines must speak. They do so only for the commands
that decide how the whole ended: what came before a `;`, what a pipe or `|| true` swallowed, and
what `cat`, `grep` or `git log` show of other people's failures does not count.
"""

from __future__ import annotations

import re
from itertools import takewhile

from . import programs, shell_commands
from .error_lines import complaint, given_up, own_complaint
from .evidence import TAIL, Evidence, ends, last_lines
from .signatures import EVERY, SUCCESS, Signatures
from .text_patterns import Wording
from .verdict import Outcome, error, expected, kind_from, of_kind, ok, unknown

# No failure is told without one of these; most outputs hold none, and are done with quickly.
HINTS = (
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
# What SWE-agent shows below every output.
_PROMPT = re.compile(r"\n?(?:\((?:Open file|Current directory): .*\)\n)+bash-\$\Z")
_BLANKS = re.compile(r"\n[ \t]*\n(?:[ \t]*\n)+")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_=>])")
_TRACE = re.compile(r"^([ \t|+]*)Traceback \(most recent call last\):\n", re.MULTILINE)
_UNPARSED = re.compile(
    r'^  File ".*", line \d+\n(?:.*\n){1,3}(?:Syntax|Indentation|Tab)Error: .*\s*\Z', re.MULTILINE
)
# A stack that is the last thing written, as Node and Deno leave it.
_STACK = re.compile(
    r"^\s+at .+:\d+:\d+\)?(?: \{(?:\n.*){0,12}\n\})?\s*(?:Node\.js v[\d.]+\s*)?\Z", re.MULTILINE
)
_COMMITTED = re.compile(r"^\[\S+ (?:\(root-commit\) )?[0-9a-f]{7,}\] ", re.MULTILINE)
_RULER = re.compile(r"([=\-_*.~#])\1{30,}")
_SHOWN = re.compile(r"print_exc|format_exc|traceback")
_INLINE_SAYS = ("end/exception", "end/stack")
_READERS_SAY = ("git/", "forge/", "client/", "lookup/")
_CLIENTS = {
    "client/curl": ("curl", "wget"),
    "client/ssh": ("ssh", "scp", "rsync", "git"),
    "client/postgres": ("psql",),
    "client/sqlite": ("sqlite3",),
    "client/mysql": ("mysql",),
}
_EXCEPTION = Wording("run/exception", "", confidence=0.92)
_CAUGHT = Wording("run/caught", "", confidence=0.75)

Found = tuple[Wording, str]


def plain(text: str) -> str:
    """Both ends of an output without colours and other orders to a terminal."""
    text = _PROMPT.sub("", ends(text)) if text.endswith("bash-$") else ends(text)
    if "=" * 200 in text or "-" * 200 in text:
        text = _RULER.sub(lambda match: match[1] * 30, text)
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = text.replace("\r", "\n")
    return _BLANKS.sub("\n\n", text) if "\n\n\n" in text else text


def told_command(text: str) -> str:
    """The command that a result repeats above its output, as newer versions of Codex do."""
    match = _COMMAND_LINE.match(text[:2_000])
    return match[1] if match else ""


def hints(text: str) -> bool:
    """Whether an output holds any word that a failure could be told with."""
    low = text.lower()
    return any(hint in low for hint in HINTS)


def signature(
    body: str, end: shell_commands.Ending, signatures: Signatures = EVERY, script: str = ""
) -> Found | None:
    """What an output says about a failure in the words of the program that failed, and where."""
    if end.steps and all(programs.is_reader(step) for step in end.steps):
        if any(programs.is_inline(step) for step in end.steps):
            return _inline_failed(body, script, signatures)
        return _reader_failed(body, end, signatures)
    if SUCCESS.match(last_lines(body, 1)):
        return None
    found = _raised(body) or signatures.anywhere(body, end)
    if found and found[0] is _CAUGHT:
        return signatures.last(found[1]) or found  # what the script says after it counts
    if found and found[0].name == "git/nothing" and _COMMITTED.search(body):
        return None  # said by a `git status` after the commit
    return found or signatures.last(last_lines(body, 3))


def _inline_failed(body: str, script: str, signatures: Signatures) -> Found | None:
    """A script on the command line prints what it likes; only an exception is its own."""
    if _SHOWN.search(script):
        return None  # it means to show exceptions
    found = _raised(body) or signatures.last(last_lines(body, 1))
    return found if found and (found[0] is _EXCEPTION or found[0].name in _INLINE_SAYS) else None


def _raised(text: str) -> Found | None:
    """The exception that ended a script, if it is the last thing that its output tells."""
    window = text[-TAIL:]
    if "  at " in window and _STACK.search(window):
        return _EXCEPTION, last_lines(window, 12)
    if "Error: " in window and (match := _UNPARSED.search(window)):
        return _EXCEPTION, match[0]
    traces = list(_TRACE.finditer(window))
    if not traces:
        return None
    margin = traces[-1][1]
    lines = window[traces[-1].end() :].splitlines()
    frames = sum(1 for _ in takewhile(lambda line: line.startswith(f"{margin} "), lines))
    after = [line for line in lines[frames + 1 :] if line.strip()]
    if frames >= len(lines) or len(after) > 4:
        return None
    said = lines[frames].strip()
    if _was_caught(window[: traces[0].start()], said):
        return _CAUGHT, "\n".join(after)
    return _EXCEPTION, said


def _was_caught(before: str, exception: str) -> bool:
    """Whether the script itself told of the exception before it showed where it came from."""
    message = exception.partition(": ")[2][:200]
    return len(message) > 5 and message in last_lines(before, 1)


def _reader_failed(body: str, end: shell_commands.Ending, signatures: Signatures) -> Found | None:
    """A command that shows others' text fails in its first words, or not visibly."""
    if len(body) > 1_000:
        return None
    found = signatures.anywhere(body.lstrip().split("\n", 1)[0], end)
    if found is None or not found[0].name.startswith(_READERS_SAY):
        return None
    client = _CLIENTS.get(found[0].name)
    return found if client is None or any(step.program in client for step in end.steps) else None


def is_red(body: str) -> bool:
    """Whether a test runner got as far as running tests, so that its failure is an answer."""
    tail = body[-TAIL:]
    return "build failed]" not in tail and "could not compile" not in tail


def ask(evidence: Evidence, signatures: Signatures) -> Outcome:
    """The verdict on the output of a command whose exit code nobody tells."""
    body = plain(evidence.text)
    if not body.strip():
        return unknown("text/empty")
    if not hints(body):
        return ok("text/no-sign", 0.85)
    end = evidence.ending if evidence.shape == "shell" else shell_commands.ending("")
    if unheard := given_up(body):
        return error(kind_from(unheard), "text/complaint", 0.9)
    if end.is_calm:
        # What stands at the end of a pipe may still not understand its own options.
        last = end.last.program if end.last else ""
        complained = own_complaint(body, {last}) if last in shell_commands.FILTERS else None
        if complained is None:
            return ok("text/masked", 0.85)
        return error(kind_from(complained), "text/complaint", 0.9)
    if complained := complaint(body, end):
        return error(kind_from(complained), "text/complaint", 0.9)
    found = signature(body, end, signatures, evidence.command)
    if found is None:
        return ok("text/no-sign", 0.8)
    said, line = found
    if said is _CAUGHT:
        return ok("text/run/caught", said.confidence)
    if said.outcome == "expected" or _is_answer(end, said, body):
        return expected(f"text/{said.name}", said.confidence, failed=True)
    return of_kind(said.kind or kind_from(line), said.outcome, f"text/{said.name}", said.confidence)


def _is_answer(end: shell_commands.Ending, said: Wording, body: str) -> bool:
    """Whether a failure is what a test runner or linter was asked to find."""
    if said.name.startswith("build/") and not is_red(body):
        return False
    return any(programs.is_test(step) or programs.is_lint(step) for step in end.steps)
