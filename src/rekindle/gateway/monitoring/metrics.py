"""Counters of a gateway, in the text format of Prometheus.

Labels hold names from the settings and the code alone: never a text, a name or an id of a user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from rekindle.types import Usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TURN_BUCKETS = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)  # seconds

# A metric: name, type, help, and samples as (suffix, labels, value).
Labels: TypeAlias = Mapping[str, str]
Sample: TypeAlias = tuple[str, Labels, float]

_NO_USAGE: Mapping[str, Usage] = {}
_COUNTERS = {
    "turns": ("result", "Turns that ended, by result."),
    "tokens": ("kind", "Tokens used by turns."),
    "cost": ("", "Cost of turns."),
    "deliveries": ("result", "Attempts to send a message, by result."),
    "job_runs": ("result", "Runs of scheduled jobs, by result."),
    "refusals": ("role", "Messages that were not answered, by the role of the sender."),
    "errors": ("kind", "Errors, by kind."),
}


class Metrics:
    """The counters since the gateway started. Errors may be counted from any thread."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in _COUNTERS}
        self._counts["cost"][""] = 0
        self._cost = 0.0
        self._durations = [0] * (len(TURN_BUCKETS) + 1)
        self._duration_sum = 0.0

    def count_turn(
        self, result: str, seconds: float | None = None, usage: Mapping[str, Usage] = _NO_USAGE
    ) -> None:
        """Count a turn that ended, how long it took if it ran, and what it used."""
        self._counts["turns"][result] += 1
        if seconds is not None:
            bucket = next((n for n, limit in enumerate(TURN_BUCKETS) if seconds <= limit), -1)
            self._durations[bucket] += 1
            self._duration_sum += seconds
        for tokens, cost in usage.values():
            for kind, number in tokens._asdict().items():
                self._counts["tokens"][kind] += number
            self._cost += float(cost)

    def count_delivery(self, result: str) -> None:
        """Count an attempt to send a message: sent, retried or failed."""
        self._counts["deliveries"][result] += 1

    def count_job_run(self, result: str) -> None:
        """Count a run of a job: done, failed or refused."""
        self._counts["job_runs"][result] += 1

    def count_refusal(self, role: str) -> None:
        """Count a message that was not answered because of who sent it."""
        self._counts["refusals"][role] += 1

    def count_error(self, kind: str) -> None:
        """Count an error."""
        self._counts["errors"][kind] += 1

    def render(self, gauges: Iterable[tuple[str, str, Iterable[Sample]]]) -> str:
        """Render the counters, and gauges given as name, help and samples."""
        lines: list[str] = []
        for name, (label, text) in _COUNTERS.items():
            counts = {"": self._cost} if name == "cost" else dict(self._counts[name])
            samples = [("", {label: key} if label else {}, n) for key, n in sorted(counts.items())]
            lines += _render_metric(f"{name}_total", "counter", text, samples)
        lines += _render_metric(
            "turn_seconds", "histogram", "How long turns took.", self._list_durations()
        )
        for name, text, samples in gauges:
            lines += _render_metric(name, "gauge", text, samples)
        return "\n".join(lines) + "\n"

    def _list_durations(self) -> list[Sample]:
        samples: list[Sample] = []
        total = 0
        for limit, number in zip((*TURN_BUCKETS, "+Inf"), self._durations, strict=True):
            total += number
            samples.append(("_bucket", {"le": str(limit)}, total))
        return [*samples, ("_sum", {}, self._duration_sum), ("_count", {}, total)]


def _render_metric(name: str, kind: str, text: str, samples: Iterable[Sample]) -> list[str]:
    name = f"rekindle_{name}"
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for suffix, labels, value in samples:
        pairs = ",".join(
            f'{label}="{_escape_label(label_value)}"' for label, label_value in labels.items()
        )
        lines.append(f"{name}{suffix}{f'{{{pairs}}}' if pairs else ''} {value:.12g}")
    return lines


def _escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
