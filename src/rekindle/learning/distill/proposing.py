"""Send the material to the model, and keep what is worth trying in quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from rekindle.agent.model.client import Model, Retrying, TextDelta
from rekindle.knowledge.distill.proposals import MAX_ANSWER_CHARS, Material, Proposal
from rekindle.knowledge.distill.request import build_request
from rekindle.knowledge.notes.note import NoteOrigin, RecalledNote
from rekindle.learning.notes.playbooks import propose_note
from rekindle.store import Store


async def ask_model(model: Model, material: Material) -> str:
    """Return the answer of the model, cut off where it is longer than any that is read."""
    answer = ""
    async with aclosing(model.stream(build_request(material))) as events:
        async for event in events:
            if isinstance(event, Retrying):
                answer = ""
            elif isinstance(event, TextDelta):
                answer += event.text
                if len(answer) > MAX_ANSWER_CHARS:
                    break
    return answer


def save_proposals(
    store: Store, project: str, proposals: Sequence[Proposal], model: str, now: float
) -> list[RecalledNote]:
    """Put proposals into quarantine with where they come from; return those that are new."""
    day = datetime.fromtimestamp(now, UTC).date().isoformat()
    saved: list[RecalledNote] = []
    for one in proposals:
        sessions = tuple(dict.fromkeys(each.session for each in one.sentences))
        origin = NoteOrigin(model, day, sessions=sessions)
        if one.note is not None:
            origin = NoteOrigin(model, day, kind=one.note.kind, note=one.note.id)
        note = propose_note(store, project, one.text, now, origin)
        saved += [note] if note else []
    return saved
