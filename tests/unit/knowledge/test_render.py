"""The messages of a warm session: valid everywhere, always the same, and only what can be done now."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekindle.agent.model.providers import PROVIDER_RULES, PROVIDERS, find_violations
from rekindle.knowledge import tokens
from rekindle.knowledge.mining.slot_filler import OPEN_VALUE, SLOT
from rekindle.knowledge.render import (
    MAX_CONTEXT_CHARS,
    MAX_PATTERNS,
    PAST_MARK,
    PRELUDE_FORMS,
    RenderedPrelude,
    RenderOptions,
    render_prelude,
)
from rekindle.types import JSON, Message, Pattern, PatternStep, Seed, Template
from tests.counts import choose_count


def anything(_: Mapping[str, JSON]) -> bool:
    return True


def takes(*names: str) -> Any:
    """A tool with these arguments, all of them texts or numbers."""

    def fits(arguments: Mapping[str, JSON]) -> bool:
        return bool(arguments) and set(arguments) <= set(names)

    return fits


TOOLS = {
    "terminal": takes("command"),
    "read_file": takes("path", "limit"),
    "search_files": takes("pattern", "path"),
    "write_file": takes("path", "content"),
}


def pattern(*steps: PatternStep, asked: str = "", id: str = "p", **more: Any) -> Pattern:
    return Pattern(id, more.pop("kind", "example"), steps, asked, **more)


def run(command: str, result: str = "") -> PatternStep:
    return PatternStep("terminal", {"command": command}, result)


def shown(*patterns: Pattern, seed: Seed = Seed(), **manner: Any) -> RenderedPrelude:  # noqa: B008
    return render_prelude(Template("t", "T", seed=seed), patterns, TOOLS, RenderOptions(**manner))


def calls(rendered: RenderedPrelude) -> list[tuple[str, Any]]:
    return [
        (call.name, json.loads(str(call.arguments)))
        for message in rendered.messages
        for call in message.tool_calls
    ]


# ── what is shown


def test_an_example_is_a_marked_request_its_calls_with_results_and_a_closing_word() -> None:
    found = shown(pattern(run("make check", "all good"), asked="check it")).messages
    roles = [message.role for message in found]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert found[0].text == f"{PAST_MARK} check it"
    assert found[1].content is None
    assert found[1].tool_calls[0].id == found[2].tool_call_id
    assert found[2].text == "all good"


def test_the_answer_in_a_turn_says_what_came_out_as_far_as_that_is_told() -> None:
    def answer(result: str, **more: Any) -> str:
        return (
            shown(pattern(run("berth 7", result), asked="who is there?", **more)).messages[-1].text
        )

    assert answer("berth 7: Osprey,\n  since Monday") == "berth 7: Osprey, since Monday"
    assert len(answer("x" * 5_000)) < 150
    assert answer("18 lines, the last: all good") == "all good"
    assert answer("(40 lines)") == answer("24 lines") == answer("") == "Done"
    assert answer("JSON with ship, master") == "It gives ship, master"
    assert answer("Osprey", lesson="Not “dock”.") == "Osprey. Not “dock”."


def test_slots_are_filled_with_what_was_asked_and_no_slot_is_ever_shown() -> None:
    step = run("rowctl tally --in <path:csv> --by <word> --top <int>")
    found = shown(pattern(step, asked="the top 5 of sales.csv by region"))
    assert calls(found) == [
        ("terminal", {"command": "rowctl tally --in sales.csv --by region --top 5"})
    ]


def test_a_value_that_nobody_asked_for_is_made_up_and_said_in_the_request() -> None:
    found = shown(pattern(run("uv run pytest <path:py>"), asked="run the tests"))
    (_, arguments), *_ = calls(found)
    value = arguments["command"].split()[-1]
    assert value.endswith(".py")
    assert value in found.messages[0].text


@pytest.mark.parametrize("piece", ["/.", "../", "x", "a.", "a@", "0", "https:/"])
def test_however_long_a_request_in_a_template_is_it_holds_nobody_up(piece: str) -> None:
    kinds = (f"<{kind}>" for kind in ("path", "path:py", "url", "mail", "hash", "int", "text"))
    began = time.perf_counter()
    shown(pattern(run(f"make {' '.join(kinds)}"), asked=piece * 20_000))
    assert time.perf_counter() - began < 20  # minutes, where all of it is searched


@pytest.mark.parametrize(
    "step",
    [
        run("go test ./cli -run <text> -v", "ok"),
        run("deploy --to <word>", "done"),
        PatternStep("book", {"from": "<word>", "on": "<date>"}, "JSON with seat"),
    ],
)
def test_a_name_or_a_text_that_nobody_knows_is_left_open_and_never_a_turn(
    step: PatternStep,
) -> None:
    tools = {**TOOLS, "book": takes("from", "on")}
    one = pattern(step, asked="check that we print the agent name")
    assert render_prelude(Template("t", "T"), (one,), tools).messages == ()
    (told,) = render_prelude(Template("t", "T"), (one,), tools, RenderOptions("both")).messages
    assert told.role == "system"
    assert OPEN_VALUE in told.text
    assert "-run agent" not in told.text


def test_one_slot_has_one_value_in_all_steps_of_a_pattern() -> None:
    steps = (PatternStep("read_file", {"path": "<path:py>"}), run("python <path:py>"))
    found = calls(shown(pattern(*steps, asked="look at it, then run it")))
    assert found[1][1]["command"] == f"python {found[0][1]['path']}"


def test_a_number_alone_stays_a_number() -> None:
    found = shown(pattern(PatternStep("read_file", {"path": "a.py", "limit": "<int>"})))
    assert isinstance(calls(found)[0][1]["limit"], int)


def test_a_tool_that_is_not_here_is_never_shown() -> None:
    for form in PRELUDE_FORMS:
        found = shown(
            pattern(PatternStep("deploy_tool", {"command": "x"}), asked="ship"), form=form
        )
        assert found.messages == ()


def test_a_call_that_its_tool_would_refuse_today_is_not_shown() -> None:
    assert shown(pattern(PatternStep("terminal", {"cmd": "ls", "old_flag": True}))).messages == ()


def test_the_command_of_another_programs_shell_is_shown_with_the_one_at_hand() -> None:
    step = PatternStep("Bash", {"command": "make check", "description": "check it"})
    assert calls(shown(pattern(step))) == [("terminal", {"command": "make check"})]
    codex = PatternStep("shell", {"command": ["bash", "-lc", "make check"]})
    assert calls(shown(pattern(codex))) == [("terminal", {"command": "make check"})]


@pytest.mark.parametrize(
    "command", ["git push origin main", "rm -rf build", "kubectl apply -f x.yaml", "npm publish"]
)
def test_what_cannot_be_taken_back_is_no_turn_to_imitate(command: str) -> None:
    assert shown(pattern(run(command), asked="do it")).messages == ()
    digest = shown(pattern(run(command), asked="do it"), form="digest")
    assert command in digest.messages[0].text
    assert all(not message.tool_calls for message in digest.messages)


def test_content_that_was_written_is_not_shown_to_be_copied() -> None:
    step = PatternStep("write_file", {"path": "a.md", "content": "<text>"})
    assert shown(pattern(step, asked="write it")).messages == ()


def test_a_lesson_is_told_and_the_failed_call_is_never_a_turn() -> None:
    wrong = run("docker-compose up")
    one = pattern(run("docker compose up"), kind="retry", before=wrong, lesson="Two words.")
    turns = shown(one)
    assert "docker-compose" not in str(calls(turns))
    assert turns.messages[-1].text.endswith("Two words.")
    both = shown(one, form="both")
    assert [message.role for message in both.messages] == ["system"]
    assert "docker-compose" in both.messages[0].text
    assert "Two words." in both.messages[0].text


def test_a_digest_makes_no_calls_and_says_that_it_is_past() -> None:
    (message,) = shown(pattern(run("make"), asked="build"), form="digest").messages
    assert message.role == "system"
    assert "earlier sessions" in message.text
    assert '{"command": "make"}' in message.text


def test_the_best_pattern_stands_nearest_to_the_new_request() -> None:
    found = shown(pattern(run("best"), id="a"), pattern(run("next"), id="b"))
    assert [arguments["command"] for _, arguments in calls(found)] == ["next", "best"]
    assert found.patterns == ("a", "b")


def test_a_long_result_is_shortened_with_a_mark() -> None:
    found = shown(pattern(run("make", "x" * 5_000)))
    assert found.messages[2].text.endswith("[shortened]")
    assert len(found.messages[2].text) < 300


def test_what_is_known_beside_the_patterns_is_bounded_and_can_be_left_out() -> None:
    seed = Seed("You are a bot. " * 200, ("Use tabs",) * 3, ("src/app.py",) * 400)
    (about,) = shown(seed=seed, tokens=100_000).messages
    assert "Use tabs" in about.text
    assert len(about.text) <= MAX_CONTEXT_CHARS
    assert shown(seed=seed, context=0).messages == ()


def test_without_the_examples_only_what_is_known_remains() -> None:
    one = pattern(run("make"), asked="build")
    found = shown(one, seed=Seed(instructions=("Use tabs",)), examples=False)
    assert [message.role for message in found.messages] == ["system"]
    assert "make" not in found.messages[0].text


def test_the_budget_holds_and_the_best_that_fit_are_kept() -> None:
    many = [pattern(run(f"make target-{n} " + "x" * 300), id=str(n)) for n in range(30)]
    found = shown(*many, tokens=600)
    assert found.patterns[0] == "0"
    assert 0 < len(found.patterns) < 10
    assert tokens.estimate_message_tokens(found.messages) == found.tokens <= 600
    assert len(shown(*many, tokens=1_000_000).patterns) == MAX_PATTERNS


def test_two_patterns_that_look_the_same_are_shown_once() -> None:
    twice = shown(pattern(run("make"), asked="x", id="a"), pattern(run("make"), asked="x", id="b"))
    assert twice.patterns == ("a",)


def test_a_request_that_two_examples_share_is_said_once() -> None:
    two = (
        pattern(run("make"), asked="build it", id="a"),
        pattern(run("ls"), asked="build it", id="b"),
    )
    (message,) = shown(*two, form="digest").messages
    assert message.text.count("build it") == 1
    assert "For the same" in message.text


# ── whatever a template holds

_text = st.text(max_size=60) | st.text(
    st.characters(categories=["Cs", "Cc", "So", "Lo"]), max_size=20
)
_slotted = st.lists(
    st.sampled_from(
        ["<path:py>", "<path>", "<int>", "<url>", "<text>", "<hash>", "<secret:aws-key>", "<mail>"]  # noqa: RUF005
        + ["<script>", "<odd-kind:x>", "make", "--flag", "ä", "\ud800", "git push", "x" * 3_000]
    ),
    max_size=4,
).map(" ".join)
_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _text | _slotted,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=5,
)
_name = st.sampled_from([*TOOLS, "Bash", "Read", "Grep", "gone", "1tool", "a b", "\ud800", ""])
_arguments = st.dictionaries(
    st.sampled_from(["command", "path", "pattern", "cmd"]), _value, max_size=2
)
_step = st.builds(
    PatternStep, _name, _arguments, _text | _slotted | st.just("r" * 9_000), st.none() | _arguments
)
_pattern = st.builds(
    Pattern,
    id=_text,
    kind=st.sampled_from(["init", "sequence", "retry", "final", "example"]),
    steps=st.lists(_step, max_size=4).map(tuple),
    asked=_text | _slotted,
    before=st.none() | _step,
    lesson=_text | _slotted,
    also=st.lists(_text, max_size=2).map(tuple),
)
_seed = st.builds(
    Seed,
    _text | st.just("s" * 5_000),
    st.lists(_text, max_size=3).map(tuple),
    st.lists(_text, max_size=4).map(tuple),
)
_template = st.tuples(_text, _text, st.lists(_pattern, max_size=3).map(tuple), _seed).map(
    lambda given: Template(given[0], given[1], patterns=given[2], seed=given[3])
)


_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def valid(template: Template, form: Any, provider: Any, budget: int) -> None:
    """What comes of the template breaks no rule, keeps to its budget, and comes out the same again."""
    manner = RenderOptions(
        form=form, tokens=budget, calls=not PROVIDER_RULES[provider].needs_signature
    )
    tools = dict.fromkeys(TOOLS, anything)  # the most permissive
    found = render_prelude(template, template.patterns, tools, manner)
    opening = [Message("system", "You help."), *found.messages, Message("user", "now")]
    assert find_violations(provider, opening) == []
    assert found.tokens <= budget
    assert found == render_prelude(template, template.patterns, tools, manner)
    for message in found.messages:
        for call in message.tool_calls:
            assert call.name in tools
            assert PROVIDER_RULES["mistral"].id.fullmatch(call.id)
            assert not SLOT.search(str(call.arguments)) or "odd-kind" in str(template)


@settings(suppress_health_check=_SLOW, database=None)
@given(
    _template, st.sampled_from(PRELUDE_FORMS), st.sampled_from(PROVIDERS), st.integers(50, 2_000)
)
def test_no_template_breaks_a_rule_of_any_provider(
    template: Template, form: Any, provider: Any, budget: int
) -> None:
    valid(template, form, provider, budget)


_PIECES = (
    *(
        "<path:py>",
        "<path>",
        "<int>",
        "<url>",
        "<text>",
        "<hash>",
        "<secret:aws-key>",
        "<mail>",
        "<script>",
    ),
    *(
        "make",
        "--flag",
        "ä",
        "\ud800",
        "git push",
        "x" * 900,
        "\x00",
        "🦓",
        "数",
        " ",
        "\n",
        '"',
        "…",
        "",
    ),
)


class Chance:
    """Makes up templates that nobody would write."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def text(self) -> str:
        return " ".join(self._random.choices(_PIECES, k=self._random.randint(0, 4)))

    def value(self, depth: int = 0) -> JSON:
        kind = self._random.randint(0, 8)
        if kind == 0 and depth < 3:
            return {self.text(): self.value(depth + 1) for _ in range(2)}
        if kind == 1 and depth < 3:
            return [self.value(depth + 1) for _ in range(2)]
        plain = (None, True, 7, 2.5, float("nan"), 10**30)
        return self._random.choice(plain) if kind == 2 else self.text()

    def step(self) -> PatternStep:
        names = (*TOOLS, "Bash", "Read", "Grep", "gone", "1tool", "a b", "\ud800", "")
        keys = self._random.choices(("command", "path", "pattern", "cmd"), k=2)
        arguments = {key: self.value() for key in keys[: self._random.randint(0, 2)]}
        return PatternStep(
            self._random.choice(names), arguments, self.text() * self._random.randint(0, 9)
        )

    def template(self) -> Template:
        patterns = tuple(
            Pattern(
                self.text(),
                "example",
                tuple(self.step() for _ in range(self._random.randint(0, 4))),
                self.text(),
                self.step() if self._random.random() < 0.3 else None,
                self.text(),
            )
            for _ in range(self._random.randint(0, 4))
        )
        seed = Seed(self.text() * 9, (self.text(), self.text()), (self.text(),) * 3)
        return Template(self.text(), self.text(), patterns=patterns, seed=seed)


def test_random_templates_break_no_rule_of_any_provider() -> None:
    shown = 0
    count = choose_count(300, 1_500)  # each form with each provider 25 or 125 times
    for number in range(count):
        template = Chance(number).template()
        form, provider = PRELUDE_FORMS[number % 3], PROVIDERS[number % 4]
        valid(template, form, provider, 50 + number * 1_500 // count)
        tools = dict.fromkeys(TOOLS, anything)
        shown += bool(render_prelude(template, template.patterns, tools).messages)
    assert shown > count / 2  # else it would say nothing
