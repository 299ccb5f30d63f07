"""Rekindle: agent sessions that survive, resume, and start warm."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rekindle.store import Store, open_store
    from rekindle.types import Message, Session, Tokens, ToolCall

__version__ = "0.1.0"
__all__ = ["Message", "Session", "Store", "Tokens", "ToolCall", "open_store"]

_MODULES = {"Store": "store", "open_store": "store"}


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that `rekindle --version` imports none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_MODULES.get(name, 'types')}", __name__), name)
