# ruff: noqa: E501  (a pattern stays on one line)
"""Detects passwords in command-line options, and passwords piped into programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from rekindle.redaction.scanner import (
    NO_CANDIDATES,
    NO_SPANS,
    Candidates,
    Inspection,
    LiteralDetectors,
    RedactionSpan,
    ScanInput,
    find_matches,
    make_secret_span,
)
from rekindle.redaction.vocabulary.entropy import is_digest, is_placeholder, is_random
from rekindle.redaction.vocabulary.secret_names import TOKEN, classify_name
from rekindle.redaction.vocabulary.secret_values import is_given_secret

_WORD = (
    r"""(?:"(?P<double>[^"\n]{1,200})"|'(?P<single>[^'\n]{1,200})'"""
    r"""|(?P<bare>[^\s"'|;&<>`\\][^\s"'|;&<>`]{0,199}))"""
)
_OPTION = re.compile(r" -(?:([puwakPUWcsNAKb])|-(?:proxy-)?user[ =])")
_VALUE = re.compile(rf"[ ]{{0,4}}\\?\"?{_WORD}")
_JOINED = re.compile(rf"{_WORD}")

# option letter → programs that take a password after it; `-p` may be joined with the value
_SPACED_OPTIONS = {
    "p": r"sshpass|docker[ ]login|podman[ ]login|helm[ ]registry|mongo\w*|twine|az[ ]login|oc[ ]login"
    r"|rabbitmqadmin|lftp|influx|cqlsh|neo4j|cypher-shell|clickhouse\S*|nexus|buildah[ ]login|impala\S*"
    r"|evil-winrm|crackmapexec|netexec|nxc|useradd|usermod|smbmap|hydra|beeline|couchbase-cli|cbq|mysqlsh|wpscan",
    "P": r"zip|unzip|sqlcmd|bcp|tsql|isql|ipmitool|wireless|freebcp|zipcloak|mosquitto_\w+|ssh-keygen|smbget",
    "N": r"ssh-keygen",
    "s": r"ldappasswd",
    "K": r"openssl[ ]enc",
    "w": r"ldap\w+|dsconf|add-generic-password|add-internet-password|db2",
    "W": r"dsmc|ktpass",
    "a": r"redis-cli|keydb-cli|valkey-cli",
    "k": r"openssl[ ]\w+",
    "c": r"snmp\w+",
}
_JOINED_PROGRAM_NAMES = r"mysql\w*|mariadb\w*|7z[ar]?|sshpass|rar|unrar|mongo\w*"
_LOGIN_PROGRAM_NAMES = r"curl|wget|https?|xh|ab|lftp|smbclient|rpcclient|wrk|siege|artifactory|elasticsearch\S*|nxc|etcdctl|hey|vegeta|ffuf|wfuzz|gobuster|mc|couchdb|influx|restic"


class _ProgramMatcher:
    """Matches text in which one of the programs precedes an option of the same command."""

    def __init__(self, names: str, ends: str = "|;&") -> None:
        self._pattern = re.compile(rf"\b(?:{names})\b[^{ends}]*\Z")
        # Checking for the plain names first is much cheaper than running the pattern.
        plain = (
            re.sub(r"\\.[*+]?|\[.*|.\?", "", name) for name in names.replace("[ ]", " ").split("|")
        )
        self._names = tuple(plain)

    def matches(self, before: str) -> bool:
        for name in self._names:
            if name in before:
                return self._pattern.search(before) is not None
        return False


