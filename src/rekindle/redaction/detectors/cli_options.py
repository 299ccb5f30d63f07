"""Options of single programs that take a password, and passwords that are piped into programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rekindle.redaction.scanner import NOTHING, AtStem, Look, Span, Stems, secret

from .entropy import is_placeholder, is_random
from .secret_names import announced

_WORD = (
    r"""(?:"(?P<double>[^"\n]{1,200})"|'(?P<single>[^'\n]{1,200})'"""
    r"""|(?P<bare>[^\s"'|;&<>`\\][^\s"'|;&<>`]{0,199}))"""
)
_OPTION = re.compile(r" -(?:([puwakPUWc])|-(?:proxy-)?user[ =])")
_VALUE = re.compile(rf"[ ]{{0,4}}\\?\"?{_WORD}")
_JOINED = re.compile(rf"{_WORD}")

# program → the option with its password; a small p may be joined with it
_SPACED = {
    "p": r"sshpass|docker[ ]login|podman[ ]login|helm[ ]registry|mongo\w*|twine|az[ ]login|oc[ ]login"
    r"|rabbitmqadmin|lftp|influx|cqlsh|neo4j|cypher-shell|clickhouse\S*|nexus|buildah[ ]login|impala\S*",
    "P": r"zip|unzip|sqlcmd|bcp|tsql|isql|ipmitool|wireless|freebcp|zipcloak",
    "w": r"ldap\w+|dsconf|add-generic-password|add-internet-password|db2",
    "W": r"dsmc|ktpass",
    "a": r"redis-cli|keydb-cli|valkey-cli",
    "k": r"openssl[ ]\w+",
    "c": r"snmp\w+",
}
_TIGHT = r"mysql\w*|mariadb\w*|7z[ar]?|sshpass|rar|unrar|mongo\w*"
_PAIRS = (
    r"curl|wget|https?|xh|ab|lftp|smbclient|rpcclient|wrk|siege|artifactory|elasticsearch\S*|nxc"
)


class _Programs:
    """Does one of these programs stand before an option, in the same command?"""

    def __init__(self, names: str, ends: str = "|;&") -> None:
        self._pattern = re.compile(rf"\b(?:{names})\b[^{ends}]*\Z")
        # A text that has none of the names is told by that, which is far cheaper than the pattern.
        plain = (
            re.sub(r"\\.[*+]?|\[.*|.\?", "", name) for name in names.replace("[ ]", " ").split("|")
        )
        self._names = tuple(plain)

    def stand_in(self, before: str) -> bool:
        for name in self._names:
            if name in before:
                return self._pattern.search(before) is not None
        return False


_PROGRAMS = {letter: _Programs(names) for letter, names in _SPACED.items()}
_TIGHT_PROGRAMS = _Programs(_TIGHT)
_PAIR_PROGRAMS = _Programs(_PAIRS, "|;")
_HTPASSWD = re.compile(r"passwd\b[^|;&\n]{0,120}?-(?=\w*b)\w++[ ]+(?:\S+[ ]+){2}(\S{3,200})")
_PAIR = re.compile(r"""[ ]{0,4}\\{0,3}["']?[^\s:%"',]{0,80}[:%,](?P<password>[^\s"'\\]{2,200})""")

