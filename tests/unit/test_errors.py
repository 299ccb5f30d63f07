"""The tree of errors, and its drawing."""

from __future__ import annotations

import inspect
import re

from rekindle import errors
from rekindle.errors import RekindleError


def drawn() -> dict[str, str | None]:
    """Every name in the drawing, with the one it hangs from."""
    above: dict[int, str] = {}
    found: dict[str, str | None] = {}
    for line in (errors.__doc__ or "").splitlines():
        if node := re.match(r"( {4}(?:[│ ] {3})*)(?:[├└]── )?([A-Z]\w+) *", line):
            branch = re.match(r" {4}((?:[│ ] {3})*)([├└]── )?", line)
            assert branch is not None
            depth = len(branch[1]) // 4 + bool(branch[2])
            above[depth] = node[2]
            found[node[2]] = above.get(depth - 1) if depth else None
    return found


def test_the_drawing_shows_every_error_below_the_one_it_is() -> None:
    classes = {
        name: one.__bases__[0].__name__
        for name, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, RekindleError) and one is not RekindleError
    }
    assert drawn() == {"RekindleError": None, **classes}
