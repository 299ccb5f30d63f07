"""What a tool reports in its own result: an exit code, a flag, an error field.

The formats are those that harnesses document or print around a command's output: above it
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
from .text_patterns import split_words
from .verdict import Outcome, classify_error, make_error, make_ok, make_refused, make_unknown


class ExitStatus(NamedTuple):
    """An exit code found in a result, the output without it, and whether it came first."""

    code: int
    body: str
    is_at_start: bool = False


_CODE = r"(-?\d{1,10})"
_CLAUDE_EXIT = re.compile(rf"\s*(?:<error>)?(?:Error: )?Exit code:? {_CODE}\b[ \t]*\n?")
_TAGGED_EXIT = re.compile(
    rf"\s*<(?:returncode|exit_code|exitcode)>\s*{_CODE}\s*</(?:returncode|exit_code|exitcode)>"
)
# mini-swe-agent 2 prints an exception before the exit code if it could not run the command.
_EXCEPTION_AND_EXIT = re.compile(
    rf"<exception>.{{0,20000}}?</exception>{_TAGGED_EXIT.pattern}", re.DOTALL
)
_CODEX_EXIT = re.compile(rf"^(?:Process exited with code|Exit code:) {_CODE}\s*$", re.MULTILINE)
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
_GEMINI_EXIT = re.compile(rf"^Exit Code: {_CODE}\s*$", re.MULTILINE)
# Newer versions print the exit code only if it is not zero, but always the process group.
_GEMINI_END = re.compile(
    r"^(?:Process Group PGID|Background PIDs): [\d, ()a-z]++\s*\Z", re.MULTILINE
)
_EXIT_TRAILER = re.compile(
    r"(?:\A|(?<=\S)(?=[^\S\n]*+\n))\s*+(?:"
    rf"<(?:shellId: \S+|command|process|shell)? ?(?:completed|exited|finished) with exit code {_CODE}>"
    r"|\[?(?:The )?(?:[Cc]ommand|[Pp]rocess|[Ss]hell)(?: \w+)?"
    r" (?:exited|completed|finished|failed|terminated)"
    rf" with (?:exit )?(?:code|status):? {_CODE}[.\])]*"
    r")\s*$"
)
_HEADER_CHARS = 600
_TRAILER_CHARS = 400
_OUTPUT_TAG = re.compile(r"<output(?:_head)?>\n?(.*?)(?:</output(?:_tail)?>\s*$|\Z)", re.DOTALL)
_NO_OUTPUT = re.compile(
    r"\s*(?:\((?:Bash|no output|empty|Command|No output)[^\n]*\)|<empty>|\(empty\)"
    r"|<system>Tool ran without output or errors</system>"
    r"|Your command ran successfully and did not produce any output\.?)\s*$"
)


def find_exit_status(evidence: Evidence) -> ExitStatus | None:
    """Return the exit code that the text contains in one of the harness formats, if any."""
    text = evidence.text
    head = text[:_HEADER_CHARS]
    if match := _CLAUDE_EXIT.match(head):
        return ExitStatus(int(match[1]), _strip_error_tag(text[match.end() :]), is_at_start=True)
    if match := (_EXCEPTION_AND_EXIT if head.startswith("<exception>") else _TAGGED_EXIT).match(
        text
    ):
        inner = _OUTPUT_TAG.search(text, match.end())
        return ExitStatus(int(match[1]), inner[1] if inner else text[match.end() :])
    if head.startswith(_CODEX_HEADER):
        cut = _CODEX_OUTPUT.search(head)
        if match := _CODEX_EXIT.search(head[: cut.start()] if cut else head):
            return ExitStatus(int(match[1]), text[cut.end() :] if cut else "")
    tail = text[-_TRAILER_CHARS:]
    if " with " in tail and (match := _EXIT_TRAILER.search(tail)):
        return ExitStatus(int(match[1] or match[2]), text[: len(text) - len(tail) + match.start()])
    if text.startswith(("Command: ", "Output: ", "Directory: ")) and (
        match := _GEMINI_EXIT.search(tail)
    ):
        return ExitStatus(int(match[1]), text)
    return None


def _strip_error_tag(text: str) -> str:
    return text.removesuffix("</error>")


def extract_output(evidence: Evidence) -> str:
    """Return the command's output without the text that the harness added."""
    found = find_exit_status(evidence)
    return evidence.text if found is None else found.body


def judge_contract(evidence: Evidence) -> Outcome | None:
    """Judge the call by its tool's contract; return None if the result follows none."""
    text = evidence.text
    if evidence.shape in ("shell", "code", "call") and text[:1] != "{":
        if text.startswith(_CODEX_HEADER) and _RUNNING.search(text[:_HEADER_CHARS]):
            return make_unknown("contract/running")
        if found := find_exit_status(evidence):
            return _judge_exit_code(found.code, evidence, found.body)
        if text.startswith("Output: ") and _GEMINI_END.search(text[-_TRAILER_CHARS:]):
            return make_ok("contract/no-exit-code", 0.95)
        if match := _SCRIPT_HEADER.match(text):
            return _judge_script(match[1], text)
    if text[:1] == "{":
        return _judge_record(evidence)
    if len(text) < 200 and _NO_OUTPUT.match(text):
        return make_ok("contract/no-output", 0.97)
    if text.startswith("<tool_use_error>"):
        kind = "edit" if evidence.shape == "edit" else "arguments"
        return make_error(classify_error(text[:400], kind), "contract/tool-use-error", 0.98)
    return None


