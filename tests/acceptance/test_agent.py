"""What the settings give the agent: servers of tools, limits and prices; by the command."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rekindle.learning.library import TemplateLibrary
from rekindle.testing import ChatServer, ScriptedModel
from rekindle.types import Source, Template, TemplateNote
from tests import command
from tests.acceptance.stores import make_store
from tests.ports import find_port
from tests.waiting import PATIENCE, wait_until

if find_spec("mcp") is None:  # seconds to import, and every worker imports this file
    pytest.skip("mcp is not installed", allow_module_level=True)
SERVER = str(Path(__file__).parents[1] / "unit" / "agent" / "tools" / "mcp_server.py")
USAGE = {"prompt_tokens": 100, "completion_tokens": 10}


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}], "usage": USAGE}


SCRIPT: dict[str, Any] = {
    "turns": [
        {
            "user": "pipes",
            "steps": [call("mcp__small__add", a=2, b=3), {"text": "It is {result}."}],
        },
        {"user": "net", "steps": [call("mcp__far__add", a=4, b=5), {"text": "It is {result}."}]},
        {"user": "secret", "steps": [call("mcp__small__seen", name="KEY"), {"text": "{result}"}]},
        {"user": "loop", "steps": [{**call("todo"), "endless": True}]},
        {"user": "plain", "steps": [{"text": "Yes.", "usage": USAGE}]},
    ]
}

SUM = TemplateNote("sum1", "command", "`make sums`", command="make sums", sessions=3)
SUMS = Template("sums", "Sums", notes=(SUM,), tags=("shared",))
ADD = "add up the pipes in the cellar"


class Home:
    """A home with a file of settings, and a model that follows the script."""

    def __init__(self, folder: Path, store: str, model: ScriptedModel) -> None:
        self.folder = folder
        self.model = model
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("REKINDLE_", "OPENAI_"))}
        self.env = {
            **kept,
            "HOME": str(folder),
            "REKINDLE_HOME": str(folder),
            "REKINDLE_STORE": store,
            "REKINDLE_MODEL": "scripted",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "a-key",
        }

    def write(self, settings: str) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "config.toml").write_text(settings)

    def run(self, *words: str, said: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        done = command.run(
            words,
            input=said,
            env={**self.env, **env},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)


# For what has nothing to do with where the sessions are kept.
embedded = pytest.mark.parametrize("target", ["sqlite"], indirect=True)


@pytest.fixture
def home(target: str, tmp_path: Path) -> Iterator[Home]:
    make_store(target)
    with ScriptedModel(SCRIPT) as model:
        yield Home(tmp_path / "home", target, model)


@pytest.fixture
def far() -> Iterator[str]:
    """A server of tools that is reached by its URL."""
    port = find_port()
    process = subprocess.Popen(
        [command.get_script_runner(), SERVER, "http", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(answers)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def small(**env: str) -> str:
    table = ", ".join(f'{name} = "{value}"' for name, value in env.items())
    return f"""
