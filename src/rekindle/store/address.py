"""Where a store is, to open it again in another process."""

from __future__ import annotations


class StoreAddress:
    """The path or URL of a store, with its password, which `repr` and logs do not show.

    `tenant` is the one whose rows it shows, in tables that tenants share.
    """

    __slots__ = ("_location", "_target", "tenant")

    def __init__(self, target: str, location: str, tenant: str = "") -> None:
        self._target = target
        self._location = location
        self.tenant = tenant

    def __repr__(self) -> str:
        return f"StoreAddress({self._location!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreAddress) and (other._target, other.tenant) == (
            self._target,
            self.tenant,
        )

    def __hash__(self) -> int:
        return hash((self._target, self.tenant))

    def __reduce__(self) -> tuple[type[StoreAddress], tuple[str, str, str]]:
        return StoreAddress, (self._target, self._location, self.tenant)

    @property
    def file(self) -> str | None:
        """The path of the file, or None if the store is on a server."""
        return None if "://" in self._target else self._target

    @property
    def target(self) -> str:
        """The path or URL that `open_store` takes, with the password."""
        return self._target
