"""One call of a pattern as it was made: what stood in its slots, as far as a template may say it.

A slot says what kind of thing is wanted; only a value shows how it is written here. Values of command
lines are shown, since their formats are what nobody can guess. What names a person or belongs to one
moment is not, nor are the values of other tools, which are mostly about somebody's affairs; unless
the request says the value too, which the template tells anyway. The rest stays a slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from rekindle.types import JSON

from .call_signature import Form
from .slots import fill, marks

_PRIVATE = frozenset(
    ("mail", "uuid", "hash", "url", "host", "ip", "text", "script", "patch", "expression", "secret")
)
_LEAST_SAID = 3  # characters of a value that is looked for in the request


def of(form: Form, arguments: Mapping[str, JSON], asked: str) -> Mapping[str, JSON] | None:
    """The arguments of this call under the names of the pattern's; None where they tell no more."""
    skeleton = cast("Mapping[str, JSON]", form.skeleton)
    said = asked.casefold()
    chosen = [
        value if value and _may_show(kind, value, form.family, said) else None
        for kind, value in zip(marks(skeleton), form.values, strict=False)
    ]
    if not any(chosen):
        return None
    filled = cast("Mapping[str, JSON]", fill(skeleton, chosen))
    shown = {name: filled[name] for name in arguments if name in filled}
    return shown if shown.keys() == arguments.keys() and shown != dict(arguments) else None


def _may_show(kind: str, value: str, family: str, said: str) -> bool:
    bare = value.strip("'\"").casefold()
    if len(bare) >= _LEAST_SAID and bare in said:
        return True
    return family == "shell" and kind.partition(":")[0] not in _PRIVATE
