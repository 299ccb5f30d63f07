# ruff: noqa: E501  (a pattern stays on one line)
"""Tells whether the text after a secret's name is the secret, and not code or a word about it."""

from __future__ import annotations

import re

from .entropy import is_digest, is_placeholder, is_random, split_words
from .secret_names import SECRET_KEY, SecretName, classify_name

_NON_SECRET_WORDS = split_words(
    """str string text bytes int integer number float bool boolean none null nil undefined true
    false any object unknown void optional required default secret password token char varchar
    auto self this option type field input hidden yes no on off empty missing invalid valid
    incorrect wrong expired enabled disabled present absent set unset ok error value name id
    key basic bearer oauth oauth2 jwt http https env file prompt stdin sensitive masked
    redacted not the a an is was and or to for in if with from by of as must should can will
    be are has have does did do flag option argument parameter based only per via when where
    which that it its your my our their generate generated rotate refresh validate check
    verify manager management reset login user username email const let var final new return
    await async function def class lambda static public private protected readonly
    """
)
_MAX_NON_SECRET_CHARS = max(map(len, _NON_SECRET_WORDS))
# An expression: an attribute, a call, an index or an arrow.
_EXPRESSION = re.compile(
    r"""[A-Za-z_$][\w$]*(?:\s?(?:\.|\?\.|->|::)\s?[A-Za-z_$][\w$]*)*\s?[(\[{<]
      | (?:[A-Za-z_$][\w$]*(?:\?\.|->|::|\.))+[A-Za-z_$][\w$]*\Z
      | [!&*(\[{|] | (?:new|await|await|not|lambda|function|typeof|async|if|import)\s
    """,
    re.X,
)
_PLAIN_WORD = re.compile(r"[A-Za-z_][A-Za-z_-]*\Z")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\Z")
_PATH = re.compile(
    r"(?:\.{0,2}/|~/|[A-Za-z]:\\|https?:|file:|arn:|projects/|[\w-]+/[\w./-]+\.\w{1,5}\Z)"
)
_MIXED = re.compile(r"(?=.*[A-Za-z])(?=.*\d)(?!v?\d+(?:\.\d+)+)[^\s/]+\Z")
_PROSE = re.compile(
    r"\b(?:the|an?|is|are|was|of|for|your|you|this|that|must|should|not|and|or|to|with|enter|please|cannot"
    r"|field|required|invalid|failed|user|when|if|from|be|has|can|will|does|in)\b",
    re.I,
)


_PIN = re.compile(r"\d{3,12}\Z|(?=[^\s]*[A-Za-z])(?=[^\s]*\d)[\w-]{8,40}\Z")


def is_secret_string(name: SecretName, value: str) -> bool:
    """Return whether a quoted text after a secret's name is the secret."""
    if is_placeholder(value) or _is_non_secret_word(value):
        return False
    if name.kind == "pin":
        return _PIN.match(value) is not None and (value.isdigit() or not is_digest(value))
    if not name.is_strong:
        return _looks_like_token(name, value)
    if " " in value or "\t" in value:
        return len(value) >= 6 and not _is_prose(value)
    if (_CONSTANT.match(value) and classify_name(value)) or is_path(value):
        return False
    if name.kind in ("key", "secret") and _PLAIN_WORD.match(value):
        return (
            is_random(value)
            or _is_passphrase(value)
            or (name.min_chars == SECRET_KEY.min_chars and len(value) > 5 and _is_key_word(value))
            or (len(value) >= 16 and "_" not in value and "-" not in value)
        )
    if _PLAIN_WORD.match(value) and classify_name(value):
        return False
    return len(value) >= (6 if name.kind == "key" else 3)


def _is_key_word(value: str) -> bool:
    return is_given_secret(SECRET_KEY, value) and "_" not in value


def is_secret_word(name: SecretName, value: str, *, is_bare: bool) -> bool:
    """Return whether an unquoted text after a secret's name is the secret.

    `is_bare` means that it cannot be code: it is a setting or an option.
    """
    if len(value) < 3 or is_placeholder(value) or _is_non_secret_word(value):
        return False
    if name.kind == "secret" and value.startswith(("id=", "type=")):  # of a build
        return False
    if name.kind == "pin":
        return is_secret_string(name, value) and (is_bare or value.isdigit())
    if not name.is_strong:
        return _looks_like_token(name, value) and not _EXPRESSION.match(value)
    if _PLAIN_WORD.match(value):
        if is_bare and name.kind in ("key", "secret") and _is_passphrase(value):
            return True
        return is_bare and len(value) >= 4 and name.kind == "password" and not classify_name(value)
    if is_bare and name.kind == "password" and _is_dotted_password(value):
        return True
    if _EXPRESSION.match(value) and not is_random(value):
        return False
    if is_path(value):
        return False
    if value.isidentifier() and not is_bare:
        return is_random(value, 8)
    if name.kind == "key" and not is_random(value, 8):
        return is_bare and len(value) >= 12 and not _CONSTANT.match(value)
    return (not (_CONSTANT.match(value) and classify_name(value)) and not value.isdigit()) or len(
        value
    ) > 3


