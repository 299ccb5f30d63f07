"""Values of LangGraph's channels as bytes, without converting a message twice.

Every step stores the whole list of messages again, every run begins by reading it, and few of them are
new.
"""

from __future__ import annotations

import marshal
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, cast

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
_SCALARS = frozenset((str, int, float, bool, type(None)))
_EXTENSION_SIZES = {
    0xC7: 1,
    0xC8: 2,
    0xC9: 4,
}  # bytes of the length of an object, by its first byte


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


class _MessageState(NamedTuple):
    """What a message that was deserialized before is built of again."""

    kind: type[Any]
    names: tuple[str, ...]  # of its fields
    values: bytes  # of these, serialized, because the program may change a message
    given: frozenset[str]  # names of the fields that were not left to their defaults


class ValueDecoder:
    """Deserializes values with a serializer of LangGraph; each message is an object of its own.

    Pydantic validates a message whenever it is deserialized. The same bytes give an equal message, so
    one that passed before is built of its fields, as by `pickle`.
    """

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde
        has_own_hook = getattr(serde, "_custom_unpack_ext_hook", False)
        self._splits_lists = type(serde) is JsonPlusSerializer and not has_own_hook
        self._states: dict[bytes, _MessageState] = {}
        self._size = 0

    def decode(self, value: GraphValue) -> Any:
        """Return a value as the serializer reads it."""
        if self._splits_lists and value.kind == _KIND:
            parts = _split_objects(value.data)
            if parts:
                return self._load_objects(parts)
        return self.serde.loads_typed((value.kind, value.data))

    def _load_objects(self, parts: list[bytes]) -> list[Any]:
        states = [*map(self._states.get, parts)]
        missing = [part for part, state in zip(parts, states, strict=True) if state is None]
        header = _build_array_header(len(missing))
        loaded: list[Any] = []
        if missing:
            loaded = self.serde.loads_typed((_KIND, b"".join((header, *missing))))
            for part, one in zip(missing, loaded, strict=True):
                self._keep(part, one)
        new = iter(loaded)
        return [next(new) if state is None else _build_message(state) for state in states]

    def _keep(self, part: bytes, message: Any) -> None:
        kind = cast(type[Any], type(message))
        if kind not in _MESSAGES:
            return
        held = cast(dict[str, Any], message.__getstate__())
        if held["__pydantic_extra__"] or held["__pydantic_private__"]:
            return
        fields = cast(dict[str, Any], held["__dict__"])
        values = [*fields.values()]
        try:
            data = marshal.dumps(values, _MARSHAL_FORMAT) if _is_plain(values) else None
        except (RecursionError, ValueError):  # too deep
            return
        if data is None or (size := len(part) + len(data)) > _MAX_BYTES // 8:
            return
        if self._size + size > _MAX_BYTES:  # what is still in use comes back
            self._states, self._size = {}, 0
        given = frozenset(cast(set[str], held["__pydantic_fields_set__"]))
        self._states[part] = _MessageState(kind, (*fields,), data, given)
        self._size += size


def _is_plain(value: Any) -> bool:
    """Return whether a value is JSON alone; `marshal` would turn an array into bytes."""
    kind = cast(type[Any], type(value))
    if kind is list:
        return all(one is None or type(one) is str or _is_plain(one) for one in value)
    if kind is dict:
        return _is_plain([*value]) and _is_plain([*value.values()])
    return kind in _SCALARS


def _build_message(state: _MessageState) -> Any:
    kind, names, values, given = state
    message: Any = object.__new__(kind)
    message.__setstate__(
        {
            "__dict__": dict(zip(names, marshal.loads(values), strict=True)),
            "__pydantic_extra__": {},
            "__pydantic_fields_set__": set(given),
            "__pydantic_private__": None,
        }
    )
    return message


def _split_objects(data: bytes) -> list[bytes] | None:
    """Return the elements of a MessagePack array of objects; None if it is something else."""
    first = data[0] if data else 0
    if first & 0xF0 == 0x90:
        count, place = first & 0x0F, 1
    elif first in (0xDC, 0xDD):
        place = 3 if first == 0xDC else 5
        count = int.from_bytes(data[1:place], "big")
    else:
        return None
    parts: list[bytes] = []
    sizes, total = _EXTENSION_SIZES, len(data)
    for _ in range(count):
        size = sizes.get(data[place]) if place < total else None
        if size is None:
            return None
        start = place + 1
        end = start + size + 1 + int.from_bytes(data[start : start + size], "big")
        parts.append(data[place:end])
        place = end
    return parts if place == total else None


def _build_array_header(count: int) -> bytes:
    """Build the beginning of a MessagePack array."""
    if count < 16:
        return bytes((0x90 | count,))
    return (
        b"\xdc" + count.to_bytes(2, "big") if count < 65536 else b"\xdd" + count.to_bytes(4, "big")
    )
