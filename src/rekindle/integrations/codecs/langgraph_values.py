"""Values of LangGraph's channels as bytes, without serializing a message twice.

Every step stores the whole list of messages again, and few of them are new.
"""

from __future__ import annotations

import marshal
from operator import attrgetter
from typing import Any, TypeAlias, cast

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rekindle.store.graphs.checkpoints import GraphValue

_MAX_BYTES = 8_000_000  # of serialized messages that are kept
_MESSAGES = frozenset((AIMessage, HumanMessage, SystemMessage, ToolMessage))
_CHUNK = 8  # messages that are looked up together
_get_fields, _get_extra = attrgetter("__dict__"), attrgetter("__pydantic_extra__")
# Of each message; `marshal` writes equal bytes only for equal values of equal types.
_EncodedKey: TypeAlias = tuple[tuple[type[Any], ...], bytes]
# The last format whose bytes depend on values alone: later ones also note which objects are referenced
# elsewhere or interned, so a message that was loaded again would not be found.
_MARSHAL_FORMAT = 2
_KIND = "msgpack"


class ValueEncoder:
    """Serializes values with a serializer of LangGraph; the bytes are always those it would write.

    Messages may be changed in place, so what they hold is compared each time, several at once.
    """

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde
        self._joins_lists = type(serde) is JsonPlusSerializer  # another one may write anything
        self._encoded: dict[_EncodedKey, bytes] = {}
        self._size = 0

    def encode(self, value: Any) -> GraphValue:
        """Return a value as the serializer writes it."""
        if self._joins_lists and type(value) is list and value:
            messages = cast(list[Any], value)
            kinds = tuple([cast(type[Any], type(one)) for one in messages])
            if _MESSAGES.issuperset(kinds) and not any(map(_get_extra, messages)):
                joined = self._encode_messages(messages, kinds)
                if joined is not None:
                    return GraphValue(_KIND, _build_array_header(len(messages)) + joined)
        return GraphValue(*self.serde.dumps_typed(value))

    def _encode_messages(self, messages: list[Any], kinds: tuple[type[Any], ...]) -> bytes | None:
        """Return messages as elements of a list; None if one of them is not of the usual form."""
        fields = [*map(_get_fields, messages)]
        full = len(messages) - len(messages) % _CHUNK
        spans = [(start, start + _CHUNK) for start in range(0, full, _CHUNK)]
        spans += [(start, start + 1) for start in range(full, len(messages))]
        parts: list[bytes] = []
        for start, end in spans:
            try:
                key = kinds[start:end], marshal.dumps(fields[start:end], _MARSHAL_FORMAT)
            except ValueError:  # a field holds more than plain JSON
                return None
            part = self._encoded.get(key)
            if part is None:
                part = (
                    self._dump_message(messages[start])
                    if end - start == 1
                    else self._join_single(messages[start:end], kinds[start:end])
                )
                if part is None:
                    return None
                self._keep(key, part)
            parts.append(part)
        return b"".join(parts)

    def _join_single(self, messages: list[Any], kinds: tuple[type[Any], ...]) -> bytes | None:
        """Return a chunk that is complete now, of messages that were serialized one by one."""
        pairs = zip(messages, kinds, strict=True)
        parts = [self._encode_messages([message], (kind,)) for message, kind in pairs]
        return None if None in parts else b"".join(cast(list[bytes], parts))

    def _dump_message(self, message: Any) -> bytes | None:
        name, data = self.serde.dumps_typed([message])
        return data[1:] if name == _KIND else None  # after the header of a list with one element

    def _keep(self, key: _EncodedKey, data: bytes) -> None:
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
