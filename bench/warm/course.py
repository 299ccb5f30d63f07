"""The course of the proof: record the training tasks, learn from them, run the test tasks.

Each session that was run is a line of JSON, so that a run that was killed goes on where it stopped.
A line counts only for the beginning that it was run with: when that changes, the task is run anew.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rekindle import Message, Store
from rekindle.learning.build import BuildResult, build_template
from rekindle.learning.library import TemplateLibrary
from rekindle.learning.session_filter import BuildFilter
from rekindle.learning.warm_start import build_opening_messages
from rekindle.redaction.redactor import Redactor
from rekindle.store import open_store
from rekindle.types import Session

from ..runner import WORK
from . import agent
from .arms import ARMS, Arm, Given, Past
from .model import NoModel, Served
from .sets import SETS, TaskSet
from .tasks import Split, Task

NAME = "harbour"  # of the template
MAX_TRAINING = 30  # sessions, of either set
TRAINING, TESTING = "bench-train", "bench-test"  # sources of sessions
SLICE: dict[Split, int] = {"train": 3, "test": 1}  # tasks of a family
Row = dict[str, Any]
T = TypeVar("T", bound=str)


class Course(NamedTuple):
    """A course with one model, and where it keeps what it makes."""

    model: str
    is_slice: bool = False
    root: Path = WORK / "warm"
    set: str = "first"  # of tasks
    each: int | None = None  # at most so many test tasks of a family, the first ones

    @property
    def folder(self) -> Path:
        name = self.model if self.set == "first" else f"{self.model}-{self.set}"
        return self.root / (f"{name}-slice" if self.is_slice else name)

    @property
    def task_set(self) -> TaskSet:
        return SETS[self.set]

    @property
    def project(self) -> Path:
        """The folder of the world: always the same, as a project is."""
        return self.folder / self.task_set.project

    @property
    def recorded(self) -> Path:
        return self.folder / "recorded.jsonl"

    @property
    def ran(self) -> Path:
        return self.folder / "ran.jsonl"

    @property
    def engine(self) -> Path:
        """Says what answered."""
        return self.folder / "engine.txt"

    @property
    def templates(self) -> TemplateLibrary:
        return TemplateLibrary(self.folder / "templates")

    @property
    def arms(self) -> tuple[Arm, ...]:
        return ARMS

    def tasks(self, split: Split) -> list[Task]:
        """Return the tasks of this course: all, or the first few of each family."""
        most = SLICE[split] if self.is_slice else self.each if split == "test" else None
        found = self.task_set.tasks(split)
        return [one for one in found if most is None or int(one.id[-2:]) < most]

    @contextmanager
    def store(self, name: str) -> Generator[Store]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open_store(str(self.folder / f"{name}.db")) as store:
            yield store


def read_rows(file: Path) -> list[Row]:
    """Return the rows of a file; one that was cut off in the middle is left out."""
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


def record(course: Course, served: Served) -> list[Row]:
    """Run the training tasks that are not recorded yet, with a line of the handbook; all rows."""
    bare = Given(tuple(build_opening_messages(course.task_set.system, ())))
    wanted = course.tasks("train")
    if any(row["begun"] != bare.sign for row in read_rows(course.recorded)):
        raise NoModel(f"{course.folder} was recorded with another agent: remove it")
    with course.store("past") as store:
        known = {row["session"] for row in read_rows(course.recorded)}
        for session in store.recent(10_000):
            if session.id not in known:
                store.end(session, "killed")  # nobody learns from half a session
        done = {row["task"] for row in read_rows(course.recorded)}
        for number, task in enumerate(wanted, 1):
            if task.id in done:
                continue
            session = begin_session(
                course, store, served, task, TRAINING, course.task_set.build_first_message(task)
            )
            result = asyncio.run(
                agent.run_task(store, served, session, task, course.project, bare.opening)
            )
            row = build_row(task, "training", session, bare, result)
            append_row(course.recorded, row)
            print_row(row, number, len(wanted))
    return read_rows(course.recorded)


def begin_session(
    course: Course, store: Store, served: Served, task: Task, source: str, text: str,
    arm: str | None = None,
) -> Session:  # fmt: skip
    where = str(course.project / "work")
    session = store.begin(source=source, owner="bench", model=served.name, arm=arm, cwd=where)
    store.append(session, Message("user", text))
    return session


def build(course: Course) -> BuildResult:
    """Learn from the recorded sessions, and build the template anew."""
    with course.store("past") as store:
        return learn(store, course.templates)


def learn(store: Store, templates: TemplateLibrary) -> BuildResult:
    """Bring the notes of the project up to date, and build its template from all training sessions."""
    shutil.rmtree(templates.folder, ignore_errors=True)
    templates.folder.mkdir(parents=True)
    wanted = BuildFilter(source=TRAINING, min_messages=1, max_sessions=MAX_TRAINING)
    return build_template(store, templates, Redactor({}, str(Path.home())), NAME, wanted)


# -- testing


def run(course: Course, served: Served, arms: Sequence[Arm] | None = None) -> list[Row]:
    """Run the test tasks in each arm, where that is not done yet; all rows.

    Arms that begin a task alike share one session: the model is greedy.
    """
    wanted: list[tuple[Task, Arm]] = [
        (task, arm)
        for n, task in enumerate(course.tasks("test"))
        for arm in rotate_arms(arms or course.arms, n)
    ]
    with course.store("past") as past_store, course.store("tests") as store:
        past = Past(past_store, course.templates)
        for number, (task, arm) in enumerate(wanted, 1):
            session = store.begin(source=TESTING)  # nothing is written before its first message
            given = past.given(arm, session, task, course.project)
            if reuse_result(course.ran, task, arm, given):
                continue
            session = begin_session(
                course, store, served, task, TESTING, course.task_set.build_first_message(task), arm
            )
            result = asyncio.run(
                agent.run_task(
                    store, served, session, task, course.project, given.opening, given.advise
                )
            )
            row = build_row(task, arm, session, given, result)
            append_row(course.ran, row)
            print_row(row, number, len(wanted))
    return read_rows(course.ran)


def reuse_result(file: Path, task: Task, arm: str, given: Given) -> bool:
    """Return whether the task was run with this beginning; its result then counts for the arm too."""
    ran = [row for row in read_rows(file) if row["task"] == task.id]
    newest = [row for row in ran if row["arm"] == arm][-1:]
    if any(row["begun"] == given.sign for row in newest):
        return True
    alike = [row for row in ran if row["begun"] == given.sign]
    if alike:
        append_row(file, {**alike[-1], "arm": arm})
    return bool(alike)


def rotate_arms(arms: Sequence[T], number: int) -> list[T]:
    """Return the arms, another one first each time: none always has the cooler machine."""
    place = number % len(arms)
    return [*arms[place:], *arms[:place]]


def build_row(task: Task, arm: str, session: Session, given: Given, result: agent.Done) -> Row:
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
