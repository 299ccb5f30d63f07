"""The picker without a terminal: what its frames show, and which work counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal

from rekindle.cli.picker.frame import render_body, render_field, render_footer, render_header
from rekindle.cli.picker.jobs import LatestJob
from rekindle.cli.picker.paint import FramePainter
from rekindle.cli.picker.reader import build_query, find_week_start, list_tail_entries
from rekindle.cli.picker.state import PickerRow, PickerState, ScopeTotals, TailEntry
from rekindle.cli.terminal.text import measure_width, to_safe_line, wrap_to_width
from rekindle.types import Message, Session, ToolCall
from tests.waiting import PATIENCE

NOW = 1_000_000.0
HOSTILE = "a\x1b[2Jb\x9bc\u202ed\u200be\tf\ng\ud800"


def make_state(count: int, **fields: object) -> PickerState:
    state = PickerState(now=NOW, **fields)  # type: ignore[arg-type]
    sessions = [
        Session(id=f"s{n}", source="claude-code", cwd=f"/work/p{n}", last_active=NOW - 3600)
        for n in range(count)
    ]
    state.replace_rows([PickerRow(one, f"Title {one.id}") for one in sessions], has_more=False)
    return state


def to_texts(lines: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for _, text in line) for line in lines]


def test_every_line_fits_every_screen() -> None:
    state = make_state(50, project="日本語" * 30, totals=ScopeTotals(5, Decimal("1.5")))
    state.rows[1] = PickerRow(state.rows[1].session, "日本語の長い題名" * 9, "x «日本» " * 40)
    state.rows[2] = PickerRow(state.rows[2].session, HOSTILE * 20, HOSTILE * 20)
    for width in (20, 40, 80, 96, 120, 300):
        for height in (1, 5, 30):
            lines = render_body(state, width, height)
            assert len(lines) == height
            lines += [render_header(state, width), *render_footer(state, width)]
            assert all(measure_width(text) <= width for text in to_texts(lines))


def test_the_list_scrolls_with_the_selection_and_reads_only_what_is_shown() -> None:
    state = make_state(100)
    state.move_selection(57)
    shown = to_texts(render_body(state, 80, 10))
    assert shown[-1].startswith("❯ Title s57")
    state.move_selection(-1000)
    assert to_texts(render_body(state, 80, 10))[0].startswith("❯ Title s0")


def test_foreign_text_is_shown_and_controls_nothing() -> None:
    line = to_safe_line(HOSTILE, 100)
    assert line.isprintable()
    assert line.startswith("a␛[2Jb")
    assert all(piece.isprintable() for piece in wrap_to_width(HOSTILE * 9, 20))


def test_long_words_are_wrapped_and_nothing_of_them_is_lost() -> None:
    for text in ("x" * 95, "日本" * 30, "a b " + "y" * 50 + " c"):
        lines = wrap_to_width(text, 20)
        assert all(measure_width(line) <= 20 for line in lines)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_the_end_of_a_long_search_stays_visible_with_the_cursor() -> None:
    state = make_state(1, typed="a" * 300 + "END", cursor=303)
    line, column = render_field(state, 80)
    assert to_texts([line])[0].endswith("END")
    assert column < 80


def test_only_lines_that_differ_are_painted_again() -> None:
    state, painter = make_state(20), FramePainter()
    assert painter.render_changes(state, 80, 30).count("\x1b[K") == 30
    assert painter.render_changes(state, 80, 30).count("\x1b[K") == 0
    state.move_selection(1)
    assert painter.render_changes(state, 80, 30).count("\x1b[K") == 2
    painter.clear()
    assert painter.render_changes(state, 80, 30).count("\x1b[K") == 30


def test_a_word_that_is_being_typed_may_go_on_and_others_may_not() -> None:
    cases = {"log": "log*", "lo": "lo", "log ": "log ", '"log': '"log', "fix log": "fix log*"}
    assert {text: build_query(text) for text in cases} == cases


def test_a_week_begins_on_monday() -> None:
    start = find_week_start(NOW)
    assert NOW - 7 * 86_400 < start <= NOW
    assert find_week_start(start) == start
    assert find_week_start(start - 1) < start


def test_calls_between_two_texts_are_one_line() -> None:
    call = ToolCall("1", "Bash", "{}")
    messages = [
        Message("user", "go"),
        *[Message("assistant", tool_calls=(call,)), Message("tool", "ok", tool_call_id="1")] * 3,
        Message("assistant", "done"),
    ]
    assert list_tail_entries(messages) == [
        TailEntry("user", "go"),
        TailEntry("call", "Bash ×3"),
        TailEntry("assistant", "done"),
    ]


def test_only_the_latest_request_runs_and_counts() -> None:
    delivered: list[str] = []
    done, blocked, is_running = threading.Event(), threading.Event(), threading.Event()
    ran: list[str] = []

    def deliver(action: Callable[[], None]) -> None:
        action()

    def work(name: str) -> Callable[[Callable[[], bool]], str]:
        def run(is_stale: Callable[[], bool]) -> str:
            ran.append(name)
            if name == "first":
                is_running.set()
                blocked.wait(PATIENCE)
                assert is_stale()
            return name

        return run

    def keep(result: str) -> None:
        delivered.append(result)
        done.set()

    job: LatestJob[str] = LatestJob(deliver, delivered.append)
    job.submit(work("first"), keep)
    assert is_running.wait(PATIENCE)
    for name in ("second", "third", "last"):
        job.submit(work(name), keep)
    blocked.set()
    assert done.wait(PATIENCE)
    assert (ran, delivered) == (["first", "last"], ["last"])
