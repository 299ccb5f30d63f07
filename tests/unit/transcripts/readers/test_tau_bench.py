from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rekindle.transcripts import (
    SessionStarted,
    SessionUpdated,
    UnreadableEntry,
    detect_format,
    read_transcript,
)
from rekindle.types import ToolCall
from tests.unit.transcripts.conftest import messages

ASKS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "book", "arguments": '{"seat": 1}'}}
    ],
}
TRAJ = [
    {"role": "system", "content": "# Policy"},
    {"role": "user", "content": "a seat, please"},
    ASKS,
    {"role": "tool", "tool_call_id": "c1", "name": "book", "content": "Error: no such seat"},
    {"role": "assistant", "content": "Sorry."},
]


def trial(task: int, number: int, **more: Any) -> dict[str, Any]:
    info = {"task": {"user_id": "u"}, "source": "user"}
    return {"task_id": task, "reward": 1.0, "info": info, "traj": TRAJ, "trial": number, **more}


def write(tmp_path: Path, *trials: Any) -> Path:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(list(trials), indent=1))
    return path


def test_each_trial_of_a_task_is_a_session(tmp_path: Path) -> None:
    path = write(tmp_path, trial(0, 0), trial(7, 0), trial(0, 1))
    format = detect_format(path)
    assert format is not None
    assert format.name == "tau-bench"
    events = list(read_transcript(path))
    opened = [e.session.id for e in events if isinstance(e, SessionStarted)]
    assert len(set(opened)) == 3
    assert [e.session.id for e in events if isinstance(e, SessionUpdated)] == opened
    told = messages(events)
    assert [m.role for m in told] == ["user", "assistant", "tool", "assistant"] * 3
    assert told[1].tool_calls == (ToolCall("c1", "book", '{"seat": 1}'),)
    assert (told[2].tool_call_id, told[2].content) == ("c1", "Error: no such seat")
    assert told[2].meta is None, "the format does not say whether a call failed"


def test_the_last_message_says_what_the_trial_was_worth(tmp_path: Path) -> None:
    told = messages(read_transcript(write(tmp_path, trial(0, 0, reward=0.0), trial(4, 2))))
    assert told[3].meta == {"reward": 0.0, "task": 0, "trial": 0.0}
    assert told[7].meta == {"reward": 1.0, "task": 4, "trial": 2.0}
    assert [m.meta for m in told[:3]] == [None, None, None]


def test_ids_stay_when_the_trials_are_written_in_another_order(tmp_path: Path) -> None:
    def ids(*trials: Any) -> dict[Any, str]:
        found: dict[Any, str] = {}
        id = ""
        for event in read_transcript(write(tmp_path, *trials)):
            if isinstance(event, SessionStarted):
                id = event.session.id
            elif not isinstance(event, SessionUpdated | UnreadableEntry) and event.meta:
                found[event.meta["task"], event.meta["trial"]] = id
        return found

    before = ids(trial(0, 0), trial(5, 0))
    after = ids(trial(5, 0), trial(0, 0), trial(5, 1))
    assert {key: after[key] for key in before} == before
    assert len(set(after.values())) == 3


def test_a_bad_element_is_located_and_the_others_survive(tmp_path: Path) -> None:
    bad = {**trial(0, 0), "traj": [TRAJ[1], 7, {"content": "no role"}, TRAJ[4]]}
    events = list(read_transcript(write(tmp_path, trial(1, 0), bad, 3, trial(2, 0))))
    assert len(messages(events)) == 4 + 2 + 4
    damage = [e for e in events if isinstance(e, UnreadableEntry)]
    assert [d.what.split(":")[0] for d in damage[:2]] == ["item", "item"]
    assert damage[0].line < damage[1].line
