"""What a person decided about a template stays, and what they type is looked at like all else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.test_cli import Rekindle
from tests.acceptance.test_warm import SECRET, file_of, home


@pytest.fixture
def built(tmp_path: Path) -> Rekindle:
    built = home(tmp_path)
    built("warm", "build", "--name", "Our Tests", "--tag", "python")
    return built


def test_decisions_outlive_a_build_and_another_name_does_not_replace_them(built: Rekindle) -> None:
    notes = built.json("warm", "show", "our-tests", "--json")["notes"]
    gone = notes[0]["id"]
    built("warm", "edit", "our-tests", "--drop", gone, "--tag", "shared", "--description", "mine")
    built("warm", "retire", "our-tests")
    before = file_of(built).read_bytes()
    said = built.refusal("warm", "build", "--name", "Our   TESTS!", "--source", "codex")
    assert "template 'our-tests' is “Our Tests”; choose another name" in said
    assert file_of(built).read_bytes() == before
    told = built("warm", "build", "--name", "our   TESTS")
    assert "Redacted: " in told
    assert (
        "Kept from the previous revision: the description, the tags python shared, the state (retired),"
        " the removal of 1 note." in told
    )
    assert "It is retired. To use it in new sessions: `rekindle warm accept" in told
    after = json.loads(file_of(built).read_text())
    assert (after["description"], after["tags"]) == ("mine", ["python", "shared"])
    assert (after["state"], after["name"]) == ("retired", "Our Tests")
    assert [one["id"] for one in after["notes"]] == [one["id"] for one in notes[1:]]
    assert after["scan"]["dropped"] == [gone]


def test_a_file_of_an_older_version_is_built_anew(built: Rekindle) -> None:
    """Without what is kept today beside the scan, and named as a person wrote it."""
    path = file_of(built)
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "scan": {}, "name": "OUR tests"}))
    listed = built.json("warm", "list", "--source", "codex", "--json")
    assert [one["id"] for one in listed] == ["our-tests"], "its sessions are known to be from there"
    told = built.json("warm", "build", "--name", "Our Tests", "--json")
    assert (told["revision"], told["name"], told["tags"]) == (2, "OUR tests", ["python"])
    assert told["kept"] == {"tags": ["python"]}


def test_secrets_that_a_person_types_get_into_no_template(built: Rekindle) -> None:
    told = built(
        "warm", "edit", "our-tests", "--description", f"use {SECRET}", "--tag", f"k-{SECRET}",
        "--rename", f"With {SECRET}",
    )  # fmt: skip
    assert "Redacted: aws-key 3 (description 1, name 1, tags 1)." in told
    assert SECRET not in file_of(built).read_text()
    said = built.refusal("warm", "build", "--name", f"deploy {SECRET}")
    assert "choose another name" in said
    assert SECRET not in said
    path = file_of(built)
    assert [one.name for one in path.parent.glob("*.json")] == ["our-tests.json"]
    path.write_text(path.read_text().replace("use <secret:aws-key>", f"by hand {SECRET}"))
    exported = built.run("warm", "export", "our-tests", "--json")
    assert SECRET.encode() not in exported.stdout
    assert b"Redacted from the export: aws-key 1 (description)." in exported.stderr
    assert json.loads(exported.stdout)["kind"] == "rekindle-template"


def test_bytes_that_are_no_text_are_refused_in_one_line(built: Rekindle) -> None:
    bad = "bad\udcffbyte"  # what Python makes of the byte 0xff
    before = file_of(built).read_bytes()
    assert "text in UTF-8" in built.refusal("warm", "edit", "our-tests", "--description", bad)
    assert "text in UTF-8" in built.refusal("warm", "edit", "our-tests", "--tag", bad)
    said = built.refusal("warm", "extract", "Work 1", "--name", "x", "--description", bad)
    assert "text in UTF-8" in said
    assert file_of(built).read_bytes() == before
    written = file_of(built).read_text().replace('"python"', '"\\ud800"')
    file_of(built).write_text(written)
    said = built.refusal("warm", "export", "our-tests")
    assert "our-tests.json: tags[0]: expected valid UTF-8 text" in said


def test_tags_and_names_are_checked_and_json_is_taken_where_it_is_said(built: Rekindle) -> None:
    assert "tag ''" in built.refusal("warm", "edit", "our-tests", "--tag", " ")
    built("warm", "extract", "Work 1", "--name", "one")
    said = built.refusal("warm", "edit", "one", "--rename", "OUR tests")
    assert "template 'our-tests' is already named 'OUR tests'" in said
    assert built.json("warm", "load", "one", "--json")[0]["role"] == "system"
