"""Fill the slots of a pattern with plausible values, so that no model copies `<path:py>`.

The same slot gets the same value everywhere in a pattern. The value is taken from the request if it
mentions something of that kind: then the example shows how a call follows from a request. Otherwise a
path, a number or a date is invented, and the example mentions it in the request. Equal patterns get
equal values. What cannot be invented, such as a name, a text or a script, is left open, and the pattern
is *incomplete*: it can be described, but not shown as a real call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import cast

from rekindle.judging.rules.text_patterns import split_words
from rekindle.types import JSON

SLOT = re.compile(r"<([a-z][a-z_-]*)(?::([\w.+-]{1,40}))?(?:#(\d{1,3}))?>")

_URL = re.compile(r"https?://[^\s'\"<>)\]]+")
_PATH = re.compile(
    r"(?:~|(?<![\w./@+-]))(?:[\w.@+-]*/)*[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7}\b"
    r"|(?<![./@+-])(?:~|\.{1,2})?/[\w./@+-]*\w"
)
_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?![\w.-])")
_FRACTION = re.compile(r"(?<![\w.])-?\d+\.\d+(?![\w.])")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.]+")
_QUOTED = re.compile(r"[\"“«`']([^\"”»`'\n]{2,80})[\"”»`']")
# These arguments hold the work itself: a model would copy an example.
_CONTENT_ARGUMENTS = split_words(
    "content contents new_string old_string text body code patch diff new_str old_str input"
)
_FOLDERS = ("src", "lib", "app", "docs", "tests", "data", "tools")
_NAMES = ("report", "parser", "invoice", "client", "schema", "worker", "ledger", "planner")
OPEN_VALUE = "…"
_UNMENTIONED_KINDS = frozenset(
    ("secret", "text", "glob", "range", "expression")
)  # not worth mentioning in a request
_HINTED_KINDS = frozenset(("word", "value", "name", "id", "string"))
_NUMERIC_KINDS = frozenset(("int", "integer", "number", "float"))


class SlotFiller:
    """The values of one pattern's slots; `seed` varies them between patterns."""

    def __init__(self, seed: str, request: str) -> None:
        self._digest = sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()
        self._request = SLOT.sub(" ", request)
        self._values: dict[str, str] = {}
        self._used: set[str] = set()
        self.invented: list[str] = []  # values that the request does not mention
        self.is_incomplete = False

    def fill_text(self, text: str) -> str:
        """Return the text with its slots filled."""
        return (
            SLOT.sub(lambda slot: self._fill_slot(slot, _get_hint(slot)), text)
            if "<" in text
            else text
        )

    def fill_value(self, value: JSON, name: str = "") -> JSON:
        """Fill the slots of any JSON value; a lone numeric slot becomes a number."""
        if isinstance(value, str):
            alone = SLOT.fullmatch(value)
            if alone and alone[1] == "text" and name.lower() in _CONTENT_ARGUMENTS:
                self.is_incomplete = True
                return OPEN_VALUE
            if alone is None:
                return self.fill_text(value)
            if alone[1] not in _NUMERIC_KINDS:
                return self._fill_slot(alone, name)
            filled = self._fill_slot(alone, name)
            return float(filled) if "." in filled else int(filled)
        if isinstance(value, dict):
            fields = cast("Mapping[str, JSON]", value).items()
            return {
                self.fill_text(str(key)): self.fill_value(field, str(key)) for key, field in fields
            }
        if isinstance(value, (list, tuple)):
            return [self.fill_value(one, name) for one in cast("list[JSON]", value)]
        return value

    def _fill_slot(self, slot: re.Match[str], hint: str) -> str:
        kind, detail = slot[1], slot[2] or ""
        # Words are distinguished by what precedes them, other values only by their kind.
        key = f"{slot[0]} {hint}" if kind in _HINTED_KINDS else slot[0]
        if key not in self._values:
            found = self._find_after_hint(hint) if kind in _HINTED_KINDS else None
            found = self._find_in_request(kind, detail) if found is None else found
            value = self._invent_value(kind, detail) if found is None else found
            if value == OPEN_VALUE:
                self.is_incomplete = True
            elif found is None and kind not in _UNMENTIONED_KINDS:
                self.invented.append(value)
            self._values[key] = value
            self._used.add(value)
        return self._values[key]

    def _find_in_request(self, kind: str, detail: str) -> str | None:
        """Return a value of that kind from the request that no other slot has used."""
        pattern = _FINDERS.get(kind)
        if pattern is None:
            return None
        for found in pattern.finditer(self._request):
            value = found[found.lastindex or 0]
            right = kind != "path" or not detail or value.lower().endswith(f".{detail.lower()}")
            if right and value not in self._used:
                return value
        return None

    def _find_after_hint(self, hint: str) -> str | None:
        """Return the word after the hint: `region` for `--by` in “count them by region”."""
        if len(hint) < 2:
            return None
        hint_pattern = rf"\b{re.escape(hint)}[\s:=]+([\w][\w.-]*\w|\w)"
        found = re.search(hint_pattern, self._request, re.I)
        return found[1] if found and found[1] not in self._used else None

    def _invent_value(self, kind: str, detail: str) -> str:
        number = int(self._digest[:6], 16) + len(self._values)
        make = _INVENTORS.get(kind)
        return make(number, detail, self) if make else detail or kind

    def make_hex(self, length: int, number: int) -> str:
        return sha256(f"{self._digest}:{number}".encode()).hexdigest()[:length]


