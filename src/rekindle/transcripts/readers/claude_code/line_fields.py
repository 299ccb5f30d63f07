"""The fields of a Claude Code line that are read; all others are skipped without being decoded."""

from __future__ import annotations

from typing import Any, TypedDict

from rekindle.transcripts.jsonio.jsonl import make_typed_decoder


class _ClaudeToolUseResult(TypedDict, total=False):
    """The fields that are read from `toolUseResult`; the rest repeats the result or whole files."""

    interrupted: Any
    returnCodeInterpretation: Any
    agentId: Any
    totalTokens: Any
    totalToolUseCount: Any
    backgroundTaskId: Any
    status: Any
    code: Any
    durationMs: Any
    totalDurationMs: Any
    durationSeconds: Any


class _ClaudeLine(TypedDict, total=False):
    """The fields that are read from a line."""

    type: Any
    subtype: Any
    sessionId: Any
    agentId: Any
    isSidechain: Any
    forkedFrom: Any
    uuid: Any
    parentUuid: Any
    logicalParentUuid: Any
    leafUuid: Any
    timestamp: Any
    cwd: Any
    gitBranch: Any
    message: Any
    attachment: Any
    toolUseResult: _ClaudeToolUseResult | list[Any] | str | float | bool | None
    toolDenialKind: Any
    isMeta: Any
    isCompactSummary: Any
    isApiErrorMessage: Any
    compactMetadata: Any
    summary: Any
    aiTitle: Any
    customTitle: Any


decode_line = make_typed_decoder(_ClaudeLine)
