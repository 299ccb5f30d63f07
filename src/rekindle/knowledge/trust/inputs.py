"""What reaches a model beside the results of its calls and beside what its user wrote."""

from __future__ import annotations

from typing import NamedTuple


class ModelInput(NamedTuple):
    """A text that no user wrote, or something that cannot be read, such as an image.

    `before` is the number of calls that the session made before it came.
    """

    before: int
    text: str = ""
    is_readable: bool = True
