"""A session as a conversation to read."""

from rekindle.cli.output import StyledText
from rekindle.cli.sessions.render import get_failure_text, group_tool_results, render_session
from rekindle.types import Message, Session, ToolCall

SESSION = Session(id="20260105_140301_ab12cd34", source="telegram", title="Login", message_count=3)


def lines(*messages: Message, full: bool = False) -> list[list[StyledText]]:
    return list(render_session(SESSION, messages, full=full))


def text(*messages: Message, full: bool = False) -> str:
    return "\n".join("".join(piece.text for piece in row) for row in lines(*messages, full=full))


def calling(arguments: str, result: str, **meta: bool) -> list[Message]:
    return [
        Message(role="assistant", tool_calls=(ToolCall("c1", "read_file", arguments),), position=0),
        Message(role="tool", tool_call_id="c1", content=result, meta=meta or None, position=1),
    ]


def test_the_heading_names_title_id_source_and_counts() -> None:
    shown = text()
    assert "Login  20260105_140301_ab12cd34" in shown
    assert "telegram · 3 messages" in shown


def test_roles_times_and_positions_stand_above_what_was_said() -> None:
    shown = text(Message(role="user", content="one\ntwo", position=7, timestamp=0.0))
    assert "user  19" in shown
    assert "#7\n  one\n  two" in shown


def test_a_tool_call_is_one_line_with_its_arguments_and_the_size_of_its_result() -> None:
    shown = text(*calling('{"path": "a.py", "line": 3}', "x" * 2100))
    assert '▸ read_file(path="a.py", line=3)  → 2.1 kB' in shown
    assert "xxx" not in shown


def test_long_arguments_are_shortened_and_unfolded_on_request() -> None:
    messages = calling('{"text": "' + "word " * 100 + 'end\\nline two"}', "the result")
    folded = next(line for line in text(*messages).split("\n") if "read_file" in line)
    assert folded.endswith("…)  → 10 B")
    assert len(folded) == 80
    unfolded = text(*messages, full=True)
    assert "end\n" in unfolded
    assert "line two" in unfolded
    assert "the result" in unfolded


def test_arguments_that_are_no_json_are_shown_as_the_model_wrote_them() -> None:
    assert "read_file({broken)" in text(*calling("{broken", ""))


def test_a_failed_call_is_red_and_shows_its_text() -> None:
    rows = lines(*calling("{}", "No such file: a.py", is_error=True))
    red = [piece.text for row in rows for piece in row if piece.style == "red"]
    assert any("✗ read_file" in piece for piece in red)
    assert any("No such file: a.py" in piece for piece in red)


def test_a_call_without_a_result_says_so() -> None:
    assert "→ no result" in text(calling("{}", "")[0])


def test_a_result_without_its_call_stands_alone() -> None:
    assert "→: lost and found" in text(calling("{}", "lost and found")[1])


def test_results_are_put_with_their_calls_whatever_their_order() -> None:
    calls = (ToolCall("a", "first"), ToolCall("b", "second"))
    messages = [
        Message(role="assistant", tool_calls=calls),
        Message(role="tool", tool_call_id="b", content="2"),
        Message(role="tool", tool_call_id="a", content="1"),
        Message(role="user", content="thanks"),
    ]
    groups = list(group_tool_results(messages))
    assert [group.message.role for group in groups] == ["assistant", "user"]
    assert {key: one.content for key, one in groups[0].results.items()} == {"a": "1", "b": "2"}


def test_system_prompts_and_thoughts_are_folded_until_asked_for() -> None:
    messages = (
        Message(role="system", content="You are helpful. " * 50),
        Message(role="assistant", content="Hi", reasoning="hmm " * 100),
    )
    folded = text(*messages)
    assert "(850 B)" in folded
    assert "thinking: hmm" in folded
    assert len(text(*messages, full=True)) > 1250 > len(folded)


def test_what_was_undone_says_so() -> None:
    assert "undone" in text(Message(role="user", content="no", rewound=True, position=1))


def test_escape_sequences_of_a_message_never_reach_the_terminal() -> None:
    shown = text(Message(role="user", content="\x1b[2Jgone\x07 \x9b31m", name="\x1b]0;title"))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\x9b" not in shown
    assert "gone" in shown


def test_parts_that_are_no_text_are_named() -> None:
    parts = [{"type": "text", "text": "look:"}, {"type": "image_url", "image_url": {"url": "x"}}]
    assert "look:\n  [image_url]" in text(Message(role="user", content=parts))


def test_a_result_tells_its_failure_in_the_ways_tools_do() -> None:
    def told(content: str, **meta: bool) -> str | None:
        return get_failure_text(Message(role="tool", content=content, meta=meta or None))

    assert told("boom", is_error=True) == "boom"
    assert told('{"error": "no such tool"}') == "no such tool"
    assert told('{"exit_code": 2, "output": "x"}') is not None
    assert told('{"success": false}') is not None
    assert told('{"exit_code": 0, "output": "error: none"}') is None
    assert told('{"error": null}') is None
    assert told("0 errors, all passed") is None
    assert told("{not json") is None
