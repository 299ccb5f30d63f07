"""What a template says of where its patterns are known from is true of the sessions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rekindle import open_store
from rekindle.knowledge.mining.side_effects import collect_texts
from tests.acceptance.test_cli import Rekindle

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
SOURCES = ("tau__*", "claude__entireio*", "codex__*", "mini__*")
WORD = re.compile(r"<[a-z:0-9-]+>|[\w.@+-]+")

Call = tuple[str, str]  # a tool and what it was given, as text


def holds(calls: Iterable[Call], steps: Iterable[Any]) -> bool:
    """Do the steps stand in this order among the calls, with every word that is no slot?"""
    rest = iter(calls)
    return all(
        any(
            tool == step["tool"] and all(word in given for word in said(step))
            for tool, given in rest
        )
        for step in steps
    )


def said(step: Any) -> list[str]:
    found = WORD.findall(json.dumps(collect_texts(step["arguments"]), ensure_ascii=False))
    return [word for word in found if not word.startswith("<")]


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of transcripts is not there")
def test_the_sessions_that_a_pattern_names_and_counts_hold_its_steps_in_order(
    tmp_path: Path,
) -> None:
    (tmp_path / "rekindle").mkdir()
    rekindle = Rekindle(tmp_path)
    for source in SOURCES:
        for folder in CORPUS.glob(source):
            rekindle("import", folder)
    limits = ("--min-messages", "5", "--max-sessions", "400", "--max", "100")
    rekindle("warm", "build", "--name", "wide", *limits)
    told = json.loads((rekindle.home / "rekindle" / "templates" / "wide.json").read_text())
    with open_store(rekindle.store) as store:
        calls = {
            name: [
                (
                    call.name,
                    call.arguments if isinstance(call.arguments, str) else str(call.arguments),
                )
                for message in store.messages(name)
                for call in message.tool_calls
            ]
            for name in told["sources"]
        }
    top = sorted(told["patterns"], key=lambda one: -one["score"])[:40]
    assert len(top) == 40
    for one in top:
        steps = one["steps"]
        wrong = [name for name in one["sessions"] if not holds(calls[name], steps)]
        assert wrong == [], (one["id"], one["kind"], steps)
        assert one["sessions"], one["id"]
        assert sum(holds(made, steps) for made in calls.values()) >= one["seen_in"], one["id"]
    # The usual way to begin is among them, and seen far more often than the ways that are rare.
    openings = {
        tuple(step["tool"] for step in one["steps"]): one["seen_in"]
        for one in told["patterns"]
        if one["kind"] == "init"
    }
    assert openings["get_user_details", "get_reservation_details"] > 50