_PROGRAMS = {letter: _ProgramMatcher(names) for letter, names in _SPACED_OPTIONS.items()}
_JOINED_PROGRAMS = _ProgramMatcher(_JOINED_PROGRAM_NAMES)
_LOGIN_PROGRAMS = _ProgramMatcher(_LOGIN_PROGRAM_NAMES, "|;")
_HTTP_CLIENTS = _ProgramMatcher(r"https?|xh|httpie")
_CURL = _ProgramMatcher("curl")
_COOKIE_OPTION = re.compile(r"""[ ]?\\{0,3}["']?[\w.-]{1,60}=(?P<value>[^\s"';\\]{6,4000})""")
_HTPASSWD = re.compile(r"passwd\b[^|;&\n]{0,120}?-(?=\w*b)\w++[ ]+(?:\S+[ ]+){2}(\S{3,200})")
_LOGIN_VALUE = re.compile(
    r"""[ ]{0,4}\\{0,3}["']?[^\s:%"',]{0,80}[:%,](?P<password>[^\s"'\\]{2,200})"""
)

# Everything else: a literal, and the pattern that begins with it.
_Q = r"""\\{0,3}["']?"""
# The label and the first line of a here-document.
_HEREDOC = r"""[-~]?[ ]?\\?["']?\w{1,20}["']?[^\n]{0,80}?(?:\n|\\n)[ \t]{0,20}(?P<value>[^\s\\][^\n\\]{2,200}?)(?=\n|\\n|\Z)"""
_VALUES = rf"""{_Q}(?P<value>[^\s"'\\]{{3,400}})"""
_PIPED = rf"""{_Q}(?P<value>[^\s"'|\\][^"'|\n]{{1,200}}?){_Q}[ ]*\|[ ]*
        (?: sudo[ ]+(?:-\w+[ ]+)*-\w*S
          | (?:sudo[ ]+)?(?:chpasswd|passwd|smbpasswd|pdbedit|cryptsetup|kinit|vncpasswd)\b
          | (?:docker|podman|helm|oras|skopeo|crane|buildah)[ ](?:registry[ ])?login
          | gcloud[ ]secrets[ ] | secret-tool[ ]store | keyring[ ]set | aws[ ]secretsmanager
          | (?:base64[ ]-d\w*|xxd[ ][^|\n]{{0,20}}|tr[ ][^|\n]{{0,40}}|rev)[ ]*\|[^|\n]{{1,60}}--(?:password|token|secret)-?stdin
          | gh[ ]auth[ ]login | su[ ] | gpg[ ].{{0,60}}passphrase | wg[ ]\w+ | pass[ ]insert
          | (?:gh|glab|wrangler|flyctl|fly|docker|doppler|railway|netlify|vercel)[ ](?:secrets?|env|variables?)[ ]\w+
          | \w+[ ].{{0,80}}--(?:password|token|secret)-?stdin )"""
