"""Values of LangGraph's channels as bytes, without serializing a message twice.

Every step stores the whole list of messages again, and few of them are new.
"""

from __future__ import annotations

import marshal
from typing import Any, cast

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rekindle.store.graphs.checkpoints import GraphValue

_MAX_BYTES = 8_000_000  # of serialized messages that are kept
_MESSAGES = frozenset((AIMessage, HumanMessage, SystemMessage, ToolMessage))
_FIELDS_FORMAT = 2  # of `marshal`: equal bytes only for equal values of equal types
_KIND = "msgpack"


class ValueEncoder:
    """Serializes values with a serializer of LangGraph; the bytes are always those it would write."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde
        self._joins_lists = type(serde) is JsonPlusSerializer  # another one may write anything
        self._encoded: dict[tuple[type[Any], bytes], bytes] = {}
        self._size = 0

    def encode(self, value: Any) -> GraphValue:
        """Return a value as the serializer writes it."""
        if self._joins_lists and type(value) is list and value:
            parts: list[bytes] = []
            for one in cast(list[Any], value):
                part = self._encode_message(one)
                if part is None:
                    break
                parts.append(part)
            else:
                return GraphValue(_KIND, b"".join((_build_array_header(len(parts)), *parts)))
        return GraphValue(*self.serde.dumps_typed(value))

    def _encode_message(self, message: Any) -> bytes | None:
        """Return a message as an element of a list; None for everything else."""
        kind = cast(type[Any], type(message))
        if kind not in _MESSAGES or message.__pydantic_extra__:
            return None
        try:
            key = kind, marshal.dumps(message.__dict__, _FIELDS_FORMAT)
        except ValueError:  # a field holds more than plain JSON
            return None
        found = self._encoded.get(key)
        if found is None:
            name, data = self.serde.dumps_typed([message])
            if name != _KIND:
                return None
            found = data[1:]  # the header of a list with one element
            self._keep(key, found)
        return found

    def _keep(self, key: tuple[type[Any], bytes], data: bytes) -> None:
        size = len(key[1]) + len(data)
        if size > _MAX_BYTES // 8:
            return
        if self._size + size > _MAX_BYTES:  # what is still in use comes back
            self._encoded, self._size = {}, 0
        self._encoded[key] = data
        self._size += size


def _build_array_header(count: int) -> bytes:
    """Build the beginning of a MessagePack array."""
    if count < 16:
        return bytes((0x90 | count,))
    return (
        b"\xdc" + count.to_bytes(2, "big") if count < 65536 else b"\xdd" + count.to_bytes(4, "big")
    )
