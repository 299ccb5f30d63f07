"""How well calls are judged: the labels that transcripts carry are hidden, then compared.

Gold is what a format says beside the text: `is_error`, an exit code other than zero, `success`
false, a refusal. It is taken out of `meta` before the rules look; text and arguments stay as they
are. A search that ran and found nothing carries a failure label in formats that only know exit
codes, and has not failed by our definition: scores are given for the raw label and for the label
corrected by that one choice. The correction looks at exit code 1 and the last command alone.
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

from rekindle.judging.call_pairing import MASKED_IDS, pair_calls
from rekindle.judging.judge import RULES_VERSION, Judge, Outcome
from rekindle.judging.rules import command_output, deciding_commands, programs, tool_contract
from rekindle.judging.rules.error_lines import find_error_line
from rekindle.judging.rules.evidence import Evidence
from rekindle.transcripts import detect_format
from rekindle.transcripts.events import SessionStarted
from rekindle.types import Message, ToolCall, replace_fields

from . import report
from .envs import ROOT

CORPUS = ROOT.parent / "shared" / "corpus"
_SIX = re.compile(r"error|failed|exception|traceback|denied|not found", re.IGNORECASE)
_FACTS = ("is_error", "exit_code", "success", "refused")
_RESAMPLES = 1_000


class Sample(NamedTuple):
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
        """Whether nothing but the label could tell: the result holds no text at all."""
        return not self.result.text.strip()


class Score(NamedTuple):
    """Counts of a comparison; a verdict of unknown counts as "not failed" and is told apart."""

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


def label_of(message: Message) -> bool | None:
    """What the format says beside the text; None where it says nothing."""
    meta = message.meta or {}
    if meta.get("refused") or meta.get("is_error") is True or meta.get("success") is False:
        return True
    code = meta.get("exit_code")
    if isinstance(code, int) and not isinstance(code, bool):
        return code != 0
    if meta.get("is_error") is False or meta.get("success") is True:
        return None if meta.get("running") else False
    return None


def found_nothing(call: ToolCall, result: Message) -> bool:
    """Whether a failure label stands for a search that ran and found nothing (or a difference)."""
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


def files(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    return sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)


def samples(folder: Path) -> Iterator[Sample]:
    """Every labelled call below the folder, each once, however many files repeat it."""
    seen: set[tuple[str, str]] = set()
    for path in files(folder):
        found = detect_format(path)
        if found is None:
            continue
        group = path.relative_to(folder).parts[0] if path != folder else path.name
        for session, source, messages in _sessions(found.read(path)):
            for asked, result, _ in pair_calls(messages):
                key = (session if len(asked.call.id) < 12 else "", asked.call.id)
                if result is None or (key in seen and asked.call.id not in MASKED_IDS):
                    continue
                seen.add(key)
                label = label_of(result)
                if label is not None:
                    corrected = label and not found_nothing(asked.call, result)
                    yield Sample(source, group, session, asked.call, result, label, corrected)


def _sessions(events: Iterable[Any]) -> Iterator[tuple[str, str, list[Message]]]:
    gathered: dict[str, tuple[str, list[Message]]] = {}
    current: list[Message] = []
    for event in events:
        if isinstance(event, SessionStarted):
            current = gathered.setdefault(event.session.id, (event.session.source, []))[1]
        elif isinstance(event, Message):
            current.append(event)
    for session, (source, messages) in gathered.items():
        yield session, source, messages


def hidden(result: Message) -> Message:
    return replace_fields(result, meta=None)


def bare(sample: Sample) -> Message:
    """The result without the exit code that the harness wrote into the text either."""
    result = hidden(sample.result)
    found = tool_contract.find_exit_status(Evidence(sample.call, result))
    return result if found is None else replace_fields(result, content=found.body)


def judged(taken: list[Sample], rules: Judge, *, visible: bool = False) -> list[Outcome]:
    return [
        rules.judge(sample.call, sample.result if visible else hidden(sample.result))
        for sample in taken
    ]


Told = Callable[[Sample, Outcome], bool | None]


def by_rules(_: Sample, outcome: Outcome) -> bool | None:
    """Harnesses label a refusal as a failure: what counts here is that the call did not run."""
    return True if outcome.outcome == "refused" else outcome.failed


def by_six_words(sample: Sample, _: Outcome) -> bool | None:
    return _SIX.search(sample.result.text) is not None


def by_first_words(sample: Sample, _: Outcome) -> bool | None:
    return "error" in sample.result.text[:100].lower()


Judged = list[tuple[Sample, Outcome]]


def score(taken: Judged, told: Told = by_rules, *, raw: bool = False) -> Score:
    counts: Counter[str] = Counter()
    for sample, outcome in taken:
        truth = sample.label if raw else sample.corrected
        said = told(sample, outcome)
        counts["unknown"] += said is None
        counts["tp"] += bool(said) and truth
        counts["fp"] += bool(said) and not truth
        counts["fn"] += not said and truth
    return Score(len(taken), counts["tp"], counts["fp"], counts["fn"], counts["unknown"])


def wilson(hits: int, n: int) -> tuple[float, float] | None:
    if not n:
        return None
    z = 1.96
    share = hits / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * ((share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def f1_interval(taken: Judged, *, raw: bool = False) -> tuple[float, float] | None:
    """A bootstrap over sessions, since calls of one session are alike."""
    groups: dict[str, Judged] = defaultdict(list)
    for pair in taken:
        groups[pair[0].session].append(pair)
    counts = [score(group, raw=raw) for group in groups.values()]
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


def measure(folder: Path) -> dict[str, Any]:
    """Everything that the tables show, as plain values."""
    taken = list(samples(folder))
    rules = Judge()
    pairs_ = list(zip(taken, judged(taken, rules), strict=True))
    shown = list(zip(taken, judged(taken, rules, visible=True), strict=True))
    by_source: dict[str, Judged] = defaultdict(list)
    by_tool: dict[tuple[str, str], Judged] = defaultdict(list)
    by_folder: dict[str, Judged] = defaultdict(list)
    for pair in pairs_:
        by_source[pair[0].source].append(pair)
        by_tool[pair[0].source, pair[0].call.name].append(pair)
        by_folder[pair[0].folder].append(pair)
    heard = [pair for pair in pairs_ if not pair[0].silent]
    return {
        "rules": RULES_VERSION,
        "all": _row(heard),
        "with_silent": _row(pairs_),
        "sources": {source: _row(group) for source, group in sorted(by_source.items())},
        "folders": {name: _row(group) for name, group in sorted(by_folder.items())},
        "tools": {
            " · ".join(name): _row(group)
            for name, group in sorted(by_tool.items())
            if len(group) > 9
        },
        "left_out": {source: _left_out(source, group) for source, group in by_source.items()},
        "bare": {source: _bare(group, rules) for source, group in sorted(by_source.items())},
        "visible": _visible(shown),
        "wrong": [_shown(*pair) for pair in pairs_ if bool(by_rules(*pair)) != pair[0].corrected],
    }


def _bare(group: Judged, rules: Judge) -> dict[str, Any]:
    fresh = [(s._replace(result=bare(s)), rules.judge(s.call, bare(s))) for s, _ in group]
    heard = [pair for pair in fresh if not pair[0].silent]
    wrong = [_shown(*pair) for pair in heard if bool(by_rules(*pair)) != pair[0].corrected]
    return {**_row(heard), "cases": wrong}


def _left_out(source: str, group: Judged) -> dict[str, Any]:
    taken = [sample for sample, _ in group]
    fresh = list(zip(taken, judged(taken, Judge(excluded_source=source)), strict=True))
    return _row(fresh)


def _row(group: Judged) -> dict[str, Any]:
    ours, raw = score(group), score(group, raw=True)
    six, first = score(group, by_six_words), score(group, by_first_words)
    return {
        "n": ours.n,
        "errors": ours.errors,
        "unknown": ours.unknown,
        "silent": sum(sample.silent for sample, _ in group),
        "precision": _ranged(ours.precision, wilson(ours.tp, ours.tp + ours.fp)),
        "recall": _ranged(ours.recall, wilson(ours.tp, ours.errors)),
        "f1": _ranged(ours.f1, f1_interval(group)),
        "raw_errors": raw.errors,
        "raw_f1": _ranged(raw.f1, f1_interval(group, raw=True)),
        "wrong": ours.fp + ours.fn,
        "six_words_f1": six.f1,
        "first_words_f1": first.f1,
    }


def _ranged(value: float | None, interval: tuple[float, float] | None) -> list[float] | None:
    if value is None:
        return None
    return [round(part, 4) for part in (value, *(interval or ()))]


def _visible(shown: Judged) -> dict[str, Any]:
    """Where a verdict differs from a label that the rules could see, by rule."""
    differing = [(s, o) for s, o in shown if bool(by_rules(s, o)) != s.label]
    rules = Counter(f"{outcome.rule} ({outcome.outcome})" for _, outcome in differing)
    return {"n": len(shown), "differing": len(differing), "rules": dict(rules.most_common())}


def _shown(sample: Sample, outcome: Outcome) -> dict[str, Any]:
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


def table(rows: dict[str, dict[str, Any]], name: str) -> str:
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
        cells += [_cell(row[part]) for part in ("precision", "recall", "f1", "raw_f1")]
        cells += [_cell(row[part]) for part in ("six_words_f1", "first_words_f1")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: list[float] | float | None) -> str:
    if value is None:
        return "–"
    if not isinstance(value, list):
        return f"{value:.2f}"
    if len(value) < 3:
        return f"{value[0]:.3f}"
    return f"{value[0]:.3f} [{value[1]:.2f}, {value[2]:.2f}]"


NOTES = """Gold is what the format says beside the text; it was taken out before the rules looked,
text and arguments stayed as they are. "Failed" and F1 are by the label corrected for one documented
choice: a search that ran and found nothing (`grep`, `rg`, `find`, `diff`, `test` as the last command,
exit code 1, no complaint) has not failed. The raw label stands beside it. Intervals: Wilson for
precision and recall, a bootstrap over sessions for F1. Baselines on the same calls: one of six words
anywhere ("error", "failed", "exception", "traceback", "denied", "not found"), and "error" in the first
100 characters. A call that several files repeat counts once."""


def render(found: dict[str, Any], command: str) -> str:
    whole, every = found["all"], found["with_silent"]
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    seen = found["visible"]
    choices = "\n".join(f"- {count} × {rule}" for rule, count in seen["rules"].items())
    left = {source: found["left_out"][source] for source in found["sources"]}
    parts = [
        "## Judging",
        f"`{command}`, rules {found['rules']}, {now}.",
        table({"all that say anything": whole, "all, silent ones too": every}, "labels hidden"),
        f"{every['n'] - whole['n']} calls have no text at all; {every['unknown']} verdicts of unknown "
        "count as not failed.",
        table(found["sources"], "by source"),
        "Without every wording that was written after that source alone:",
        table(left, "source left out"),
        "Harder than asked: the exit codes that harnesses write into the text taken out as well, calls "
        "that then say nothing left aside. Only what programs themselves write is left:",
        table(found["bare"], "without exit codes in the text"),
        table(found["tools"], "by tool (10 calls and more)"),
        f"With labels visible, {seen['differing']} of {seen['n']} verdicts differ from the raw label:",
        choices or "- none",
        NOTES,
    ]
    return "\n\n".join(parts) + "\n"


def show(wrong: list[dict[str, Any]], count: int) -> str:
    """The verdicts that were most sure and wrong, to be read."""
    worst = sorted(wrong, key=lambda case: -case["confidence"])[:count]
    blocks = [
        f"--- {case['source']} {case['session']} {case['tool']}\n"
        f"label failed={case['label']} rule={case['rule']} confidence={case['confidence']}\n"
        f"arguments: {case['arguments'][:600]}\n{case['text']}"
        for case in worst
    ]
    return "\n".join(blocks)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, help="other transcripts; writes no results file")
    parser.add_argument(
        "--show", type=int, default=0, metavar="N", help="print the worst N verdicts"
    )
    parser.add_argument(
        "--show-bare", type=int, default=0, metavar="N", help="the same, exit codes taken out"
    )
    parser.add_argument("--json", action="store_true", help="all figures as JSON")


def run(args: argparse.Namespace) -> None:
    found = measure(args.folder or CORPUS)
    if args.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    text = render(found, "python -m bench judge")
    print(text)
    if args.show:
        print(show(found["wrong"], args.show))
    if args.show_bare:
        print(
            show([case for row in found["bare"].values() for case in row["cases"]], args.show_bare)
        )
    if args.folder is None:
        report.write("judge", text)
