"""The folder of templates: names, files, two writers, what is wrong with a file."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from rekindle.errors import AmbiguousName, InvalidInput, NotFound
from rekindle.knowledge import file_format
from rekindle.learning import library
from rekindle.learning.library import (
    TemplateLibrary,
    export_template,
    make_template_id,
    parse_export,
)
from rekindle.types import Seed, Template, TemplateNote, UserStyle, replace_fields

NOTE = TemplateNote(
    "0a1b",
    "pitfall",
    "`pytest <path>` failed; `uv run pytest <path>` then worked.",
    command="uv run pytest <path>",
    folder="src",
    failed_command="pytest <path>",
    sessions=2,
    worked=4,
    failed=1,
    last="2026-01-05",
)
TEMPLATE = Template(
    "tests",
    "Tests",
    "How tests run here — ü",
    "code",
    ("go", "ci"),
    (NOTE,),
    Seed("system", ("Always test.",), ("a.py",), UserStyle(3, 20.5, 0.5, 0.25, "short questions")),
    ("s1", "s2"),
    scan={"scanned": 7},
)


@pytest.fixture
def folder(tmp_path: Path) -> TemplateLibrary:
    return TemplateLibrary(tmp_path / "templates", clock=lambda: 100.0)


def spoil(folder: TemplateLibrary, **fields: Any) -> Path:
    """Write into a template's file by hand."""
    folder.create(TEMPLATE)
    path = folder.get_path("tests")
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return path


def test_a_template_comes_back_as_it_was_written(folder: TemplateLibrary) -> None:
    made = folder.create(TEMPLATE)
    assert folder.read("tests") == made
    assert made == replace_fields(TEMPLATE, created=100.0, updated=100.0)


