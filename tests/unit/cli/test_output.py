"""How a command speaks."""

import io
import json
import re

import pytest

from rekindle.cli.app import _move_global_options_first  # pyright: ignore[reportPrivateUsage]
from rekindle.cli.output import (
    Column,
    encode_json,
    format_age,
    format_size,
    session_to_dict,
    shorten_ids,
    to_one_line,
    write_table,
)
from rekindle.cli.session_choice import is_filter
from rekindle.types import Message, Session


def test_json_holds_text_that_utf8_cannot_say() -> None:
    line = encode_json(Message(role="user", content="a\ud800b"))
    assert json.loads(line)["content"] == "a\ud800b"


def test_a_session_as_json_has_every_field() -> None:
    fields = json.loads(encode_json(session_to_dict(Session(id="x"))))
    assert fields["owner"] is None
    assert fields["message_count"] == 0
    assert fields["tokens"]["cache_read"] == 0


def test_ids_are_shortened_as_far_as_they_stay_apart() -> None:
    uuids = ["0198c2f0-1111-7000-8000-000000000001", "0198c2f0-1111-7000-8000-000000000002"]
    assert shorten_ids(["20260105_140301_ab12cd34"]) == ["20260105_140301_ab12cd34"]
    assert shorten_ids(uuids[:1]) == ["0198c2f0-1111"]
    assert len(set(shorten_ids(uuids))) == 2
    assert shorten_ids([]) == []


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(5, "now"), (90, "1 min"), (7200, "2 h"), (86400 * 99, "99 d"), (1e9, "31 y"), (-50, "now")],
)
def test_activity_is_told_in_the_unit_that_fits(seconds: float, shown: str) -> None:
    assert format_age(Session(id="x", last_active=1e9 - seconds), 1e9) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (999, "999 B"), (2100, "2.1 kB"), (50_000_000, "50.0 MB")]
)
def test_sizes_are_for_people(count: int, shown: str) -> None:
    assert format_size(count) == shown


def test_one_line_flattens_and_cuts() -> None:
    assert to_one_line("a\n b\tc", 10) == "a b c"
    assert to_one_line("x" * 20, 10) == "x" * 9 + "…"


def write_long_row(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> str:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("COLUMNS", "40")
    write_table((Column("name", flexible=True), Column("n")), [("long " * 300, "1")])
    return out.getvalue().splitlines()[1]


def test_a_table_fits_the_terminal_and_is_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(re.sub(r"\x1b\[\d+m", "", write_long_row(monkeypatch, is_terminal=True))) == 40
    whole = write_long_row(monkeypatch, is_terminal=False)
    assert whole == " ".join(["long"] * 300) + "  1"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["source=telegram", "idle>30d"], True),
        (["source=telegram idle>30d"], True),
        (["title~login"], True),
        (["My Project"], False),
        (["20260105_1403"], False),
    ],
)
def test_a_filter_and_a_name_are_told_apart(words: list[str], expected: bool) -> None:
    assert is_filter(words) is expected


def test_the_store_may_be_named_anywhere_on_the_line() -> None:
    assert _move_global_options_first(["sessions", "list", "--store", "a.db"]) == [
        "--store", "a.db", "sessions", "list",
    ]  # fmt: skip
    assert _move_global_options_first(["sessions", "list", "--store=a.db"]) == [
        "--store=a.db",
        "sessions",
        "list",
    ]
    assert _move_global_options_first(["sessions", "list", "--no-refresh"]) == [
        "--no-refresh", "sessions", "list",
    ]  # fmt: skip
    program = ["run", "make", "--no-refresh"]
    assert _move_global_options_first(program) == program
    after = ["sessions", "search", "--", "--store", "x"]
    assert _move_global_options_first(after) == after
