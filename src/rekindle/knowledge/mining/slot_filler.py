"""Puts plausible values where a pattern has slots, so that no model copies `<path:py>`.

The same slot gets the same value everywhere in a pattern. The value is taken from what was asked,
where something of its kind is said there: then the example shows how a call follows from a request.
Else a path, a number or a date is made up, and the example says it in the request. Equal patterns get
equal values. What nobody could make up, such as a name, a text or a script, is left open, and the
pattern is *hollow*: it can be told of, not shown as something that was done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import cast

from rekindle.judging.rules.text_patterns import words
from rekindle.types import JSON

SLOT = re.compile(r"<([a-z][a-z_-]*)(?::([\w.+-]{1,40}))?(?:#(\d{1,3}))?>")

_URL = re.compile(r"https?://[^\s'\"<>)\]]+")
_PATH = re.compile(
    r"(?:~|\.{1,2}|(?<![\w@+-]))(?:[\w.@+-]*/)*[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7}\b"
    r"|(?:~|\.{1,2})?/[\w./@+-]*\w"
)
_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?![\w.-])")
_FRACTION = re.compile(r"(?<![\w.])-?\d+\.\d+(?![\w.])")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")
_QUOTED = re.compile(r"[\"“«`']([^\"”»`'\n]{2,80})[\"”»`']")
# What is written under these names is the work itself: an example of it would be copied.
_WRITTEN = words(
    "content contents new_string old_string text body code patch diff new_str old_str input"
)
_FOLDERS = ("src", "lib", "app", "docs", "tests", "data", "tools")
_NAMES = ("report", "parser", "invoice", "client", "schema", "worker", "ledger", "planner")
OPEN_ENDED = "…"
_UNSAID = frozenset(
    ("secret", "text", "glob", "range", "expression")
)  # not worth a word in a request
_LOOSE = frozenset(("word", "value", "name", "id", "string"))
_NUMERIC = frozenset(("int", "integer", "number", "float"))


class Filling:
    """The values of one pattern's slots. `seed` tells patterns apart, `asked` is what was wanted."""

    def __init__(self, seed: str, asked: str) -> None:
        self._digest = sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()
        self._asked = SLOT.sub(" ", asked)
        self._values: dict[str, str] = {}
        self._taken: set[str] = set()
        self.made: list[str] = []  # values that the request does not say
        self.is_hollow = False

    def text(self, text: str) -> str:
        """The text with values in its slots."""
        return (
            SLOT.sub(lambda slot: self._value(slot, _before(slot)), text) if "<" in text else text
        )

    def value(self, value: JSON, name: str = "") -> JSON:
        """The same for any JSON value; a slot of a number that stands alone becomes a number."""
        if isinstance(value, str):
            alone = SLOT.fullmatch(value)
            if alone and alone[1] == "text" and name.lower() in _WRITTEN:
                self.is_hollow = True
                return OPEN_ENDED
            if alone is None:
                return self.text(value)
            if alone[1] not in _NUMERIC:
                return self._value(alone, name)
            filled = self._value(alone, name)
            return float(filled) if "." in filled else int(filled)
        if isinstance(value, dict):
            fields = cast("Mapping[str, JSON]", value).items()
            return {self.text(str(key)): self.value(field, str(key)) for key, field in fields}
        if isinstance(value, (list, tuple)):
            return [self.value(one, name) for one in cast("list[JSON]", value)]
        return value

    def _value(self, slot: re.Match[str], hint: str) -> str:
        kind, detail = slot[1], slot[2] or ""
        # Words are told apart by what stands before them, other things only by their kind.
        whole = f"{slot[0]} {hint}" if kind in _LOOSE else slot[0]
        if whole not in self._values:
            found = self._said(hint) if kind in _LOOSE else None
            found = self._found(kind, detail) if found is None else found
            value = self._invented(kind, detail) if found is None else found
            if value == OPEN_ENDED:
                self.is_hollow = True
            elif found is None and kind not in _UNSAID:
                self.made.append(value)
            self._values[whole] = value
            self._taken.add(value)
        return self._values[whole]

    def _found(self, kind: str, detail: str) -> str | None:
        """Something of the kind in what was asked, that no other slot has taken."""
        pattern = _FOUND.get(kind)
        if pattern is None:
            return None
        for found in pattern.finditer(self._asked):
            value = found[found.lastindex or 0]
            right = kind != "path" or not detail or value.lower().endswith(f".{detail.lower()}")
            if right and value not in self._taken:
                return value
        return None

    def _said(self, hint: str) -> str | None:
        """What was asked for under that name: `region` for `--by` in “count them by region”."""
        if len(hint) < 2:
            return None
        named = rf"\b{re.escape(hint)}[\s:=]+([\w][\w.-]*\w|\w)"
        found = re.search(named, self._asked, re.I)
        return found[1] if found and found[1] not in self._taken else None

    def _invented(self, kind: str, detail: str) -> str:
        number = int(self._digest[:6], 16) + len(self._values)
        make = _MADE.get(kind)
        return make(number, detail, self) if make else detail or kind

    def hex(self, length: int, number: int) -> str:
        return sha256(f"{self._digest}:{number}".encode()).hexdigest()[:length]


