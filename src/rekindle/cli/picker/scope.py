"""Which sessions the picker lists: those of the project of a folder, or all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rekindle.store import Filter, Store


class PickerScope(NamedTuple):
    """A project by its name and the keys of its sessions; without keys, there is only everything."""

    name: str | None = None
    keys: tuple[str, ...] = ()

    def get_filter(self, *, is_all: bool) -> Filter:
        """Return the filter for the sessions of the project, or for all."""
        from rekindle.store import Filter

        return Filter() if is_all or not self.keys else Filter(projects=self.keys)


def find_scope(store: Store, folder: str) -> PickerScope:
    """Return the scope of the project that a folder is in, if it has sessions."""
    scope = store.load_projects().find_folder_scope(folder)
    return PickerScope(*scope) if scope is not None and scope.keys else PickerScope()
