"""The accuracy of judging: labels in transcripts are hidden from the rules, then compared.

The gold label is the structured outcome in a format: `is_error`, an exit code other than zero, `success`
false, a refusal. It is removed from `meta` before the rules run; text and arguments stay unchanged.
A search that ran and found nothing has a failure label in formats that only know exit codes, but has
not failed by our definition: scores are given for the raw label and for the label corrected by
that one choice. The correction uses only exit code 1 and the last command.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench import report
from bench.environments import ROOT
from rekindle.judging.call_pairing import MASKED_IDS, pair_calls
from rekindle.judging.judge import RULES_VERSION, Judge, Outcome
from rekindle.judging.rules import command_output, deciding_commands, programs, tool_contract
from rekindle.judging.rules.error_lines import find_error_line
from rekindle.judging.rules.evidence import Evidence
from rekindle.transcripts import detect_format
from rekindle.transcripts.events import SessionStarted
from rekindle.types import Message, ToolCall, replace_fields

CORPUS = ROOT.parent / "shared" / "corpus"
_SIX = re.compile(r"error|failed|exception|traceback|denied|not found", re.IGNORECASE)
_FACTS = ("is_error", "exit_code", "success", "refused")
_RESAMPLES = 1_000


class LabelledCall(NamedTuple):
    """One labelled call."""

    source: str
    folder: str
    session: str
    call: ToolCall
    result: Message
    label: bool
    corrected: bool

    @property
    def silent(self) -> bool:
        """Whether the result has no text at all, so that only the label shows its outcome."""
        return not self.result.text.strip()


class Score(NamedTuple):
    """Counts of a comparison; unknown verdicts count as "not failed" and are also listed."""

    n: int
    tp: int
    fp: int
    fn: int
    unknown: int = 0

    @property
    def errors(self) -> int:
        return self.tp + self.fn

    @property
    def precision(self) -> float | None:
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else None

    @property
    def recall(self) -> float | None:
        return self.tp / self.errors if self.errors else None

    @property
    def f1(self) -> float | None:
        total = 2 * self.tp + self.fp + self.fn
        return 2 * self.tp / total if total else None


def read_label(message: Message) -> bool | None:
    """Return whether the format labels a result as failed, or None without a label."""
    meta = message.meta or {}
    if meta.get("refused") or meta.get("is_error") is True or meta.get("success") is False:
        return True
    code = meta.get("exit_code")
    if isinstance(code, int) and not isinstance(code, bool):
        return code != 0
    if meta.get("is_error") is False or meta.get("success") is True:
        return None if meta.get("running") else False
    return None


def is_empty_search(call: ToolCall, result: Message) -> bool:
    """Whether a failure label belongs to a search that found nothing, or to a diff."""
    meta = result.meta or {}
    if meta.get("exit_code") != 1:
        return False
    evidence = Evidence(call, result)
    body = tool_contract.extract_output(evidence)
    if evidence.shape != "shell" or evidence.record:
        return False
    end = deciding_commands.find_deciding_commands(
        evidence.command or command_output.parse_echoed_command(evidence.text)
    )
    plain = end.last is not None and programs.is_search(end.last)
    return plain and find_error_line(command_output.clean_output(body), end) is None


def list_files(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    return sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)


def iter_samples(folder: Path) -> Iterator[LabelledCall]:
    """Yield every labelled call below the folder once, even if several files contain it."""
    seen: set[tuple[str, str]] = set()
    for path in list_files(folder):
        found = detect_format(path)
        if found is None:
            continue
        group = path.relative_to(folder).parts[0] if path != folder else path.name
        for session, source, messages in _group_sessions(found.read(path)):
            for asked, result, _ in pair_calls(messages):
                key = (session if len(asked.call.id) < 12 else "", asked.call.id)
                if result is None or (key in seen and asked.call.id not in MASKED_IDS):
                    continue
                seen.add(key)
                label = read_label(result)
                if label is not None:
                    corrected = label and not is_empty_search(asked.call, result)
                    yield LabelledCall(source, group, session, asked.call, result, label, corrected)


def _group_sessions(events: Iterable[Any]) -> Iterator[tuple[str, str, list[Message]]]:
    gathered: dict[str, tuple[str, list[Message]]] = {}
    current: list[Message] = []
    for event in events:
        if isinstance(event, SessionStarted):
            current = gathered.setdefault(event.session.id, (event.session.source, []))[1]
        elif isinstance(event, Message):
            current.append(event)
    for session, (source, messages) in gathered.items():
        yield session, source, messages


def hide_label(result: Message) -> Message:
    return replace_fields(result, meta=None)


def strip_exit_code(sample: LabelledCall) -> Message:
    """Return a result without its label and without the exit code in its text."""
    result = hide_label(sample.result)
    found = tool_contract.find_exit_status(Evidence(sample.call, result))
    return result if found is None else replace_fields(result, content=found.body)


def judge_samples(
    taken: list[LabelledCall], rules: Judge, *, visible: bool = False
) -> list[Outcome]:
    return [
        rules.judge(sample.call, sample.result if visible else hide_label(sample.result))
        for sample in taken
    ]


Decide = Callable[[LabelledCall, Outcome], bool | None]


def decide_by_rules(_: LabelledCall, outcome: Outcome) -> bool | None:
    """Decide by the verdict; a refusal is a failure, as in the labels of the harnesses."""
    return True if outcome.outcome == "refused" else outcome.failed


def decide_by_six_words(sample: LabelledCall, _: Outcome) -> bool | None:
    return _SIX.search(sample.result.text) is not None


def decide_by_first_words(sample: LabelledCall, _: Outcome) -> bool | None:
    return "error" in sample.result.text[:100].lower()


JudgedSamples = list[tuple[LabelledCall, Outcome]]


def score_samples(
    taken: JudgedSamples, told: Decide = decide_by_rules, *, raw: bool = False
) -> Score:
    counts: Counter[str] = Counter()
    for sample, outcome in taken:
        truth = sample.label if raw else sample.corrected
        said = told(sample, outcome)
        counts["unknown"] += said is None
        counts["tp"] += bool(said) and truth
        counts["fp"] += bool(said) and not truth
        counts["fn"] += not said and truth
    return Score(len(taken), counts["tp"], counts["fp"], counts["fn"], counts["unknown"])


def compute_wilson(hits: int, n: int) -> tuple[float, float] | None:
    if not n:
        return None
    z = 1.96
    share = hits / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * ((share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def compute_f1_interval(taken: JudgedSamples, *, raw: bool = False) -> tuple[float, float] | None:
    """Bootstrap the interval of F1 over sessions, since calls of one session are similar."""
    groups: dict[str, JudgedSamples] = defaultdict(list)
    for pair in taken:
        groups[pair[0].session].append(pair)
    counts = [score_samples(group, raw=raw) for group in groups.values()]
    if not any(count.errors for count in counts):
        return None
    chance = random.Random(7)
    values: list[float] = []
    for _ in range(_RESAMPLES):
        drawn = chance.choices(counts, k=len(counts))
        tp, wrong = sum(c.tp for c in drawn), sum(c.fp + c.fn for c in drawn)
        if tp or wrong:
            values.append(2 * tp / (2 * tp + wrong))
    values.sort()
    if not values:
        return None
    return values[int(0.025 * len(values))], values[min(len(values) - 1, int(0.975 * len(values)))]


def measure_judging(folder: Path) -> dict[str, Any]:
    """Return all figures of the tables as plain values."""
    taken = list(iter_samples(folder))
    rules = Judge()
    pairs_ = list(zip(taken, judge_samples(taken, rules), strict=True))
    shown = list(zip(taken, judge_samples(taken, rules, visible=True), strict=True))
    by_source: dict[str, JudgedSamples] = defaultdict(list)
    by_tool: dict[tuple[str, str], JudgedSamples] = defaultdict(list)
    by_folder: dict[str, JudgedSamples] = defaultdict(list)
    for pair in pairs_:
        by_source[pair[0].source].append(pair)
        by_tool[pair[0].source, pair[0].call.name].append(pair)
        by_folder[pair[0].folder].append(pair)
    heard = [pair for pair in pairs_ if not pair[0].silent]
    return {
        "rules": RULES_VERSION,
        "all": _build_row(heard),
        "with_silent": _build_row(pairs_),
        "sources": {source: _build_row(group) for source, group in sorted(by_source.items())},
        "folders": {name: _build_row(group) for name, group in sorted(by_folder.items())},
        "tools": {
            " · ".join(name): _build_row(group)
            for name, group in sorted(by_tool.items())
            if len(group) > 9
        },
        "left_out": {
            source: _measure_left_out(source, group) for source, group in by_source.items()
        },
        "bare": {
            source: _measure_without_codes(group, rules)
            for source, group in sorted(by_source.items())
        },
        "visible": _count_visible(shown),
        "wrong": [
            _describe_sample(*pair)
            for pair in pairs_
            if bool(decide_by_rules(*pair)) != pair[0].corrected
        ],
    }


def _measure_without_codes(group: JudgedSamples, rules: Judge) -> dict[str, Any]:
    fresh = [
        (s._replace(result=strip_exit_code(s)), rules.judge(s.call, strip_exit_code(s)))
        for s, _ in group
    ]
    heard = [pair for pair in fresh if not pair[0].silent]
    wrong = [
        _describe_sample(*pair)
        for pair in heard
        if bool(decide_by_rules(*pair)) != pair[0].corrected
    ]
    return {**_build_row(heard), "cases": wrong}


def _measure_left_out(source: str, group: JudgedSamples) -> dict[str, Any]:
    taken = [sample for sample, _ in group]
    fresh = list(zip(taken, judge_samples(taken, Judge(excluded_source=source)), strict=True))
    return _build_row(fresh)


def _build_row(group: JudgedSamples) -> dict[str, Any]:
    ours, raw = score_samples(group), score_samples(group, raw=True)
    six, first = (
        score_samples(group, decide_by_six_words),
        score_samples(group, decide_by_first_words),
    )
    return {
        "n": ours.n,
        "errors": ours.errors,
        "unknown": ours.unknown,
        "silent": sum(sample.silent for sample, _ in group),
        "precision": _round_with_interval(
            ours.precision, compute_wilson(ours.tp, ours.tp + ours.fp)
        ),
        "recall": _round_with_interval(ours.recall, compute_wilson(ours.tp, ours.errors)),
        "f1": _round_with_interval(ours.f1, compute_f1_interval(group)),
        "raw_errors": raw.errors,
        "raw_f1": _round_with_interval(raw.f1, compute_f1_interval(group, raw=True)),
        "wrong": ours.fp + ours.fn,
        "six_words_f1": six.f1,
        "first_words_f1": first.f1,
    }


def _round_with_interval(
    value: float | None, interval: tuple[float, float] | None
) -> list[float] | None:
    if value is None:
        return None
    return [round(part, 4) for part in (value, *(interval or ()))]


def _count_visible(shown: JudgedSamples) -> dict[str, Any]:
    """Count by rule the verdicts that differ from a label that was visible to the rules."""
    differing = [(s, o) for s, o in shown if bool(decide_by_rules(s, o)) != s.label]
    rules = Counter(f"{outcome.rule} ({outcome.outcome})" for _, outcome in differing)
    return {"n": len(shown), "differing": len(differing), "rules": dict(rules.most_common())}


def _describe_sample(sample: LabelledCall, outcome: Outcome) -> dict[str, Any]:
    given = sample.call.arguments
    text = sample.result.text
    return {
        "source": sample.source,
        "session": sample.session,
        "tool": sample.call.name,
        "arguments": given if isinstance(given, str) else json.dumps(given)[:2_000],
        "label": sample.corrected,
        "rule": outcome.rule,
        "confidence": outcome.confidence,
        "text": text if len(text) < 1_200 else f"{text[:500]}\n […] \n{text[-600:]}",
    }


def build_table(rows: dict[str, dict[str, Any]], name: str) -> str:
    head = [
        name,
        "calls",
        "failed",
        "precision",
        "recall",
        "F1",
        "F1, raw label",
        "six words",
        '"error" first',
    ]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for key, row in rows.items():
        cells = [key, f"{row['n']:,}", str(row["errors"])]
        cells += [_format_cell(row[part]) for part in ("precision", "recall", "f1", "raw_f1")]
        cells += [_format_cell(row[part]) for part in ("six_words_f1", "first_words_f1")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _format_cell(value: list[float] | float | None) -> str:
    if value is None:
        return "–"
    if not isinstance(value, list):
        return f"{value:.2f}"
    if len(value) < 3:
        return f"{value[0]:.3f}"
    return f"{value[0]:.3f} [{value[1]:.2f}, {value[2]:.2f}]"


NOTES = """The gold label is the structured outcome in the transcript format. It was removed before the
rules ran; text and arguments were left unchanged. "Failed" and F1 use the label corrected
for one documented choice: a search that ran and found nothing (`grep`, `rg`, `find`,
`diff`, `test` as the last command, exit code 1, no error message) has not failed. F1 for
the raw label is shown next to it. Intervals: Wilson for precision and recall, a bootstrap
over sessions for F1. Baselines on the same calls: one of six words anywhere ("error",
"failed", "exception", "traceback", "denied", "not found"), and "error" in the first 100
characters. A call that appears in several files counts once."""


def render_section(found: dict[str, Any], command: str) -> str:
    whole, every = found["all"], found["with_silent"]
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    seen = found["visible"]
    choices = "\n".join(f"- {count} × {rule}" for rule, count in seen["rules"].items())
    left = {source: found["left_out"][source] for source in found["sources"]}
    parts = [
        "## Judging",
        f"`{command}`, rules {found['rules']}, {now}.",
        build_table({"with text": whole, "with and without text": every}, "labels hidden"),
        f"{every['n'] - whole['n']} calls have no text at all; {every['unknown']} unknown verdicts "
        "count as not failed.",
        build_table(found["sources"], "by source"),
        "Without the phrases that were derived from that source alone:",
        build_table(left, "source left out"),
        "A harder variant: exit codes that harnesses write into the text are removed too, and calls "
        "without any remaining text are excluded. Only the programs' own output is left:",
        build_table(found["bare"], "without exit codes in the text"),
        build_table(found["tools"], "by tool (10 calls and more)"),
        f"With labels visible, {seen['differing']} of {seen['n']} verdicts differ from the raw label:",
        choices or "- none",
        NOTES,
    ]
    return "\n\n".join(parts) + "\n"


def describe_worst(wrong: list[dict[str, Any]], count: int) -> str:
    """Describe the wrong verdicts with the highest confidence."""
    worst = sorted(wrong, key=lambda case: -case["confidence"])[:count]
    blocks = [
        f"--- {case['source']} {case['session']} {case['tool']}\n"
        f"label failed={case['label']} rule={case['rule']} confidence={case['confidence']}\n"
        f"arguments: {case['arguments'][:600]}\n{case['text']}"
        for case in worst
    ]
    return "\n".join(blocks)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder", type=Path, help="a folder of other transcripts; writes no results"
    )
    parser.add_argument(
        "--show", type=int, default=0, metavar="N", help="print the worst N verdicts"
    )
    parser.add_argument(
        "--show-bare",
        type=int,
        default=0,
        metavar="N",
        help="the same without exit codes in the text",
    )
    parser.add_argument("--json", action="store_true", help="all figures as JSON")


def run(args: argparse.Namespace) -> None:
    found = measure_judging(args.folder or CORPUS)
    if args.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    text = render_section(found, "python -m bench judge")
    print(text)
    if args.show:
        print(describe_worst(found["wrong"], args.show))
    if args.show_bare:
        print(
            describe_worst(
                [case for row in found["bare"].values() for case in row["cases"]], args.show_bare
            )
        )
    if args.folder is None:
        report.write_section("judge", text)