def _before(slot: re.Match[str]) -> str:
    """The option or word right before a slot, without its dashes."""
    words = re.split(
        r"[\s=]+", slot.string[max(0, slot.start() - 60) : slot.start()].strip(" ='\"")
    )
    return words[-1].lstrip("-")


def _open(number: int, detail: str, filling: Filling) -> str:
    return OPEN_ENDED


def _path(number: int, detail: str, filling: Filling) -> str:
    folder, name = _FOLDERS[number % len(_FOLDERS)], _NAMES[number // 7 % len(_NAMES)]
    if detail in ("dir", "folder"):
        return folder
    return f"{folder}/{name}.{detail}" if detail else f"{folder}/{name}"


def _secret(number: int, detail: str, filling: Filling) -> str:
    return "$" + re.sub(r"\W+", "_", detail or "secret").upper()


_FOUND: Mapping[str, re.Pattern[str]] = {
    "path": _PATH,
    "file": _PATH,
    "dir": _PATH,
    "url": _URL,
    "int": _NUMBER,
    "integer": _NUMBER,
    "number": _NUMBER,
    "float": _FRACTION,
    "hash": _HASH,
    "mail": _MAIL,
    "text": _QUOTED,
    "string": _QUOTED,
    "name": _QUOTED,
    "word": _QUOTED,
}
_Make = Callable[[int, str, Filling], str]
_MADE: Mapping[str, _Make] = {
    "path": _path,
    "file": _path,
    "dir": lambda number, _, __: _FOLDERS[number % len(_FOLDERS)],
    "url": lambda number, _, __: f"https://example.org/{_NAMES[number % len(_NAMES)]}",
    "host": lambda number, _, __: f"{_NAMES[number % len(_NAMES)]}.example.org",
    "ip": lambda number, _, __: f"192.0.2.{number % 250 + 1}",
    "int": lambda number, _, __: str(number % 40 + 2),
    "integer": lambda number, _, __: str(number % 40 + 2),
    "number": lambda number, _, __: str(number % 40 + 2),
    "float": lambda number, _, __: f"{number % 9 + 1}.5",
    "hash": lambda number, _, filling: filling.hex(7, number),
    "id": lambda number, _, filling: filling.hex(8, number),
    "uuid": lambda number, _, f: "-".join(f.hex(n, number + n) for n in (8, 4, 4, 4, 12)),
    "date": lambda number, _, __: f"2026-0{number % 9 + 1}-{number % 18 + 10}",
    "time": lambda number, _, __: f"{number % 12 + 8:02}:{number % 50 + 10}",
    "version": lambda number, _, __: f"{number % 4 + 1}.{number % 9}.{number % 5}",
    "mail": lambda number, _, __: f"{_NAMES[number % len(_NAMES)]}@example.org",
    "name": _open,
    "text": _open,
    "string": _open,
    "word": _open,
    "value": _open,
    "glob": lambda _, __, ___: "**/*",
    "range": lambda number, _, __: f"{number % 40 + 1},{number % 40 + 30}p",
    "expression": lambda _, __, ___: "$NAME",
    "patch": _open,
    "script": _open,
    "secret": _secret,
}  # fmt: skip
