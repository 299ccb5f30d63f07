"""`rekindle warm learn` and `recall`: learn from a project's sessions, and recall."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer

from rekindle.cli.insights.mapping import JobsOption, SchedulerOption, open_work_mapper
from rekindle.cli.output import (
    JsonOption,
    format_count,
    print_json,
    print_line,
    print_notice,
    show_progress,
)
from rekindle.cli.store_access import load_settings, open_for_notes, open_for_writing
from rekindle.errors import InvalidInput

if TYPE_CHECKING:
    from rekindle.knowledge.notes.note import Recall
    from rekindle.store import Store
    from rekindle.types import JSON

MAX_FOLDER_CHARS = 4_096  # no system opens longer ones
_FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", metavar="DIR", help="Folder of the session.", show_default="this one"),
]


def learn_sessions(
    background: Annotated[bool, typer.Option("--background", hidden=True)] = False,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
    json: JsonOption = False,
) -> None:
    """Learn from new and changed sessions, and update the notes of their projects.

    Import, chats and the gateway do this by themselves; run it to bring an older store up to date. What
    is finished is stored at once: a run that was interrupted goes on where it was.

    \b
    Examples:
      rekindle warm learn
      rekindle warm learn --jobs 4
      rekindle warm learn --scheduler tcp://10.0.0.5:8786
      rekindle warm learn --json
    """
    from rekindle.learning.notes.learner import learn_from_sessions
    from rekindle.watching.background_learning import NICENESS, learn_pending

    if background:  # started by a command that has imported something and does not wait
        os.nice(NICENESS)
        with open_for_writing() as store:
            learn_pending(load_settings().home, store)
        return
    with (
        open_work_mapper(jobs, scheduler) as mapper,
        open_for_writing(may_create=True) as store,
        show_progress("Learning") as progress,
    ):
        report = learn_from_sessions(store, progress=progress, mapper=mapper)
    if json:
        print_json(report._asdict())
        return
    if not report.sessions:
        print_line("Nothing new to learn.")
        return
    sessions, projects = format_count(report.sessions, "session"), len(report.projects)
    print_line(f"Learned from {sessions} in {format_count(projects, 'project')}.")


def recall_notes(
    message: Annotated[
        str, typer.Argument(metavar="MESSAGE", help="First message of the session.")
    ] = "",
    folder: _FolderOption = None,
    failure: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSON file with the tool, arguments and result of a failed call.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        bool,
        typer.Option("--batch", help="Read questions from stdin and answer each, as JSON lines."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show the notes that an agent gets at the start of a session, or when a call has failed.

    A question of a batch is {"at": "start", "folder": …, "message": …}, {"at": "failure",
    "folder": …, "tool": …, "arguments": {…}, "result": …} or, before a call, {"at": "call",
    "folder": …, "tool": …, "arguments": {…}}; answers come in the same order.

    \b
    Examples:
      rekindle warm recall 'fix the flaky test'
      rekindle warm recall --folder ~/src/app --failure failed.json --json
    """
    from rekindle.learning.notes.playbooks import find_project

    if batch + (failure is not None) + bool(message) > 1:
        raise typer.BadParameter("pass only one of MESSAGE, --failure and --batch")
    question: dict[str, Any] = {"at": "start", "message": message}
    if failure is not None:
        question = _read_failure(failure)
    question = {"folder": str(folder or ""), **question}
    with open_for_notes() as store:
        if batch:
            _answer_batch(store, sys.stdin.buffer)
            return
        recall = _answer_question(store, question)
        is_known = find_project(store, _get_folder(question)) is not None
    if json:
        print_line(msgspec.json.encode(recall).decode())
    elif recall.text:
        print_line(recall.text)
    else:
        print_notice(explain_missing_notes(is_known=is_known))


def explain_missing_notes(*, is_known: bool) -> str:
    """Explain why an agent gets no notes in a folder."""
    if is_known:
        return "Nothing that was learned in this project fits."
    return (
        "Nothing is known about this folder: no imported session worked in it. `rekindle projects`"
        " lists where sessions worked; name such a folder with --folder."
    )


def _answer_batch(store: Store, lines: Iterable[bytes]) -> None:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                recall = _answer_question(store, _read_question(line))
            except InvalidInput as error:
                raise InvalidInput(f"line {number}: {error}") from None
            sys.stdout.buffer.write(msgspec.json.encode(recall) + b"\n")
            sys.stdout.buffer.flush()


def _read_failure(file: Path) -> dict[str, Any]:
    """Read a failed call from a file; raise `InvalidInput` naming the file if it has none."""
    try:
        question = _read_question(file.read_bytes())
        if not (question.get("arguments") and "result" in question):
            raise InvalidInput("expected a JSON object with tool, arguments and result")
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {str(error).removeprefix('question: ')}") from None
    return {**question, "at": "failure"}


def _read_question(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except RecursionError:
        raise InvalidInput("question: nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"question: expected a JSON object: {error}") from None


def _answer_question(store: Store, question: Mapping[str, Any]) -> Recall:
    from rekindle.learning.notes.recall import (
        recall_at_failure,
        recall_at_start,
        recall_before_call,
    )

    folder = _get_folder(question)
    if question.get("at", "start") == "start":
        message, branch = _get_text(question, "message"), _get_text(question, "branch")
        return recall_at_start(store, folder, message, branch=branch or None)
    if question["at"] not in ("failure", "call"):
        found = f"{question['at']!r:.40}"
        raise InvalidInput(f"question: at: expected start, failure or call, got {found}")
    given: Any = question.get("arguments") or {}
    if not isinstance(given, dict | str):
        raise InvalidInput("question: arguments: expected an object")
    tool, arguments = _get_text(question, "tool"), cast("dict[str, JSON] | str", given)
    if question["at"] == "call":
        return recall_before_call(store, folder, tool, arguments)
    return recall_at_failure(store, folder, tool, arguments, _get_text(question, "result"))


def _get_folder(question: Mapping[str, Any]) -> str:
    """Return the folder of a question as an absolute path, of this system or another."""
    from rekindle.knowledge.notes.command_forms import is_absolute_path

    folder = _get_text(question, "folder") or os.getcwd()
    if len(folder) > MAX_FOLDER_CHARS:
        raise InvalidInput(
            f"question: folder: expected at most {MAX_FOLDER_CHARS:,} characters,"
            f" got {len(folder):,}"
        )
    return folder if is_absolute_path(folder) else os.path.abspath(folder)


def _get_text(question: Mapping[str, Any], field: str) -> str:
    value = question.get(field) or ""
    if not isinstance(value, str):
        raise InvalidInput(f"question: {field}: expected a string")
    return value
