"""Notes at the start of a session that a framework runs: text for the instructions of its agent.

agent = Agent(instructions=f"Be brief.\\n\\n{load_notes(store, 'trip', question)}", …)
"""

from __future__ import annotations

import os
import time

from rekindle.learning.warm_start import NewSession, WarmStartConfig, WarmStarter
from rekindle.store import Store
from rekindle.store.async_store import AsyncStore
from rekindle.store.graphs.documents import DocumentPlace
from rekindle.types import Session

COLLECTION = "start-notes"


def load_notes(
    store: Store | AsyncStore,
    session_id: str,
    request: str,
    *,
    folder: str | None = None,
    owner: str | None = None,
) -> str:
    """Return the notes for a session before it begins; empty if nothing is known.

    It is what `rekindle learn` found in earlier sessions of the folder (default: the current one) and
    what fits the request. A session gets the same text in every turn, so that the model's cache
    works. While an experiment runs, the session takes part: in the cold arm it is told nothing.
    """
    found = store.store if isinstance(store, AsyncStore) else store
    place = DocumentPlace((owner or "",), session_id)
    kept = found.documents.get(COLLECTION, [place]).get(place)
    if kept is not None:
        return str(kept.value["text"])
    now = time.time()
    session = Session(id=session_id, source="", owner=owner, started=now, last_active=now)
    starter = WarmStarter(found, WarmStartConfig(control_share=0.0))
    prelude = starter.build_prelude(
        NewSession(session=session, text=request, folder=folder or os.getcwd(), owner=owner)
    )
    text = "\n\n".join(message.text for message in prelude.messages)

    def keep() -> bool:
        if prelude.experiment is not None and prelude.arm is not None:
            found.experiments.record_assignment(prelude.experiment, session_id, owner, prelude.arm)
        return found.documents.add(COLLECTION, place, {"text": text, "arm": prelude.arm})

    if not found.transaction(keep):  # another process was first
        return load_notes(found, session_id, request, folder=folder, owner=owner)
    return text
