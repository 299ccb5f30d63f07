"""The tables of an archive in Parquet: their files, their columns, and values as rows.

    FOLDER/sessions/month=2026-01/part.parquet
    FOLDER/calls/month=2026-01/part.parquet
    FOLDER/messages/month=2026-01/part.parquet
    FOLDER/usage/month=2026-01/part.parquet

All rows of a session are in the month in which it started (UTC). Texts are escaped as in the store:
Parquet has no lone surrogates either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rekindle.errors import InvalidInput
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import (
    MAX_TIMESTAMP,
    JudgedCall,
    JudgedSession,
    Message,
    Session,
    Tokens,
    UsageEntry,
)

FORMAT_VERSION = "2"  # 1 had no usage
TABLES = (
    "messages",
    "usage",
    "calls",
    "sessions",
)  # as they are written: a session is there once its rows are
FILE_NAME = "part.parquet"

# Columns by table: name and type, in the words of `_make_type`.
SESSION_COLUMNS = {
    "id": "text", "source": "text", "owner": "text", "user": "text", "model": "text", "title": "text",
    "parent": "text", "forked_at": "integer", "started": "number", "last_active": "number",
    "ended": "number", "end_reason": "text", "message_count": "integer",
    "tool_call_count": "integer", "template": "text", "arm": "text", "cwd": "text",
    "git_branch": "text", "repository": "text", "project": "text", "preview": "text",
    "archived": "number", "pruned": "number", "last_request": "text", "sub_agent": "text",
    "model_config": "json", "input_tokens": "integer", "output_tokens": "integer",
    "cache_read_tokens": "integer", "cache_write_tokens": "integer", "reasoning_tokens": "integer",
    "cost": "text", "verdict": "text", "compressions": "integers", "number": "integer",
}  # fmt: skip
CALL_COLUMNS = {
    "session": "text", "position": "integer", "number": "integer", "id": "text", "tool": "text",
    "kind": "text", "digest": "integer", "outcome": "text", "failed": "flag", "error_kind": "text",
    "fault": "text", "rule": "text", "confidence": "number", "duration": "number",
    "result_position": "integer",
}  # fmt: skip
MESSAGE_COLUMNS = {
    "session": "text", "position": "integer", "role": "text", "content": "text", "parts": "json",
    "tool_calls": "json", "tool_call_id": "text", "name": "text", "reasoning": "text",
    "finish_reason": "text", "platform_message_id": "text", "meta": "json", "timestamp": "number",
    "rewound": "flag",
}  # fmt: skip
TOKEN_COLUMNS = tuple(name for name in SESSION_COLUMNS if name.endswith("_tokens"))
# What models used: in a quarter of an hour, or at an unknown time.
USAGE_COLUMNS = {
    "session": "text", "quarter": "integer", "model": "text", "above": "integer",
    **dict.fromkeys(TOKEN_COLUMNS, "integer"), "cost": "text", "cache_write_1h": "integer",
}  # fmt: skip
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "sessions": SESSION_COLUMNS,
    "calls": CALL_COLUMNS,
    "messages": MESSAGE_COLUMNS,
    "usage": USAGE_COLUMNS,
}
_SESSION_FIELDS = Session._fields[:-2]  # those before tokens and cost


def require_library(name: str, extra: str) -> Any:
    """Import an optional library; say how to install it if it is missing."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidInput(
            f"{error.name} is not installed; install it with: pip install 'rekindle[{extra}]'"
        ) from None


def get_month(started: float) -> str:
    """Return the month of a time: `2026-01`."""
    try:
        return f"{datetime.fromtimestamp(min(max(started, 0.0), MAX_TIMESTAMP - 1), UTC):%Y-%m}"
    except (OverflowError, ValueError, OSError):
        return "1970-01"


def get_file(folder: Path, table: str, month: str) -> Path:
    """Return the file of a table for a month."""
    return folder / table / f"month={month}" / FILE_NAME


def build_schema(table: str, metadata: Mapping[str, str]) -> Any:
    """Return the Arrow schema of a table."""
    arrow = require_library("pyarrow", "parquet")
    types = {
        "text": arrow.string(),
        "json": arrow.string(),
        "integer": arrow.int64(),
        "integers": arrow.list_(arrow.int64()),
        "number": arrow.float64(),
        "flag": arrow.bool_(),
    }
    fields = [arrow.field(name, types[kind]) for name, kind in COLUMNS[table].items()]
    return arrow.schema(fields, metadata=dict(metadata))


# ── values to rows


def session_to_row(judged: JudgedSession, verdict: str | None, number: int) -> dict[str, Any]:
    """Return the row of a session."""
    session = judged.session
    row = {name: _escape_value(getattr(session, name)) for name in _SESSION_FIELDS}
    row["model_config"] = _encode_json(session.model_config)
    row |= zip(("input_tokens", "output_tokens", "cache_read_tokens"), session.tokens, strict=False)
    row["cache_write_tokens"], row["reasoning_tokens"] = session.tokens[3:]
    row |= {"cost": str(session.cost), "verdict": verdict, "number": number}
    return {**row, "compressions": list(judged.compressions)}


def call_to_row(call: JudgedCall) -> dict[str, Any]:
    """Return the row of a call."""
    return {name: _escape_value(value) for name, value in zip(CALL_COLUMNS, call, strict=True)}


def usage_to_row(session: str, used: UsageEntry, *, has_time: bool) -> dict[str, Any]:
    """Return the row of what a model used."""
    return {
        "session": _escape_value(session),
        "quarter": used.quarter if has_time else None,
        "model": _escape_value(used.model),
        "above": used.above,
        **dict(zip(TOKEN_COLUMNS, used.tokens, strict=True)),
        "cost": str(used.cost),
        "cache_write_1h": used.cache_write_1h,
    }


def message_to_row(session: str, message: Message) -> dict[str, Any]:
    """Return the row of a message."""
    content = message.content
    return {
        "session": _escape_value(session),
        "position": message.position,
        "role": message.role,
        "content": _escape_value(message.text),
        "parts": None if content is None or isinstance(content, str) else _encode_json(content),
        "tool_calls": _encode_json([one._asdict() for one in message.tool_calls] or None),
        "tool_call_id": _escape_value(message.tool_call_id),
        "name": _escape_value(message.name),
        "reasoning": _escape_value(message.reasoning),
        "finish_reason": _escape_value(message.finish_reason),
        "platform_message_id": _escape_value(message.platform_message_id),
        "meta": _encode_json(message.meta),
        "timestamp": message.timestamp,
        "rewound": message.rewound,
    }


def _encode_json(value: object) -> str | None:
    return None if value is None else json.dumps(value)


def _escape_value(value: Any) -> Any:
    return escape_text(value) if isinstance(value, str) else value


# ── rows to values


def row_to_session(row: Mapping[str, Any]) -> Session:
    """Return the session of a row."""
    from decimal import Decimal

    fields = {name: _unescape_value(row[name]) for name in _SESSION_FIELDS}
    config = row["model_config"]
    fields["model_config"] = None if config is None else json.loads(config)
    names = ("input", "output", "cache_read", "cache_write", "reasoning")
    tokens = Tokens(*(row[f"{name}_tokens"] for name in names))
    return Session(**fields, tokens=tokens, cost=Decimal(row["cost"]))


def row_to_call(row: Mapping[str, Any]) -> JudgedCall:
    """Return the call of a row."""
    return JudgedCall(*(_unescape_value(row[name]) for name in CALL_COLUMNS))


def _unescape_value(value: Any) -> Any:
    return unescape_text(value) if isinstance(value, str) else value