_COMMAND_PATTERNS: tuple[tuple[bytes, str], ...] = (
    # echo PASSWORD | a program that reads one
    (b"echo ", rf"""echo[ ]+(?:-\w+[ ]+)?{_PIPED}"""),
    (b"printf ", rf"""printf[ ]+(?:['"]?%s(?:\\n)?['"]?[ ]+)?{_PIPED}"""),
    # PROGRAM <<< PASSWORD
    (b"<<<", rf"""<<<[ ]?{_Q}(?:[\w.-]{{1,40}}:)?(?P<typed>[^\s"'\\]{{3,200}})"""),
    (b"rabbitmqctl", rf"""rabbitmqctl[ ][^\n|;]{{0,60}}?(?:add_user|change_password|authenticate_user)[ ]+\S{{1,60}}[ ]+{_VALUES}"""),
    (b"db2 ", rf"db2[ ]+connect[ ][^\n|;]{{0,120}}?[ ]using[ ]+{_VALUES}"),
    (b"obscure ", rf"obscure[ ](?<=rclone[ ]obscure[ ]){_VALUES}"),
    (b"input_pw", rf"input_pw[ ]+{_VALUES}"),
    (b"/rp ", rf"/rp[ ]+{_VALUES}"),
    (b"--value", rf"""--value[= ]{_Q}(?P<stored>[^\s"'\\]{{3,400}})"""),
    (b"pass", r"""password(?<![\w-]password)[ ]+(?P<spoken>(?!\[)[^\s"'\\<]{4,100})(?=[ \t]*(?:\n|\Z|\\n))"""),
    (b"pass", rf"password[ ]+{_Q}(?P<administered>[^\s\"'\\<-][^\s\"'\\]{{2,100}})"),
    (b"auth", r"""auth[ ](?:default[ ])?(?P<redis>[^\s"'\\]{6,100})(?=\s|["'\\]|\Z)"""),
    (b"pass", r"""password[^\n]{0,20}?["'][^\n]{0,8}\n?[ \t]{0,8}send[ ](?:--[ ])?"(?P<value>[^"\\\n]{3,80})"""),
    (b"private", r"""private-(?P<value>[0-9a-f]{20,64})(?=/)"""),
    *((stem, r"""\w{3,24}(?:[-_/]\w{1,24}){0,2}?[/=](?P<link>[A-Za-z0-9_.~-]{16,400})(?=[\s"'`?&#/)\\]|\Z)""")
      for stem in (b"reset-p", b"reset/", b"verif", b"invite")),
    (b"login", r"""login[ ]+(?:--?\w+(?:[ =]\S+)?[ ]+){0,3}
        (?P<random>[A-Za-z0-9_.-]{20,300})(?=[\s"'`;&|]|\Z)"""),
    # PROGRAM login TOKEN, and of a program of one's own: login USER PASSWORD
    (b"login", rf"""login[ ]+(?:-\w[ ]\S{{1,80}}[ ]+)?{_Q}(?P<logged>[^\s"'\\<>|;&-][^\s"'\\<>|;&]{{3,200}})"""),
    (b"login", rf"""login[ ]+[\w.@-]{{2,60}}[ ]+{_Q}(?P<second>[^\s"'\\<>|;&-][^\s"'\\<>|;&]{{3,200}}){_Q}[ ]*(?:\n|\Z|[|;&])"""),
    (b"login", r"""login[ ](?:[^\n|;&]{0,80}[ ])?-p[ ]+["']?(?P<given>[^\s"'\\<>|;&-][^\s"'\\<>|;&]{3,200})"""),
    (b"unlock ", rf"""unlock[ ]+{_Q}(?P<second>[^\s"'\\<>|;&-][^\s"'\\<>|;&]{{3,200}}){_Q}[ ]*(?:\n|\Z|[|;&])"""),
    (b"identified by", r"""identified[ ]+by[ ]+(?:password[ ]+)?
        \\{0,3}["'](?P<value>[^"'\n\\]{1,200})"""),
    (b"secret", rf"secret[ ]+generic[ ][^\n|;]{{0,200}}?--from-literal[= ]{_Q}[\w.-]{{1,80}}={_VALUES}"),
    (b"pass", rf"pass(?:in|out)?[ ]+pass:{_VALUES}"),
    (b"pass", rf"""passphrase(?<=wpa_passphrase)[ ]+
        (?:"[^"]{{1,64}}"|'[^']{{1,64}}'|\S{{1,64}})[ ]+{_VALUES}"""),
    (b"/p:", rf"/p:{_VALUES}"),
    (b"net us", r"""net[ ]user?[ ]+(?:\S+:?[ ]+\\\S+[ ]+)?(?!/)[\w.-]{1,40}[ ]+
        (?P<value>[^\s/"'*]{4,100})(?=[ ]+/)"""),
    (b"net us", r"""net[ ]use[^\n]{0,120}/user:\S{1,80}[ ]+(?P<value>[^\s/"'*]{4,100})"""),
    (b"sqlplus", rf"""sqlplus[ ]+(?:-\w+[ ]+){{0,20}}
        {_Q}\w{{1,60}}/{_Q}(?P<value>[^\s@"'\\/]{{2,100}})"""),
    (b"kv put", rf"kv[ ]put[ ]+\S{{1,120}}[ ]+[\w.-]{{1,60}}={_VALUES}"),
    (b"http-basic.", rf"http-basic\.\S{{1,60}}[ ]+\S{{1,80}}[ ]+{_VALUES}"),
    (b"token", rf"token(?<=pypi-token)\.[\w-]{{1,60}}[ ]+{_VALUES}"),
    (b"securestring", r"""securestring[ ]+(?:-string[ ]+)?["'](?P<value>[^"'\n$]{3,200})["']"""),
    (b"setx ", rf"""setx[ ]+(?:/\w[ ]+)?(?P<setx>[\w.-]{{2,80}}[ ]+{_Q}[^\s"'\\]{{3,400}})"""),
    (b"set -", rf"""set[ ]-\w*[xU]\w*[ ]+(?P<setx>[\w.-]{{2,80}}[ ]+{_Q}[^\s"'\\]{{3,400}})"""),
    (b"_authtoken", rf"""_(?:authtoken|password|auth)[ ]+{_VALUES}"""),
    (b"login", rf"""login[ ]+\S{{1,80}}@\S{{1,80}}[ ]+{_VALUES}"""),
    (b"net us", r"""net[ ]use[ ]+\S{1,8}[ ]+\\\\\S{1,120}[ ]+(?P<value>[^\s/"'*]{4,100})"""),
    (b"alias set ", rf"""alias[ ]set[ ]+[\w.-]{{1,60}}[ ]+\S{{1,200}}[ ]+\S{{1,100}}[ ]+{_VALUES}"""),
    (b"keyring ", rf"""keyring[ ]set[ ]+\S{{1,80}}[ ]+\S{{1,80}}[ ]+<<<[ ]?{_VALUES}"""),
    (b"<<<", rf"""<<<[ ]?{_Q}(?P<fed>[^\s"'\\]{{3,400}})"""),
    (b"stdin", rf"""stdin(?<=(?:word|oken|cret)-stdin)[^\n|;]{{0,80}}<<{_HEREDOC}"""),
    (b"--body", rf"""--body[= ]{_Q}(?P<stored>[^\s"'\\]{{3,400}})"""),
    (b"--body", rf"""--body[ =]{_Q}(?P<random>[A-Za-z0-9_.+/=-]{{12,400}})(?=[\s"'`;&|\\]|\Z)"""),
)  # fmt: skip


