"""Build the example of a pattern's call: its slots filled with original values, as far as allowed.

A slot names a kind of value; only a real value shows its format. Values of command lines are shown,
since nobody can guess their formats. Values that identify a person or belong to one moment are not, nor
are the values of other tools, which are mostly private, unless the request mentions them too, which the
template contains anyway. The rest stay slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from rekindle.types import JSON

from .call_signature import CallSignature
from .slots import fill_slots, list_slot_kinds

_PRIVATE_KINDS = frozenset(
    ("mail", "uuid", "hash", "url", "host", "ip", "text", "script", "patch", "expression", "secret")
)
_MIN_MENTION_CHARS = 3  # of a value that is searched in the request


def build_call_example(
    signature: CallSignature, arguments: Mapping[str, JSON], request: str
) -> Mapping[str, JSON] | None:
    """Build this call's arguments under the pattern's names; return None if they add nothing."""
    skeleton = cast("Mapping[str, JSON]", signature.skeleton)
    request_text = request.casefold()
    chosen = [
        value if value and _may_show_value(kind, value, signature.family, request_text) else None
        for kind, value in zip(list_slot_kinds(skeleton), signature.values, strict=False)
    ]
    if not any(chosen):
        return None
    filled = cast("Mapping[str, JSON]", fill_slots(skeleton, chosen))
    shown = {name: filled[name] for name in arguments if name in filled}
    return shown if shown.keys() == arguments.keys() and shown != dict(arguments) else None


def _may_show_value(kind: str, value: str, family: str, request_text: str) -> bool:
    bare = value.strip("'\"").casefold()
    if len(bare) >= _MIN_MENTION_CHARS and bare in request_text:
        return True
    return family == "shell" and kind.partition(":")[0] not in _PRIVATE_KINDS
