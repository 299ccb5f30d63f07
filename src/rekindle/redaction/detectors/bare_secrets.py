"""Detects secrets that nothing announces: random tokens, generated passwords, lines of a key.

Such text is removed only where it stands alone, as an argument, a quoted string, a cell or a word,
and not where it is an identifier, a checksum or part of a path.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64
from collections.abc import Iterable, Sequence

from rekindle.redaction.scanner import (
    NO_CANDIDATES,
    NO_SPANS,
    Candidates,
    RedactionSpan,
    ScanInput,
    find_positions,
    make_secret_span,
)
from rekindle.redaction.vocabulary.entropy import (
    count_classes,
    is_digest,
    is_placeholder,
    split_words,
)

# ── tokens

_MAX_TOKEN_CHARS = 260
# Prefixes of identifiers: random, but no secret.
_ID_PREFIX = re.compile(
    r"""(?:sha\d{1,3}|md5|toolu|tooluse|call|msg|req|run|resp|rs|fc|ws|chatcmpl|cmpl|gen|file|asst
      |thread|item|evt|event|cus|ch|pi|prod|price|sub|in|acct|txn|session|sess|ses|prt|build|chunk|index
      |main|vendor|app|page|layout|node|job|task|step|span|trace|batch|conv|chat|ftjob|vs|org|user|usr
      |proj|project|team|ws|wf|act|agent|tool|id|uuid|ref|rev|commit|tree|blob|hash|cache|etag|nonce
      |snap|vol|ami|subnet|vpc|eni|arn|layer|image|css|sc|jss|svelte|astro|data|part|boundary|part
      |function|functions|default|srvtoolu|mcptoolu|ctx|reasoning|summary|checkpoint|intent)[-_]|0x|[a-z]{2,10}_01[A-Za-z0-9]{22}\Z""",
    re.X,
)
_ID_NAME = re.compile(
    r"""(?:[hr]1|id|ids|instance|uuid|guid|hash|digest|integrity|etag|checksum|signature|sig|sha\d*|md5|commit|cursor|nonce
      |revision|version|fingerprint|ref|boundary|resolved|src|href|cid|oid|slug|channel|encrypted_content
      |thoughtsignature|thought_signature|session|thread|request|trace|span|build|content)
      \\*["'`]?\s{0,3}[:=]\s{0,3}\\*["'`(]?\Z""",
    re.X | re.I,
)
_TOKEN_FOLLOWERS = frozenset(
    ("", "\n", "\r", "\t", " ", '"', "'", "`", "\\", "|", ",", ";", ")", "]", "&", "<", "│")
)
_TOKEN_LEADERS = frozenset(
    ("", "\n", "\r", "\t", " ", '"', "'", "`", "|", ",", ";", "(", "[", "=", ":", ">", "│")
)
_KEY_WORDS = re.compile(
    r"(?:sk|pk|key|secret|token|live|test|prod|pat|api|auth|priv)(?=[-_])|\A(?:sk|rk)[-_]"
)
_URL_SEGMENT = re.compile(r"https?://[^\s\"'`<>]{1,200}/\Z")


def detect_bare_tokens(scan: ScanInput) -> Sequence[Candidates]:
    """Detect random tokens of unknown providers."""
    if not scan.runs:
        return NO_CANDIDATES
    raw = scan.raw
    found = [at for at, end in scan.runs if _is_mixed(raw[at:end])]
    return (Candidates(found, _check_bare_token, 1.5),) if found else NO_CANDIDATES


def _is_mixed(run: bytes) -> bool:
    return not (run.islower() or run.isupper()) or _LICENSE.fullmatch(run) is not None


# Five groups of capitals and digits.
_LICENSE = re.compile(rb"(?=[A-Z-]*\d)[A-Z0-9]{5}(?:-[A-Z0-9]{5}){4}")


