"""Open backends by name: `local`, `container:box`, `ssh:ada@host`, `apptainer:instance`, `modal:id`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rekindle.errors import InvalidInput

if TYPE_CHECKING:
    from .base import Backend
    from .remote import ScriptTransport

LOCAL_BACKEND = "local"


def _create_container_transport(name: str) -> ScriptTransport:
    from .container import ContainerTransport

    return ContainerTransport(name)


def _create_ssh_transport(target: str) -> ScriptTransport:
    from .ssh import SshTransport

    return SshTransport(target)


def _create_apptainer_transport(instance: str) -> ScriptTransport:
    from .exec_command import create_apptainer_transport

    return create_apptainer_transport(instance)


def _create_singularity_transport(instance: str) -> ScriptTransport:
    from .exec_command import create_apptainer_transport

    return create_apptainer_transport(instance, "singularity")


def _create_modal_transport(sandbox: str) -> ScriptTransport:
    from .modal import ModalTransport

    return ModalTransport(sandbox)


_TRANSPORTS: dict[str, Callable[[str], ScriptTransport]] = {
    "container": _create_container_transport,
    "ssh": _create_ssh_transport,
    "apptainer": _create_apptainer_transport,
    "singularity": _create_singularity_transport,
    "modal": _create_modal_transport,
}


def open_backend(name: str) -> Backend:
    """Open the backend with that name; raise InvalidInput if it is unknown, without any fallback."""
    if name == LOCAL_BACKEND:
        from rekindle.processes.backends.local.local import LocalBackend

        return LocalBackend()
    kind, _, rest = name.partition(":")
    if kind not in _TRANSPORTS or not rest:
        kinds = ", ".join(f"{one}:…" for one in _TRANSPORTS)
        raise InvalidInput(f"backend {name!r:.80}: expected {LOCAL_BACKEND} or {kinds}")
    from .remote import RemoteBackend

    try:
        return RemoteBackend(name, _TRANSPORTS[kind](rest))
    except ImportError as error:
        hint = "install rekindle[backends]" if kind != "modal" else "install the package modal"
        raise InvalidInput(f"backend {name!r:.80}: {error.name} is not installed; {hint}") from None
