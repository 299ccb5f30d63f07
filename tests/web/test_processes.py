"""Background processes in the browser: a live log with colors, a terminal, and what can be done."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests import command
from tests.web.conftest import WebServer


@pytest.fixture
def ended_processes(server: WebServer) -> Iterator[None]:
    """Kill what a test has started."""
    yield
    for one in list_processes(server):
        run(server, "kill", one["id"])


def run(server: WebServer, *words: str) -> str:
    """Run the command in the home of the server."""
    done = command.run(words, env=server.env, cwd=server.home, stdout=subprocess.PIPE)
    return done.stdout.decode()


def list_processes(server: WebServer) -> list[dict[str, Any]]:
    return json.loads(run(server, "ps", "--json"))


pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("ended_processes")]


def test_a_log_is_live_in_colors_and_takes_input(page: Any, server: WebServer) -> None:
    script = "printf '\\033[32mready\\033[0m <script>\\n'; while read x; do echo \"($x)\"; done"
    run(server, "run", "--name", "echo", "--", "sh", "-c", script)
    page.goto(f"{server.url}/processes")
    page.get_by_role("link", name="echo").click()
    log = page.locator("#log-lines")
    expect(log).to_contain_text("ready <script>")
    expect(log.locator(".a-green")).to_have_text("ready")
    page.wait_for_selector("[data-live][data-connected]")
    page.get_by_label("Input").fill("hello")
    page.keyboard.press("Enter")
    expect(log).to_contain_text("(hello)")
    expect(page.get_by_label("Input")).to_have_value("")
    page.get_by_role("button", name="Close input").click()
    expect(page.locator("header .chip")).to_have_text("exited 0")


def test_a_shell_is_used_in_the_page(page: Any, server: WebServer) -> None:
    page.goto(f"{server.url}/processes")
    page.get_by_text("Start a process").click()
    page.get_by_label("Command").fill("bash --norc --noprofile")
    page.get_by_label("Name").fill("shell")
    page.get_by_label("In a terminal").check()
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url(re.compile("view=terminal"))
    page.wait_for_selector(".terminal[data-connected]")
    screen = page.locator("#screen")
    expect(screen).to_contain_text("bash")  # its prompt
    page.keyboard.type("echo $((6 * 7)) | sed 's/^/<answer>/'\n")
    expect(screen).to_contain_text("<answer>42")
    page.keyboard.type("tput cols\n")
    expect(screen.locator("div").filter(has_text=re.compile(r"^1[0-9]{2}$"))).to_have_count(
        1
    )  # the terminal is as wide as the page, not 80 columns
    page.keyboard.type("echo onf")
    page.keyboard.press("Backspace")
    page.keyboard.type("e\n")
    expect(screen.locator("div").filter(has_text=re.compile("^one$"))).to_have_count(1)
    page.keyboard.type("sleep 1000\n")
    expect(screen).to_contain_text("sleep 1000")
    page.keyboard.press("Control+c")
    page.keyboard.type("echo after $((1 + 1))\n")
    expect(screen).to_contain_text("after 2")
    page.keyboard.type("exit\n")
    expect(page.locator("#terminal-state")).to_have_text("The process has ended.")


def test_fast_typing_arrives_in_order(page: Any, server: WebServer) -> None:
    run(server, "run", "--name", "cat", "--pty", "--", "cat")
    page.goto(f"{server.url}/processes/cat?view=terminal")
    page.wait_for_selector(".terminal[data-connected]")
    text = "".join(chr(97 + number % 26) for number in range(60))
    page.keyboard.type(f"{text}\n", delay=0)
    expect(page.locator("#screen div").filter(has_text=text)).to_have_count(2)


def test_a_process_is_killed_and_started_again(page: Any, server: WebServer) -> None:
    run(server, "run", "--name", "server", "--", "sh", "-c", "echo up; sleep 1000")
    page.goto(f"{server.url}/processes/server")
    first = page.url
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Kill").click()
    expect(page.locator("header .chip")).to_have_text("killed")
    page.get_by_role("button", name="Start again").click()
    expect(page.locator("header .chip")).to_have_text("running")
    expect(page.locator("#log-lines")).to_contain_text("up")
    assert page.url != first
    page.get_by_label("Signal").select_option("TERM")
    page.get_by_role("button", name="Send signal").click()
    expect(page.locator("header .chip")).to_have_text("exited 143")


def test_a_flood_neither_hangs_the_page_nor_fills_it(page: Any, server: WebServer) -> None:
    run(server, "run", "--name", "flood", "--", "yes", "a line that comes very often")
    page.goto(f"{server.url}/processes/flood")
    page.wait_for_selector("#log-lines .gap:has-text('left out')")
    page.wait_for_function("document.querySelectorAll('#log-lines > div').length > 1500")
    assert page.evaluate("document.querySelectorAll('#log-lines > div').length") <= 3000
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Kill").click()
    expect(page.locator("header .chip")).to_have_text("killed")


def test_a_log_can_be_read_without_scripts(chromium: Any, server: WebServer) -> None:
    run(server, "run", "--name", "done", "--", "sh", "-c", "printf 'one\\ntwo\\n'")
    run(server, "wait", "done")
    context = chromium.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(server.link)
    opened.wait_for_url(f"{server.url}/")
    opened.goto(f"{server.url}/processes/done")
    expect(opened.locator("#log-lines > div")).to_have_text(["one", "two"])
    context.close()
