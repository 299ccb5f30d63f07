"""Names that announce a secret: `DB_PASSWORD`, `apiKey`, `x-auth-token`; not `token_count`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .entropy import split_words


class SecretName(NamedTuple):
    """The kind of secret that a name announces.

    The value of a strong name is always a secret; that of another name only if it is random and has
    `min_chars` characters.
    """

    kind: str
    is_strong: bool
    min_chars: int = 10


PASSWORD = SecretName("password", True)
SECRET = SecretName("secret", True)
PIN = SecretName("pin", True)  # a number; `pin: latest` is something else
KEY = SecretName("key", True)
SECRET_KEY = SecretName("key", True, 8)  # a word will do: `app.secret_key = "…"`
WEAK_KEY = SecretName("key", False)  # may be an identifier instead: `session_key`
TOKEN = SecretName("token", False)
AUTH = SecretName("authorization", False)
COOKIE = SecretName("cookie", False)
SIGNATURE = SecretName("signature", False)
CREDENTIAL = SecretName("credential", False)
# Names that often belong to something else: `cache_key`, `TOKEN_X`.
OTHER_KEY = SecretName("key", False, 16)
OTHER_SECRET = SecretName("secret", False, 16)

# By the last part of the name.
_BY_LAST_PART = {
    "password": PASSWORD, "passwd": PASSWORD, "passphrase": PASSWORD, "passcode": PASSWORD,
    "pwd": PASSWORD, "pw": PASSWORD, "passwort": PASSWORD, "psk": PASSWORD,
    "kennwort": PASSWORD, "contraseña": PASSWORD, "userpass": PASSWORD, "pgpassword": PASSWORD,
    "passin": PASSWORD, "passout": PASSWORD, "storepass": PASSWORD, "keypass": PASSWORD,
    "secret": SECRET, "secrets": SECRET, "mnemonic": SECRET, "pin": PIN, "cvv": PIN, "cvc": PIN,
    "token": TOKEN, "jwt": TOKEN, "bearer": TOKEN, "pat": TOKEN, "otp": TOKEN,
    "auth": AUTH, "authorization": AUTH, "cookie": COOKIE, "cookies": COOKIE,
    "phpsessid": COOKIE, "jsessionid": COOKIE, "sessionid": COOKIE, "csrftoken": COOKIE,
    "signature": SIGNATURE, "sig": SIGNATURE, "hmac": SIGNATURE,
    "pepper": SECRET, "private": OTHER_SECRET, "salt": OTHER_SECRET, "authtok": TOKEN, "pswd": PASSWORD,
    "passwords": PASSWORD, "tokens": OTHER_SECRET, "senha": PASSWORD, "clave": PASSWORD,
    "wachtwoord": PASSWORD, "haslo": PASSWORD, "heslo": PASSWORD, "parola": PASSWORD, "sifre": PASSWORD,
    "salasana": PASSWORD, "passord": PASSWORD, "motdepasse": PASSWORD, "contrasena": PASSWORD,
    "sid": COOKIE, "session": OTHER_SECRET, "xsrf": TOKEN, "csrf": TOKEN, "pasahitza": PASSWORD,
    "credential": CREDENTIAL, "credentials": CREDENTIAL, "creds": CREDENTIAL, "dsn": CREDENTIAL,
}  # fmt: skip
SECRET_LAST_PARTS = frozenset(_BY_LAST_PART)
# Parts that make a following `key` a secret.
_KEY_QUALIFIERS = split_words(
    """api access secret private auth encryption signing master admin consumer subscription
    crypto cipher aes hmac jwt rsa preshared secure decryption app functions
    """
)
_WEAK_KEY_QUALIFIERS = split_words(
    """account shared license service storage webhook write ssh pem session deploy client
    security ingest integration host function
    """
)
_BY_LAST_TWO_PARTS = {
    ("secret", "key"): SECRET_KEY,
    ("seed", "phrase"): SECRET, ("recovery", "phrase"): SECRET, ("secret", "id"): SECRET,
          ("key", "data"): KEY, ("secret", "base"): KEY, ("key", "base"): KEY,
          ("connection", "string"): CREDENTIAL, ("webhook", "url"): CREDENTIAL,
          ("auth", "code"): TOKEN, ("one", "time"): TOKEN}  # fmt: skip
# Names written as one word: `authtoken`, `clientsecret`, `mypassword`.
_COMPOUND_NAME = re.compile(
    r"(?:(?P<password>password|passwd|passphrase|passwort|(?:db|my|user|root|admin|ftp|smtp|ssh|sql|bind)pass"
    r"|(?:mysql|user|root|admin|db)pwd)"
    r"|(?P<secret>secret)"
    r"|(?P<key>(?:api|access|secret|private|auth|account|shared|preshared|master|signing|encryption|license)key)"
    r"|(?P<token>[a-z]token))\Z"
)
_BY_KIND = {"password": PASSWORD, "secret": SECRET, "key": KEY, "token": TOKEN}
# Suffixes that do not change the meaning.
_NEUTRAL_SUFFIXES = split_words(
    """value text raw plain plaintext str string b64 base64 encoded env var prod production dev
    staging live test default old new current primary secondary main backup 0 1 2 3 4 5 6 7 8
    9
    """
)
# Parts that make the following part harmless: `next_token`, `input_token`, `public_key`.
_HARMLESS_QUALIFIERS = split_words(
    """next page public continuation cursor sync pagination eos bos pad unk stop cls sep mask
    special input output max min num per first last prev previous start end no has is use show
    toggle forgot reset invalid missing cancellation cancel token lexer current_line
    """
)
# Last parts that say something about a secret and are none: `token_count`, `PASSWORD_FILE`.
_HARMLESS_SUFFIXES = split_words(
    """count counts id ids name names file files path paths url uri type types length len size limit
    limits expiry expires expiration ttl at time date age budget usage used total field fields label
    policy policies manager provider service store helper util utils handler error errors header
    headers prefix suffix hash hint hints reset change page form input inputs dialog prompt message
    messages
    required enabled disabled valid invalid check checker strength regex pattern format scope scopes
    rotation mask masked redacted kind map cache index class test tests spec example examples doc docs
    endpoint issuer audience endpoints cost costs price rate ratio window per second minute
    """
)
_SECRET_PARTS = frozenset(
    ("token", "secret", "password", "passwd", "apikey", "credential", "credentials")
)
_PUBLIC_KEY_QUALIFIERS = split_words(
    """public primary foreign cache sort partition group dict map idempotency row unique index hot arrow
    shortcut object i18n translation surrogate natural composite candidate config lookup data json
    field metric dedupe publishable react hash message query registry route default parent
    """
)
_NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-zñ]+|\d+")


@lru_cache(maxsize=8192)
def classify_name(name: str) -> SecretName | None:
    """Return the kind of secret that a name announces, or None."""
    parts = [part.lower() for part in _NAME_PARTS.findall(name)]
    while len(parts) > 1 and parts[-1] in _NEUTRAL_SUFFIXES:
        parts.pop()
    if not parts:
        return None
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if found := _BY_LAST_TWO_PARTS.get((before, last)):
        return found
    if last in ("key", "keys") and before:
        return (
            KEY
            if before in _KEY_QUALIFIERS
            else WEAK_KEY
            if before in _WEAK_KEY_QUALIFIERS
            else OTHER_KEY
            if before not in _PUBLIC_KEY_QUALIFIERS and before not in _HARMLESS_QUALIFIERS
            else None
        )
    found = _BY_LAST_PART.get(last)
    if last == "pass":  # `DB_PASS`; `pass` alone is usually a passing test
        found = (
            PASSWORD
            if before and before not in _HARMLESS_QUALIFIERS
            else SecretName("password", False)
        )
    if found is None and (compound := _COMPOUND_NAME.search(last)) and compound.lastgroup:
        found = _BY_KIND[compound.lastgroup]
    if (
        found is None
        and last not in _HARMLESS_SUFFIXES
        and any(part in _SECRET_PARTS for part in parts[:-1])
    ):
        found = OTHER_SECRET
    if found is None or (before in _HARMLESS_QUALIFIERS and not found.is_strong):
        return None
    return None if found.is_strong and before in ("no", "has", "is", "forgot", "reset") else found
