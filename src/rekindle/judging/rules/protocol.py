"""What the protocol says beside the text: flags, exit codes, statuses. It is believed first."""

from __future__ import annotations

from collections.abc import Mapping

from rekindle.types import JSON

from . import exit_codes, tool_contract
from .evidence import Evidence, ends
from .phrases import BY_SHAPE, Phrases, no_hit
from .text_patterns import words
from .verdict import Outcome, error, expected, kind_from, of_kind, ok, refused, unknown

_STOPPED = words("cancelled canceled aborted rejected denied")
_FAILING = words("error errored failed failure timeout timed_out") | _STOPPED


def ask(evidence: Evidence, phrases: Phrases) -> Outcome | None:
    """The verdict of the protocol, or None where it says nothing about the end of the call."""
    meta = evidence.meta
    if not meta:
        return None
    code = _exit_code(meta)
    if code:
        body = tool_contract.body(evidence)
        return exit_codes.of_exit(code, evidence, body, "protocol/exit-code", 0.99)
    if trouble := _trouble(evidence, phrases):
        return trouble
    if meta.get("running"):
        return unknown("protocol/running")
    if meta.get("exit_code_meaning"):
        return expected("protocol/exit-code-meaning", 0.99, failed=False)
    flags = (meta.get("is_error") is False, meta.get("success") is True, code == 0)
    if any(flags) or meta.get("status") in ("success", "completed", "ok"):
        return _fine(evidence, code is not None)
    return None


def _exit_code(meta: Mapping[str, JSON]) -> int | None:
    code = meta.get("exit_code")
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _trouble(evidence: Evidence, phrases: Phrases) -> Outcome | None:
    meta = evidence.meta
    status = meta.get("status")
    if meta.get("denial"):
        return refused("permission", "protocol/denied", 0.99)
    told = {
        "protocol/is-error": meta.get("is_error") is True,
        "protocol/success": meta.get("success") is False,
        "protocol/refused": meta.get("refused"),
        "protocol/interrupted": meta.get("interrupted") is True,
        "protocol/timeout": meta.get("timeout") is True or meta.get("timed_out") is True,
        "protocol/exception": meta.get("exception") or meta.get("error"),
        "protocol/status": isinstance(status, str) and status.lower() in _FAILING,
    }
    rule = next((rule for rule, holds in told.items() if holds), None)
    if rule is None:
        return None
    return _told(evidence, phrases, rule)


def _told(evidence: Evidence, phrases: Phrases, rule: str) -> Outcome:
    """A failure that the protocol is sure of; the text only tells of what kind."""
    if (said := phrases.ask(evidence)) and said.failed:
        return said._replace(rule=rule, confidence=0.99)
    if (found := tool_contract.exit_code(evidence)) is not None and found.code:
        return exit_codes.of_exit(found.code, evidence, found.body, rule, 0.99)
    if rule == "protocol/interrupted":
        return error("interrupted", rule, 0.99)
    if rule == "protocol/timeout":
        return error("timeout", rule, 0.99)
    status = evidence.meta.get("status")
    if rule == "protocol/refused" or (isinstance(status, str) and status.lower() in _STOPPED):
        return refused("permission", rule, 0.99)
    said_beside = evidence.meta.get("error") or evidence.meta.get("exception") or ""
    told = f"{said_beside}\n{ends(evidence.text, 600, 600)}"
    by_default = BY_SHAPE.get(evidence.shape, "command")
    return of_kind(kind_from(told, by_default), "error", rule, 0.99)


def _fine(evidence: Evidence, known: bool) -> Outcome:
    """No failure by the flag. Some harnesses call a shell's answer a success whatever its exit."""
    if not known and evidence.shape == "shell":
        found = tool_contract.exit_code(evidence)
        if found is not None and found.code and not found.opens:
            return exit_codes.of_exit(found.code, evidence, found.body, "contract/exit-code", 0.97)
    return no_hit(evidence) or ok("protocol/ok", 0.99)
