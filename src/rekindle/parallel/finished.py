"""Remember finished chunks in a folder, so that a command that was interrupted goes on where it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from rekindle.files import write_new_file

from .chunks import Chunk
from .mapper import ChunkMapper
from .tasks import Prepare

T = TypeVar("T")
R = TypeVar("R")


class FinishedChunks(Generic[R]):
    """Results of chunks in private files, by a key that stands for all that they depend on."""

    def __init__(self, folder: Path, result_type: Any) -> None:
        self._folder = folder
        self._type = result_type

    def load_result(self, key: str) -> R | None:
        """Return the result of a chunk, if it is known and undamaged."""
        try:
            # Not with msgspec alone: texts of sessions may have lone surrogates.
            return msgspec.convert(json.loads((self._folder / key).read_bytes()), self._type)
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
            return None

    def save_result(self, key: str, result: R) -> None:
        """Save the result of a chunk, whole or not at all."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = json.dumps(msgspec.to_builtins(result))
        write_new_file(self._folder / key, data, durable=False)

    def forget_all(self) -> None:
        """Delete the results: the whole work is done."""
        shutil.rmtree(self._folder, ignore_errors=True)


def resume_chunks(
    mapper: ChunkMapper,
    function: Callable[[T], R],
    chunks: Sequence[Chunk[T]],
    keys: Sequence[str],
    finished: FinishedChunks[R],
    *,
    prepare: Prepare | None = None,
) -> Iterator[R]:
    """Yield the results of the chunks in their order; those that are remembered are not made again."""
    known = [finished.load_result(key) for key in keys]
    missing = [chunk for chunk, result in zip(chunks, known, strict=True) if result is None]
    made = mapper.map_chunks(function, missing, prepare=prepare)
    for key, result in zip(keys, known, strict=True):
        if result is None:
            result = next(made)
            with suppress(OSError):  # a home that cannot be written to
                finished.save_result(key, result)
        yield result
