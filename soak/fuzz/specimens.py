"""Intact files to damage: synthetic ones in every format, and real ones if there are any."""

from __future__ import annotations

import io
import json
import random
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from rekindle.transcripts import detect_format

_LARGEST = 3_000_000  # longer files are only slower
_WORDS = (
    *("look", "into", "the", "file", "of", "parsers", "日本語", "naïve", "→", "fix", "quotes"),
    *('"', "and", "\\", "back\nslashes", "🙂", "done"),
)

Turn = tuple[str, str, str]  # user, call, result or answer; its text; the id of the call


class Specimen(NamedTuple):
    """An intact file: its format, its origin and its bytes."""

    format: str
    name: str
    data: bytes


def make_specimens(seed: int, turns: int = 8) -> list[Specimen]:
    """Return one or two synthetic files of each format."""
    rng = random.Random(f"specimens:{seed}")
    return [
        Specimen(format, f"made {format}", write(_make_turns(rng, turns)))
        for format, write in _WRITERS
    ]


def read_specimens(folder: Path) -> Iterator[Specimen]:
    """Yield the files below a folder that have a known format."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size <= _LARGEST and (format := detect_format(path)):
            yield Specimen(format.name, str(path.relative_to(folder)), path.read_bytes())


def _make_turns(rng: random.Random, turns: int) -> list[Turn]:
    said: list[Turn] = []
    for number in range(turns):
        text = f"text {number} of {rng.getrandbits(40):010x} " + " ".join(rng.choices(_WORDS, k=12))
        kind = ("user", "call", "result", "answer")[number % 4]
        said.append((kind, text, f"call-{number // 4}"))
    return said


def _encode_lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)


def _encode_document(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode()


def _build_chat(talk: list[Turn]) -> list[dict[str, Any]]:
    """Build the conversation in the OpenAI shape, which many formats embed."""
    messages: list[dict[str, Any]] = []
    for kind, text, call in talk:
        role = {"user": "user", "result": "tool"}.get(kind, "assistant")
        message: dict[str, Any] = {"role": role, "content": text}
        if kind == "call":
            asked = {"name": "shell", "arguments": '{"command": "ls"}'}
            message["tool_calls"] = [{"id": call, "type": "function", "function": asked}]
        elif kind == "result":
            message |= {"tool_call_id": call, "name": "shell"}
        messages.append(message)
    return messages


def _write_claude_code(talk: list[Turn]) -> bytes:
    lines: list[Any] = []
    for number, (kind, text, call) in enumerate(talk):
        stamp = f"2026-03-01T10:00:{number:02}Z"
        line = {"sessionId": "s", "uuid": f"u{number}", "parentUuid": None, "timestamp": stamp}
        if kind == "user":
            message: dict[str, Any] = {"role": "user", "content": text}
        elif kind == "result":
            block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": False}
            message = {"role": "user", "content": [block]}
        else:
            blocks: list[Any] = [{"type": "text", "text": text}]
            if kind == "call":
                blocks.append({"type": "tool_use", "id": call, "name": "Bash", "input": {"a": 1}})
            message = {"id": f"m{number}", "model": "x", "role": "assistant", "content": blocks}
        lines.append({**line, "type": message["role"], "message": message})
    return _encode_lines(lines)


def _write_codex(talk: list[Turn]) -> bytes:
    lines: list[Any] = [{"type": "session_meta", "payload": {"id": "s", "cwd": "/w"}}]
    for number, (kind, text, call) in enumerate(talk):
        payload: dict[str, Any] = {"type": "function_call_output", "call_id": call, "output": text}
        if kind != "result":
            role = "user" if kind == "user" else "assistant"
            payload = {"type": "message", "role": role, "content": [{"type": "text", "text": text}]}
        stamp = f"2026-03-01T10:00:{number:02}Z"
        lines.append({"timestamp": stamp, "type": "response_item", "payload": payload})
        if kind == "call":
            asked = {"type": "function_call", "call_id": call, "name": "shell", "arguments": "{}"}
            lines.append({"timestamp": stamp, "type": "response_item", "payload": asked})
    return _encode_lines(lines)


def _write_copilot(talk: list[Turn]) -> bytes:
    lines: list[Any] = [{"type": "session.start", "data": {"sessionId": "s"}, "id": "e"}]
    for number, (kind, text, call) in enumerate(talk):
        about = {"id": f"e{number}", "timestamp": "2026-03-01T10:00:00Z", "parentId": None}
        data: dict[str, Any] = {"content": text}
        if kind == "user":
            type = "user.message"
        elif kind == "result":
            type = "tool.execution_complete"
            data = {"toolCallId": call, "success": True, "result": {"content": text}}
        else:
            type = "assistant.message"
            data["messageId"] = f"m{number}"
            if kind == "call":
                data["toolRequests"] = [{"toolCallId": call, "name": "bash", "arguments": {}}]
        lines.append({"type": type, "data": data, **about})
    return _encode_lines(lines)


def _write_opencode(talk: list[Turn]) -> bytes:
    messages: list[Any] = []
    for number, (kind, text, call) in enumerate(talk):
        role = "user" if kind == "user" else "assistant"
        parts: list[Any] = [{"type": "text", "text": text}]
        if kind == "result":
            state = {"status": "completed", "input": {"a": 1}, "output": text}
            parts = [{"type": "tool", "callID": call, "tool": "bash", "state": state}]
        info = {"id": f"msg_{number}", "sessionID": "ses", "role": role, "time": {"created": 1}}
        messages.append({"info": info, "parts": parts})
    return _encode_document(
        {"info": {"id": "ses", "projectID": "p", "title": "t"}, "messages": messages}
    )


def _write_opencode_database(talk: list[Turn]) -> bytes:
    def fill(db: apsw.Connection) -> None:
        db.execute(
            "CREATE TABLE session (id text PRIMARY KEY, project_id text, parent_id text,"
            " directory text, title text, time_created integer);"
            "CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer,"
            " data text);"
            "CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, data text);"
            "INSERT INTO session VALUES ('ses', 'p', NULL, '/w', 't', 1)"
        )
        for number, (kind, text, _) in enumerate(talk):
            info = {"role": "user" if kind == "user" else "assistant", "time": {"created": 1}}
            part = {"type": "text", "text": text}
            row = (f"m{number:03}", "ses", number, json.dumps(info))
            db.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
            row = (f"p{number:03}", f"m{number:03}", "ses", json.dumps(part))
            db.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)

    return _write_database(fill)


def _write_pi(talk: list[Turn]) -> bytes:
    stamp = "2026-03-01T10:00:00Z"
    lines: list[Any] = [{"type": "session", "id": "s", "cwd": "/w", "timestamp": stamp}]
    for number, (kind, text, call) in enumerate(talk):
        parts: list[Any] = [{"type": "text", "text": text}]
        message: dict[str, Any] = {"role": "user", "content": parts}
        if kind == "result":
            message = {"role": "toolResult", "toolCallId": call, "toolName": "bash"}
            message |= {"content": parts, "isError": False}
        elif kind != "user":
            message = {"role": "assistant", "content": parts, "model": "x"}
            if kind == "call":
                parts.append({"type": "toolCall", "id": call, "name": "bash", "arguments": {}})
        about = {"type": "message", "id": f"e{number}", "timestamp": stamp}
        lines.append({**about, "message": message})
    return _encode_lines(lines)


def _write_gemini(talk: list[Turn]) -> bytes:
    messages = [
        {"id": f"m{number}", "type": "user" if kind == "user" else "gemini", "content": text}
        for number, (kind, text, _) in enumerate(talk)
    ]
    return _encode_document({"sessionId": "s", "projectHash": "h", "messages": messages})


def _write_gemini_history(talk: list[Turn]) -> bytes:
    turns: list[Any] = []
    for kind, text, call in talk:
        parts: list[Any] = [{"text": text}]
        if kind == "call":
            parts.append({"functionCall": {"id": call, "name": "shell", "args": {}}})
        elif kind == "result":
            told = {"id": call, "name": "shell", "response": {"output": text}}
            parts = [{"functionResponse": told}]
        turns.append({"role": "user" if kind in ("user", "result") else "model", "parts": parts})
    return _encode_document(turns)


def _write_hermes(talk: list[Turn]) -> bytes:
    def fill(db: apsw.Connection) -> None:
        db.execute(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT,"
            " model TEXT, model_config TEXT, system_prompt TEXT, parent_session_id TEXT,"
            " started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, message_count INTEGER);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,"
            " role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT,"
            " timestamp REAL NOT NULL, token_count INTEGER, finish_reason TEXT);"
            "INSERT INTO sessions VALUES ('s', 'cli', NULL, 'm', '{}', NULL, NULL, 1.5, NULL, NULL, 8)"
        )
        for message in _build_chat(talk):
            calls = json.dumps(message["tool_calls"]) if "tool_calls" in message else None
            row = (message["role"], message["content"], message.get("tool_call_id"), calls)
            db.execute(
                "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, timestamp)"
                " VALUES ('s', ?, ?, ?, ?, 2.5)",
                row,
            )

    return _write_database(fill)


def _write_database(fill: Callable[[apsw.Connection], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "made.db")
        db = apsw.Connection(str(path))
        db.execute("BEGIN")
        fill(db)
        db.execute("COMMIT")
        db.close()
        return path.read_bytes()


def _write_mini_swe_agent(talk: list[Turn]) -> bytes:
    messages: list[Any] = []
    for kind, text, _ in talk:
        if kind == "call":
            text = f"{text}\n\n```bash\nls\n```"
        elif kind == "result":
            text = f"<returncode>0</returncode>\n<output>\n{text}\n</output>"
        role = "user" if kind in ("user", "result") else "assistant"
        messages.append({"role": role, "content": text})
    return _encode_document(
        {"info": {"exit_status": "x", "mini_version": "1"}, "messages": messages}
    )


def _write_swe_agent(talk: list[Turn]) -> bytes:
    steps = [
        {"action": "ls", "observation": text, "response": f"step {number}", "thought": "x"}
        for number, (_, text, _) in enumerate(talk)
    ]
    return _encode_document({"environment": "x", "trajectory": steps, "history": [], "info": {}})


def _write_openhands(talk: list[Turn]) -> bytes:
    events: list[Any] = []
    for number, (kind, text, _) in enumerate(talk):
        event: dict[str, Any] = {"id": number, "timestamp": "2026-03-01T10:00:00", "message": ""}
        event |= {"source": "user" if kind == "user" else "agent"}
        if kind == "call":
            event |= {"action": "run", "args": {"command": "ls", "thought": text}}
        elif kind == "result":
            extras = {"metadata": {"exit_code": 0}}
            event |= {"observation": "run", "content": text, "cause": number - 1, "extras": extras}
        else:
            event |= {"action": "message", "args": {"content": text}}
        events.append(event)
    return _encode_document(events)


def _write_tau_bench(talk: list[Turn]) -> bytes:
    return _encode_document(
        [{"task_id": 0, "trial": 0, "reward": 1.0, "info": {}, "traj": _build_chat(talk)}]
    )


def _write_tau2(talk: list[Turn]) -> bytes:
    messages: list[Any] = []
    for number, (kind, text, call) in enumerate(talk):
        role = {"user": "user", "result": "tool"}.get(kind, "assistant")
        message: dict[str, Any] = {"role": role, "content": text, "turn_idx": number}
        if kind == "call":
            message["tool_calls"] = [{"id": call, "name": "look", "arguments": {"a": 1}}]
        elif kind == "result":
            message |= {"id": call, "error": False, "requestor": "assistant"}
        messages.append(message)
    run = {"id": "r", "task_id": "t", "messages": messages, "reward_info": {"reward": 1.0}}
    return _encode_document({"info": {"agent_info": {}}, "tasks": [], "simulations": [run]})


def _write_atif(talk: list[Turn]) -> bytes:
    steps: list[Any] = []
    for number, (kind, text, call) in enumerate(talk):
        step: dict[str, Any] = {"step_id": number + 1, "message": text}
        step["source"] = "user" if kind == "user" else "agent"
        if kind == "result":
            step["tool_calls"] = [{"tool_call_id": call, "function_name": "sh", "arguments": {}}]
            step["observation"] = {"results": [{"source_call_id": call, "content": text}]}
        steps.append(step)
    agent = {"name": "a", "version": "1"}
    return _encode_document(
        {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": agent, "steps": steps}
    )


def _write_inspect(talk: list[Turn]) -> bytes:
    sample = {"id": 1, "epoch": 1, "input": "x", "messages": _build_chat(talk), "scores": {}}
    about = {"task": "t", "run_id": "r", "model": "m"}
    return _encode_document({"version": 2, "status": "success", "eval": about, "samples": [sample]})


def _write_inspect_zip(talk: list[Turn]) -> bytes:
    sample = {"id": 1, "epoch": 1, "input": "x", "messages": _build_chat(talk), "scores": {}}
    about = {"version": 2, "status": "success", "eval": {"task": "t", "run_id": "r", "model": "m"}}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("_journal/start.json", json.dumps(about))
        file.writestr("samples/1_epoch_1.json", json.dumps(sample))
        file.writestr("header.json", json.dumps(about))
    return packed.getvalue()


def _write_otel(talk: list[Turn]) -> bytes:
    spans: list[Any] = []
    for number, (_, text, _) in enumerate(talk):
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(
                [{"role": "user", "content": f"ask {number} {text}"}]
            ),
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": text}]),
        }
        span = {"trace_id": f"t{number}", "span_id": f"s{number}", "attributes": attributes}
        spans.append({**span, "start_time": f"2026-03-01T10:00:{number:02}Z"})
    return _encode_lines(spans)


def _write_aider(talk: list[Turn]) -> bytes:
    lines = ["", "# aider chat started at 2026-03-01 10:00:00", ""]
    for kind, text, _ in talk:
        text = text.replace("\n", " ")
        lines += [f"#### {text}  " if kind == "user" else text, ""]
    return "\n".join(lines).encode()


def _write_chat_document(talk: list[Turn]) -> bytes:
    return _encode_document({"id": "c", "messages": _build_chat(talk)})


def _write_chat_lines(talk: list[Turn]) -> bytes:
    return _encode_lines(_build_chat(talk))


_WRITERS: tuple[tuple[str, Callable[[list[Turn]], bytes]], ...] = (
    ("claude-code", _write_claude_code),
    ("codex", _write_codex),
    ("copilot", _write_copilot),
    ("opencode", _write_opencode),
    ("opencode", _write_opencode_database),
    ("pi", _write_pi),
    ("gemini", _write_gemini),
    ("gemini", _write_gemini_history),
    ("hermes", _write_hermes),
    ("mini-swe-agent", _write_mini_swe_agent),
    ("swe-agent", _write_swe_agent),
    ("openhands", _write_openhands),
    ("tau-bench", _write_tau_bench),
    ("tau2", _write_tau2),
    ("atif", _write_atif),
    ("inspect", _write_inspect),
    ("inspect", _write_inspect_zip),
    ("otel", _write_otel),
    ("aider", _write_aider),
    ("openai-chat", _write_chat_document),
    ("openai-chat", _write_chat_lines),
)
