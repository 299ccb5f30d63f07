"""`rekindle warm learn`, `recall` and `replay`: what a project's sessions know, and what it is worth."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer

from rekindle.cli.output import (
    Column,
    JsonOption,
    encode_json,
    format_count,
    print_line,
    print_notice,
    show_progress,
    write_table,
)
from rekindle.cli.store_access import open_for_writing
from rekindle.errors import InvalidInput

if TYPE_CHECKING:
    from rekindle.analytics.cluster_stats import Rate
    from rekindle.knowledge.notes.note import Recall
    from rekindle.knowledge.notes.replay import ReplayedRecall, ReplayResult
    from rekindle.store import Store
    from rekindle.types import JSON

_FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", metavar="DIR", help="Folder of the session.", show_default="this one"),
]
_MAX_READ = 10
_TITLES = {
    "given": "sessions told anything",
    "came_true": "of what was named came true",
    "commands_told": "own commands used: told",
    "files_told": "files used: told",
    "mended": "failures fixed: told how",
    "beside": "answers beside the point",
}


def register(group: typer.Typer) -> None:
    """Register the commands of this module."""
    group.command("learn")(learn_sessions)
    group.command("recall")(recall_notes)
    group.command("replay")(replay_history)


def learn_sessions(json: JsonOption = False) -> None:
    """Learn from new and changed sessions, and renew what is known about their projects.

    Import, chats and the gateway do this by themselves; run it to bring an older store up to date.

    \b
    Examples:
      rekindle warm learn
      rekindle warm learn --json
    """
    from rekindle.learning.notes.learner import learn_from_sessions

    with open_for_writing(may_create=True) as store, show_progress("Learning") as progress:
        report = learn_from_sessions(store, progress=progress)
    if json:
        print_line(encode_json(report._asdict()).decode())
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
    """Show what an agent is told at the start of a session, or when a call has failed.

    A question of a batch is {"at": "start", "folder": …, "message": …} or {"at": "failure",
    "folder": …, "tool": …, "arguments": {…}, "result": …}; answers come in the same order.

    \b
    Examples:
      rekindle warm recall 'fix the flaky test'
      rekindle warm recall --folder ~/src/app --failure failed.json --json
    """
    with open_for_writing(may_create=True) as store:
        if batch:
            _answer_batch(store, sys.stdin.buffer)
            return
        question: dict[str, Any] = {"at": "start", "message": message}
        if failure is not None:
            question = {**_read_question(failure.read_bytes()), "at": "failure"}
        recall = _answer_question(store, {"folder": str(folder or Path.cwd()), **question})
    if json:
        print_line(msgspec.json.encode(recall).decode())
    elif recall.text:
        print_line(recall.text)
    else:
        print_notice("Nothing is known here that is worth saying.")


def _answer_batch(store: Store, lines: Iterable[bytes]) -> None:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                recall = _answer_question(store, _read_question(line))
            except InvalidInput as error:
                raise InvalidInput(f"line {number}: {error}") from None
            sys.stdout.buffer.write(msgspec.json.encode(recall) + b"\n")
            sys.stdout.buffer.flush()


def _read_question(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"question: expected a JSON object: {error}") from None


def _answer_question(store: Store, question: Mapping[str, Any]) -> Recall:
    from rekindle.learning.notes.recall import recall_at_failure, recall_at_start

    folder = _get_text(question, "folder") or os.getcwd()
    if question.get("at", "start") == "start":
        return recall_at_start(store, folder, _get_text(question, "message"))
    if question["at"] != "failure":
        raise InvalidInput(f"question: at: expected start or failure, got {question['at']!r:.40}")
    arguments: Any = question.get("arguments") or {}
    if not isinstance(arguments, dict | str):
        raise InvalidInput("question: arguments: expected an object")
    tool, result = _get_text(question, "tool"), _get_text(question, "result")
    return recall_at_failure(store, folder, tool, cast("dict[str, JSON] | str", arguments), result)


def _get_text(question: Mapping[str, Any], field: str) -> str:
    value = question.get(field) or ""
    if not isinstance(value, str):
        raise InvalidInput(f"question: {field}: expected a text")
    return value


# ── replay


def replay_history(
    project: Annotated[
        str | None,
        typer.Option(
            metavar="PROJECT", help="Only this project, e.g. owner/name.", show_default=False
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Replay your history: what would each session have been told, and did it come true?

    Every session of a project with five or more earlier ones is asked for, with what was learned
    from the earlier ones only. Compared are the naive list (the 12 commonest commands and the 8
    commonest files) and the limit (everything that was known before). No model is used.

    \b
    Examples:
      rekindle warm replay
      rekindle warm replay --project owner/name --json
    """
    from rekindle.learning.notes.replay import replay_projects

    with open_for_writing(may_create=True) as store, show_progress("Replaying") as progress:
        results = replay_projects(store, project, progress=progress)
    if not results[0].scores:
        raise InvalidInput(
            "no sessions to replay: expected a project with six or more sessions with tool calls."
            " List sessions with `rekindle sessions list`"
        )
    if json:
        print_line(encode_json([_result_to_dict(one) for one in results]).decode())
        return
    _write_result_table(results)
    _write_recalls(results[0])


def _write_result_table(results: Sequence[ReplayResult]) -> None:
    print_line(f"{format_count(len(results[0].scores), 'session')} replayed.\n")
    columns = [Column(""), *(Column(one.name, right=True) for one in results)]
    rates = [one.compute_rates() for one in results]
    rows = [
        [title, *(_format_rate(each[metric]) for each in rates)]
        for metric, title in _TITLES.items()
    ]
    rows.append(["tokens a start", *(_format_number(one.tokens_per_start) for one in results)])
    rows.append(["tokens a failure", *(_format_number(one.tokens_per_failure) for one in results)])
    write_table(columns, rows)


def _format_rate(rate: Rate) -> str:
    if rate.rate is None:
        return "no evidence"
    interval = "" if rate.range is None else f" ({rate.range.low:.0%} to {rate.range.high:.0%})"
    return f"{rate.rate:.0%} of {rate.calls}{interval}"


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _write_recalls(result: ReplayResult) -> None:
    """Write the best and the worst recalls, to be read."""
    recalls = [one for score in result.scores for one in score.recalls if one.text]
    ranked = sorted(recalls, key=lambda one: one.misses - one.hits)
    for title, chosen in (("Best", ranked[:_MAX_READ]), ("Worst", ranked[: -_MAX_READ - 1 : -1])):
        print_line(f"\n{title}:")
        for one in chosen:
            _write_recall(one)


def _write_recall(one: ReplayedRecall) -> None:
    print_line(f"\n{one.session} at the {one.moment}: {one.hits} came true, {one.misses} did not")
    for line in one.text.splitlines():
        print_line(f"    {line}")


def _result_to_dict(result: ReplayResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "sessions": len(result.scores),
        "rates": {metric: rate._asdict() for metric, rate in result.compute_rates().items()},
        "tokens_per_start": result.tokens_per_start,
        "tokens_per_failure": result.tokens_per_failure,
    }
