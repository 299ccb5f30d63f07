"""Random conversations: sound ones, and what interruptions and other programs make of them."""

from __future__ import annotations

from hypothesis import strategies as st

from rekindle.types import Message, ToolCall, make_foreign_message

WORDS = st.sampled_from(["hello", "look at a.py", "naïve café", "木", "done", "x" * 90, "1\n2"])
ODD_TEXT = st.sampled_from(["", " ", "\n\t", "half \ud83d of it", "\x00", "ok", "[system]"]) | WORDS
ODD_PARTS = st.sampled_from(
    [
        {"type": "text", "text": "seen"},
        {"type": "text", "text": "  "},
        {"type": "text"},
        {"type": "text", "text": 7},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "image_url", "image_url": {}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f\udc00"}},
        {"type": "thinking", "thinking": "hm"},
        {"type": "refusal", "refusal": "no"},
        {"type": ["list"]},
        {},
    ]
)
ODD_CONTENT = st.none() | ODD_TEXT | st.lists(ODD_PARTS, max_size=3)
ODD_IDS = st.sampled_from(
    [
        "",
        "a",
        "call_0",
        "call_1",
        "functions.read:0",
        "x" * 65,
        "ä|ö",
        "\ud800",
        "abcDEF123",
        "REDACTED",
    ]
)
ODD_TOOLS = st.sampled_from(["", "read_file", "9lives", "my tool", "a.b:c", "n" * 70, "読む"])
ODD_ARGUMENTS = st.sampled_from(
    [
        "",
        "{}",
        '{"path": "a"}',
        '{"path": ',
        "[1]",
        "null",
        '{"a": NaN}',
        '"\\ud800"',
        "half \ud83d",
    ]
) | st.sampled_from([{}, {"path": "a"}, {"n": float("nan")}, {"s": "\ud800"}])
ODD_NAMES = st.sampled_from([None, None, "ada", "Ada Lovelace", "", "\u200b", "a<b", 'x" says'])
ODD_CALLS = st.tuples(ODD_IDS, ODD_TOOLS, ODD_ARGUMENTS).map(lambda fields: ToolCall(*fields))
ROLES = st.sampled_from(
    ["system", "developer", "user", "assistant", "tool", "function", "info", "\u202e"]
)


@st.composite
def odd_message(draw: st.DrawFn) -> Message:
    return make_foreign_message(
        role=draw(ROLES),
        content=draw(ODD_CONTENT),
        tool_calls=draw(st.lists(ODD_CALLS, max_size=3)),
        tool_call_id=draw(st.none() | ODD_IDS),
        name=draw(ODD_NAMES),
        reasoning=draw(st.none() | ODD_TEXT),
    )


@st.composite
def sound(draw: st.DrawFn) -> list[Message]:
    """A conversation that every provider takes, ending where the model is to be asked."""
    messages = [Message("system", "Be brief.")] if draw(st.booleans()) else []
    number = 0
    for _ in range(draw(st.integers(1, 4))):
        messages.append(Message("user", draw(WORDS)))
        for _ in range(draw(st.integers(0, 3))):
            ids = [f"call{number + n:05}" for n in range(draw(st.integers(1, 3)))]
            number += len(ids)
            calls = [ToolCall(id, "read_file", '{"path": "a.py"}') for id in ids]
            signed = {ids[0]: {"google": {"thought_signature": "c2lnbmVk"}}}
            said = draw(st.none() | WORDS)
            messages.append(Message("assistant", said, calls, meta={"extra_content": signed}))
            for id in draw(st.permutations(ids)):
                messages.append(Message("tool", draw(WORDS), tool_call_id=id, name="read_file"))
        messages.append(Message("assistant", draw(WORDS)))
    return [*messages, Message("user", draw(WORDS))]


@st.composite
def broken(draw: st.DrawFn) -> list[Message]:
    """What is left of a sound one: cut, with messages lost, doubled, moved, and odd ones put in."""
    messages = draw(sound())
    messages = messages[draw(st.integers(0, 2)) : draw(st.integers(0, len(messages)))]
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(messages)))
        change = draw(st.sampled_from(["lose", "double", "move", "odd"]))
        if change == "odd":
            messages.insert(place, draw(odd_message()))
        elif place < len(messages):
            message = messages[place] if change == "double" else messages.pop(place)
            if change != "lose":
                messages.insert(draw(st.integers(0, len(messages))), message)
    return messages


odd = st.lists(odd_message(), max_size=12)
