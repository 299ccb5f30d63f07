"""Hostile texts for redaction: long, and full of what the detectors look for."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from typing import TypeAlias

from bench.workload import SEED

_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_WORDS = ("alpha", "beta", "gamma", "user", "config", "server", "client", "main", "data", "list")


class Dice:
    """Draws the varying parts of a text."""

    def __init__(self, kind: str) -> None:
        self.random = random.Random(f"{SEED}:{kind}")
        self.count = 0

    def draw(self, size: int, alphabet: str = _ALNUM) -> str:
        return "".join(self.random.choices(alphabet, k=size))

    def draw_lower(self, size: int) -> str:
        return self.draw(size, string.ascii_lowercase)

    def draw_words(self, count: int = 9) -> str:
        return " ".join(self.random.choices(_WORDS, k=count))

    def draw_base64(self, size: int) -> str:
        return base64.b64encode(self.random.randbytes(size)).decode()

    def take_number(self) -> int:
        self.count += 1
        return self.count


def encode_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


Piece: TypeAlias = str | Callable[[Dice], str]

# A text repeats its piece, or draws a new one again and again.
HOSTILE_TEXTS: dict[str, Piece] = {
    "one letter": "a",
    "spaces": " ",
    "newlines": "\n",
    "quotes": '"',
    "backslashes": "\\",
    "names in a run": "token=",
    "assignments": "password=x ",
    "open JSON objects": '{"password":',
    "open JSON strings": '"key":"',
    "headers of keys": "-----BEGIN PRIVATE KEY-----\n",
    "ends of keys": "\n-----END PRIVATE KEY-----",
    "mail addresses": "a@b.co ",
    "URLs with a login": "://a:b@",
    "marks of base64": "eyJ-",
    "marks of tokens": "sk-",
    "percent codes": "%41",
    "hexadecimal escapes": "\\x67",
    "entities": "&#103;",
    "short options": " -p ",
    "long options": "sqlplus -",
    "masks": "<secret:x> ",
    "other scripts": "密码：",
    "invisible characters": "g\u200bh",
    "headers of a table": "| user | password |\n",
    "cells of a table": lambda dice: f"| {dice.draw(5)} | password | {dice.draw(9)} |\n",
    "distinct assignments": lambda dice: f"API_KEY_{dice.take_number()}={dice.draw(16)}\n",
    "distinct names": lambda dice: f"{dice.draw_lower(6)}_password: {dice.draw_lower(8)}\n",
    "distinct secrets in text": lambda dice: (
        f"{dice.draw_words()} {dice.draw_lower(7)}_secret={dice.draw(9)}\n"
    ),
    "few secrets in text": lambda dice: (
        f"{dice.draw_words(36)} {dice.draw_lower(7)}_secret={dice.draw(9)}\n"
    ),
    "secrets in JSON": lambda dice: f'"k{dice.take_number()}_password":"{dice.draw(12)}",',
    "base64 of words": lambda dice: encode_base64(dice.draw_words(4)) + " ",
    "base64 of passwords": lambda dice: encode_base64(f"DB_PASSWORD={dice.draw(8)}") + " ",
    "base64 of JSON": lambda dice: encode_base64(json.dumps({"a": dice.draw(9)})) + "\n",
    "base64 in text": lambda dice: f"{dice.draw_words()} {encode_base64(dice.draw_words())}\n",
    "random base64 pieces": lambda dice: dice.draw_base64(15) + " ",
    "random base64 lines of 64": lambda dice: dice.draw_base64(48) + "\n",
    "random base64 lines of 76": lambda dice: dice.draw_base64(57) + "\n",
    "random base64 lines with - and _": lambda dice: (
        dice.draw_base64(57).replace("+", "-").replace("/", "_") + "\n"
    ),
    "random base64 in one line": lambda dice: dice.draw_base64(30_000),
    "checksums": lambda dice: dice.draw(64, _HEX) + "\n",
    "random tokens of 24": lambda dice: dice.draw(24) + " ",
    "random tokens of 40, quoted": lambda dice: f'"{dice.draw(40)}", ',
    "random tokens in text": lambda dice: f"{dice.draw_words()} {dice.draw(30)}\n",
    "tokens with a prefix": lambda dice: "gh" + f"p_{dice.draw(36)}\n",
    "tokens with a weak prefix": lambda dice: "sk" + f"-{dice.draw(40)}\n",
    "tokens with dots": lambda dice: (
        "ey" + f"J{dice.draw(30)}.ey" + f"J{dice.draw(40)}.{dice.draw(30)}\n"
    ),
    "generated passwords": lambda dice: f"{dice.draw(6)}!{dice.draw(5)} ",
    "passwords in prose": lambda dice: f"the password is {dice.draw(9)} and ",
    "headers of requests": lambda dice: f"Authorization: Bearer {dice.draw(30)}\n",
    "cookies": lambda dice: f"Cookie: {dice.draw(5)}={dice.draw(20)}; a={dice.draw(9)}\n",
    "command lines": lambda dice: f"mysql -u root -p{dice.draw(9)} --password {dice.draw(8)}\n",
    "card numbers": lambda dice: dice.draw(16, string.digits) + " ",
    "home folders": lambda dice: f"/home/{dice.draw_lower(6)}/{dice.draw_lower(8)} ",
    "transcripts": lambda dice: (
        json.dumps({"content": dice.draw_words(), "id": dice.draw(24), "token": dice.draw(6)})
        + "\n"
    ),
    "random characters": lambda dice: dice.draw(500, string.printable),
}


def make_hostile_text(kind: str, size: int) -> str:
    """Make a text of `size` characters."""
    piece = HOSTILE_TEXTS[kind]
    if isinstance(piece, str):
        return (piece * (size // len(piece) + 1))[:size]
    dice = Dice(kind)
    pieces: list[str] = []
    total = 0
    while total < size:
        pieces.append(piece(dice))
        total += len(pieces[-1])
    return "".join(pieces)[:size]
