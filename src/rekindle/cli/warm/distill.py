"""`rekindle warm distill`: let a model reword notes and find wishes, and test its proposals."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rekindle.cli.insights.mapping import open_work_mapper
from rekindle.cli.output import (
    Column,
    DryRunOption,
    JsonOption,
    YesOption,
    format_count,
    print_json,
    print_line,
    print_notice,
    require_confirmation,
    show_progress,
    write_table,
)
from rekindle.cli.store_access import load_settings, open_for_notes
from rekindle.config import mask_secrets

from .options import create_redactor
from .playbook import NotesProjectOption, resolve_project

if TYPE_CHECKING:
    from rekindle.config import Config
    from rekindle.knowledge.distill.proposals import Material
    from rekindle.learning.distill.material import ProjectHistory
    from rekindle.learning.distill.trial import TriedProposal
    from rekindle.redaction.redactor import Redactor
    from rekindle.store import Store

MAX_SENT = 200


class _PlannedRequest(NamedTuple):
    """What would be sent where."""

    model: str
    address: str
    notes: int
    sentences: int
    sessions: int
    tokens: int

    def describe(self) -> str:
        sentences = (
            f"{format_count(self.sentences, 'sentence')} of users from"
            f" {format_count(self.sessions, 'session')}"
        )
        model = f"model {self.model} at {self.address}" if self.model else "a model (none is set)"
        return (
            f"{format_count(self.notes, 'note')} and {sentences}, redacted, about"
            f" {self.tokens:,} tokens, to {model}"
        )


def distill_notes(
    project: NotesProjectOption = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the project.", show_default="this one"),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            min=1, max=MAX_SENT, metavar="N", help="Maximum number of notes, and of sentences."
        ),
    ] = 40,
    check: Annotated[
        bool, typer.Option("--check", help="Only check waiting proposals; send nothing.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Accept the proposals that won in the replay.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Let the configured model reword notes and read wishes out of what users said.

    It gets notes without values and redacted sentences, and answers with proposals: notes in quarantine
    that no session is told. The project's history is then replayed with and without each of them. Those
    that won can be accepted, here with --accept or with `rekindle warm notes accept`.

    \b
    Examples:
      rekindle warm distill --dry-run
      rekindle warm distill --project owner/name
      rekindle warm distill --check --accept
    """
    from rekindle.learning.distill.material import choose_material, load_history

    if check and dry_run:
        raise typer.BadParameter("specify --check or --dry-run, not both")
    config, redactor = load_settings(), create_redactor()
    if not (check or dry_run):
        _require_model(config)
    with open_for_notes() as store:
        found = resolve_project(store, project, folder)
        with show_progress("Reading sessions") as progress:
            history = load_history(store, found, redactor, progress)
        request, discarded = None, Counter[str]()
        if not check:
            material = choose_material(store, history, limit)
            request = _describe_request(config, material)
            if dry_run:
                _show_request(request, material, json=json)
                return
            discarded = _propose(store, config, found, material, request, redactor, yes=yes)
        tried = _try_waiting(store, config, history)
        accepted = _accept_winners(store, found, tried) if accept else frozenset[str]()
    if json:
        print_json(_to_dict(found, request, discarded, tried, accepted))
    else:
        _write_report(discarded, tried, accepted)


def _require_model(config: Config) -> None:
    from rekindle.agent.toolkit import require_model_name

    require_model_name(config)


def _describe_request(config: Config, material: Material) -> _PlannedRequest:
    from rekindle.knowledge.distill.request import build_request
    from rekindle.knowledge.tokens import estimate_message_tokens

    return _PlannedRequest(
        model=config.model.name,
        address=mask_secrets(config.model.base_url),
        notes=len(material.notes),
        sentences=len(material.sentences),
        sessions=len({one.session for one in material.sentences.values()}),
        tokens=estimate_message_tokens(build_request(material)),
    )


