from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import pytest

from rekindle.transcripts import (
    SessionStarted,
    SessionUpdated,
    UnreadableEntry,
    detect_format,
    read_transcript,
)
from rekindle.types import Tokens
from tests.unit.transcripts.conftest import Write, messages

TIME = 1_772_359_200_000
SESSION = {
    "id": "ses_1",
    "projectID": "p",
    "directory": "/repo",
    "parentID": "ses_0",
    "title": "A title",
    "time": {"created": TIME},
}
USAGE = {"input": 10, "output": 5, "reasoning": 2, "cache": {"read": 100, "write": 1}}


def prompt(id: str, *parts: dict[str, Any]) -> dict[str, Any]:
    info = {"id": id, "sessionID": "ses_1", "role": "user", "time": {"created": TIME + 1}}
    return {"info": info, "parts": _numbered(id, parts)}


def answer(id: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    info = {
        "id": id,
        "sessionID": "ses_1",
        "role": "assistant",
        "modelID": "model-a",
        "time": {"created": TIME + 2},
        "cost": 0.5,
        "tokens": USAGE,
        "finish": "stop",
        **more,
    }
    return {"info": info, "parts": _numbered(id, parts)}


def _numbered(id: str, parts: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    owner = {"messageID": id, "sessionID": "ses_1"}
    return [{"id": f"prt_{id}_{n}", **owner, **part} for n, part in enumerate(parts)]


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def ran(call: str, output: str = "out", **state: Any) -> dict[str, Any]:
    time = {"start": TIME, "end": TIME + 1500}
    full = {"status": "completed", "input": {"x": call}, "output": output, "time": time, **state}
    return {"type": "tool", "callID": call, "tool": "bash", "state": full}


STEP = {"type": "step-start"}


def export(*told: dict[str, Any], **more: Any) -> str:
    return json.dumps({"info": SESSION, "messages": list(told), **more}, indent=2)


def test_a_part_becomes_a_call_and_its_result(write: Write) -> None:
    path = write(
        export(
            prompt("msg_1", said("do it"), said("file text", synthetic=True)),
            answer(
                "msg_2",
                STEP,
                {"type": "reasoning", "text": "plan"},
                said("I do."),
                ran("c1", metadata={"exit": 2}),
                ran("c2", status="error", error="Error: not there", output=None),
                ran("c3", status="running", output=None),
                {"type": "step-finish", "reason": "tool-calls", "tokens": USAGE},
                {"type": "patch", "files": []},
            ),
        )
    )
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "tool"]
    assert told[0].content == "do it"
    assert (told[1].content, told[1].reasoning) == ("I do.", "plan")
    assert told[1].finish_reason == "tool-calls"
    assert [call.id for call in told[1].tool_calls] == ["c1", "c2", "c3"]
    assert told[2].meta == {"is_error": False, "exit_code": 2, "duration": 1.5}
    assert (told[3].content, told[3].name) == ("Error: not there", "bash")
    assert told[3].meta == {"is_error": True, "duration": 1.5}
    learned = next(e.session for e in read_transcript(path) if isinstance(e, SessionUpdated))
    assert learned.tokens == Tokens(10, 5, cache_read=100, cache_write=1, reasoning=2)
    assert (learned.cost, learned.title) == (Decimal("0.5"), "A title")
    opened = next(e.session for e in read_transcript(path) if isinstance(e, SessionStarted))
    assert (opened.id, opened.parent, opened.cwd) == ("ses_1", "ses_0", "/repo")


def test_the_steps_of_an_older_message_are_answers_of_their_own(write: Write) -> None:
    finish = {"type": "step-finish", "reason": "tool-calls", "tokens": USAGE}
    path = write(
        export(
            answer("msg_1", STEP, ran("c1"), finish, STEP, ran("c2"), finish, STEP, said("Done."))
        )
    )
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert [m.platform_message_id for m in told] == ["msg_1", "c1", "msg_1:2", "c2", "msg_1:3"]
    learned = next(e.session for e in read_transcript(path) if isinstance(e, SessionUpdated))
    assert learned.tokens.input == 20


def test_masked_ids_are_made_from_the_place(write: Write) -> None:
    first, second = ran("REDACTED"), ran("REDACTED")
    masked = {**SESSION, "parentID": "REDACTED"}
    told = answer("msg_1", first, {**second, "id": "REDACTED"})
    path = write(json.dumps({"info": masked, "messages": [told]}, indent=1))
    message, *results = messages(read_transcript(path))
    made = [call.id for call in message.tool_calls]
    assert made == ["prt_msg_1_0", "msg_1:part:1"]
    assert [m.tool_call_id for m in results] == made
    assert (
        next(e.session.parent for e in read_transcript(path) if isinstance(e, SessionStarted))
        is None
    )


def test_a_compaction_and_a_stopped_answer_are_told_by_the_message_after_them(
    write: Write,
) -> None:
    aborted = {"name": "MessageAbortedError", "data": {"message": "stopped"}}
    failed = {"name": "APIError", "data": {"message": "429 slow down"}}
    path = write(
        export(
            prompt("msg_1", {"type": "compaction", "auto": True}),
            answer("msg_2", said("so far"), summary=True),
            prompt("msg_3", said("continue", synthetic=True)),
            answer("msg_4", said("half"), error=aborted),
            prompt("msg_5", said("go on")),
            answer("msg_6", error=failed, finish=None),
            answer("msg_7"),
        )
    )
    half, go_on, refused = messages(read_transcript(path))
    assert half.meta == {
        "compacted": {"trigger": "auto", "summary": "so far"},
        "error": "stopped",
    }
    assert go_on.meta == {"aborted": True}
    assert refused.meta == {"error": "429 slow down", "api_error": True}


def test_a_stopped_command_shows_what_the_model_got(write: Write) -> None:
    stopped = {"interrupted": True, "output": "until then"}
    path = write(export(answer("msg_1", ran("c1", status="error", error="x", metadata=stopped))))
    result = messages(read_transcript(path))[1]
    assert result.content == "until then"
    assert (result.meta or {})["interrupted"] is True


def test_a_task_names_the_session_of_its_sub_agent(write: Write) -> None:
    path = write(export(answer("msg_1", ran("c1", metadata={"sessionId": "ses_9"}))))
    assert (messages(read_transcript(path))[1].meta or {})["agent"] == "ses_9"


TOLD = (
    prompt("msg_1", said("do it")),
    answer("msg_2", said("I do."), ran("c1", metadata={"exit": 0})),
    answer("msg_3", said("Done.")),
)


def test_the_storage_on_disk_gives_what_the_export_gives(tmp_path: Path, write: Write) -> None:
    exported = list(read_transcript(write(export(*TOLD), name="export.json")))
    new, old = tmp_path / "storage", tmp_path / "old" / "storage" / "session"
    for session, message, part in (
        (new / "session" / "p", new / "message" / "ses_1", new / "part"),
        (old / "info", old / "message" / "ses_1", old / "part" / "ses_1"),
    ):
        file(session / "ses_1.json", SESSION)
        for told in TOLD:
            file(message / f"{told['info']['id']}.json", told["info"])
            for piece in told["parts"]:
                file(part / told["info"]["id"] / f"{piece['id']}.json", piece)
        assert list(read_transcript(session / "ses_1.json")) == exported
        for lone in (*message.glob("*.json"), *part.rglob("*.json")):
            assert list(read_transcript(lone)) == []


def test_a_damaged_file_of_the_storage_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    root = tmp_path / "storage"
    file(root / "session" / "p" / "ses_1.json", SESSION)
    for told in TOLD:
        file(root / "message" / "ses_1" / f"{told['info']['id']}.json", told["info"])
        for piece in told["parts"]:
            file(root / "part" / told["info"]["id"] / f"{piece['id']}.json", piece)
    bad = root / "part" / "msg_2" / "prt_msg_2_0.json"
    bad.write_text('{"type": "te')
    events = list(read_transcript(root / "session" / "p" / "ses_1.json"))
    assert [e.file for e in events if isinstance(e, UnreadableEntry)] == [str(bad)]
    assert [m.role for m in messages(events)] == ["user", "assistant", "tool", "assistant"]


def file(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def database(path: Path) -> apsw.Connection:
    made = apsw.Connection(str(path))
    made.execute(
        """
        CREATE TABLE `session` (`id` text PRIMARY KEY, `project_id` text, `parent_id` text,
            `slug` text, `directory` text, `title` text, `time_created` integer);
        CREATE TABLE `message` (`id` text PRIMARY KEY, `session_id` text, `time_created` integer,
            `data` text);
        CREATE TABLE `part` (`id` text PRIMARY KEY, `message_id` text, `session_id` text,
            `data` text);
        """
    )
    return made


def fill(made: apsw.Connection) -> None:
    made.execute("INSERT INTO session VALUES ('ses_2', 'p', NULL, 's', '/x', 'Empty', 0)")
    made.execute(
        "INSERT INTO session VALUES ('ses_1', 'p', 'ses_0', 's', '/repo', 'A title', ?)", (TIME,)
    )
    for told in TOLD:
        info = {k: v for k, v in told["info"].items() if k not in ("id", "sessionID")}
        id, created = told["info"]["id"], told["info"]["time"]["created"]
        row = (id, "ses_1", created, json.dumps(info))
        made.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
        for part in told["parts"]:
            data = {k: v for k, v in part.items() if k not in ("id", "sessionID", "messageID")}
            row = (part["id"], id, "ses_1", json.dumps(data))
            made.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)


@pytest.mark.parametrize("log", [False, True])
def test_the_database_gives_what_the_export_gives(
    tmp_path: Path, write: Write, *, log: bool
) -> None:
    path = tmp_path / "data" / "opencode.db"
    path.parent.mkdir()
    made = database(path)
    if log:
        made.execute("PRAGMA journal_mode = WAL")
    fill(made)
    if not log:
        made.close()
    before = {beside.name for beside in path.parent.iterdir()}
    format = detect_format(path)
    assert format is not None
    assert format.name == "opencode"
    events = list(read_transcript(path))
    assert messages(events) == messages(read_transcript(write(export(*TOLD))))
    assert [e.session.id for e in events if isinstance(e, SessionStarted)] == ["ses_1"]
    opened = next(e.session for e in events if isinstance(e, SessionStarted))
    assert (opened.parent, opened.title, opened.cwd) == ("ses_0", "A title", "/repo")
    assert {beside.name for beside in path.parent.iterdir()} == before


def test_a_row_that_is_not_json_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    made = database(path)
    fill(made)
    made.execute("UPDATE message SET data = '{' WHERE id = 'msg_2'")
    made.close()
    events = list(read_transcript(path))
    (damage,) = [e for e in events if isinstance(e, UnreadableEntry)]
    assert "message msg_2" in damage.what
    assert [m.text for m in messages(events)] == ["do it", "Done."]


def test_a_database_of_somebody_else_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    made = apsw.Connection(str(path))
    made.execute("CREATE TABLE message (id text, data text)")
    made.close()
    format = detect_format(path)
    assert format is None or format.name != "opencode"


def test_text_in_the_database_that_is_not_utf_8_costs_no_other_row(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    made = database(path)
    fill(made)
    told = len(messages(read_transcript(path)))
    bad = "UPDATE part SET data = CAST(replace(CAST(data AS BLOB), 'text', X'FF') AS TEXT)"
    made.execute(f"{bad} WHERE rowid = 1")
    made.close()
    events = list(read_transcript(path))
    assert len(messages(events)) >= told - 1
    assert path.read_bytes().count(b"\xff") >= 1


def test_a_database_whose_tables_are_defined_far_from_its_beginning_is_recognized(
    tmp_path: Path,
) -> None:
    path = tmp_path / "opencode.db"
    made = apsw.Connection(str(path))
    made.execute("CREATE TABLE `event` (`id` text PRIMARY KEY, `data` text)")
    made.execute("INSERT INTO event VALUES ('e', ?)", ("x" * 200_000,))
    for number in range(60):  # more definitions than fit into the first page
        made.execute(f"CREATE TABLE `other_{number}` (`id` text PRIMARY KEY, `data` text)")
    made.close()
    made = database(path)
    fill(made)
    made.close()
    assert b"`part`" not in path.read_bytes()[: 64 * 1024]
    format = detect_format(path)
    assert format is not None
    assert format.name == "opencode"
    assert messages(read_transcript(path))
