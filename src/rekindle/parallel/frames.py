"""Messages in a pipe: the length in eight bytes, then the bytes."""

from __future__ import annotations

from typing import IO

_LENGTH_BYTES = 8


def write_frame(pipe: IO[bytes], data: bytes) -> None:
    """Write one message."""
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big"))
    pipe.write(data)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes:
    """Read one message; raise EOFError if the other side is gone."""
    length = int.from_bytes(_read_bytes(pipe, _LENGTH_BYTES), "big")
    return _read_bytes(pipe, length)


def _read_bytes(pipe: IO[bytes], count: int) -> bytes:
    data = pipe.read(count)
    if len(data) < count:
        raise EOFError("the other side of the pipe is gone")
    return data