# Everything else that is found by a word of its own: the stem, and the form that begins with it.
_Q = r"""\\{0,3}["']?"""
_VALUES = rf"""{_Q}(?P<value>[^\s"'\\]{{3,400}})"""
_FORMS: tuple[tuple[bytes, str], ...] = (
    # echo PASSWORD | something that asks for one
    (b"echo ", rf"""echo[ ]+(?:-\w+[ ]+)?{_Q}(?P<value>[^\s"'|\\][^"'|\n\\]{{1,200}}?){_Q}[ ]*\|[ ]*
        (?: sudo[ ]+(?:-\w+[ ]+)*-\w*S
          | (?:sudo[ ]+)?(?:chpasswd|passwd|smbpasswd|pdbedit|cryptsetup|kinit)\b
          | (?:docker|podman|helm|oras|skopeo|crane|buildah)[ ](?:registry[ ])?login
          | gh[ ]auth[ ]login | su[ ] | gpg[ ].{{0,60}}passphrase
          | \w+[ ].{{0,80}}--(?:password|token|secret)-?stdin )"""),
    (b"login", r"""login[ ]+(?:--?\w+(?:[ =]\S+)?[ ]+){0,3}
        (?P<random>[A-Za-z0-9_.-]{20,300})(?=[\s"'`;&|]|\Z)"""),
    (b"identified ", r"""identified[ ]+(?:with[ ]+[\w']+[ ]+)?(?:by|as)[ ]+(?:password[ ]+)?
        \\{0,3}["'](?P<value>[^"'\n\\]{1,200})"""),
    (b"from-literal", rf"from-literal[= ]{_Q}[\w.-]{{1,80}}={_VALUES}"),
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
    (b"--body", rf"""--body[ =]{_Q}(?P<random>[A-Za-z0-9_.+/=-]{{12,400}})(?=[\s"'`;&|\\]|\Z)"""),
)  # fmt: skip


def options(look: Look) -> Iterator[Span]:
    """Passwords that a program takes behind a single letter."""
    for found in _OPTION.finditer(look.text):
        if one := _option(look.text, found):
            yield one


def behind_options(words: Sequence[str]) -> Iterator[int]:
    """Which words of a command that is given word by word are passwords."""
    for number in range(1, len(words)):
        option, word = words[number - 1], words[number]
        if not option.startswith("-") or word.startswith("-") or is_placeholder(word):
            continue
        says, program = announced(option), _PROGRAMS.get(option[1:])
        if says is not None:
            is_password = says.strong or is_random(word, 10)
        else:
            is_password = program and program.stand_in(" ".join((*words[:number], "")))
        if is_password:
            yield number


def _form(form: str) -> AtStem:
    pattern = re.compile(form, re.X | re.I)

    def rule(look: Look, at: int) -> Iterable[Span]:
        if (found := pattern.match(look.text, at)) and (one := _named(found)):
            return (one,)
        return NOTHING

    return rule


def _htpasswd(look: Look, at: int) -> Iterable[Span]:
    if look.low.startswith(b"ht", max(0, at - 2)) and (found := _HTPASSWD.match(look.text, at)):
        return (secret(found.start(1), found.end(1), "password"),)
    return NOTHING


def _option(text: str, found: re.Match[str]) -> Span | None:
    letter, at = found[1] or "u", found.end()
    line = text.rfind("\n", max(0, at - 240), at)
    before = text[max(line, 0, at - 240) : at]
    if letter in "uU":
        pair = _PAIR.match(text, at)
        if pair and not pair["password"].isdigit() and _PAIR_PROGRAMS.stand_in(before):
            return _masked(pair, "password")
        return None
    spaced = text[at : at + 1] == " "
    if letter == "p" and not spaced:
        if not _TIGHT_PROGRAMS.stand_in(before):
            return None
        return _first(_JOINED.match(text, at), 3)
    program = _PROGRAMS.get(letter)
    if program is None or not program.stand_in(before):
        return None
    return _first(_VALUE.match(text, at), 3 if letter != "c" else 6)


def _first(word: re.Match[str] | None, least: int) -> Span | None:
    if word is None or word.lastgroup is None or len(word[word.lastgroup]) < least:
        return None
    return _masked(word, word.lastgroup)


def _masked(found: re.Match[str], group: str) -> Span | None:
    if is_placeholder(found[group]) or found[group].startswith("-"):
        return None
    return secret(found.start(group), found.end(group), "password")


def _named(found: re.Match[str]) -> Span | None:
    group = found.lastgroup
    if group is None or (group == "random" and not is_random(found[group], 16)):
        return None
    return _masked(found, group)


STEMS: Stems = (
    *((stem, _form(form)) for stem, form in _FORMS),
    (b"pass", _htpasswd),
)
