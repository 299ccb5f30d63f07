"""Fetch a value before it is needed, while a transaction is being committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """A value that can be fetched before it is needed.

    Call the object to fetch the next value now; `get` returns it, fetching it first if necessary.
    Errors are raised by `get`, because they have nothing to do with the write that runs meanwhile.
    """

    def __init__(self, fetch: Callable[[], T]) -> None:
        self._fetch = fetch
        self._fetched: list[T] = []
        self._errors: list[Exception] = []

    def __call__(self) -> None:
        if not (self._fetched or self._errors):
            try:
                self._fetched.append(self._fetch())
            except Exception as error:  # noqa: BLE001  raised by `get`
                self._errors.append(error)

    def get(self) -> T:
        """Return the prefetched value, or fetch it now; raise the error of a failed fetch."""
        self()
        if self._errors:
            raise self._errors.pop()
        return self._fetched.pop()
