"""Did a tool call work? The one judgement that everything learned from sessions stands on.

Rules are asked in the order of trust: what the protocol says beside the text, what the tool
promises to say in it, what an exit code means for the command that gave it, and last the anchored
texts of harnesses, shells and programs. Text that a tool has read, found or fetched is never
searched for words. The tables are in `rules/`.
"""

from __future__ import annotations

from rekindle.judging.rules.evidence import Evidence
from rekindle.judging.rules.phrases import Phrases
from rekindle.judging.rules.signatures import Signatures
from rekindle.judging.rules.verdict import Outcome, ok, unknown
from rekindle.types import Message, ToolCall

from .rules import command_output, protocol, tool_contract

__all__ = ["RULES_VERSION", "Outcome", "Rules", "judge"]

# Raised with every change that may change a verdict: what is kept under an older one is judged again.
RULES_VERSION = 2


class Rules:
    """The rules as one judge; `left_out` leaves out what was written after that source alone."""

    def __init__(self, left_out: str | None = None) -> None:
        self._phrases = Phrases(left_out)
        self._signatures = Signatures(left_out)

    def judge(self, call: ToolCall, result: Message | None) -> Outcome:
        """How the call ended, by the first rule that has something to say."""
        if result is None:
            return unknown("no-result")
        evidence = Evidence(call, result)
        return (
            protocol.ask(evidence, self._phrases)
            or self._by_phrase(evidence)
            or tool_contract.ask(evidence)
            or self._by_text(evidence)
        )

    def _by_phrase(self, evidence: Evidence) -> Outcome | None:
        return self._phrases.ask(evidence)

    def _by_text(self, evidence: Evidence) -> Outcome:
        if evidence.shape in ("shell", "code"):
            return command_output.ask(evidence, self._signatures)
        if not evidence.text and not evidence.has_parts:
            return unknown("text/empty")
        return ok("text/answered", 0.9)


_RULES = Rules()


def judge(call: ToolCall, result: Message | None) -> Outcome:
    """How a call ended: outcome, whether it failed, what kind of error, by which rule, how sure."""
    return _RULES.judge(call, result)
