"""Keep of a sentence only words that are known to be harmless.

A name, a password or an address can be any word, so unknown words are left out (`…`), and a sentence
with too many of them is dropped. Known are common English words, common words of software work, and the
names that the caller vouches for, such as files of the repository.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from rekindle.judging.rules.text_patterns import split_words

GAP = "…"
MIN_WORDS = 3
MIN_KNOWN_SHARE = 0.75
_TOKEN = re.compile(r"\S+")
_EDGES = "`'\"“”‘’()[]{}<>.,;:!?*_"
_SMALL_NUMBER = re.compile(r"\d{1,2}%?")

_COMMON = split_words(
    """
    a able about above across act actually add after again against ago agree all allow almost alone
    along already also although always am among an and another answer any anyone anything anyway
    apart appear approach are around as ask assume at available avoid away back bad based be because
    become been before began begin behind being believe below beside best better between beyond big
    bigger both bring broad but by call came can cannot care careful carefully case cause certain
    change cheap check choose clean clear clearly close come comes coming common compare complete
    completely concise confirm consider consistent contain continue correct correctly cost could
    count course cover create current currently cut day days decide deep default depend describe
    detail details did didn't differ difference different direct directly do does doesn't doing
    don't done down draw drop due during each earlier early easy either else empty end enough ensure
    entire equal especially even ever every everybody everyone everything exact exactly example
    except exist expect explain explicit extra fact fail failed failing fails fall false far fast
    few fewer final finally find fine finish first fit fix fixed follow following for force form
    found four free fresh from full further gave general get gets getting give given go goes going
    gone good got great green group had half hand happen hard has have having he help her here high
    hold how however i idea if important in include including instead into is isn't issue it it's
    its itself just keep kept kind knew know known large larger last late later learn least leave
    left less let like likely limit line list little live long longer look lot low made main make
    makes making many matter may maybe me mean means meet mention might mind minimal miss missing
    mistake mix moment more most move much must my name near necessary need needed needs neither
    never new next nice no nobody none nor normal not note nothing now number obvious of off often
    ok okay old older on once one only onto open or order other others our out over own page part
    particular pass passed passes passing past per perfect perhaps place plain plan please point
    possible prefer present pretty problem proceed proper properly provide put question quick
    quickly quite rather read ready real really reason recent red reduce related relevant remain
    remember remove repeat replace request require rest result return review right rule run running
    runs safe said same save saw say see seem seen send separate set several shall she short should
    show side similar simple simply since single sit size skip slow small so solve some someone
    something sometimes soon sort sound specific stand start stay step steps still stop straight
    strict strictly strong style such suggest sure take taken talk tell ten than thank thanks that
    the their them then there these they thing things think third this those though three through
    throughout thus time times to today together told tomorrow too took top total toward true try
    trying turn twice two under understand unless until up upon us use used useful user uses using
    usual usually value very via wait want wanted wants was way we week well went were what when
    where whether which while who whole whose why wide will with within without won't wonder word
    words work worked working works worse would write written wrong yes yesterday yet you your
    yourself
    """
)
_SOFTWARE = split_words(
    """
    access agent algorithm alias api app application argument arguments array assert assertion async
    backend backup bar base benchmark binary block branch browser buffer bug build builds bundle
    button byte bytes cache callback changelog changes character characters child class classes
    cleanup cli client clone code codebase column columns command commands comment comments commit
    commits compile compiler component components config configuration connection console constant
    container context contract contributor convention conventions copy coverage crash css customer
    data database date debug dependencies dependency deploy deployment design desktop developer
    development diff directory docker docs docstring docstrings documentation documented driver
    duplicate edit editor email emoji emojis encoding endpoint engine engineer english entry enum
    environment error errors event events exception exceptions executable export expression feature
    features fetch field fields file files filter fixture flag flags folder folders format formatter
    formatting framework frontend function functions git github go handler hash header heading
    helper helpers hook hooks html http image implement implementation import imports indent index
    input install instance instruction instructions int integration interface internal javascript
    job json key keyword label language layout legacy level library license lint linter literal
    literals load lock log logger logging logs lookup loop loops lowercase macro main markdown
    master match memory merge message messages metadata method methods migration migrations mock
    mocks model module modules naming network node notebook null object offline online operator
    option optional options output outputs package packages parallel parameter parameters parse
    parser patch path paths pattern performance permission pipeline platform plugin port prefix
    print process production program project projects prompt property protocol pull push python
    query queue react readme record refactor refactoring reference regex regression release remote
    render repo repository reset response retry review root route router row rows runtime rust
    schema scope screen script scripts search section security server service session sessions
    setting settings setup shell signature snapshot software source spaces spec sql stack staging
    state statement static status storage store string strings struct style subject suffix suite
    summary support switch syntax system tab table tables tabs tag tags target task tasks team
    template terminal test tested testing tests text thread timeout title todo token tool tools
    trace transaction tree type typed types typescript typing unit update updates uppercase utility
    valid validate validation variable variables version versions view warning warnings web website
    whitespace widget window windows workflow workspace worktree wrapper yaml
    """
)
_KNOWN_WORDS = _COMMON | _SOFTWARE


def keep_sentence(text: str, names: Collection[str] = ()) -> str | None:
    """Return the sentence with gaps for unknown words, or None if too little of it is left."""
    kept: list[str] = []
    known = total = 0
    for token in _TOKEN.findall(text):
        word = token.strip(_EDGES)
        if not word:
            continue
        total += 1
        if _is_known(word, names):
            known += 1
            kept.append(token if token.isascii() else word)
        elif kept[-1:] != [GAP]:
            kept.append(GAP)
    if known < MIN_WORDS or known < MIN_KNOWN_SHARE * total:
        return None
    return " ".join(kept)


def is_plain(text: str) -> bool:
    """Return whether a text consists of known words alone."""
    words = [token.strip(_EDGES) for token in _TOKEN.findall(text)]
    return any(words) and text.isascii() and all(_is_known(word, ()) for word in words if word)


def _is_known(word: str, names: Collection[str]) -> bool:
    lower = word.lower()
    return (
        lower in _KNOWN_WORDS
        or word in names
        or _SMALL_NUMBER.fullmatch(word) is not None
        or ("-" in lower and all(part in _KNOWN_WORDS for part in lower.split("-")))
    )
