"""Ways to damage a file, each with the first byte and the lines that it changes."""

from __future__ import annotations

import copy
import io
import json
import random
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import apsw

DEEP = 100_000
LONG = 2_000_000
_HEAD = 64 * 1024
# Written in place of a value that `json.dumps` could not write.
_DEEP_MARK = '"@deep@"'

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**63, 10**400, 1e308, float("inf"), float("nan"), 1e-320,
    "", " ", "\x00", "REDACTED", "\ud83d", "\u2028", "x" * LONG, "é" * 600, "../../etc/passwd",
    "{", '{"a":', "[1]", "NaN", "1e999", "99999-99-99T99:99:99Z", "2026-01-01T00:00:00+99:99",
    [], {}, [[]], [None], [1, "a", None], {"": ""}, {"type": {}}, {"content": [0, {}]}, "@deep@",
)  # fmt: skip
JUNK: tuple[bytes, ...] = (
    b"", b"\x00", b"\x00" * 70_000, b"\xff\xfe\xfa", b"null", b"[1, 2]", b'"text"', b"{", b"}", b"]",
    b"{}", b"[]", b"// a comment", b'{"a": 1e999}', b'{"a": "\xff"}', b'{"a": "\\ud83d"}',
    b"9" * 10_000, b"[" * DEEP, b'{"a":' * DEEP, b'"' + b"x" * LONG, b"# heading", b"#### asked",
)  # fmt: skip


_UNZIPPABLE = (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, EOFError, ValueError)


class Damage(NamedTuple):
    """A damaged file and the intact one.

    Bytes before `first` are those of `base`. `lines` are the changed lines of `base`, or None if the
    damage is not limited to lines.
    """

    what: str
    base: bytes
    data: bytes
    first: int
    lines: frozenset[int] | None = None


def damage_file(rng: random.Random, data: bytes, other: bytes) -> Damage:
    """Damage a file once, or sometimes twice; for two, only the first changed byte is known."""
    ways = _list_ways(data)
    done = rng.choice(ways)(rng, data, other)
    if done.data and rng.random() < 0.15:
        again = rng.choice(ways)(rng, done.data, other)
        first = _count_common_bytes(done.base, again.data)
        return Damage(f"{done.what}, {again.what}", done.base, again.data, first)
    return done


def _list_ways(data: bytes) -> tuple[Callable[[random.Random, bytes, bytes], Damage], ...]:
    anywhere = (_cut_bytes, _flip_bits, _overwrite_bytes, _append_other, _zero_end)
    if data.startswith(b"SQLite format 3\x00"):
        return (*anywhere, _change_row, _change_row, _change_row, _drop_table)
    if data.startswith(b"PK"):
        return (*anywhere, _damage_member, _damage_member, _add_bomb)
    return (
        *anywhere,
        _cut_bytes,
        _drop_lines,
        _repeat_line,
        _swap_lines,
        _insert_junk,
        _insert_junk,
        _change_line_ends,
        _replace_value,
        _replace_value,
        _replace_value,
        _replace_value,
    )


# -- bytes


def _cut_bytes(rng: random.Random, data: bytes, other: bytes) -> Damage:
    at = rng.randrange(len(data) + 1)
    return Damage(f"cut at byte {at}", data, data[:at], at)


def _flip_bits(rng: random.Random, data: bytes, other: bytes) -> Damage:
    places = sorted(rng.randrange(len(data)) for _ in range(rng.choice((1, 1, 3, 20))))
    changed = bytearray(data)
    for place in places:
        changed[place] ^= 1 << rng.randrange(8)
    lines = frozenset(data.count(b"\n", 0, place) for place in places)
    # A lost line end also damages the next line.
    lines |= {line + 1 for line in lines}
    return Damage(f"{len(places)} bits flipped", data, bytes(changed), places[0], lines)


def _overwrite_bytes(rng: random.Random, data: bytes, other: bytes) -> Damage:
    at = rng.randrange(len(data))
    size = rng.choice((1, 10, 1_000, 70_000))
    junk = rng.randbytes(size) if rng.random() < 0.5 else rng.choice(JUNK)
    return Damage("a stretch overwritten", data, data[:at] + junk + data[at + size :], at)


