"""Judge whether a tool call worked. Everything learned from sessions rests on this.

Rules are applied in the order of trust: what the protocol says apart from the text, what the tool's
contract promises in the text, what an exit code means for its command, and last the anchored texts of
harnesses, shells and programs. Text that a tool has read, found or fetched is never searched for
words. The tables are in `rules/`.
"""

from __future__ import annotations

from rekindle.judging.rules.evidence import Evidence
from rekindle.judging.rules.phrases import PhraseRules
from rekindle.judging.rules.signatures import SignatureRules
from rekindle.judging.rules.verdict import Outcome, make_ok, make_unknown
from rekindle.types import Message, ToolCall

from .rules import command_output, protocol, tool_contract

__all__ = ["RULES_VERSION", "Judge", "Outcome", "judge_call"]

# Raise with every change that may change a verdict: older verdicts are then judged again.
RULES_VERSION = 5


class Judge:
    """All rules; `excluded_source` leaves out those written from that source's transcripts only."""

    def __init__(self, excluded_source: str | None = None) -> None:
        self._phrases = PhraseRules(excluded_source)
        self._signatures = SignatureRules(excluded_source)

    def judge(self, call: ToolCall, result: Message | None) -> Outcome:
        """Return the outcome of the call, by the first rule that applies."""
        if result is None:
            return make_unknown("no-result")
        evidence = Evidence(call, result)
        return (
            protocol.judge_protocol(evidence, self._phrases)
            or self._judge_by_phrase(evidence)
            or tool_contract.judge_contract(evidence)
            or self._judge_by_text(evidence)
        )

    def _judge_by_phrase(self, evidence: Evidence) -> Outcome | None:
        return self._phrases.judge(evidence)

    def _judge_by_text(self, evidence: Evidence) -> Outcome:
        if evidence.shape in ("shell", "code"):
            return command_output.judge_output(evidence, self._signatures)
        if not evidence.text and not evidence.has_content:
            return make_unknown("text/empty")
        return make_ok("text/answered", 0.9)


_DEFAULT_JUDGE = Judge()


def judge_call(call: ToolCall, result: Message | None) -> Outcome:
    """Return how a call ended: outcome, failed or not, error kind, deciding rule, confidence."""
    return _DEFAULT_JUDGE.judge(call, result)
