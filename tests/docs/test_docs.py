"""Every command and piece of Python in README.md and docs/ is run; every link leads somewhere.

A `console` block is run line by line (those that begin with `$ `), the blocks of a page one after
the other in one shell, in an empty home. A `python` block is a script of its own in that folder.
A block is left out only by a comment before it that says why: `<!-- docs: skip: reason -->`.
"""

import os
import re
import subprocess
import sysconfig
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import NamedTuple, get_type_hints

import pytest

from rekindle.config import SETTINGS, Config, load_config
from tests import command
from tests.cases import check_each
from tests.docs import settings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Their programs need frameworks: tests/frameworks runs them.
APART = [*sorted((ROOT / "docs" / "integrations").glob("*.md")), ROOT / "docs" / "distributed.md"]
BLOCK = re.compile(
    r"(?:<!-- docs: (?P<skip>skip.*?) -->\n)?^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```$",
    re.M | re.S,
)
KNOWN = {"console", "python", "toml", "text", "json", "jsonl", "sql", "diff"}


class Block(NamedTuple):
    language: str
    body: str
    line: int
    skip: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["body"], text[: m.start("body")].count("\n") + 1, m["skip"])
        for m in BLOCK.finditer(text)
    ]


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REKINDLE_")}
    folders = [command.get_scripts_folder(), sysconfig.get_path("scripts"), os.environ["PATH"]]
    path = os.pathsep.join(folders)
    return {**kept, "HOME": str(home), "REKINDLE_HOME": str(home / "rekindle"), "PATH": path}


# A command may be ended by the one that reads from it (`| head`); nothing else may fail.
CHECK = 'for code in "${PIPESTATUS[@]}"; do [ $code = 0 ] || [ $code = 141 ] || exit $code; done'


def script(page: Path) -> str:
    """One shell script of all the blocks that are run, with the lines they came from."""
    lines: list[str] = []
    for block in blocks(page):
        if block.skip is not None:
            continue
        if block.language == "console":
            for number, line in enumerate(block.body.splitlines(), block.line):
                if line.startswith("$ "):
                    lines += [f"echo '{page.name}:{number}' > at", line[2:], CHECK]
        if block.language == "python":
            lines += [f"echo '{page.name}:{block.line}' > at"]
            lines += [
                f"{command.get_script_runner()} /dev/stdin <<'END-OF-BLOCK'",
                block.body,
                "END-OF-BLOCK",
                CHECK,
            ]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in APART], ids=lambda page: page.name
)
def test_what_the_page_shows_can_be_run(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


def run_page(page: Path, tmp_path: Path) -> None:
    """Run all blocks of a page, in order."""
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        ["bash", "-c", script(page)],
        cwd=work,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    at = (work / "at").read_text().strip() if (work / "at").exists() else page.name
    assert done.returncode == 0, f"{at}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"


@check_each("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    missing = [
        link
        for link in links
        if "://" not in link
        and not link.startswith(("#", "mailto:"))
        and not (page.parent / link.split("#")[0]).exists()
    ]
    assert missing == []


@check_each("page", PAGES, ids=lambda page: page.name)
def test_blocks_have_a_known_language_and_left_out_ones_a_reason(page: Path) -> None:
    for block in blocks(page):
        assert block.language in KNOWN, f"{page.name}:{block.line}: ```{block.language}"
        assert block.skip is None or len(block.skip.removeprefix("skip:").strip()) > 10


def test_the_settings_page_has_every_setting_as_it_is() -> None:
    tables = settings.TABLE.findall(settings.PAGE.read_text(encoding="utf-8"))
    assert tables == [settings.table()], "write it anew: python -m tests.docs.settings"


def test_every_field_of_the_settings_is_in_the_table() -> None:
    declared = [
        f"{section}.{field.name}"
        for section, cls in get_type_hints(Config).items()
        if is_dataclass(cls)
        for field in fields(cls)
    ]
    assert declared == [*SETTINGS]


def test_settings_in_examples_exist_and_have_values_that_are_allowed(tmp_path: Path) -> None:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "toml":
                (tmp_path / "config.toml").write_text(block.body, encoding="utf-8")
                config = load_config({"REKINDLE_HOME": str(tmp_path)})
                assert "file" in config.origins.values(), f"{page.name}:{block.line}"


def test_the_command_page_names_every_verb() -> None:
    from rekindle.cli.app import build_command_tree

    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    verbs = sorted(build_command_tree().commands["sessions"].commands)
    assert len(verbs) == 21
    assert [verb for verb in verbs if not re.search(rf"\b{verb}\b", text)] == []
