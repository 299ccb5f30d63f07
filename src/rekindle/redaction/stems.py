# ruff: noqa: E501  (a pattern stays on one line)
"""Finds the literals that detectors wait for, most of them in one pass over a text.

Searching for forty literals one by one would dominate the cost of redaction. Most of them contain a
rare letter, as `token`, `cookie` and `hook` contain a `k`. One pattern stops only at these letters and
checks their surroundings; the other literals are searched for separately.
"""

from __future__ import annotations

import re

_LITERALS = (
    # parts of names that announce a secret
    "pass", "pw", "psk", "secret", "token", "key", "cred", "auth", "cookie", "sessid", "sessionid", "sig",
    "mnemonic", "phrase", "pepper", "otp", "_pat", "private", "jwt",
    # words for password in other languages; those in other scripts are in `languages.py`
    "kennwort", "contrasena", "clave", "senha", "wachtwoord", "haslo", "heslo", "adgangskode", "salasana",
    "parola", "sifre", "kata sandi", "mat khau", "jelszo", "geslo", "lozinka",
    # HTTP, URLs and files
    "private-lines", "bearer", "basic", "://", ":\\/\\/", "hook", "code=", "thin:", "websocket-pro",
    "reset-p", "reset/", "verif", "invite", "ical/", "\"kty\"", "kind: secret", "stringdata",
    "github-oauth", ":5432:", ":*:", "$ansible_vault", "wg ",
    # commands, code and prose
    "<<<", "echo ", "printf ", "login", "log in", "sign in", "wifi", "wi-fi", "identified by",
    "/p:", "/rp ", "net us", "sqlplus", "kv put", "http-basic.", "--body", "--value", "rabbitmqctl",
    "obscure ", "input_pw", "db2 ", "basicauth", "fromhex", "aes.new", "send_keys", "sql.connect",
    "hashpw", "hmac", "ftp(",
    # personal data
    "home", "users", "user/", "/media/", "folders/", "passport", "iban", "phone",
)  # fmt: skip
KNOWN_LITERALS = frozenset(stem.encode() for stem in _LITERALS)
# Characters at which the pass stops, rarest first; a literal is filed under the first it contains.
# More would not pay off: a stop costs as much as searching fifty characters for one literal.
_RARE_CHARS = "j*qv6wk/ghbpuc"


def _build_context_pattern(literal: str, at: int) -> str:
    """Build a cheap pattern for the text around one letter of a literal."""
    before, after = re.escape(literal[:at]), re.escape(literal[at + 1 :])
    if any(letter in _RARE_CHARS for letter in literal[at + 1 :]):
        after = f"(?={after})"  # the pass may have to stop there too
        return after + (f"(?<={before}.)" if before else "")
    return after + (f"(?<={re.escape(literal)})" if before else "")


def _group_by_rare_char() -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for literal in _LITERALS:
        if letter := next((letter for letter in _RARE_CHARS if letter in literal), ""):
            found.setdefault(letter, []).append((literal, literal.index(letter)))
    return found


def _build_char_pattern(letter: str, literals: list[tuple[str, int]]) -> str:
    contexts = sorted(
        (_build_context_pattern(literal, at) for literal, at in literals),
        key=lambda one: one[0] == "(",
    )
    return f"{re.escape(letter)}(?:{'|'.join(contexts)})"


_LITERALS_BY_CHAR = _group_by_rare_char()
_RARE_CHAR_PATTERN = re.compile(
    "|".join(
        _build_char_pattern(letter, stems) for letter, stems in reversed(_LITERALS_BY_CHAR.items())
    ).encode()
)
_LITERALS_BY_BYTE = {
    ord(letter): tuple((stem.encode(), at) for stem, at in stems)
    for letter, stems in _LITERALS_BY_CHAR.items()
}
# The same for a stop and the byte before it; a literal may also begin at the stop.
_LITERALS_BY_PAIR = {
    bytes((before, letter)): tuple(
        (stem, at) for stem, at in stems if at == 0 or stem[at - 1] == before
    )
    for letter, stems in _LITERALS_BY_BYTE.items()
    for before in {stem[at - 1] for stem, at in stems if at}
}
_SEPARATE_LITERALS = tuple(stem.encode() for stem in _LITERALS if not set(stem) & set(_RARE_CHARS))


# In a long text, what occurs this often in one window is not searched for further there.
LONG_TEXT = 200_000
WINDOW_BITS = 12
_MAX_PER_WINDOW = 120
_OVERLAP = 16  # longer than any literal


class WindowGuard:
    """Gives up on windows of a text in which something occurs too often."""

    __slots__ = ("_count", "_crowded", "_window")

    def __init__(self, crowded: set[int]) -> None:
        self._crowded = crowded
        self._window = self._count = 0

    def advance(self, at: int, end: int) -> int:
        """Count an occurrence from `at` to `end`; return where to go on."""
        window = at >> WINDOW_BITS
        if window != self._window:
            self._window, self._count = window, 0
        self._count += 1
        if self._count < _MAX_PER_WINDOW:
            return end
        self._crowded.add(window)
        return max(end, (window + 1) << WINDOW_BITS)


def find_literals(lower: bytes, crowded: set[int]) -> dict[bytes, list[int]]:
    """Return the positions of each literal, from left to right, without overlap.

    Add the windows to `crowded` in which there are too many.
    """
    found: dict[bytes, list[int]] = {}
    if len(lower) < LONG_TEXT:
        _collect_literals(lower, 0, len(lower), found, len(lower))
    else:
        for window in range((len(lower) >> WINDOW_BITS) + 1):
            start = window << WINDOW_BITS
            end = min(len(lower), start + (1 << WINDOW_BITS) + _OVERLAP)
            if not _collect_literals(lower, start, end, found, 2 * _MAX_PER_WINDOW):
                crowded.add(window)
    for literal in _SEPARATE_LITERALS:
        at = lower.find(literal)
        if at >= 0:
            positions = found[literal] = []
            guard = WindowGuard(crowded if len(lower) >= LONG_TEXT else set())
            is_long = len(lower) >= LONG_TEXT
            while at >= 0:
                positions.append(at)
                end = at + len(literal)
                at = lower.find(literal, guard.advance(at, end) if is_long else end)
    return found


def _collect_literals(
    lower: bytes, start: int, end: int, found: dict[bytes, list[int]], limit: int
) -> bool:
    """Add the literals between `start` and `end`; return False if there are more than `limit`."""
    for stop in _RARE_CHAR_PATTERN.finditer(lower, start, end):
        char_at = stop.start()
        limit -= 1
        if limit < 0:
            return False
        pair = lower[char_at - 1 : char_at + 1] if char_at else lower[:1]
        for literal, offset in _LITERALS_BY_PAIR.get(pair) or _LITERALS_BY_BYTE[lower[char_at]]:
            at = char_at - offset
            if at >= 0 and lower.startswith(literal, at):
                positions = found.setdefault(literal, [])
                if not positions or at >= positions[-1] + len(literal):
                    positions.append(at)
    return True