def detect_options(scan: ScanInput) -> Sequence[Candidates]:
    """Detect passwords that a program takes after a single-letter option."""
    if b" -" not in scan.raw:
        return NO_CANDIDATES
    found = find_matches(scan, _OPTION)
    return (Candidates(found, _check_option),) if found else NO_CANDIDATES


def _check_option(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    if (found := _OPTION.match(scan.text, at)) and (span := _detect_option(scan.text, found)):
        yield span


def find_password_words(words: Sequence[str]) -> Iterator[int]:
    """Yield the indexes of the words that are passwords, in a command given as a list of words."""
    for number in range(1, len(words)):
        option, word = words[number - 1], words[number]
        if not option.startswith("-") or word.startswith("-") or is_placeholder(word):
            continue
        secret_name, program = classify_name(option), _PROGRAMS.get(option[1:])
        if secret_name is not None:
            is_password = secret_name.is_strong or is_random(word, 10)
        else:
            is_password = program and program.matches(" ".join((*words[:number], "")))
        if is_password:
            yield number


def _make_detector(expression: str) -> Inspection:
    pattern = re.compile(expression, re.X | re.I)

    def detect(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
        if (found := pattern.match(scan.text, at)) and (span := _mask_match(found)):
            return (span,)
        return NO_SPANS

    return detect


def _detect_htpasswd(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    if scan.lower.startswith(b"ht", max(0, at - 2)) and (found := _HTPASSWD.match(scan.text, at)):
        return (make_secret_span(found.start(1), found.end(1), "password"),)
    return NO_SPANS


def _detect_option(text: str, found: re.Match[str]) -> RedactionSpan | None:
    letter, at = found[1] or "u", found.end()
    line = text.rfind("\n", max(0, at - 240), at)
    before = text[max(line, 0, at - 240) : at]
    if letter == "b":
        return _detect_cookie_option(text, at, before)
    if letter in "uUA" or (letter == "a" and _HTTP_CLIENTS.matches(before)):
        pair = _LOGIN_VALUE.match(text, at)
        if pair and not _is_number_of_user(pair["password"]) and _LOGIN_PROGRAMS.matches(before):
            return _mask_group(pair, "password")
        return None
    is_spaced = text[at : at + 1] == " "
    if letter == "p" and not is_spaced:
        if not _JOINED_PROGRAMS.matches(before):
            return None
        return _mask_word(_JOINED.match(text, at), 3)
    program = _PROGRAMS.get(letter)
    if program is None or not program.matches(before):
        return None
    return _mask_word(_VALUE.match(text, at), 3 if letter != "c" else 6)


def _is_number_of_user(value: str) -> bool:
    """Return whether the value may be a user's or group's number, as in `docker -u 1000:1000`."""
    return value.isdigit() and len(value) < 6


def _detect_cookie_option(text: str, at: int, before: str) -> RedactionSpan | None:
    found = _COOKIE_OPTION.match(text, at)
    if found is None or not _CURL.matches(before) or is_placeholder(found["value"]):
        return None
    return make_secret_span(found.start("value"), found.end("value"), "cookie")


def _mask_word(word: re.Match[str] | None, min_length: int) -> RedactionSpan | None:
    if word is None or word.lastgroup is None or len(word[word.lastgroup]) < min_length:
        return None
    return _mask_group(word, word.lastgroup)


def _mask_group(found: re.Match[str], group: str) -> RedactionSpan | None:
    value, start = found[group], found.start(group)
    if group == "setx":  # a variable, and its value
        value = value.rpartition(" ")[2].lstrip("\"'")
        start = found.end(group) - len(value)
    if is_placeholder(value) or value.startswith("-"):
        return None
    return make_secret_span(start, found.end(group), "password")


def _mask_match(found: re.Match[str]) -> RedactionSpan | None:
    group = found.lastgroup
    if group is None or not _CONDITIONS.get(group, _accept_any)(found):
        return None
    return _mask_group(found, group)


def _names_secret(found: re.Match[str]) -> bool:
    """Return whether a variable that is set to a value is that of a secret."""
    variable, _, value = found["setx"].partition(" ")
    secret_name = classify_name(variable)
    return secret_name is not None and (
        secret_name.is_strong or is_given_secret(secret_name, value.strip(" \"'"))
    )


def _accept_any(_: re.Match[str]) -> bool:
    return True


def _has_before(found: re.Match[str], pattern: re.Pattern[str]) -> bool:
    return pattern.search(found.string, max(0, found.start() - 120), found.start()) is not None


_READS_PASSWORD = re.compile(
    r"(?:passwd|sudo[ ]-\w*S|read[ ]-\w*s|kinit|cryptsetup|su[ ])[^\n|;]{0,80}\Z"
)
_FED = re.compile(
    r"(?:xxd[ ]-r[^\n|;]{0,20}|base64[ ]-d[^\n|;]{0,20}|--(?:password|token|secret)-?stdin[^\n|;]{0,40})\Z"
)
_TAKES_TOKEN = re.compile(r"\b(?:oc|vault|cargo|doppler|tea|fossa)[ ]\Z")
_OWN_PROGRAM = re.compile(r"(?:\A|[\n;&|$][ ]*)(?:\.{0,2}/|~/)[\w./-]{1,80}[ ]\Z")
_STORES_SECRET = re.compile(r"(?:secret|password|securestring|token)[^\n|;]{0,120}\Z", re.I)
_NAMES_USER = re.compile(
    r"(?:\A|\n|\\n|machine[ ]\S{1,80}|(?:user|username|login)[ ]\S{1,80})[ \t]*\Z"
)
_ADMINISTERS = re.compile(r"(?:mysqladmin|username[ ]\S{1,60}|user[ ]\S{1,60})[^\n|;]{0,60}\Z")
# What else a group needs to be a secret.
_CONDITIONS: dict[str, Callable[[re.Match[str]], bool]] = {
    "random": lambda found: is_random(found["random"], 16),
    "typed": lambda found: _has_before(found, _READS_PASSWORD),
    "stored": lambda found: _has_before(found, _STORES_SECRET),
    "spoken": lambda found: _has_before(found, _NAMES_USER) and _has_non_letter(found["spoken"]),
    "administered": lambda found: (
        _has_before(found, _ADMINISTERS) and _has_non_letter(found["administered"])
    ),
    "setx": _names_secret,
    "fed": lambda found: _has_before(found, _FED),
    "logged": lambda found: (
        _has_before(found, _TAKES_TOKEN) and is_given_secret(TOKEN, found["logged"])
    ),
    "second": lambda found: (
        _has_before(found, _OWN_PROGRAM) and is_given_secret(TOKEN, found["second"])
    ),
    "given": lambda found: (
        is_given_secret(TOKEN, found["given"])
        and not (found["given"].isdigit() and len(found["given"]) < 6)
    ),
    "redis": lambda found: found.group().startswith("AUTH ") and _has_non_letter(found["redis"]),
    "link": lambda found: (
        _is_in_url(found) and (is_random(found["link"], 16) or is_digest(found["link"]))
    ),
}


def _has_non_letter(value: str) -> bool:
    return any(letter.isdigit() or letter in "!@#$%^&*?+~" for letter in value)


def _is_in_url(found: re.Match[str]) -> bool:
    return (
        re.search(
            r"https?://[^\s\"'`]{1,200}\Z",
            found.string[max(0, found.start() - 200) : found.start()],
        )
        is not None
    )


_PASSWORD_FILE = re.compile(
    r"-file(?<=pass-file|word-file|rase-file)(?:[ =]|[\"'],[ ]?[\"'])(?P<file>[\w./~$-]{1,120})"
)
_FILE_HEREDOC = re.compile(rf"[ ]*<<{_HEREDOC}")
_ECHOED = re.compile(
    rf"""(?:echo|printf)[ ]+(?:-\w+[ ]+|['"]?%s(?:\\n)?['"]?[ ]+)?{_Q}(?P<value>[^\s"'\\>|;][^"'\n>|;]{{2,200}}?){_Q}[ ]*>[ ]*\Z"""
)
_MAX_FILE_DISTANCE = 2_000
_MAX_FILE_USES = 6


def _detect_password_file(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    """Detect what is written to a file that the same commands pass on as that of a password."""
    found = _PASSWORD_FILE.match(scan.text, at)
    if found is None:
        return
    text, file = scan.text, found["file"]
    use, end = max(0, at - _MAX_FILE_DISTANCE), at + _MAX_FILE_DISTANCE
    for _ in range(_MAX_FILE_USES):
        use = text.find(file, use, end)
        if use < 0:
            return
        written = _ECHOED.search(text, max(0, use - 240), use) or (
            _FILE_HEREDOC.match(text, use + len(file))
            if ">" in text[max(0, use - 2) : use]
            else None
        )
        if written and not is_placeholder(written["value"]):
            yield make_secret_span(written.start("value"), written.end("value"), "password")
        use += len(file)


LITERAL_DETECTORS: LiteralDetectors = (
    (b"-file", _detect_password_file),
    *((stem, _make_detector(form)) for stem, form in _COMMAND_PATTERNS),
    (b"pass", _detect_htpasswd),
)