[permissions]
allow = ["mcp__*"]
[mcp.servers.small]
command = "{command.get_script_runner()}"
args = ["{SERVER}"]
env = {{{table}}}
"""


def test_servers_over_pipes_and_over_http_add_tools_to_the_chat(home: Home, far: str) -> None:
    home.write(small(KEY="${OWN_KEY}") + f'[mcp.servers.far]\nurl = "{far}"\n')
    assert home.run("chat", said="pipes", OWN_KEY="k").stdout == "It is 5.\n"
    assert home.run("chat", said="net", OWN_KEY="k").stdout == "It is 9.\n"
    assert home.run("chat", said="secret", OWN_KEY="k").stdout == "k\n"
    offered = [tool["function"]["name"] for tool in home.model.requests[0].body["tools"]]
    assert {"terminal", "mcp__small__add", "mcp__far__add"} <= set(offered)
    assert len(offered) == len(set(offered))


@embedded
def test_a_server_that_does_not_start_is_said_once_and_the_rest_works(home: Home) -> None:
    home.write(f'{small()}\n[mcp.servers.gone]\ncommand = "/nonexistent/server"\n')
    done = home.run("chat", said="pipes")
    assert (done.returncode, done.stdout) == (0, "It is 5.\n")
    assert done.stderr.count("the server gone cannot be reached") == 1
    named = home.run("chat", "--tools", "mcp-small,mcp-gone", said="pipes")
    assert (named.returncode, named.stdout) == (0, "It is 5.\n")


@embedded
def test_no_server_is_started_for_a_chat_without_its_tools(home: Home, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    words = f'["{SERVER}", "starts", "{starts}"]'
    home.write(f'[mcp.servers.small]\ncommand = "{sys.executable}"\nargs = {words}\n')
    assert home.run("chat", "--no-tools", said="plain").stdout == "Yes.\n"
    assert home.run("chat", "--tools", "todo", said="plain").stdout == "Yes.\n"
    assert home.run("warm", "pick", "plain", REKINDLE_AGENT_TOOLS="todo").returncode == 0
    assert not starts.exists()


@embedded
def test_a_look_at_what_a_chat_is_started_with_knows_its_tools(home: Home) -> None:
    home.write(small() + "[warm]\ncontrol_share = 0\n")
    TemplateLibrary(home.folder / "templates").create(SUMS)
    told = home.json("warm", "test", "sums", ADD)
    assert home.run("chat", said=ADD).returncode == 0
    sent = home.model.requests[0].body["messages"]
    assert sent[0]["content"].endswith(told["messages"][0]["content"])
    assert "make sums" in json.dumps(told["messages"])
    assert home.json("warm", "pick", ADD)["template"] == "sums"
    home.write('[agent]\ntools = "todo"\n')
    assert home.json("warm", "test", "sums", ADD)["notes"] == []
    assert home.json("warm", "pick", ADD)["template"] is None


@embedded
def test_a_look_says_once_which_server_could_not_be_asked(home: Home) -> None:
    failing = {"gone": "/nonexistent/server", "dying": "true"}
    tables = (f'[mcp.servers.{name}]\ncommand = "{path}"\n' for name, path in failing.items())
    home.write(small() + "".join(tables))
    TemplateLibrary(home.folder / "templates").create(SUMS)
    for words in (("test", "sums", ADD), ("pick", ADD)):
        done = home.run("warm", *words, "--json")
        assert json.loads(done.stdout)["template"] == "sums"
        for name in failing:
            assert done.stderr.count(f"the server {name} cannot be reached") == 1
        assert done.stderr.count("\n") == len(failing)


def test_the_gateway_has_the_tools_of_servers_too(home: Home) -> None:
    with ChatServer(redeliver_seconds=0.3) as chats:
        home.write(
            f'{small()}\n[mcp.servers.gone]\ncommand = "/nonexistent/server"\n'
            f'[gateway]\nplatforms = "rekindle.testing:connect={chats.address}"\n'
            'allow = "memory:*=owner"\n'
        )
        process = command.start(["gateway", "run"], env=home.env, stderr=subprocess.PIPE, text=True)
        try:
            chats.post_message(Source("memory", "ada", user_id="1", user_name="Ada"), "pipes")
            wait_until(lambda: [one.text for one in chats.list_sent("ada")] == ["It is 5."])
            told = home.json("gateway", "status")
            assert told["usage"]["scripted"]["tokens"]["input"] > 100
            (route,) = home.json("gateway", "routes")
            assert route["usage"] == told["usage"]
            chats.post_message(Source("memory", "ada", user_id="1", user_name="Ada"), "/status")
            wait_until(lambda: len(chats.list_sent("ada")) == 2)
            assert "Chat tokens:" in chats.list_sent("ada")[1].text
        finally:
            process.terminate()
            _, log = process.communicate(timeout=PATIENCE)
    assert log.count("the server gone cannot be reached") == 1


def test_a_turn_ends_at_the_limit_of_steps_tokens_or_cost_and_says_so(home: Home) -> None:
    price = "[model.prices.scripted]\ninput = 1000\noutput = 10_000\n"
    for limit, said in (
        ("steps = 3", "it took 3 steps without an answer"),
        ("tokens = 200", "it took 220 tokens, the limit is 200"),
        ("cost = 0.35", "it cost 0.4, the limit is 0.35"),
    ):
        home.write(f"[agent]\n{limit}\n{price}")
        done = home.run("chat", said="loop")
        assert done.returncode == 1
        assert said in done.stderr


def test_the_cost_of_a_session_is_kept_for_each_model(home: Home) -> None:
    home.write("[model.prices.scripted]\ninput = 1\noutput = 2.5\n")
    home.run("chat", said="plain")
    home.run("chat", "-c", "--model", "other", said="plain")
    (session,) = home.json("sessions", "list")
    told = home.json("sessions", "show", session["id"], "--usage")
    assert (told["tokens"]["input"], told["cost"]) == (200, "0.000125")
    assert told["usage"]["scripted"] == {
        "tokens": {"input": 100, "output": 10, "cache_read": 0, "cache_write": 0, "reasoning": 0},
        "cost": "0.000125",
    }
    assert (told["usage"]["other"]["tokens"]["input"], told["usage"]["other"]["cost"]) == (100, "0")
    assert home.json("sessions", "stats")["by_model"] == told["usage"]
    shown = home.run("sessions", "show", session["id"]).stdout
    assert "scripted: 100 in, 10 out, cost 0.000125" in shown
    assert "other: 100 in, 10 out" in shown


@embedded
def test_a_limit_of_cost_without_a_price_is_refused(home: Home) -> None:
    home.write("[agent]\nmax_cost = 1\n")
    for words in (("chat",), ("chat", "--model", "other")):
        done = home.run(*words, said="plain")
        assert done.returncode == 2
        assert "[model.prices." in done.stderr
    assert home.model.requests == []
