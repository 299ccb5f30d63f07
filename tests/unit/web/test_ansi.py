"""Terminal output as HTML: colors stay, nothing else does."""

from __future__ import annotations

import random
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.web.processes.ansi import MAX_LINE_CHARS, AnsiConverter, convert_text, match_color

ALLOWED = re.compile(r'<span class="(?:a-[a-z-]+ ?)+">|</span>')


def read_text(html: str) -> str:
    """Return what a reader sees, after a check that the HTML holds nothing but our spans."""
    plain = ALLOWED.sub("", html)
    assert not {*"<>"} & {*plain}
    return unescape(plain)


@pytest.mark.parametrize(
    ("output", "html"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m rest", '<span class="a-red">red</span> rest'),
        ("\x1b[1;32mgo\x1b[0m on", '<span class="a-green a-bold">go</span> on'),
        ("\x1b[38;5;196mx", '<span class="a-red">x</span>'),
        ("\x1b[38;2;10;200;30mx", '<span class="a-green">x</span>'),
        ("\x1b[38:2::10:200:30mx", '<span class="a-green">x</span>'),
        ("\x1b[38;5;245mx", '<span class="a-gray">x</span>'),
        ("\x1b[97;41mx", '<span class="a-white a-on-red">x</span>'),
        ("\x1b[4:3mx\x1b[4:0my", '<span class="a-underline">x</span>y'),
        ("\x1b[7mx\x1b[27my", '<span class="a-reverse">x</span>y'),
        ("\x1b[31mx\x1b[my", '<span class="a-red">x</span>y'),
        ("<b>&\x1b[31m<i>", '&lt;b&gt;&amp;<span class="a-red">&lt;i&gt;</span>'),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "textlink"),
        ("a\x1b[2J\x1b[Hb\x1b(Bc\x1b=d\x1b[?25le", "abcde"),
        ("\x1b[>4;2mx", "x"),
        ("10%\r50%\r100%", "100%"),
        ("abc\b\bX", "aX"),
        ("a\x00\x07\x9b\x7fb\tc", "ab\tc"),
        ("\x1b[999999999999999999999mx", "x"),
        ("\x1b[38;5mx", "x"),
    ],
)  # fmt: skip
def test_output_becomes_html(output: str, html: str) -> None:
    assert convert_text(output) == [html]


def test_lines_and_what_is_left_of_them() -> None:
    converter = AnsiConverter()
    assert converter.convert("one\ntw") == ["one"]
    assert converter.render_rest() == "tw"
    assert converter.convert("o\r\n\x1b[3") == ["two"]
    assert converter.convert("4mthree\nfour") == ['<span class="a-blue">three</span>']
    assert converter.render_rest() == '<span class="a-blue">four</span>'


def test_a_carriage_return_at_the_end_of_a_piece_keeps_the_line() -> None:
    converter = AnsiConverter()
    assert converter.convert("kept\r") == []
    assert converter.convert("\nnext") == ["kept"]


def test_a_line_without_end_is_broken() -> None:
    converter = AnsiConverter()
    lines = [line for _ in range(50) for line in converter.convert("x" * 1000)]
    assert {len(line) for line in lines} == {MAX_LINE_CHARS}
    assert len("".join(lines) + converter.render_rest()) == 50_000


def test_a_sequence_without_end_does_not_hide_what_follows_forever() -> None:
    converter = AnsiConverter()
    lines = converter.convert("\x1b]0;" + "x" * 100_000 + "\nseen")
    assert read_text("".join(lines) + converter.render_rest()).endswith("seen")


@given(st.text(alphabet=st.sampled_from("ab<>&\"'\x1b[]0123456789;:?mKHJ\r\n\b\t\x07\x9b\\P")))
def test_nothing_but_our_own_elements_comes_out(output: str) -> None:
    for line in convert_text(output):
        read_text(line)


def test_pieces_give_the_same_lines_as_the_whole() -> None:
    chance = random.Random(7)
    output = "".join(
        chance.choice(["\x1b[31m", "\x1b[0m", "text <b>", "\n", "\r", "é", "\x1b]0;t\x07", "\x1b[1;4m"])
        for _ in range(2000)
    )  # fmt: skip
    converter = AnsiConverter()
    lines: list[str] = []
    position = 0
    while position < len(output):
        step = chance.randrange(1, 9)
        lines += converter.convert(output[position : position + step])
        position += step
    assert [read_text(line) for line in (*lines, converter.render_rest())] == [
        read_text(line) for line in _convert_whole(output)
    ]


def _convert_whole(output: str) -> list[str]:
    converter = AnsiConverter()
    lines = converter.convert(output)
    return [*lines, converter.render_rest()]


@pytest.mark.parametrize(
    ("color", "name"),
    [((255, 0, 0), "red"), ((250, 240, 40), "yellow"), ((90, 90, 95), "gray"), ((0, 0, 0), "black")],
)  # fmt: skip
def test_a_color_gets_the_nearest_name(color: tuple[int, int, int], name: str) -> None:
    assert match_color(*color) == name
