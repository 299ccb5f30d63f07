"""tau-bench reader: a list of `{task_id, reward, info, traj, trial}`, one for each trial of a task.

`traj` is a conversation in the OpenAI chat format; a trial is a session. The file does not identify the
run, and the trial number comes after the conversation, so a session is identified by the file's path,
its task and how often that task occurred before: trials are written in order. The trial's reward is in
the `meta` of its last message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rekindle.json_fields import JsonObject, as_number, as_object
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.partial import find_first_element, parse_partial_fields
from rekindle.transcripts.jsonio.scanner import JsonPath, JsonValue
from rekindle.transcripts.jsonio.stream import iter_values
from rekindle.transcripts.readers.openai_chat import OpenAIChatConversation
from rekindle.transcripts.readers.session_builder import make_path_id
from rekindle.types import JSON

SOURCE = "tau-bench"


def can_read(head: FileHead) -> bool:
    if head.data.startswith(b"["):
        return _is_trial(parse_partial_fields(find_first_element(head.data, ())))
    return _is_trial(head.fields)


def _is_trial(metadata: JsonObject) -> bool:
    # A corrupt conversation is not among the parsed fields.
    has_content = isinstance(metadata.get("traj"), list) or isinstance(metadata.get("info"), dict)
    return has_content and "task_id" in metadata and "reward" in metadata


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    trials = _TauBenchFile(path)
    for step in iter_values(path, _should_descend):
        if isinstance(step, JsonValue):
            _, line, json_path, value = step
            if isinstance(key := json_path[-1], int):
                yield from trials.read_entry(value, key, line)
            else:
                trials.add_metadata(key, value)
        elif isinstance(step, UnreadableEntry):
            yield step
        elif not step.path or isinstance(step.path[-1], int):
            yield from trials.finish()
    yield from trials.finish()


def _should_descend(json_path: JsonPath) -> bool:
    # A trial in a list, or on its own line.
    return (len(json_path) == 1 and isinstance(json_path[0], int)) or json_path[-1] == "traj"


class _TauBenchFile:
    """The trials of one file, read one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.resolved_path = str(path.resolve())
        self.trials_by_task: Counter[str] = Counter()
        self.metadata: JsonObject = {}
        self.conversation: OpenAIChatConversation | None = None

    def add_metadata(self, key: str, value: JSON) -> None:
        """Record a field of the trial that is not a message."""
        self.metadata[key] = value

    def read_entry(self, value: object, index: int, line: int) -> Sequence[TranscriptEvent]:
        """Read an element of `traj`; the system prompt at its start is skipped."""
        if as_object(value).get("role") == "system":
            return ()
        if self.conversation is None:
            self.conversation = OpenAIChatConversation(self._make_session_id(), SOURCE)
        parsed = self.conversation.parse_message(value, f"item:{index + 1}", self.path, line)
        if isinstance(parsed, UnreadableEntry):
            return (parsed,)
        # The last message is held back for the trial's reward.
        return self.conversation.hold_message(parsed)

    def finish(self) -> Iterator[TranscriptEvent]:
        """Finish the trial: yield its last message and its session."""
        if self.conversation is not None:
            yield from self.conversation.release_message(self._build_outcome_meta())
            yield from self.conversation.finish()
        self.metadata, self.conversation = {}, None

    def _make_session_id(self) -> str:
        task = str(self.metadata.get("task_id", ""))[:80]
        self.trials_by_task[task] += 1
        return f"{make_path_id('tau', self.resolved_path, task)}-{self.trials_by_task[task]}"

    def _build_outcome_meta(self) -> dict[str, JSON]:
        task = self.metadata.get("task_id")
        return {
            "reward": as_number(self.metadata.get("reward")),
            "task": task if isinstance(task, (int, str)) else None,
            "trial": as_number(self.metadata.get("trial")),
        }
