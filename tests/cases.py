"""Many cheap cases in one test: to collect and report each as a test costs more than to check it."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def check_each(
    names: str, cases: Iterable[Any], ids: Callable[[Any], object] | Iterable[str] | None = None
) -> Callable[[Test], Test]:
    """Run the test with each case, as `pytest.mark.parametrize` does, and report all that fail.

    For tests that take milliseconds. Fixtures are shared by the cases, so that a case must leave
    them as it found them or not mind what another left.
    """
    wanted = [name.strip() for name in names.split(",")]
    listed = list(cases)
    labels = _name_cases(listed, ids)

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @wraps(test)
        def check_all(**fixtures: Any) -> None:
            failed: list[str] = []
            for label, case in zip(labels, listed, strict=True):
                values = case if len(wanted) > 1 else (case,)
                given = dict(zip(wanted, values, strict=True))
                try:
                    test(**fixtures, **given)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  (reported below)
                    failed.append(f"[{label}]\n{_describe(error)}")
            if failed:
                message = f"{len(failed)} of {len(listed)} cases failed:\n"
                pytest.fail(message + "\n".join(failed), pytrace=False)

        kept = [one for name, one in signature.parameters.items() if name not in wanted]
        check_all.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # pyright: ignore
        return check_all

    return decorate


def _name_cases(
    cases: Sequence[Any], ids: Callable[[Any], object] | Iterable[str] | None
) -> list[str]:
    if ids is None:
        return [f"{number}: {case!r:.200}" for number, case in enumerate(cases)]
    return [str(ids(case)) for case in cases] if callable(ids) else list(ids)


def _describe(error: BaseException) -> str:
    """Return where it failed in which line, and why."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    places = [f"  {frame.filename}:{frame.lineno}: {frame.line}" for frame in frames]
    return "\n".join([*places, f"  {type(error).__name__}: {error}"])