def _judge_exit_code(code: int, evidence: Evidence, output: str) -> Outcome:
    if code == 0:
        return make_ok("contract/exit-code", 0.98)
    return exit_codes.judge_exit_code(code, evidence, output, "contract/exit-code", 0.97)


# The first lines of a result in Codex's code mode.
_SCRIPT_HEADER = re.compile(r"Script (completed|failed|running)\b[^\n]*\nWall time")


def _judge_script(state: str, text: str) -> Outcome:
    if state == "failed":
        return make_error(classify_error(text[:600]), "contract/script", 0.97)
    return (
        make_unknown("contract/running") if state == "running" else make_ok("contract/script", 0.95)
    )


_EXIT_CODE_KEYS = (
    "exit_code",
    "exitCode",
    "returncode",
    "return_code",
    "exit_status",
    "exitStatus",
)
_OUTPUT_KEYS = ("output", "stdout", "stderr", "error", "content")
_MESSAGE_KEYS = split_words(
    """
    error success ok message path file status detail details code hint suggestion suggestions
    similar_files reason type name id tool is_error isError file_path errors data result
    """
)
_LAST_CODE = re.compile(
    rf'"(?:exit_code|exitCode|returncode)"\s*:\s*{_CODE}[^{{}}]{{0,300}}\}}+\s*$'
)
_DENIED = re.compile(r"(?i)\W*(?:user (?:denied|rejected)|blocked|denied|rejected)")
_FIRST_FLAG = re.compile(r'\{\s*"(?:success|ok)"\s*:\s*false\b|\{\s*"error"\s*:\s*"[^"]')


def _judge_record(evidence: Evidence) -> Outcome | None:
    record = evidence.record
    if not record:
        return _judge_truncated_record(evidence)
    is_shell = evidence.shape in ("shell", "code")
    code, output = _find_exit_code(record)
    if code is not None and (is_shell or any(name in record for name in _OUTPUT_KEYS)):
        if code != 0 and record.get("status") == "blocked":
            return make_refused(
                _classify_refusal(str(record.get("error"))), "contract/status", 0.95
            )
        if code != 0:
            return exit_codes.judge_exit_code(code, evidence, output, "contract/exit-code", 0.97)
        if not record.get("error"):
            return make_ok("contract/exit-code", 0.97)
    if is_shell and code is None and not ("error" in record and _STATUS_KEYS & record.keys()):
        succeeded = record.get("status") in ("success", "completed") and "output" in record
        # Otherwise the command printed this object, not the tool.
        return make_ok("contract/status", 0.9) if succeeded else None
    if evidence.shape in ("read", "search") and not _is_message(record):
        return None  # a file may contain such an object
    return _judge_flags(record)


def _is_message(record: Mapping[str, JSON]) -> bool:
    """Return whether the object is the tool's own report rather than content that it read."""
    found = [record[name] for name in ("content", "matches", "results", "files") if name in record]
    return record.keys() <= _MESSAGE_KEYS or (bool(found) and not any(found))


_STATUS_KEYS = frozenset(("status", "exit_code", "timed_out", "blocked", "returncode"))


def _find_exit_code(record: Mapping[str, JSON]) -> tuple[int | None, str]:
    metadata = record.get("metadata")
    inner: Mapping[str, JSON] = (
        cast("Mapping[str, JSON]", metadata) if isinstance(metadata, Mapping) else {}
    )
    for fields in (record, inner):
        for name in _EXIT_CODE_KEYS:
            code = fields.get(name)
            if isinstance(code, int) and not isinstance(code, bool):
                outputs = [record.get(key) for key in _OUTPUT_KEYS]
                return code, "\n".join(text for text in outputs if isinstance(text, str) and text)
    return None, ""


def _judge_flags(record: Mapping[str, JSON]) -> Outcome | None:
    error_value = record.get("error")
    message = str(error_value or record.get("message") or record.get("detail") or "")[:600]
    checks = {
        "contract/error": error_value and error_value not in ("none", "None", "null"),
        "contract/success": record.get("success") is False or record.get("ok") is False,
        "contract/is-error": record.get("is_error") is True or record.get("isError") is True,
        "contract/status": record.get("status") in ("error", "failed")
        and (message or len(record) <= 2),
    }
    rule = next((rule for rule, is_set in checks.items() if is_set), None)
    if rule is not None:
        if _DENIED.match(message):
            return make_refused(_classify_refusal(message), rule, 0.95)
        return make_error(classify_error(message), rule, 0.95)
    if record.get("success") is True or record.get("ok") is True:
        return make_ok("contract/success", 0.95)
    return make_ok("contract/error", 0.93) if "error" in record else None


def _classify_refusal(message: str) -> str:
    return "declined" if "user" in message[:60].lower() else "blocked"


def _judge_truncated_record(evidence: Evidence) -> Outcome | None:
    """Judge a JSON object that was truncated, or is too long to parse."""
    if evidence.shape in ("shell", "code") and (
        match := _LAST_CODE.search(evidence.text[-_TRAILER_CHARS:])
    ):
        return _judge_exit_code(int(match[1]), evidence, evidence.text)
    if evidence.shape == "call" and _FIRST_FLAG.match(evidence.text[:200]):
        return make_error(classify_error(evidence.text[:600]), "contract/error", 0.9)
    return None
