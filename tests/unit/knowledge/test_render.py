"""The messages of a warm session: valid everywhere, always the same, and only what can be done now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekindle.agent.model.providers import PROVIDER_RULES, PROVIDERS, find_violations
from rekindle.knowledge import tokens
from rekindle.knowledge.render import (
    MAX_CONTEXT_CHARS,
    MAX_NOTES,
    PAST_MARK,
    PRELUDE_FORMS,
    RenderedPrelude,
    RenderOptions,
    render_prelude,
)
from rekindle.types import JSON, Message, Seed, Template, TemplateNote
from tests.counts import choose_count


def anything(_: Mapping[str, JSON]) -> bool:
    return True


def takes(*names: str) -> Any:
    """A tool with these arguments."""

    def fits(arguments: Mapping[str, JSON]) -> bool:
        return bool(arguments) and set(arguments) <= set(names)

    return fits


TOOLS = {"terminal": takes("command"), "read_file": takes("path")}


def command(text: str, id: str = "c", **more: Any) -> TemplateNote:
    return TemplateNote(id, "command", f"`{text}`", command=text, **more)


def example(command: str, asked: str = "check it", answer: str = "All good.") -> TemplateNote:
    return TemplateNote("e", "example", "", command=command, asked=asked, answer=answer)


def shown(*notes: TemplateNote, seed: Seed = Seed(), **manner: Any) -> RenderedPrelude:  # noqa: B008
    return render_prelude(Template("t", "T", seed=seed), notes, TOOLS, RenderOptions(**manner))


# ── what is shown


def test_notes_are_statements_of_one_system_message_with_their_evidence() -> None:
    pitfall = TemplateNote("p", "pitfall", "`a` failed; `b` then worked.", command="b", sessions=2)
    place = TemplateNote("f", "place", "`src/a.py`", path="src/a.py", sessions=1)
    found = shown(place, pitfall, command("make check", sessions=3))
    (message,) = found.messages
    assert message.role == "system"
    assert message.text.splitlines() == [
        "From earlier sessions:",
        "Commands that worked:",
        "- `make check` (3 sessions)",
        "What failed, and what worked instead:",
        "- `a` failed; `b` then worked. (2 sessions)",
        "Files that sessions used:",
        "- `src/a.py` (1 session)",
    ]
    assert found.notes == ("f", "p", "c")


def test_an_example_is_a_marked_request_its_call_and_the_answer_that_was_given() -> None:
    found = shown(example("make check")).messages
    assert [message.role for message in found] == ["user", "assistant", "tool", "assistant"]
    assert found[0].text == f"{PAST_MARK} check it"
    assert found[1].tool_calls[0].id == found[2].tool_call_id
    assert json.loads(str(found[1].tool_calls[0].arguments)) == {"command": "make check"}
    assert found[3].text == "All good."


@pytest.mark.parametrize(
    "note",
    [
        example("make check", answer=""),
        example("make check", asked=""),
        example("make <value>"),
        example("make check", asked="check …"),
        example("rm -rf build"),
        example("git push origin main"),
        command("make check"),
    ],
)
def test_what_is_not_whole_or_not_to_be_repeated_is_no_turn(note: TemplateNote) -> None:
    for form in PRELUDE_FORMS:
        assert all(not message.tool_calls for message in shown(note, form=form).messages)


def test_as_a_digest_an_example_is_a_statement_and_makes_no_call() -> None:
    note = example("make check")._replace(text="Asked “check it”: `make check`")
    for found in (shown(note, form="digest"), shown(note, form="both", calls=False)):
        (message,) = found.messages
        assert "- Asked “check it”: `make check`" in message.text


def test_notes_that_the_tools_cannot_act_on_are_not_told() -> None:
    place = TemplateNote("f", "place", "`src/a.py`", path="src/a.py")
    wish = TemplateNote("w", "wish", "Always use tabs.")
    template, notes = Template("t", "T"), (command("make"), place, wish)
    without_shell = render_prelude(template, notes, {"read_file": anything})
    assert without_shell.notes == ("f", "w")
    assert render_prelude(template, notes, {"write_letter": anything}).notes == ("w",)


def test_a_turn_uses_the_shell_that_is_there() -> None:
    found = render_prelude(Template("t", "T"), (example("make"),), {"Bash": takes("cmd")})
    call = found.messages[1].tool_calls[0]
    assert (call.name, json.loads(str(call.arguments))) == ("Bash", {"cmd": "make"})


def test_the_best_example_stands_nearest_to_the_new_request() -> None:
    best, other = example("make best")._replace(id="a"), example("make other")._replace(id="b")
    found = shown(best, other)
    commands = [str(call.arguments) for one in found.messages for call in one.tool_calls]
    assert ["other" in commands[0], "best" in commands[1]] == [True, True]
    assert found.notes == ("a", "b")


def test_what_is_known_beside_the_notes_is_bounded_and_can_be_left_out() -> None:
    seed = Seed("You are a bot. " * 200, ("Use tabs",) * 3, ("src/app.py",) * 400)
    (about,) = shown(seed=seed, tokens=100_000).messages
    assert "Use tabs" in about.text
    assert len(about.text) <= MAX_CONTEXT_CHARS == 1_500
    assert shown(seed=seed, context=0).messages == ()


def test_without_the_notes_only_what_is_known_remains() -> None:
    found = shown(command("make"), seed=Seed(instructions=("Use tabs",)), examples=False)
    assert [message.role for message in found.messages] == ["system"]
    assert "make" not in found.messages[0].text


def test_the_budget_holds_and_the_best_that_fit_are_kept() -> None:
    many = [command(f"make target-{n} " + "x" * 200, str(n)) for n in range(30)]
    found = shown(*many, tokens=600)
    assert found.notes[0] == "0"
    assert 0 < len(found.notes) < 10
    assert tokens.estimate_message_tokens(found.messages) == found.tokens <= 600
    assert len(shown(*many, tokens=1_000_000).notes) == MAX_NOTES


# ── whatever a template holds

_PIECES = (
    "<path>", "<value>", "make", "--flag", "ä", "\ud800", "git push", "x" * 900, "\x00", "🦓", "数",
    " ", "\n", '"', "…", "", "\U000e0041", "\x1b]52;c;x\a",
)  # fmt: skip
_text = st.text(max_size=60) | st.lists(st.sampled_from(_PIECES), max_size=4).map(" ".join)
_note = st.builds(
    TemplateNote,
    id=_text,
    kind=st.sampled_from(["wish", "command", "pitfall", "workflow", "place", "example"]),
    text=_text,
    command=st.none() | _text,
    folder=st.none() | _text,
    path=st.none() | _text,
    asked=_text,
    answer=_text,
    sessions=st.integers(0, 9),
)
_seed = st.builds(
    Seed,
    _text | st.just("s" * 5_000),
    st.lists(_text, max_size=3).map(tuple),
    st.lists(_text, max_size=4).map(tuple),
)
_template = st.tuples(_text, _text, st.lists(_note, max_size=3).map(tuple), _seed).map(
    lambda given: Template(given[0], given[1], notes=given[2], seed=given[3])
)
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def valid(template: Template, form: Any, provider: Any, budget: int) -> RenderedPrelude:
    """What comes of the template breaks no rule, keeps to its budget, and comes out the same again."""
    manner = RenderOptions(
        form=form, tokens=budget, calls=not PROVIDER_RULES[provider].needs_signature
    )
    tools = dict.fromkeys(TOOLS, anything)  # the most permissive
    found = render_prelude(template, template.notes, tools, manner)
    opening = [Message("system", "You help."), *found.messages, Message("user", "now")]
    assert find_violations(provider, opening) == []
    assert found.tokens <= budget
    assert found == render_prelude(template, template.notes, tools, manner)
    for message in found.messages:
        for call in message.tool_calls:
            assert call.name in tools
            assert PROVIDER_RULES["mistral"].id.fullmatch(call.id)
            assert "<" not in str(call.arguments)
    return found


@settings(suppress_health_check=_SLOW, database=None)
@given(
    _template, st.sampled_from(PRELUDE_FORMS), st.sampled_from(PROVIDERS), st.integers(50, 2_000)
)
def test_no_template_breaks_a_rule_of_any_provider(
    template: Template, form: Any, provider: Any, budget: int
) -> None:
    valid(template, form, provider, budget)


def test_random_templates_break_no_rule_of_any_provider() -> None:
    told = turns = 0
    count = choose_count(300, 1_500)  # each form with each provider 25 or 125 times
    for number in range(count):
        chance = Random(number)

        def text(chance: Random = chance) -> str:
            return " ".join(chance.choices((*_PIECES, "run", "tests", "ok"), k=3))

        notes = tuple(
            TemplateNote(
                str(place), chance.choice(("wish", "command", "example", "place")), text(),
                command=text(), asked=text(), answer=text(),
            )
            for place in range(4)
        )  # fmt: skip
        template = Template(
            text(), text(), notes=(*notes, example("make check")), seed=Seed(text())
        )
        form, provider = PRELUDE_FORMS[number % 3], PROVIDERS[number % 4]
        found = valid(template, form, provider, 50 + number * 1_500 // count)
        told += bool(found.messages)
        turns += any(message.tool_calls for message in found.messages)
    assert told > count / 2  # else it would say nothing
    assert turns > count / 6
