"""Two hundred kinds of secrets are planted in sessions; none gets into anything that is learned."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from rekindle.learning.library import TemplateLibrary, export_template
from rekindle.redaction.environment import iter_encodings
from rekindle.types import TemplateNote
from tests.acceptance.test_cli import Rekindle
from tests.servers import Postgres
from tests.unit.redaction.canaries import Canary, planted

CANARIES = tuple(planted(11))
TOGETHER = 24  # canaries in one session
ENV_SECRET = "Tr0ub4dor-and-3-horses"


def line(kind: str, **more: object) -> str:
    return json.dumps({"type": kind, **more})


def transcript(session: str, canaries: tuple[Canary, ...]) -> Iterator[str]:
    """A session in the form of another agent, with secrets in prompts, calls, results and answers."""

    def entry(kind: str, number: int, role: str, content: object, **more: object) -> str:
        return line(
            kind,
            uuid=f"{session}-{number}",
            sessionId=session,
            timestamp=f"2026-03-01T10:{number // 60 % 60:02}:{number % 60:02}.000Z",
            cwd="/home/adalovelace/work",
            version="1.0.0",
            message={"role": role, "content": content},
            **more,
        )

    number = 0
    for place, canary in enumerate(canaries):
        tool = f"toolu_01{session[-4:]}{place:04}aB3dE5"
        yield entry("user", number, "user", f"Run the sync for part {place}. {canary.text}")
        command = f"make sync --part {place} # {canary.text}"
        call = {"type": "tool_use", "id": tool, "name": "Bash", "input": {"command": command}}
        yield entry("assistant", number + 1, "assistant", [call])
        result = {"type": "tool_result", "tool_use_id": tool, "content": f"ok\n{canary.text}"}
        yield entry("user", number + 2, "user", [result])
        said = [{"type": "text", "text": f"Done: {canary.text}"}]
        yield entry("assistant", number + 3, "assistant", said)
        number += 4


@pytest.fixture(scope="module")
def rekindle(tmp_path_factory: pytest.TempPathFactory) -> Rekindle:
    """Every canary in two sessions, so that what they share is worth learning; then all is learned."""
    home = tmp_path_factory.mktemp("home")
    (home / "rekindle").mkdir()
    rekindle = Rekindle(home)
    rekindle.env["DEPLOY_PASSWORD"] = ENV_SECRET
    logs = home / "logs"
    logs.mkdir()
    extra = Canary("environment", f"deploy with {ENV_SECRET} now", (ENV_SECRET,))
    everything = (*CANARIES, extra)
    for copy in ("a", "b"):
        for start in range(0, len(everything), TOGETHER):
            session = f"00000000-0000-4000-8000-00000000{copy}{start:03}"
            rows = transcript(session, everything[start : start + TOGETHER])
            (logs / f"{session}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    rekindle("import", str(logs))
    rekindle("warm", "build", "--name", "planted", "--max-sessions", "100", "--max", "500",
             "--min-messages", "4")  # fmt: skip
    for row in rekindle.json("sessions", "list", "--limit", "100"):
        rekindle("warm", "extract", row["id"], "--name", f"one {row['id'][-4:]}")
    return rekindle


SOUGHT = [
    (f"{canary.kind}: {value}", tuple(iter_encodings(value)))
    for canary in (*CANARIES, Canary("environment", "", (ENV_SECRET,)))
    for value in canary.values
    if len(value) > 5
]


def leaks(text: str) -> list[str]:
    """The canaries that are in a text, as they are or encoded."""
    return [name for name, encoded in SOUGHT if any(form in text for form in encoded)]


def templates(rekindle: Rekindle) -> list[Path]:
    return sorted((rekindle.home / "rekindle" / "templates").glob("*.json"))


def test_the_canaries_reach_the_sessions_and_something_is_learned(rekindle: Rekindle) -> None:
    rows = rekindle.json("sessions", "list", "--limit", "100")
    assert len(rows) >= 2 * len(CANARIES) // TOGETHER
    told = rekindle("sessions", "show", rows[0]["id"], "--json")
    assert leaks(told)
    assert "make sync" in rekindle("warm", "show", "planted")
    assert len(templates(rekindle)) == len(rows) + 1


def test_no_canary_is_in_any_template_file(rekindle: Rekindle) -> None:
    for file in templates(rekindle):
        assert leaks(file.read_text(encoding="utf-8")) == [], file.name


LEARNED = ("observations", "playbooks", "templates", "note_decisions", "preludes")


def no_leaks(name: str, rows: Iterable[Sequence[object]]) -> int:
    """Looks at all rows of a table; how many there were."""
    count = 0
    for row in rows:
        count += 1
        shown = "\n".join(
            bytes(value).decode("utf-8", "replace")
            if isinstance(value, bytes | memoryview)
            else str(value)
            for value in row
        )
        assert leaks(shown) == [], name
    return count


def test_no_canary_is_in_any_table_of_what_was_learned(rekindle: Rekindle) -> None:
    database = apsw.Connection(str(rekindle.store), flags=apsw.SQLITE_OPEN_READONLY)
    names = [
        name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    learned = [name for name in names if name.startswith(LEARNED)]
    assert {*LEARNED} == {*learned}
    assert sum(no_leaks(name, database.execute(f'SELECT * FROM "{name}"')) for name in learned) > 30


def test_no_canary_is_in_any_table_of_a_server(
    rekindle: Rekindle, postgres: Postgres, tmp_path: Path
) -> None:
    import psycopg

    url = postgres.database()
    rekindle("sessions", "copy", str(rekindle.store), url)
    rekindle("warm", "build", "--name", "planted", "--max-sessions", "100", "--max", "500",
             "--min-messages", "4", REKINDLE_STORE=url, REKINDLE_HOME=str(tmp_path))  # fmt: skip
    with psycopg.connect(url) as server:
        named = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        learned = [name for (name,) in server.execute(named) if name.startswith(LEARNED)]
        assert {*LEARNED} == {*learned}
        rows = (no_leaks(name, server.execute(f'SELECT * FROM "{name}"')) for name in learned)  # pyright: ignore
        assert sum(rows) > 15


def test_no_canary_is_on_the_page(rekindle: Rekindle, tmp_path: Path) -> None:
    rekindle("insights", "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Bash" in page
    assert leaks(page) == []


def test_no_canary_is_in_what_is_shown_exported_or_sent(rekindle: Rekindle) -> None:
    for id in (file.stem for file in templates(rekindle)):
        assert leaks(rekindle("warm", "export", id)) == [], id
    for id in ("planted", templates(rekindle)[0].stem):
        assert leaks(rekindle("warm", "show", id)) == [], id
        assert leaks(rekindle("warm", "show", id, "--json")) == [], id
    for asked in ("run the sync for part 3", "sync the desk", "deploy"):
        assert leaks(rekindle("warm", "test", "planted", asked, "--json")) == []
        assert leaks(rekindle("warm", "pick", asked, "--json")) == []


def test_a_template_with_a_secret_in_it_loses_it_on_import(
    rekindle: Rekindle, tmp_path: Path
) -> None:
    """Whoever wrote the file may have put it in, with a checksum that is right."""
    token = "gh" + "p_" + "a1B2c3D4e5" * 4
    found = TemplateLibrary(rekindle.home / "rekindle" / "templates").find("planted")
    text = f"`make sync --key {token}`, used {token}"
    note = TemplateNote("x", "command", text, command=f"make sync --key {token}")
    wish = TemplateNote("y", "wish", f"Always use {token}.")
    theirs = found._replace(notes=(note, wish))
    file = tmp_path / "theirs.json"
    file.write_bytes(export_template(theirs, "rekindle", 0.0))
    assert token.encode() in file.read_bytes()
    rekindle("warm", "import", file, "--name", "theirs")
    shown = rekindle("warm", "show", "theirs", "--json")
    assert token not in shown
    assert "make sync --key <value>" in shown
    assert "Always use <secret:" in shown
