from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekindle import Message, Store, ToolCall
from rekindle.errors import InvalidInput
from rekindle.store import Filter
from rekindle.store.core.text_encoding import split_words
from rekindle.types import make_foreign_message
from tests.conftest import Clock
from tests.contract.messages import answer, call, found, result, started, texts, user

Reopened = Callable[[], Store]
ONE_STORE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


# -- what a query can say


def test_all_words_must_occur_in_any_order(store: Store) -> None:
    started(store, "parse the timeout", "timeout, then parse", "only parse", "only timeout")
    assert found(store, "parse timeout") == ["parse the timeout", "timeout, then parse"]
    assert found(store, "parse missing") == []


def test_a_word_is_a_whole_word(store: Store) -> None:
    started(store, "timeouts are long", "a timeout")
    assert found(store, "timeout") == ["a timeout"]


def test_a_phrase_is_found_in_its_order_only(store: Store) -> None:
    started(store, "no such file here", "such a file, no", "no. Such file!")
    assert found(store, '"no such file"') == ["no such file here", "no. Such file!"]
    assert found(store, '"no such file" here') == ["no such file here"]


def test_a_prefix_finds_words_that_begin_so(store: Store) -> None:
    started(store, "timeout", "timely", "overtime", "tim")
    assert found(store, "time*") == ["timely", "timeout"]
    assert found(store, "over* time") == []


def test_either_side_of_or_is_enough(store: Store) -> None:
    started(store, "yaml file", "toml file", "json file", "yaml")
    assert found(store, "yaml OR toml") == ["toml file", "yaml", "yaml file"]
    assert found(store, "file yaml OR toml") == ["toml file", "yaml file"]
    assert found(store, '"json file" OR toml') == ["json file", "toml file"]


def test_a_message_with_an_excluded_word_or_phrase_is_not_found(store: Store) -> None:
    started(
        store, "a timeout and a retry", "a timeout", "Timeout as expected", "expected as timeout"
    )
    assert found(store, "timeout -retry -expected") == ["a timeout"]
    assert found(store, 'timeout -"as expected"') == [
        "a timeout",
        "a timeout and a retry",
        "expected as timeout",
    ]
    assert found(store, "timeout -exp* -RETRY") == ["a timeout"]
    assert found(store, "timeout -missing OR retry -and") == [
        "Timeout as expected",
        "a timeout",
        "expected as timeout",
    ]
    assert found(store, "-timeout") == []
    assert len(found(store, "timeout - -- -!")) == 4


def test_an_excluded_identifier_is_one_as_it_is_written(store: Store) -> None:
    started(store, "call read_file", "call read file", "call --dry-run", "rm -rf now")
    assert found(store, "call -read_file") == ["call --dry-run", "call read file"]
    assert found(store, "call --dry-run") == ["call --dry-run"]
    assert found(store, '"rm -rf"') == ["rm -rf now"]


def test_a_word_anywhere_in_a_long_message_excludes_it(store: Store) -> None:
    long = "needle " + "hay " * 20_000 + "thistle"
    started(store, long, "needle in short hay")
    assert found(store, "needle -thistle") == ["needle in short hay"]
    assert len(found(store, "needle hay -thorn")) == 2


@pytest.mark.parametrize(
    ("name", "apart"),
    [
        ("read_file", "read file"),
        ("src/app.py", "src app py"),
        ("--dry-run", "dry run"),
        ("foo.bar_baz/qux-1", "foo bar baz qux 1"),
        ("__init__.py", "init py"),
        ("user@example.com", "user example com"),
        ("C:\\temp\\x", "c temp x"),
        ("std::vector", "std vector"),
    ],
)
def test_an_identifier_is_found_as_it_is_written(store: Store, name: str, apart: str) -> None:
    started(store, f"we call {name} here", f"we call {apart} here", f"({name.upper()})")
    expected = sorted([f"we call {name} here", f"({name.upper()})"])
    assert found(store, name) == expected
    assert found(store, f"call {name}") == [f"we call {name} here"]
    assert len(found(store, f'"{apart}"')) == 3


def test_an_identifier_in_an_or_is_found_as_it_is_written(store: Store) -> None:
    started(store, "foo bar", "foo_bar", "a zebra")
    assert found(store, "foo_bar OR zebra") == ["a zebra", "foo_bar"]
    assert found(store, "zebra OR foo_bar") == ["a zebra", "foo_bar"]


def test_the_beginning_of_an_identifier_is_found(store: Store) -> None:
    started(store, "read_file_lines", "read filed", "read_lines")
    assert found(store, "read_fil*") == ["read_file_lines"]


