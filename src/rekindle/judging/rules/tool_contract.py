"""What a tool promises to say in its result: an exit code, a flag, an error field.

The forms are those that the harnesses document or print around a command's own output: above it
(Claude Code, Codex, mini-swe-agent, Gemini CLI, Cursor), below it (Copilot CLI, pi, OpenHands), or
as JSON (Hermes, Codex before 0.40, Amp, mini-swe-agent 2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, cast

from rekindle.types import JSON

from . import exit_codes
from .evidence import Evidence
from .text_patterns import words
from .verdict import Outcome, error, kind_from, of_kind, ok, unknown


class Exit(NamedTuple):
    """An exit code that a result tells, the output without it, and whether it came first."""

    code: int
    body: str
    opens: bool = False


_CODE = r"(-?\d{1,10})"
_CLAUDE = re.compile(rf"\s*(?:<error>)?(?:Error: )?Exit code:? {_CODE}\b[ \t]*\n?")
_TAGGED = re.compile(
    rf"\s*<(?:returncode|exit_code|exitcode)>\s*{_CODE}\s*</(?:returncode|exit_code|exitcode)>"
)
# A harness that could not run the command says so before the code (mini-swe-agent 2).
_RAISED = re.compile(rf"<exception>.{{0,20000}}?</exception>{_TAGGED.pattern}", re.DOTALL)
_CODEX = re.compile(rf"^(?:Process exited with code|Exit code:) {_CODE}\s*$", re.MULTILINE)
_CODEX_HEADER = (
    "Chunk ID:",
    "Wall time:",
    "Command: ",
    "Process exited",
    "Exit code:",
    "Warning: ",
)
_CODEX_OUTPUT = re.compile(r"^(?:Output|Total output lines):[^\n]*\n?", re.MULTILINE)
_RUNNING = re.compile(r"^Process running with session ID", re.MULTILINE)
_GEMINI = re.compile(rf"^Exit Code: {_CODE}\s*$", re.MULTILINE)
# Newer versions name the exit code only where it is not zero, but always the group.
_GEMINI_END = re.compile(
    r"^(?:Process Group PGID|Background PIDs): [\d, ()a-z]+\s*\Z", re.MULTILINE
)
_BELOW = re.compile(
    r"(?:^|\n)\s*(?:"
    rf"<(?:shellId: \S+|command|process|shell)? ?(?:completed|exited|finished) with exit code {_CODE}>"
    r"|\[?(?:The )?(?:[Cc]ommand|[Pp]rocess|[Ss]hell)(?: \w+)?"
    r" (?:exited|completed|finished|failed|terminated)"
    rf" with (?:exit )?(?:code|status):? {_CODE}[.\])]*"
    r")\s*$"
)
_HEADER = 600
_TRAILER = 400
_OUTPUT_TAG = re.compile(r"<output(?:_head)?>\n?(.*?)(?:</output(?:_tail)?>\s*$|\Z)", re.DOTALL)
_EMPTY = re.compile(
    r"\s*(?:\((?:Bash|no output|empty|Command|No output)[^\n]*\)|<empty>|\(empty\)"
    r"|<system>Tool ran without output or errors</system>"
    r"|Your command ran successfully and did not produce any output\.?)\s*$"
)


def exit_code(evidence: Evidence) -> Exit | None:
    """The exit code that the text tells in one of the forms that harnesses print it in."""
    text = evidence.text
    head = text[:_HEADER]
    if match := _CLAUDE.match(head):
        return Exit(int(match[1]), _plain(text[match.end() :]), opens=True)
    if match := (_RAISED if head.startswith("<exception>") else _TAGGED).match(text):
        inner = _OUTPUT_TAG.search(text, match.end())
        return Exit(int(match[1]), inner[1] if inner else text[match.end() :])
    if head.startswith(_CODEX_HEADER):
        cut = _CODEX_OUTPUT.search(head)
        if match := _CODEX.search(head[: cut.start()] if cut else head):
            return Exit(int(match[1]), text[cut.end() :] if cut else "")
    tail = text[-_TRAILER:]
    if " with " in tail and (match := _BELOW.search(tail)):
        return Exit(int(match[1] or match[2]), text[: len(text) - len(tail) + match.start()])
    if text.startswith(("Command: ", "Output: ", "Directory: ")) and (
        match := _GEMINI.search(tail)
    ):
        return Exit(int(match[1]), text)
    return None


def _plain(text: str) -> str:
    return text.removesuffix("</error>")


def body(evidence: Evidence) -> str:
    """The output of a command, without what the harness wrote around it."""
    found = exit_code(evidence)
    return evidence.text if found is None else found.body


def ask(evidence: Evidence) -> Outcome | None:
    """The verdict of the tool's contract, or None where the result keeps none."""
    text = evidence.text
    if evidence.shape in ("shell", "code", "call") and text[:1] != "{":
        if text.startswith(_CODEX_HEADER) and _RUNNING.search(text[:_HEADER]):
            return unknown("contract/running")
        if found := exit_code(evidence):
            return _of_exit(found.code, evidence, found.body)
        if text.startswith("Output: ") and _GEMINI_END.search(text[-_TRAILER:]):
            return ok("contract/no-exit-code", 0.95)
        if match := _SCRIPT.match(text):
            return _script(match[1], text)
    if text[:1] == "{":
        return _record(evidence)
    if len(text) < 200 and _EMPTY.match(text):
        return ok("contract/no-output", 0.97)
    if text.startswith("<tool_use_error>"):
        kind = "edit" if evidence.shape == "edit" else "arguments"
        return error(kind_from(text[:400], kind), "contract/tool-use-error", 0.98)
    return None


