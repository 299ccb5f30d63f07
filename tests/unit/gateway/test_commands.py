"""Commands: each acts on the speaker's own sessions, once, and says where the speaker is now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message
from rekindle.gateway.commands import (
    COMMANDS,
    describe_unknown_command,
    get_command_timing,
    parse_command,
)
from rekindle.gateway.turns.inbound import is_command
from rekindle.types import Overridable, ResetPolicy, Source
from tests.unit.gateway.stage import ADA, ADA_KEY, BOB, BOB_KEY, Stage, stage
from tests.waiting import until

pytestmark = pytest.mark.slow

SLOW = {"turns": [{"user": "slow", "steps": [{"text": "never heard " * 30, "pause": 0.05}]}]}


class Talk:
    """A person who speaks and waits for what comes back."""

    def __init__(self, on: Stage, source: Source = ADA) -> None:
        self._on, self._source = on, source
        self._seen = 0

    async def say(self, text: str) -> str:
        """Say something, and return the next message that is shown and complete."""
        self._on.server.post_message(self._source, text)
        return await self.next()

    async def next(self) -> str:
        chat = self._source.chat_id
        await until(lambda: len(self._on.texts(chat)) > self._seen, shown=self._on.texts)
        await until(lambda: self._on.store.inbox.get_counts().unsent == 0)
        self._seen += 1
        return self._on.texts(chat)[self._seen - 1]


def play(
    tmp_path: Path, act: Callable[[Stage], Awaitable[None]], script: Any = None, **office: Any
) -> None:
    async def run() -> None:
        async with (
            stage(tmp_path / "sessions.db", tmp_path, script) as on,
            on.gateway(platform={"can_edit": False}, **office),
        ):
            await act(on)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "yes"),
    [
        ("/new", True),
        ("/resume Bob's plan", True),
        ("/new@my_bot", True),
        ("/unheard-of", True),
        ("/etc/hosts is wrong", False),
        ("/ new", False),
        ("//", False),
        ("what does /new do", False),
        ("/2", False),
    ],
)
def test_a_command_is_told_from_a_path(text: str, yes: bool) -> None:
    assert is_command(Message("user", text)) is yes


def test_what_follows_a_command_is_taken_as_typed() -> None:
    assert parse_command("/resume Bob's plan") == ("resume", "Bob's plan")
    assert parse_command('/title "Quoted" \\n') == ("title", '"Quoted" \\n')
    assert parse_command("/NEW@my_bot") == ("new", "")
    assert parse_command("/title\nTwo lines") == ("title", "Two lines")


def test_an_unknown_command_names_near_ones(tmp_path: Path) -> None:
    assert (
        describe_unknown_command("resme")
        == "Unknown command /resme. Did you mean /resume or /reset?"
    )
    assert describe_unknown_command("xyzzy") == "Unknown command /xyzzy. See /help."

    async def act(on: Stage) -> None:
        talk = Talk(on)
        assert (await talk.say("/sttaus")).startswith(
            "Unknown command /sttaus. Did you mean /status"
        )
        assert on.model.requests == [], "the model heard nothing of it"

    play(tmp_path, act)


def test_every_command_is_in_the_help(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        told = await Talk(on).say("/help")
        for name in COMMANDS:
            assert f"/{name}" in told
        assert told.endswith("You are in a new conversation.")

    play(tmp_path, act)


def test_new_starts_anew_and_back_returns(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        talk = Talk(on)
        await talk.say("hello")
        told = await talk.say("/new")
        assert told == (
            "Started a new conversation. Use /back to return to the previous one.\n"
            "You are in a new conversation."
        )
        await talk.say("fresh")
        assert on.conversation() == ["fresh", "You said: fresh"]
        back = await talk.say("/back")
        assert back.endswith("You are in the conversation that began with “hello” (2 messages).")
        await talk.say("more")
        assert on.conversation()[0] == "hello"
        assert "began with “fresh”" in await talk.say("/back"), "and there again"
        assert (await talk.say("/reset")).startswith("Started a new conversation.")

    play(tmp_path, act)


def test_a_conversation_is_resumed_by_title_id_and_number(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        talk = Talk(on)
        await talk.say("about plans")
        assert (
            await talk.say("/title Bob's plan")
            == "Title set.\nYou are in “Bob's plan” (2 messages)."
        )
        first = on.store.routes.get(ADA_KEY).session
        await talk.say("/new")
        await talk.say("about food")
        await talk.say("/title Dinner")
        await talk.say("/new")
        assert (await talk.say("/resume Bob's plan")).endswith(
            "You are in “Bob's plan” (2 messages)."
        )
        assert on.store.routes.get(ADA_KEY).session == first
        assert "already" in await talk.say("/resume Bob's plan")
        await talk.say("/new")
        listed = (await talk.say("/resume")).splitlines()
        assert [line.split(" · ")[0] for line in listed[:2]] in (
            ["1. Bob's plan", "2. Dinner"],
            ["1. Dinner", "2. Bob's plan"],
        )
        second = listed[1].split(" · ")[0].removeprefix("2. ")
        assert f"You are in “{second}”" in await talk.say("/resume 2")
        assert "Bob's plan" in await talk.say(f"/resume {first}")

    play(tmp_path, act)


def test_a_number_picks_from_the_list_that_was_shown(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        talk = Talk(on)
        for name in ("one", "two", "three"):
            await talk.say(f"about {name}")
            await talk.say(f"/title {name}")
            await talk.say("/new")
        shown = (await talk.say("/resume")).splitlines()
        assert shown[2].startswith("3. one")
        on.store.append(on.store.resolve("one"), Message("user", "x", timestamp=2e9))
        assert "You are in “one”" in await talk.say("/resume 3"), "the list has meanwhile changed"
        assert "Session not found" in await talk.say("/resume 9")

    play(tmp_path, act)


def test_a_number_means_the_list_shown_after_a_restart_and_on_another_gateway(
    tmp_path: Path,
) -> None:
    async def act() -> None:
        async with stage(tmp_path / "sessions.db", tmp_path) as on:
            talk, whole = Talk(on), {"can_edit": False}
            async with on.gateway(platform=whole):
                assert "Session not found" in await talk.say("/resume 1"), "nothing was listed yet"
                for name in ("one", "two", "three"):
                    await talk.say(f"about {name}")
                    await talk.say(f"/title {name}")
                    await talk.say("/new")
                assert (await talk.say("/sessions about")).startswith("1. ")
                shown = (await talk.say("/resume")).splitlines()
                assert shown[2].startswith("3. one")
            on.store.append(on.store.resolve("one"), Message("user", "x", timestamp=2e9))
            async with on.gateway(platform=whole, instance="two"):
                assert "You are in “one”" in await talk.say("/resume 3")

    asyncio.run(act())


def test_nobody_reaches_the_sessions_of_another(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        ada, bob = Talk(on), Talk(on, BOB)
        await bob.say("my secret word is xylophone")
        await bob.say("/title Secret")
        theirs = on.store.routes.get(BOB_KEY).session
        await ada.say("hello")
        for name in ("Secret", theirs, theirs[:20]):
            told = await ada.say(f"/resume {name}")
            assert told.startswith("Session not found"), told
            assert told.endswith(
                "You are in the conversation that began with “hello” (2 messages)."
            )
        assert "No matches" in await ada.say("/sessions xylophone")
        assert "xylophone" not in await ada.say("/sessions")
        assert "None of your conversations has a title" in await ada.say("/resume")
        assert (await ada.say("/title Secret")).startswith("Title set."), (
            "titles are each owner's own"
        )
        assert (await bob.say("/sessions xylophone")).startswith("1. Secret")

    play(tmp_path, act)


def test_undo_takes_back_turns(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        talk = Talk(on)
        assert "Nothing to undo" in await talk.say("/undo")
        for text in ("one", "two", "three"):
            await talk.say(text)
        assert (await talk.say("/undo")).startswith("Removed 2 messages.")
        assert (await talk.say("/undo 2")).startswith("Removed 4 messages.")
        assert on.conversation() == []
        for wrong in ("/undo x", "/undo 0", "/undo -1", "/undo ²"):
            assert "takes a number of turns" in await talk.say(wrong)

    play(tmp_path, act)


def test_redo_restores_what_was_undone(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        talk = Talk(on)
        assert "Nothing to redo" in await talk.say("/redo")
        for text in ("one", "two"):
            await talk.say(text)
        assert "Nothing to redo" in await talk.say("/redo")
        await talk.say("/undo")
        told = await talk.say("/redo")
        assert told.startswith("Restored 2 messages.\n")
        assert told.endswith("(4 messages).")
        assert on.conversation() == ["one", "You said: one", "two", "You said: two"]
        assert "Nothing to redo" in await talk.say("/redo")
        assert "takes no argument" in await talk.say("/redo 2")
        await talk.say("/undo 2")
        await talk.say("three")
        assert (await talk.say("/redo")).endswith("(4 messages).")
        assert on.conversation() == ["one", "You said: one", "two", "You said: two"]

    play(tmp_path, act)


def test_back_never_leads_to_where_one_is(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        talk = Talk(on)
        await talk.say("hello")
        await talk.say("/title Plan")
        await talk.say("/new")
        await talk.say("/resume")
        assert "Switched" in await talk.say("/resume 1")
        assert "No previous conversation" in await talk.say("/back")

    play(tmp_path, act)


def test_retry_asks_the_model_again(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        talk = Talk(on)
        assert "Nothing to retry" in await talk.say("/retry")
        await talk.say("one")
        assert await talk.say("/retry") == "You said: one"
        assert on.conversation() == ["one", "You said: one"]
        assert len(on.model.requests) == 2

    play(tmp_path, act)


def test_a_fork_goes_on_in_a_copy(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        talk = Talk(on)
        assert "Nothing to copy" in await talk.say("/fork")
        await talk.say("one")
        await talk.say("/title Plan")
        assert (await talk.say("/fork")).endswith("You are in “Plan #2” (2 messages).")
        await talk.say("two")
        assert on.conversation() == ["one", "You said: one", "two", "You said: two"]
        assert (await talk.say("/back")).endswith("You are in “Plan” (2 messages).")

    play(tmp_path, act)


def test_compress_sums_up_and_goes_on_in_a_child(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        talk = Talk(on)
        assert "Nothing to compress" in await talk.say("/compress")
        for number in range(10):
            await talk.say(f"m{number}")
        await talk.say("/title Plan")
        told = await talk.say("/compress")
        assert told.startswith("Compressed 20 messages to ")
        assert "You are in “Plan #2”" in told
        await talk.say("more")
        assert on.conversation()[-2:] == ["more", "You said: more"]
        assert "You are in “Plan” (20 messages)" in await talk.say("/back")

    play(tmp_path, act)


def test_the_status_tells_tokens_model_policy_and_the_next_reset(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 1200, "completion_tokens": 34, "total_tokens": 1234}
    script = {"otherwise": [{"text": "hi", "usage": usage}]}

    async def act(on: Stage) -> None:
        talk = Talk(on)
        await talk.say("hello")
        await talk.say("/new")
        await talk.say("hello again")
        told = (await talk.say("/status")).splitlines()
        assert "Chat: DM with Ada" in told
        assert f"Session: {on.store.routes.get(ADA_KEY).session}" in told
        assert "Model: scripted" in told
        assert "Session tokens: 1,200 in, 34 out" in told
        assert "Chat tokens: 2,400 in, 68 out" in told
        assert any(line.startswith("Reset: idle; next at 2") and "(UTC)" in line for line in told)

    play(tmp_path, act, script, policies=Overridable(ResetPolicy("idle", 60)))


def test_a_title_that_is_taken_is_refused_with_a_free_one(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        talk = Talk(on)
        assert "send a message" in await talk.say("/title Plan")
        await talk.say("one")
        await talk.say("/title Plan")
        await talk.say("/new")
        await talk.say("two")
        assert "'Plan #2' is free" in await talk.say("/title Plan")
        assert "“ab c”" in await talk.say("/title a\u200bb\tc\x00")

    play(tmp_path, act)


def test_a_home_is_kept_and_told_to_the_model(tmp_path: Path) -> None:
    async def act(on: Stage) -> None:
        talk = Talk(on)
        assert (await talk.say("/sethome")).startswith("Home chat for memory: DM with Ada.")
        assert [home.chat_id for home in on.store.routes.list_homes()] == ["ada"]
        await talk.say("hello")
        assert "Home channels:\n  - memory" in on.model.requests[-1].messages[0].text

    play(tmp_path, act)


@pytest.mark.parametrize("command", ["/stop", "/new", "/back", "/resume 1", "/undo"])
def test_a_command_that_leads_elsewhere_stops_the_turn(tmp_path: Path, command: str) -> None:
    async def act(on: Stage) -> None:
        talk = Talk(on)
        await talk.say("first")
        await talk.say("/title First")
        await talk.say("/new")
        await talk.say("/resume")
        on.server.post_message(ADA, "slow")
        await until(lambda: on.store.inbox.get_counts().running == 1)
        slow = on.store.routes.get(ADA_KEY).session
        on.server.post_message(ADA, "and this")
        told = await talk.say(command)
        assert told.startswith("Stopped the answer and 1 message in the queue.")
        left = [message.text for message in on.store.messages(slow, rewound=True)]
        assert left[:2] == ["slow", "and this"]
        assert left[2].endswith("(Stopped.)")
        await until(lambda: on.store.inbox.get_counts() == (0, 0, 0, 0))
        assert (await talk.say("go on")).startswith("You said: go on") or command == "/undo"

    play(tmp_path, act, SLOW)


def test_a_stopped_turn_can_be_asked_again(tmp_path: Path) -> None:
    script = {
        "turns": [{"user": "slow", "steps": [{"text": "ok", "faults": [{"status": 503}] * 2}]}]
    }

    async def act(on: Stage) -> None:
        talk = Talk(on)
        on.server.post_message(ADA, "slow")
        await until(lambda: on.store.inbox.get_counts().running == 1)
        assert await talk.say("/retry") == "ok"
        assert on.conversation()[-2:] == ["slow", "ok"]

    play(tmp_path, act, script)


def test_telling_commands_do_not_wait_for_the_turn(tmp_path: Path) -> None:
    script = {"turns": [{"user": "slow", "steps": [{"text": "at last", "wait": 1.0}]}]}

    async def act(on: Stage) -> None:
        talk = Talk(on)
        on.server.post_message(ADA, "slow")
        await until(lambda: on.store.inbox.get_counts().running == 1)
        assert "An answer is in progress." in await talk.say("/status")
        assert "None of your conversations has a title" in await talk.say("/resume")
        on.server.post_message(ADA, "/title Later")
        assert await talk.next() == "at last"
        assert "You are in “Later” (2 messages)." in await talk.next(), "that one waits"
        assert "Nothing to stop." in await talk.say("/stop")

    play(tmp_path, act, script)


def test_a_stopped_answer_that_was_partly_shown_says_that_it_ended(tmp_path: Path) -> None:
    async def run() -> None:
        async with stage(tmp_path / "s.db", tmp_path, SLOW) as on, on.gateway():
            on.server.post_message(ADA, "slow")
            await until(lambda: bool(on.texts()))
            on.server.post_message(ADA, "/stop")
            shown = await on.reads("(Stopped.)", "Stopped the answer.")
            assert shown[0].startswith("never he")

    asyncio.run(run())


@pytest.mark.parametrize("command", ["/new", "/undo", "/fork", "/back"])
def test_a_command_is_carried_out_once_though_the_gateway_dies(
    tmp_path: Path, command: str
) -> None:
    """Killed at any moment, before or after: what it changed and what it said belong together."""

    async def run(moment: float) -> None:
        folder = tmp_path / f"{moment}"
        folder.mkdir()
        async with stage(folder / "s.db", folder) as on:
            async with on.gateway(platform={"can_edit": False}):
                talk = Talk(on)
                for text in ("one", "/new", "two", "three"):
                    await talk.say(text)
            async with on.gateway(kill=True, platform={"can_edit": False}):
                id = on.server.post_message(ADA, command)
                await asyncio.sleep(moment)
            async with on.gateway(platform={"can_edit": False}):
                on.server.redeliver(id)
                await talk.next()
                await until(lambda: on.store.inbox.get_counts() == (0, 0, 0, 0))
            assert len(on.texts()) == 5
            expected = {
                "/new": [],
                "/undo": ["two", "You said: two"],
                "/fork": ["two", "You said: two", "three", "You said: three"],
                "/back": ["one", "You said: one"],
            }[command]
            route = on.store.routes.get(ADA_KEY)
            if expected:
                assert on.conversation() == expected
            count = len(on.store.recent())
            assert count == (3 if command == "/fork" else 2), route

    for moment in (0.0, 0.005, 0.01, 0.02, 0.05):
        asyncio.run(run(moment))


def test_commands_have_their_time() -> None:
    def when(text: str) -> str:
        return get_command_timing(Message("user", text))

    assert [when("/stop"), when("/status"), when("/compress")] == [
        "stop_turn",
        "immediate",
        "after_turn",
    ]
    assert [when("/resume"), when("/resume x")] == ["immediate", "stop_turn"]
    assert when("/nonsense") == "immediate"
