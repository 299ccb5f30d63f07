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
    "mnemonic", "phrase", "pepper", "otp", "_pat", "private", "jwt", "pswd", "csrf", "xsrf", "session=",
    "pin=", "pin:", "pin ", 'pin"', "pin'", "pin\\", "cvv", "cvc", "pat=", "pat:", 'pat"', "pat ", "sid", "dsn", "salt",
    # words for password in other languages; those in other scripts are in `languages.py`
    "kennwort", "pasahitza", "contrasena", "clave", "senha", "wachtwoord", "haslo", "heslo", "adgangskode", "salasana",
    "parola", "sifre", "kata sandi", "mat khau", "jelszo", "geslo", "lozinka",
    # HTTP, URLs and files
    "private-lines", "bearer", "basic", "://", ":\\/\\/", "hook", "code=", "thin:", "websocket-pro",
    "reset-p", "reset/", "verif", "invite", "ical/", "\"kty\"", "kind: secret", "stringdata",
    "github-oauth", ":5432:", ":*:", "$ansible_vault", "wg ",
    # commands, code and prose
    "<<<", "echo ", "printf ", "login", "unlock ", "log in", "sign in", "wifi", "wi-fi", "identified by",
    "/p:", "/rp ", "net us", "sqlplus", "kv put", "http-basic.", "--body", "--value", "rabbitmqctl",
    "obscure ", "input_pw", "db2 ", "basicauth", "fromhex", "aes.new", "send_keys", "sql.connect",
    "hashpw", "hmac", "securestring", "setx ", "set -", "_authtoken", "alias set ", "keyring ", "stdin", "-file", "kubeconfig-u", "kubeadm ", "seed",
    "recovery code", "backup code", " code ", " code:", "ftp(",
    # personal data
    "home", "users", "user/", "/media/", "folders/", "passport", "iban", "phone", "uid=", "scp ", "rsync ", "sftp ", "-macbook",
    "-mbp", "-imac", ".internal", ".corp.", "dob", "birth", "geburts", "born", "geboren",
    "committer:", "reviewed-by",
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
_MAX_CONTEXTS = 4_000
# The literals that may surround a stop, by the bytes before, at and after it; filled as texts need it.
_literals_by_context: dict[bytes, tuple[tuple[bytes, int], ...]] = {}


def _list_literals(context: bytes) -> tuple[tuple[bytes, int], ...]:
    """Return the literals that fit three bytes, of which the second is a stop."""
    before, letter, after = context
    found = tuple(
        (literal, at)
        for literal, at in _LITERALS_BY_BYTE[letter]
        if (at == 0 or literal[at - 1] == before)
        and (at + 1 == len(literal) or literal[at + 1] == after)
    )
    if len(_literals_by_context) >= _MAX_CONTEXTS:
        _literals_by_context.clear()
    _literals_by_context[context] = found
    return found


_SEPARATE_LITERALS = tuple(stem.encode() for stem in _LITERALS if not set(stem) & set(_RARE_CHARS))


# In a long text, what occurs this often in one window is not searched for further there.
LONG_TEXT = 200_000
WINDOW_BITS = 12
_MAX_PER_WINDOW = 120
_MAX_STOPS_PER_WINDOW = 160
# Ordinary text has fewer stops than this; beyond it, a window may have only a few.
_MIN_STOPS = 40_000
_CHARS_PER_STOP = 64
_MAX_LATE_STOPS_PER_WINDOW = 40
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
            if window in self._crowded:
                return max(end, (window + 1) << WINDOW_BITS)
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
        left, limit = max(_MIN_STOPS, len(lower) // _CHARS_PER_STOP), _MAX_STOPS_PER_WINDOW
        for window in range((len(lower) >> WINDOW_BITS) + 1):
            if window in crowded:  # it is masked as a whole
                continue
            start = window << WINDOW_BITS
            end = min(len(lower), start + (1 << WINDOW_BITS) + _OVERLAP)
            stops = _collect_literals(lower, start, end, found, limit)
            if stops > limit:
                crowded.add(window)
            left -= stops
            if left < 0:
                limit = _MAX_LATE_STOPS_PER_WINDOW
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
) -> int:
    """Add the literals between `start` and `end`, up to `limit` stops; return how many there were."""
    known = _literals_by_context
    stops = 0
    for stop in _RARE_CHAR_PATTERN.finditer(lower, start, end):
        char_at = stop.start()
        stops += 1
        if stops > limit:
            break
        context = lower[char_at - 1 : char_at + 2] if char_at else b"\0" + lower[:2]
        if len(context) < 3:
            context += b"\0"
        for literal, offset in known.get(context) or _list_literals(context):
            at = char_at - offset
            if at >= 0 and lower.startswith(literal, at):
                positions = found.setdefault(literal, [])
                if not positions or at >= positions[-1] + len(literal):
                    positions.append(at)
    return stops
