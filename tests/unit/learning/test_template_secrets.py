"""Whatever a session says or runs: its literals are in no template, export or table."""

from __future__ import annotations

import json
import re
from pathlib import Path

import apsw
import pytest

from rekindle import Message, Store, ToolCall
from rekindle.learning import build
from rekindle.learning.library import TemplateLibrary, export_template
from rekindle.learning.session_filter import BuildFilter
from rekindle.redaction.redactor import Redactor
from tests.new_store import open_new_store
from tests.unit.knowledge.notes.test_secrets import find_values, read_planted

PROSE = (
    "log in with admin / swordfish", "the password is Tr0ub4dor", "my PIN is 8731",
    "Ada Lovelace lives in Elm Street 12", "mail to ada@lovelace.example",
    "das Kennwort lautet Sonnenblume", "always use swordfish for staging",
    "remember: root is toor1234", "never tell hunter2hunter to anybody",
)  # fmt: skip
PROSE_VALUES = (
    "swordfish", "Tr0ub4dor", "8731", "Lovelace", "Elm", "ada@", "Sonnenblume", "toor1234",
    "hunter2hunter",
)  # fmt: skip


def find_value(text: str, value: str) -> int:
    """Return where a value is, or -1; digits inside an id, a hash or a time are not the value."""
    pattern = rf"(?<![\da-f.]){value}(?![\da-f])" if value.isdigit() else re.escape(value)
    found = re.search(pattern, text)
    return found.start() if found else -1


def plant(store: Store, text: str, number: int, copy: int) -> str:
    """A session with the text in every place that a session has."""
    session = store.begin(title=f"{copy} {number}: {text}"[:90], cwd="/srv/shop")
    said = [Message("system", f"Use the tools. {text}"), Message("user", f"Build it. {text}")]
    calls = [
        {"command": f"make build {text}"}, {"command": f"make deploy-{number} --key '{text}'"},
        {"command": f"TOKEN='{text}' npm test"}, {"command": "make check"},
        {"command": f"npm run build -- {text}"},
    ]  # fmt: skip
    for place, arguments in enumerate(calls):
        call = ToolCall(f"c{place}", "terminal", json.dumps(arguments))
        code = int(place == 2)
        result = Message("tool", f"out: {text}", tool_call_id=call.id, meta={"exit_code": code})
        said += [Message("assistant", None, [call]), result]
    path = ToolCall("f", "read_file", json.dumps({"path": f"/srv/shop/{text}/a.py"}))
    said += [
        Message("assistant", None, [path]),
        Message("tool", text, tool_call_id="f"),
        Message("assistant", f"It says {text}."),
        Message("user", f"Always do this: {text}. Never forget that. Remember {text} always."),
        Message("assistant", "Done."),
    ]
    store.append(session, *said)
    return session.id


@pytest.mark.parametrize("chosen", ["missed", "prose"])
def test_no_planted_value_is_in_a_template_an_export_or_a_table(
    tmp_path: Path, chosen: str
) -> None:
    planted = read_planted() if chosen == "missed" else list(PROSE)
    values = {value for text in planted for value in find_values(text)}
    sought = values if chosen == "missed" else set(PROSE_VALUES)
    assert len(sought) > 8
    folder = TemplateLibrary(tmp_path / "templates")
    with open_new_store(str(tmp_path / "s.db")) as store:
        ids = [
            plant(store, text, number, copy)
            for number, text in enumerate(planted)
            for copy in range(2)
        ]
        wanted = BuildFilter(min_messages=1, max_sessions=10_000, max_notes=2_000)
        build.build_template(store, folder, Redactor(), "All", wanted)
        for number, id in enumerate(ids[::2]):
            build.extract_template(store, folder, Redactor(), id, f"One {number}")
    written = [path.read_text() for path in folder.folder.glob("*.json")]
    assert any("make check" in text for text in written)
    written += [export_template(folder.find("All"), "rekindle", 0.0).decode()]
    database = apsw.Connection(str(tmp_path / "s.db"), flags=apsw.SQLITE_OPEN_READONLY)
    for table in ("observations", "playbooks", "templates"):
        rows = database.execute(f"SELECT * FROM {table}").fetchall()
        written += [
            value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            for row in rows
            for value in row
        ]
    everything = "\n".join(written)
    found = {
        value: everything[max(0, at - 80) : at + 80]
        for value in sought
        if (at := find_value(everything, value)) >= 0
    }
    assert found == {}