def _of_exit(code: int, evidence: Evidence, output: str) -> Outcome:
    if code == 0:
        return ok("contract/exit-code", 0.98)
    return exit_codes.of_exit(code, evidence, output, "contract/exit-code", 0.97)


# The head of a result in Codex's code mode.
_SCRIPT = re.compile(r"Script (completed|failed|running)\b[^\n]*\nWall time")


def _script(how: str, text: str) -> Outcome:
    if how == "failed":
        return error(kind_from(text[:600]), "contract/script", 0.97)
    return unknown("contract/running") if how == "running" else ok("contract/script", 0.95)


_CODES = ("exit_code", "exitCode", "returncode", "return_code", "exit_status", "exitStatus")
_OUTPUTS = ("output", "stdout", "stderr", "error", "content")
_MESSAGES = words(
    """
    error success ok message path file status detail details code hint suggestion suggestions
    similar_files reason type name id tool is_error isError file_path errors data result
    """
)
_LAST_CODE = re.compile(
    rf'"(?:exit_code|exitCode|returncode)"\s*:\s*{_CODE}[^{{}}]{{0,300}}\}}+\s*$'
)
_FIRST_FLAG = re.compile(r'\{\s*"(?:success|ok)"\s*:\s*false\b|\{\s*"error"\s*:\s*"[^"]')


def _record(evidence: Evidence) -> Outcome | None:
    record = evidence.record
    if not record:
        return _cut_record(evidence)
    shell = evidence.shape in ("shell", "code")
    code, output = _told_code(record)
    if code is not None and (shell or any(name in record for name in _OUTPUTS)):
        if code != 0:
            return exit_codes.of_exit(code, evidence, output, "contract/exit-code", 0.97)
        if not record.get("error"):
            return ok("contract/exit-code", 0.97)
    if shell and code is None and not ("error" in record and _FLAGS & record.keys()):
        fine = record.get("status") in ("success", "completed") and "output" in record
        # Else it is what a command printed, not what the tool says.
        return ok("contract/status", 0.9) if fine else None
    if evidence.shape in ("read", "search") and not _is_message(record):
        return None  # a file may well hold such an object
    return _flags(record)


def _is_message(record: Mapping[str, JSON]) -> bool:
    """Whether an object is a tool's own report, and not something that the tool has read."""
    found = [record[name] for name in ("content", "matches", "results", "files") if name in record]
    return record.keys() <= _MESSAGES or (bool(found) and not any(found))


_FLAGS = frozenset(("status", "exit_code", "timed_out", "blocked", "returncode"))


def _told_code(record: Mapping[str, JSON]) -> tuple[int | None, str]:
    about = record.get("metadata")
    inner: Mapping[str, JSON] = (
        cast("Mapping[str, JSON]", about) if isinstance(about, Mapping) else {}
    )
    for fields in (record, inner):
        for name in _CODES:
            code = fields.get(name)
            if isinstance(code, int) and not isinstance(code, bool):
                said = [record.get(key) for key in _OUTPUTS]
                return code, "\n".join(text for text in said if isinstance(text, str) and text)
    return None, ""


def _flags(record: Mapping[str, JSON]) -> Outcome | None:
    wrong = record.get("error")
    told = str(wrong or record.get("message") or record.get("detail") or "")[:600]
    says = {
        "contract/error": wrong and wrong not in ("none", "None", "null"),
        "contract/success": record.get("success") is False or record.get("ok") is False,
        "contract/is-error": record.get("is_error") is True or record.get("isError") is True,
        "contract/status": record.get("status") in ("error", "failed")
        and (told or len(record) <= 2),
    }
    rule = next((rule for rule, holds in says.items() if holds), None)
    if rule is not None:
        denied = re.match(r"(?i)\W*(?:user (?:denied|rejected)|blocked|denied|rejected)", told)
        outcome = "refused" if denied else "error"
        return of_kind("permission" if denied else kind_from(told), outcome, rule, 0.95)
    if record.get("success") is True or record.get("ok") is True:
        return ok("contract/success", 0.95)
    return ok("contract/error", 0.93) if "error" in record else None


def _cut_record(evidence: Evidence) -> Outcome | None:
    """An object that the harness cut, or one too long to be worth reading whole."""
    if evidence.shape in ("shell", "code") and (
        match := _LAST_CODE.search(evidence.text[-_TRAILER:])
    ):
        return _of_exit(int(match[1]), evidence, evidence.text)
    if evidence.shape == "call" and _FIRST_FLAG.match(evidence.text[:200]):
        return error(kind_from(evidence.text[:600]), "contract/error", 0.9)
    return None
