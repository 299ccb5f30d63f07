"""Foreign transcripts: what other agents wrote down, read into Rekindle's values.

A new format is one file in this folder with `sniff(head) -> bool` and `read(path)`, a generator
of the events in `transcript.py`, and one line in the table below. Detection asks the formats in
the order of the table and looks at the content alone: names of files and folders lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from rekindle.errors import InvalidInput

from .detect import Head
from .events import Damage, Event, Learned, Opened

__all__ = ["FORMATS", "Damage", "Event", "Format", "Learned", "Opened", "detect", "read"]


class Format(NamedTuple):
    """A format by its name and the module that reads it, which is loaded when it is asked.

    Only a format that is `binary`, wholly or in part, is asked about files that are not text.
    """

    name: str
    module: str
    binary: bool = False

    def sniff(self, head: Head) -> bool:
        """Whether a file that begins like this is in this format."""
        return _module(self.module).sniff(head)

    def read(self, path: Path) -> Iterator[Event]:
        """The events of the file."""
        return _module(self.module).read(path)


@cache
def _module(name: str) -> Any:
    return import_module(f".readers.{name}", __name__)


FORMATS = (
    Format("claude-code", "claude_code"),
    Format("codex", "codex"),
    Format("copilot", "copilot"),
    Format("opencode", "opencode", binary=True),
    Format("pi", "pi"),
    Format("gemini", "gemini"),
    Format("hermes", "hermes", binary=True),
    Format("mini-swe-agent", "benchmarks.mini_swe_agent"),
    Format("swe-agent", "benchmarks.swe_agent"),
    Format("openhands", "benchmarks.openhands"),
    Format("tau-bench", "benchmarks.tau_bench"),
    Format("tau2", "benchmarks.tau2"),
    Format("atif", "atif"),
    Format("inspect", "benchmarks.inspect_ai", binary=True),
    Format("otel", "otel.reader"),
    Format("aider", "aider"),
    Format("openai-chat", "openai_chat"),
)


def detect(path: str | Path) -> Format | None:
    """The format of the file, by its content; None when it is not one we read."""
    head = Head.of(Path(path))
    if not head.data:
        return None
    is_binary = head.is_binary
    asked = [format for format in FORMATS if format.binary or not is_binary]
    return next((format for format in asked if format.sniff(head)), None)


def read(path: str | Path) -> Iterator[Event]:
    """The events of the file, whatever its format; InvalidInput when it is not one we read."""
    format = detect(path)
    if format is None:
        known = ", ".join(format.name for format in FORMATS)
        raise InvalidInput(f"{path}: not a transcript that Rekindle reads ({known})")
    return format.read(Path(path))