def test_the_file_can_be_read_and_diffed_and_is_private(folder: TemplateLibrary) -> None:
    folder.create(TEMPLATE)
    path = folder.get_path("tests")
    text = path.read_text()
    assert text.startswith('{\n  "format": 3,\n  "id": "tests",\n  "name": "Tests",')
    assert "ü" in text
    assert text.endswith("}\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.folder.stat().st_mode) == 0o700
    folder.update("tests", lambda old: old)
    before, after = text.splitlines(), path.read_text().splitlines()
    changed = [line for line, other in zip(before, after, strict=True) if line != other]
    assert [line.split(":")[0].strip() for line in changed] == ['"revision"']


def test_id_and_name_find_it(folder: TemplateLibrary) -> None:
    made = folder.create(replace_fields(TEMPLATE, id="code-review", name="Code Review Template"))
    assert folder.find("code-review") == made
    assert folder.find("Code Review Template") == made
    assert folder.find("code review  template") == made
    with pytest.raises(NotFound, match="warm list"):
        folder.find("nothing")
    folder.create(replace_fields(TEMPLATE, id="other", name="Code Review Template"))
    with pytest.raises(AmbiguousName, match="code-review, other"):
        folder.find("Code Review Template")


@pytest.mark.parametrize(
    ("name", "id"),
    [("Code Review Template", "code-review-template"), ("a", "a"), ("Ünï cöde", "uni-code")],
)
def test_a_name_makes_an_id(name: str, id: str) -> None:
    assert make_template_id(name) == id


def test_a_name_of_other_letters_makes_an_id_of_its_own() -> None:
    assert make_template_id("日本語") != make_template_id("中文") != make_template_id("Ж")


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", "", "a\0b", "a\\b", "x" * 101, " \n "])
def test_a_name_never_reaches_outside(folder: TemplateLibrary, name: str) -> None:
    with pytest.raises(InvalidInput):
        make_template_id(name)
    with pytest.raises(NotFound):
        folder.get_path(name)
    with pytest.raises((NotFound, InvalidInput)):
        folder.delete(name)


def test_what_is_there_is_not_overwritten(folder: TemplateLibrary) -> None:
    folder.create(TEMPLATE)
    with pytest.raises(InvalidInput, match="already exists"):
        folder.create(replace_fields(TEMPLATE, name="New"))
    again = folder.create(TEMPLATE, on_existing=lambda old: replace_fields(old, description="New"))
    assert (again.revision, again.created, again.description) == (2, 100.0, "New")


def test_a_name_is_the_same_whatever_its_case_and_white_space(folder: TemplateLibrary) -> None:
    folder.create(replace_fields(TEMPLATE, id="code-review", name="Code reviéw"))
    assert folder.resolve_id("code   REVIE\u0301W") == "code-review"
    assert folder.resolve_id("code-review") == "code-review", "an id is as good as a name"
    assert folder.resolve_id("Something else") == "something-else"
    folder.update("code-review", lambda old: replace_fields(old, name="Renamed"))
    assert folder.resolve_id("renamed") == "code-review"


@pytest.mark.parametrize("tag", ["", " ", "x" * 101, "bad\udcff"])
def test_a_tag_is_some_text_and_not_too_much(tag: str) -> None:
    with pytest.raises(InvalidInput, match="tag"):
        library.validate_tags(["good", tag])


def test_tags_are_told_once_and_without_white_space_around_them() -> None:
    assert library.validate_tags([" a ", "a", "b  c"]) == ("a", "b c")


def test_text_that_no_file_can_hold_is_refused_with_its_field(folder: TemplateLibrary) -> None:
    for wrong in (
        replace_fields(TEMPLATE, description="bad\udcff"),
        replace_fields(TEMPLATE, tags=("good", "bad\ud800")),
    ):
        with pytest.raises(
            InvalidInput, match=r"(description|tags\[1\]): expected valid UTF-8 text"
        ):
            folder.create(wrong)
    assert folder.list_ids() == []


def test_a_change_of_what_is_no_longer_there_is_refused(folder: TemplateLibrary) -> None:
    made = folder.create(TEMPLATE)
    folder.update(
        "tests", lambda old: replace_fields(old, description="one"), revision=made.revision
    )
    with pytest.raises(InvalidInput, match="changed meanwhile: it is at revision 2, not 1"):
        folder.update(
            "tests", lambda old: replace_fields(old, description="two"), revision=made.revision
        )
    assert folder.find("tests").description == "one"


def test_of_two_writers_at_once_neither_is_lost(folder: TemplateLibrary) -> None:
    folder.create(replace_fields(TEMPLATE, tags=()))

    def add(name: str) -> None:
        for number in range(10):
            tag = f"{name}{number}"
            folder.update("tests", lambda old, tag=tag: replace_fields(old, tags=(*old.tags, tag)))

    writers = [threading.Thread(target=add, args=(name,)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(folder.find("tests").tags) == 30
    assert folder.find("tests").revision == 31


def test_a_write_that_fails_leaves_the_old_file(
    folder: TemplateLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.create(TEMPLATE)
    before = folder.get_path("tests").read_bytes()

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        folder.update("tests", lambda old: replace_fields(old, description="new"))
    assert caught.value.filename == str(folder.get_path("tests"))
    monkeypatch.undo()
    assert folder.get_path("tests").read_bytes() == before
    assert [path.name for path in folder.folder.iterdir() if path.suffix == ".draft"] == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"format": 4}, "upgrade Rekindle"),
    ({"format": None}, "not a template"),
    ({"taggs": []}, "unknown field 'taggs'; known fields: id, name"),
    ({"name": 5}, "name: expected text"),
    ({"state": "great"}, "state: expected one of active, quarantined, retired"),
    ({"id": "other"}, "the name of the file"),
    ({"notes": [{"id": "x", "kind": "wish"}]}, r"notes\[0\]: missing field text"),
    (
        {"notes": [{"id": "x", "kind": "odd", "text": "y"}]},
        r"notes\[0\]\.kind: expected one of wish, command",
    ),
    ({"notes": [{"kind": "wish", "text": "x"}]}, r"notes\[0\]: missing field id"),
    (
        {"notes": [{"id": "x", "kind": "wish", "text": "y", "odd": 1}]},
        r"notes\[0\]: unknown field 'odd'; known fields: id, kind, text",
    ),
    ({"description": "run\U000e0072\U000e006d"}, r"description: expected visible text.*U\+E0072"),
    ({"name": "a\x1bb"}, r"name: expected visible text, got the character U\+001B"),
    ({"seed": {"x": 1}}, "seed: unknown field 'x'; known fields: system, instructions"),
    ({"x` - at `$.y[0]": 1}, "unknown field .*; known fields: "),
    ({"revision": True}, "revision: expected a whole number"),
    ({"updated": 10**400}, "updated: number out of range, got 1000"),
    ({"created": "now"}, "created: expected a number"),
    ({"tags": ["a", "\ud800"]}, r"tags\[1\]: expected valid UTF-8 text"),
    ({"scan": {"x": {"\udfff": 1}}}, "scan.x.*: expected valid UTF-8 text"),
    ({"scan": {"dropped": "all"}}, r"scan\.dropped: expected a list"),
    ({"scan": {"sources": ["codex"]}}, r"scan\.sources: expected an object"),
    ({"scan": {"origin": {"exported": "today"}}}, "exported: expected a number"),
]


@pytest.mark.parametrize(("fields", "said"), WRONG)
def test_what_is_wrong_with_a_file_is_said_with_its_field(
    folder: TemplateLibrary, fields: dict[str, Any], said: str
) -> None:
    path = spoil(folder, **fields)
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match=said) as caught:
        folder.find("tests")
    assert str(path) in str(caught.value)
    with pytest.raises(InvalidInput):
        folder.update("tests", lambda old: old)
    assert path.read_bytes() == before, "nothing is lost by trying"


def test_bytes_that_are_no_utf_8_are_refused_too(folder: TemplateLibrary) -> None:
    path = spoil(folder)
    path.write_bytes(path.read_bytes().replace(b'"ci"', b'"\xed\xa0\x80"'))
    with pytest.raises(InvalidInput, match=r"tags\[1\]: expected valid UTF-8 text"):
        folder.find("tests")