# What is said about options and headers, and what stands for a value in their documentation.
_SAID_WORDS = split_words(
    """flag flags option options header headers instead also here there then before after again used uses using
    use set sets support supports works work takes take pass passes passed passing given gives give provided
    provides provide specified specify accepts accept requires require stored store stores read reads loads
    load comes come goes go contains contain matches match exists exist works fails fail expires expire
    changes change missing parsing logic handling format param params query strategy scheme authentication
    authorization auth authenticated tokens secrets keys passwords credentials session sessions cookie cookies
    may might could would will won't doesn't isn't wasn't don't didn't now still never always already both
    either neither but so because since while until without within into onto over under between about like
    such more most less least other others another same different each every all some many few one two three
    first second last next previous old new own real fake dummy mock test tests testing foo bar baz qux abc
    example examples placeholder changeme whatever something anything nothing plain plaintext raw base64 hex
    args argv value values string strings <value> pattern patterns regex rotation storage lookup validation
    github gitlab google directly explicitly automatically manually twice once yourself itself themselves request requests response
    """
)
_DETAILS = re.compile(r"[\w-]{1,20}=|[^A-Za-z0-9!#^*+/_]|[a-z-]+:(?!\S*\d)|\d{1,3}\Z|\w+[(\[{]")
_JOIN_TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}\Z")  # of a cluster
_LIST = re.compile(r"[\w-]+(?:[/|,][\w-]+)+\Z")


def is_given_secret(name: SecretName, value: str) -> bool:
    """Return whether the value of an option, header or URL parameter for a secret is one.

    It may be a word, because nothing else is given there; `--token flag` only speaks about it.
    """
    if name.min_chars > 10 or name.kind not in ("token", "key", "secret", "password"):
        return False
    lower = value.lower()
    if len(value) < 4 or lower in _SAID_WORDS or _is_non_secret_word(value) or is_path(value):
        return False
    if is_placeholder(value) or _DETAILS.match(value) or classify_name(value) or "xxx" in lower:
        return False
    if _EXPRESSION.match(value) and not (_is_dotted_password(value) or _JOIN_TOKEN.match(value)):
        return False
    return _LIST.match(value) is None and not _PLACEHOLDER_PARTS.issuperset(_PARTS.split(lower))


_PARTS = re.compile(r"[-_]")
_DOTTED = re.compile(r"[A-Za-z]+\d{0,4}(?:\.[A-Za-z]+\d{0,4}){1,5}\Z")
# What attributes belong to or are called in code, and the endings of files.
_CODE_PARTS = split_words(
    """self this cls super args kwargs config conf cfg settings setting options option opts opt params param
    props state context ctx env environ environment process os sys app api db database server client conn
    connection session request req response resp res body data form field fields input output user users
    account profile credentials credential creds cred auth login model models schema schemas type types
    value values val item items entry row record node object obj target event e evt result results var vars
    local locals module modules each data secrets secret vault values store state fake faker mock test tests
    spec utils util helper helpers lib core base common constants const strings string text str int integer
    number bool boolean bytes char varchar z t joi yup sa sql orm fields pydantic typing validators validator
    string required default length name names id key keys get set read write load new create make parse
    format encode decode hash hexdigest digest strip trim current group match props query path file files
    py js ts go rs rb php java kt cs c h cpp md txt json yaml yml toml ini cfg env sh bash zsh html xml css
    csv log lock com org io net dev example local exe bin pem key crt cert p12 gpg age enc asc db sqlite
    """
)


def _is_dotted_password(value: str) -> bool:
    """Return whether words joined by dots are a password, and no attribute, type or file."""
    if _DOTTED.match(value) is None or len(value) < 6:
        return False
    return not any(
        part.lower() in _CODE_PARTS or _is_non_secret_word(part) or classify_name(part)
        for part in value.split(".")
    )


_PLACEHOLDER_PARTS = split_words(
    """your my the change me changeme example placeholder secret key token password test dummy fake sample
    here insert replace todo default name value goes super not real some any this is a an in production
    """
)


def _is_passphrase(value: str) -> bool:
    """Return whether the value is words joined by hyphens that stand for nothing else."""
    words = value.lower().split("-")
    return (
        3 <= len(words) <= 10
        and all(len(word) >= 3 for word in words)
        and _PLACEHOLDER_PARTS.isdisjoint(words)
    )


def _is_non_secret_word(value: str) -> bool:
    return len(value) <= _MAX_NON_SECRET_CHARS and value.lower() in _NON_SECRET_WORDS


def is_path(value: str) -> bool:
    """Return whether the value is a path or URL that does not look random."""
    return _PATH.match(value) is not None and not is_random(value, 20)


def _looks_like_token(name: SecretName, value: str) -> bool:
    """Return whether a value after a weak name is random enough to be a secret."""
    if " " in value or "://" in value:
        return False
    if name.kind in ("cookie", "signature", "authorization") and is_digest(value):
        return False
    if name.kind == "password" and 6 <= len(value) <= 80 and not _EXPRESSION.match(value):
        if value.startswith("Test"):  # `PASS: TestTheName`
            return False
        return not value.isalpha() and not is_path(value) and _MIXED.match(value) is not None
    if name.min_chars > 10 and is_digest(value):
        return False
    if is_random(value, name.min_chars):
        return not _PATH.match(value) or is_random(value, 24)
    if name.min_chars > 10:
        return False
    return len(value) >= 20 and value.isalnum() and not value.isalpha() and not value.isdigit()


_SHORT_TOKEN = re.compile(r"(?=[^\s]*[A-Za-z])(?=[^\s]*\d)[A-Za-z0-9_.!@#%^*+-]{5,60}\Z")


def is_short_token(variable: str, value: str) -> bool:
    """Return whether a token's variable, `CI_TOKEN`, has a short value with letters and digits."""
    return (
        variable.isupper()
        and _SHORT_TOKEN.match(value) is not None
        and not is_placeholder(value)
        and not value.startswith(("v1", "v2", "0x", "-"))
    )


def _is_prose(value: str) -> bool:
    parts = value.split()
    if len(parts) in (12, 15, 18, 21, 24) and all(
        part.isalpha() and part.islower() for part in parts
    ):
        return False  # a wallet's seed phrase
    return value[-1] in ":.?!" or _PROSE.search(value) is not None or len(parts) > 8
