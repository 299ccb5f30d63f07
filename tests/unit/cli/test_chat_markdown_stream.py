"""Text that flows onto a terminal: wrapped at words, lightly styled, the same however it comes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rekindle.cli.chat.markdown_stream import MarkdownStream

STYLES = re.compile(r"\x1b\[[0-9;]*m")
MARKDOWN = st.text(alphabet=st.sampled_from("ab *`#->\n1.~日\t"), max_size=120)


def flowed(text: str, width: int = 40, *, styled: bool = True, chunk: int | None = None) -> str:
    flow = MarkdownStream(lambda: width, styled=styled)
    size = chunk or max(1, len(text))
    pieces = [flow.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return "".join(pieces) + flow.finish()


def plain(text: str, width: int = 40) -> str:
    return STYLES.sub("", flowed(text, width))


def test_a_word_is_shown_as_soon_as_it_is_whole() -> None:
    flow = MarkdownStream(lambda: 40)
    assert flow.feed("Hel") == ""
    assert flow.feed("lo wor") == "Hello"
    assert flow.feed("ld ") == " world"
    assert flow.finish() == ""


def test_lines_break_between_words_and_never_in_one_that_fits() -> None:
    assert plain("the quick brown fox", 10) == "the quick\nbrown fox"


def test_a_word_longer_than_a_line_stays_whole() -> None:
    address = "https://example.org/" + "x" * 50
    assert address in plain(f"see {address} now", 20)


def test_scripts_without_spaces_break_anywhere_by_their_width() -> None:
    lines = plain("日本語の文章はどこでも折り返せる", 10).split("\n")
    assert all(cell_len(line) <= 10 for line in lines)
    assert "".join(lines) == "日本語の文章はどこでも折り返せる"


def test_a_wrapped_item_goes_on_under_its_words() -> None:
    assert plain("- one two three", 9) == "• one two\n  three"
    assert plain("12. one two three", 11) == "12. one two\n    three"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("**strong** words", "\x1b[0;1mstrong\x1b[0m words"),
        ("a `code` b", "a \x1b[0;36mcode\x1b[0m b"),
        ("# Heading\ntext", "\x1b[0;1mHeading\x1b[0m\ntext"),
        ("> quoted", "\x1b[0;2m│ quoted\x1b[0m"),
        ("`a ** b`", "\x1b[0;36ma\x1b[0m \x1b[0;36m**\x1b[0m \x1b[0;36mb\x1b[0m"),
    ],
)
def test_light_markdown_becomes_style(written: str, shown: str) -> None:
    assert flowed(written) == shown


@pytest.mark.parametrize(
    "text", ["2 * 3 * 4", "a ** b", "*one*", "-5 degrees", "#hashtag", "1.5 metres", "a***b", "~5"]
)
def test_what_only_looks_like_markdown_stands_as_written(text: str) -> None:
    assert flowed(text) == text


def test_code_in_a_fence_is_written_as_it_is_and_not_wrapped() -> None:
    code = "```python\nif x:\n    return '**y**' and `z` # a long line that is longer\n```"
    assert plain(code, 20) == code
    assert flowed(f"{code}\n**after**").endswith("\x1b[0;1mafter\x1b[0m")


def test_strong_words_that_never_end_stop_with_their_line() -> None:
    assert flowed("**open\nnext") == "\x1b[0;1mopen\x1b[0m\nnext"


def test_without_style_nothing_is_changed_but_the_breaks() -> None:
    text = "# A *b* **c** `d`\n- e"
    assert flowed(text, styled=False) == text


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert plain("a\x1b[2J\x07b\r\n") == "a␛[2J␇b\n"


@given(text=MARKDOWN, chunk=st.integers(1, 7), width=st.integers(10, 30))
def test_it_does_not_matter_in_what_pieces_a_text_comes(text: str, chunk: int, width: int) -> None:
    assert flowed(text, width, chunk=chunk) == flowed(text, width)


@given(words=st.lists(st.text("abcdefgh", min_size=1, max_size=9), min_size=1, max_size=40))
def test_no_word_is_lost_and_no_line_is_too_long(words: list[str]) -> None:
    shown = plain(" ".join(words), 12)
    assert shown.split() == words
    assert all(len(line) <= 12 for line in shown.split("\n"))


@given(text=MARKDOWN)
def test_the_terminal_is_always_left_in_its_own_style(text: str) -> None:
    codes = STYLES.findall(flowed(text))
    assert not codes or codes[-1] == "\x1b[0m"
