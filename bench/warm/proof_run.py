"""Runs of the benchmark: record the training tasks, learn from them, run the test tasks.

Each finished session is a line of JSON, so that a killed run resumes where it stopped. A line counts
only for the session start that it was run with: when that changes, the task is run again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bench.runner import WORK
from bench.warm import agent
from bench.warm.arms import ARMS, Arm, SessionStart, TrainedStore
from bench.warm.model.model_server import ModelError, ServedModel
from bench.warm.tasks.harbour_tasks import Split, Task
from bench.warm.tasks.task_sets import SETS, TaskSet
from rekindle import Message, Store
from rekindle.learning.build import BuildResult, build_template
from rekindle.learning.library import TemplateLibrary
from rekindle.learning.session_filter import BuildFilter
from rekindle.learning.warm_start import build_opening_messages
from rekindle.redaction.redactor import Redactor
from rekindle.store import open_store
from rekindle.types import Session

NAME = "harbour"  # of the template
MAX_TRAINING = 30  # sessions, of either set
TRAINING, TESTING = "bench-train", "bench-test"  # sources of sessions
SLICE: dict[Split, int] = {"train": 3, "test": 1}  # tasks of a family
Row = dict[str, Any]
T = TypeVar("T", bound=str)


class ProofRun(NamedTuple):
    """A run with one model, and the files that it keeps."""

    model: str
    is_slice: bool = False
    root: Path = WORK / "warm"
    set: str = "first"  # of tasks
    each: int | None = None  # the maximum number of test tasks per family

    @property
    def folder(self) -> Path:
        name = self.model if self.set == "first" else f"{self.model}-{self.set}"
        return self.root / (f"{name}-slice" if self.is_slice else name)

    @property
    def task_set(self) -> TaskSet:
        return SETS[self.set]

    @property
    def project(self) -> Path:
        """The folder of the world, the same for every task, like a project."""
        return self.folder / self.task_set.project

    @property
    def recorded(self) -> Path:
        return self.folder / "recorded.jsonl"

    @property
    def ran(self) -> Path:
        return self.folder / "ran.jsonl"

    @property
    def engine(self) -> Path:
        """The file that names the engine."""
        return self.folder / "engine.txt"

    @property
    def templates(self) -> TemplateLibrary:
        return TemplateLibrary(self.folder / "templates")

    @property
    def arms(self) -> tuple[Arm, ...]:
        return ARMS

    def list_tasks(self, split: Split) -> list[Task]:
        """Return the tasks of this run: all, or the first few of each family."""
        most = SLICE[split] if self.is_slice else self.each if split == "test" else None
        found = self.task_set.list_tasks(split)
        return [one for one in found if most is None or int(one.id[-2:]) < most]

    @contextmanager
    def store(self, name: str) -> Generator[Store]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open_store(str(self.folder / f"{name}.db")) as store:
            yield store


def read_rows(file: Path) -> list[Row]:
    """Return the rows of a file, except one that was cut off by a kill."""
    if not file.exists():
        return []
    found: list[Row] = []
    for line in file.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def append_row(file: Path, row: Row) -> None:
    was_cut = file.exists() and file.read_bytes()[-1:] not in (b"", b"\n")
    with open(file, "a") as out:
        out.write(("\n" if was_cut else "") + json.dumps(row) + "\n")


def print_row(row: Row, number: int, of: int) -> None:
    how = "done" if row["success"] else "not done"
    print(
        f"  {number:>3} of {of}  {row['task']:<16} {row['arm']:<8} {how:<9}"
        f" {row['errors']} of {row['first']} calls failed, {row['seconds']:.0f} s",
        flush=True,
    )


# -- training


def record_training(proof: ProofRun, served: ServedModel) -> list[Row]:
    """Run the training tasks that are not yet recorded, with their handbook line; return all rows."""
    bare = SessionStart(tuple(build_opening_messages(proof.task_set.system, ())))
    wanted = proof.list_tasks("train")
    if any(row["begun"] != bare.sign for row in read_rows(proof.recorded)):
        raise ModelError(f"{proof.folder} was recorded with another agent; remove it and try again")
    with proof.store("past") as store:
        known = {row["session"] for row in read_rows(proof.recorded)}
        for session in store.recent(10_000):
            if session.id not in known:
                store.end(session, "killed")  # learning skips incomplete sessions
        done = {row["task"] for row in read_rows(proof.recorded)}
        for number, task in enumerate(wanted, 1):
            if task.id in done:
                continue
            session = begin_session(
                proof, store, served, task, TRAINING, proof.task_set.build_first_message(task)
            )
            result = asyncio.run(
                agent.run_task(store, served, session, task, proof.project, bare.opening)
            )
            row = build_row(task, "training", session, bare, result)
            append_row(proof.recorded, row)
            print_row(row, number, len(wanted))
    return read_rows(proof.recorded)


def begin_session(
    proof: ProofRun, store: Store, served: ServedModel, task: Task, source: str, text: str,
    arm: str | None = None,
) -> Session:  # fmt: skip
    where = str(proof.project / "work")
    session = store.begin(source=source, owner="bench", model=served.name, arm=arm, cwd=where)
    store.append(session, Message("user", text))
    return session


def build_run_template(proof: ProofRun) -> BuildResult:
    """Learn from the recorded sessions and rebuild the template."""
    with proof.store("past") as store:
        return rebuild_template(store, proof.templates)


def rebuild_template(store: Store, templates: TemplateLibrary) -> BuildResult:
    """Update the notes of the project and rebuild its template from all training sessions."""
    shutil.rmtree(templates.folder, ignore_errors=True)
    templates.folder.mkdir(parents=True)
    wanted = BuildFilter(source=TRAINING, min_messages=1, max_sessions=MAX_TRAINING)
    return build_template(store, templates, Redactor({}, str(Path.home())), NAME, wanted)


# -- testing


def run_tests(proof: ProofRun, served: ServedModel, arms: Sequence[Arm] | None = None) -> list[Row]:
    """Run the test tasks that are not yet done in each arm; return all rows.

    Arms that begin a task with the same messages share one session, since decoding is greedy.
    """
    wanted: list[tuple[Task, Arm]] = [
        (task, arm)
        for n, task in enumerate(proof.list_tasks("test"))
        for arm in rotate_arms(arms or proof.arms, n)
    ]
    with proof.store("past") as past_store, proof.store("tests") as store:
        past = TrainedStore(past_store, proof.templates)
        for number, (task, arm) in enumerate(wanted, 1):
            session = store.begin(source=TESTING)  # not written before its first message
            given = past.build_start(arm, session, task, proof.project)
            if reuse_result(proof.ran, task, arm, given):
                continue
            session = begin_session(
                proof, store, served, task, TESTING, proof.task_set.build_first_message(task), arm
            )
            result = asyncio.run(
                agent.run_task(
                    store, served, session, task, proof.project, given.opening, given.advisor
                )
            )
            row = build_row(task, arm, session, given, result)
            append_row(proof.ran, row)
            print_row(row, number, len(wanted))
    return read_rows(proof.ran)


def reuse_result(file: Path, task: Task, arm: str, given: SessionStart) -> bool:
    """Reuse the result of another arm with the same start; return whether the task is done."""
    ran = [row for row in read_rows(file) if row["task"] == task.id]
    newest = [row for row in ran if row["arm"] == arm][-1:]
    if any(row["begun"] == given.sign for row in newest):
        return True
    alike = [row for row in ran if row["begun"] == given.sign]
    if alike:
        append_row(file, {**alike[-1], "arm": arm})
    return bool(alike)


def rotate_arms(arms: Sequence[T], number: int) -> list[T]:
    """Rotate the arms, so that no arm always gets the cooler machine."""
    place = number % len(arms)
    return [*arms[place:], *arms[:place]]


def build_row(
    task: Task, arm: str, session: Session, given: SessionStart, result: agent.TaskResult
) -> Row:
    return {
        "task": task.id,
        "family": task.family,
        "arm": arm,
        "session": session.id,
        "begun": given.sign,
        "given_tokens": given.tokens,
        "given_notes": given.notes,
        "why": given.why,
        **result._asdict(),
    }
