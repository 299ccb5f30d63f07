"""Places by their names: `local`, `container:box`, `ssh:ada@host`, `apptainer:instance`, `modal:id`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rekindle.errors import InvalidInput

if TYPE_CHECKING:
    from .base import Place
    from .remote import Line

LOCAL = "local"


def _container(name: str) -> Line:
    from .container import ContainerLine

    return ContainerLine(name)


def _ssh(target: str) -> Line:
    from .ssh import SshLine

    return SshLine(target)


def _apptainer(instance: str) -> Line:
    from .exec_command import apptainer

    return apptainer(instance)


def _singularity(instance: str) -> Line:
    from .exec_command import apptainer

    return apptainer(instance, "singularity")


def _modal(sandbox: str) -> Line:
    from .modal import ModalLine

    return ModalLine(sandbox)


_LINES: dict[str, Callable[[str], Line]] = {
    "container": _container,
    "ssh": _ssh,
    "apptainer": _apptainer,
    "singularity": _singularity,
    "modal": _modal,
}


def open_place(name: str) -> Place:
    """The place of that name. One that is no place here is refused: nothing else runs in its stead."""
    if name == LOCAL:
        from rekindle.processes.backends.local.local import Local

        return Local()
    kind, _, rest = name.partition(":")
    if kind not in _LINES or not rest:
        kinds = ", ".join(f"{one}:…" for one in _LINES)
        raise InvalidInput(f"place {name!r:.80}: expected {LOCAL}, or {kinds}")
    from .remote import Remote

    try:
        return Remote(name, _LINES[kind](rest))
    except ImportError as error:
        hint = "install rekindle[places]" if kind != "modal" else "install the package modal"
        raise InvalidInput(f"place {name!r:.80}: {error.name} is not installed; {hint}") from None
