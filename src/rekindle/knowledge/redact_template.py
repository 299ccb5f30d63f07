"""Redact a whole template: nothing that redaction would remove is written or imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from rekindle.redaction.redactor import Redactor
from rekindle.types import JSON, Pattern, PatternStep, Template, replace_fields

from . import file_format

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_UNREDACTED_KEYS = (
    file_format.OWNER_KEY,
    file_format.DROPPED_KEY,
)  # compared by value, so a mask would break them


def redact_template(template: Template, redactor: Redactor) -> Template:
    """Return the template with all of its texts redacted."""

    def clean_text(text: str, where: str) -> str:
        return redactor.redact_text(_replace_surrogates(text), where)

    seed = template.seed
    return replace_fields(
        template,
        name=clean_text(template.name, "name")[:100] or template.id,
        description=clean_text(template.description, "description"),
        tags=tuple(clean_text(one, "tags") for one in template.tags),
        patterns=tuple(_redact_pattern(one, redactor) for one in template.patterns),
        seed=replace_fields(
            seed,
            system=clean_text(seed.system, "context"),
            instructions=tuple(clean_text(one, "context") for one in seed.instructions),
            markers=tuple(clean_text(one, "context") for one in seed.markers),
        ),
        scan={
            name: one if name in _UNREDACTED_KEYS else _redact_value(one, redactor, "scan")
            for name, one in template.scan.items()
        },
    )


def _redact_pattern(pattern: Pattern, redactor: Redactor) -> Pattern:
    return replace_fields(
        pattern,
        steps=tuple(_redact_step(step, redactor) for step in pattern.steps),
        before=None if pattern.before is None else _redact_step(pattern.before, redactor),
        asked=redactor.redact_text(_replace_surrogates(pattern.asked), "requests"),
        lesson=redactor.redact_text(_replace_surrogates(pattern.lesson), "lessons"),
        also=tuple(
            redactor.redact_text(_replace_surrogates(one), "requests") for one in pattern.also
        ),
    )


def _redact_step(step: PatternStep, redactor: Redactor) -> PatternStep:
    def clean_arguments(arguments: Mapping[str, JSON]) -> Mapping[str, JSON]:
        return cast("Mapping[str, JSON]", _redact_value(dict(arguments), redactor, "arguments"))

    example = None if step.example is None else clean_arguments(step.example)
    result = redactor.redact_text(_replace_surrogates(step.result), "results")
    return PatternStep(
        _replace_surrogates(step.tool), clean_arguments(step.arguments), result, example
    )


def _redact_value(value: JSON, redactor: Redactor, where: str) -> JSON:
    return redactor.redact_value(_replace_all_surrogates(value), where)


def _replace_all_surrogates(value: JSON) -> JSON:
    if isinstance(value, str):
        return _replace_surrogates(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, JSON]", value)
        return {
            _replace_surrogates(name): _replace_all_surrogates(one) for name, one in fields.items()
        }
    if isinstance(value, (list, tuple)):
        return [_replace_all_surrogates(one) for one in cast("list[JSON]", value)]
    return value


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates: a session may contain them, but no file can."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
