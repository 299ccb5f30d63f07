"""Bytes of output as text: never half a character, without control sequences where asked."""

from __future__ import annotations

import re

from .ring_buffer import Span

# Escape sequences of terminals: CSI, OSC and other strings, two-character ones.
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
_OVERSTRUCK = re.compile(r"[^\n\x08]\x08")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LONGEST = 512  # of a control sequence that is waited for
_TAIL = re.compile(rb"[\xc2-\xdf]\Z|[\xe0-\xef][\x80-\xbf]?\Z|[\xf0-\xf4][\x80-\xbf]{0,2}\Z")


def whole(span: Span, *, ended: bool, plain: bool = False) -> Span:
    """The span without half a character at either end; what is missing at its end comes later.

    At the start only what was dropped can have cut one. With `plain` a control sequence is not
    cut either. After the end of the output nothing comes later.
    """
    data, start, end = span.data, span.start, span.end
    dropped = span.dropped
    if dropped:
        cut = 0
        while cut < min(3, len(data)) and data[cut] & 0xC0 == 0x80:
            cut += 1
        data, start, dropped = data[cut:], start + cut, dropped + cut
    if not ended:
        if plain and (found := _UNFINISHED.search(data, max(0, len(data) - _LONGEST))):
            data = data[: found.start()]
        if found := _TAIL.search(data, max(0, len(data) - 3)):
            data = data[: found.start()]
        end = start + len(data)
    return Span(data, start, end, dropped)


def text(data: bytes, *, plain: bool) -> str:
    """The bytes as text; what is no UTF-8 is shown as such."""
    said = data.decode("utf-8", "replace")
    return stripped(said) if plain else said


def stripped(said: str) -> str:
    """What is left for a reader who is no terminal: no sequences, lines as they ended up."""
    if "\x1b" in said:
        said = _SEQUENCE.sub("", said)
    if "\r" in said:
        said = said.replace("\r\n", "\n")
        if "\r" in said:
            said = "\n".join(_last_written(line) for line in said.split("\n"))
    if "\x08" in said:
        said = _OVERSTRUCK.sub("", said)
    return _CONTROLS.sub("", said)


def _last_written(line: str) -> str:
    """A line that was written over: a progress bar as it stands in the end."""
    parts = [part for part in line.split("\r") if part]
    return parts[-1] if parts else ""
