"""The events of a session that say what became of it, in order: work, checks, commits and words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from rekindle.judging.rules.evidence import Evidence
from rekindle.judging.rules.programs import is_linter, is_reader, is_test_runner
from rekindle.judging.rules.text_patterns import split_words
from rekindle.judging.tool_kinds import classify_tool
from rekindle.shell.command_reader import SimpleCommand, split_commands
from rekindle.types import JudgedCall, Message, ToolCall

from .reactions import Reaction, classify_reaction
from .user_text import extract_user_text, has_pasted_failure

EventKind: TypeAlias = Literal[
    "edit", "test", "check", "commit", "publish", "revert", "refusal", "interruption", "words",
    "answer", "call",
]  # fmt: skip

_CHECKS = frozenset(("test", "check", "commit", "publish"))
_POLLING_TOOLS = split_words("writestdin bashoutput taskoutput readbash getterminaloutput process")
_NO_RESULT = Message("tool")
_PROSE_FILE = re.compile(r"(?i)\.(?:md|mdx|rst|txt|adoc|log|csv)$")
_PATH_KEYS = ("file_path", "path", "filePath", "filename", "notebook_path", "target_file")
_GIT = re.compile(r"(?:-[Cc] \S+ |--?\w[\w-]*(?:=\S+)? )*([a-z][a-z-]*)(?: (.*))?", re.DOTALL)
_REVERTING = split_words("revert")
_RESTORING = re.compile(
    r"checkout (?:\S+ )?-- |checkout \.(?:\s|$)|restore (?!--staged)|reset --hard"
)
_BUILD = re.compile(
    r"go (?:build|install)\b|cargo build\b|tsc\b|(?:npm|pnpm|yarn|bun) (?:run )?build\b"
    r"|(?:g?make|just|mise run|ninja) \S*build|dotnet build\b|mvn .*compile|gradlew? .*build"
    r"|python[\d.]* -m (?:compileall|py_compile)|swift build\b|zig build\b"
)
_FORMATTING = re.compile(r"^gofmt\b(?!.* -[ld])|(?:^|[\s:_-])(?:fmt|format)(?:$|\s)(?!.*--check)")
_WRITING = re.compile(
    r"(?:^|[\s;&|])(?:sed|perl)\s+(?:-\w+\s+)*-\w*i|(?:^|\s)apply_patch\b|\bgit apply\b"
    r"|(?<![0-9&>])>{1,2}\s*(?!/dev/|&|/tmp/)[\w./-]+\.(?!log\b|txt\b|md\b|out\b)[a-z]{1,5}\b"
)
_SCRATCH = re.compile(r"\bmktemp -d|\bgit (?:-C \S+ )?init\b|\bcd /tmp/")
_PUBLISHING = re.compile(r"(?:pr|mr) (?:create|merge)\b")
_INTERRUPTED = "[Request interrupted by user"


class SessionEvent(NamedTuple):
    """Something that happened at a position; `ok` is None if its outcome is unknown."""

    kind: EventKind
    position: int
    ok: bool | None = True
    key: int = 0  # equal for repeated calls
    reaction: Reaction = ""
    is_code: bool = True
    error: bool = False  # the call failed in another way than by a negative answer


def list_events(messages: Sequence[Message], calls: Iterable[JudgedCall]) -> list[SessionEvent]:
    """Return the events of a session in order."""
    verdicts = {(call.position, call.number): call for call in calls}
    return [*_iter_events(messages, verdicts)]


def _iter_events(
    messages: Sequence[Message], verdicts: Mapping[tuple[int, int], JudgedCall]
) -> Iterator[SessionEvent]:
    has_asked = False
    is_first = True
    running: list[SessionEvent] = []  # calls that were left running, until a result reports them
    for index, message in enumerate(messages):
        position = index if message.position is None else message.position
        if message.role == "user":
            yield from _read_words(message, position, has_asked, is_first)
            is_first = is_first and not extract_user_text(message.text)
        elif message.role == "assistant":
            text = message.text.rstrip()
            has_asked = text.endswith("?")
            if text:
                yield SessionEvent("answer", position, ok=not _is_api_error(message))
            for number, call in enumerate(message.tool_calls):
                if verdict := verdicts.get((position, number)):
                    found = [*_read_call(call, verdict)]
                    if running and _is_poll(call) and verdict.failed is not None:
                        found = [
                            one._replace(position=position, ok=not verdict.failed)
                            for one in running
                        ]
                        running = []
                    running += [one for one in found if one.ok is None and one.kind in _CHECKS]
                    yield from found


def _is_poll(call: ToolCall) -> bool:
    """Return whether a call only waits for the output of a command that runs already."""
    name = call.name.lower().replace("_", "")
    return name in _POLLING_TOOLS and '"chars":"\\' not in str(call.arguments)


def _read_words(
    message: Message, position: int, has_asked: bool, is_first: bool
) -> Iterator[SessionEvent]:
    if message.text.lstrip().startswith(_INTERRUPTED) or (message.meta or {}).get("aborted"):
        yield SessionEvent("interruption", position, ok=False)
    text, reaction = extract_user_text(message.text), ""
    is_report = not is_first and has_pasted_failure(message.text)
    if text and not is_first:
        reaction = classify_reaction(text, answers_question=has_asked)
    if text or is_report:
        reaction = "correction" if is_report else reaction
        yield SessionEvent("words", position, reaction=reaction)


def _is_api_error(message: Message) -> bool:
    return bool(message.meta and message.meta.get("is_error"))


def _read_call(call: ToolCall, verdict: JudgedCall) -> Iterator[SessionEvent]:
    position, digest = verdict.position, verdict.digest
    if verdict.outcome == "refused":
        is_plan = classify_tool(call.name).shape == "note"  # a plan that was not accepted
        yield SessionEvent("call" if is_plan else "refusal", position, ok=False, key=digest)
        return
    ok = None if verdict.failed is None else not verdict.failed
    evidence = Evidence(call, _NO_RESULT)
    found = False
    if evidence.shape == "edit":
        found = True
        yield SessionEvent("edit", position, ok, digest, is_code=_is_code_edit(evidence))
    elif evidence.shape == "shell":
        for kind in _classify_command(evidence.command):
            found = True
            yield SessionEvent(kind, position, ok, digest)
    if not found:
        yield SessionEvent("call", position, ok, digest, error=verdict.outcome == "error")


def _is_code_edit(evidence: Evidence) -> bool:
    path = next((evidence.arguments[key] for key in _PATH_KEYS if evidence.arguments.get(key)), "")
    return not (isinstance(path, str) and _PROSE_FILE.search(path))


def _classify_command(command: str) -> Iterator[EventKind]:
    """Yield what a command line does, each kind once, in the order of its commands."""
    seen: set[EventKind] = set()
    if _SCRATCH.search(command[:4_000]):
        return  # it works in a folder that is thrown away
    if _WRITING.search(command[:4_000]):
        seen.add("edit")
        yield "edit"
    for simple in split_commands(command):
        kind = _classify_simple(simple)
        if kind and kind not in seen:
            seen.add(kind)
            yield kind


def _classify_simple(simple: SimpleCommand) -> EventKind | None:
    if simple.program == "git":
        return _classify_git(simple.arguments)
    if simple.program in ("gh", "glab"):
        return "publish" if _PUBLISHING.match(simple.arguments) else None
    if is_test_runner(simple):
        return "test"
    if is_code_check(simple) or _BUILD.match(simple.text):
        return None if is_reader(simple) else "check"
    return None


def is_code_check(command: SimpleCommand) -> bool:
    """Return whether the command is a linter that leaves the formatting of the code as it is."""
    return is_linter(command) and not _FORMATTING.search(command.text)


def _classify_git(arguments: str) -> EventKind | None:
    found = _GIT.match(arguments)
    if found is None:
        return None
    verb, rest = found[1], found[2] or ""
    if verb == "commit":
        return None if "--dry-run" in rest else "commit"
    if verb == "push":
        return None if "--dry-run" in rest else "publish"
    if verb in _REVERTING or _RESTORING.match(f"{verb} {rest}"):
        return "revert"
    return None
