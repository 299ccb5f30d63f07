"""Fill a home with invented sessions of three projects over four weeks, for pictures and trials.

    python scripts/demo_home.py HOME

The sessions are made up, and the same every time but for their dates.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

from rekindle import Message, Session, Store, ToolCall, open_store
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import QUARTER_SECONDS, Tokens, UsageEntry

DAY = 86_400
AGENTS = (("claude-code", "claude-sonnet-4-5"), ("codex", "gpt-5-codex"), ("opencode", "gpt-5"))
PROJECTS: dict[str, dict[str, Any]] = {
    "lumen/shop": {
        "check": "uv run pytest tests -x",
        "wrong": ("pytest tests", "ModuleNotFoundError: No module named 'shop'"),
        "build": "make assets",
        "files": ["shop/invoice.py", "shop/cart.py", "tests/test_invoice.py", "shop/tax.py"],
        "tasks": [
            (
                "Round invoice totals to cents",
                "Totals are rounded once now, after the tax is added.",
            ),
            (
                "Let customers keep a cart for a week",
                "Carts expire after seven days instead of one.",
            ),
            (
                "Why is VAT wrong for Norway?",
                "The rate came from the billing country; it needs the delivery country.",
            ),
            (
                "Add a discount code to the checkout",
                "The field is there, and codes are checked on the server.",
            ),
            (
                "Speed up the product list",
                "One query instead of one for each product: 40 ms from 900.",
            ),
        ],
    },
    "lumen/api": {
        "check": "go test ./...",
        "wrong": ("go test", "no Go files in /work/api"),
        "build": "make generate",
        "files": [
            "internal/auth/token.go",
            "internal/http/server.go",
            "Makefile",
            "internal/store/orders.go",
        ],
        "tasks": [
            (
                "Refuse expired tokens with 401",
                "Expired tokens get 401 with a reason, and a test for the clock.",
            ),
            ("Page the orders endpoint", "Orders are paged by cursor; the old offset still works."),
            ("The server leaks connections under load", "Bodies were not closed after a redirect."),
            ("Log slow queries", "Queries above 200 ms are logged with their plan."),
        ],
    },
    "lumen/site": {
        "check": "npm run build",
        "wrong": ("npm build", 'Unknown command: "build". Did you mean: npm run build'),
        "build": "npm run lint",
        "files": ["src/pages/index.astro", "src/styles/base.css", "astro.config.mjs"],
        "tasks": [
            (
                "Make the landing page readable on a phone",
                "The hero wraps below 600 px, and the table scrolls.",
            ),
            ("Add a dark theme", "Colors are tokens now, with a second set for dark."),
            ("Publish the changelog as a page", "The page is built from CHANGELOG.md."),
        ],
    },
}


def fill_home(home: Path, now: float) -> None:
    """Write the sessions, and learn from them."""
    home.mkdir(parents=True, exist_ok=True)
    rng = random.Random(7)
    with open_store(home / "sessions.db") as store:
        starts = sorted(now - rng.random() ** 1.3 * 28 * DAY for _ in range(72))
        starts[-1] = now - 240
        for number, started in enumerate(starts):
            name = rng.choices([*PROJECTS], [5, 3, 2])[0]
            task = rng.randrange(len(PROJECTS[name]["tasks"]))
            add_session(store, rng, name, task, started, is_live=number == len(starts) - 1)
        learn_from_sessions(store)


def add_session(
    store: Store, rng: random.Random, name: str, task: int, started: float, *, is_live: bool
) -> None:
    """Write one session: look, try, fail sometimes, change, check, answer."""
    project = PROJECTS[name]
    request, answer = project["tasks"][task]
    agent, model = AGENTS[rng.choices(range(3), [6, 3, 1])[0]]
    folder = f"/home/ada/{name.partition('/')[2]}"
    moments = iter(started + at * 21 for at in range(100))
    said: list[Message] = [Message("user", f"{request}, please.", timestamp=next(moments))]

    def call(tool: str, arguments: dict[str, str], output: str, failed: bool = False) -> None:
        id = f"call_{len(said)}"
        said.append(
            Message(
                "assistant", tool_calls=[ToolCall(id, tool, arguments)], timestamp=next(moments)
            )
        )
        meta = {"is_error": True} if failed else None
        said.append(Message("tool", output, tool_call_id=id, meta=meta, timestamp=next(moments)))

    file = rng.choice(project["files"])
    call("Read", {"file_path": f"{folder}/{file}"}, "def total(lines):\n    return sum(lines)\n")
    if rng.random() < 0.45:
        wrong, error = project["wrong"]
        call("Bash", {"command": wrong}, f"Exit code 1\n{error}", failed=True)
    edit = {
        "file_path": f"{folder}/{file}",
        "old_string": "    return sum(lines)\n",
        "new_string": "    # Round once, at the end.\n    return round(sum(lines), 2)\n",
    }
    said.append(Message("assistant", f"The cause is in `{file}`.", timestamp=next(moments)))
    call("Edit", edit, f"The file {folder}/{file} has been updated.")
    if rng.random() < 0.3:
        call("Bash", {"command": project["build"]}, "done in 2.1 s")
    if not is_live:
        call("Bash", {"command": project["check"]}, "24 passed in 3.02s\n")
        said.append(Message("assistant", f"{answer}\n\nAll tests pass.", timestamp=next(moments)))
    tokens = Tokens(
        rng.randrange(2_000, 9_000), rng.randrange(600, 3_000), rng.randrange(9_000, 90_000)
    )
    session = Session(
        id=f"{name.partition('/')[2]}-{int(started)}",
        source=agent,
        model=model,
        title=request,
        cwd=folder,
        git_branch="main",
        repository=f"https://example.com/{name}.git",
        started=started,
        last_active=said[-1].timestamp or started,
        ended=None if is_live else said[-1].timestamp,
        end_reason=None if is_live else "finished",
        tokens=tokens,
    )
    entry = UsageEntry(int(started) // QUARTER_SECONDS, model, tokens)
    store.import_batch([SessionImport(session, said, is_complete=True, usage=[entry])])


if __name__ == "__main__":
    fill_home(Path(sys.argv[1]), time.time())