def test_a_file_that_cannot_be_read_hides_no_other_and_can_be_deleted(
    folder: TemplateLibrary,
) -> None:
    spoil(folder, taggs=[])
    folder.create(replace_fields(TEMPLATE, id="good", name="Good"))
    entries = folder.list_entries()
    assert [(entry.id, entry.template is not None) for entry in entries] == [
        ("good", True),
        ("tests", False),
    ]
    assert folder.find("Good").id == "good"
    assert folder.delete("tests") == "tests"


def test_a_file_that_is_too_large_is_refused_before_it_is_parsed(folder: TemplateLibrary) -> None:
    folder.create(TEMPLATE)
    folder.get_path("tests").write_bytes(b'{"format": 3, "x": "' + b"y" * 10_000_000 + b'"}')
    with pytest.raises(InvalidInput, match="exceeds the 5,000,000 bytes"):
        folder.find("tests")
    large = replace_fields(
        TEMPLATE,
        id="large",
        notes=(replace_fields(NOTE, text="x" * 999, command="y" * 999, path="z" * 999),) * 1_900,
    )
    with pytest.raises(InvalidInput, match="exceeds the 5,000,000"):
        folder.create(large)
    assert not folder.get_path("large").exists()


def test_an_export_is_whole_or_refused() -> None:
    data = export_template(TEMPLATE, "rekindle 1", 5.0)
    assert parse_export(data, "file").template == TEMPLATE
    for wrong, said in (
        (data.replace(b"Always test.", b"Never test."), "checksum"),
        (data[:-20], "not JSON"),
        (b"[]", "expected a JSON object"),
        (file_format.format_template(TEMPLATE).encode(), "not an exported template"),
        (data.replace(b'"format": 3', b'"format": 9', 1), "upgrade"),
        (data.replace(b'"provenance"', b'"provenence"'), "unknown field"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=said):
            parse_export(wrong, "file")


def test_an_export_tells_where_it_comes_from_but_not_whose_sessions_they_were() -> None:
    data = export_template(
        replace_fields(TEMPLATE, scan={"scanned": 7, "owner": "ada"}), "rekindle 1", 5.0
    )
    assert b'"ada"' not in data
    template, origin = parse_export(data, "file")
    assert template == TEMPLATE
    assert origin == {
        "program": "rekindle 1", "exported": 5.0, "made": "built", "sessions": 2, "revision": 1,
    }  # fmt: skip


def test_an_export_of_before_is_read_whatever_its_provenance_lacks() -> None:
    fields = json.loads(export_template(TEMPLATE, "rekindle 1", 5.0))
    del fields["provenance"]
    assert parse_export(json.dumps(fields).encode(), "file") == (TEMPLATE, {})
    fields["provenance"] = {"program": "rekindle 0", "machine": "of then"}
    _, origin = parse_export(json.dumps(fields).encode(), "file")
    assert origin == {"program": "rekindle 0"}


# ── files of format 2


def old_pattern(command: str, kind: str = "example", **more: Any) -> dict[str, Any]:
    step = {"tool": "terminal", "arguments": {"command": command}, "result": "fine"}
    return {"id": command[:60], "kind": kind, "steps": [step], "seen_in": 3, **more}


def test_patterns_of_an_older_file_become_notes_as_far_as_they_are_harmless(
    folder: TemplateLibrary,
) -> None:
    failed = {"tool": "terminal", "arguments": {"command": "pytest <path:py>"}}
    patterns = [
        old_pattern("uv run pytest <path:py>", "retry", before=failed, lesson="Add `uv run`."),
        old_pattern("make lint STRICT=1", "final"),
        {
            "id": "r",
            "kind": "init",
            "steps": [{"tool": "read_file", "arguments": {"path": "docs/guide.md"}}],
        },
        old_pattern("deskctl sync --all"),
        old_pattern("rm -rf build"),
        old_pattern("npm install", tainted=True),
        {
            "id": "s",
            "kind": "sequence",
            "steps": [old_pattern(one)["steps"][0] for one in ("make build", "make test")],
            "asked": "log in with admin / swordfish",
        },
    ]
    spoil(folder, format=2, notes=None)
    path = folder.get_path("tests")
    fields = json.loads(path.read_text())
    del fields["notes"], fields["project"]
    fields["seed"]["instructions"] = ["the password is swordfish"]
    path.write_text(json.dumps({**fields, "patterns": patterns}))
    found = folder.read("tests")
    told = {(note.kind, note.failed_command, note.command or note.path) for note in found.notes}
    assert told == {
        ("pitfall", "pytest <value>", "uv run pytest <value>"),
        ("command", None, "make lint <name>=<number>"),
        ("place", None, "docs/guide.md"),
        ("workflow", None, "make build && make test"),
    }
    assert found.scan["converted"] == {"patterns": 7, "kept": 4}
    assert "swordfish" not in repr(found)
    folder.update("tests", lambda old: old)
    assert '"format": 3' in path.read_text()
    assert folder.read("tests").notes == found.notes
