"""tau-bench: a list of `{task_id, reward, info, traj, trial}`, one for each trial of a task.

`traj` is a conversation in the OpenAI chat shape; a trial is a session. The file names no run, and
the number of the trial comes after the conversation, so a session goes by the path of its file, its
task and how often that task came before: trials are written in order. What the trial was worth is
in the `meta` of its last message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rekindle.json_fields import Record, number, present, record
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event
from rekindle.transcripts.jsonio.partial import fields_so_far, opening
from rekindle.transcripts.jsonio.stream import Place, Value, steps
from rekindle.transcripts.readers.ids import made_id
from rekindle.transcripts.readers.openai_chat import Conversation
from rekindle.types import JSON, Message, replace

SOURCE = "tau-bench"


def sniff(head: Head) -> bool:
    if head.data.startswith(b"["):
        return _is_trial(fields_so_far(opening(head.data, ())))
    return _is_trial(head.fields)


def _is_trial(about: Record) -> bool:
    # A conversation with damage in it is not among the fields.
    told = isinstance(about.get("traj"), list) or isinstance(about.get("info"), dict)
    return told and "task_id" in about and "reward" in about


def read(path: Path) -> Iterator[Event]:
    runs = _Runs(path)
    for step in steps(path, _opens):
        if isinstance(step, Value):
            _, line, place, value = step
            if isinstance(key := place[-1], int):
                yield from runs.take(value, key, line)
            else:
                runs.learn(key, value)
        elif isinstance(step, Damage):
            yield step
        elif not step.place or isinstance(step.place[-1], int):
            yield from runs.finish()
    yield from runs.finish()


def _opens(place: Place) -> bool:
    # A trial in a list, or on a line of its own.
    return (len(place) == 1 and isinstance(place[0], int)) or place[-1] == "traj"


class _Runs:
    """The trials of one file, one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path.resolve())
        self.counts: Counter[str] = Counter()
        self.about: Record = {}
        self.one: Conversation | None = None
        # The last message waits for what the trial was worth.
        self.last: Message | None = None

    def learn(self, key: str, value: JSON) -> None:
        self.about[key] = value

    def take(self, value: object, index: int, line: int) -> Sequence[Event]:
        """An element of `traj`; the policy that stands in front is no message."""
        if record(value).get("role") == "system":
            return ()
        if self.one is None:
            self.one = Conversation(self._id(), SOURCE)
        heard = self.one.hear(value, f"item:{index + 1}", self.path, line)
        if isinstance(heard, Damage):
            return (heard,)
        last, self.last = self.last, heard
        if last is not None:
            return (last,)
        return () if self.one.opened else (self.one.open(),)

    def finish(self) -> Iterator[Event]:
        """The end of a trial."""
        if self.last is not None:
            yield replace(self.last, meta=present({**(self.last.meta or {}), **self._worth()}))
        if self.one is not None:
            yield from self.one.finish()
        self.about, self.one, self.last = {}, None, None

    def _id(self) -> str:
        task = str(self.about.get("task_id", ""))[:80]
        self.counts[task] += 1
        return f"{made_id('tau', self.where, task)}-{self.counts[task]}"

    def _worth(self) -> dict[str, JSON]:
        task = self.about.get("task_id")
        return {
            "reward": number(self.about.get("reward")),
            "task": task if isinstance(task, (int, str)) else None,
            "trial": number(self.about.get("trial")),
        }
