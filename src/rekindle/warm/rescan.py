"""A template looked through once more: nothing is written or taken in that redaction would remove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ..types import JSON, Pattern, Step, Template, replace
from .redact import Redactor


def rescanned(template: Template, redactor: Redactor, where: str = "template") -> Template:
    """The template without what redaction finds in any of its texts."""

    def text(said: str) -> str:
        return redactor.text(said, where) if said else said

    seed = template.seed
    return replace(
        template,
        name=text(template.name)[:100] or template.id,
        description=text(template.description),
        tags=tuple(map(text, template.tags)),
        patterns=tuple(_pattern(one, redactor, where) for one in template.patterns),
        seed=replace(
            seed,
            system=text(seed.system),
            instructions=tuple(map(text, seed.instructions)),
            markers=tuple(map(text, seed.markers)),
        ),
        scan=redactor.value(dict(template.scan), where),
    )


def _pattern(pattern: Pattern, redactor: Redactor, where: str) -> Pattern:
    return replace(
        pattern,
        steps=tuple(_step(step, redactor, where) for step in pattern.steps),
        before=None if pattern.before is None else _step(pattern.before, redactor, where),
        asked=redactor.text(pattern.asked, where),
        lesson=redactor.text(pattern.lesson, where),
        also=tuple(redactor.text(one, where) for one in pattern.also),
    )


def _step(step: Step, redactor: Redactor, where: str) -> Step:
    def clean(arguments: Mapping[str, JSON]) -> Mapping[str, JSON]:
        return cast("Mapping[str, JSON]", redactor.value(dict(arguments), where))

    example = None if step.example is None else clean(step.example)
    return Step(step.tool, clean(step.arguments), redactor.text(step.result, where), example)
