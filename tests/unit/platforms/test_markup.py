from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.platforms.common.markup import Span, parse_markdown, render_marks


def shown(text: str) -> str:
    return "".join(span.text for span in parse_markdown(text))


def styled(text: str) -> list[tuple[str, set[str]]]:
    return [(span.text, set(span.styles)) for span in parse_markdown(text)]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("plain", [("plain", set())]),
        ("**b** and *i*", [("b", {"bold"}), (" and ", set()), ("i", {"italic"})]),
        ("***x***", [("x", {"bold", "italic"})]),
        ("**a *b* c**", [("a ", {"bold"}), ("b", {"bold", "italic"}), (" c", {"bold"})]),
        ("~~no~~ `a*b*`", [("no", {"strike"}), (" ", set()), ("a*b*", {"code"})]),
        ("``a`b``", [("a`b", {"code"})]),
        ("# Title", [("Title", {"bold"})]),
        ("- one\n  * two", [("• ", set()), ("one", set()), ("\n", set()), ("  • ", set()),
                            ("two", set())]),
        ("> a\n> b\nc", [("a", {"quote"}), ("\n", {"quote"}), ("b", {"quote"}), ("\n", set()),
                         ("c", set())]),
        ("snake_case_name 2*3*4 a * b", [("snake_case_name 2", set()), ("3", {"italic"}),
                                         ("4 a * b", set())]),
        (r"\*literal\*", [("*", set()), ("literal", set()), ("*", set())]),
        ("```py\nx = *1*\n\n```\nend", [("x = *1*\n", {"block"}), ("\n", set()), ("end", set())]),
        ("```\nopen", [("open", {"block"})]),
        ("| a | b |\n|---|---|\n| 1 | 2 |", [("| a | b |\n|---|---|\n| 1 | 2 |", {"block"})]),
    ],
)  # fmt: skip
def test_markdown_is_taken_apart(text: str, spans: list[tuple[str, set[str]]]) -> None:
    assert styled(text) == spans


def test_links_keep_their_address_and_others_stay_text() -> None:
    assert parse_markdown("[**a**](https://e.x/y_(z))") == [
        Span("a", frozenset({"bold"}), "https://e.x/y_(z)")
    ]
    assert parse_markdown("<https://e.x>")[0].url == "https://e.x"
    assert shown("[a](javascript:x) <b>x</b> [1] (2)") == "[a](javascript:x) <b>x</b> [1] (2)"


def test_marks_of_slack_and_whatsapp_are_written() -> None:
    text = "# T\n**b ** ~~s~~ `c` [l](https://e.x)\n> q\n```py\na\n```"
    rendered = render_marks(parse_markdown(text), link=lambda label, url: f"<{url}|{label}>")
    assert rendered == "*T*\n**b ** ~s~ `c` <https://e.x|l>\n> q\n```\na\n```"


@given(st.text(alphabet="ab*_~`[]()<>#|-\\ \n>", max_size=200))
def test_letters_are_never_lost(text: str) -> None:
    kept = [char for char in shown(text) if char in "ab"]
    fences = any(line.lstrip().startswith(("```", "~~~")) for line in text.split("\n"))
    if not fences:
        assert kept == [char for char in text if char in "ab"]


def test_hostile_marks_end_soon() -> None:
    for piece in ("*a ", "[a](", "`", "_a*", "**", "<http://", "| a\n|-|\n"):
        shown((piece * 4096)[:4096])
