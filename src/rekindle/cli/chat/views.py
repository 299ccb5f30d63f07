"""Views of a conversation: on a terminal, in a pipe, and as JSON lines.

All three receive the same: the events of a turn, the replies of commands, and notes.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Protocol, TextIO

from rekindle.agent.model.stream import CallDelta, ReasoningDelta, Retrying, TextDelta
from rekindle.agent.turn import Compacted, ToolCalled, ToolReturned, TurnEnded, TurnEvent
from rekindle.cli.output import encode_json, escape_control_chars
from rekindle.cli.terminal.text import fit_to_width
from rekindle.config import allows_color

from .markdown_stream import DIM, PLAIN, MarkdownStream
from .tool_call_line import (
    describe_failure,
    escape_invisible,
    format_duration,
    summarize_call,
)

if TYPE_CHECKING:
    from rekindle.agent.tools.tool import Tool
    from rekindle.types import ToolCall

_STYLE_CODES = {"dim": "2", "bold": "1", "red": "31", "yellow": "33", "green": "32", "cyan": "36"}
_DEFAULT_EMOJI = "🔧"
COMPRESSED_NOTE = "The conversation got long. It was compressed and continues in a new session."


class ChatView(Protocol):
    """A way to show a conversation."""

    def begin_turn(self) -> None:
        """Begin a turn; nothing to show by default."""
        return

    def show_event(self, event: TurnEvent) -> None:
        """Show an event of the turn."""
        ...

    def end_turn(self, why: str | None = None) -> None:
        """End the turn; `why` says what interrupted it, if anything."""
        if why:
            self.show_note(why)

    def show_reply(self, text: str, *, ok: bool = True) -> None:
        """Show the reply of a command or a late answer; not `ok` if the command was rejected."""
        ...

    def show_note(self, text: str) -> None:
        """Show a note apart from the conversation."""
        ...


class TerminalView:
    """A conversation on a terminal.

    The last line may be *live*: it shows the current activity and is replaced by the result. It
    never wraps, so it can be erased.
    """

    def __init__(self, tools: Mapping[str, Tool], *, reasoning: bool, out: TextIO | None = None):
        self._tools = tools
        self._shows_reasoning = reasoning
        self._out = out or sys.stdout
        self._has_colour = allows_color()
        self._live_line = ""
        self._markdown: MarkdownStream | None = None
        self._stream_kind: type[TurnEvent] | None = None  # of the streamed text
        self._streamed: list[str] = []  # parts of the answer so far
        self._running: dict[str, ToolCall] = {}

    # -- a turn

    def begin_turn(self) -> None:
        self._streamed.clear()
        self._running.clear()
        self._show_live_line("…")

    def show_event(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text):
                self._streamed.append(text)
                self._stream_text(event, text, PLAIN)
            case ReasoningDelta(text):
                if self._shows_reasoning:
                    self._stream_text(event, text, DIM)
            case CallDelta(name=name):
                self._finish_stream()
                self._show_live_line(f"{self._get_emoji(name)} {escape_invisible(name)} …")
            case ToolCalled(call):
                self._finish_stream()
                self._streamed.clear()  # text before a call is not part of the answer
                self._running[call.id] = call
                self._show_running_calls()
            case ToolReturned(call, _):
                self._show_result(event)
                self._running.pop(call.id, None)
                self._show_running_calls()
            case Retrying(error, seconds):
                self._streamed.clear()
                self._print_text(f"⟲ {error} Retrying in {seconds:.0f} s.", "yellow")
                self._show_live_line("…")
            case Compacted():
                self._print_text(COMPRESSED_NOTE, "dim")
                self._show_live_line("…")
            case TurnEnded():
                self._show_rest_of_answer(event)
            case _:
                pass

    def end_turn(self, why: str | None = None) -> None:
        self._finish_stream()
        self._clear_live_line()
        for call in self._running.values():
            self._print_text(f"{self._format_call(call)} ✗ stopped", "red")
        self._running.clear()
        if why:
            self._print_text(why, "yellow")
        self._write("\n")

    def _show_rest_of_answer(self, ended: TurnEnded) -> None:
        """Show the part of the answer that was not streamed: all of it if the turn failed."""
        text, streamed = ended.message.text, "".join(self._streamed)
        if ended.reason is not None:
            self._print_text(text, "red")
        elif not text.startswith(streamed):
            self._print_text(text)
        elif rest := text[len(streamed) :]:
            self._stream_text(TextDelta(rest), rest, PLAIN)
        self._finish_stream()

    def _show_result(self, returned: ToolReturned) -> None:
        call, result = returned
        failure = describe_failure(result)
        mark, style = ("✓", "green") if failure is None else ("✗", "red")
        end = f" {mark} {format_duration(result)}".rstrip()
        line = self._format_call(call, len(end))
        self._finish_stream()
        self._clear_live_line()
        self._write(f"{line}{self._paint(end, style)}\n")
        if failure:
            self._print_text(f"   {failure}", "red")

    # -- outside of turns

    def show_reply(self, text: str, *, ok: bool = True) -> None:
        markdown = MarkdownStream(self._get_width, styled=self._has_colour)
        self._clear_live_line()
        self._write(markdown.feed(text) + markdown.finish() + "\n")

    def show_note(self, text: str) -> None:
        self._print_text(text, "dim")

    def show_warning(self, text: str) -> None:
        """Show a warning."""
        self._print_text(text, "yellow")

    @contextmanager
    def pause_live_line(self) -> Generator[None]:
        """Hide the live line while the user is asked a question."""
        self._finish_stream()
        live = self._live_line
        self._clear_live_line()
        yield
        self._show_live_line(live)

    # -- writing

    def _stream_text(self, event: TurnEvent, text: str, style: str) -> None:
        if self._stream_kind is not type(event):
            self._finish_stream()
        if self._markdown is None:
            text = text.lstrip("\n")  # some models start with empty lines
            if not text:
                return
            self._clear_live_line()
            style = style if self._has_colour else PLAIN
            self._markdown = MarkdownStream(self._get_width, styled=self._has_colour, style=style)
            self._stream_kind = type(event)
        self._write(self._markdown.feed(text))

    def _finish_stream(self) -> None:
        if self._markdown is not None:
            self._write(self._markdown.finish() + "\n")
            self._markdown = self._stream_kind = None

    def _print_text(self, text: str, style: str = "") -> None:
        self._finish_stream()
        self._clear_live_line()
        code = _STYLE_CODES[style] if style and self._has_colour else PLAIN
        markdown = MarkdownStream(self._get_width, styled=False, style=code)
        self._write(markdown.feed(text) + markdown.finish() + "\n")

    def _show_running_calls(self) -> None:
        calls = [*self._running.values()]
        if not calls:
            self._show_live_line("…")
            return
        more = f" (and {len(calls) - 1} more)" if len(calls) > 1 else ""
        self._show_live_line(f"{self._format_call(calls[0], len(more) + 2)} …{more}")

    def _show_live_line(self, text: str) -> None:
        """Replace the live line; do nothing on terminals that cannot erase a line."""
        if not self._has_colour or text == self._live_line or self._markdown is not None:
            return
        self._clear_live_line()
        self._live_line = fit_to_width(text, self._get_width())
        self._write(self._paint(self._live_line, "dim"))

    def _clear_live_line(self) -> None:
        if self._live_line:
            self._write("\r\x1b[2K")
            self._live_line = ""

    def _format_call(self, call: ToolCall, reserved: int = 10) -> str:
        head = f"{self._get_emoji(call.name)} {escape_invisible(call.name)}"
        return fit_to_width(
            f"{head}  {summarize_call(call)}".rstrip(), max(10, self._get_width() - reserved)
        )

    def _get_emoji(self, name: str) -> str:
        tool = self._tools.get(name)
        return tool.emoji if tool else _DEFAULT_EMOJI

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLE_CODES[style]}m{text}\x1b[0m" if style and self._has_colour else text

    def _get_width(self) -> int:
        return max(10, get_terminal_size().columns - 1)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


class PipeView(ChatView):
    """A conversation in a pipe: only the answer goes to stdout, everything else to stderr."""

    def __init__(self, tools: Mapping[str, Tool], out: TextIO | None = None) -> None:
        self._tools = tools
        self._out = out or sys.stdout

    def show_event(self, event: TurnEvent) -> None:
        match event:
            case ToolReturned(call, result):
                tool = self._tools.get(call.name)
                emoji = tool.emoji if tool else _DEFAULT_EMOJI
                head = f"{emoji} {escape_invisible(call.name)}  {summarize_call(call)}"
                failure = describe_failure(result)
                end = f"✓ {format_duration(result)}" if failure is None else f"✗ {failure}"
                self.show_note(f"{fit_to_width(head.rstrip(), 100)} {end}")
            case Retrying(error, seconds):
                self.show_note(f"⟲ {error} Retrying in {seconds:.0f} s.")
            case Compacted():
                self.show_note(COMPRESSED_NOTE)
            case TurnEnded(_, message, _, reason):
                if reason is None:
                    self.show_reply(message.text)
                else:
                    self.show_note(f"rekindle: {message.text}")
            case _:
                pass

    def show_reply(self, text: str, *, ok: bool = True) -> None:
        if not ok:
            self.show_note(f"rekindle: {text}")
            return
        # Escape on a terminal, which would obey control characters; programs get the exact text.
        end = "" if text.endswith("\n") else "\n"
        self._out.write(f"{escape_control_chars(text) if self._out.isatty() else text}{end}")
        self._out.flush()

    def show_note(self, text: str) -> None:
        sys.stderr.write(f"{escape_control_chars(text)}\n")
        sys.stderr.flush()


class JsonLinesView(ChatView):
    """A conversation for a program: one JSON object per event and line."""

    def show_event(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text):
                self._write_event("text", text=text)
            case ReasoningDelta(text):
                self._write_event("reasoning", text=text)
            case ToolCalled(call):
                self._write_event("call", id=call.id, tool=call.name, arguments=call.arguments)
            case ToolReturned(call, result):
                failure, meta = describe_failure(result) is not None, dict(result.meta)
                fields = {"id": call.id, "tool": call.name, "failed": failure}
                self._write_event("result", **fields, content=result.content, meta=meta)
            case Retrying(error, seconds):
                self._write_event("retry", error=str(error), seconds=round(seconds, 3))
            case Compacted(session, _):
                self._write_event("compressed", session=session.id)
            case TurnEnded(session, message, tokens, reason):
                fields = {"session": session.id, "text": message.text, "tokens": tokens._asdict()}
                self._write_event("answer", **fields, ok=reason is None, reason=reason)
            case _:
                pass

    def show_reply(self, text: str, *, ok: bool = True) -> None:
        self._write_event("reply", text=text, ok=ok)

    def show_note(self, text: str) -> None:
        self._write_event("note", text=text)

    def _write_event(self, event: str, **about: object) -> None:
        sys.stdout.buffer.write(encode_json({"event": event, **about}) + b"\n")
        sys.stdout.buffer.flush()
