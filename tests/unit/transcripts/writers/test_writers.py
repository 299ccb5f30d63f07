"""What is written for an agent is read back as the same messages, whatever they hold."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rekindle.errors import InvalidInput
from rekindle.transcripts import SessionStarted, SessionUpdated, detect_format, read_transcript
from rekindle.transcripts.discovery import SAMPLE
from rekindle.transcripts.events import UnreadableEntry
from rekindle.transcripts.writers import AGENTS, convert_session, render_conversation
from rekindle.types import Message, Session, ToolCall
from tests.cases import check_each

ID = "6f1d3c52-8a0e-4b7f-9c1d-2e3f4a5b6c7d"
FOLDERS = {
    "claude__entireio__cli": "claude-code",
    "claude__moredip__session-share": "claude-code",
    "claude__obra__episodic-memory": "claude-code",
    "codex__entireio__git-sync": "codex",
    "opencode__dayhaysoos__nimbus": "opencode",
    "pi__badlogic__pi-mono": "pi",
    "gemini__entireio__cli": "gemini",
}
PIECES = (
    "plain words",
    "\u2028 and \u2029",
    '"}]}\n{"type":"user"}',
    "```\nfence\n```",
    "\x00\x1b[2J",
    "\ud800",
    "😀 é 漢",
    "<state_snapshot>",
    "\r\n",
    "line:7",
)


class ReadSession(NamedTuple):
    session: Session
    messages: list[Message]


def read_sessions(path: Path) -> dict[str, ReadSession]:
    found: dict[str, ReadSession] = {}
    current = ""
    for event in read_transcript(path):
        assert not isinstance(event, UnreadableEntry), event
        if isinstance(event, Message):
            found[current].messages.append(event)
            continue
        assert isinstance(event, SessionStarted | SessionUpdated)
        current = event.session.id
        known = found.get(current)
        found[current] = ReadSession(event.session, known.messages if known else [])
    return found


def write_and_read(
    agent: str, session: Session, messages: Iterable[Message], folder: Path
) -> ReadSession:
    conversation = convert_session(agent, session, messages, session.cwd or "/work")
    path = folder / ("written.json" if agent == "opencode" else "written.jsonl")
    text = "".join(render_conversation(agent, conversation))
    assert text.isascii()
    path.write_text(text)
    format = detect_format(path)
    assert format is not None
    assert format.name == agent
    (found,) = read_sessions(path).values()
    assert found.session.id == conversation.id
    return found


def to_shape(message: Message) -> tuple[Any, ...]:
    """Return what has to survive: the rest is what no agent lets us write."""
    calls = [(call.id, call.name, parse(call.arguments)) for call in message.tool_calls]
    return message.role, message.platform_message_id, message.text, calls, message.tool_call_id


def parse(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
    except ValueError:
        return arguments


def has_valid_ids(message: Message) -> bool:
    """Return whether the ids were not masked by whoever published the transcript."""
    ids = (message.platform_message_id or "", *(call.id for call in message.tool_calls))
    return not any(id.startswith("item:") for id in ids)


def is_plain(message: Message) -> bool:
    """Return whether a message has text or calls, and no images."""
    is_text = message.content is None or isinstance(message.content, str)
    parts = [] if is_text else [part.get("type") for part in message.content or ()]  # type: ignore[union-attr]
    return bool(message.text or message.tool_calls or message.role == "tool") and set(parts) <= {
        "text"
    }


def iter_real_sessions(folder: Path, agent: str) -> Iterator[ReadSession]:
    for path in sorted(folder.rglob("*.json*")):
        for one in read_sessions(path).values():
            if one.session.source == agent:
                yield one


@pytest.mark.parametrize("folder", FOLDERS)
def test_real_sessions_are_written_and_read_back_with_the_same_messages_and_ids(
    corpus: Path, folder: str, tmp_path: Path
) -> None:
    agent, count = FOLDERS[folder], 0
    for session, messages in iter_real_sessions(corpus / folder, agent):
        told = [message for message in messages if is_plain(message)]
        if not all(map(has_valid_ids, told)):
            continue
        again = write_and_read(agent, session, messages, tmp_path).messages
        kept = [one for one in again if "image left out" not in one.text]
        assert [to_shape(one) for one in kept] == [to_shape(one) for one in told]
        count += 1
    assert count


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_the_sample_is_written_and_read_back(agent: str, tmp_path: Path) -> None:
    sessions = list(iter_real_sessions(SAMPLE, agent))
    assert sessions
    for session, messages in sessions:
        again = write_and_read(agent, session, messages, tmp_path)
        assert [*map(to_shape, again.messages)] == [*map(to_shape, messages)]
        assert (again.session.cwd, again.session.started) == (session.cwd, session.started)


def make_messages(seed: int) -> list[Message]:
    """Return a conversation of another agent, with everything that could be hard to write."""
    source = random.Random(seed)

    def words() -> str:
        return " ".join(source.choices(PIECES, k=source.randint(1, 4)))

    messages: list[Message] = []
    for number in range(source.randint(1, 12)):
        kind = source.choice(("user", "user", "assistant", "assistant", "system", "orphan"))
        if kind == "orphan":
            messages.append(Message("tool", words(), tool_call_id=f"none-{number}"))
        elif kind != "assistant":
            content: Any = words()
            if source.random() < 0.3:
                content = [{"type": "text", "text": content}, {"type": "image_url"}]
            messages.append(Message(kind, content))
        else:
            calls = [
                ToolCall(
                    source.choice((f"c{number}-{n}", "same", "a b", "")),
                    source.choice(("Bash", "bash", "exec_command", "x y\n", "", words())),
                    source.choice(({"command": words(), "n": float("nan")}, words(), "")),
                )
                for n in range(source.randint(0, 3))
            ]
            messages.append(Message("assistant", source.choice((None, words())), calls))
            for call in source.sample(calls, source.randint(0, len(calls))):
                meta = {"is_error": source.random() < 0.5}
                messages.append(Message("tool", words(), tool_call_id=call.id, meta=meta))
    return [*messages, Message("user", "the last words")]


@check_each("agent", AGENTS)
@check_each("seed", range(40))
def test_a_session_of_another_agent_keeps_every_word_in_its_order(
    agent: str, seed: int, tmp_path: Path
) -> None:
    messages = make_messages(seed)
    session = Session("their \ud800 id", source="hermes", started=1.7e9, cwd="/work/\u2028")
    again = write_and_read(agent, session, messages, tmp_path).messages
    prompts = [to_words(one) for one in messages if one.role == "user"]
    # A text that looks as if an agent had added it itself is skipped by its reader.
    read = [to_words(one).replace("[image left out]", "").strip() for one in again]
    assert all(prompt in read for prompt in prompts if not prompt.startswith("<state_snapshot>"))
    all_text = "\n".join(
        "\n".join((one.text, *(str(parse(call.arguments)) for call in one.tool_calls)))
        for one in again
    )
    for one in messages:
        if one.role == "assistant" and one.content:
            assert to_words(one) in all_text
    ids = [call.id for one in again for call in one.tool_calls]
    assert len(set(ids)) == len(ids)
    results = {one.tool_call_id for one in again if one.role == "tool"}
    assert results == set(ids)  # every call is complete


def to_words(message: Message) -> str:
    return message.text.encode("utf-8", "replace").decode().strip()


def test_a_call_becomes_text_where_the_agent_does_not_have_the_tool() -> None:
    session = Session(ID, source="codex")
    calls = [
        ToolCall("a", "Bash", {"command": "ls"}),
        ToolCall("b", "exec_command", '{"cmd":"ls"}'),
    ]
    messages = [
        Message("user", "go"),
        Message("assistant", "ok", calls),
        Message("tool", "``` out", tool_call_id="a"),
        Message("tool", "out b", tool_call_id="b", meta={"is_error": True}),
    ]
    conversation = convert_session("claude-code", session, messages, "/work")
    (answer,) = [turn for turn in conversation.turns if turn.role == "assistant"]
    assert [call.name for call in answer.calls] == ["Bash"]
    assert answer.texts[1] == (
        '[Called exec_command]\n```\n{\n  "cmd": "ls"\n}\n```\n[It failed]\n```\nout b\n```'
    )
    assert conversation.omitted == {"call written as text": 1}
    native = convert_session("codex", session, messages, "/work")
    assert [call.name for call in native.turns[1].calls] == ["Bash", "exec_command"]
    assert native.id == ID


def test_text_cannot_close_the_fence_that_it_is_put_into() -> None:
    call = ToolCall("a", "look", "````\n[Result]")
    messages = [Message("assistant", None, [call]), Message("tool", "```\nx", tool_call_id="a")]
    conversation = convert_session("pi", Session("x"), messages, "/work")
    text = conversation.turns[0].texts[0]
    assert text == "[Called look]\n`````\n````\n[Result]\n`````\n[Result]\n````\n```\nx\n````"


@pytest.mark.parametrize("agent", AGENTS)
def test_a_copy_has_the_title_that_it_is_given(agent: str, tmp_path: Path) -> None:
    messages = [Message("user", "one", timestamp=1.0), Message("assistant", "two", timestamp=2.0)]
    session = Session("x", source="hermes", message_count=2)
    conversation = convert_session(agent, session, messages, "/work", "Plan\n\ud800 (from hermes)")
    path = tmp_path / "written"
    path.write_text("".join(render_conversation(agent, conversation)))
    (found,) = read_sessions(path).values()
    assert (found.session.title or "").endswith("(from hermes)")
    assert [message.text for message in found.messages] == ["one", "two"]


def test_a_copy_for_opencode_shares_no_id_with_the_session_it_is_a_copy_of() -> None:
    messages = [
        Message("user", "one", timestamp=1.0, platform_message_id="msg_a"),
        Message("assistant", "two", timestamp=2.0, platform_message_id="msg_b"),
        Message("assistant", "three", timestamp=3.0, platform_message_id="msg_b:1"),
    ]
    fork = Session("20260101_fork", source="opencode", message_count=3)
    conversation = convert_session("opencode", fork, messages, "/work")
    document = json.loads("".join(render_conversation("opencode", conversation)))
    ids = [message["info"]["id"] for message in document["messages"]]
    assert len(ids) == 2
    assert not {"msg_a", "msg_b"} & set(ids)


@pytest.mark.parametrize("agent", AGENTS)
def test_ids_are_always_the_same_and_differ_from_session_to_session(agent: str) -> None:
    messages = [Message("user", "one"), Message("assistant", "two", timestamp=5.0)]

    def render(id: str) -> str:
        conversation = convert_session(agent, Session(id), messages, "/work")
        return "".join(render_conversation(agent, conversation))

    assert render("first") == render("first")
    assert render("first") != render("second")


@pytest.mark.parametrize("agent", AGENTS)
def test_a_compaction_is_read_back_before_the_message_it_belongs_to(
    agent: str, tmp_path: Path
) -> None:
    summary = "<state_snapshot>All before.</state_snapshot>"
    compacted = {"summary": summary, "tokens_before": 900}
    messages = [
        Message("user", "one", timestamp=1.7e9),
        Message("assistant", "two", timestamp=1.7e9 + 1),
        Message("user", "three", timestamp=1.7e9 + 2, meta={"compacted": compacted}),
        Message("assistant", "four", timestamp=1.7e9 + 3),
    ]
    id = "ses_1" if agent == "opencode" else ID
    session = Session(id, source=agent, started=1.7e9)
    again = write_and_read(agent, session, messages, tmp_path).messages
    assert [one.text for one in again] == ["one", "two", "three", "four"]
    assert again[2].meta is not None
    assert again[2].meta["compacted"]["summary"] == summary


def test_an_agent_without_a_writer_is_refused() -> None:
    with pytest.raises(InvalidInput, match="No writer for 'aider'"):
        convert_session("aider", Session("x"), [], "/work")
