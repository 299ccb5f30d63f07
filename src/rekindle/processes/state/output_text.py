"""Convert output bytes to text: without split characters, optionally without control sequences."""

from __future__ import annotations

import re

from .ring_buffer import ByteRange

# Terminal escape sequences: CSI, OSC and other strings, two-character sequences.
_ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)
_PARTIAL_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
_OVERSTRUCK = re.compile(r"[^\n\x08]\x08")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_MAX_SEQUENCE = 512  # bytes of an unfinished control sequence worth waiting for
_PARTIAL_CHARACTER = re.compile(
    rb"[\xc2-\xdf]\Z|[\xe0-\xef][\x80-\xbf]?\Z|[\xf0-\xf4][\x80-\xbf]{0,2}\Z"
)


def trim_partial(piece: ByteRange, *, ended: bool, plain: bool = False) -> ByteRange:
    """Trim split characters at both ends; the trimmed end is returned by a later read.

    The start can only be split where bytes were dropped. With `plain`, do not split control
    sequences either. After the end of the output (`ended`), nothing is trimmed at the end.
    """
    data, start, end = piece.data, piece.start, piece.end
    dropped = piece.dropped
    if dropped:
        cut = 0
        while cut < min(3, len(data)) and data[cut] & 0xC0 == 0x80:
            cut += 1
        data, start, dropped = data[cut:], start + cut, dropped + cut
    if not ended:
        if plain and (found := _PARTIAL_SEQUENCE.search(data, max(0, len(data) - _MAX_SEQUENCE))):
            data = data[: found.start()]
        if found := _PARTIAL_CHARACTER.search(data, max(0, len(data) - 3)):
            data = data[: found.start()]
        end = start + len(data)
    return ByteRange(data, start, end, dropped)


def decode_output(data: bytes, *, plain: bool) -> str:
    """Decode the bytes as UTF-8, with replacement characters for invalid ones."""
    decoded = data.decode("utf-8", "replace")
    return strip_controls(decoded) if plain else decoded


def strip_controls(output: str) -> str:
    """Remove control sequences and apply carriage returns and backspaces."""
    if "\x1b" in output:
        output = _ESCAPE_SEQUENCE.sub("", output)
    if "\r" in output:
        output = output.replace("\r\n", "\n")
        if "\r" in output:
            output = "\n".join(_get_visible_line(line) for line in output.split("\n"))
    if "\x08" in output:
        output = _OVERSTRUCK.sub("", output)
    return _CONTROLS.sub("", output)


def _get_visible_line(line: str) -> str:
    """Return the final state of an overwritten line, such as a progress bar."""
    parts = [part for part in line.split("\r") if part]
    return parts[-1] if parts else ""
