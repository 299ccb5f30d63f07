"""Find a process by what people call it, and say what became of it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from rekindle.errors import InvalidInput, NotFound

from .types import Process

if TYPE_CHECKING:
    from .operations import Processes


async def find_process(processes: Processes, id: str, owner: str | None) -> Process:
    """Return the process with this id or name, or the only one whose id starts with it.

    Of several with the same name, that is the one that runs, or else the one that ran last.
    """
    known = await processes.list(owner=owner)
    named = [one for one in known if id and one.name == id]
    chosen = (
        [one for one in known if one.id == id]
        or [one for one in named if one.live]
        or named[-1:]
        or [one for one in known if id and one.id.startswith(id)]
    )
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        raise NotFound(f"Ambiguous process id {id!r}: {', '.join(one.id for one in chosen[:10])}")
    raise NotFound(f"Process not found: {id!r}. List processes with `rekindle ps --all`.")


def parse_signal(name: str) -> int:
    """Return the number of a signal, given as INT, SIGINT or sigint."""
    plain = name.upper().removeprefix("SIG")
    try:
        return int(signal.Signals[f"SIG{plain}"])
    except KeyError:
        raise InvalidInput(f"unknown signal {name!r:.40}; use a name such as INT or HUP") from None


def describe_state(one: Process) -> str:
    """Describe the state of a process, with its exit code or what it waits for."""
    if one.state == "exited":
        return "exited ?" if one.exit_code is None else f"exited {one.exit_code}"
    return f"waiting for {one.after}" if one.state == "waiting" else one.state