def _append_other(rng: random.Random, data: bytes, other: bytes) -> Damage:
    return Damage(
        "another file behind it", data, data + other[: rng.randrange(len(other) + 1)], len(data)
    )


def _zero_end(rng: random.Random, data: bytes, other: bytes) -> Damage:
    at = rng.randrange(len(data) + 1)
    return Damage("NULs at the end", data, data[:at] + bytes(len(data) - at), at)


# -- lines


def _drop_lines(rng: random.Random, data: bytes, other: bytes) -> Damage:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    kept = lines[:at] + lines[at + rng.choice((1, 1, 3)) :]
    gone = frozenset(range(at, at + len(lines) - len(kept)))
    return Damage(
        f"line {at + 1} dropped", data, b"\n".join(kept), _get_line_offset(lines, at), gone
    )


def _repeat_line(rng: random.Random, data: bytes, other: bytes) -> Damage:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    again = lines[: at + 1] + lines[at:]
    return Damage(
        f"line {at + 1} repeated", data, b"\n".join(again), _get_line_offset(lines, at), frozenset()
    )


def _swap_lines(rng: random.Random, data: bytes, other: bytes) -> Damage:
    lines = data.split(b"\n")
    one, two = sorted(rng.randrange(len(lines)) for _ in range(2))
    lines[one], lines[two] = lines[two], lines[one]
    swapped = b"\n".join(lines)
    # A line may mean something else elsewhere: only what precedes both lines is intact.
    what = f"lines {one + 1} and {two + 1} swapped"
    return Damage(what, data, swapped, _count_common_bytes(data, swapped))


def _insert_junk(rng: random.Random, data: bytes, other: bytes) -> Damage:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines) + 1)
    junk = rng.choice(JUNK) if rng.random() < 0.8 else rng.randbytes(rng.choice((5, 5_000)))
    junk = junk.replace(b"\n", b" ")
    mixed = b"\n".join([*lines[:at], junk, *lines[at:]])
    first = _get_line_offset(lines, at)
    touched = None if _is_blind(first, junk) else frozenset[int]()
    return Damage(f"junk before line {at + 1}", data, mixed, first, touched)


def _is_blind(first: int, line: bytes) -> bool:
    """Whether damage covers the bytes that detection reads, so that the format is unknowable."""
    return first < _HEAD < first + len(line)


def _change_line_ends(rng: random.Random, data: bytes, other: bytes) -> Damage:
    if rng.random() < 0.5:
        return Damage("a byte order mark", data, b"\xef\xbb\xbf" + data, 0, frozenset())
    return Damage("line ends of Windows", data, data.replace(b"\n", b"\r\n"), 0, frozenset())


def _get_line_offset(lines: list[bytes], number: int) -> int:
    return sum(len(line) + 1 for line in lines[:number])


