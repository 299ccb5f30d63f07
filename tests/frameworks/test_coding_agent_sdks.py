"""Sessions of the Claude Agent SDK and the Codex SDK come in by their transcripts."""

from __future__ import annotations

import json
from pathlib import Path

from rekindle import Store, import_transcripts, iter_judged_sessions
from tests.acceptance.transcripts import Told, run, write_claude, write_codex

STEPS = (
    run("pytest -q", "bash: pytest: command not found", works=False),
    run("python -m pytest -q", "3 passed"),
)


def mark_origin(path: Path, **fields: str) -> None:
    """Name the SDK on each line, as the program that it starts does."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        place = line["payload"] if line.get("type") == "session_meta" else line
        place.update(fields)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_programs_with_either_sdk_are_sessions_like_others(store: Store, tmp_path: Path) -> None:
    write_claude(tmp_path, Told("claude-1", "/work/travel", "Run the tests in Turin", STEPS))
    write_codex(tmp_path, Told("codex-1", "/work/travel", "Run the tests in Rome", STEPS))
    claude, codex = sorted(tmp_path.rglob("*.jsonl"), key=lambda path: "claude" not in path.name)
    mark_origin(claude, entrypoint="sdk-py", userType="external")
    mark_origin(codex, originator="codex_sdk_ts", source="exec")
    report = import_transcripts(store, [tmp_path])
    assert (report.failed, report.damage) == ((), ())
    found = {one.source: one for one in store.recent()}
    assert found.keys() == {"claude-code", "codex"}
    assert {hit.session.source for hit in store.search("Turin")} == {"claude-code"}
    assert {hit.session.source for hit in store.search("Rome")} == {"codex"}
    for judged in iter_judged_sessions(store):
        assert [call.failed for call in judged.calls] == [True, False]
    session = found["codex"]
    fork = store.fork(session)
    assert store.messages(fork) == store.messages(session)
    mark_origin(claude, entrypoint="sdk-ts")  # it grew: the same session, no second one
    import_transcripts(store, [tmp_path])
    assert len(store.recent()) == 3