def _show_request(request: _PlannedRequest, material: Material, *, json: bool) -> None:
    """Show what would be sent, word by word."""
    from rekindle.knowledge.distill.request import build_request

    if json:
        messages = [{"role": one.role, "content": one.text} for one in build_request(material)]
        print_json({**request._asdict(), "messages": messages})
        return
    print_line(f"Would send {request.describe()}:\n")
    for note in material.notes.values():
        print_line(f"note      {note.text}")
    for sentence in material.sentences.values():
        print_line(f"sentence  {sentence.text}")


def _propose(
    store: Store,
    config: Config,
    project: str,
    material: Material,
    request: _PlannedRequest,
    redactor: Redactor,
    *,
    yes: bool,
) -> Counter[str]:
    """Ask the model and put its proposals into quarantine; return why others were discarded."""
    import asyncio

    from rekindle.knowledge.distill.proposals import read_answer
    from rekindle.learning.distill.proposing import save_proposals

    if not (material.notes or material.sentences):
        print_notice("There is nothing new to send.")
        return Counter()
    print_notice(f"This sends {request.describe()}.")
    require_confirmation("Send it?", yes=yes)
    with show_progress("Asking the model"):
        answer = asyncio.run(_ask(config, material))
    proposals, discarded = read_answer(answer, material, redactor)
    saved = save_proposals(store, project, proposals, config.model.name, time.time())
    if unsaved := len(proposals) - len(saved):
        discarded["known already, or too many notes are waiting"] += unsaved
    print_notice(f"{format_count(len(saved), 'new proposal')}.")
    return discarded


async def _ask(config: Config, material: Material) -> str:
    from rekindle.agent.toolkit import open_model
    from rekindle.learning.distill.proposing import ask_model

    async with open_model(config) as model:
        return await ask_model(model, material)


def _try_waiting(store: Store, config: Config, history: ProjectHistory) -> list[TriedProposal]:
    from rekindle.learning.distill.trial import try_proposals

    with open_work_mapper(None, None) as mapper, show_progress("Replaying") as progress:
        return try_proposals(store, history, progress=progress, mapper=mapper, home=config.home)


def _accept_winners(store: Store, project: str, tried: Sequence[TriedProposal]) -> frozenset[str]:
    from rekindle.learning.notes.decisions import accept_note, load_project_notes

    known = load_project_notes(store, project)
    winners = [one.note for one in tried if one.verdict.outcome == "won"]
    for note in winners:
        accept_note(store, known, note, time.time())
    return frozenset(note.id for note in winners)


def _write_report(
    discarded: Counter[str], tried: Sequence[TriedProposal], accepted: frozenset[str]
) -> None:
    for reason, count in discarded.most_common():
        print_notice(f"{count} discarded: {reason}.")
    if not tried:
        print_line("No proposals wait.")
        return
    columns = [
        Column("id", style="cyan"),
        Column("kind"),
        Column("replay"),
        Column("why"),
        Column("proposal", flexible=True),
    ]
    rows = [
        (one.note.id, one.note.kind, one.verdict.outcome, one.verdict.reason, one.note.text)
        for one in tried
    ]
    write_table(columns, rows)
    if accepted:
        print_line(f"Accepted {format_count(len(accepted), 'note')}.")
    elif any(one.verdict.outcome == "won" for one in tried):
        print_line("Accept those that won with `rekindle warm distill --check --accept`.")


def _to_dict(
    project: str,
    request: _PlannedRequest | None,
    discarded: Counter[str],
    tried: Sequence[TriedProposal],
    accepted: frozenset[str],
) -> dict[str, Any]:
    import msgspec

    return {
        "project": project,
        "request": request and request._asdict(),
        "discarded": dict(discarded),
        "proposals": [
            {
                **msgspec.structs.asdict(one.origin),
                "id": one.note.id,
                "text": one.note.text,
                "state": "added" if one.note.id in accepted else "quarantined",
                **one.verdict._asdict(),
            }
            for one in tried
        ],
    }
