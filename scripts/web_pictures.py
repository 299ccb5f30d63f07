"""Take the pictures of docs/web.md: invented sessions, the real server, the real browser.

python scripts/web_pictures.py [FOLDER]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

from demo_home import fill_home
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
REKINDLE = Path(sysconfig.get_path("scripts")) / "rekindle"
TESTS = r"""#!/bin/sh
for n in 1 2 3 4 5 6; do
    printf '\033[32mok\033[0m      shop/test_%s.py \033[2m0.%s s\033[0m\n' $n $n
done
printf '\033[31mFAILED\033[0m  shop/test_tax.py\n'
sleep 600
"""
SIZES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 860}},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True},
}
PICTURES = (
    ("home", "/", "light"),
    ("sessions", "/sessions", "light"),
    ("transcript", "", "light"),
    ("transcript", "", "phone"),
    ("home", "/", "phone"),
    ("project", "/projects/lumen/shop?tab=playbook", "dark"),
    ("reliability", "/reliability", "light"),
    ("process", "/processes/tests", "dark"),
)


def take_pictures(folder: Path, home: Path) -> None:
    """Start everything, and write one PNG for each picture."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "HOME": str(home), "REKINDLE_HOME": str(home / ".rekindle")}
    fill_home(home / ".rekindle", time.time())
    (home / "run-tests").write_text(TESTS)
    run = [REKINDLE, "run", "--name", "tests", "--", "sh", "run-tests"]
    subprocess.run(run, env=env, cwd=home, check=True, stdout=subprocess.DEVNULL)
    command = [REKINDLE, "web", "--listen", "127.0.0.1:0", "--no-open"]
    server = subprocess.Popen(command, env=env, cwd=home, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        link = server.stdout.readline().strip()
        with sync_playwright() as playwright:
            program = shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            context = browser.new_context()
            page = context.new_page()
            page.goto(link)
            url = link.partition("/open")[0]
            page.goto(f"{url}/sessions?q=checkout")
            longest = page.locator("a.row").first.get_attribute("href") or "/"
            state = context.storage_state()
            for name, address, size in PICTURES:
                one = browser.new_context(storage_state=state, **SIZES[size]).new_page()
                one.goto(url + (address or longest.partition("?")[0].partition("#")[0]))
                one.wait_for_timeout(1500)
                one.screenshot(path=folder / f"web-{name}-{size}.png")
            browser.close()
    finally:
        server.terminate()
        server.wait()
        subprocess.run([REKINDLE, "kill", "tests"], env=env, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    with tempfile.TemporaryDirectory() as home:
        take_pictures(target, Path(home))
