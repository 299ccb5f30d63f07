"""The large store of the web page's benchmark, made small."""

from __future__ import annotations

from pathlib import Path

from bench.interfaces.web_store import fill_store

from rekindle.store import Filter, open_store

NOW = 1_800_000_000.0


def test_a_store_has_what_the_list_shows(tmp_path: Path) -> None:
    fill_store(tmp_path / "a.db", 60, 1_200, NOW)
    with open_store(tmp_path / "a.db") as store:
        sessions = store.recent(100, where=Filter(archived=None))
        ids = [one.id for one in sessions]
        assert len(sessions) == 60
        assert 600 < sum(one.message_count for one in sessions) < 2_400
        assert len({one.source for one in sessions}) > 2
        assert len({one.repository for one in sessions}) > 5
        assert any(one.sub_agent for one in sessions)
        assert any(one.archived for one in sessions)
        assert NOW - 60 < sessions[0].last_active <= NOW
        assert store.count_errors(ids)
        assert {one.verdict for one in store.session_outcomes.load(ids).values()} >= {"failed"}
        assert store.search("pit", limit=5)
        assert store.verify() == []
