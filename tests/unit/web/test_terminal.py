"""The screen of a terminal that the server keeps."""

from __future__ import annotations

import random
import re
from html import unescape

import pytest

from rekindle.web.processes.terminal import MAX_COLUMNS, MAX_ROWS, TerminalScreen

ALLOWED = re.compile(r'<span class="(?:a-[a-z-]+ ?|cursor)+">|</span>')


def read_screen(screen: TerminalScreen) -> list[str]:
    """Return the rows as a reader sees them, without blanks at the end."""
    return [read_row(screen.render_row(number)) for number in range(screen.rows)]


def read_row(html: str) -> str:
    plain = ALLOWED.sub("", html)
    assert not {*"<>"} & {*plain}
    return unescape(plain).rstrip()


def make_screen(output: str | bytes, rows: int = 4, columns: int = 20) -> TerminalScreen:
    screen = TerminalScreen(rows, columns)
    screen.feed(output if isinstance(output, bytes) else output.encode())
    return screen


def test_text_colors_and_cursor() -> None:
    screen = make_screen("\x1b[1;31mred\x1b[0m <b>\r\nnext")
    assert screen.render_row(0) == '<span class="a-red a-bold">red</span> &lt;b&gt;'
    assert screen.render_row(1) == 'next<span class="cursor"> </span>'


def test_the_cursor_moves_and_can_be_hidden() -> None:
    screen = make_screen("one\r\ntwo\x1b[1;2H")
    assert screen.render_row(0) == 'o<span class="cursor">n</span>e'
    screen.feed(b"\x1b[?25l")
    assert screen.render_row(0) == "one"


def test_only_changed_rows_are_rendered() -> None:
    screen = make_screen("one\r\ntwo\r\n")
    assert {0, 1, 2} <= {*screen.render_changes()}
    screen.feed(b"x")
    assert {*screen.render_changes()} == {2}
    screen.feed(b"\x1b[H")
    assert {*screen.render_changes()} == {0, 2}  # where the cursor is, and where it was


def test_a_full_screen_program_leaves_the_screen_as_it_was() -> None:
    screen = make_screen("$ vim\r\n")
    screen.feed(b"\x1b[?1049h\x1b[2J\x1b[H~ file ~")
    assert read_screen(screen)[0] == "~ file ~"
    screen.feed(b"\x1b[?1049l$ ")
    assert read_screen(screen)[:2] == ["$ vim", "$"]


def test_keys_and_pastes_are_sent_as_the_program_asks() -> None:
    screen = make_screen("\x1b[?1h\x1b[?2004h")
    assert screen.modes == (True, True)
    screen.feed(b"\x1b[?1l\x1b[?2004l")
    assert screen.modes == (False, False)


def test_boxes_are_drawn() -> None:
    assert read_screen(make_screen("\x1b(0lqk\x1b(B x"))[0] == "┌─┐ x"


@pytest.mark.parametrize(
    "noise",
    [
        "\x1b]0;a title\x07", "\x1b]8;;http://x\x1b\\", "\x1bPq#0;2\x1b\\", "\x1b[>4;2m", "\x1b[?3h",
        "\x1b[2 q", "\x1b[!p", "\x1b[=1u", "\x1b[" + "9" * 5000 + "m", "\x9b31m",
    ],
)  # fmt: skip
def test_what_is_not_for_the_screen_is_left_out(noise: str) -> None:
    screen = make_screen(f"{noise}text", columns=40)
    assert screen.columns == 40
    assert "text" in read_screen(screen)[0]
    assert "a-" not in screen.render_row(0)


def test_sequences_and_characters_may_be_split() -> None:
    output = "\x1b[1;32mgrün\x1b[0m \x1b]0;t\x07ok".encode()
    screen = TerminalScreen(4, 20)
    for byte in output:
        screen.feed(bytes([byte]))
    assert screen.render_row(0) == (
        '<span class="a-green a-bold">grün</span> ok<span class="cursor"> </span>'
    )


def test_size_changes_within_limits() -> None:
    screen = make_screen("one\r\ntwo\r\nthree", rows=10)
    screen.resize(4, 30)
    assert read_screen(screen) == ["one", "two", "three", ""]
    screen.resize(2, 30)
    assert read_screen(screen)[-1] == "three"
    screen.resize(10**6, 10**6)
    assert (screen.rows, screen.columns) == (MAX_ROWS, MAX_COLUMNS)
    screen.feed(b"\x1b[200;400Hx")
    screen.resize(0, -1)
    read_screen(screen)


def test_hostile_output_takes_little_memory_and_nothing_but_text_comes_out() -> None:
    screen = make_screen("e" + "\u0301" * 50_000)
    assert len(read_screen(screen)[0]) < 20
    screen = make_screen("\x1b7" * 10_000)
    assert len(screen._screen.savepoints) < 20  # pyright: ignore[reportPrivateUsage]
    screen = make_screen("\x1b]0;")
    for _ in range(50):
        screen.feed(b"x" * 1000)
    assert len(screen._rest) < 10_000  # pyright: ignore[reportPrivateUsage]


def test_random_output_never_fails() -> None:
    chance = random.Random(3)
    parts = [
        "\x1b[", "\x1b]", "\x1b", "?", ";", "1", "48", "2004", "h", "l", "m", "H", "J", "K", "L", "r",
        "@", "<script>", "\n", "\r", "\b", "é", "世", "\u0301", "\x07", "P", "X", "S", "T", "c", "\x1bc",
        "\x84", ">", "\x1b(0", "\x1b#8", "\x1b7", "\x1b8", "\x1bM", "99999", "b", "n",
    ]  # fmt: skip
    screen = TerminalScreen(6, 15)
    for _ in range(400):
        screen.feed("".join(chance.choices(parts, k=30)).encode())
        if not chance.randrange(20):
            screen.resize(chance.randrange(1, 12), chance.randrange(5, 30))
        for html in screen.render_changes().values():
            read_row(html)
    screen.forget_sequence()
    screen.feed(b"\x1bcclear")
    assert "clear" in read_screen(screen)[0]