def test_any_part_of_a_chinese_or_japanese_sentence_is_found(store: Store) -> None:
    started(
        store,
        "我们需要修复数据库连接的超时问题",
        "データベース接続のタイムアウトを修正する",
        "数据很多",
    )
    assert found(store, "数据库") == ["我们需要修复数据库连接的超时问题"]
    assert found(store, "超时问题") == ["我们需要修复数据库连接的超时问题"]
    assert found(store, "库数") == []
    assert found(store, "接続") == ["データベース接続のタイムアウトを修正する"]
    assert found(store, "タイムアウト") == ["データベース接続のタイムアウトを修正する"]
    assert found(store, "修复 超时") == ["我们需要修复数据库连接的超时问题"]
    assert found(store, "数据") == ["我们需要修复数据库连接的超时问题", "数据很多"]


def test_korean_and_thai_are_found_by_parts(store: Store) -> None:
    started(store, "데이터베이스를 고쳐 주세요", "กรุณาแก้ไขฐานข้อมูล")
    assert found(store, "데이터베이스") == ["데이터베이스를 고쳐 주세요"]
    assert found(store, "ฐานข้อมูล") == ["กรุณาแก้ไขฐานข้อมูล"]


def test_mixed_scripts_are_found_together(store: Store) -> None:
    started(store, "请运行pytest测试", "请运行 pytest 测试")
    assert len(found(store, "pytest")) == 2
    assert len(found(store, "运行pytest")) == 2


def test_case_and_accents_do_not_matter(store: Store) -> None:
    started(store, "Die Straße nach Łódź", "CAFÉ au lait", "cafe\u0301 noir", "Ünïcödé")
    assert found(store, "cafe") == ["CAFÉ au lait", "cafe\u0301 noir"]
    assert found(store, "café") == ["CAFÉ au lait", "cafe\u0301 noir"]
    assert found(store, "STRASSE") == ["Die Straße nach Łódź"]
    assert found(store, "unicode") == ["Ünïcödé"]
    assert found(store, "ÜNÏCÖDÉ") == ["Ünïcödé"]


def test_full_width_and_ligatures_are_what_they_stand_for(store: Store) -> None:
    started(store, "ＡＰＩ ｋｅｙ", "the ﬁle")
    assert found(store, "api key") == ["ＡＰＩ ｋｅｙ"]
    assert found(store, "file") == ["the ﬁle"]


@ONE_STORE
@given(query=st.text(max_size=60))
def test_no_query_is_an_error(store: Store, query: str) -> None:
    if not store.recent():
        started(store, "some text with words", "日本語 and (brackets)")
    for order in ("best", "newest"):
        hits = store.search(query, order=order)
        assert all(hit.message.text for hit in hits)
        if not list(split_words(query)):
            assert hits == []


@pytest.mark.parametrize(
    "query",
    [
        "", " ", '"', '""', '"unclosed phrase', "*", "**", "a*b", "OR", "OR OR", "a OR", "AND NOT", "(",
        "NEAR(a b)", "text:", "text:words", "^words", "{a b}:c", "a + b", "';--", "\\", "%",
        "_", "'", "a & b | !c <-> d", "words:*", "\0", "\ud800", "\U0010fffe", "é" * 600, "🎉",
    ],
)  # fmt: skip
def test_broken_syntax_is_searched_for_as_words(store: Store, query: str) -> None:
    started(store, "these are words", "a b c d", f"{query} as it is")
    wanted = set(split_words(query)) - {"or"}
    for text in found(store, query):
        assert wanted & {"a", "b", "text"} or wanted <= set(split_words(text))
    if wanted and query not in ("AND NOT", "a*b"):
        assert f"{query} as it is" in found(store, query)


def test_a_pasted_page_is_a_query_too(store: Store) -> None:
    page = " ".join(f"word{number}" for number in range(3000))
    started(store, page, "word1 word2")
    assert found(store, page) == [page]
    assert found(store, f'"{page[:200]}"') == [page]
    assert len(found(store, " OR ".join(page.split()))) == 2
    assert found(store, f"{page} missing") == []


@ONE_STORE
@given(text=st.text(min_size=1, max_size=80))
def test_every_word_that_was_said_is_found(store: Store, text: str) -> None:
    session = started(store, text)
    for word in set(split_words(text)):
        assert texts(store, session) == [text]
        assert found(store, word, session=session) == [text], word


# -- where it looks


