"""`rekindle usage` and the cost of sessions, from transcripts to the screen."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rekindle import open_store
from tests.acceptance.test_cli import Rekindle

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
OPUS, SONNET = "claude-opus-4-5-20251101", "claude-sonnet-4-5-20250929"


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    return Rekindle(tmp_path)


def answer(id: str, model: str, at: str, **counts: int) -> dict[str, Any]:
    names = {
        "input": "input_tokens",
        "output": "output_tokens",
        "read": "cache_read_input_tokens",
        "written": "cache_creation_input_tokens",
    }
    used: dict[str, Any] = {field: counts.get(name, 0) for name, field in names.items()}
    used["cache_creation"] = {"ephemeral_1h_input_tokens": counts.get("hourly", 0)}
    content = [{"type": "text", "text": "done"}]
    message = {"id": id, "role": "assistant", "model": model, "content": content, "usage": used}
    return {"type": "assistant", "uuid": f"{id}-{at}", "timestamp": at, "message": message}


def write_session(
    folder: Path, name: str, *answers: dict[str, Any], cwd: str = "/src/shop"
) -> Path:
    """Write a session as Claude Code does."""
    prompt = {
        "type": "user",
        "uuid": f"{name}-u",
        "timestamp": answers[0]["timestamp"],
        "message": {"role": "user", "content": f"work on {name}"},
    }
    common = {"sessionId": name, "cwd": cwd, "gitBranch": "main"}
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({**common, **one}) + "\n" for one in (prompt, *answers)))
    return path


@pytest.fixture
def agent(tmp_path: Path, rekindle: Rekindle) -> Path:
    """Two sessions in two projects: over midnight with two models, and on another day."""
    folder = tmp_path / "agent"
    million = 1_000_000
    write_session(
        folder,
        "cart",
        # Streamed: the same message twice, and the second line is right.
        answer("m1", OPUS, "2026-01-31T18:14:00Z", input=7, output=1, read=million),
        answer("m1", OPUS, "2026-01-31T18:14:00Z", input=7, output=1000, read=million),
        answer("m2", OPUS, "2026-01-31T18:15:00Z", written=million, hourly=400_000),
        answer("m3", SONNET, "2026-02-02T09:00:00Z", output=100_000),
    )
    write_session(
        folder,
        "blog",
        answer("m4", "homemade-7b", "2026-02-03T09:00:00Z", input=500, output=50),
        answer("m5", SONNET, "2026-02-03T09:00:00Z", output=10_000),
        cwd="/src/blog",
    )
    rekindle("import", folder)
    return folder


# 1,000 output and 7 input tokens, a million read; 600,000 written for minutes and 400,000 for an hour.
OPUS_COST = Decimal("0.025") + Decimal("0.000035") + Decimal("0.50") + Decimal("3.75") + 4


def test_days_are_those_of_the_users_time_zone(rekindle: Rekindle, agent: Path) -> None:
    words = ("usage", "day", "--since", "all")
    days = {row["day"]: row["cost"] for row in rekindle.json(*words)["rows"]}
    assert days == {
        "2026-01-31": str(OPUS_COST.normalize()),
        "2026-02-02": "1.5",
        "2026-02-03": "0.15",
    }
    days = {row["day"]: row["cost"] for row in rekindle.json(*words, TZ="Asia/Kathmandu")["rows"]}
    assert [*days] == ["2026-01-31", "2026-02-01", "2026-02-02", "2026-02-03"]
    assert days["2026-02-01"] == "7.75", "18:15 is midnight there"


def test_tokens_are_counted_once_with_cache_reads_and_writes(
    rekindle: Rekindle, agent: Path
) -> None:
    for _ in range(2):
        told = rekindle.json("usage", "--by", "model", "--since", "all")
        assert [row["model"] for row in told["rows"]] == [OPUS, SONNET, "homemade-7b"]
        assert told["rows"][0]["tokens"] == {
            "input": 7,
            "output": 1000,
            "cache_read": 1_000_000,
            "cache_write": 1_000_000,
            "reasoning": 0,
            "cache_write_1h": 400_000,
        }
        assert Decimal(told["total"]["cost"]) == OPUS_COST + Decimal("1.65")
        rekindle("import", agent)


def test_a_model_without_a_price_is_named_until_the_settings_have_one(
    rekindle: Rekindle, agent: Path
) -> None:
    told = rekindle.json("usage", "--since", "all")
    assert [*told["unpriced"]] == ["homemade-7b"]
    assert told["total"]["unpriced_tokens"] == 550
    assert (
        "* Without a known price: homemade-7b."
        in rekindle.run("usage", "--since", "all").stderr.decode()
    )
    settings = '[model.prices."homemade-7b"]\ninput = 1\noutput = 2\n'
    settings += f'[model.prices."{OPUS}"]\ninput = 0\n'
    (rekindle.home / "rekindle" / "config.toml").write_text(settings)
    told = rekindle.json("usage", "--since", "all")
    assert told["unpriced"] == {}
    assert Decimal(told["total"]["cost"]) == Decimal("1.65") + Decimal("0.0006")
    assert {one["provider"] for one in told["prices"]} >= {"anthropic", "openai", "google"}


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("project", ["folder:/src/shop", "folder:/src/blog"]),
        ("agent", ["claude-code"]),
        ("session", ["cart", "blog"]),
    ],
)
def test_usage_is_shown_by_key(rekindle: Rekindle, agent: Path, by: str, keys: list[str]) -> None:
    told = rekindle.json("usage", "--by", by, "--since", "all")
    assert [row[by] for row in told["rows"]] == keys
    if by == "session":
        assert [row["title"] for row in told["rows"]] == ["work on cart", "work on blog"]
    lines = rekindle("usage", "month", "--by", by, "--since", "all").splitlines()
    assert lines[0].split()[:2] == ["month", by]
    assert [line.split()[0] for line in lines[1:]] == ["2026-01", *["2026-02"] * len(keys), "total"]


def test_a_project_a_first_day_and_a_limit_select_what_counts(
    rekindle: Rekindle, agent: Path
) -> None:
    assert rekindle.json("usage", "-p", "blog", "--since", "all")["total"]["cost"] == "0.15"
    since = rekindle.json("usage", "--since", "2026-02-02")
    assert (since["since"], since["total"]["cost"]) == ("2026-02-02", "1.65")
    limited = rekindle.json("usage", "--by", "session", "--since", "all", "-n", "1")
    assert len(limited["rows"]) == 1
    assert Decimal(limited["total"]["cost"]) == OPUS_COST + Decimal("1.65"), "of all"
    assert rekindle.run("usage", "--since", "today").stderr.startswith(b"No usage since")
    assert "Project not found: 'nowhere'" in rekindle.refusal("usage", "-p", "nowhere")
    assert "since: expected a date" in rekindle.refusal("usage", "--since", "soon")
    assert "--by: expected project, model" in rekindle.refusal("usage", "--by", "moon")
    assert "expected day, week, month" in rekindle.refusal("usage", "year")


def test_a_terminal_shows_bars_that_fit_and_a_pipe_plain_numbers(
    rekindle: Rekindle, agent: Path
) -> None:
    words = ("usage", "day", "--since", "all")
    shown = rekindle.terminal(*words, NO_COLOR="1")
    assert "\x1b" not in shown
    table = [line for line in shown.splitlines() if re.match(r"2026|total|day", line)]
    assert [line.split()[0] for line in table[1:5]] == [
        "2026-01-31", "2026-02-01", "2026-02-02", "2026-02-03",
    ]  # fmt: skip
    assert table[2] == "2026-02-01", "a day without usage"
    assert "1.0M" in table[1]
    assert all(len(line) <= 80 for line in table)
    bars = [line.count("█") for line in table]
    assert bars[1] == max(bars) > 5
    assert bars[1] > bars[3] > bars[2] == 0
    assert "\x1b[36m" in rekindle.terminal(*words)
    assert "█" not in rekindle.terminal(*words, COLUMNS="60")
    piped = rekindle(*words)
    assert "\x1b" not in piped
    assert "█" not in piped
    assert re.search(r"^2026-01-31 +7 +1000000 +1000000 +1000 +8.28$", piped, re.M)


def test_the_cost_stands_with_the_session(rekindle: Rekindle, agent: Path) -> None:
    listed = {one["id"]: one for one in rekindle.json("sessions", "list")}
    assert Decimal(listed["cart"]["cost"]) == OPUS_COST + Decimal("1.5")
    assert (listed["blog"]["cost"], listed["blog"]["cost_source"]) == ("0.15", "prices")
    shown = rekindle("sessions", "list")
    assert "cost $" in shown.splitlines()[0]
    assert re.search(r"^blog .* 0\.1500  ", shown, re.M), shown
    assert "cost $9.78" in rekindle("sessions", "show", "cart")
    shown = rekindle("sessions", "show", "cart", "--usage").splitlines()
    assert shown[0].startswith(
        f"{OPUS}: 7 in (1,000,000 cached, 1,000,000 written to the cache), 1,000 out, cost 8.275035"
    )
    assert shown[1] == f"{SONNET}: 0 in, 100,000 out, cost 1.5"


def test_files_that_an_older_version_imported_are_read_once_more(
    rekindle: Rekindle, agent: Path
) -> None:
    with open_store(rekindle.store) as store:

        def age(tx: Any) -> None:
            tx.run("DELETE FROM usage_entries")
            tx.run("UPDATE imports SET stamp = substr(stamp, 1, length(stamp) - 3)")

        store._write(age)  # pyright: ignore[reportPrivateUsage]
    before = rekindle.json("usage", "--since", "all")
    assert [row["day"] for row in before["rows"]] == ["2026-01-31", "2026-02-03"], "by their starts"
    rekindle("import", agent)
    after = rekindle.json("usage", "--since", "all")
    assert [row["day"] for row in after["rows"]] == ["2026-01-31", "2026-02-02", "2026-02-03"]
    assert "2 files unchanged" in rekindle("import", agent)


def test_a_hostile_transcript_neither_controls_the_terminal_nor_costs_other_sessions(
    rekindle: Rekindle, agent: Path
) -> None:
    evil = "\x1b[31mevil\x00"
    write_session(
        agent,
        "evil",
        answer("m6", evil, "2026-02-03T09:00:00Z", input=5, output=1),
        answer("m7", "x" * 50_000, "9999-12-31T23:59:59Z", input=2**52, output=-1, hourly=10**30),
        answer("m8", SONNET, "0001-01-01T00:00:00Z", input=2**52),
        answer("m9", OPUS, "soon", input=10**40),
    )
    rekindle("import", agent)
    for words in (("day",), ("month", "--by", "model"), ("--by", "session")):
        shown = rekindle.terminal("usage", *words, "--since", "all", NO_COLOR="1")
        assert "\x1b" not in shown
        assert len(shown.splitlines()) < 60
    told = rekindle.json("usage", "--by", "session", "--since", "all")
    costs = {row["session"]: row["cost"] for row in told["rows"]}
    assert (costs["blog"], Decimal(costs["cart"])) == ("0.15", OPUS_COST + Decimal("1.5"))
    assert evil in told["unpriced"]


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"real transcripts are not at {CORPUS}")
def test_the_cost_of_real_sessions_is_the_one_that_their_agent_stored(rekindle: Rekindle) -> None:
    folder = CORPUS / "opencode__dayhaysoos__nimbus"
    stored = {
        path.stem: sum(
            (
                Decimal(str(one["info"].get("cost") or 0))
                for one in json.loads(path.read_text())["messages"]
            ),
            Decimal(0),
        )
        for path in folder.glob("*.json")
    }
    rekindle("import", folder)
    told = rekindle.json("usage", "--by", "session", "--since", "all")
    assert {row["session"]: Decimal(row["cost"]) for row in told["rows"]} == {
        id: cost for id, cost in stored.items() if cost
    }
    assert told["total"]["cost"] == told["total"]["reported_cost"]
    assert Decimal(told["total"]["cost"]) == sum(stored.values())
    assert {one["cost_source"] for one in rekindle.json("sessions", "list", "-n", "99")} <= {
        "agent", "prices", None,
    }  # fmt: skip
