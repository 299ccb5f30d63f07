"""A template looked through once more: nothing is written or taken in that redaction would remove."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from rekindle.redaction.redactor import Redactor
from rekindle.types import JSON, Pattern, Step, Template, replace

from . import file_format

_HALF = re.compile(r"[\ud800-\udfff]")
_AS_THEY_ARE = (
    file_format.OWNER,
    file_format.DROPPED,
)  # compared with others, so a mask would break them


def rescanned(template: Template, redactor: Redactor) -> Template:
    """The template without what redaction finds in any of its texts."""

    def text(said: str, where: str) -> str:
        return redactor.text(_held(said), where)

    seed = template.seed
    return replace(
        template,
        name=text(template.name, "name")[:100] or template.id,
        description=text(template.description, "description"),
        tags=tuple(text(one, "tags") for one in template.tags),
        patterns=tuple(_pattern(one, redactor) for one in template.patterns),
        seed=replace(
            seed,
            system=text(seed.system, "context"),
            instructions=tuple(text(one, "context") for one in seed.instructions),
            markers=tuple(text(one, "context") for one in seed.markers),
        ),
        scan={
            name: one if name in _AS_THEY_ARE else _value(one, redactor, "scan")
            for name, one in template.scan.items()
        },
    )


def _pattern(pattern: Pattern, redactor: Redactor) -> Pattern:
    return replace(
        pattern,
        steps=tuple(_step(step, redactor) for step in pattern.steps),
        before=None if pattern.before is None else _step(pattern.before, redactor),
        asked=redactor.text(_held(pattern.asked), "requests"),
        lesson=redactor.text(_held(pattern.lesson), "lessons"),
        also=tuple(redactor.text(_held(one), "requests") for one in pattern.also),
    )


def _step(step: Step, redactor: Redactor) -> Step:
    def clean(arguments: Mapping[str, JSON]) -> Mapping[str, JSON]:
        return cast("Mapping[str, JSON]", _value(dict(arguments), redactor, "arguments"))

    example = None if step.example is None else clean(step.example)
    result = redactor.text(_held(step.result), "results")
    return Step(_held(step.tool), clean(step.arguments), result, example)


def _value(value: JSON, redactor: Redactor, where: str) -> JSON:
    return redactor.value(_all_held(value), where)


def _all_held(value: JSON) -> JSON:
    if isinstance(value, str):
        return _held(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, JSON]", value)
        return {_held(name): _all_held(one) for name, one in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_all_held(one) for one in cast("list[JSON]", value)]
    return value


def _held(text: str) -> str:
    """Halves of surrogate pairs are replaced: a session may have them, no file can."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)
