"""How much is said at a failure, and when nothing is."""

from __future__ import annotations

import pytest

from rekindle.knowledge.notes.failures import (
    MAX_FAILURE_NOTES,
    MAX_FAILURE_TOKENS,
    recall_failure,
    render_failure,
)
from rekindle.knowledge.notes.note import NO_DECISIONS, RecalledNote
from rekindle.knowledge.notes.records import ADVICE_MARK
from tests.unit.knowledge.notes.test_recall import ROOT, bash, build, observe

NO_NETWORK = "error: no network"
FAILED = bash("make check", failed=True, result=NO_NETWORK)


def test_a_failure_is_told_two_notes_at_most() -> None:
    fixes = [
        [FAILED, bash(f"make check --{name}")] for name in ("offline", "cached", "mirror", "local")
    ]
    told = recall_failure(build(*fixes, *fixes, *fixes), ROOT, FAILED.call, NO_NETWORK)
    assert len(told.notes) == MAX_FAILURE_NOTES == 2
    assert told.tokens <= MAX_FAILURE_TOKENS == 120


def test_a_note_for_which_there_is_no_room_gives_way_to_a_shorter_one() -> None:
    notes = [
        RecalledNote(name, "pitfall", f"`make {'x' * length}` failed", sessions=1)
        for name, length in (("long", 600), ("short", 20))
    ]
    told = render_failure(notes)
    assert [one.id for one in told.notes] == ["short"]
    assert told.tokens <= MAX_FAILURE_TOKENS


def test_a_retired_note_is_not_told_at_a_failure() -> None:
    playbook = build(*([[FAILED, bash("make check --offline")]] * 2))
    (note,) = recall_failure(playbook, ROOT, FAILED.call, NO_NETWORK).notes
    retired = NO_DECISIONS._replace(retired=frozenset((note.id,)))
    assert not recall_failure(playbook, ROOT, FAILED.call, NO_NETWORK, retired).notes


@pytest.mark.parametrize(
    "prevented",
    [
        "The user doesn't want to proceed with this tool use.",
        "<tool_use_error>Sibling tool call errored</tool_use_error>",
    ],
)
def test_a_call_that_was_refused_or_interrupted_is_told_nothing(prevented: str) -> None:
    playbook = build(*([[FAILED, bash("make check --offline")]] * 4))
    assert recall_failure(playbook, ROOT, FAILED.call, "stopped").notes, "however it looks"
    assert not recall_failure(playbook, ROOT, FAILED.call, prevented).notes


def test_advice_in_a_result_is_no_part_of_how_a_failure_looks() -> None:
    advice = f"{NO_NETWORK}\n\n{ADVICE_MARK} error: unknown option, missing file, invalid input"
    told = bash("make check", failed=True, result=advice)
    (plain,) = observe(0, "fix it", FAILED, bash("make check --offline")).fixes
    (advised,) = observe(0, "fix it", told, bash("make check --offline")).fixes
    assert plain.look == advised.look
