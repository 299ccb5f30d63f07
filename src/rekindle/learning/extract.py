"""Extract notes and a seed from one session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rekindle.knowledge.notes.calls import ObservedCall, read_forms
from rekindle.knowledge.notes.observations import observe_session
from rekindle.knowledge.notes.playbook import list_paths
from rekindle.knowledge.notes.records import SessionObservation
from rekindle.knowledge.plain_words import is_plain
from rekindle.knowledge.seed import extract_seed
from rekindle.knowledge.template_notes import build_notes, create_example, rank_notes
from rekindle.knowledge.wishes.doubtful_sentences import may_hold_secret
from rekindle.projects import hash_folder
from rekindle.store import Store
from rekindle.types import JudgedCall, Message, Seed, Session, TemplateNote

from .notes.learner import is_said, load_session
from .notes.playbooks import find_project
from .verdicts.judged_sessions import load_judged_session

MAX_REQUEST_CHARS, MAX_ANSWER_CHARS = 160, 300


class SessionExtract(NamedTuple):
    """What one session gives: notes, the best first, its seed, its project and its calls."""

    notes: tuple[TemplateNote, ...]
    seed: Seed
    project: str | None
    calls: Sequence[JudgedCall]


def extract_session(store: Store, session: Session) -> SessionExtract:
    """Extract what a template can hold of a session, whatever other sessions did."""
    loaded, messages = load_session(store, session.id), store.messages(session.id)
    root = session.cwd or ""
    observation = observe_session(
        session.id,
        session.started,
        root,
        loaded.request,
        loaded.calls,
        loaded.turns,
        inputs=loaded.inputs,
    )
    project = hash_folder(session.project or (find_project(store, root) if root else None))
    notes = [note for note in build_notes([observation], project, 1) if note.kind != "place"]
    known = {note.command for note in notes}
    examples = [
        note._replace(project=project)
        for note in _iter_examples(messages, loaded.calls, root)
        if note.command in known
    ]
    said = [message.position for message in messages if is_said(message)]
    return SessionExtract(
        tuple(rank_notes([*notes, *examples])),
        extract_seed(messages, _rank_files(observation), [one for one in said if one is not None]),
        project,
        load_judged_session(store, session.id).calls,
    )


def _rank_files(observation: SessionObservation) -> list[str]:
    files = (*observation.files, *observation.command_files)
    counts = Counter({file.path: file.count for file in files})
    paths = dict.fromkeys(list_paths(observation))
    return sorted(paths, key=lambda path: -counts[path])


def _iter_examples(
    messages: Sequence[Message], calls: Sequence[ObservedCall], root: str
) -> Iterator[TemplateNote]:
    """Yield turns that consist of plain words, one command without slots, and a plain answer."""
    by_turn: dict[int, list[ObservedCall]] = {}
    for one in calls:
        by_turn.setdefault(one.turn, []).append(one)
    asked: Message | None = None
    for message in messages:
        if message.role == "user":
            asked = message if is_said(message) else None
        if message.role != "assistant" or message.tool_calls or asked is None:
            continue
        turn = by_turn.get(asked.position or 0, ())
        forms = read_forms(turn[0].call, root) if len(turn) == 1 and turn[0].failed is False else ()
        request, answer = " ".join(asked.text.split()), " ".join(message.text.split())
        if (
            len(forms) == 1
            and "<" not in forms[0].text
            and len(request) <= MAX_REQUEST_CHARS
            and len(answer) <= MAX_ANSWER_CHARS
            and is_plain(request)
            and is_plain(answer)
            and not may_hold_secret(request)
            and not may_hold_secret(answer)
        ):
            yield create_example(request, forms[0].text, forms[0].folder or None, answer)
        asked = None
