"""The verdicts of all calls in columns, on both engines: what insights count, read in one pass."""

from __future__ import annotations

from rekindle import Filter, Store
from rekindle.analytics.insights import compute_insights
from rekindle.analytics.reliability.summary import CallChoice, summarize_calls
from rekindle.learning.notes.call_index import build_call_index, get_local_day
from rekindle.learning.verdicts.judged_sessions import iter_judged_sessions
from tests.unit.web.judged_sessions import MONDAY, add_history, add_session

ODD = "a\x00b \ud800 'x'"


def test_the_index_agrees_with_insights(store: Store) -> None:
    add_history(store)
    again = store.begin(id="again", source="codex", model="opus", started=MONDAY + 1e6)
    store.append(again, *[one._replace(position=None) for one in store.messages("w0n1")])
    index = build_call_index(store, get_local_day, lambda *_: None)
    found = summarize_calls(index, CallChoice())
    assert found.rate == compute_insights(iter_judged_sessions(store)).rate
    assert index.repeated == 4


def test_archived_and_deleted_sessions_do_not_count(store: Store) -> None:
    add_history(store)
    store.archive_session("w0n1")
    store.prune(Filter(source="codex"))
    index = build_call_index(store, get_local_day, lambda *_: None)
    assert summarize_calls(index, CallChoice()).rate.calls == 56


def test_odd_names_are_read_as_they_were_written(store: Store) -> None:
    add_session(store, "odd", "x...", tool=ODD, model=ODD)
    index = build_call_index(store, get_local_day, lambda *_: None)
    assert index.tools.names == index.models.names == [ODD]
    assert [*store.call_columns.load_ids(index.nums).values()] == ["odd"]
