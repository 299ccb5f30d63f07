"""`rekindle share` and `sessions export --redact`: secrets go, and nothing on a page runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rekindle import open_store
from rekindle.types import Message, ToolCall
from tests.acceptance.test_cli import Rekindle

TOKEN = "gh" + "p_" + "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5"
PASSWORD = "Kx04PI5a!HvQk"
OWN = "correct-horse-7731"  # only the environment knows that it is secret
SECRETS = (TOKEN, PASSWORD, OWN, "ada@acme.engineering")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ATTACKS = (
    "<script>document.title='ran'</script>",
    "<img src=x onerror=\"document.title='ran'\">",
    "<svg onload=\"document.title='ran'\">",
    "</pre></details></main><iframe srcdoc=\"<script>parent.document.title='ran'</script>\">",
    "[x](javascript:document.title='ran')",
    "```html\n</code></pre><script>document.title='ran'</script>\n```",
)


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    return Rekindle(tmp_path)


def add_session(rekindle: Rekindle, *messages: Message, title: str = "Repair the login") -> str:
    rekindle.store.parent.mkdir(exist_ok=True)
    with open_store(rekindle.store) as store:
        session = store.begin(title=title, source="claude-code", cwd=f"{rekindle.home}/shop")
        store.append(session, *messages)
        return session.id


@pytest.fixture
def id(rekindle: Rekindle) -> str:
    edit = {"file_path": "a.py", "old_string": "x = 1", "new_string": f"x = '{TOKEN}'"}
    return add_session(
        rekindle,
        Message("user", f"log in with password {PASSWORD} as ada@acme.engineering"),
        Message("assistant", f"I use {OWN}.", [ToolCall("c", "Edit", edit)], reasoning=TOKEN),
        Message("tool", "done", tool_call_id="c"),
        Message("assistant", "", [ToolCall("d", "Bash", {"command": f"curl -H 'X: {TOKEN}' h"})]),
        Message("tool", f"GITHUB_TOKEN={TOKEN}\n", tool_call_id="d", meta={"stdout": TOKEN}),
    )


def test_a_shared_page_has_no_secret_and_says_what_was_removed(rekindle: Rekindle, id: str) -> None:
    done = rekindle.run("share", id, "-o", "page.html", "--json", SHOP_PASSWORD=OWN)
    page = rekindle.home / "page.html"
    text = page.read_text()
    assert [secret for secret in SECRETS if secret in text] == []
    assert str(rekindle.home) not in text
    assert page.stat().st_mode & 0o777 == 0o600
    report = json.loads(done.stdout)
    assert report["removed"]["mail"] == 3  # in the preview, as the last request, and in the message
    assert sum(report["removed"].values()) >= 7
    listed = done.stderr.decode()
    assert all(f"  {kind}\n" in listed for kind in report["removed"])
    assert not any(secret in listed for secret in SECRETS)
    assert '<span class="del">' in text
    assert "passages redacted" in text


def test_a_session_is_shared_as_markdown_and_in_a_folder_with_an_index(
    rekindle: Rekindle, id: str
) -> None:
    text = rekindle("share", id, "--markdown", "-o", "-", SHOP_PASSWORD=OWN)
    assert "```diff\n-x = 1\n+x = '<secret:" in text
    assert [secret for secret in SECRETS if secret in text] == []
    rekindle("share", id, "-o", "shown.md")
    assert "```diff" in (rekindle.home / "shown.md").read_text()
    (rekindle.home / "public").mkdir()
    name = rekindle("share", id, "--index", "public").strip()
    assert Path(name).parent.name == "public"
    index = (rekindle.home / "public" / "index.html").read_text()
    assert f'href="./{Path(name).name}">Repair the login</a>' in index
    assert rekindle.json("share", "--index", "public")["pages"] == 1
    assert "name a session" in rekindle.refusal("share")


def test_an_export_warns_unless_it_redacts(rekindle: Rekindle, id: str) -> None:
    plain = rekindle.run("sessions", "export", id)
    assert TOKEN.encode() in plain.stdout
    assert b"Not redacted" in plain.stderr
    for form in ("jsonl", "md", "html", "atif"):
        done = rekindle.run("sessions", "export", id, "-f", form, "--redact", SHOP_PASSWORD=OWN)
        assert [secret for secret in SECRETS if secret.encode() in done.stdout] == [], form
        assert b"Redacted" in done.stderr
    rekindle("sessions", "export", "--redact", "-o", "all.jsonl", SHOP_PASSWORD=OWN)
    rekindle("--store", "second.db", "sessions", "import", "all.jsonl")
    assert rekindle.json("--store", "second.db", "sessions", "list")[0]["id"] == id


def read_title(page: Path, home: Path) -> str:
    """Open a page in a browser and return its title after everything on it ran."""
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
    folder = f"--user-data-dir={home / 'browser'}"
    command = (str(CHROMIUM), *options, folder, "--virtual-time-budget=2000", "--dump-dom")
    done = subprocess.run((*command, page.as_uri()), capture_output=True, text=True, timeout=120)
    return done.stdout.partition("<title>")[2].partition("</title>")[0]


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_no_script_of_a_hostile_session_runs_in_a_browser(rekindle: Rekindle) -> None:
    attack = "\n\n".join(ATTACKS)
    edit = {"file_path": attack, "old_string": attack, "new_string": "x"}
    id = add_session(
        rekindle,
        Message("system", attack),
        Message("user", attack),
        Message("assistant", attack, [ToolCall("c", "Edit", edit)], reasoning=attack),
        Message("tool", attack, tool_call_id="c"),
    )
    rekindle("share", id, "-o", "page.html")
    page = rekindle.home / "page.html"
    assert read_title(page, rekindle.home) == "Repair the login"
    # The attacks work where a page lets them, and the policy alone stops them too.
    text = page.read_text()
    start = text.index("<meta http-equiv")
    bare = text[:start] + text[text.index(">", start) + 1 :]
    for name, source, title in (("open", bare, "ran"), ("policy", text, "Repair the login")):
        broken = rekindle.home / f"{name}.html"
        broken.write_text(source.replace("<main>", f"<main>{ATTACKS[0]}{ATTACKS[1]}"))
        assert read_title(broken, rekindle.home) == title
