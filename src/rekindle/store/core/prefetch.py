"""Something that is got ahead of need, while a transaction is made durable (see `meanwhile`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Call it to get the next one now; `take` gives it, and gets it first where nobody did.

    What goes wrong is raised by `take`: it has nothing to do with what is written meanwhile.
    """

    def __init__(self, get: Callable[[], T]) -> None:
        self._get = get
        self._got: list[T] = []
        self._failed: list[Exception] = []

    def __call__(self) -> None:
        if not (self._got or self._failed):
            try:
                self._got.append(self._get())
            except Exception as error:  # noqa: BLE001  see above
                self._failed.append(error)

    def take(self) -> T:
        self()
        if self._failed:
            raise self._failed.pop()
        return self._got.pop()
