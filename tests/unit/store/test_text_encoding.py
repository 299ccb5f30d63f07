from __future__ import annotations

import unicodedata
from functools import cache

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.store.core.text_encoding import (
    ESCAPE,
    escape_text,
    fold_text,
    is_storable,
    prepare_for_index,
    replace_unstorable,
    split_words,
    unescape_text,
)

ANY = st.text(st.characters(categories=None, codec=None))
ODD = st.text(st.sampled_from(["\0", "\ud800", "\udfff", ESCAPE, "0", "f", "d", "8", "x", "é"]))


@given(text=st.one_of(ANY, ODD))
def test_escaped_text_comes_back(text: str) -> None:
    assert unescape_text(escape_text(text)) == text


@given(text=st.one_of(ANY, ODD))
def test_escaped_text_can_be_held_by_every_engine(text: str) -> None:
    held = escape_text(text)
    assert held.encode().decode() == held
    assert "\0" not in held
    assert is_storable(replace_unstorable(text))


@given(one=st.one_of(ANY, ODD), two=ODD)
def test_different_texts_stay_different(one: str, two: str) -> None:
    assert (escape_text(one) == escape_text(two)) == (one == two)


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters=["\0", ESCAPE])))
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    assert escape_text(text) is text
    assert replace_unstorable(text) == text
    assert is_storable(text)


def test_what_nobody_holds_is_replaced_for_showing() -> None:
    assert replace_unstorable(f"a\0b\ud800c{ESCAPE}d") == "a\ufffdb\ufffdc\ufffdd"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World!", ["hello", "world"]),
        ("read_file src/app.py --dry-run", ["read", "file", "src", "app", "py", "dry", "run"]),
        ("Café STRASSE Straße Łódź", ["cafe", "strasse", "strasse", "łodz"]),
        ("cafe\u0301", ["cafe"]),
        ("ﬁle ＡＢＣ ①", ["file", "abc", "1"]),
        ("İstanbul", ["istanbul"]),
        ("日本語のテスト", list("日本語のテスト")),
        ("run测试now", ["run", "测", "试", "now"]),
        ("한국어", list("한국어")),
        ("x2 3.14 v1_0", ["x2", "3", "14", "v1", "0"]),
        ("Ελλάδα Привет", ["ελλαδα", "привет"]),
        ("", []),
        ("!?… \0 \ud800", []),
        ("a\0b", ["a", "b"]),
    ],
)
def test_the_words_of_a_text(text: str, expected: list[str]) -> None:
    assert list(split_words(text)) == expected


def test_marks_that_change_a_letter_are_kept() -> None:
    assert fold_text("が") == "が"
    assert fold_text("ＡÉ") == "ae"


@given(text=st.text())
def test_words_are_folded_and_without_borders(text: str) -> None:
    for word in split_words(text):
        assert word
        assert list(split_words(word)) == [word]
        assert not any(unicodedata.category(char)[0] in "ZP" for char in word)


@given(text=st.text())
def test_an_index_is_given_exactly_the_words(text: str) -> None:
    assert list(split_words(prepare_for_index(text))) == list(split_words(text))


@given(text=st.text())
def test_words_do_not_depend_on_case(text: str) -> None:
    assert list(split_words(text.casefold())) == list(split_words(text)) or not text.isascii()
    if text.isascii():
        assert list(split_words(text.upper())) == list(split_words(text))


NEAR = st.text(
    st.sampled_from(
        "aZ0_ -→✓…™½éÉßİżψ日本語カガｶﾞ한각🙂⚠\ufe0f\u0301\u0338\u1112\u1161\u00ad\ue0b0\ud83d"
    )
)


@given(text=st.one_of(ANY.filter(lambda text: "\0" not in text), NEAR))
def test_sqlite_finds_exactly_our_words_in_what_it_is_given(text: str) -> None:
    assert tokens(prepare_for_index(text)) == tokens(" ".join(split_words(text)))


def tokens(text: str) -> list[str]:
    """The words that SQLite's index makes of a text."""
    tokenize = database().fts5_tokenizer("unicode61", ["remove_diacritics", "0"])
    data = text.encode("utf-8", "replace")
    found = tokenize(data, apsw.FTS5_TOKENIZE_DOCUMENT, None)
    return [words[2] for words in found]


@cache
def database() -> apsw.Connection:
    return apsw.Connection(":memory:")
