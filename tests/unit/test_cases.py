"""Many cases in one test: each is checked, and each that fails is reported."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.cases import check_each


def test_every_case_that_fails_is_reported_with_its_name_line_and_reason() -> None:
    seen: list[int] = []

    @check_each("number", [1, 2, 3, 4], ids=lambda number: f"case {number}")
    def check(number: int) -> None:
        seen.append(number)
        assert number % 2, "it is even"
        if number == 3:
            raise ValueError("three is wrong")

    with pytest.raises(pytest.fail.Exception) as failure:
        check()
    assert seen == [1, 2, 3, 4]
    said = str(failure.value)
    assert said.startswith("3 of 4 cases failed:\n[case 2]\n")
    assert "[case 1]" not in said
    assert "ValueError: three is wrong" in said
    assert "it is even" in said
    assert f"{__file__}:{inspect.getsourcelines(check)[1] + 3}: assert number % 2" in said


def test_cases_with_several_values_are_combined_and_given_with_the_fixtures(
    tmp_path: Path,
) -> None:
    seen: list[tuple[Path, int, str, bool]] = []

    @check_each("is_last", [False, True])
    @check_each("number, text", [(1, "a"), (2, "b")], ids=["first", "second"])
    def check(tmp_path: Path, number: int, text: str, is_last: bool) -> None:
        seen.append((tmp_path, number, text, is_last))

    assert [*inspect.signature(check).parameters] == ["tmp_path"]
    check(tmp_path=tmp_path)
    assert seen == [
        (tmp_path, 1, "a", False),
        (tmp_path, 2, "b", False),
        (tmp_path, 1, "a", True),
        (tmp_path, 2, "b", True),
    ]