def test_calls_arguments_results_and_reasoning_are_searched(store: Store) -> None:
    session = store.begin()
    store.append(
        session,
        Message(
            role="assistant",
            reasoning="ponder deeply",
            tool_calls=(
                ToolCall(
                    "1", "grep_files", '{"pattern": "needle\\u00e9", "deep": [{"n": "inner"}]}'
                ),
                ToolCall("2", "other", {"path": "given/as/mapping"}),
                ToolCall("3", "third", "broken { json"),
            ),
        ),
        Message(role="user", content=[{"type": "text", "text": "in a part"}, {"type": "image"}]),
        result("output lines", name="grep_files"),
    )
    for query in ("ponder", "grep_files", "needlee", "inner", "given/as/mapping", "broken json"):
        assert 0 in {hit.message.position for hit in store.search(query)}, query
    assert [hit.message.position for hit in store.search('"in a part"')] == [1]
    assert [hit.message.position for hit in store.search("output")] == [2]
    assert store.search("pattern") == []  # a key says what every call of the tool says


def test_a_message_is_found_at_once_from_here_and_from_another_store(
    store: Store, reopened: Reopened
) -> None:
    other = reopened()
    assert found(other, "needle") == []
    session = started(store, "the needle")
    assert found(store, "needle") == ["the needle"]
    assert found(other, "needle") == ["the needle"]
    other.append(session.id, user("needle two"))
    assert found(store, "needle") == ["needle two", "the needle"]


def test_messages_are_found_while_hundreds_follow(store: Store, reopened: Reopened) -> None:
    other, session = reopened(), store.begin()
    for number in range(200):
        store.append(session, user(f"needle n{number}"))
        if number % 20 == 0:
            assert len(store.search("needle", limit=500)) == number + 1
            assert len(other.search("needle", limit=500)) == number + 1
            assert found(other, f"n{number}") == [f"needle n{number}"]
    assert found(other, "n0 OR n100 OR n199") == ["needle n0", "needle n100", "needle n199"]
    assert store.verify() == []


def test_words_far_apart_in_a_long_message_are_both_found(store: Store) -> None:
    filler = " ".join(f"w{number}" for number in range(12_000))
    session = started(store, f"alpha {filler} omega")
    for query in ("alpha omega", "alpha w5999 omega", '"w11999 omega"', "alpha w60*", '"alpha w0"'):
        assert [hit.session.id for hit in store.search(query)] == [session.id], query
    assert store.search("alpha missing") == []
    assert len(store.search("w1 OR w9000")) == 1


def test_every_phrase_of_a_long_message_is_found(store: Store) -> None:
    started(store, " ".join(f"w{number}" for number in range(9_000)))
    for start in (0, 3_965, 3_998, 3_999, 4_000, 7_930, 7_999, 8_995):
        phrase = " ".join(f"w{start + step}" for step in range(5))
        assert len(store.search(f'"{phrase}"')) == 1, phrase


def test_a_phrase_behind_hundreds_of_the_same_word_is_found(store: Store) -> None:
    started(store, "的" * 400 + "人", "self " * 1000 + "destructs")
    assert len(store.search("的人")) == 1
    assert len(store.search('"self destructs"')) == 1
    assert store.search('"destructs self"') == []


def test_a_very_long_word_is_found(store: Store) -> None:
    token = "eyJhbGciOi" * 500
    started(store, f"token {token}", "日" * 3000)
    assert len(store.search(token)) == 1
    assert len(store.search("日" * 20)) == 1


# -- filters


def spoken(store: Store, clock: Clock) -> tuple[str, str]:
    """Two sessions with the same words under every filter."""
    one = store.begin(source="telegram", owner="ada", id="one")
    store.append(
        one,
        user("needle asked"),
        call("grep", '{"q": "needle called"}'),
        result("needle result"),
        answer("needle answered"),
    )
    clock.forward(100)
    two = store.begin(source="cli", owner="eve", id="two")
    store.append(two, user("needle elsewhere"), result("needle named", id="x", name="cat"))
    return one.id, two.id


def positions(store: Store, **options: object) -> set[tuple[str, int | None]]:
    hits = store.search("needle", limit=100, **options)  # pyright: ignore
    return {(hit.session.id, hit.message.position) for hit in hits}


