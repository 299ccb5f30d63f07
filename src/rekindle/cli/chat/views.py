"""What a conversation looks like: on a terminal, in a pipe, and to a program.

All three are told the same: what happens in a turn, what a command answered, and what is to be noted
beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Protocol, TextIO

from rekindle.agent.model.stream import Again, CallDelta, ReasoningDelta, TextDelta
from rekindle.agent.turn import Called, Ended, Happening, Returned, Shrunk
from rekindle.cli.output import encode, printable
from rekindle.config import is_colourful

from .markdown_stream import DIM, PLAIN, Flow
from .tool_call_line import duration, fitted, telling, trouble, visible

if TYPE_CHECKING:
    from rekindle.agent.tools.tool import Tool
    from rekindle.types import ToolCall

_CODES = {"dim": "2", "bold": "1", "red": "31", "yellow": "33", "green": "32", "cyan": "36"}
_USUAL = "🔧"
COMPRESSED = (
    "The conversation grew long: its middle was summarised, and it goes on in a new session."
)


class View(Protocol):
    """Something that shows a conversation to somebody."""

    def begin(self) -> None:
        """A turn begins."""
        ...

    def show(self, happening: Happening) -> None:
        """Something happens in the turn."""
        ...

    def end(self, why: str | None = None) -> None:
        """The turn is over; `why` says what broke it off, if anything did."""
        ...

    def reply(self, text: str, *, ok: bool = True) -> None:
        """The answer of a command, or one that was not shown in time; not `ok`: it was refused."""
        ...

    def note(self, text: str) -> None:
        """A remark beside the conversation."""
        ...


class Screen:
    """A conversation on a terminal.

    The last line may be *live*: it tells what is going on and is replaced by what comes of it. It is
    never longer than a line, so it can be taken back.
    """

    def __init__(self, tools: Mapping[str, Tool], *, reasoning: bool, out: TextIO | None = None):
        self._tools = tools
        self._reasoning = reasoning
        self._out = out or sys.stdout
        self._colour = is_colourful()
        self._live = ""
        self._flow: Flow | None = None
        self._kind: type[Happening] | None = None  # of what flows
        self._streamed: list[str] = []  # of the answer so far
        self._running: dict[str, ToolCall] = {}

    # -- a turn

    def begin(self) -> None:
        self._streamed.clear()
        self._running.clear()
        self._alive("…")

    def show(self, happening: Happening) -> None:
        match happening:
            case TextDelta(text):
                self._streamed.append(text)
                self._stream(happening, text, PLAIN)
            case ReasoningDelta(text):
                if self._reasoning:
                    self._stream(happening, text, DIM)
            case CallDelta(name=name):
                self._stop_flow()
                self._alive(f"{self._emoji(name)} {visible(name)} …")
            case Called(call):
                self._stop_flow()
                self._streamed.clear()  # what was said before a call is no part of the answer
                self._running[call.id] = call
                self._alive_calls()
            case Returned(call, _):
                self._returned(happening)
                self._running.pop(call.id, None)
                self._alive_calls()
            case Again(error, seconds):
                self._streamed.clear()
                self._say(f"⟲ {error} Asking again in {seconds:.0f} s.", "yellow")
                self._alive("…")
            case Shrunk():
                self._say(COMPRESSED, "dim")
                self._alive("…")
            case Ended():
                self._ended(happening)
            case _:
                pass

    def end(self, why: str | None = None) -> None:
        self._stop_flow()
        self._still()
        for call in self._running.values():
            self._say(f"{self._folded(call)} ✗ stopped", "red")
        self._running.clear()
        if why:
            self._say(why, "yellow")
        self._write("\n")

    def _ended(self, ended: Ended) -> None:
        """Show what of the answer was not streamed: all of it, when the turn failed."""
        text, streamed = ended.message.text, "".join(self._streamed)
        if ended.reason is not None:
            self._say(text, "red")
        elif not text.startswith(streamed):
            self._say(text)
        elif rest := text[len(streamed) :]:
            self._stream(TextDelta(rest), rest, PLAIN)
        self._stop_flow()

    def _returned(self, returned: Returned) -> None:
        call, result = returned
        wrong = trouble(result)
        mark, style = ("✓", "green") if wrong is None else ("✗", "red")
        end = f" {mark} {duration(result)}".rstrip()
        line = self._folded(call, len(end))
        self._stop_flow()
        self._still()
        self._write(f"{line}{self._painted(end, style)}\n")
        if wrong:
            self._say(f"   {wrong}", "red")

    # -- beside the turns

    def reply(self, text: str, *, ok: bool = True) -> None:
        flow = Flow(self._width, styled=self._colour)
        self._still()
        self._write(flow.feed(text) + flow.finish() + "\n")

    def note(self, text: str) -> None:
        self._say(text, "dim")

    def warn(self, text: str) -> None:
        """Something that a person should look at."""
        self._say(text, "yellow")

    @contextmanager
    def asking(self) -> Generator[None]:
        """Nothing is live while a person is asked."""
        self._stop_flow()
        live = self._live
        self._still()
        yield
        self._alive(live)

    # -- how it is written

    def _stream(self, happening: Happening, text: str, style: str) -> None:
        if self._kind is not type(happening):
            self._stop_flow()
        if self._flow is None:
            text = text.lstrip("\n")  # some models begin with empty lines
            if not text:
                return
            self._still()
            style = style if self._colour else PLAIN
            self._flow = Flow(self._width, styled=self._colour, style=style)
            self._kind = type(happening)
        self._write(self._flow.feed(text))

    def _stop_flow(self) -> None:
        if self._flow is not None:
            self._write(self._flow.finish() + "\n")
            self._flow = self._kind = None

    def _say(self, text: str, style: str = "") -> None:
        self._stop_flow()
        self._still()
        code = _CODES[style] if style and self._colour else PLAIN
        flow = Flow(self._width, styled=False, style=code)
        self._write(flow.feed(text) + flow.finish() + "\n")

    def _alive_calls(self) -> None:
        calls = [*self._running.values()]
        if not calls:
            self._alive("…")
            return
        more = f" (and {len(calls) - 1} more)" if len(calls) > 1 else ""
        self._alive(f"{self._folded(calls[0], len(more) + 2)} …{more}")

    def _alive(self, text: str) -> None:
        """Put a live line in place of the one before; nothing where a line cannot be taken back."""
        if not self._colour or text == self._live or self._flow is not None:
            return
        self._still()
        self._live = fitted(text, self._width())
        self._write(self._painted(self._live, "dim"))

    def _still(self) -> None:
        if self._live:
            self._write("\r\x1b[2K")
            self._live = ""

    def _folded(self, call: ToolCall, spare: int = 10) -> str:
        head = f"{self._emoji(call.name)} {visible(call.name)}"
        return fitted(f"{head}  {telling(call)}".rstrip(), max(10, self._width() - spare))

    def _emoji(self, name: str) -> str:
        tool = self._tools.get(name)
        return tool.emoji if tool else _USUAL

    def _painted(self, text: str, style: str) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and self._colour else text

    def _width(self) -> int:
        return max(10, get_terminal_size().columns - 1)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


class Pipe:
    """A conversation in a pipe: the answer alone goes to stdout, everything else to stderr."""

    def __init__(self, tools: Mapping[str, Tool], out: TextIO | None = None) -> None:
        self._tools = tools
        self._out = out or sys.stdout

    def begin(self) -> None: ...

    def show(self, happening: Happening) -> None:
        match happening:
            case Returned(call, result):
                tool = self._tools.get(call.name)
                head = f"{tool.emoji if tool else _USUAL} {visible(call.name)}  {telling(call)}"
                wrong = trouble(result)
                end = f"✓ {duration(result)}" if wrong is None else f"✗ {wrong}"
                self.note(f"{fitted(head.rstrip(), 100)} {end}")
            case Again(error, seconds):
                self.note(f"⟲ {error} Asking again in {seconds:.0f} s.")
            case Shrunk():
                self.note(COMPRESSED)
            case Ended(_, message, _, reason):
                if reason is None:
                    self.reply(message.text)
                else:
                    self.note(f"rekindle: {message.text}")
            case _:
                pass

    def end(self, why: str | None = None) -> None:
        if why:
            self.note(why)

    def reply(self, text: str, *, ok: bool = True) -> None:
        if not ok:
            self.note(f"rekindle: {text}")
            return
        # Programs get every character; a terminal must not obey what a model wrote.
        end = "" if text.endswith("\n") else "\n"
        self._out.write(f"{printable(text) if self._out.isatty() else text}{end}")
        self._out.flush()

    def note(self, text: str) -> None:
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()


class Lines:
    """A conversation for a program: one JSON object per line, as things happen."""

    def begin(self) -> None: ...

    def show(self, happening: Happening) -> None:
        match happening:
            case TextDelta(text):
                self._write("text", text=text)
            case ReasoningDelta(text):
                self._write("reasoning", text=text)
            case Called(call):
                self._write("call", id=call.id, tool=call.name, arguments=call.arguments)
            case Returned(call, result):
                wrong, meta = trouble(result) is not None, dict(result.meta)
                told = {"id": call.id, "tool": call.name, "failed": wrong}
                self._write("result", **told, content=result.content, meta=meta)
            case Again(error, seconds):
                self._write("again", error=str(error), seconds=round(seconds, 3))
            case Shrunk(session, _):
                self._write("compressed", session=session.id)
            case Ended(session, message, tokens, reason):
                told = {"session": session.id, "text": message.text, "tokens": tokens._asdict()}
                self._write("answer", **told, ok=reason is None, reason=reason)
            case _:
                pass

    def end(self, why: str | None = None) -> None:
        if why:
            self.note(why)

    def reply(self, text: str, *, ok: bool = True) -> None:
        self._write("reply", text=text, ok=ok)

    def note(self, text: str) -> None:
        self._write("note", text=text)

    def _write(self, event: str, **about: object) -> None:
        sys.stdout.buffer.write(encode({"event": event, **about}) + b"\n")
        sys.stdout.buffer.flush()
