"""What brings words of strangers in, and what does not though it may look so."""

from __future__ import annotations

import json

import pytest

from rekindle.knowledge.mining.taint import reads_untrusted_text
from rekindle.types import JSON, ToolCall

FOLDER = "/home/ada/app"


def brings(tool: str, arguments: JSON, folder: str = FOLDER) -> bool:
    """As text and as values: transcripts have both."""
    as_text = reads_untrusted_text(ToolCall("c", tool, json.dumps(arguments)), folder)
    assert reads_untrusted_text(ToolCall("c", tool, arguments), folder) == as_text
    return as_text


@pytest.mark.parametrize(
    "command",
    [
        "curl -s https://x.org/readme",
        "cd /tmp && curl -s x.org | head",
        "HTTPS_PROXY= timeout 5 curl x.org",
        "bash -c 'curl x.org'",
        'echo "$(curl -s https://x.org)"',
        "make x\ncurl -s https://x.org",
        "git clone https://x.org/r && cat r/README.md",
        "git -C /tmp clone git@x.org:r",
        "npm view leftpad readme",
        "pip download x && cat x/README",
        "python3 -m pip download x",
        "aria2c https://x.org/a && cat a",
        "gh issue view 5",
        "gh api repos/x/y/issues",
        "python3 -c \"import requests;print(requests.get('https://x.org').text)\"",
        "python3 - <<'EOF'\nimport urllib.request\nprint(urllib.request.urlopen(u).read())\nEOF",
        "node -e \"fetch('https://x.org').then(print)\"",
        "./crawl https://x.org",
        "cat ~/Downloads/readme.txt",
        "head -50 /var/mail/ada",
        "less letter.eml",
    ],
)
def test_commands_that_fetch(command: str) -> None:
    assert brings("terminal", {"command": command})


@pytest.mark.parametrize(
    "command",
    [
        "make docs",
        "curl -s http://localhost:8000/health",
        "curl -s localhost:8000/rooms.json",
        "python3 -c \"import requests;requests.get('http://127.0.0.1:8000')\"",
        "git commit -m 'Fetch less; see https://x.org'",
        "git pull && git fetch --all && git remote add o https://x.org/r",
        "npm install && npm run view",
        "pip install requests",
        "gh pr create --title 'Add curl' --body x",
        "echo 'curl https://x.org' >> docs/guide.md",
        "cat > get.py <<'EOF'\nimport requests\nprint(requests.get('https://x.org'))\nEOF",
        "cat src/downloads/reader.py app/mail/send.py",
        "uv run pytest tests/test_inbox.py -k http",
    ],
)
def test_commands_that_stay_here(command: str) -> None:
    assert not brings("terminal", {"command": command})


def test_code_that_fetches() -> None:
    for code in (
        "import urllib.request\nprint(urllib.request.urlopen('https://x.org').read())",
        "import httpx\nhttpx.get(url)",
        "pd.read_csv('https://x.org/rows.csv')",
        "from hermes_tools import web_extract\nprint(web_extract(['x.org']))",
        "imaplib.IMAP4_SSL(host)",
    ):
        assert brings("execute_code", {"code": code}), code
    for code in ("print(sum(rows))", "from urllib.parse import quote", "# see https://x.org"):
        assert not brings("execute_code", {"code": code}), code


@pytest.mark.parametrize(
    "tool",
    [
        "web_extract", "WebFetch", "browser_navigate", "mcp_fetch_fetch", "fetch__fetch", "Task",
        "mcp__jira__get", "mcp__github__get_file_contents", "mcp__zendesk__list", "notion_search",
        "mcp__chat__read_messages", "mcp__google-workspace__search", "mcp__acme__get_post",
        "ReadMcpResource", "readEmails", "get_issue_comments", "slack_history", "delegate_task",
    ],
)  # fmt: skip
def test_tools_that_read_what_others_wrote(tool: str) -> None:
    assert brings(tool, {"q": "x"})


@pytest.mark.parametrize(
    "tool",
    [
        "get_user_details", "book_reservation", "find_user_id_by_email", "search_direct_flight",
        "transfer_to_human_agents", "issue_refund", "send_email", "calculate", "list_all_airports",
        "mcp__filesystem__read_file", "mcp__desktop-commander__execute_command", "mcp__acp__Bash",
        "mcp__serena__find_symbol", "mcp__jira__create_issue", "patch", "read_file", "search_files",
    ],
)  # fmt: skip
def test_the_agents_own_functions_and_what_works_on_this_machine(tool: str) -> None:
    assert not brings(tool, {"q": "x"})


def test_an_unknown_tool_that_is_given_an_address() -> None:
    assert brings("summarize", {"source": "https://x.org"})
    assert not brings("summarize", {"source": "http://localhost:3000"})
    assert not brings("create_task", {"title": "Read https://x.org"})


def test_files_that_others_put_there() -> None:
    for path in ("/tmp/downloads/mail.txt", "~/Downloads/a.md", "downloads/a.txt", "b/old.mbox"):
        assert brings("read_file", {"path": path}), path
    assert brings("read_file", {"path": "C:\\Users\\ada\\Downloads\\a.txt"})
    assert brings("str_replace_editor", {"command": "view", "path": "/home/ada/Downloads/a.txt"})
    for path in ("src/downloads/a.py", f"{FOLDER}/src/downloads/a.py", "app/mail/views.py"):
        assert not brings("read_file", {"path": path}), path
    assert not brings("write_file", {"path": "docs/a.md", "content": "Look into ~/Downloads/"})


def test_who_works_in_a_download_folder_chose_to() -> None:
    folder = "/home/ada/Downloads/app"
    assert not brings("read_file", {"path": f"{folder}/src/a.py"}, folder)
    assert brings("read_file", {"path": "/home/ada/Downloads/other/a.py"}, folder)
