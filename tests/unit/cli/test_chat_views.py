"""What a turn looks like on a terminal, in a pipe and to a program, event by event."""

import io
import json
from collections.abc import Iterable

import pyte
import pytest

from rekindle.agent.model.stream import Again, CallDelta, ReasoningDelta, TextDelta
from rekindle.agent.tools.builtin.terminal import TERMINAL
from rekindle.agent.tools.tool import ToolResult, failure
from rekindle.agent.turn import Called, Ended, Happening, Returned, Shrunk
from rekindle.cli.chat.views import Lines, Pipe, Screen
from rekindle.types import Message, Session, Tokens, ToolCall

TOOLS = {"terminal": TERMINAL}
LS = ToolCall("1", "terminal", '{"command": "ls -l"}')
CAT = ToolCall("2", "terminal", '{"command": "cat x"}')
WELL = ToolResult("{}", {"duration": 0.2})
SESSION = Session("s")


def ended(text: str, reason: str | None = None) -> Ended:
    return Ended(SESSION, Message("assistant", text), Tokens(1, 2), reason)


class Shown:
    """A screen and what stands on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, columns: int, reasoning: bool) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        self.out = io.StringIO()
        self.screen = Screen(TOOLS, reasoning=reasoning, out=self.out)
        self._columns = columns

    def show(self, *happenings: Happening) -> None:
        for happening in happenings:
            self.screen.show(happening)

    @property
    def lines(self) -> list[str]:
        emulator = pyte.Screen(self._columns, 50)
        pyte.Stream(emulator).feed(self.out.getvalue().replace("\n", "\r\n"))
        # A wide character takes two cells, of which the emulator shows the second as nothing.
        return "\n".join(line.rstrip() for line in emulator.display).rstrip().split("\n")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    return Shown(monkeypatch, 40, reasoning=True)


def test_a_running_call_is_shown_and_then_replaced_by_its_result(shown: Shown) -> None:
    shown.screen.begin()
    assert shown.lines == ["…"]
    shown.show(CallDelta(0, "1", "terminal", ""))
    assert shown.lines == ["💻 terminal …"]
    shown.show(Called(LS))
    assert shown.lines == ["💻 terminal  ls -l …"]
    shown.show(Returned(LS, WELL))
    assert shown.lines == ["💻 terminal  ls -l ✓ 0.2 s", "…"]
    shown.show(TextDelta("Done."), ended("Done."))
    shown.screen.end()
    assert shown.lines == ["💻 terminal  ls -l ✓ 0.2 s", "Done."]


def test_calls_side_by_side_each_get_their_line(shown: Shown) -> None:
    shown.screen.begin()
    shown.show(Called(LS), Called(CAT))
    assert shown.lines == ["💻 terminal  ls -l … (and 1 more)"]
    shown.show(Returned(CAT, failure("no such file")))
    assert shown.lines == ["💻 terminal  cat x ✗", "   no such file", "💻 terminal  ls -l …"]


def test_a_call_never_takes_more_than_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, 30, reasoning=True)
    call = ToolCall("1", "terminal", '{"command": "' + "word " * 30 + '"}')
    shown.screen.begin()
    shown.show(Called(call))
    assert len(shown.lines) == 1
    shown.show(Returned(call, WELL))
    assert shown.lines[0].endswith("… ✓ 0.2 s")
    assert shown.lines[1] == "…"


def test_calls_that_were_stopped_say_so(shown: Shown) -> None:
    shown.screen.begin()
    shown.show(Called(LS))
    shown.screen.end("Stopped.")
    assert shown.lines == ["💻 terminal  ls -l ✗ stopped", "Stopped."]


def test_an_answer_that_was_not_streamed_is_shown_at_the_end(shown: Shown) -> None:
    shown.screen.begin()
    shown.show(ended("I could not answer.", "broken"))
    assert shown.lines == ["I could not answer."]


def test_what_is_added_to_a_streamed_answer_is_shown_once(shown: Shown) -> None:
    shown.screen.begin()
    shown.show(TextDelta("A text"), ended("A text\n\n(Cut off.)"))
    assert shown.lines == ["A text", "", "(Cut off.)"]


def test_text_that_became_void_is_followed_by_a_word_about_it(shown: Shown) -> None:
    shown.screen.begin()
    shown.show(TextDelta("Half an an"), Again(ValueError("It broke."), 2.0))
    shown.show(TextDelta("Whole answer"), ended("Whole answer"))
    assert shown.lines == ["Half an an", "⟲ It broke. Asking again in 2 s.", "Whole answer"]


def test_reasoning_and_answer_stand_apart(shown: Shown) -> None:
    shown.show(ReasoningDelta("I think"), TextDelta("\n\nSo be it."), ended("\n\nSo be it."))
    assert shown.lines == ["I think", "So be it."]


def test_hidden_reasoning_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, 40, reasoning=False)
    shown.show(ReasoningDelta("I think"), TextDelta("So."), ended("So."))
    assert shown.lines == ["So."]


def test_nothing_is_taken_back_where_the_terminal_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "dumb")
    out = io.StringIO()
    screen = Screen(TOOLS, reasoning=True, out=out)
    screen.begin()
    for happening in (Called(LS), Returned(LS, WELL), TextDelta("**So**."), ended("**So**.")):
        screen.show(happening)
    screen.end()
    assert out.getvalue() == "💻 terminal  ls -l ✓ 0.2 s\n**So**.\n\n"


def test_a_question_is_asked_without_a_live_line_which_then_comes_back(shown: Shown) -> None:
    shown.screen.begin()
    shown.show(Called(LS))
    with shown.screen.asking():
        assert shown.lines == [""]
        shown.screen.warn("Sure?")
    assert shown.lines == ["Sure?", "💻 terminal  ls -l …"]


def piped(view: Pipe | Lines, happenings: Iterable[Happening]) -> None:
    view.begin()
    for happening in happenings:
        view.show(happening)
    view.end()


TURN: tuple[Happening, ...] = (
    TextDelta("Let me look."),
    Called(LS),
    Returned(LS, WELL),
    Again(ValueError("It broke."), 2.0),
    Shrunk(Session("child"), ()),
    ended("Done."),
)


def test_in_a_pipe_stdout_has_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    piped(Pipe(TOOLS), TURN)
    out, err = capsys.readouterr()
    assert out == "Done.\n"
    assert err.split("\n")[:2] == ["💻 terminal  ls -l ✓ 0.2 s", "⟲ It broke. Asking again in 2 s."]


def test_in_a_pipe_a_failure_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    piped(Pipe(TOOLS), [ended("I could not.", "broken")])
    assert capsys.readouterr() == ("", "rekindle: I could not.\n")


def test_a_program_gets_every_event_as_an_object(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    piped(Lines(), TURN)
    events = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == [
        "text", "call", "result", "again", "compressed", "answer",
    ]  # fmt: skip
    assert events[1] == {"event": "call", "id": "1", "tool": "terminal", "arguments": LS.arguments}
    assert events[-1]["tokens"]["input"] == 1
    assert events[-1]["ok"] is True
