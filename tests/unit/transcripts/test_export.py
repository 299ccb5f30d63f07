from __future__ import annotations

import json
import re
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rekindle.errors import InvalidInput
from rekindle.transcripts import SessionUpdated, read_transcript
from rekindle.transcripts.discovery import SAMPLE
from rekindle.transcripts.export import atif, html, markdown
from rekindle.types import Message, Session, Tokens, ToolCall
from tests.unit.transcripts.conftest import CORPUS, messages

SESSION = Session(
    id="s-1",
    source="claude-code",
    model="m-1",
    title="A <b>title</b>",
    started=1772359200.0,
    tokens=Tokens(input=5, output=7, cache_read=100, cache_write=10),
    cost=Decimal("0.25"),
)
CHAT = [
    Message(role="system", content="Be kind."),
    Message(role="user", content="<script>alert(1)</script> & `code`", timestamp=1772359200.0),
    Message(
        role="assistant",
        content="Look:\n```py\nx < 1\n```\ndone",
        reasoning="hm </details>",
        tool_calls=(
            ToolCall("c1", "Bash", {"command": "ls </summary>"}),
            ToolCall("c2", "f", "not json"),
            ToolCall("c3", "g", '{"path": "a.txt"}'),
        ),
        finish_reason="tool_use",
    ),
    Message(role="tool", tool_call_id="c1", content="````\nboo", meta={"exit_code": 2}),
    Message(role="tool", tool_call_id="c2", content="ok", meta={"is_error": False}),
    Message(role="tool", tool_call_id="elsewhere", content="an orphan"),
    Message(role="assistant", content="half \ud83d"),
    Message(
        role="user",
        content=[
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}},
            {"type": "image_url", "image_url": {"url": "https://tracker.example/x.png"}},
        ],
    ),
]


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_escaped_and_asks_the_network_for_nothing() -> None:
    text = "".join(html.render_session(SESSION, CHAT))
    text.encode()
    page = Page(text)
    assert page.open == []
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "iframe", "object", "form"}
    sources = [attrs["src"] for _, attrs in page.tags if "src" in attrs]
    assert sources == ["data:image/png;base64,iVBORw0="]
    assert "https://tracker.example" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; <code>code</code>" in text
    assert "A &lt;b&gt;title&lt;/b&gt;" in text
    assert '<span class="n">x</span> <span class="o">&lt;</span>' in text


def test_the_page_sets_strong_words_apart_and_leaves_other_stars_alone() -> None:
    said = Message("assistant", "**Done:** 2 ** 3 and **kwargs, `a**b**`")
    text = "".join(html.render_session(SESSION, [said]))
    assert "<strong>Done:</strong> 2 ** 3 and **kwargs" in text
    assert text.count("<strong>") == 1


def test_the_page_shows_calls_folded_and_failures_at_a_glance() -> None:
    text = "".join(html.render_session(SESSION, CHAT))
    failed = [attrs for _, attrs in Page(text).tags if attrs.get("class") == "call failed"]
    assert len(failed) == 1
    assert "open" not in failed[0]
    assert '<span class="label">exit code 2</span>' in text
    assert "no result" in text
    assert text.index("boo") < text.index("an orphan")


def test_markdown_has_every_word_and_fences_that_hold() -> None:
    text = "".join(markdown.render_session(SESSION, CHAT))
    text.encode()
    for words in ("## User · 2026-03-01 10:00:00 UTC", "Be kind.", "boo", "an orphan", "hm"):
        assert words in text
    assert "`````text\n````\nboo\n`````" in text
    assert "✗ Bash: ls &lt;/summary&gt; <b>exit code 2</b>" in text
    assert "✓ f: not json" in text


def test_markdown_runs_nothing_and_each_message_ends_its_own_code() -> None:
    cases = {
        "a < b, `List<T>`": "a < b, `List<T>`",
        "<img src=x onerror=y> `a`": "&lt;img src=x onerror=y> `a`",
        "</details>\n<!-- rest": "&lt;/details>\n&lt;!-- rest",
        "```\n<b>\x0b<i>\n```\n<u>": "```\n<b>\x0b<i>\n```\n&lt;u>",
        "```py\nopen": "```py\nopen\n```",
        "````\n```\n\n~~~": "````\n```\n\n~~~\n````",
        "```\nclosed\n```": "```\nclosed\n```",
        "<https://example.com>": "<https://example.com>",
        **{f"{'> ' * deep}<b>": f"{'> ' * deep}&lt;b>" for deep in (19, 20, 58, 60, 3_000)},
        **{f"{'- ' * deep}a <b>": f"{'- ' * deep}a &lt;b>" for deep in (9, 18, 29, 31, 3_000)},
    }
    wrong = {}
    for text, expected in cases.items():
        found = "".join(markdown.render_session(SESSION, [Message("user", text)]))
        if f"\n{expected}\n" not in found:
            wrong[text] = found
    assert wrong == {}
    assert "# A &lt;b&gt;title" in found


