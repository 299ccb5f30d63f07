from __future__ import annotations

import pytest

from rekindle.knowledge.mining.command_skeleton import (
    INFORMATIVE,
    PLAIN,
    TRIVIAL,
    build_skeleton,
    strip_command,
)
from rekindle.knowledge.mining.slots import (
    classify_word,
    fill_slots,
    list_slot_kinds,
    prune_long_texts,
    slot_arguments,
)


def shown(command: str) -> str:
    found = build_skeleton(command)
    return str(fill_slots(found.skeleton, [None] * len(found.values)))


@pytest.mark.parametrize(
    ("command", "skeleton"),
    [
        ("uv run pytest -q tests/unit/test_a.py", "uv run pytest -q <path:py>"),
        ("cd /home/ada && uv run pytest -q tests/b.py 2>&1 | tail -20", "uv run pytest -q <path:py>"),
        ("go test ./...", "go test ./..."),
        ("deskctl rooms add --id R12 --at 2026-02-01", "deskctl rooms add --id <word> --at <date>"),
        ("git commit -m 'Mend the parser'", "git commit -m <text>"),
        ("pnpm --filter @scope/app build", "pnpm --filter @scope/app build"),
        ("python3 -m http.server 8000", "python3 -m http.server <int>"),
        ("curl https://example.org/a?b=c", "curl <url>"),
        ("git show 3f2a9c1", "git show <hash>"),
        ("bash -lc 'cargo test -p core'", "cargo test -p <word>"),
        ("cd packages/cli && npm test", "cd <path> && npm test"),
        ("FOO=bar make docs", "FOO=<value> make docs"),
    ],
)  # fmt: skip
def test_what_varies_becomes_a_slot_and_the_way_of_calling_stays(
    command: str, skeleton: str
) -> None:
    assert shown(command) == skeleton


@pytest.mark.parametrize(
    ("command", "tier"),
    [
        ("ls -la", TRIVIAL),
        ("cat README.md | head -5", TRIVIAL),
        ("git status --short", TRIVIAL),
        ("python3 --version", TRIVIAL),
        ("git commit -am 'x'", PLAIN),
        ("mkdir -p build", PLAIN),
        ("make docs", INFORMATIVE),
        ("ls && deskctl sync", INFORMATIVE),
    ],
)
def test_what_everybody_knows_tells_nothing(command: str, tier: int) -> None:
    assert build_skeleton(command).tier == tier


def test_a_command_with_its_values_put_back_is_the_command() -> None:
    command = "uv run pytest -q tests/unit/test_a.py -k one"
    found = build_skeleton(command)
    assert fill_slots(found.skeleton, found.values) == command


def test_a_script_is_not_looked_into() -> None:
    long = "python - <<'EOF'\n" + "print(1)\n" * 200 + "EOF\nmake docs"
    assert "print" not in shown(long)
    assert shown("x " * 400) == "<script>"


def test_what_was_done_to_the_output_is_left_out() -> None:
    assert strip_command("make docs 2>&1 | head -n 40") == "make docs"
    assert strip_command('make docs > /dev/null; echo "exit: $?"') == "make docs"
    assert strip_command("cd src && make docs") == "cd src && make docs", (
        "a folder inside is worth knowing"
    )


def test_arguments_keep_their_structure() -> None:
    arguments = {
        "path": "src/a.py",
        "limit": 50,
        "deep": {"ids": ["A1B2C3", "D4E5F6"], "mode": "fast"},
        "exact": True,
        "description": "to see what is there",
    }
    found = slot_arguments(arguments)
    general = fill_slots(found.skeleton, [None] * len(found.values))
    assert general == {
        "path": "<path:py>",
        "limit": "<int>",
        "deep": {"ids": ["<id>", "<id>"], "mode": "fast"},
        "exact": True,
    }
    again = fill_slots(found.skeleton, found.values)
    assert again == {name: value for name, value in arguments.items() if name != "description"}
    assert list_slot_kinds(found.skeleton) == ["path:py", "int", "id", "id"]


def test_long_texts_are_not_taken_in() -> None:
    found = slot_arguments(
        prune_long_texts(
            {"path": "a.py", "content": "secret " * 100, "patch": "diff --git a\nb\nc\nd"}
        )
    )  # type: ignore[arg-type]
    assert found.values == ("a.py", "", "")
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("12", "int"), ("1.5", "number"), ("v1.2.3", "version"), ("2026-01-31", "date"),
        ("src/a.py", "path:py"), ("src/core", "path"), ("~/x", "path"), ("*.py", "glob"),
        ("https://a.b/c", "url"), ("ada@example.org", "mail"), ("<secret:token>", ""),
        ("'two words'", "text"), ("$HOME/x", "expression"), ("3f2a9c1d", "hash"), ("plan", "word"),
    ],
)  # fmt: skip
def test_kinds_of_slots(word: str, kind: str) -> None:
    assert classify_word(word) == kind
