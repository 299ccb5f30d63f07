"""Take the picture of docs/matrix.md: a real client in Chromium, in an encrypted room with the bot.

    python -m scripts.matrix_picture CLIENT OUTPUT

CLIENT is a folder with a built Cinny, a web client (https://github.com/cinnyapp/cinny): its folder dist
after `npm ci` and `npm run build`. The server is a real Synapse, the gateway runs as a program, and the
answers of the model are scripted.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Page, sync_playwright
from tests import command
from tests.matrix.synapse import Synapse, call
from tests.waiting import wait_until

from rekindle.platforms.settings_file import write_settings
from rekindle.testing import ScriptedModel

GREETING = "Hello! Who can read what we write here?"
QUESTION = "Please write a function that counts the words of a file."
SCRIPT = {
    "turns": [
        {
            "user": "Who can read",
            "steps": [
                {
                    "text": "This room is **end-to-end encrypted**: you and I can read it,"
                    " the server cannot."
                }
            ],
        },
        {
            "user": "counts the words",
            "steps": [
                {
                    "text": "Here it is:\n\n```python\nfrom pathlib import Path\n\n\n"
                    "def count_words(path: str) -> int:\n"
                    '    """Return the number of words in a file."""\n'
                    "    return len(Path(path).read_text().split())\n```\n\n"
                    "Words are what blanks separate: `it's` is *one* word."
                }
            ],
        },
    ]
}
API = "/_matrix/client/v3"


class ClientFiles(SimpleHTTPRequestHandler):
    """The files of the client; whatever is none of them is a place within it."""

    def translate_path(self, path: str) -> str:
        found, root = Path(super().translate_path(path)), Path(self.directory)
        for file in (found, root / found.name):  # it asks for some beside the place where it is
            if file.is_file():
                return str(file)
        return str(root / "index.html")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def take_picture(client: Path, output: Path, folder: Path) -> None:
    synapse = Synapse(folder / "synapse")
    files = ThreadingHTTPServer(("127.0.0.1", 0), partial(ClientFiles, directory=str(client)))
    threading.Thread(target=files.serve_forever, daemon=True).start()
    try:
        with ScriptedModel(SCRIPT) as model, sync_playwright() as playwright:
            bot, bot_token = synapse.register("rekindle", display_name="Rekindle")
            ada, _ = synapse.register("ada", display_name="Ada")
            gateway = start_gateway(folder / "home", synapse, bot_token, model, ada)
            try:
                browser = playwright.chromium.launch(
                    executable_path="/usr/bin/chromium", args=["--no-sandbox"]
                )
                page = browser.new_page(
                    viewport={"width": 1000, "height": 760}, color_scheme="light"
                )
                address = f"http://127.0.0.1:{files.server_port}"
                chat_with_bot(page, address, synapse, bot)
                page.screenshot(path=str(output))
                browser.close()
            finally:
                gateway.kill()
                gateway.wait()
    finally:
        files.shutdown()
        synapse.stop()


def start_gateway(home: Path, synapse: Synapse, token: str, model: ScriptedModel, ada: str) -> Any:
    write_settings("matrix", home, {"homeserver": synapse.url, "access_token": token})
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("REKINDLE_", "OPENAI_"))}
    env = {
        **kept,
        "REKINDLE_HOME": str(home),
        "OPENAI_BASE_URL": model.url,
        "REKINDLE_MODEL": "scripted",
        "REKINDLE_GATEWAY_PLATFORMS": "matrix",
        "REKINDLE_GATEWAY_ALLOW": f"matrix:{ada}=owner",
    }
    process = command.start(["gateway", "run", "--quiet"], env=env)
    wait_until((home / "platforms" / "matrix" / "sync.json").exists)
    return process


def chat_with_bot(page: Page, address: str, synapse: Synapse, bot: str) -> None:
    """Log in, open an encrypted chat with the bot, and talk."""
    identifier = {"type": "m.id.user", "user": "ada"}
    body = {"type": "m.login.password", "identifier": identifier, "password": "ada",
            "initial_device_display_name": "Cinny"}  # fmt: skip
    login = call(synapse.url, "POST", f"{API}/login", body)
    keys = {
        "cinny_access_token": login["access_token"],
        "cinny_device_id": login["device_id"],
        "cinny_user_id": login["user_id"],
        "cinny_hs_base_url": synapse.url,
    }
    page.goto(f"{address}/config.json")
    page.evaluate(
        "keys => Object.entries(keys).forEach(([k, v]) => localStorage.setItem(k, v))", keys
    )
    room = create_room(synapse, login["access_token"], bot)
    page.goto(f"{address}/direct/{room}/")
    for text, answer in ((GREETING, "the server cannot"), (QUESTION, "Words are what")):
        editor = page.locator("[data-slate-editor=true]").first
        editor.click(timeout=40_000)
        page.keyboard.type(text)
        page.keyboard.press("Enter")
        page.get_by_text(answer).first.wait_for(timeout=40_000)
    page.get_by_text("Jump to Latest").click(timeout=20_000)
    page.wait_for_timeout(2_000)  # for the answer's last edit and the fonts


def create_room(synapse: Synapse, token: str, bot: str) -> str:
    encryption = {"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
    body = {"preset": "trusted_private_chat", "invite": [bot], "is_direct": True,
            "initial_state": [encryption]}  # fmt: skip
    room = call(synapse.url, "POST", f"{API}/createRoom", body, token)["room_id"]
    path = f"{API}/rooms/{room}/state/m.room.member/{bot}"
    wait_until(lambda: call(synapse.url, "GET", path, token=token)["membership"] == "join")
    ada = call(synapse.url, "GET", f"{API}/account/whoami", token=token)["user_id"]
    call(synapse.url, "PUT", f"{API}/user/{ada}/account_data/m.direct", {bot: [room]}, token)
    return room


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        take_picture(Path(sys.argv[1]), Path(sys.argv[2]), Path(name))
