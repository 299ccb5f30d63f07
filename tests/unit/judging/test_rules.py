"""What holds for the rules as a whole."""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rekindle.judging
from rekindle.judging.call_pairing import judge_calls
from rekindle.judging.judge import RULES_VERSION, Judge, judge_call
from rekindle.judging.rules.verdict import (
    AGENT_ERRORS,
    ENVIRONMENT_ERRORS,
    OUTCOMES,
    REFUSAL_KINDS,
)
from rekindle.transcripts import detect_format
from rekindle.transcripts.events import SessionStarted
from rekindle.types import Message, ToolCall, replace_fields

CORPUS = Path(__file__).resolve().parents[4] / "shared" / "corpus"
_JUDGING = Path(rekindle.judging.__file__).parent
# Verdicts are kept with the version that gave them. When this fails, a verdict may have changed:
# raise RULES_VERSION and write down the new print.
PRINTS = {5: "e13320eede1788cb"}


def fingerprint() -> str:
    """The rules' code without comments, docstrings and layout."""
    files = [
        _JUDGING / "judge.py",
        _JUDGING / "tool_kinds.py",
        *sorted((_JUDGING / "rules").glob("*.py")),
        *(_JUDGING.parent / "shell" / name for name in ("command_reader.py", "wrappers.py")),
    ]
    summed = hashlib.sha256()
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
                node
            ):
                node.body[0] = ast.Pass()
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RULES_VERSION":
                node.value = ast.Constant(0)
        summed.update(ast.dump(tree).encode())
    return summed.hexdigest()[:16]


def test_a_change_of_the_rules_raises_their_version() -> None:
    assert PRINTS.get(RULES_VERSION) == fingerprint()


_texts = st.one_of(
    st.text(max_size=200),
    st.sampled_from(
        [
            "Exit code 1",
            '{"error": {"a": [1]}}',
            '{"exit_code": 99999999999999999999}',
            "<returncode>",
            "Traceback (most recent call last):\n",
            "\x1b[31m\x1b]8;;",
            "\ud800",
            "{" * 300,
        ]
    ),
)
_meta = st.dictionaries(
    st.sampled_from(["is_error", "exit_code", "success", "error", "status", "running", "denial"]),
    st.one_of(st.none(), st.booleans(), st.integers(-3, 300), st.text(max_size=5), st.just([1])),
    max_size=3,
)
_tools = st.sampled_from(["Bash", "Read", "Edit", "Grep", "WebFetch", "Task", "x", "", "python"])
_given = st.one_of(
    st.text(max_size=60),
    st.dictionaries(
        st.sampled_from(["command", "cmd", "path"]), st.one_of(_texts, st.just([1, "x"]))
    ),
)


@given(_tools, _given, st.one_of(_texts, st.just([{"type": "text", "text": "x"}])), _meta)
def test_every_result_gets_a_verdict_that_is_sound(
    tool: str, given: object, text: object, meta: dict[str, object]
) -> None:
    call = ToolCall("c", tool, given)  # pyright: ignore[reportArgumentType]
    found = judge_call(call, Message(role="tool", content=text, tool_call_id="c", meta=meta))  # pyright: ignore
    assert found.outcome in OUTCOMES
    assert found.rule
    assert 0.0 <= found.confidence <= 1.0
    assert (found.failed is None) == (found.outcome in ("unknown", "refused"))
    assert (found.error_kind is not None) == (found.outcome in ("error", "refused"))
    assert (found.fault == "agent") == (found.error_kind in AGENT_ERRORS)
    assert (found.fault == "environment") == (found.error_kind in ENVIRONMENT_ERRORS)
    assert (found.error_kind in REFUSAL_KINDS) == (found.outcome == "refused")
    if found.outcome == "error":
        assert found.failed is True
    if found.outcome == "ok":
        assert found.failed is False


@pytest.mark.parametrize(
    "piece", [".", "=", "\n", " ", "(", "a ", "x: ", "error ", "/a", "1 failed "]
)
def test_a_hostile_result_is_judged_like_any_other(piece: str) -> None:
    # No pattern may try a long run from every one of its places; the suite's time limit watches.
    for tool in ("Bash", "Edit", "Read", "WebFetch", "x"):
        text = f"error\n{piece * 100_000}\nerror: x"
        found = judge_call(ToolCall("c", tool, {"command": piece * 20_000}), Message("tool", text))
        assert found.outcome in OUTCOMES


def test_leaving_a_source_out_leaves_out_what_was_written_after_it_alone() -> None:
    call = ToolCall("c", "ExitPlanMode", {})
    chosen = Message(role="tool", content="User chose to stay in plan mode", tool_call_id="c")
    assert Judge().judge(call, chosen).outcome == "refused"
    assert Judge(excluded_source="codex").judge(call, chosen).outcome == "refused"
    assert Judge(excluded_source="claude-code").judge(call, chosen).failed is False


@pytest.fixture(scope="module")
def samples() -> dict[str, list[tuple[ToolCall, Message]]]:
    """Calls and results of the corpus, by the format they come from."""
    if not CORPUS.is_dir():
        pytest.skip(f"the corpus of real transcripts is not at {CORPUS}")
    found: dict[str, list[tuple[ToolCall, Message]]] = defaultdict(list)
    for path in sorted(path for path in CORPUS.rglob("*") if path.is_file()):
        format = detect_format(path)
        waiting: dict[str, ToolCall] = {}
        for event in format.read(path) if format else ():
            if isinstance(event, SessionStarted):
                continue
            if isinstance(event, Message):
                waiting.update({call.id: call for call in event.tool_calls})
                if event.role == "tool" and (call := waiting.get(event.tool_call_id or "")):
                    assert format is not None
                    found[format.name].append((call, event))
    return found


@pytest.mark.parametrize("source", ["claude-code", "codex", "mini-swe-agent", "tau2"])
def test_text_alone_tells_real_failures(
    samples: dict[str, list[tuple[ToolCall, Message]]], source: str
) -> None:
    right = wrong = 0
    for call, result in samples[source]:
        shown = judge_call(call, result)
        if shown.outcome == "unknown":
            continue
        hidden = judge_call(call, replace_fields(result, meta=None))
        if shown.failed or hidden.failed:
            right += shown.failed is hidden.failed
            wrong += bool(shown.failed) is not bool(hidden.failed)
    assert right > 0
    assert 2 * right / (2 * right + wrong) >= 0.95


def test_real_refusals_are_no_failures_with_and_without_the_flag_of_the_harness(
    samples: dict[str, list[tuple[ToolCall, Message]]],
) -> None:
    said = ("The user doesn't want to", "[Request interrupted by user", "User chose to stay in")
    refused = [
        (call, result) for call, result in samples["claude-code"] if result.text.startswith(said)
    ]
    assert len(refused) > 3
    for call, result in refused:
        for one in (result, replace_fields(result, meta=None)):
            found = judge_call(call, one)
            assert (found.outcome, found.failed) == ("refused", None), one.text[:200]


def test_calls_of_real_sessions_are_judged_each_with_its_rule(
    samples: dict[str, list[tuple[ToolCall, Message]]],
) -> None:
    call, result = samples["claude-code"][0]
    asked = Message(role="assistant", tool_calls=[call])
    assert [one.rule for one in judge_calls("s", [asked, result])] == [
        judge_call(call, result).rule
    ]
