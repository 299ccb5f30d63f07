"""Judge the outcome of a session: did the agent do what it was asked to?

Signs are used in the order of trust: what the transcript or benchmark says, the tests after the last
change, what was committed, and last what the user said. Words alone decide only with modest
confidence. A session without a sign is unknown, which is no failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rekindle.judging.rules.text_patterns import split_words
from rekindle.types import JSON, JudgedCall, Message, Session, SessionOutcome

from .events import SessionEvent, list_events

# Raise with every change that may change an outcome: older ones are then judged again.
OUTCOME_VERSION = 1

VERDICTS = ("succeeded", "failed", "unknown")

_FAILED_ENDS = split_words(
    """
    max_steps max_turns max_iterations max_tokens length limit error errored failed failure crash
    crashed timeout timed_out exit_cost exit_context exit_format exit_error exit_api limitsexceeded
    too_many_errors agent_error user_error infrastructure_error abort aborted cancelled canceled
    message time token context operator working cost
    """
)
_WORK_KINDS = frozenset(("edit", "test", "check", "commit", "publish", "revert"))
_MAX_REASON_CHARS = 300
MIN_CORRECTIONS = 3  # in a session without any other sign


UNKNOWN = SessionOutcome()


def judge_session(
    session: Session, messages: Sequence[Message], calls: Iterable[JudgedCall]
) -> SessionOutcome:
    """Return what became of a session, given its messages and judged calls."""
    if found := judge_protocol(session, messages):
        return found
    if session.end_reason == "compression":
        return SessionOutcome(rule="protocol/continued")  # in another session
    events = list_events(messages, calls)
    work, words = _weigh_distance(judge_work(events), events), judge_words(events)
    if work is None or words is None:
        return work or words or judge_end(events) or UNKNOWN
    if work.verdict == words.verdict:
        return work._replace(confidence=min(0.95, work.confidence + 0.1))
    # The user has seen the result of the work: later words are about it.
    if (words.where or 0) > (work.where or 0):
        return words
    return work._replace(confidence=work.confidence - 0.1)


def _weigh_distance(
    work: SessionOutcome | None, events: Sequence[SessionEvent]
) -> SessionOutcome | None:
    """Lower the confidence if the user asked for more than one other thing after the work."""
    if work is None or work.where is None:
        return work
    later = sum(one.kind == "words" and one.position > work.where for one in events)
    return work if later < 2 else work._replace(confidence=work.confidence - 0.2)


# ── what the transcript or the benchmark says


def judge_protocol(session: Session, messages: Sequence[Message]) -> SessionOutcome | None:
    """Judge by a reward, a score, or the recorded reason of the end."""
    for message in reversed(messages[-3:]):
        if found := _judge_meta(message.meta or {}, message.position):
            return found
    reason = (session.end_reason or "")[:_MAX_REASON_CHARS].lower()
    words = reason.replace("-", "_").split(":")[0].split()
    if words and (words[0] in _FAILED_ENDS or words[0].endswith(("error", "exception"))):
        return SessionOutcome("failed", "protocol/end-reason", 0.8)
    return None


def _judge_meta(meta: Mapping[str, JSON], position: int | None) -> SessionOutcome | None:
    resolved = meta.get("resolved")
    if isinstance(resolved, bool):
        return SessionOutcome(
            "succeeded" if resolved else "failed", "protocol/resolved", 1.0, position
        )
    reward = meta.get("reward")
    if isinstance(reward, (int, float)) and not isinstance(reward, bool):
        if reward >= 0.999:
            return SessionOutcome("succeeded", "protocol/reward", 1.0, position)
        if reward <= 0:
            return SessionOutcome("failed", "protocol/reward", 1.0, position)
        return SessionOutcome("unknown", "protocol/partial-reward", 0.0, position)
    return None


# ── tests, checks and commits


def judge_work(events: Sequence[SessionEvent]) -> SessionOutcome | None:
    """Judge by the last change and what was tested, committed or reverted after it."""
    last_edit = _find_last(events, "edit", is_code=True)
    if found := _judge_revert(events, last_edit) or (
        None if last_edit is None else _judge_tests(events[last_edit + 1 :])
    ):
        return found
    if found := _judge_commits(events, last_edit):
        return found
    return None if last_edit is None else _judge_checks(events[last_edit + 1 :])


def _judge_revert(events: Sequence[SessionEvent], last_edit: int | None) -> SessionOutcome | None:
    """Judge by a change that was taken back, unless a later request or commit made it good."""
    index = _find_last(events, "revert")
    if index is None or last_edit is None or index < last_edit:
        return None
    if any(one.kind in ("commit", "publish", "words") for one in events[index:]):
        return None
    return SessionOutcome("failed", "work/reverted", 0.6, events[index].position)


def _judge_tests(events: Sequence[SessionEvent]) -> SessionOutcome | None:
    """Judge by the test runs after the last change; a run that was repeated counts once."""
    last = {one.key: one for one in events if one.kind == "test" and one.ok is not None}
    if not last:
        return None
    final = max(last.values(), key=lambda run: run.position)
    if not final.ok:
        return SessionOutcome("failed", "tests/red", 0.7, final.position)
    confidence = 0.75 if all(run.ok for run in last.values()) else 0.6
    return SessionOutcome("succeeded", "tests/green", confidence, final.position)


def _judge_commits(events: Sequence[SessionEvent], last_edit: int | None) -> SessionOutcome | None:
    """Judge by a commit or a push that nothing was changed after."""
    index = max(
        (at for kind in ("commit", "publish") if (at := _find_last(events, kind)) is not None),
        default=None,
    )
    if index is None or (last_edit is not None and last_edit > index):
        return None
    words = [one for one in events[:index] if one.kind == "words"]
    asked = bool(words) and words[-1].reaction == "keep"
    name = "commit/published" if events[index].kind == "publish" else "commit/made"
    confidence = 0.5 if events[index].ok is None else 0.75 if asked else 0.65
    return SessionOutcome("succeeded", name, confidence, events[index].position)


def _judge_checks(events: Sequence[SessionEvent]) -> SessionOutcome | None:
    """Judge by the last build, lint or type check after the last change."""
    checks = [one for one in events if one.kind == "check" and one.ok is not None]
    if not checks:
        return None
    last = checks[-1]
    if last.ok:
        return SessionOutcome("succeeded", "checks/green", 0.55, last.position)
    return SessionOutcome("failed", "checks/red", 0.55, last.position)


# ── what the user said


def judge_words(events: Sequence[SessionEvent]) -> SessionOutcome | None:
    """Judge by the user's last words, if no work followed them, or by repeated corrections."""
    spoken = [index for index, one in enumerate(events) if one.kind == "words"]
    if not spoken:
        return None
    last = events[spoken[-1]]
    # Customers of a service thank it whatever it did; people who see a change judge it.
    has_worked = any(one.kind in _WORK_KINDS for one in events[: spoken[-1]])
    if not has_worked:
        return None
    if not any(one.kind in _WORK_KINDS for one in events[spoken[-1] + 1 :]):
        if last.reaction == "approval":
            return SessionOutcome("succeeded", "words/approval", 0.65, last.position)
        if last.reaction in ("correction", "rejection"):
            return SessionOutcome("failed", f"words/{last.reaction}", 0.6, last.position)
    reactions = [events[index].reaction for index in spoken if events[index].reaction]
    corrections = sum(one in ("correction", "rejection") for one in reactions)
    if (
        corrections >= MIN_CORRECTIONS
        and reactions[-1] in ("correction", "rejection")
        and corrections * 2 > len(reactions)
    ):
        return SessionOutcome("failed", "words/corrected-often", 0.5, last.position)
    return None


# ── how it ended


def judge_end(events: Sequence[SessionEvent]) -> SessionOutcome | None:
    """Judge a session that stopped in the middle: interrupted, refused, or on an error."""
    if not events:
        return None
    last = events[-1]
    if last.kind == "interruption":
        before = events[-2] if len(events) > 1 else None
        if before is not None and before.kind == "call" and before.ok is False:
            return None  # a plan was not accepted, or continues in a new session
        return SessionOutcome("failed", "end/interrupted", 0.5, last.position)
    if last.kind == "refusal":
        return SessionOutcome("failed", "end/refused", 0.5, last.position)
    if last.kind == "answer" and last.ok is False:
        return SessionOutcome("failed", "end/model-error", 0.6, last.position)
    if last.kind == "call" and last.error:
        return SessionOutcome("failed", "end/error", 0.5, last.position)
    return None


def _find_last(
    events: Sequence[SessionEvent], kind: str, *, is_code: bool | None = None
) -> int | None:
    """Return the index of the last event of this kind that did not fail."""
    for index in range(len(events) - 1, -1, -1):
        one = events[index]
        if one.kind == kind and one.ok is not False and is_code in (None, one.is_code):
            return index
    return None
