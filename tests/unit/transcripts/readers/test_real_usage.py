"""The numbers of a session are those of its agent, in real transcripts.

What an agent reports is added up here a second time, line by line and without our readers. The
agreement is exact: every token, and every cost to the billionth.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rekindle.analytics.usage.pricing import PriceList
from rekindle.config.prices import load_price_table
from rekindle.transcripts import detect_format
from rekindle.transcripts.events import SessionUpdated
from rekindle.types import Tokens, Usage

SHARED = Path(__file__).resolve().parents[5] / "shared"
HISTORIES = ("entireio-cli.tar.xz", "entireio-git-sync.tar.xz")
BILLIONTH = Decimal("1e-9")

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason=f"real transcripts are not at {SHARED}")


class Read(NamedTuple):
    """A session as it was read: its totals, and those of its own calls."""

    total: Usage
    own: Usage
    cache_write_1h: int


def read(path: Path) -> dict[str, Read]:
    format = detect_format(path)
    assert format is not None, path
    found: dict[str, Read] = {}
    for event in format.read(path):
        if isinstance(event, SessionUpdated):
            own = Usage()
            for entry in event.usage:
                own = own.add(Usage(entry.tokens, entry.cost))
            hourly = sum(entry.cache_write_1h for entry in event.usage)
            session = event.session
            found[session.id] = Read(Usage(session.tokens, session.cost), own, hourly)
    return found


def iter_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            value: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    for name in HISTORIES:
        with tarfile.open(SHARED / "histories" / name) as archive:
            archive.extractall(folder, filter="data")
    return folder


def find_files(*patterns: str) -> list[Path]:
    files = [path for pattern in patterns for path in (SHARED / "corpus").glob(pattern)]
    assert files, patterns
    return sorted(files)


def count_claude(path: Path) -> dict[str, tuple[Tokens, int]]:
    """The usage of each message id once, as its last line has it, by session or sub-agent."""
    messages: dict[tuple[str, str], dict[str, Any]] = {}
    for line in iter_lines(path):
        used = (line.get("message") or {}).get("usage") if line.get("type") == "assistant" else None
        if used and line.get("sessionId"):
            agent = f"agent-{line['agentId']}@" if line.get("isSidechain") else ""
            messages[f"{agent}{line['sessionId']}", line["message"]["id"]] = used
    sums: dict[str, tuple[Tokens, int]] = {}
    for (session, _), used in messages.items():
        known, hourly = sums.get(session, (Tokens(), 0))
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens")
        counts = [used[name] for name in (*names, "cache_creation_input_tokens")]
        written = (used.get("cache_creation") or {}).get("ephemeral_1h_input_tokens", 0)
        sums[session] = known.add(Tokens(*counts)), hourly + written
    return sums


def test_claude_code_sessions_have_the_usage_of_each_message_once(history: Path) -> None:
    checked = 0
    for path in [*find_files("claude__*/**/*.jsonl"), *sorted(history.rglob("*.jsonl"))]:
        format = detect_format(path)
        if format is None or format.name != "claude-code":
            continue
        counted = count_claude(path)
        for id, one in read(path).items():
            tokens, hourly = counted.get(id, (Tokens(), 0))
            assert one == (Usage(tokens), Usage(tokens), hourly), (path.name, id)
            checked += bool(any(tokens))
    assert checked >= 200


def count_codex(path: Path) -> tuple[Tokens, Tokens]:
    """The last total that Codex reports, and the sum of its calls without those of a parent."""
    total, own, before = Tokens(), Tokens(), None
    own_id, is_copied = None, False
    for line in iter_lines(path):
        payload = line.get("payload") or {}
        if line.get("type") == "session_meta" and own_id is None:
            own_id, is_copied = payload["id"], bool(payload.get("forked_from_id"))
        if payload.get("type") == "task_started" and payload.get("turn_id", "") > (own_id or ""):
            is_copied = False
        info = payload.get("info") if payload.get("type") == "token_count" else None
        if not info or info["total_token_usage"] == before:
            continue
        before = info["total_token_usage"]
        total = to_codex_tokens(before)
        if not is_copied:
            own = own.add(to_codex_tokens(info["last_token_usage"]))
    return total, own


def to_codex_tokens(used: dict[str, int]) -> Tokens:
    cached = used["cached_input_tokens"]
    return Tokens(
        input=used["input_tokens"] - cached,
        output=used["output_tokens"],
        cache_read=cached,
        reasoning=used["reasoning_output_tokens"],
    )


def test_codex_sessions_have_the_last_total_and_forks_only_their_own_calls(history: Path) -> None:
    sessions = forks = 0
    for path in [*find_files("codex__*/**/*.jsonl"), *sorted(history.rglob("*.jsonl"))]:
        format = detect_format(path)
        if format is None or format.name != "codex":
            continue
        ((_, one),) = read(path).items()
        total, own = count_codex(path)
        assert (one.total.tokens, one.own.tokens) == (total, own), path.name
        sessions += bool(any(total))
        forks += own != total
    assert sessions >= 50
    assert forks >= 6


def make_prices() -> PriceList:
    return PriceList(load_price_table()[1])


def test_opencode_sessions_have_the_cost_that_opencode_stores() -> None:
    paths = find_files("opencode__*/*.json")
    for path in paths:
        cost, tokens = Decimal(0), Tokens()
        for message in json.loads(path.read_text())["messages"]:
            info = message["info"]
            if info["role"] != "assistant":
                continue
            cost += Decimal(str(info["cost"]))
            steps = [part for part in message["parts"] if part["type"] == "step-finish"]
            for step in steps or [info]:
                used = step["tokens"]
                cache = used["cache"]
                tokens = tokens.add(
                    Tokens(used["input"], used["output"], cache["read"], cache["write"],
                           used["reasoning"])
                )  # fmt: skip
        ((_, one),) = read(path).items()
        assert one.total == one.own == (tokens, cost), path.name


def test_published_prices_give_the_cost_that_opencode_computes() -> None:
    checked = 0
    for path in find_files("opencode__*/*.json"):
        for message in json.loads(path.read_text())["messages"]:
            info = message["info"]
            if info["role"] != "assistant" or not info.get("cost"):
                continue
            used = info["tokens"]
            day = datetime.fromtimestamp(info["time"]["created"] / 1000, UTC).date()
            price = make_prices().find_price(info["modelID"], day)
            assert price is not None, info["modelID"]
            # OpenCode adds the reasoning to the output, of which it is a part already.
            output = used["output"] + used["reasoning"]
            tokens = Tokens(used["input"], output, used["cache"]["read"], used["cache"]["write"])
            assert abs(price.compute_cost(tokens) - Decimal(str(info["cost"]))) < BILLIONTH
            checked += 1
    assert checked >= 97


def test_pi_sessions_have_the_cost_that_pi_stores_and_a_branch_none_of_its_parent() -> None:
    (path,) = find_files("pi__*/*.jsonl")
    tokens, cost = Tokens(), Decimal(0)
    price = make_prices().find_price("claude-opus-4-5", date(2025, 12, 8))
    assert price is not None
    for line in iter_lines(path):
        used = (line.get("message") or {}).get("usage")
        if not used:
            continue
        taken = Tokens(used["input"], used["output"], used["cacheRead"], used["cacheWrite"])
        said = Decimal(str(used["cost"]["total"]))
        assert abs(price.compute_cost(taken) - said) < BILLIONTH
        tokens, cost = tokens.add(taken), cost + said
    ((_, one),) = read(path).items()
    assert one.total == (tokens, cost)
    assert one.own == Usage(), "all of it was copied when the session was branched"
