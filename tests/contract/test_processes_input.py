"""What holds of the input and the terminal of background processes, wherever they run."""

from __future__ import annotations

import pytest

from rekindle.errors import InputClosed, InvalidInput
from rekindle.processes.backends.base import TerminalSize
from tests.processes import OWNER, Kept, output_of, runs, sh
from tests.waiting import PATIENCE

# -- input


@runs
async def test_input_reaches_a_program_without_a_terminal(kept: Kept) -> None:
    async with kept() as processes:
        one = await processes.start(["cat"], owner=OWNER)
        assert (await processes.write(one.id, "no newline ")).accepted == 11
        await processes.submit(one.id, "ä")
        await processes.close_stdin(one.id)
        await processes.close_stdin(one.id)
        waited = await processes.wait(one.id, PATIENCE)
        assert (waited.output, waited.process.exit_code) == ("no newline ä\n", 0)
        with pytest.raises(InputClosed):
            await processes.write(one.id, "late")


@runs
async def test_more_input_than_a_pipe_holds_arrives_whole(kept: Kept) -> None:
    count = 1_000_000 if kept.here else 70_000  # a pipe holds 65,536
    async with kept() as processes:
        one = await processes.start(["wc", "-c"], owner=OWNER)
        assert await processes.write(one.id, b"x" * count) == (count, count)
        await processes.close_stdin(one.id)
        assert (await processes.wait(one.id, PATIENCE)).output.strip() == str(count)


@runs
async def test_a_terminal_has_a_size_an_echo_and_a_prompt(kept: Kept) -> None:
    script = "[ -t 0 ] && [ -t 1 ] && stty size; printf 'name? '; read name; echo hello $name"
    async with kept() as processes:
        one = await sh(processes, script, pty=TerminalSize(30, 90))
        assert "30 90" in await output_of(processes, one.id, "name? ")
        await processes.submit(one.id, "ada")
        waited = await processes.wait(one.id, PATIENCE)
        assert waited.output.endswith("name? ada\nhello ada\n")
        assert waited.process.pty


@runs
async def test_a_terminal_can_change_its_size_and_interrupt(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(
            processes,
            "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done",
            pty=TerminalSize(),
        )
        await output_of(processes, one.id, "ready")
        await processes.resize(one.id, TerminalSize(40, 100))
        await output_of(processes, one.id, "40 100")
        await processes.write(one.id, "\x03")
        process = (await processes.wait(one.id, PATIENCE)).process
        assert (process.state, process.exit_code) == ("exited", 130)


@runs
async def test_the_end_of_input_can_be_typed_at_a_terminal(kept: Kept) -> None:
    async with kept() as processes:
        one = await processes.start(["cat"], owner=OWNER, pty=TerminalSize())
        await processes.submit(one.id, "line")
        await processes.close_stdin(one.id)
        assert (await processes.wait(one.id, PATIENCE)).process.exit_code == 0


@runs
async def test_a_size_is_refused_without_a_terminal(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "sleep 30")
        with pytest.raises(InvalidInput, match="no terminal"):
            await processes.resize(one.id, TerminalSize())