def test_hits_can_be_limited_by_source_role_session_and_owner(store: Store, clock: Clock) -> None:
    one, two = spoken(store, clock)
    assert positions(store) == {(one, 0), (one, 1), (one, 2), (one, 3), (two, 0), (two, 1)}
    assert positions(store, source="cli") == {(two, 0), (two, 1)}
    assert positions(store, owner="ada", role="user") == {(one, 0)}
    assert positions(store, role="tool") == {(one, 2), (two, 1)}
    assert positions(store, session=one, role="assistant") == {(one, 1), (one, 3)}
    assert positions(store, session=store.session(two)) == {(two, 0), (two, 1)}
    assert positions(store, where=Filter(messages=(("<", 3),))) == {(two, 0), (two, 1)}
    assert positions(store, where=Filter.parse("calls=1"), role="user") == {(one, 0)}
    assert positions(store, source="nowhere") == set()


def test_hits_can_be_limited_by_time(store: Store, clock: Clock) -> None:
    one, two = spoken(store, clock)
    assert positions(store, since=clock.now) == {(two, 0), (two, 1)}
    assert positions(store, until=clock.now, role="user") == {(one, 0)}
    assert positions(store, since=clock.now - 100, until=clock.now - 99, role="user") == {(one, 0)}
    assert positions(store, since=clock.now + 1) == set()


def test_hits_can_be_limited_to_a_tool_its_calls_and_its_results(
    store: Store, clock: Clock
) -> None:
    one, two = spoken(store, clock)
    assert positions(store, tool="grep") == {(one, 1), (one, 2)}
    assert positions(store, tool="grep", role="tool") == {(one, 2)}
    assert positions(store, tool="cat") == {(two, 1)}
    for tool in ("gre", "GREP", "%", "g_ep", "", "grep cat", "\0"):
        assert positions(store, tool=tool) == set(), tool


def test_a_result_without_a_name_belongs_to_the_tool_that_was_called_long_before(
    store: Store,
) -> None:
    session = store.begin()
    calls = tuple(ToolCall(f"c{number}", f"tool_{number}") for number in range(60))
    store.append(session, Message(role="assistant", tool_calls=calls))
    for number in range(60):
        store.append(session, result("needle", id=f"c{number}"))
    for number in (0, 30, 59):
        assert positions(store, tool=f"tool_{number}") == {(session.id, number + 1)}


def test_a_role_that_no_engine_holds_as_it_is_can_be_asked_for(store: Store) -> None:
    session = store.begin()
    store.append(session, make_foreign_message("r\0\ud800", content="needle"))
    assert positions(store, role="r\0\ud800") == {(session.id, 0)}
    assert positions(store, role="\ud800") == set()


def test_a_limit_that_is_none_is_refused(store: Store) -> None:
    for wrong in ({"limit": 0}, {"offset": -1}, {"context": -1}):
        with pytest.raises(InvalidInput, match="limit must be 1 or more"):
            store.search("x", **wrong)  # pyright: ignore


# -- hits


def test_a_hit_says_where_it_is_and_what_stands_around(store: Store) -> None:
    session = started(store, "one", "two", "the needle", "four", "five", title="Plan")
    (hit,) = store.search("needle")
    assert (hit.session, hit.session.title) == (session, "Plan")
    assert (hit.message.content, hit.message.position) == ("the needle", 2)
    assert hit.snippet == "the «needle»"
    assert [message.content for message in hit.before] == ["two"]
    assert [message.content for message in hit.after] == ["four"]
    (hit,) = store.search("needle", context=9)
    assert [message.content for message in hit.before] == ["one", "two"]
    assert [message.content for message in hit.after] == ["four", "five"]
    (hit,) = store.search("needle", context=0)
    assert (hit.before, hit.after) == ((), ())


def test_what_stands_around_never_comes_from_another_session(store: Store) -> None:
    started(store, "before")
    started(store, "the needle")
    started(store, "after")
    (hit,) = store.search("needle", context=5)
    assert (hit.before, hit.after) == ((), ())


def test_what_stands_around_steps_over_what_was_rewound(store: Store) -> None:
    session = started(store, "one", "two", "three", "four")
    store.undo(session, turns=2)
    store.append(session, user("the needle"))
    store.append(session, user("five"), user("six"))
    store.undo(session, turns=2)
    store.append(session, user("seven"), user("eight"))
    (hit,) = store.search("needle", context=1)
    assert [message.content for message in hit.before] == ["two"]
    assert [message.content for message in hit.after] == ["seven"]


def test_a_whole_conversation_can_come_as_context(store: Store) -> None:
    session = store.begin()
    store.append(session, *(user(f"needle {number}") for number in range(20)))
    hits = store.search("needle", context=20_000)
    assert all(len(hit.before) + len(hit.after) == 19 for hit in hits)


