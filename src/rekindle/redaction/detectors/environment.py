"""Values that must go wherever they stand: what the environment names as secret."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus

from rekindle.redaction.scanner import Look, Rule, Span

from .entropy import is_placeholder, is_random
from .literals import is_path
from .secret_names import announced

LEAST = 8  # a shorter value stands in ordinary text by chance
_SHORTEST = 5  # of a value whose name says that it is secret


def secret_values(env: Mapping[str, str]) -> dict[str, str]:
    """Those of the variables that hold a secret, by their names or by how random they are."""
    chosen: dict[str, str] = {}
    for name, value in env.items():
        value = value.strip()
        if is_placeholder(value) or value.isdigit() or is_path(value):
            continue
        says = announced(name)
        if says and len(value) >= _SHORTEST and (says.strong or len(value) >= LEAST):
            chosen[name] = value
        elif "://" in value and (login := re.search(r"://[^\s/:@]*:([^\s/@]{5,})@", value)):
            chosen[name] = login[1]
        elif len(value) >= 20 and " " not in value and ":" not in value and is_random(value, 20):
            chosen[name] = value
    return chosen


def forms(value: str) -> Iterator[str]:
    """The value, and what it looks like when it is encoded, at any place of a longer text."""
    data = value.encode("utf-8", "surrogatepass")
    yield value
    yield quote(value, safe="")
    yield quote_plus(value)
    yield json.dumps(value)[1:-1]
    for before in range(3):
        # The first and the last characters depend on what stands beside the value.
        encoded = b64encode(b"\0" * before + data).decode()
        whole = encoded[(0, 2, 3)[before] : (len(data) + before) * 8 // 6]
        yield whole
        yield whole.replace("+", "-").replace("/", "_")


def known(values: Mapping[str, str]) -> Rule:
    """A rule for these values in all their forms; the mask names the variable, not the value."""
    masks: dict[str, str] = {}
    for name, value in values.items():
        for form in forms(value):
            if len(form) >= _SHORTEST:
                masks.setdefault(form, name.lower().replace("_", "-"))
    ordered = sorted(masks, key=len, reverse=True)
    literals = [form.encode("ascii", "replace") for form in ordered]
    pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def rule(look: Look) -> Iterator[Span]:
        if pattern is None or not any(literal in look.raw for literal in literals):
            return
        for found in pattern.finditer(look.text):
            name = masks[found.group()]
            yield Span(found.start(), found.end(), "known", f"<secret:env:{name}>")

    return rule
