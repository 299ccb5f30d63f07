"""The shared page: edits, rejections, prompts, sub-agents, hostile text, redaction and the index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rekindle.redaction.redactor import Redactor
from rekindle.transcripts.export import html
from rekindle.transcripts.export.calls import ResultLimit
from rekindle.transcripts.export.common import (
    describe_removed,
    find_rejection_words,
    pair_distant_results,
)
from rekindle.transcripts.export.edits import find_edits
from rekindle.transcripts.export.index import parse_summary, read_summaries, render_index
from rekindle.transcripts.export.prompts import read_prompt
from rekindle.transcripts.export.prose import render_prose
from rekindle.transcripts.export.redact import SessionRedactor, redact_line
from rekindle.transcripts.export.subagents import AgentRun
from rekindle.types import Message, Session, ToolCall
from tests.unit.transcripts.test_export import Page

SESSION = Session(id="s-1", source="claude-code", title="Work", preview="fix it", cwd="/src/shop")
PATCH = """*** Begin Patch
*** Update File: a.py
@@ def f():
-    return 1
+    return 2
*** Add File: b.py
+new
*** Delete File: c.py
*** End Patch"""
PAIR = {"old_string": "x = 1\ny = 2", "new_string": "x = 1\ny = 3"}


def render(*messages: Message, **options: object) -> str:
    return "".join(html.render_session(SESSION, messages, **options))  # pyright: ignore


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Edit", {"file_path": "a.py", **PAIR}),
        ("MultiEdit", {"file_path": "a.py", "edits": [PAIR]}),
        ("edit", {"filePath": "a.py", "oldString": "y = 2", "newString": "y = 3"}),
        ("edit", {"path": "a.py", "oldText": "y = 2", "newText": "y = 3"}),
        ("replace", json.dumps({"file_path": "a.py", **PAIR})),
        (
            "str_replace_editor",
            {"command": "str_replace", "path": "a.py", "old_str": "y = 2", "new_str": "y = 3"},
        ),
    ],
)
def test_an_edit_is_a_diff_whatever_the_agent_calls_it(tool: str, arguments: object) -> None:
    (edit,) = find_edits(ToolCall("c", tool, arguments))  # pyright: ignore
    assert edit.path == "a.py"
    assert [line for line in edit.lines if line.sign != " "] == [("-", "y = 2"), ("+", "y = 3")]


@pytest.mark.parametrize(
    "arguments",
    [PATCH, {"input": PATCH}, {"command": ["bash", "-lc", f"apply_patch <<'E'\n{PATCH}\nE"]}],
)
def test_a_patch_is_a_diff_of_each_of_its_files(arguments: object) -> None:
    edits = find_edits(ToolCall("c", "apply_patch", arguments))  # pyright: ignore
    assert [(edit.path, edit.state, edit.added, edit.removed) for edit in edits] == [
        ("a.py", "", 1, 1),
        ("b.py", "new", 1, 0),
        ("c.py", "deleted", 0, 0),
    ]


def test_what_only_looks_like_an_edit_is_none() -> None:
    for name, arguments in (
        ("TodoWrite", {"todos": []}),
        ("create_document", {"content": "x", "title": "t"}),
        ("str_replace_editor", {"command": "view", "path": "a.py"}),
        ("Edit", "not json"),
    ):
        assert find_edits(ToolCall("c", name, arguments)) == []


def test_the_page_shows_edits_in_color_and_counts_the_lines() -> None:
    page = render(
        Message("user", "change it"),
        Message("assistant", "", [ToolCall("c", "Edit", {"file_path": "/src/shop/a.py", **PAIR})]),
        Message("tool", "The file has been updated.", tool_call_id="c"),
    )
    assert '<span class="del">y = <em>2</em></span><span class="add">y = <em>3</em></span>' in page
    assert "<li><code>a.py</code>" in page
    assert "The file has been updated." not in page


def test_a_rejected_edit_is_a_rejection_with_the_words_of_the_user() -> None:
    said = (
        "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was"
        " a file edit, the new_string was NOT written to the file). To tell you how to proceed, the"
        " user said:\nuse tabs please\n\nNote: The user's next message may contain a correction."
    )
    page = render(
        Message("user", "change it"),
        Message("assistant", "", [ToolCall("c", "Edit", {"file_path": "a.py", **PAIR})]),
        Message("tool", said, tool_call_id="c", meta={"is_error": True}),
    )
    assert '<details class="call rejected edit" open>' in page
    assert '<blockquote class="words"><p>use tabs please</p>' in page
    assert "1&nbsp;rejected" in page
    assert "Files changed" not in page
    assert find_rejection_words("it was rejected") == ""


def test_prompts_are_listed_and_what_programs_add_is_folded() -> None:
    assert read_prompt("<command-name>/review</command-name><command-args>main</command-args>")[
        :3
    ] == (
        "command",
        "/review main",
        "/review main",
    )
    assert read_prompt("<command-name>/exit</command-name>").kind == "event"
    assert read_prompt("[Request interrupted by user]").kind == "interruption"
    prompt = read_prompt("<system-reminder>be kind</system-reminder>\nfix the tests")
    assert (prompt.text, prompt.context) == (
        "fix the tests",
        "<system-reminder>be kind</system-reminder>",
    )
    page = render(Message("user", "one"), Message("assistant", "a"), Message("user", "two"))
    links = [attrs["href"] for tag, attrs in Page(page).tags if tag == "a"]
    assert links[-4:] == ["#p1", "#p2", "#p1", "#p2"]


def test_a_result_belongs_to_its_call_also_behind_other_messages() -> None:
    first = Message("assistant", "", [ToolCall("a", "f"), ToolCall("b", "g")])
    messages = [
        first,
        Message("tool", "of a", tool_call_id="a"),
        Message("assistant", "meanwhile"),
        Message("tool", "of b", tool_call_id="b"),
        Message("tool", "of nobody", tool_call_id="z"),
    ]
    exchanges = list(pair_distant_results(messages))
    assert [one.message.text for one in exchanges] == ["", "meanwhile", "of nobody"]
    assert {id: result.text for id, result in exchanges[0].results.items()} == {
        "a": "of a",
        "b": "of b",
    }


def test_a_sub_agent_is_on_the_page_and_linked_from_its_call() -> None:
    child = Session(id="agent-afbbf75@s-1", parent="s-1", preview="Look for bugs in a.py")
    page = render(
        Message("user", "fix it"),
        Message("assistant", "", [ToolCall("c", "Task", {"prompt": "Look for bugs in a.py"})]),
        Message("tool", "two bugs", tool_call_id="c"),
        agents=[AgentRun(child, lambda: [Message("assistant", "I looked.")])],
    )
    assert '<a href="#a1">Look for bugs in a.py</a>' in page
    assert page.index('id="a1"') < page.index("I looked.")
    assert Page(page).open == []


HOSTILE = (
    "<script>alert(1)</script>",
    "[x](javascript:alert(1)) [y](JaVaScRiPt:alert(1)) [z](data:text/html;base64,PHNjcmlwdD4=)",
    "![x](https://tracker.example/x.png) <img src=x onerror=alert(1)>",
    '[x](https://a.example/"onmouseover="alert(1))',
    "```html\n</code></pre><script>alert(1)</script>\n```",
    '```"onclick=alert(1)\nx\n```',
    "</section></main></body><iframe srcdoc='<script>alert(1)</script>'>",
    "<svg/onload=alert(1)> <!-- --><![CDATA[<script>]]> &lt;script&gt; <a href=vbscript:x>",
    "| a |\n|---|\n| <style>@import 'https://x.example'</style> |",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_only_text(text: str) -> None:
    call = ToolCall(text, text, {"file_path": text, "old_string": text, "new_string": f"{text}!"})
    page = render(
        Message("system", text),
        Message("user", text),
        Message("assistant", text, [call, ToolCall("b", "Edit", call.arguments)], reasoning=text),
        Message("tool", text, tool_call_id=text),
        Message("tool", text, tool_call_id="b", meta={"denial": text}),
    )
    found = Page(page)
    assert found.open == []
    names = {"script", "iframe", "img", "svg", "object", "link", "form", "base", "button"}
    assert not names & {tag for tag, _ in found.tags}
    assert sum(1 for tag, _ in found.tags if tag == "style") == 1
    for _, attrs in found.tags:
        assert not [name for name in attrs if name.startswith("on") or name in ("style", "srcdoc")]
        assert (attrs.get("href") or "#").startswith(("#", "https://", "http://"))


def test_text_that_reorders_or_hides_what_it_says_is_shown_as_such() -> None:
    page = render(Message("assistant", "a\u202egnp.exe \x1b[31mred\x1b[0m"))
    assert "\u202e" not in page
    assert "⟨U+202E⟩" in page
    assert ">a⟨U+202E⟩gnp.exe red<" in page


@pytest.mark.parametrize("piece", ["[", "![", "[a](", "*", "_a", "a*b_"])
def test_text_with_more_marks_than_any_prose_is_shown_as_it_is(piece: str) -> None:
    """The parser searches the rest of the paragraph for the end of each of them."""
    text = "\n".join([piece * 200] * 50)
    assert render_prose(text).startswith('<div class="plain">')


def test_text_that_is_too_long_for_markdown_is_shown_as_it_is() -> None:
    assert render_prose("<x" * 40_000).startswith('<div class="plain">&lt;x')
    assert render_prose("<x" * 5_000).startswith('<div class="plain">&lt;x')


def test_long_results_are_shortened_in_a_shared_page() -> None:
    messages = (
        Message("assistant", "", [ToolCall("c", "Bash", {"command": "x"})]),
        Message("tool", "a" * 50 + "b" * 100 + "c" * 50, tool_call_id="c"),
    )
    page = render(*messages, limit=ResultLimit(50, 50))
    assert "100 characters left out" in page
    assert "b" * 20 not in page
    assert "b" * 100 in render(*messages)


TOKEN = "gh" + "p_" + "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5"


def test_redaction_reaches_every_field_of_a_message_and_a_session() -> None:
    redactor = SessionRedactor(Redactor())
    session = redactor.redact_session(SESSION._replace(title=f"use {TOKEN} here"))
    message = redactor.redact_message(
        Message(
            "assistant",
            [
                {"type": "text", "text": TOKEN},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}},
                {"type": "other", "data": TOKEN},
            ],
            [
                ToolCall("c", "Bash", {"command": f"x {TOKEN}"}),
                ToolCall("d", "f", f'{{"a":"{TOKEN}"}}'),
            ],
            reasoning=f"the token {TOKEN}",
            meta={"stdout": TOKEN},
        )
    )
    assert TOKEN not in str(session)
    assert TOKEN not in str(message[:])
    assert "iVBORw0=" not in str(message[:])
    assert redactor.count_removed()["image"] == 1
    call = {"id": "a", "name": "f", "arguments": TOKEN}
    record = {"type": "message", "role": "user", "content": TOKEN, "tool_calls": [call]}
    line = json.dumps({**record, "tokens": {"input": 3}}).encode()
    redacted = redact_line(line, redactor)
    assert TOKEN.encode() not in redacted
    assert json.loads(redacted)["tokens"] == {"input": 3}


def test_the_index_lists_shared_pages_and_trusts_none_of_them(tmp_path: Path) -> None:
    page = "".join(html.render_session(SESSION, [Message("user", "hello")], count_removed=dict))
    (tmp_path / "one.html").write_text(page)
    (tmp_path / "foreign.html").write_text("<html><title>x</title></html>")
    hostile = json.dumps({"title": "<script>", "started": 1e99, "prompts": "x", "cost": "NaN"})
    (tmp_path / 'ev"il.html').write_text(
        f'<meta name="rekindle-session" content="{hostile.replace(chr(34), "&quot;")}">'
    )
    pages = read_summaries(tmp_path)
    assert {one.title for one in pages} == {"Work", "<script>"}
    text = "".join(render_index("My <b>pages</b>", pages))
    found = Page(text)
    assert found.open == []
    assert "script" not in {tag for tag, _ in found.tags}
    assert {attrs["href"] for tag, attrs in found.tags if tag == "a"} == {
        "./one.html",
        "./ev%22il.html",
    }
    assert "1 of these pages are not redacted" in text
    assert parse_summary("x", '<meta name="rekindle-session" content="[1]">') is None


def test_what_was_redacted_is_counted_in_words() -> None:
    assert describe_removed({"secret": 2, "home": 1}) == "2 secrets, 1 home folder"
