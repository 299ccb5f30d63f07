"""What Matrix clients are sent to show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.errors import InvalidSetting
from rekindle.platforms.matrix import PLATFORM
from rekindle.platforms.matrix.homeserver import make_transaction_id
from rekindle.platforms.matrix.markdown import (
    MAX_CONTENT_BYTES,
    build_content,
    build_edit,
    measure_content,
    render_html,
)

ALLOWED = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol",
    "p", "pre", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain\ntext", ""),
        ("**bold** and ~~gone~~", "<p><strong>bold</strong> and <del>gone</del></p>"),
        ("<script>x</script>*", "<p>&lt;script&gt;x&lt;/script&gt;*</p>"),
        ("*a* [x](javascript:alert(1))", "<p><em>a</em> [x](javascript:alert(1))</p>"),
        ("[x](matrix:u/ada)", "<p><a>x</a></p>"),
        ('[x](https://e.org "t")', '<p><a href="https://e.org">x</a></p>'),
        ("![cat](https://e.org/c.png)", "<p>cat (https://e.org/c.png)</p>"),
        ("```python\n<b>\n```", '<pre><code class="language-python">&lt;b&gt;\n</code></pre>'),
    ],
)
def test_markdown_becomes_harmless_html(text: str, html: str) -> None:
    assert render_html(text) in (html, "") if "script" in text else render_html(text) == html


@given(st.text("<>&\"'*_[]()!`~|#-: \nab/", max_size=200))
def test_no_text_leads_to_other_tags_or_attributes(text: str) -> None:
    for tag, rest in re.findall(r"</?([a-zA-Z0-9]*)([^>]*)>", render_html(text)):
        assert tag in ALLOWED
        assert re.fullmatch(
            r'\s*/?|\s(href="(https?://|mailto:)[^"<>]*"|(class|start)="[^"<>]*")', rest
        )


def test_the_text_itself_stays_what_it_was_and_notifies_nobody() -> None:
    content = build_content("@room **now**", "m.text")
    assert (content["body"], content["m.mentions"]) == ("@room **now**", {})
    edit = build_edit("x" * 9_000, "m.text", "$id")
    assert edit["m.new_content"]["body"] == "x" * 9_000
    assert edit["m.relates_to"] == {"rel_type": "m.replace", "event_id": "$id"}


@given(st.text(max_size=50))
def test_every_part_of_a_split_text_fits_into_an_event(piece: str) -> None:
    platform = PLATFORM.connect({"homeserver": "http://x", "access_token": "t"}, Path("unused"))
    text = (piece or "x") * (30_000 // max(1, len(piece)))
    for part in platform.split(text):
        assert len(part) <= platform.limit
        assert measure_content(build_content(part, "m.text")) <= MAX_CONTENT_BYTES


def test_a_nonce_has_one_transaction_id() -> None:
    assert make_transaction_id("a/b ü") == make_transaction_id("a/b ü") != make_transaction_id("a")
    assert re.fullmatch(r"[a-z0-9-]+", make_transaction_id("a/b ü"))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"homeserver": "example.org", "access_token": "t"}, "homeserver: expected https://"),
        ({"homeserver": "https://example.org"}, "access_token: missing"),
        ({"homeserver": "https://x", "user": "u"}, "access_token: missing"),
        (
            {"homeserver": "https://x", "access_token": "t", "message_type": "html"},
            "message_type: expected text or notice",
        ),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, str], error: str) -> None:
    with pytest.raises(InvalidSetting, match=error):
        PLATFORM.connect(settings, Path("unused"))
