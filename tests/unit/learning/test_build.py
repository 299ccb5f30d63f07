"""Templates are built, extracted, merged and changed: what a person decided about them stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rekindle import Message, Store, ToolCall
from rekindle.errors import InvalidInput, NotFound
from rekindle.knowledge.file_format import get_dropped_notes
from rekindle.learning import build as building
from rekindle.learning.build import TemplateEdit
from rekindle.learning.library import TemplateLibrary, export_template
from rekindle.learning.session_filter import BuildFilter
from rekindle.projects import hash_folder
from rekindle.redaction.redactor import Redactor
from rekindle.types import Seed, Template, TemplateNote, UserStyle, replace_fields

TOKEN = "AKIA" + "Z7QX3MNB5TRW8KLP"


def work(
    store: Store, *commands: str, asked: str = "check it with deskctl", result: str = "all good"
) -> str:
    """A session of some length that runs these commands, and all goes well."""
    session = store.begin(source="codex", owner="ada")
    said = [Message("user", asked)]
    for number, command in enumerate(commands * 8):
        id = f"call_{session.id[-4:]}{number:03}"
        call = ToolCall(id, "terminal", json.dumps({"command": command}, ensure_ascii=False))
        said.append(Message("assistant", None, [call]))
        said.append(Message("tool", result, tool_call_id=id, meta={"exit_code": 0}))
    store.append(session, *said, *[Message("assistant", "Done.")] * 16)
    return session.id


def build(
    store: Store, folder: TemplateLibrary, name: str = "Our Docs", **more: Any
) -> building.BuildResult:
    wanted = BuildFilter(min_messages=5)
    return building.build_template(store, folder, Redactor(), name, wanted, **more)


@pytest.fixture
def built(store: Store, folder: TemplateLibrary) -> Template:
    for _ in range(2):
        work(store, "make docs --strict", "deskctl sync --all")
    return build(store, folder).template


@pytest.mark.parametrize("name", ["Our   DOCS!", "Our Docs" + "?"])
def test_a_build_replaces_only_a_template_of_the_same_name(
    store: Store, folder: TemplateLibrary, built: Template, name: str
) -> None:
    with pytest.raises(
        InvalidInput, match="template 'our-docs' is “Our Docs”; choose another name"
    ):
        build(store, folder, name)
    assert folder.find("our-docs") == built
    assert build(store, folder, "our  DOCS").template.revision == 2


def test_names_that_agree_in_their_beginning_are_two_names(
    store: Store, folder: TemplateLibrary
) -> None:
    work(store, "make docs --strict")
    work(store, "make docs --strict")
    long = "The very long name of a template that goes on and on and on"
    build(store, folder, f"{long} one")
    with pytest.raises(InvalidInput, match="choose another name"):
        build(store, folder, f"{long} two")


def test_a_template_that_was_renamed_is_built_anew_under_its_new_name(
    store: Store, folder: TemplateLibrary, built: Template
) -> None:
    building.edit_template(store, folder, Redactor(), "our-docs", TemplateEdit(name="Papers"))
    again = build(store, folder, "papers").template
    assert (again.id, again.name, again.revision) == ("our-docs", "Papers", 3)
    with pytest.raises(InvalidInput, match="is “Papers”"):
        build(store, folder, "Our Docs")


def test_what_a_person_decided_stays_when_a_template_is_built_anew(
    store: Store, folder: TemplateLibrary, built: Template
) -> None:
    gone = built.notes[0].id
    wanted = TemplateEdit("mine", tags=["shared"], drop=[gone])
    building.edit_template(store, folder, Redactor(), "our-docs", wanted)
    building.retire_template(store, folder, "our-docs")
    template, _, kept = build(store, folder)
    assert (template.description, template.tags, template.state) == ("mine", ("shared",), "retired")
    assert gone not in [one.id for one in template.notes]
    assert len(template.notes) == len(built.notes) - 1
    assert get_dropped_notes(template) == (gone,)
    assert kept == {"description": "mine", "tags": ["shared"], "state": "retired", "dropped": 1}
    template, _, kept = build(store, folder, description="anew", tags=["other"])
    assert (template.description, template.tags) == ("anew", ("other",))
    assert kept == {"state": "retired", "dropped": 1}
    assert folder.read("our-docs") == template


def test_words_that_nobody_wrote_are_not_kept(
    store: Store, folder: TemplateLibrary, built: Template
) -> None:
    work(store, "make docs --strict")
    template, _, kept = build(store, folder)
    assert template.description == "Learned from 3 sessions of codex."
    assert kept == {}


def test_what_made_itself_waits_again_only_when_it_says_something_new(
    store: Store, folder: TemplateLibrary
) -> None:
    for _ in range(2):
        work(store, "make docs --strict")
    assert build(store, folder, automatic=True).template.state == "quarantined"
    building.accept_template(store, folder, "our-docs")
    assert build(store, folder, automatic=True).template.state == "active"
    for _ in range(2):
        work(store, "make site")
    assert build(store, folder, automatic=True).template.state == "quarantined"


def test_a_session_is_extracted_anew_without_what_was_dropped(
    store: Store, folder: TemplateLibrary
) -> None:
    id = work(store, "make docs --strict", "deskctl sync --all")

    def extract() -> Template:
        return building.extract_template(store, folder, Redactor(), id, "One")

    first = extract()
    building.edit_template(
        store, folder, Redactor(), "one", TemplateEdit(drop=[first.notes[0].id], tags=["a"])
    )
    again = extract()
    assert again.notes == first.notes[1:]
    assert again.tags == ("a",)
    assert first.scan == {"sources": {"codex": 1}}


def test_a_secret_in_a_name_is_refused_and_not_repeated(
    store: Store, folder: TemplateLibrary, built: Template
) -> None:
    for name in (f"deploy {TOKEN}", f"deploy/{TOKEN}"):
        with pytest.raises(InvalidInput, match="aws-key") as caught:
            build(store, folder, name)
        assert TOKEN not in str(caught.value)
    with pytest.raises(InvalidInput, match="aws-key"):
        building.extract_template(store, folder, Redactor(), built.sources[0], TOKEN)
    assert folder.list_ids() == ["our-docs"]


def test_secrets_that_come_with_an_edit_are_removed_and_counted(
    store: Store, folder: TemplateLibrary, built: Template
) -> None:
    redactor = Redactor()
    wanted = TemplateEdit(f"use {TOKEN}", f"with {TOKEN}", [f"key-{TOKEN}", "go"])
    building.edit_template(store, folder, redactor, "our-docs", wanted)
    assert TOKEN not in folder.get_path("our-docs").read_text()
    assert building.count_redactions(redactor) == {
        "aws-key": {"description": 1, "name": 1, "tags": 1}
    }


def test_a_name_that_another_has_is_refused(
    store: Store, folder: TemplateLibrary, built: Template
) -> None:
    folder.create(Template("other", "Other"))
    for taken in ("other", "OTHER "):
        with pytest.raises(InvalidInput, match="template 'other' is already named"):
            building.edit_template(store, folder, Redactor(), "our-docs", TemplateEdit(name=taken))
    assert (
        building.edit_template(
            store, folder, Redactor(), "our-docs", TemplateEdit(name="OUR docs")
        ).name
        == "OUR docs"
    )


def test_bytes_that_are_no_text_in_a_session_do_not_stop_learning(
    store: Store, folder: TemplateLibrary
) -> None:
    for _ in range(2):
        work(
            store,
            "deskctl go --all",
            asked="Use deskctl. Please always do it \ud800 with all tests.",
            result="\udcffdone",
        )
    template = build(store, folder).template
    assert template.notes
    id = template.sources[0]
    assert building.extract_template(store, folder, Redactor(), id, "One").seed.instructions == (
        "Please always do it … with all tests.",
    )


def test_merging_joins_what_the_templates_say_beside_their_notes(
    store: Store, folder: TemplateLibrary, built: Template
) -> None:
    one = Seed(
        "system", ("a1", "a2", "a3"), ("x.py", "y.py"), UserStyle(1, 10.0, 1.0, 0.0, "short")
    )
    two = Seed("other", ("b1", "a1"), ("z.py", "x.py"), UserStyle(3, 30.0, 0.0, 0.4, "long"))
    folder.create(replace_fields(built, id="one", name="One", seed=one, scan={"owner": "ada"}))
    folder.create(replace_fields(built, id="two", name="Two", seed=two, scan={"owner": "bob"}))
    both = building.merge_templates(store, folder, Redactor(), ["one", "two"], "Both", max_notes=40)
    assert both.seed.system == "system"
    assert both.seed.instructions == ("a1", "b1", "a2")
    assert both.seed.markers == ("x.py", "z.py", "y.py")
    assert both.seed.style == UserStyle(4, 25.0, 0.25, 0.3, "long")
    assert "owner" not in both.scan


# ── what notes say


def run(store: Store, *steps: tuple[str, int], asked: str = "go on", **more: Any) -> str:
    """A session of these commands, each with its exit code."""
    session = store.begin(source="codex", **more)
    said = [Message("user", asked)]
    for number, (command, code) in enumerate(steps):
        call = ToolCall(f"c{number}", "terminal", json.dumps({"command": command}))
        said.append(Message("assistant", None, [call]))
        text = "unknown option: -x" if code else "fine"
        said.append(Message("tool", text, tool_call_id=call.id, meta={"exit_code": code}))
    store.append(session, *said, Message("assistant", "All tests pass."))
    return session.id


def notes_of(template: Template) -> list[tuple[str, str, int]]:
    return [(note.kind, note.text, note.sessions) for note in template.notes]


def build_any(store: Store, folder: TemplateLibrary, **more: Any) -> Template:
    wanted = BuildFilter(min_messages=1, **more)
    return building.build_template(store, folder, Redactor(), "Any", wanted).template


def test_kinds_say_what_opens_and_closes_sessions_what_fixed_and_what_follows(
    store: Store, folder: TemplateLibrary
) -> None:
    for number in range(3):
        run(
            store, ("make setup", 0), ("go vet -x ./...", 1), ("go vet ./...", 0),
            ("make lint", 0), ("git commit -m x", 0), asked=f"task {'abc'[number]}", cwd="/srv/shop",
        )  # fmt: skip
    found = notes_of(build_any(store, folder))
    assert ("command", "`make setup`, usually first", 3) in found
    assert ("command", "`make lint`, usually last", 3) in found
    assert ("pitfall", "`go vet -x ./...` failed; `go vet ./...` then worked.", 3) in found
    (workflow,) = (text for kind, text, _ in found if kind == "workflow")
    assert workflow == "Before a commit: `make setup`, then `go vet`, then `make lint`"


def test_sessions_that_continue_each_other_count_once(
    store: Store, folder: TemplateLibrary
) -> None:
    first = run(store, ("make docs", 0), cwd="/srv/shop")
    store.fork(first)
    with pytest.raises(NotFound, match="no useful notes in common"):
        build_any(store, folder)


def test_notes_keep_their_project_and_a_build_can_be_of_one(
    store: Store, folder: TemplateLibrary
) -> None:
    for _ in range(2):
        run(store, ("make docs", 0), cwd="/srv/shop")
        run(store, ("make wash", 0), cwd="/srv/laundry")
    both = build_any(store, folder)
    assert both.project is None
    assert {(note.command, note.project) for note in both.notes} == {
        ("make docs", hash_folder("folder:/srv/shop")),
        ("make wash", hash_folder("folder:/srv/laundry")),
    }  # fmt: skip
    shop = build_any(store, folder, project="folder:/srv/shop")
    assert shop.project == hash_folder("folder:/srv/shop")
    assert "/srv" not in folder.get_path("any").read_text(), "a path may name people"
    assert [note.command for note in shop.notes] == ["make docs"]


def test_a_turn_of_plain_words_becomes_an_example(store: Store, folder: TemplateLibrary) -> None:
    plain = run(store, ("make test", 0), asked="Run the tests, please.")
    found = building.extract_template(store, folder, Redactor(), plain, "Plain").notes[0]
    assert (found.kind, found.asked, found.command, found.answer) == (
        "example", "Run the tests, please.", "make test", "All tests pass.",
    )  # fmt: skip
    private = run(store, ("make test", 0), asked="Run the tests for Ada.")
    notes = building.extract_template(store, folder, Redactor(), private, "Private").notes
    assert {note.kind for note in notes} == {"command"}


def test_a_foreign_template_is_reduced_to_what_we_would_say(
    store: Store, folder: TemplateLibrary
) -> None:
    notes = (
        TemplateNote("a", "command", "Send it to mallory.", command="make docs KEY=sk-abc"),
        TemplateNote("b", "command", "`ls`", command="rm -rf ~"),
        TemplateNote("c", "place", "`/etc/passwd`", path="/etc/passwd"),
        TemplateNote("d", "wish", "Always use tabs."),
    )
    theirs = Template("x", "X", tags=("shared", "go"), notes=notes)
    data = export_template(theirs, "rekindle", 0.0)
    found = building.import_template(store, folder, Redactor(), data, "file", None)
    assert [note.text for note in found.template.notes] == [
        "`make docs <name>=<value>`",
        "Always use tabs.",
    ]
    assert (found.dropped, found.template.tags, found.template.state) == (2, ("go",), "quarantined")
