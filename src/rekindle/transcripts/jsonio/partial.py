"""What the beginning of a JSON document tells, wherever it was cut.

All that detection sees of a large file. What is open where it ends is closed, so that the parser can
read it; a beginning with damage in it, or with several documents, is walked through.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from io import BytesIO
from typing import NamedTuple, cast

from rekindle.json_fields import Record
from rekindle.types import JSON

from .document import Walk
from .fast_path import Part, Sound
from .jsonl import decode

_NO_BRACKETS = bytes({*range(256)} - {*b"{}[]"})
_WORD = b"0123456789+-.eEaflnrstu"  # a number or a name, whose end may be missing
_CLOSING = bytes.maketrans(b"{[", b"}]")


class _Seen(NamedTuple):
    """A beginning that was made whole.

    Of so many containers, from the outermost on, that which stands last in them is `cut`.
    """

    sound: Sound
    cut: int = 0


@lru_cache(maxsize=4)
def _seen(data: bytes) -> _Seen | None:
    """The document, if there is but one and it is sound as far as it goes."""
    if not data.startswith((b"{", b"[")):
        return None
    line, _, rest = data.partition(b"\n")
    if (sound := _whole(line)) is not None:
        return None if rest.strip() else _Seen(sound)
    if rest and (sound := _whole(data)) is not None:
        return _Seen(sound)
    # Outside of strings is every other part between quotes, once those that are escaped are gone.
    parts = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    still_open = b"".join(parts[::2]).translate(None, _NO_BRACKETS)
    text = data.rstrip().rstrip(_WORD) if len(parts) % 2 else data[: _last_quote(data)]
    text = text.rstrip()
    while (fewer := still_open.replace(b"{}", b"").replace(b"[]", b"")) != still_open:
        still_open = fewer
    cut = len(still_open)
    if text.endswith(b":"):
        text += b"null"
    elif text.endswith(b","):  # then the value before it is all there
        text, cut = text[:-1], cut - 1
    sound = Sound.of(text + still_open[::-1].translate(_CLOSING))
    return None if sound is None else _Seen(sound, cut)


def _whole(data: bytes) -> Sound | None:
    # What is cut ends anywhere, mostly not on a bracket: to see that costs less than to parse it.
    return Sound.of(data) if data.rstrip().endswith((b"}", b"]")) else None


def _last_quote(data: bytes) -> int:
    """Where the last quote stands that no backslash takes its meaning from."""
    at = data.rfind(b'"')
    while at > 0:
        before = at
        while data[before - 1 : before] == b"\\":
            before -= 1
        if (at - before) % 2 == 0:
            break
        at = data.rfind(b'"', 0, at)
    return at


def opening(data: bytes, lists: Collection[str]) -> bytes:
    """The first element of the list in a document that begins like `data`, as far as it goes."""
    # Each format that is asked about a file wants to see another list, and it is mostly not there.
    if data.startswith(b"{") and not any(b'"%s"' % name.encode() in data for name in lists):
        return b""
    seen = _seen(data)
    if seen is None:
        return _opening_of_any(data, lists)
    sound, cut = seen
    if sound.is_list:
        return _first(sound.parts, data, cut >= 1)
    for name, at, raw in sound.parts:
        if name in lists and sound.begins(at) == b"[":
            is_last = at == sound.parts[-1][1]
            if first := _first(sound.inside(raw, at) or [], data, cut >= 2 and is_last):
                return first
    return b""


def _first(elements: Sequence[Part], data: bytes, is_cut: bool) -> bytes:
    """The first element of a list whose last one may be cut."""
    if not elements:
        return b""
    _, at, raw = elements[0]
    return data[at:] if is_cut and len(elements) == 1 else bytes(raw)


def _opening_of_any(data: bytes, lists: Collection[str]) -> bytes:
    walk = Walk(BytesIO(data), lists)
    for piece in walk.pieces():
        if piece.item is not None:
            return piece.data
    return walk.buffer[walk.start :].lstrip() if walk.index is not None else b""


@lru_cache(maxsize=4)
def fields_so_far(data: bytes) -> Record:
    """The fields of an object that may be cut; of the last one only its kind is known."""
    seen = _seen(data)
    if seen is None:
        return _fields_of_first(data)
    if seen.sound.is_list:
        return {}
    found: Record = {}
    for name, _, raw in seen.sound.parts:
        try:
            found[cast(str, name)] = decode(raw)
        except ValueError:
            continue
    if seen.cut and seen.sound.parts:
        name, at, _ = seen.sound.parts[-1]
        found[cast(str, name)] = _kind(seen.sound.begins(at))
    return found


def _fields_of_first(data: bytes) -> Record:
    """The same where there are several documents, or damage."""
    if data.rstrip().endswith(b"}"):
        try:
            whole = decode(data)
        except ValueError:
            pass
        else:
            return cast(Record, whole) if isinstance(whole, dict) else {}
    walk = Walk(BytesIO(data), ())
    found: Record = {}
    for piece in walk.pieces():
        if piece.document or piece.key is None:
            return found
        try:
            found[piece.key] = decode(piece.data)
        except ValueError:
            continue
    if walk.depth and walk.key is not None:
        found[walk.key] = _kind(walk.buffer[walk.start :].lstrip()[:1])
    return found


def _kind(begins: bytes) -> JSON:
    return {} if begins == b"{" else [] if begins == b"[" else ""
