"""The index of patterns: what has words of a request is found, what may not be used is not."""

from __future__ import annotations

from typing import Any

import pytest

from rekindle import Store
from rekindle.knowledge.pattern_index import TemplateStats, weigh_pattern_words
from rekindle.knowledge.text_matching import extract_terms
from rekindle.store.core.rows import encode_json
from rekindle.store.learning import template_index
from rekindle.store.learning.outcomes import JudgedCalls
from rekindle.types import (
    JudgedCall,
    Pattern,
    PatternStep,
    Seed,
    Template,
    UserStyle,
    replace_fields,
)
from tests.contract.messages import call, result, user


def pattern(asked: str, command: str = "make", **more: Any) -> Pattern:
    known: dict[str, Any] = {"id": f"{asked}|{command}", "kind": "example"}
    steps = (PatternStep("terminal", {"command": command}, "fine"),)
    return Pattern(steps=steps, asked=asked, **{**known, **more})


def asked(store: Store, text: str, **more: Any) -> list[str]:
    found = store.template_search.find_candidates(extract_terms(text), **more)
    return [one.pattern.asked for one in found.candidates]


def test_patterns_come_back_as_they_were_with_the_head_of_their_template(store: Store) -> None:
    one = pattern(
        "count the rows\ud800",
        id="p1",
        before=PatternStep("terminal", {"command": "wc"}),
        lesson="use rowctl",
        sessions=("s1", "s2"),
        seen_in=2,
        tainted=True,
    )
    seed = Seed("sys", ("tabs",), ("a.py",), UserStyle(3, 2.5, 0.1, 0.2, "short"))
    template = Template("rows", "Rows", tags=("x",), patterns=(one,), seed=seed, revision=4)
    template = replace_fields(template, task_type="odd\ud800")
    store.template_index.put(template, "stamp")
    (found,) = store.template_search.find_candidates(extract_terms("count rows")).candidates
    assert found.pattern == one
    assert found.template == replace_fields(template, patterns=())
    assert found.words == weigh_pattern_words(one)


def test_what_an_older_program_put_into_the_index_has_no_words_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_index, "encode_json", without_words)
    store.template_index.put(Template("t", "T", patterns=(pattern("count rows"),)), "1")
    (found,) = store.template_search.find_candidates(extract_terms("count rows")).candidates
    assert (found.pattern.asked, found.words) == ("count rows", None)


def without_words(fields: dict[str, Any]) -> str:
    return encode_json(
        {name: one for name, one in fields.items() if name != template_index.WORDS_KEY}
    )


def test_what_has_more_and_rarer_words_of_the_request_comes_first(store: Store) -> None:
    common = [pattern(f"build target number{n}", id=str(n)) for n in range(30)]
    special = pattern("build the invoices of march")
    store.template_index.put(Template("t", "T", patterns=(*common, special)), "1")
    found = asked(store, "build the invoices")
    assert found[0] == special.asked
    known = store.template_search.find_candidates(
        extract_terms("build the invoices, quixotically")
    ).word_counts
    assert known.total == 31
    assert known.words == {"build": 31, "invoic": 1}


def test_other_forms_of_a_word_and_endings_of_paths_are_found(store: Store) -> None:
    store.template_index.put(
        Template("t", "T", patterns=(pattern("deploying service x.toml"),)), "1"
    )
    assert asked(store, "deployed services")
    assert asked(store, "look at conf/other.toml")
    assert not asked(store, "look at conf/other.yaml")


def test_templates_that_wait_or_are_retired_are_not_looked_at(store: Store) -> None:
    one = pattern("count the rows")
    for state in ("quarantined", "retired"):
        store.template_index.put(Template("t", "T", patterns=(one,), state=state), state)
        assert asked(store, "count the rows") == []
    store.template_index.put(Template("t", "T", patterns=(one,)), "active")
    assert asked(store, "count the rows") == [one.asked]


def test_the_sessions_of_a_pattern_tell_where_and_whose_it_is(store: Store) -> None:
    session = store.begin(cwd="/home/ada/shop", owner="ada")
    store.append(session, user("hello"))
    for sessions, seen_in, owners in (
        ((session.id,), 1, {"ada"}),
        ((session.id, "gone"), 2, {"ada", None}),
        ((session.id,), 9, {"ada", None}),
    ):
        one = pattern("count the rows", sessions=sessions, seen_in=seen_in)
        store.template_index.put(Template("t", "T", patterns=(one,)), str(seen_in))
        (found,) = store.template_search.find_candidates(extract_terms("count rows")).candidates
        assert found.folders == {"/home/ada/shop"}
        assert found.owners == owners


def test_a_store_without_templates_and_a_request_without_words_find_nothing(store: Store) -> None:
    assert asked(store, "count the rows") == []
    store.template_index.put(Template("t", "T", patterns=(pattern("count"),)), "1")
    assert asked(store, "please do it") == []
    assert asked(store, "“\x00 ' \" <url> \ud800 数える") == []


def test_the_record_of_a_template_counts_the_first_calls_of_warm_sessions(store: Store) -> None:
    for arm, failed in (("warm", 2), ("warm", 1), ("cold", 10)):
        session = store.begin(template="rows", arm=arm)
        store.append(session, user("go"), call("terminal"), result("x"))
        (due,) = store.find_stale_sessions("1", session=session.id)
        calls = [_call(session.id, n, failed=n < failed or n >= 10) for n in range(14)]
        store.save_verdicts("1", [JudgedCalls(due, calls, 0, [])])
    records = store.template_search.load_stats(["rows", "other"])
    assert records == {"rows": TemplateStats(2, 20, 3), "other": TemplateStats()}


def _call(session: str, position: int, failed: bool) -> JudgedCall:
    return JudgedCall(
        session, position, 0, f"c{position}", "terminal", "terminal", position, "ok", failed, None,
        None, "r", 1.0,
    )  # fmt: skip


def test_others_are_found_whatever_they_are_about_but_nothing_tainted(store: Store) -> None:
    many = tuple(pattern(f"task number{n}", id=str(n)) for n in range(5))
    bad = pattern("bad", tainted=True)
    store.template_index.put(Template("t", "T", patterns=(*many, bad)), "1")
    found = store.template_search.sample_patterns(3, limit=5)
    assert sorted(one.pattern.id for one in found) == [str(n) for n in range(5)]


def test_what_was_put_in_for_other_words_is_not_taken_for_current(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.template_index.put(Template("t", "T", patterns=(pattern("count"),)), "17")
    assert store.template_index.load_stamps() == {"t": "17"}
    monkeypatch.setattr(template_index, "STAMP_PREFIX", "words 99: ")
    assert store.template_index.load_stamps() == {"t": ""}
