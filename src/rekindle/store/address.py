"""Where a store is, to open it again in another process."""

from __future__ import annotations


class StoreAddress:
    """The path or URL of a store, with its password, which `repr` and logs do not show."""

    __slots__ = ("_location", "_target")

    def __init__(self, target: str, location: str) -> None:
        self._target = target
        self._location = location

    def __repr__(self) -> str:
        return f"StoreAddress({self._location!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreAddress) and other._target == self._target

    def __hash__(self) -> int:
        return hash(self._target)

    def __reduce__(self) -> tuple[type[StoreAddress], tuple[str, str]]:
        return StoreAddress, (self._target, self._location)

    @property
    def file(self) -> str | None:
        """The path of the file, or None if the store is on a server."""
        return None if "://" in self._target else self._target

    @property
    def target(self) -> str:
        """The path or URL that `open_store` takes, with the password."""
        return self._target