def test_a_snippet_marks_every_match_near_the_first(store: Store) -> None:
    started(store, "x " * 300 + "here the Needle is, a needle\nindeed " + "y " * 300)
    (hit,) = store.search("needle")
    assert "the «Needle» is, a «needle» indeed" in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert len(hit.snippet) < 200


def test_a_snippet_marks_phrases_identifiers_accents_and_parts_of_sentences(store: Store) -> None:
    started(
        store, "run read_file now", "un café noir", "修复数据库连接", "no such file", "timeouts"
    )
    for query, marked in (
        ("read_file", "«read_file»"),
        ("cafe", "«café»"),
        ("数据库", "«数据库»"),
        ('"no such file"', "«no such file»"),
        ("timeo*", "«timeouts»"),
    ):
        (hit,) = store.search(query)
        assert marked in hit.snippet


def test_more_words_of_the_query_come_first(store: Store) -> None:
    started(store, "needle " + "filler " * 200, "needle needle needle", "needle " + "other " * 100)
    assert store.search("needle")[0].message.content == "needle needle needle"


def test_the_newest_come_first_on_request(store: Store, clock: Clock) -> None:
    one = started(store, "needle 1")
    clock.forward(10)
    started(store, "needle 2")
    clock.forward(10)
    store.append(one, user("needle 3"), user("needle 4"))
    hits = store.search("needle", order="newest")
    assert [hit.message.content for hit in hits] == [f"needle {n}" for n in (4, 3, 2, 1)]
    hits = store.search("needle", order="newest", session=one)
    assert [hit.message.content for hit in hits] == [f"needle {n}" for n in (4, 3, 1)]


def test_hits_are_paged_without_gap_or_repeat(store: Store, clock: Clock) -> None:
    session = store.begin()
    for number in range(100):
        clock.forward(1)
        store.append(session, user(f"needle {number}"))
    for order in ("best", "newest"):
        pages = [store.search("needle", limit=7, offset=start, order=order)  # pyright: ignore
                 for start in range(0, 105, 7)]  # fmt: skip
        positions = [hit.message.position for page in pages for hit in page]
        assert sorted(positions) == list(range(100))
    assert positions == list(reversed(range(100)))


def test_words_copied_by_a_fork_are_listed_once(store: Store) -> None:
    parent = started(store, "the needle", "more")
    child = store.fork(parent)
    grandchild = store.fork(child)
    store.append(grandchild, user("own needle"))
    assert [(hit.session.id, hit.message.content) for hit in store.search("needle", order="newest")
            ] == [(grandchild.id, "own needle"), (parent.id, "the needle")]  # fmt: skip
    assert found(store, "needle", session=child) == ["the needle"]


def test_words_copied_by_a_fork_are_found_there_when_their_origin_is_gone(
    store: Store, clock: Clock
) -> None:
    parent = started(store, "the needle")
    child = store.fork(parent)
    store.undo(parent)
    assert [hit.session.id for hit in store.search("needle")] == [child.id]
    store.redo(parent)
    assert [hit.session.id for hit in store.search("needle")] == [parent.id]
    store.rename(parent, "goes")
    store.end(parent, "done")
    store.archive(Filter(title="goes"))
    assert [hit.session.id for hit in store.search("needle")] == [child.id]
    store.restore(parent.id)
    store.prune(Filter(title="goes"))
    assert [hit.session.id for hit in store.search("needle")] == [child.id]


def test_words_copied_by_a_fork_are_found_there_when_a_filter_leaves_their_origin_out(
    store: Store,
) -> None:
    parent = started(store, "the needle")
    child = store.fork(parent)
    store.end(parent, "done")
    for where in (Filter(ended="no"), Filter(parent=True)):
        assert [hit.session.id for hit in store.search("needle", where=where)] == [child.id]


def test_archived_and_pruned_sessions_are_not_searched_unless_asked_for(store: Store) -> None:
    kept, old, gone = (started(store, "needle", title=title) for title in ("kept", "old", "gone"))
    store.end(old, "done")
    store.end(gone, "done")
    store.archive(Filter(title="old"))
    store.prune(Filter(title="gone"))
    assert {hit.session.id for hit in store.search("needle")} == {kept.id}
    assert {hit.session.id for hit in store.search("needle", role="user")} == {kept.id}
    anywhere = store.search("needle", where=Filter(archived=None))
    assert {hit.session.id for hit in anywhere} == {kept.id, old.id}
    archived = store.search("needle", where=Filter(archived=True))
    assert {hit.session.id for hit in archived} == {old.id}
