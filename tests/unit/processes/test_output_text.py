from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rekindle.processes.state.output_text import decode_output, strip_controls, trim_partial
from rekindle.processes.state.ring_buffer import ByteRange

words = st.text() | st.sampled_from(
    ["\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1b(B", "\x1b[2J\x1b[1;1H", "a\x1b[", "€😀"]
)


@given(st.lists(words).map("".join), st.lists(st.integers(0, 400)))
def test_text_in_pieces_is_the_text_whole(said: str, cuts: list[int]) -> None:
    data = said.encode("utf-8", "ignore")
    heard, position = "", 0
    for end in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
        span = trim_partial(ByteRange(data[position:end], position, end), ended=end == len(data))
        assert position <= span.end <= end
        heard += decode_output(span.data, plain=False)
        position = span.end
    assert heard == data.decode()


@given(
    st.lists(st.sampled_from(["red", "\x1b[31m", "\x1b]0;a title\x07", "\n", "ä", "\x1b(B"])),
    st.lists(st.integers(0, 200)),
)
def test_no_control_sequence_shows_through_a_cut(parts: list[str], cuts: list[int]) -> None:
    data = "".join(parts).encode()
    heard, position = "", 0
    for end in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
        span = trim_partial(
            ByteRange(data[position:end], position, end), ended=end == len(data), plain=True
        )
        heard += decode_output(span.data, plain=True)
        position = span.end
    assert heard == "".join(part for part in parts if "\x1b" not in part)


@given(st.text(alphabet="aä€😀", min_size=1), st.integers(0, 30))
def test_what_was_cut_at_the_start_is_dropped_to_the_next_character(said: str, cut: int) -> None:
    data = said.encode()
    cut = min(cut, len(data))
    span = trim_partial(ByteRange(data[cut:], cut, len(data), cut), ended=True)
    assert "�" not in decode_output(span.data, plain=False)
    assert span.dropped + len(span.data) == len(data)


def test_lines_that_were_written_over_stand_as_they_ended_up() -> None:
    assert strip_controls("10%\r20%\rdone\nb\x08ba\x08ar\r\n\x07") == "done\nbar\n"


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert decode_output(b"a\xffb", plain=False) == "a�b"