def _get_hint(slot: re.Match[str]) -> str:
    """Return the option or word right before a slot, without its dashes."""
    words = re.split(
        r"[\s=]+", slot.string[max(0, slot.start() - 60) : slot.start()].strip(" ='\"")
    )
    return words[-1].lstrip("-")


def _leave_open(number: int, detail: str, filler: SlotFiller) -> str:
    return OPEN_VALUE


def _invent_path(number: int, detail: str, filler: SlotFiller) -> str:
    folder, name = _FOLDERS[number % len(_FOLDERS)], _NAMES[number // 7 % len(_NAMES)]
    if detail in ("dir", "folder"):
        return folder
    return f"{folder}/{name}.{detail}" if detail else f"{folder}/{name}"


def _invent_secret(number: int, detail: str, filler: SlotFiller) -> str:
    return "$" + re.sub(r"\W+", "_", detail or "secret").upper()


_FINDERS: Mapping[str, re.Pattern[str]] = {
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
_Inventor = Callable[[int, str, SlotFiller], str]
_INVENTORS: Mapping[str, _Inventor] = {
    "path": _invent_path,
    "file": _invent_path,
    "dir": lambda number, _, __: _FOLDERS[number % len(_FOLDERS)],
    "url": lambda number, _, __: f"https://example.org/{_NAMES[number % len(_NAMES)]}",
    "host": lambda number, _, __: f"{_NAMES[number % len(_NAMES)]}.example.org",
    "ip": lambda number, _, __: f"192.0.2.{number % 250 + 1}",
    "int": lambda number, _, __: str(number % 40 + 2),
    "integer": lambda number, _, __: str(number % 40 + 2),
    "number": lambda number, _, __: str(number % 40 + 2),
    "float": lambda number, _, __: f"{number % 9 + 1}.5",
    "hash": lambda number, _, filling: filling.make_hex(7, number),
    "id": lambda number, _, filling: filling.make_hex(8, number),
    "uuid": lambda number, _, f: "-".join(f.make_hex(n, number + n) for n in (8, 4, 4, 4, 12)),
    "date": lambda number, _, __: f"2026-0{number % 9 + 1}-{number % 18 + 10}",
    "time": lambda number, _, __: f"{number % 12 + 8:02}:{number % 50 + 10}",
    "version": lambda number, _, __: f"{number % 4 + 1}.{number % 9}.{number % 5}",
    "mail": lambda number, _, __: f"{_NAMES[number % len(_NAMES)]}@example.org",
    "name": _leave_open,
    "text": _leave_open,
    "string": _leave_open,
    "word": _leave_open,
    "value": _leave_open,
    "glob": lambda _, __, ___: "**/*",
    "range": lambda number, _, __: f"{number % 40 + 1},{number % 40 + 30}p",
    "expression": lambda _, __, ___: "$NAME",
    "patch": _leave_open,
    "script": _leave_open,
    "secret": _invent_secret,
}  # fmt: skip
