"""Readers for transcripts written by other agents.

A new format is one module in this package with `can_read(head) -> bool` and `read_events(path)`, a
generator of the events in `events.py`, plus one line in the table below. Detection asks the formats
in the order of the table and looks at the content alone, because file and folder names are not
reliable.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rekindle.errors import InvalidInput

from .events import SessionStarted, SessionUpdated, TranscriptEvent, UnreadableEntry

if TYPE_CHECKING:
    from .detect import FileHead

__all__ = [
    "FORMATS",
    "SessionStarted",
    "SessionUpdated",
    "TranscriptEvent",
    "TranscriptFormat",
    "UnreadableEntry",
    "detect_format",
    "read_transcript",
]


class TranscriptFormat(NamedTuple):
    """A format's name, the module that reads it, loaded on first use, and its name for people.

    Only formats marked `binary` are asked about files that are not text.
    """

    name: str
    module: str
    title: str
    binary: bool = False

    def can_read(self, head: FileHead) -> bool:
        """Return whether a file with this head is in this format."""
        return _load_module(self.module).can_read(head)

    def read(self, path: Path) -> Iterator[TranscriptEvent]:
        """Yield the file's events."""
        return _load_module(self.module).read_events(path)


@cache
def _load_module(name: str) -> Any:
    return import_module(f".readers.{name}", __name__)


FORMATS = (
    TranscriptFormat("claude-code", "claude_code.reader", "Claude Code"),
    TranscriptFormat("codex", "codex", "Codex"),
    TranscriptFormat("copilot", "copilot", "Copilot CLI"),
    TranscriptFormat("opencode", "opencode", "OpenCode", binary=True),
    TranscriptFormat("pi", "pi", "pi"),
    TranscriptFormat("gemini", "gemini", "Gemini CLI"),
    TranscriptFormat("hermes", "hermes", "Hermes", binary=True),
    TranscriptFormat("mini-swe-agent", "benchmarks.mini_swe_agent", "mini-SWE-agent"),
    TranscriptFormat("swe-agent", "benchmarks.swe_agent", "SWE-agent"),
    TranscriptFormat("openhands", "benchmarks.openhands", "OpenHands"),
    TranscriptFormat("tau-bench", "benchmarks.tau_bench", "tau-bench"),
    TranscriptFormat("tau2", "benchmarks.tau2", "tau2-bench"),
    TranscriptFormat("atif", "atif", "ATIF files"),
    TranscriptFormat("inspect", "benchmarks.inspect_ai", "Inspect", binary=True),
    TranscriptFormat("otel", "otel.reader", "OpenTelemetry"),
    TranscriptFormat("aider", "aider", "Aider"),
    TranscriptFormat("openai-chat", "openai_chat", "chat files"),
)


def detect_format(path: str | Path) -> TranscriptFormat | None:
    """Detect the file's format from its content; return None if it is not supported."""
    from .detect import FileHead  # what looks for changed files alone does not need it

    head = FileHead.read(Path(path))
    if not head.data:
        return None
    if (format := _match_format(head)) is not None:
        return format
    # A damaged line at the beginning must not hide the format of the others.
    rest = head.skip_damaged_lines()
    return None if rest is None else _match_format(rest)


def _match_format(head: FileHead) -> TranscriptFormat | None:
    is_binary = head.is_binary
    candidates = [format for format in FORMATS if format.binary or not is_binary]
    return next((format for format in candidates if format.can_read(head)), None)


def read_transcript(path: str | Path) -> Iterator[TranscriptEvent]:
    """Yield the file's events, whatever its format.

    Raise InvalidInput if the format is not supported.
    """
    format = detect_format(path)
    if format is None:
        supported = ", ".join(format.name for format in FORMATS)
        raise InvalidInput(f"{path}: not a supported transcript (supported formats: {supported})")
    return format.read(Path(path))
