"""Templates are built, extracted, merged and changed: what a person decided about them stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rekindle import Message, Store, ToolCall
from rekindle.errors import InvalidInput
from rekindle.knowledge.file_format import get_dropped_patterns
from rekindle.learning import build as building
from rekindle.learning.build import TemplateEdit
from rekindle.learning.library import TemplateLibrary
from rekindle.learning.miner import MiningFilter
from rekindle.redaction.redactor import Redactor
from rekindle.types import Seed, Template, UserStyle, replace_fields

NOW = 1_767_600_000.0
TOKEN = "AKIA" + "Z7QX3MNB5TRW8KLP"


def work(store: Store, *commands: str, asked: str = "check it", result: str = "all good") -> str:
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
    wanted = MiningFilter(min_messages=5)
    return building.build_template(store, folder, Redactor(), name, wanted, now=NOW, **more)


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
    gone = built.patterns[0].id
    wanted = TemplateEdit("mine", tags=["shared"], drop=[gone])
    building.edit_template(store, folder, Redactor(), "our-docs", wanted)
    building.retire_template(store, folder, "our-docs")
    template, _, kept = build(store, folder)
    assert (template.description, template.tags, template.state) == ("mine", ("shared",), "retired")
    assert gone not in [one.id for one in template.patterns]
    assert len(template.patterns) == len(built.patterns) - 1
    assert get_dropped_patterns(template) == (gone,)
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
        work(store, "deskctl publish --all --now")
    assert build(store, folder, automatic=True).template.state == "quarantined"


def test_a_session_is_extracted_anew_without_what_was_dropped(
    store: Store, folder: TemplateLibrary
) -> None:
    id = work(store, "make docs --strict", "deskctl sync --all")

    def extract() -> Template:
        return building.extract_template(store, folder, Redactor(), id, "One", now=NOW)

    first = extract()
    building.edit_template(
        store, folder, Redactor(), "one", TemplateEdit(drop=[first.patterns[0].id], tags=["a"])
    )
    again = extract()
    assert again.patterns == first.patterns[1:]
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
        building.extract_template(store, folder, Redactor(), built.sources[0], TOKEN, now=NOW)
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
        work(store, "deskctl go --all", asked="do it \ud800 always", result="\udcffdone")
    template = build(store, folder).template
    assert template.patterns
    id = template.sources[0]
    assert building.extract_template(
        store, folder, Redactor(), id, "One", now=NOW
    ).seed.instructions == ("do it \ufffd always",)


def test_merging_joins_what_the_templates_say_beside_their_patterns(
    store: Store, folder: TemplateLibrary, built: Template
) -> None:
    one = Seed(
        "system", ("a1", "a2", "a3"), ("x.py", "y.py"), UserStyle(1, 10.0, 1.0, 0.0, "short")
    )
    two = Seed("other", ("b1", "a1"), ("z.py", "x.py"), UserStyle(3, 30.0, 0.0, 0.4, "long"))
    folder.create(replace_fields(built, id="one", name="One", seed=one, scan={"owner": "ada"}))
    folder.create(replace_fields(built, id="two", name="Two", seed=two, scan={"owner": "bob"}))
    both = building.merge_templates(
        store, folder, Redactor(), ["one", "two"], "Both", max_patterns=40
    )
    assert both.seed.system == "system"
    assert both.seed.instructions == ("a1", "b1", "a2")
    assert both.seed.markers == ("x.py", "z.py", "y.py")
    assert both.seed.style == UserStyle(4, 25.0, 0.25, 0.3, "long")
    assert "owner" not in both.scan