def test_the_trajectory_keeps_to_the_schema() -> None:
    trajectory = json.loads("".join(atif.render_session(SESSION, CHAT)))
    check(trajectory)
    assert trajectory["schema_version"] == "ATIF-v1.8"
    assert [step["source"] for step in trajectory["steps"]] == [
        "system", "user", "agent", "system", "agent", "user",
    ]  # fmt: skip
    step = trajectory["steps"][2]
    assert [call["arguments"] for call in step["tool_calls"]] == [
        {"command": "ls </summary>"},
        {"input": "not json"},
        {"path": "a.txt"},
    ]
    assert [result["source_call_id"] for result in step["observation"]["results"]] == ["c1", "c2"]
    assert step["observation"]["results"][0]["extra"] == {"meta": {"exit_code": 2}}
    assert trajectory["steps"][3]["extra"]["tool_call_id"] == "elsewhere"
    assert trajectory["final_metrics"] == {
        "total_prompt_tokens": 115,
        "total_completion_tokens": 7,
        "total_cached_tokens": 100,
        "total_cost_usd": 0.25,
        "total_steps": 6,
        "extra": {"cache_write_tokens": 10},
    }


def test_a_session_without_messages_is_no_trajectory() -> None:
    with pytest.raises(InvalidInput, match="at least one step"):
        list(atif.render_session(SESSION, []))


def test_real_trajectories_pass_the_check_that_ours_pass(corpus: Path) -> None:
    paths = sorted(corpus.glob("atif__*/*.json"))
    assert paths
    for path in paths:
        check(json.loads(path.read_text()))


def transcripts() -> list[Path]:
    found = [*SAMPLE.glob("*.jsonl")]
    for folder in ("claude__*", "codex__*"):
        found += sorted(CORPUS.glob(f"{folder}/**/*.jsonl"))[:8]
    return found


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_real_sessions_come_out_whole_in_every_format(path: Path) -> None:
    events = list(read_transcript(path))
    session = next(event.session for event in events if isinstance(event, SessionUpdated))
    told = messages(events)
    check(json.loads("".join(atif.render_session(session, told))))
    page = "".join(html.render_session(session, told))
    assert Page(page).open == []
    assert page.count('class="md said"') == sum(
        1 for message in told if message.role == "assistant" and message.text.strip()
    )
    calls = sum(len(message.tool_calls) for message in told)
    assert len(re.findall(r'<details class="call ', page)) == calls
    text = "".join(markdown.render_session(session, told)).replace("&lt;", "<")
    for message in told:
        if message.role == "user":
            assert message.text.replace("&lt;", "<") in text


STEP = {
    "step_id", "timestamp", "source", "model_name", "reasoning_effort", "message",
    "reasoning_content", "tool_calls", "observation", "metrics", "is_copied_context",
    "llm_call_count", "extra",
}  # fmt: skip
ROOT = {
    "schema_version", "session_id", "trajectory_id", "agent", "steps", "notes", "final_metrics",
    "continued_trajectory_ref", "extra", "subagent_trajectories",
}  # fmt: skip
FINAL = {
    "total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_cost_usd",
    "total_steps", "extra",
}  # fmt: skip


def check(trajectory: dict[str, Any]) -> None:
    """The rules of the format: no unknown field, required ones present, ids that point somewhere."""
    assert not set(trajectory) - ROOT
    assert trajectory["schema_version"].startswith("ATIF-v1.")
    agent = trajectory["agent"]
    assert agent["name"]
    assert agent["version"]
    assert not set(agent) - {"name", "version", "model_name", "tool_definitions", "extra"}
    assert not set(trajectory.get("final_metrics") or {}) - FINAL
    assert trajectory["steps"]
    for number, step in enumerate(trajectory["steps"], 1):
        check_step(step, number)


def check_step(step: dict[str, Any], number: int) -> None:
    assert not set(step) - STEP
    assert step["step_id"] == number
    assert step["source"] in ("user", "agent", "system")
    check_content(step["message"])
    if step["source"] != "agent":
        agents = {"model_name", "reasoning_content", "tool_calls", "metrics"}
        assert not {name for name in agents if step.get(name) is not None}
    calls = set()
    for call in step.get("tool_calls") or ():
        assert not set(call) - {"tool_call_id", "function_name", "arguments", "extra"}
        assert call["function_name"]
        assert isinstance(call["arguments"], dict)
        assert call["tool_call_id"] not in calls
        calls.add(call["tool_call_id"])
    for result in (step.get("observation") or {"results": []})["results"]:
        assert not set(result) - {"source_call_id", "content", "subagent_trajectory_ref", "extra"}
        assert result.get("source_call_id") is None or result["source_call_id"] in calls
        check_content(result.get("content") or "")


def check_content(content: Any) -> None:
    if isinstance(content, str):
        return
    for part in content:
        assert part["type"] in ("text", "image", "audio")
        assert isinstance(part["text"] if part["type"] == "text" else part["source"]["path"], str)
