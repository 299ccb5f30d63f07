"""Describe in one line what a call did, and in one line what went wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rekindle.types import JSON, Message, ToolCall

from .rules.command_output import strip_terminal_escapes
from .rules.error_lines import find_error_line
from .rules.evidence import Evidence, trim_middle
from .rules.tool_contract import extract_output, find_exit_status

MAX_LINE_CHARS = 400
_HEAD_CHARS, _TAIL_CHARS = 12_000, 24_000
_NO_RESULT = Message("tool")
_PATH_KEYS = ("file_path", "path", "filePath", "filename", "notebook_path", "target_file")
_TEXT_KEYS = ("pattern", "query", "url", "skill", "name", "description", "prompt", "subject")
_ERROR_KEYS = ("error", "message", "detail", "stderr", "output")
_PATCH_FILE = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (\S[^\n]*)", re.MULTILINE)
_CHANGE_FOLDER = re.compile(
    r"cd (?:'[^'\n]{0,400}'|\"[^\"\n]{0,400}\"|[^\s;&|'\"]{1,400})\s{0,9}(?:&&|;)"
)
_TAG = re.compile(r"</?(?:tool_use_error|error|tool_error|system|stderr|stdout|output)>")
_EXIT_LINE = re.compile(r"(?:Error: )?Exit code:? -?\d{1,10}\s*")
_USER_SAID = re.compile(
    r"(?:the user said:|following reason for the rejection:|User feedback:)\s*(\S[^\n]*)"
)
_PLAIN_REFUSAL = re.compile(
    r"The user doesn't want to|\[Request interrupted|User (?:rejected|did not allow)|Command aborted$"
)
# Lines that only repeat that something above them failed.
_WEAK = re.compile(
    r"(?i)exit status \d+$|FAIL$|FAIL\s+\S+(?: \[.*\]|\s+[\d.]+s)?$|make(?:\[\d+\])?: \*\*\*"
    r"|npm (?:err!|error)|\[[\w:-]+\] error\b|error task failed|elifecycle"
    r"|error: (?:process|command|script)|failed$|error:?$"
    r"|\d+ (?:errors?|failures?|failed)\b|command failed|command exited|Traceback \(|ok\s|=+ "
)
_BARE_LABEL = re.compile(r"(?i)(?:error|failed|failure)[:!]?$")
_OPTION = re.compile(r"--?[a-z]")
_EXCEPTION = re.compile(r"(?:[a-z_]\w*\.){0,6}[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b(?::|$)")
_FAILED_TEST = re.compile(
    r"--- FAIL: |FAILED \S|FAIL: \S|not ok \d|[✗✕✖×] \S|● \S|test \S+ \.\.\. FAILED"
)
_PLACE = re.compile(r"(?:\./|/)?[\w@+./-]{1,200}\.\w{1,8}:\d{1,7}(?::\d{1,7})?:?\s+\S")
_LABEL = re.compile(r"(?i)(?:\[?(?:error|fatal|panic|err)\b[\]!:\[(]|E\s{3}|error )")
_WORDS = re.compile(
    r"(?i)\b(?:error|fail(?:ed|ure|s)?|fatal|panic|cannot|can't|could not|couldn't|unable to|not found"
    r"|denied|no such|undefined|undeclared|invalid|unknown|unrecognized|unexpected|timed out|refused"
    r"|missing|does not exist|doesn't exist|not permitted|not allowed|exceeded|conflict|rejected"
    r"|expected)\b"
)
_MILD = re.compile(
    r"(?i)\bwarn(?:ing)?\b|\bdeprecat|\bhint:|\bnote:|\b0 (?:errors?|failed|failures)\b"
)


def summarize_call(call: ToolCall, folder: str | None = None) -> str:
    """Return what a call did in one line: its command, its file, or what it searched for.

    Paths below `folder` are shown relative to it.
    """
    evidence = Evidence(call, _NO_RESULT)
    arguments = evidence.arguments
    if evidence.shape in ("shell", "code") and evidence.command:
        command = evidence.command.lstrip()
        if moved := _CHANGE_FOLDER.match(command):
            command = command[moved.end() :]
        return _shorten_text(_get_first_line(command), folder)
    path = _find_text(arguments, _PATH_KEYS)
    text = _find_text(arguments, _TEXT_KEYS)
    patch = (
        call.arguments
        if isinstance(call.arguments, str)
        else _find_text(arguments, ("input", "patch"))
    )
    if not path and patch and (files := _PATCH_FILE.findall(patch[:20_000])):
        path = ", ".join(dict.fromkeys(files))
    found = f"{text} in {path}" if text and path and evidence.shape == "search" else path or text
    if not found:
        found = next((one for one in arguments.values() if isinstance(one, str) and one), "")
    return f"{call.name} {_shorten_text(found, folder)}".rstrip()


def find_problem(call: ToolCall, result: Message | None, folder: str | None = None) -> str:
    """Return the line of a failed call's result that says best what went wrong."""
    if result is None:
        return "no result"
    evidence = Evidence(call, result)
    meta = evidence.meta
    body = _read_body(evidence)
    if evidence.shape in ("shell", "code"):
        text = strip_terminal_escapes(trim_middle(body, _HEAD_CHARS, _TAIL_CHARS))
        reported = find_error_line(text, evidence.deciding_commands) if evidence.command else None
        line = _complete_line(text, reported) if reported else _choose_line(text.splitlines())
    else:
        lines = map(str.strip, body[:_HEAD_CHARS].splitlines())
        line = next((one for one in lines if one and not _BARE_LABEL.match(one)), "")
    if line:
        return _shorten_text(line, folder)
    code = meta.get("exit_code")
    if code is None and (status := find_exit_status(evidence)) is not None:
        code = status.code
    detail = meta.get("error") or meta.get("exception") or meta.get("status")
    if isinstance(detail, str) and detail:
        return _shorten_text(detail)
    return "no output" if code is None else f"exit code {code}, no output"


