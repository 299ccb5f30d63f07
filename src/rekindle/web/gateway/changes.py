"""What the operator can change: the same as at the command line, and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rekindle.errors import InvalidInput, NotFound
from rekindle.gateway.access import operator
from rekindle.gateway.memory.facts import clean_fact
from rekindle.gateway.schedule import planning
from rekindle.store import Store
from rekindle.store.conversations.memory import PERSON

Change = Callable[[Store, Mapping[str, str]], object]


def retry_delivery(store: Store, form: Mapping[str, str]) -> None:
    """Queue one failed message again, or all of them."""
    numbers = None if form.get("all") else [read_number(form, "number")]
    if not store.inbox.requeue_failed(numbers) and numbers:
        raise NotFound("This message has not failed, or is waiting again already.")


def change_job(store: Store, id: str, change: str) -> None:
    """Run a job now, pause it, resume it, or remove it."""
    job = store.jobs.find(id)
    if change == "run":
        planning.run_job_now(store, job)
    elif change == "pause":
        planning.pause_job(store, job)
    elif change == "resume":
        planning.resume_job(store, job)
    elif change == "remove":
        store.jobs.remove(job)
    else:
        raise NotFound(f"A job cannot be changed by {change!r:.40}.")


def _accept_user(store: Store, form: Mapping[str, str]) -> object:
    return operator.accept_user(
        store, form.get("user", ""), form.get("role", ""), form.get("name", "")
    )


def _refuse_user(store: Store, form: Mapping[str, str]) -> object:
    return operator.refuse_user(store, form.get("user", ""))


def _pair_user(store: Store, form: Mapping[str, str]) -> object:
    return operator.pair_user(store, form.get("code", ""), form.get("role", ""))


PEOPLE_CHANGES: Mapping[str, Change] = {
    "allow": _accept_user,
    "deny": _refuse_user,
    "pair": _pair_user,
}


def _add_fact(store: Store, form: Mapping[str, str]) -> object:
    return store.memory.add(_get_owner(form), clean_fact(form.get("text", "")), actor=PERSON)


def _accept_fact(store: Store, form: Mapping[str, str]) -> object:
    return store.memory.accept(_get_owner(form), read_number(form, "number"))


def _remove_fact(store: Store, form: Mapping[str, str]) -> object:
    return store.memory.remove(_get_owner(form), read_number(form, "number"), actor=PERSON)


def _undo_change(store: Store, form: Mapping[str, str]) -> object:
    return store.memory.undo(_get_owner(form), actor=PERSON)


MEMORY_CHANGES: Mapping[str, Change] = {
    "add": _add_fact,
    "accept": _accept_fact,
    "forget": _remove_fact,
    "undo": _undo_change,
}


def read_number(fields: Mapping[str, str], name: str) -> int:
    """Return a field that is a number."""
    text = fields.get(name, "")
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise InvalidInput(f"{name}: {text!r:.40} is not a number")
    return int(text)


def _get_owner(form: Mapping[str, str]) -> str:
    owner = form.get("owner", "")
    if not owner:
        raise InvalidInput("owner: missing; name the person whose memory to show")
    return owner
