"""Synthetic transcripts for the import benchmark, and its floor.

The transcripts have the format of Claude Code and of Codex, with everything that these agents write
around a message; sizes of messages and sessions are log-normal, and one text in six is not ASCII.

The floor parses the same bytes with the faster of orjson and msgspec, and writes the same prepared
rows with apsw: batches of a thousand, each a durable transaction (write-ahead log, synchronous=FULL),
one index for the order of a session, one FTS5 table over the same words. It maps nothing, checks
nothing and looks for no duplicates. A change to this file is a separate commit, with the figures before
and after.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from bench.workload import SEED, make_prose

# As measured in real files of both agents: results are long, other messages are short.
RESULT_BYTES, SAID_BYTES = 3_000, 450
MEDIAN_MESSAGES, SPREAD = 36, 1.0  # of the log-normal number of messages in a session
BATCH = 1_000
RHYTHM = ("user", "call", "tool", "call", "tool", "answer")
TOOLS = ("Bash", "Read", "Edit", "Grep", "Write")
# Roughly the non-ASCII characters of real transcripts.
SIGNS = ("→", "✓", "…", "—", "é", "ü", "日本語", "🙂", "│", "├──")

Row = tuple[Any, ...]

TABLES = """
CREATE TABLE sessions(id INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE messages(
    id INTEGER PRIMARY KEY, session INTEGER, position INTEGER, role TEXT, time REAL, calls INTEGER,
    answers TEXT, platform_id TEXT, tools TEXT, body TEXT, content TEXT);
CREATE UNIQUE INDEX messages_place ON messages(session, position);
CREATE VIRTUAL TABLE found USING fts5(text, content='');
"""
ADD_SESSION = "INSERT INTO sessions(id, name) VALUES(?,?)"
ADD_MESSAGE = (
    "INSERT INTO messages(id, session, position, role, time, calls, answers, platform_id, tools,"
    " body, content) VALUES(?,?,?,?,?,?,?,?,?,?,?)"
)
ADD_FOUND = "INSERT INTO found(rowid, text) VALUES(?,?)"


# -- the transcripts


def write_files(folder: Path, size: int) -> dict[str, int]:
    """Write about `size` bytes of transcripts, half in each format; return the files and bytes."""
    folder.mkdir(parents=True)
    written = files = 0
    for index, shape in _iter_shapes():
        path = folder / f"project-{index % 40:02d}" / f"{index:06d}.jsonl"
        path.parent.mkdir(exist_ok=True)
        drawn = random.Random(f"{SEED}:{index}").lognormvariate(math.log(MEDIAN_MESSAGES), SPREAD)
        count = max(2, round(drawn))
        path.write_bytes(b"".join(shape(index, count)))
        written, files = written + path.stat().st_size, files + 1
        if written >= size:
            break
    return {"files": files, "bytes": written}


def write_one(path: Path, size: int) -> None:
    """Write one transcript of Claude Code of about `size` bytes."""
    written = 0
    with path.open("wb") as file:
        for line in iter_claude_code_lines(0, 10**9):
            written += file.write(line)
            if written >= size:
                return


def write_document(path: Path, size: int) -> None:
    """Write one conversation as a single JSON document of about `size` bytes."""
    written, before = 0, b'{"id": "document", "messages": [\n'
    with path.open("wb") as file:
        for kind, said, call, _, _ in _iter_turns(0, 10**9):
            role = {"tool": "tool", "user": "user"}.get(kind, "assistant")
            message: dict[str, Any] = {"role": role, "content": said}
            if kind == "call":
                asked = {"name": "shell", "arguments": "{}"}
                message["tool_calls"] = [{"id": call, "type": "function", "function": asked}]
            elif kind == "tool":
                message["tool_call_id"] = call
            written += file.write(before + _encode_line(message).rstrip())
            before = b",\n"
            if written >= size:
                break
        file.write(b"\n]}\n")


def write_many(folder: Path, files: int) -> None:
    """Write many small transcripts, a hundred in a folder."""
    for index in range(files):
        path = folder / f"{index // 100:04d}" / f"{index:06d}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join(iter_claude_code_lines(index, 2)))


def _iter_shapes() -> Iterator[tuple[int, Callable[[int, int], Iterator[bytes]]]]:
    index = 0
    while True:
        yield index, iter_claude_code_lines if index % 2 else iter_codex_lines
        index += 1


def _make_text(rng: random.Random, mean_bytes: int) -> str:
    words = make_prose(rng, mean_bytes).split(" ")
    if rng.random() < 1 / 6:
        for _ in range(1 + len(words) // 30):
            words.insert(rng.randrange(len(words) + 1), rng.choice(SIGNS))
    # Lines of a dozen words: a JSON parser has to unescape line ends and quotes.
    lines = (" ".join(words[at : at + 12]) for at in range(0, len(words), 12))
    return ' "x"\n\t'.join(lines)


def _iter_turns(index: int, count: int) -> Iterator[tuple[str, str, str, random.Random, float]]:
    """Yield kind, text, call id, random generator and time of each message."""
    rng = random.Random(f"{SEED}:import:{index}")
    call, moment = "", 1_767_225_600.0 + index * 60
    for number in range(count):
        kind = RHYTHM[number % len(RHYTHM)]
        if kind == "call":
            call = f"call_{rng.getrandbits(64):016x}"
        moment += rng.random() * 20
        said = _make_text(rng, RESULT_BYTES if kind == "tool" else SAID_BYTES)
        yield kind, said, call, rng, moment


def _format_stamp(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{moment % 1:.3f}"[2:] + "Z"


def _encode_line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def iter_claude_code_lines(index: int, count: int) -> Iterator[bytes]:
    """Yield a session in Claude Code's format: answers span lines, and results appear twice."""
    session = f"c1a0de00-0000-4000-8000-{index:012x}"
    last: str | None = None
    for number, (kind, said, call, rng, moment) in enumerate(_iter_turns(index, count)):
        uuid = f"{rng.getrandbits(128):032x}"
        line: dict[str, Any] = {
            "parentUuid": last,
            "isSidechain": False,
            "userType": "external",
            "cwd": f"/home/somebody/project-{index % 40:02d}",
            "sessionId": session,
            "version": "2.1.0",
            "gitBranch": "main",
            "type": "assistant" if kind in ("call", "answer") else "user",
            "uuid": uuid,
            "timestamp": _format_stamp(moment),
        }
        last = uuid
        if kind == "tool":
            result = {"type": "tool_result", "tool_use_id": call, "content": said}
            line["message"] = {"role": "user", "content": [{**result, "is_error": number % 9 == 0}]}
            line["toolUseResult"] = {"stdout": said, "stderr": "", "interrupted": False}
            yield _encode_line(line)
            continue
        if kind == "user":
            yield _encode_line({**line, "message": {"role": "user", "content": said}})
            continue
        blocks: list[dict[str, Any]] = [{"type": "text", "text": said}]
        if kind == "call":
            given = {"command": f"run {rng.getrandbits(32)}", "path": f"src/{number}.py"}
            name = rng.choice(TOOLS)
            blocks.append({"type": "tool_use", "id": call, "name": name, "input": given})
        usage = {"input_tokens": 9, "cache_read_input_tokens": 20_000, "output_tokens": 300}
        answer = {"id": f"msg_{uuid}", "role": "assistant", "model": "claude-x", "usage": usage}
        for block in blocks:
            yield _encode_line(
                {**line, "message": {**answer, "content": [block], "stop_reason": None}}
            )
        if kind == "call":
            told = {"type": "hook_progress", "hookEvent": "PostToolUse", "command": "x" * 400}
            yield _encode_line({**line, "type": "progress", "data": told, "toolUseID": call})


def iter_codex_lines(index: int, count: int) -> Iterator[bytes]:
    """Yield a rollout in Codex's format; each message appears twice, as an event and as an item."""
    yield _encode_line(
        {
            "timestamp": _format_stamp(1_767_225_600.0),
            "type": "session_meta",
            "payload": {"id": f"c0dec000-0000-4000-8000-{index:012x}", "cwd": "/home/somebody"},
        }
    )
    yield _encode_line(
        {"type": "turn_context", "payload": {"model": "gpt-x", "cwd": "/home/somebody"}}
    )
    for kind, said, call, rng, moment in _iter_turns(index, count):
        stamp = _format_stamp(moment)

        def item(stamp: str = stamp, **payload: Any) -> bytes:
            return _encode_line({"timestamp": stamp, "type": "response_item", "payload": payload})

        def event(stamp: str = stamp, **payload: Any) -> bytes:
            return _encode_line({"timestamp": stamp, "type": "event_msg", "payload": payload})

        if kind == "tool":
            header = f"Exit code: {rng.random() < 0.1:d}\nWall time: 0.2 seconds\nOutput:\n"
            yield item(type="function_call_output", call_id=call, output=header + said)
            continue
        role = "user" if kind == "user" else "assistant"
        part = "input_text" if kind == "user" else "output_text"
        yield event(type="user_message" if kind == "user" else "agent_message", message=said)
        yield item(type="message", role=role, content=[{"type": part, "text": said}])
        if kind == "call":
            arguments = json.dumps({"command": ["bash", "-lc", f"run {rng.getrandbits(32)}"]})
            yield item(type="function_call", name="shell", arguments=arguments, call_id=call)
            used = {"input_tokens": 900, "cached_input_tokens": 800, "output_tokens": 30}
            yield event(type="token_count", info={"total_token_usage": used})


# -- the floor


def load_parsers() -> dict[str, Callable[[bytes], Any]]:
    import msgspec
    import orjson  # pyright: ignore[reportMissingImports]  the environment of the benchmark has it

    return {"orjson": orjson.loads, "msgspec": msgspec.json.Decoder().decode}


def parse_files(paths: Sequence[Path], loads: Callable[[bytes], Any]) -> int:
    """Parse every file, by line or as one document; return the number of values."""
    values = 0
    for path in paths:
        data = path.read_bytes()
        try:
            for line in data.split(b"\n"):
                if line:
                    loads(line)
                    values += 1
        except ValueError:
            try:
                loads(data)
            except ValueError:  # not JSON at all
                continue
            values += 1
    return values


def insert_rows(
    database: Path, sessions: Sequence[Row], rows: Sequence[Row], words: Sequence[Row]
) -> None:
    """Write the rows and index the words, in durable batches."""
    db = apsw.Connection(str(database))
    db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
    db.execute("BEGIN IMMEDIATE;" + TABLES + "COMMIT")
    db.execute("BEGIN IMMEDIATE")
    db.executemany(ADD_SESSION, sessions)
    db.execute("COMMIT")
    for start in range(0, len(rows), BATCH):
        db.execute("BEGIN IMMEDIATE")
        db.executemany(ADD_MESSAGE, rows[start : start + BATCH])
        db.executemany(ADD_FOUND, words[start : start + BATCH])
        db.execute("COMMIT")
    db.close()


def read_rows(store: Path) -> tuple[list[Row], list[Row], list[Row]]:
    """Read sessions, messages and words from a store that has imported the files."""
    from rekindle.store.core.rows import get_row_search_text

    db = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    sessions = db.execute("SELECT num, id FROM sessions").fetchall()
    rows: list[tuple[Any, ...]] = db.execute(
        "SELECT id, session, position, role, time, calls, tool_call_id, platform_id, tools, body,"
        " content FROM messages ORDER BY id"
    ).fetchall()
    db.close()
    words = [(row[0], get_row_search_text(row[-1], row[-2])) for row in rows]
    return sessions, rows, words
