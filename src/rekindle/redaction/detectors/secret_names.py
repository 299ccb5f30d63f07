"""Which names announce a secret: `DB_PASSWORD`, `apiKey`, `x-auth-token`; not `token_count`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .entropy import words


class Name(NamedTuple):
    """What a name announces. A `strong` one has a secret for its value whatever that looks like."""

    kind: str
    strong: bool


PASSWORD = Name("password", True)
SECRET = Name("secret", True)
KEY = Name("key", True)
ITEM = Name("key", False)  # a key that may just as well be a name: `session_key`
TOKEN = Name("token", False)
AUTH = Name("authorization", False)
COOKIE = Name("cookie", False)
SIGNATURE = Name("signature", False)
CREDENTIAL = Name("credential", False)

# By the last part of the name.
_LAST = {
    "password": PASSWORD, "passwd": PASSWORD, "passphrase": PASSWORD, "passcode": PASSWORD,
    "pwd": PASSWORD, "pw": PASSWORD, "passwort": PASSWORD, "psk": PASSWORD,
    "kennwort": PASSWORD, "contraseña": PASSWORD, "userpass": PASSWORD, "pgpassword": PASSWORD,
    "passin": PASSWORD, "passout": PASSWORD, "storepass": PASSWORD, "keypass": PASSWORD,
    "secret": SECRET, "secrets": SECRET, "mnemonic": SECRET, "pin": PASSWORD, "cvv": PASSWORD,
    "token": TOKEN, "jwt": TOKEN, "bearer": TOKEN, "pat": TOKEN, "otp": TOKEN,
    "auth": AUTH, "authorization": AUTH, "cookie": COOKIE, "cookies": COOKIE,
    "phpsessid": COOKIE, "jsessionid": COOKIE, "sessionid": COOKIE, "csrftoken": COOKIE,
    "signature": SIGNATURE, "sig": SIGNATURE, "hmac": SIGNATURE,
    "credential": CREDENTIAL, "credentials": CREDENTIAL, "creds": CREDENTIAL, "dsn": CREDENTIAL,
}  # fmt: skip
# What makes `key` a secret, standing before it.
_KEYS = words(
    """api access secret private auth encryption signing master admin consumer subscription
    crypto cipher aes hmac jwt rsa preshared secure decryption app functions
    """
)
_ITEMS = words(
    """account shared license service storage webhook write ssh pem session deploy client
    security ingest integration host function
    """
)
_PAIRS = {("seed", "phrase"): SECRET, ("recovery", "phrase"): SECRET, ("secret", "id"): SECRET,
          ("key", "data"): KEY, ("secret", "base"): KEY, ("key", "base"): KEY,
          ("connection", "string"): CREDENTIAL, ("webhook", "url"): CREDENTIAL,
          ("auth", "code"): TOKEN, ("one", "time"): TOKEN}  # fmt: skip
# Names written in one: `authtoken`, `clientsecret`, `mypassword`.
_GLUED = re.compile(
    r"(?:(?P<password>password|passwd|passphrase|passwort|(?:db|my|user|root|admin|ftp|smtp|ssh|sql|bind)pass"
    r"|(?:mysql|user|root|admin|db)pwd)"
    r"|(?P<secret>secret)"
    r"|(?P<key>(?:api|access|secret|private|auth|account|shared|preshared|master|signing|encryption|license)key)"
    r"|(?P<token>[a-z]token))\Z"
)
_BY_KIND = {"password": PASSWORD, "secret": SECRET, "key": KEY, "token": TOKEN}
# Parts that may follow without changing what the name announces.
_TAIL = words(
    """value text raw plain plaintext str string b64 base64 encoded env var prod production dev
    staging live test default old new current primary secondary main backup 0 1 2 3 4 5 6 7 8
    9
    """
)
# Parts before the last that make it something harmless: `next_token`, `input_token`, `public_key`.
_HARMLESS = words(
    """next page public continuation cursor sync pagination eos bos pad unk stop cls sep mask
    special input output max min num per first last prev previous start end no has is use show
    toggle forgot reset invalid missing cancellation cancel token lexer current_line
    """
)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-zñ]+|\d+")


@lru_cache(maxsize=8192)
def announced(name: str) -> Name | None:
    """What a name announces, None where it is no secret's name."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    while len(parts) > 1 and parts[-1] in _TAIL:
        parts.pop()
    if not parts:
        return None
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if found := _PAIRS.get((before, last)):
        return found
    if last in ("key", "keys") and before:
        return KEY if before in _KEYS else ITEM if before in _ITEMS else None
    found = _LAST.get(last)
    if last == "pass":  # `DB_PASS`; alone it is more often a test that passed
        found = PASSWORD if before and before not in _HARMLESS else Name("password", False)
    if found is None and (glued := _GLUED.search(last)) and glued.lastgroup:
        found = _BY_KIND[glued.lastgroup]
    if found is None or (before in _HARMLESS and not found.strong):
        return None
    return None if found.strong and before in ("no", "has", "is", "forgot", "reset") else found
