"""Map a function over chunks of work: in this process, on all cores, or on a Dask cluster.

The function is pure and the results come in the order of the chunks, so they are the same wherever the
work is done. A worker that dies costs the chunk it was working on, which is done again elsewhere.
"""

from __future__ import annotations

from .chunks import Chunk, group_items
from .mapper import SERIAL, ChunkMapper, SerialMapper, open_mapper

__all__ = ["SERIAL", "Chunk", "ChunkMapper", "SerialMapper", "group_items", "open_mapper"]