def _count_common_bytes(one: bytes, two: bytes) -> int:
    """Count the bytes that two files have in common at their beginning."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == two[:middle] else (low, middle - 1)
    return low


# -- values


def _replace_value(rng: random.Random, data: bytes, other: bytes) -> Damage:
    """Replace a value in the JSON of a line or document with a hostile one."""
    lines = data.split(b"\n")
    numbers = [
        number for number, line in enumerate(lines) if line[:1] == b"{" and line[-1:] == b"}"
    ]
    if len(numbers) > 1:
        at = rng.choice(numbers)
        try:
            what, line = _change_value(rng, json.loads(lines[at]), indent=None)
        except (ValueError, RecursionError):
            return _insert_junk(rng, data, other)
        mixed = b"\n".join([*lines[:at], line, *lines[at + 1 :]])
        first = _get_line_offset(lines, at)
        touched = None if _is_blind(first, line) else frozenset({at})
        return Damage(what, data, mixed, first, touched)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return _cut_bytes(rng, data, other)
    base = json.dumps(value, indent=1).encode()
    what, changed = _change_value(rng, value, indent=1)
    return Damage(what, base, changed, _count_common_bytes(base, changed))


def _change_value(rng: random.Random, value: Any, indent: int | None) -> tuple[str, bytes]:
    value = copy.deepcopy(value)
    told: list[str] = []
    for _ in range(rng.choice((1, 1, 2, 5))):
        holder, key = _pick_place(rng, value)
        if holder is None:
            break
        way = rng.choice(("replace", "replace", "replace", "delete", "wrap"))
        if way == "delete":
            del holder[key]
        elif way == "wrap":
            holder[key] = [holder[key]] if rng.random() < 0.5 else {"type": holder[key]}
        else:
            holder[key] = copy.deepcopy(rng.choice(HOSTILE))
        told.append(f"{way} {key!r:.40}")
    text = json.dumps(value, indent=indent).replace(_DEEP_MARK, "[" * DEEP + "]" * DEEP)
    return "; ".join(told) or "nothing", text.encode("utf-8", "surrogatepass")


def _pick_place(rng: random.Random, value: Any) -> tuple[Any, Any]:
    """Pick a random container in a value and a key in it, at any depth."""
    places: list[tuple[Any, Any]] = []
    rest: list[Any] = [value]
    while rest and len(places) < 5_000:
        holder = rest.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            places.append((holder, key))
            if isinstance(holder[key], (dict, list)):
                rest.append(holder[key])
    return rng.choice(places) if places else (None, None)


# -- databases and archives


def _change_row(rng: random.Random, data: bytes, other: bytes) -> Damage:
    """Put a hostile value into a column of a row."""

    def change(db: apsw.Connection) -> str:
        table = rng.choice(_list_tables(db))
        columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
        column = rng.choice(columns)
        value = rng.choice([one for one in HOSTILE if isinstance(one, (str, float, type(None)))])
        value = b"\xff\x00" if rng.random() < 0.2 else value
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()
        where = f"rowid = {rng.randrange(1, 9)}" if rng.random() < 0.8 else "true"
        db.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE {where}', (value,))
        return f"{table}.{column} = {value!r:.40}"

    return _alter_database(data, change)


def _drop_table(rng: random.Random, data: bytes, other: bytes) -> Damage:
    """Drop a column or a table."""

    def change(db: apsw.Connection) -> str:
        table = rng.choice(_list_tables(db))
        columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")') if not row[5]]
        if rng.random() < 0.3 or not columns:
            db.execute(f'DROP TABLE "{table}"')
            return f"no table {table}"
        column = rng.choice(columns)
        db.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}_"')
        return f"no column {table}.{column}"

    return _alter_database(data, change)


def _list_tables(db: apsw.Connection) -> list[str]:
    sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [name for (name,) in db.execute(sql)]


def _alter_database(data: bytes, change: Callable[[apsw.Connection], str]) -> Damage:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "altered.db")
        path.write_bytes(data)
        db = apsw.Connection(str(path))
        try:
            what = change(db)
        except (apsw.Error, IndexError) as error:
            what = f"nothing ({error})"
        db.close()
        return Damage(what, data, path.read_bytes(), 0)


def _damage_member(rng: random.Random, data: bytes, other: bytes) -> Damage:
    """Damage one member of an archive, and keep the archive itself valid."""
    members = _unpack_members(data)
    if not members:
        return _cut_bytes(rng, data, other)
    name = rng.choice(list(members))
    done = rng.choice((_cut_bytes, _flip_bits, _insert_junk, _replace_value))(
        rng, members[name] or b"{}", other
    )
    return Damage(f"{name}: {done.what}", data, _pack_members({**members, name: done.data}), 0)


def _add_bomb(rng: random.Random, data: bytes, other: bytes) -> Damage:
    """Add an unused member that expands a thousandfold."""
    members = _unpack_members(data)
    if not members:
        return _cut_bytes(rng, data, other)
    return Damage("a bomb", data, _pack_members(members, _build_bomb()), 0)


@cache
def _build_bomb() -> bytes:
    return _pack_members({"attachments/bomb": bytes(200_000_000)})


def _unpack_members(data: bytes) -> dict[str, bytes]:
    """Return the members of an archive, or none if it cannot be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            return {name: file.read(name) for name in file.namelist()}
    except _UNZIPPABLE:
        return {}


def _pack_members(members: dict[str, bytes], archive: bytes = b"") -> bytes:
    """Pack members into an archive, after those of another one."""
    packed = io.BytesIO(archive)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return packed.getvalue()
