# ruff: noqa: E501  (a pattern stays on one line)
"""Detects lines of credential files: netrc, pgpass, shadow, docker, kube."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Iterable, Iterator, Sequence

from rekindle.redaction.scanner import (
    NO_CANDIDATES,
    NO_SPANS,
    Candidates,
    CharRuns,
    Inspection,
    LiteralDetectors,
    RedactionSpan,
    ScanInput,
    find_matches,
    make_secret_span,
)
from rekindle.redaction.vocabulary.entropy import is_placeholder

_GAP = r"(?:[ \t]|\r?\n|\\n|\\t){1,20}"
_NETRC = re.compile(
    rf"login{_GAP}\S{{1,120}}{_GAP}password{_GAP}(?P<value>(?:\\[^nrt]|[^\s\"'\\]){{1,200}})"
)
_PGPASS = re.compile(
    r":(?:5432|5433|6432|\*):[^:\s]{1,80}:[^:\s]{1,80}:(?P<value>(?:\\[^n]|[^\s\"'\\]){2,200})"
)
# In a shadow or htpasswd line, only the hash is masked, not the name.
_PASSWORD_HASH = re.compile(
    r"\$(?:[156y]|2[abxy]|apr1|argon2\w{1,2}|sha1|scrypt|pbkdf2-\w+|\d{4,7})\$[^\s\"'`:,;\\]{12,400}"
)
_LDAP_HASH = re.compile(r"\{(?:S?SHA\d{0,3}|B?CRYPT)\}[A-Za-z0-9+/=$.]{16,400}")
_NPM_AUTH = re.compile(r"auth[ ]?=[ ]?[\"']?(?=[A-Za-z0-9+/=_-]{6})")
_BASE64 = CharRuns(r"[A-Za-z0-9+/=_-]")
_DOCKER_AUTH = re.compile(
    r"""auth\\{0,7}["'][ ]?:[ ]?\\{0,7}["'](?P<value>[A-Za-z0-9+/]{6,2000}={0,2})"""
)
_KEY_DATA = re.compile(
    r"key-data\\{0,7}[\"']?:[ ]*\\{0,7}[\"']?(?P<value>[A-Za-z0-9+/]{40,20000}={0,2})"
)
_VAULT = re.compile(
    r"\$ANSIBLE_VAULT;[^\n\\]{3,60}(?P<value>(?:(?:\r?\n|\\n)[ \t]{0,20}[0-9a-f]{2,80}){1,2000})"
)


