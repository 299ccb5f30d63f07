"""Open backends by name: `local`, `container:box`, `ssh:ada@host`, `apptainer:instance`, `modal:id`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekindle.errors import InvalidInput

if TYPE_CHECKING:
    from .base import Backend
    from .remote import ScriptTransport

LOCAL_BACKEND = "local"


_KINDS = ("container", "ssh", "apptainer", "singularity", "modal")


def _create_transport(kind: str, target: str) -> ScriptTransport:
    """Create a transport; each module is loaded only if it is used, as it may not be installed."""
    if kind == "container":
        from .container import ContainerTransport

        return ContainerTransport(target)
    if kind == "ssh":
        from .ssh import SshTransport

        return SshTransport(target)
    if kind == "modal":
        from .modal import ModalTransport

        return ModalTransport(target)
    from .exec_command import create_apptainer_transport

    return create_apptainer_transport(target, kind)


def open_backend(name: str) -> Backend:
    """Open the backend with that name; raise InvalidInput if it is unknown, without any fallback."""
    if name == LOCAL_BACKEND:
        from rekindle.processes.backends.local.local import LocalBackend

        return LocalBackend()
    kind, _, rest = name.partition(":")
    if kind not in _KINDS or not rest:
        kinds = ", ".join(f"{one}:…" for one in _KINDS)
        raise InvalidInput(f"backend {name!r:.80}: expected {LOCAL_BACKEND} or {kinds}")
    from .remote import RemoteBackend

    try:
        return RemoteBackend(name, _create_transport(kind, rest))
    except ImportError as error:
        hint = "install rekindle[backends]" if kind != "modal" else "install the package modal"
        raise InvalidInput(f"backend {name!r:.80}: {error.name} is not installed; {hint}") from None