def find_refusal_reason(result: Message | None) -> str:
    """Return why a call was refused, in the words of the user or the rule; empty if none is given."""
    text = "" if result is None else _TAG.sub("", result.text[:_HEAD_CHARS]).strip()
    if said := _USER_SAID.search(text):
        return _shorten_text(said[1])
    return "" if _PLAIN_REFUSAL.match(text) else _shorten_text(text.partition("\n")[0])


def _read_body(evidence: Evidence) -> str:
    """Return the text of a result without the frame that the harness puts around it."""
    if record := evidence.record:
        found = _find_text(record, _ERROR_KEYS)
        if found:
            return found
    body = extract_output(evidence)
    return _EXIT_LINE.sub("", _TAG.sub("", body.lstrip()[:200]), count=1) + body.lstrip()[200:]


def _get_first_line(command: str) -> str:
    """Return the first line of a script that does something, with a mark if there are more."""
    lines = [line.strip() for line in command.replace("\\\n", " ").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    return "".join(lines[:1]) + (" …" if len(lines) > 1 else "")


def _complete_line(text: str, part: str) -> str:
    """Return the whole line that a part of a text is in."""
    end = text.find(part) + len(part)
    return part + text[end:].partition("\n")[0]


def _choose_line(lines: Sequence[str]) -> str:
    """Return the line with the most specific report of a failure, or else the last one."""
    best, score = "", 0
    is_traced = any(line.startswith("Traceback (") for line in lines)
    for index, raw in enumerate(lines):
        line = raw.strip()
        if not line:
            continue
        if is_traced and _EXCEPTION.match(raw):
            best, score = line, 11  # the last one is the one that was not caught
            continue
        points = _score_line(line[:1_000])
        if points > score:
            best, score = _add_reason(line, lines[index + 1 : index + 3]), points
    plain = [one.strip() for one in lines if one.strip() and not _MILD.search(one[:1_000])]
    if not best and plain and _OPTION.match(plain[-1]):
        return plain[0]  # a list of options follows what is wrong with those given
    return best or "".join(plain[-1:])


def _score_line(line: str) -> int:
    if _WEAK.match(line):
        return 1
    if _FAILED_TEST.match(line):
        return 9
    if _MILD.search(line) or _OPTION.match(line):
        return 0
    if _EXCEPTION.match(line):
        return 8
    if _PLACE.match(line):
        return 8 if _WORDS.search(line) else 7
    if _LABEL.match(line):
        return 9 if line[:5].lower() in ("fatal", "panic") else 8
    return 5 if _WORDS.search(line) else 0


def _add_reason(line: str, following: Sequence[str]) -> str:
    """Add the indented line below the name of a failed test, which says why it failed."""
    reason = next((one.strip() for one in following if one[:1].isspace() and one.strip()), "")
    if not (_FAILED_TEST.match(line) and reason) or _FAILED_TEST.match(reason) or " - " in line:
        return line
    return f"{line} {reason}"


def _find_text(fields: Mapping[str, JSON], names: Sequence[str]) -> str:
    return next(_iter_texts(fields, names), "")


def _iter_texts(fields: Mapping[str, JSON], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value.strip():
            yield value.strip()


def _shorten_text(text: str, folder: str | None = None) -> str:
    """Return a text as one line of bounded length, with paths below a folder relative to it."""
    if folder and len(folder) > 1:
        text = text[: 4 * MAX_LINE_CHARS].replace(folder.rstrip("/") + "/", "")
    line = " ".join(text[: 4 * MAX_LINE_CHARS].split())
    return line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - 1] + "…"
