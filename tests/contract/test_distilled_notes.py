"""What a model proposed, on both engines: kept apart, tried with the history, told once accepted."""

from __future__ import annotations

from rekindle import Store
from rekindle.knowledge.distill.proposals import Proposal
from rekindle.knowledge.notes.note import NoteOrigin, RecalledNote, list_notes
from rekindle.learning.distill.material import choose_material, load_history
from rekindle.learning.distill.proposing import save_proposals
from rekindle.learning.distill.trial import try_proposals
from rekindle.learning.notes import decisions
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.learning.notes.owners import recall_for_owner_at_failure
from rekindle.learning.notes.playbooks import load_decisions, load_playbook, load_told_notes
from rekindle.learning.notes.recall import recall_at_failure, recall_at_start
from rekindle.redaction.redactor import Redactor
from rekindle.types import ToolCall
from tests.contract.test_observations import DENIED, FOLDER, PicklingMapper, tell

PROJECT = f"folder:{FOLDER}"
FAILED, FIXED = "go vet ./...", "env GOCACHE=/tmp/c go vet ./..."
REWORDED = f"`{FAILED}` fails; use `{FIXED}`."
WISH = "Do not use mocks in database tests."


def learn(store: Store) -> RecalledNote:
    """Learn from sessions with the same failure; return the note about it."""
    for number in range(9):
        tell(store, f"s{number}", (FAILED, DENIED, False), (FIXED, "ok", True))
    learn_from_sessions(store)
    notes = list_notes(load_playbook(store, PROJECT))
    return next(one for one in notes if one.kind == "pitfall")


def save(store: Store, note: RecalledNote) -> dict[str, RecalledNote]:
    proposals = [Proposal(REWORDED, note), Proposal(WISH)]
    return {one.kind: one for one in save_proposals(store, PROJECT, proposals, "m", 86_400.0)}


def recall(store: Store) -> tuple[str, str]:
    failure = recall_at_failure(store, FOLDER, "Bash", {"command": FAILED}, DENIED)
    return recall_at_start(store, FOLDER, "go on").text, failure.text


def accept(store: Store, note: RecalledNote) -> None:
    known = decisions.load_project_notes(store, PROJECT)
    decisions.accept_note(store, known, known.find(note.id), 2.0)


def test_proposals_wait_with_where_they_come_from_and_are_not_told(store: Store) -> None:
    note = learn(store)
    before = recall(store)
    saved = save(store, note)
    known = decisions.load_project_notes(store, PROJECT)
    assert {known.get_state(one) for one in saved.values()} == {"quarantined"}
    assert known.decisions.origins == {
        saved["pitfall"].id: NoteOrigin("m", "1970-01-02", kind="pitfall", note=note.id),
        saved["wish"].id: NoteOrigin("m", "1970-01-02"),
    }
    assert recall(store) == before
    assert note.text in before[1]
    assert not {*saved.values()} & {*load_told_notes(store, PROJECT)}


def test_an_accepted_rewording_is_told_in_place_of_its_note(store: Store) -> None:
    note = learn(store)
    saved = save(store, note)
    accept(store, saved["pitfall"])
    accept(store, saved["wish"])
    start, failure = recall(store)
    assert f"- `{FAILED}` fails; use `{FIXED}` (9 sessions)" in failure
    assert note.text not in start + failure
    assert f"- {WISH}" in start
    assert REWORDED not in start.replace(" (9 sessions)", "")  # and not as a wish of its own
    told = [one.text for one in load_told_notes(store, PROJECT)]
    assert f"`{FAILED}` fails; use `{FIXED}` (9 sessions)" in told
    call = ToolCall("c", "Bash", {"command": FAILED})
    mine = recall_for_owner_at_failure(store, FOLDER, call, DENIED, "ada")
    assert "fails; use" not in mine.text  # for one of many people, nobody else's words


def test_a_retired_proposal_is_out_of_sight_and_never_comes_back(store: Store) -> None:
    note = learn(store)
    saved = save(store, note)
    accept(store, saved["pitfall"])
    for one in saved.values():
        known = decisions.load_project_notes(store, PROJECT)
        decisions.retire_note(store, known, known.find(one.id), 3.0)
    listed = decisions.load_project_notes(store, PROJECT).notes
    assert not {one.id for one in saved.values()} & {one.id for one in listed}
    assert save(store, note) == {}
    assert load_decisions(store, PROJECT).waiting == ()
    assert note.text in recall(store)[1]
    history = load_history(store, PROJECT, Redactor(), lambda done, total: None)
    material = choose_material(store, history, 40)
    assert note.id not in material.notes
    assert WISH in material.known


def test_a_trial_is_the_same_in_workers(store: Store) -> None:
    save(store, learn(store))
    history = load_history(store, PROJECT, Redactor(), lambda done, total: None)
    tried = try_proposals(store, history)
    assert [(one.note.kind, one.verdict.outcome) for one in tried] == [
        ("pitfall", "won"),
        ("wish", "no evidence"),
    ]
    assert try_proposals(store, history, mapper=PicklingMapper()) == tried
