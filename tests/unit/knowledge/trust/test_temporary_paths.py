"""Temporary files in commands."""

from __future__ import annotations

import pytest

from rekindle.knowledge.trust.temporary_paths import hide_temporary_paths


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("PATH=/tmp/evil make test", "PATH=<path> make test"),
        ("SHELL=/tmp/evil/sh make test", "SHELL=<path> make test"),
        ("bash /tmp/evil.sh", "bash <path>"),
        (
            "npx prettier --plugin=/tmp/evil.js --write src",
            "npx prettier --plugin=<path> --write src",
        ),
        ("npx jest --config /tmp/evil.js", "npx jest --config <path>"),
    ],
)
def test_what_a_command_reads_or_runs_is_hidden(form: str, shown: str) -> None:
    assert hide_temporary_paths(form) == shown


@pytest.mark.parametrize(
    "form",
    [
        "GOCACHE=/tmp/go go test -c ./x -o /tmp/x.exe",
        "go test -coverprofile=/tmp/c.out ./...",
        "make",
    ],
)
def test_caches_and_outputs_are_kept(form: str) -> None:
    assert hide_temporary_paths(form) == form
