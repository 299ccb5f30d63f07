"""Protocol metadata besides the text: flags, exit codes, statuses. It is trusted most."""

from __future__ import annotations

from collections.abc import Mapping

from rekindle.types import JSON

from . import exit_codes, tool_contract
from .evidence import Evidence, trim_middle
from .phrases import DEFAULT_KINDS, PhraseRules, judge_empty_search
from .text_patterns import split_words
from .verdict import (
    Outcome,
    classify_error,
    make_error,
    make_expected,
    make_failure,
    make_ok,
    make_refused,
    make_unknown,
)

_STOPPED_STATUSES = split_words("cancelled canceled aborted rejected denied")
_FAILED_STATUSES = split_words("error errored failed failure timeout timed_out") | _STOPPED_STATUSES


def judge_protocol(evidence: Evidence, phrases: PhraseRules) -> Outcome | None:
    """Judge the call by protocol metadata; return None if it does not say how the call ended."""
    meta = evidence.meta
    if not meta:
        return None
    code = _get_exit_code(meta)
    if code:
        body = tool_contract.extract_output(evidence)
        return exit_codes.judge_exit_code(code, evidence, body, "protocol/exit-code", 0.99)
    if failure := _judge_failure(evidence, phrases):
        return failure
    if meta.get("running"):
        return make_unknown("protocol/running")
    if meta.get("exit_code_meaning"):
        return make_expected("protocol/exit-code-meaning", 0.99, failed=False)
    flags = (meta.get("is_error") is False, meta.get("success") is True, code == 0)
    if any(flags) or meta.get("status") in ("success", "completed", "ok"):
        return _judge_success(evidence, code is not None)
    return None


def _get_exit_code(meta: Mapping[str, JSON]) -> int | None:
    code = meta.get("exit_code")
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _judge_failure(evidence: Evidence, phrases: PhraseRules) -> Outcome | None:
    meta = evidence.meta
    status = meta.get("status")
    if meta.get("denial"):
        return make_refused(_classify_refusal(evidence, phrases), "protocol/denied", 0.99)
    checks = {
        "protocol/is-error": meta.get("is_error") is True,
        "protocol/success": meta.get("success") is False,
        "protocol/refused": meta.get("refused"),
        "protocol/timeout": meta.get("timeout") is True or meta.get("timed_out") is True,
        "protocol/interrupted": meta.get("interrupted") is True,
        "protocol/exception": meta.get("exception") or meta.get("error"),
        "protocol/status": isinstance(status, str) and status.lower() in _FAILED_STATUSES,
    }
    rule = next((rule for rule, is_set in checks.items() if is_set), None)
    if rule is None:
        return None
    return _classify_failure(evidence, phrases, rule)


def _classify_failure(evidence: Evidence, phrases: PhraseRules, rule: str) -> Outcome:
    """Classify a failure that the protocol reports; the text only decides its kind."""
    by_phrase = phrases.judge(evidence)
    if by_phrase and (by_phrase.failed or by_phrase.outcome == "refused"):
        return by_phrase._replace(rule=rule, confidence=0.99)
    if (found := tool_contract.find_exit_status(evidence)) is not None and found.code:
        return exit_codes.judge_exit_code(found.code, evidence, found.body, rule, 0.99)
    if rule == "protocol/interrupted":
        return make_refused("stopped", rule, 0.99)
    if rule == "protocol/timeout":
        return make_error("timeout", rule, 0.99)
    status = evidence.meta.get("status")
    if rule == "protocol/refused" or (
        isinstance(status, str) and status.lower() in _STOPPED_STATUSES
    ):
        return make_refused(_classify_refusal(evidence, phrases), rule, 0.99)
    detail = evidence.meta.get("error") or evidence.meta.get("exception") or ""
    text = f"{detail}\n{trim_middle(evidence.text, 600, 600)}"
    default_kind = DEFAULT_KINDS.get(evidence.shape, "command")
    return make_failure(classify_error(text, default_kind), "error", rule, 0.99)


def _classify_refusal(evidence: Evidence, phrases: PhraseRules) -> str:
    """Return who refused a call: a person, unless the protocol or the text names a rule."""
    meta = evidence.meta
    named = f"{meta.get('denial') or ''} {meta.get('status') or ''}".lower()
    if any(word in named for word in ("rule", "hook", "policy", "mode", "sandbox")):
        return "blocked"
    if "user" in named:
        return "declined"
    if "cancel" in named or "abort" in named:
        return "stopped"
    by_phrase = phrases.judge(evidence)
    kind = by_phrase.error_kind if by_phrase and by_phrase.outcome == "refused" else None
    return kind or "declined"


def _judge_success(evidence: Evidence, has_exit_code: bool) -> Outcome:
    """Judge a call that the protocol flags as successful.

    Some harnesses flag every shell result as a success, whatever its exit code.
    """
    if not has_exit_code and evidence.shape == "shell":
        found = tool_contract.find_exit_status(evidence)
        if found is not None and found.code and not found.is_at_start:
            return exit_codes.judge_exit_code(
                found.code, evidence, found.body, "contract/exit-code", 0.97
            )
    return judge_empty_search(evidence) or make_ok("protocol/ok", 0.99)
