"""What a turn looks like on a terminal, in a pipe and to a program, event by event."""

import io
import json
from collections.abc import Iterable

import pyte
import pytest

from rekindle.agent.model.stream import CallDelta, ReasoningDelta, Retrying, TextDelta
from rekindle.agent.tools.builtin.terminal import TERMINAL
from rekindle.agent.tools.tool import ToolResult, build_failure
from rekindle.agent.turn import Compacted, ToolCalled, ToolReturned, TurnEnded, TurnEvent
from rekindle.cli.chat.views import JsonLinesView, PipeView, TerminalView
from rekindle.types import Message, Session, Tokens, ToolCall

TOOLS = {"terminal": TERMINAL}
LS = ToolCall("1", "terminal", '{"command": "ls -l"}')
CAT = ToolCall("2", "terminal", '{"command": "cat x"}')
WELL = ToolResult("{}", {"duration": 0.2})
SESSION = Session("s")


def ended(text: str, reason: str | None = None) -> TurnEnded:
    return TurnEnded(SESSION, Message("assistant", text), Tokens(1, 2), reason)


class Shown:
    """A screen and what stands on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, columns: int, reasoning: bool) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        self.out = io.StringIO()
        self.screen = TerminalView(TOOLS, reasoning=reasoning, out=self.out)
        self._columns = columns

    def show(self, *happenings: TurnEvent) -> None:
        for happening in happenings:
            self.screen.show_event(happening)

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
    shown.screen.begin_turn()
    assert shown.lines == ["…"]
    shown.show(CallDelta(0, "1", "terminal", ""))
    assert shown.lines == ["💻 terminal …"]
    shown.show(ToolCalled(LS))
    assert shown.lines == ["💻 terminal  ls -l …"]
    shown.show(ToolReturned(LS, WELL))
    assert shown.lines == ["💻 terminal  ls -l ✓ 0.2 s", "…"]
    shown.show(TextDelta("Done."), ended("Done."))
    shown.screen.end_turn()
    assert shown.lines == ["💻 terminal  ls -l ✓ 0.2 s", "Done."]


def test_calls_side_by_side_each_get_their_line(shown: Shown) -> None:
    shown.screen.begin_turn()
    shown.show(ToolCalled(LS), ToolCalled(CAT))
    assert shown.lines == ["💻 terminal  ls -l … (and 1 more)"]
    shown.show(ToolReturned(CAT, build_failure("no such file")))
    assert shown.lines == ["💻 terminal  cat x ✗", "   no such file", "💻 terminal  ls -l …"]


def test_a_call_never_takes_more_than_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, 30, reasoning=True)
    call = ToolCall("1", "terminal", '{"command": "' + "word " * 30 + '"}')
    shown.screen.begin_turn()
    shown.show(ToolCalled(call))
    assert len(shown.lines) == 1
    shown.show(ToolReturned(call, WELL))
    assert shown.lines[0].endswith("… ✓ 0.2 s")
    assert shown.lines[1] == "…"


def test_calls_that_were_stopped_say_so(shown: Shown) -> None:
    shown.screen.begin_turn()
    shown.show(ToolCalled(LS))
    shown.screen.end_turn("Stopped.")
    assert shown.lines == ["💻 terminal  ls -l ✗ stopped", "Stopped."]


def test_an_answer_that_was_not_streamed_is_shown_at_the_end(shown: Shown) -> None:
    shown.screen.begin_turn()
    shown.show(ended("I could not answer.", "broken"))
    assert shown.lines == ["I could not answer."]


def test_what_is_added_to_a_streamed_answer_is_shown_once(shown: Shown) -> None:
    shown.screen.begin_turn()
    shown.show(TextDelta("A text"), ended("A text\n\n(Cut off.)"))
    assert shown.lines == ["A text", "", "(Cut off.)"]


def test_text_that_became_void_is_followed_by_a_word_about_it(shown: Shown) -> None:
    shown.screen.begin_turn()
    shown.show(TextDelta("Half an an"), Retrying(ValueError("It broke."), 2.0))
    shown.show(TextDelta("Whole answer"), ended("Whole answer"))
    assert shown.lines == ["Half an an", "⟲ It broke. Retrying in 2 s.", "Whole answer"]


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
    screen = TerminalView(TOOLS, reasoning=True, out=out)
    screen.begin_turn()
    for happening in (
        ToolCalled(LS),
        ToolReturned(LS, WELL),
        TextDelta("**So**."),
        ended("**So**."),
    ):
        screen.show_event(happening)
    screen.end_turn()
    assert out.getvalue() == "💻 terminal  ls -l ✓ 0.2 s\n**So**.\n\n"


def test_a_question_is_asked_without_a_live_line_which_then_comes_back(shown: Shown) -> None:
    shown.screen.begin_turn()
    shown.show(ToolCalled(LS))
    with shown.screen.pause_live_line():
        assert shown.lines == [""]
        shown.screen.show_warning("Sure?")
    assert shown.lines == ["Sure?", "💻 terminal  ls -l …"]


def piped(view: PipeView | JsonLinesView, happenings: Iterable[TurnEvent]) -> None:
    view.begin_turn()
    for happening in happenings:
        view.show_event(happening)
    view.end_turn()


TURN: tuple[TurnEvent, ...] = (
    TextDelta("Let me look."),
    ToolCalled(LS),
    ToolReturned(LS, WELL),
    Retrying(ValueError("It broke."), 2.0),
    Compacted(Session("child"), ()),
    ended("Done."),
)


def test_in_a_pipe_stdout_has_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    piped(PipeView(TOOLS), TURN)
    out, err = capsys.readouterr()
    assert out == "Done.\n"
    assert err.split("\n")[:2] == ["💻 terminal  ls -l ✓ 0.2 s", "⟲ It broke. Retrying in 2 s."]


def test_in_a_pipe_a_failure_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    piped(PipeView(TOOLS), [ended("I could not.", "broken")])
    assert capsys.readouterr() == ("", "rekindle: I could not.\n")


def test_a_program_gets_every_event_as_an_object(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    piped(JsonLinesView(), TURN)
    events = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == [
        "text", "call", "result", "retry", "compressed", "answer",
    ]  # fmt: skip
    assert events[1] == {"event": "call", "id": "1", "tool": "terminal", "arguments": LS.arguments}
    assert events[-1]["tokens"]["input"] == 1
    assert events[-1]["ok"] is True