def _check_bare_token(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    if key := _detect_key_lines(scan, at):
        return (key,)
    start, end = _find_word(scan, at)
    if not 20 <= end - start <= _MAX_TOKEN_CHARS:
        return NO_SPANS
    text = scan.text
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    if end - start == len(text) and (end <= 24 or "/" in text):  # the value of an identifier
        return NO_SPANS
    if before == "/":
        if end - start < 22 or not _URL_SEGMENT.search(text, max(0, start - 200), start):
            return NO_SPANS
    elif after not in _TOKEN_FOLLOWERS or (
        before not in _TOKEN_LEADERS and not text.endswith(("\\n", "\\t"), 0, start)
    ):
        return NO_SPANS
    if end - start == 29 and _LICENSE.fullmatch(scan.raw, start, end):
        return (make_secret_span(start, end, "license"),)
    word = text[start:end]
    is_token = _is_base64_key(word) if "+" in word or "/" in word else _is_generated(word)
    if not is_token or _ID_PREFIX.match(word) or _decodes_to_text(word):
        return NO_SPANS
    if _ID_NAME.search(text, max(0, start - 40), start):
        return NO_SPANS
    return (make_secret_span(start, end, "random"),)


_BASE64_BYTES = bytes(c for c in range(128) if chr(c).isalnum()) + b"+/_-"
_WORD = re.compile(rb"[A-Za-z0-9+/_-]{0,300}+={0,2}")
_PLAIN_WORD = re.compile(rb"[A-Za-z0-9_-]{0,300}+={0,2}")


def _find_word(scan: ScanInput, at: int) -> tuple[int, int]:
    """Return the word around a run, which may contain more characters of base64."""
    found = _WORD.match(scan.raw, at)
    end = found.end() if found else at
    chunk = scan.raw[max(0, at - _MAX_TOKEN_CHARS) : at]
    start = at - (len(chunk) - len(chunk.rstrip(_BASE64_BYTES)))
    word = scan.raw[start:end]
    if b"+" not in word and (b"/" not in word or not word.endswith(b"=")):
        found = _PLAIN_WORD.match(scan.raw, at)
        return at, found.end() if found else at
    return start, end


def _is_base64_key(word: str) -> bool:
    """Return whether the word is base64 of random bytes, and neither a path nor one of many lines."""
    body = word.rstrip("=")
    if not 32 <= len(body) <= 200 or ("+" not in body and body == word) or body.startswith("AAAA"):
        return False
    lower, upper, digits, changes = count_classes(body)
    return (
        lower >= 5
        and upper >= 5
        and digits >= 2
        and changes >= 0.35 * len(body)
        and "//" not in body
    )


def _decodes_to_text(word: str) -> bool:
    try:
        data = a2b_base64(word[: len(word) // 4 * 4])
    except Error:
        return False
    return data.isascii() and data.decode().isprintable()


_PIECES = re.compile(r"[-_]")


_WORDS = re.compile(r"[A-Z]?[a-z]{3,}")


def _is_joined_words(run: str) -> bool:
    """Return whether most of the run are words, as in `shouldFallBackToV1AfterV2`."""
    return 3 * sum(map(len, _WORDS.findall(run))) >= 2 * len(run)


def _is_generated(run: str) -> bool:
    """Return whether a long piece of the run mixes cases and digits as no name does."""
    if _is_joined_words(run):
        return False
    for piece in _PIECES.split(run) if not run.isalnum() else (run,):
        if len(piece) < 16 or is_digest(piece):
            continue
        lower, upper, digits, changes = count_classes(piece)
        if lower >= 3 and upper >= 3 and digits >= 2 and changes >= 0.36 * len(piece):
            return True
    lower, upper, digits, changes = count_classes(run)
    return len(run) >= 30 and digits >= 4 and upper >= 6 and changes >= 0.36 * len(run)


# ── passwords

_SIGNS = "!@#$%^&*?+~"
# Letters and digits are `a`, the signs of generated passwords `!`, and the rest blanks.
_PASSWORD_IMAGE = bytes(
    97 if chr(c).isalnum() and c < 128 else 33 if chr(c) in _SIGNS else 32 for c in range(256)
)
_PASSWORD_BYTES = bytes(c for c in range(128) if chr(c).isalnum() or chr(c) in _SIGNS)
_PASSWORD = re.compile(r"[A-Za-z0-9!@#$%^&*?+~]{8,40}")
_PASSWORD_LEADERS = frozenset(
    ("", " ", "\t", "\n", "\r", '"', "'", "`", "=", ":", ",", "|", ">", "(", "]", "[")
)
_PASSWORD_FOLLOWERS = frozenset(
    ("", " ", "\t", "\n", "\r", '"', "'", "`", "\\", ",", ";", ".", "|", "<", ")", "]", "@")
)
_NOT_A_PASSWORD = re.compile(
    r"%[0-9A-F]{2}|\A[A-Za-z]+\d?@\w+\Z|&&|\+\+|[+*]\d{1,6}\Z|\*\*|\?\?|%[sdrvxq](?![A-Za-z0-9])|\A[$%#@&*+?~^]|&(?:amp|lt|gt|quot)"
)


def detect_passwords(scan: ScanInput) -> Sequence[Candidates]:
    """Detect generated passwords: short words that mix cases, digits and signs."""
    image = scan.raw.translate(_PASSWORD_IMAGE)
    if b"a!a" not in image:
        return NO_CANDIDATES
    return (Candidates(find_positions(scan, image, b"a!a"), _check_password, 0.3),)


def _check_password(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    chunk = scan.raw[max(0, at - 40) : at + 1]
    start = at + 1 - (len(chunk) - len(chunk.rstrip(_PASSWORD_BYTES)))
    found = _PASSWORD.match(scan.text, start)
    if found is None or not is_generated_password(found.group()):
        return NO_SPANS
    text, end = scan.text, found.end()
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    if before not in _PASSWORD_LEADERS and not text.endswith(("\\n", "\\t"), 0, start):
        return NO_SPANS
    if after not in _PASSWORD_FOLLOWERS:
        return NO_SPANS
    if after == "@" and before not in ("'", '"', ":"):
        return NO_SPANS
    return (make_secret_span(start, end, "password"),)


def is_generated_password(value: str) -> bool:
    """Return whether a short word mixes lower case, upper case, digits and a few signs."""
    if not 8 <= len(value) <= 40 or _NOT_A_PASSWORD.search(value):
        return False
    lower, upper, digits, changes = count_classes(value)
    signs = len(value) - lower - upper - digits
    if not (lower >= 1 and upper >= 1 and digits >= 1 and 1 <= signs <= 4):
        return False
    return changes >= 0.25 * len(value) and not is_placeholder(value)


# ── lines of a private key whose markers are missing

_KEY_LINES = re.compile(
    r"(?P<line>[A-Za-z0-9+/]{64}(?:\r?\n|\\n))(?:[A-Za-z0-9+/]{64}(?:\r?\n|\\n)){1,400}[A-Za-z0-9+/=]{0,64}"
)
_CERTIFICATE = re.compile(
    r"BEGIN (?:[A-Z0-9 ]{0,20}CERTIFICATE|[A-Z0-9 ]{0,20}PUBLIC KEY|PGP [SMP])"
)


def _detect_key_lines(scan: ScanInput, at: int) -> RedactionSpan | None:
    """Detect the lines of a key around `at`, unless a certificate or public key begins before."""
    start = scan.raw.rfind(b"\n", max(0, at - 64), at) + 1 if at else 0
    lines = _KEY_LINES.match(scan.text, start) if at - start < 64 else None
    if lines is None:
        return None
    marker = scan.text.rfind("BEGIN ", max(0, start - 4000), start)
    if marker >= 0 and _CERTIFICATE.match(scan.text, marker):
        return None
    return make_secret_span(start, lines.end(), "private-key")


# ── the words of a wallet

_PHRASE = re.compile(r"(?:[a-z]{3,8} ){11,23}+[a-z]{3,8}")
_FUNCTION_WORDS = split_words(
    """the and for are was were with from not but has had his her its our their been into than them these
    those which who will would could should did does because while where how let our per via please add
    fix update remove run use get set make new test file code line name value type return error
    """
)


def detect_phrases(scan: ScanInput) -> Sequence[Candidates]:
    """Detect the recovery phrase of a wallet if the text is nothing else: random short words."""
    text = scan.text
    if len(text) > 240 or not text.islower() or not text.replace(" ", "").strip().isalpha():
        return NO_CANDIDATES
    return (Candidates((0,), _check_phrase),)


def _check_phrase(scan: ScanInput, _: int) -> Iterable[RedactionSpan]:
    words = scan.text.split()
    if len(words) not in (12, 15, 18, 21, 24) or not _FUNCTION_WORDS.isdisjoint(words):
        return NO_SPANS
    if _PHRASE.fullmatch(scan.text.strip()) is None:
        return NO_SPANS
    return (make_secret_span(0, len(scan.text), "mnemonic"),)