def _make_line_detector(pattern: re.Pattern[str], kind: str) -> Inspection:
    def detect(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
        found = pattern.match(scan.text, at)
        if found is None or is_placeholder(found["value"]):
            return NO_SPANS
        return (make_secret_span(found.start("value"), found.end("value"), kind),)

    return detect


def _detect_npm_auth(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    found = _NPM_AUTH.match(scan.text, at)
    if found is None:
        return NO_SPANS
    start = found.end()
    end = _BASE64.find_end(scan, start, 2000)
    return (
        NO_SPANS if is_placeholder(scan.text[start:end]) else (make_secret_span(start, end, "npm"),)
    )


def _detect_docker_auth(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    if (found := _DOCKER_AUTH.match(scan.text, at)) and is_base64_login(found["value"]):
        return (make_secret_span(found.start("value"), found.end("value"), "docker"),)
    return NO_SPANS


def detect_hashes(scan: ScanInput) -> Sequence[Candidates]:
    """Detect password hashes: `$6$…`, `{SSHA}…`."""
    raw = scan.raw
    found: list[int] = []
    if b"$" in raw:
        found += find_matches(scan, _PASSWORD_HASH)
    if b"}" in raw and (b"HA}" in raw or b"RYPT}" in raw):
        found += find_matches(scan, _LDAP_HASH)
    return (Candidates(found, _check_hash, 0.2),) if found else NO_CANDIDATES


def _check_hash(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    if found := _PASSWORD_HASH.match(scan.text, at) or _LDAP_HASH.match(scan.text, at):
        yield make_secret_span(at, found.end(), "password-hash")


def is_base64_login(value: str) -> bool:
    """Return whether the value is base64 of `name:password`."""
    try:
        return b":" in b64decode(value + "=" * (-len(value) % 4))
    except (Error, ValueError):
        return False


_YAML_VALUE = re.compile(
    r"\n[ \t]{1,12}[\w.-]{1,80}:[ ]+[\"']?(?P<value>[^\s\"'#|>][^\n\"']{2,2000})"
)
_SECRET_DATA = re.compile(r"(?:^|\n)(?:string)?data:(?=[ ]*\n)", re.I)
_JWK_FIELD = re.compile(
    r"""\\{0,7}"(?:d|p|q|dp|dq|qi|k)\\{0,7}"[ ]?:[ ]?\\{0,7}"(?P<value>[A-Za-z0-9_-]{16,2000})"""
)
_MAP_VALUE = re.compile(
    r'''[\w-]{0,20}\\{0,7}"[ ]?:[ ]?\{[ \n]{0,20}\\{0,7}"[^"\n]{1,80}"[ ]?:[ ]?\\{0,7}"(?P<value>[A-Za-z0-9_.~+/=-]{16,400})"'''
)


def _detect_string_data(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    """Detect the values of a Kubernetes secret, below `stringData:`."""
    yield from _detect_yaml_values(scan.text, scan.text.find("\n", at, at + 40))


def _detect_secret_data(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    """Detect the values of a Kubernetes secret, below `data:` before or after its kind."""
    for found in _SECRET_DATA.finditer(scan.text, max(0, at - 1000), at + 1500):
        yield from _detect_yaml_values(scan.text, found.end())


def _detect_yaml_values(text: str, at: int) -> Iterator[RedactionSpan]:
    for _ in range(50):
        found = _YAML_VALUE.match(text, at) if at >= 0 else None
        if found is None:
            return
        if not is_placeholder(found["value"]):
            yield make_secret_span(found.start("value"), found.end("value"), "secret")
        at = text.find("\n", found.end("value"), found.end("value") + 4)


def _detect_jwk(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    """Detect the private fields of a JSON Web Key."""
    following = scan.text.find('"kty', at + 5, at + 3000)
    end = following if following >= 0 else at + 3000
    for found in _JWK_FIELD.finditer(scan.text, max(0, at - 200), end):
        yield make_secret_span(found.start("value"), found.end("value"), "private-key")


# ── tokens of clusters, codes and seeds

_SEED = r"[A-Z2-7]{16,64}(?![A-Za-z0-9])"
_PHRASE_WORDS = r"(?:[a-z]{3,10}[ ]){11,23}[a-z]{3,10}"
_SHAPED: tuple[tuple[bytes, str, str], ...] = (
    (b"kubeconfig-u", r"kubeconfig-u(?:ser)?-[a-z0-9]{2,20}:(?P<value>[a-z0-9]{40,64})", "token"),
    (
        b"kubeadm ",
        r"kubeadm[ ][^\n]{0,160}?[ =](?P<value>[a-z0-9]{6}\.[a-z0-9]{16})(?![\w.])",
        "token",
    ),
    (b"private", r"private_key_id\\{0,7}[\"'][ ]?:[ ]?\\{0,7}[\"'](?P<value>[0-9a-f]{40})", "key"),
    (
        b"otp",
        rf"(?i:otp[ _-](?:seed|secret|key))[\"']?[ ]?(?:is|[:=])?[ ]{{0,2}}[\"']?(?P<value>{_SEED})",
        "otp",
    ),
    (b"seed", rf"(?i:seed)[\"']?(?:[ ]is|[ ]?[:=])?[ ]{{0,2}}[\"']?(?P<value>{_SEED})", "otp"),
    (b"phrase", rf"phrase(?:[ ]is|[ ]?[:=])[ ]{{1,2}}[\"']?(?P<value>{_PHRASE_WORDS})", "mnemonic"),
    (
        b"mnemonic",
        rf"mnemonic(?:[ ]is|[ ]?[:=])[ ]{{1,2}}[\"']?(?P<value>{_PHRASE_WORDS})",
        "mnemonic",
    ),
    *(
        (
            stem,
            r"[a-z]{6,8} codes?[ ]?:?(?:are)?(?P<value>(?:(?:\n|\\n|[ ,]){1,3}(?:[-*][ ])?"
            r"(?=[a-z-]{0,12}\d)[0-9a-z]{4,6}(?:-[0-9a-z]{4,6}){1,2}(?![\w-])){1,20})",
            "code",
        )
        for stem in (b"recovery code", b"backup code")
    ),
)
_CODE_SAID = re.compile(
    r"code(?P<sign>[ ]is|:)?[ ](?P<value>\d{3}[ -]\d{3}|\d{4,8})(?![\w.:/-])", re.I
)
_CODE_BEFORE = re.compile(
    r"(?:(?P<own>your|the)|2fa|mfa|login|sign-?in|security|access|auth\w{0,12}|one-?time|sms|confirmation|pairing"
    r"|two-factor|door|gate|entry)[ ](?:[\w-]{1,14}[ ])?\Z",
    re.I,
)
_OTHER_CODE = re.compile(
    r"(?:exit|return|error|status|zip|postal|area|country|response|source)[ ]\Z", re.I
)


def _detect_code(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    """Detect `Your code is 900945` and `2FA code 566723`."""
    found = _CODE_SAID.match(scan.text, at + 1)
    before = scan.text[max(0, at - 40) : at + 1]
    said = _CODE_BEFORE.search(before) if found else None
    if found is None or said is None or _OTHER_CODE.search(before):
        return NO_SPANS
    if said["own"] and (found["sign"] is None or len(found["value"]) < 5):
        return NO_SPANS
    return (make_secret_span(found.start("value"), found.end("value"), "code"),)


LITERAL_DETECTORS: LiteralDetectors = (
    *(
        (
            stem,
            _make_line_detector(
                re.compile(form, re.I if kind in ("code", "mnemonic") else 0), kind
            ),
        )
        for stem, form, kind in _SHAPED
    ),
    (b" code ", _detect_code),
    (b" code:", _detect_code),
    (b"stringdata", _detect_string_data),
    (b"kind: secret", _detect_secret_data),
    (b'"kty"', _detect_jwk),
    (b"github-oauth", _make_line_detector(_MAP_VALUE, "token")),
    (b"token", _make_line_detector(_MAP_VALUE, "token")),
    (b"login", _make_line_detector(_NETRC, "password")),
    (b":5432:", _make_line_detector(_PGPASS, "password")),
    (b":*:", _make_line_detector(_PGPASS, "password")),
    (b"auth", _detect_npm_auth),
    (b"auth", _detect_docker_auth),
    (b"key", _make_line_detector(_KEY_DATA, "private-key")),
    (b"$ansible_vault", _make_line_detector(_VAULT, "vault")),
)
