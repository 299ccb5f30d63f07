"""The supervisor: a program that owns the background processes of one home.

    python -m rekindle.processes.supervisor.supervisor FOLDER [LIMITS as JSON]

Started by the first client that needs it (client.py), or by the keeper after it was killed. It says
`ready` on its standard output when it can be asked, else why not, and goes some time after its last
process. One lock for each folder sees to it that there is one; the socket is for this user alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, get_type_hints

import msgspec

from rekindle import __version__
from rekindle.errors import InvalidInput, RekindleError, SupervisorGone
from rekindle.processes import protocol
from rekindle.processes.backends.base import MARK, Place
from rekindle.processes.backends.local import cgroup
from rekindle.processes.backends.local.fd_keeper_client import Keeping
from rekindle.processes.backends.local.local import Local
from rekindle.processes.backends.registry import open_place
from rekindle.processes.state.lock import Lock
from rekindle.processes.types import Limits

from .registry import Registry

log = logging.getLogger(__name__)

LINGER = 300.0  # seconds that it stays without a process and without a question
SOCKET = "supervisor.sock"
KEEPER = "keeper.sock"
LOG = "supervisor.log"
TAKEN = "taken"
READY = "ready"
# Not from the folder that one happens to be in: it may hold files by the names of our modules.
COMMAND = (sys.executable, "-P", "-m", "rekindle.processes.supervisor.supervisor")

_METHODS = (
    *("start", "list", "poll", "log", "wait", "kill", "write", "submit", "close", "resize"),
    *("watch", "unwatch", "events", "ack", "busy", "close_owner"),
)
_PATIENT = frozenset(("events",))  # questions that do not keep it here


def _hints(method: str) -> dict[str, Any]:
    hints = get_type_hints(getattr(Registry, method))
    hints.pop("return")
    return {**hints, "data": bytes} if method == "write" else hints


_TYPES = {method: _hints(method) for method in _METHODS}
_ATTACH = {"id": str, "owner": str | None, "since": int}


class Supervisor:
    """Answers clients out of one registry."""

    def __init__(self, registry: Registry, linger: float) -> None:
        self._registry = registry
        self._linger = linger
        self._asked = 0
        self._last = time.monotonic()
        self.over = asyncio.Event()

    async def serve(self, path: Path) -> asyncio.Server:
        with suppress(FileNotFoundError):
            path.unlink()
        old = os.umask(0o177)
        try:
            return await asyncio.start_unix_server(self._welcome, path)
        finally:
            os.umask(old)

    async def linger(self) -> None:
        """Return when it is no longer needed, or told to go."""
        while not self.over.is_set():
            if self._registry.needed or self._asked:
                self._last = time.monotonic()
            rest = self._last + self._linger - time.monotonic()
            if rest <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, min(rest, self._linger / 4))):
                    await self.over.wait()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: socket.socket = writer.get_extra_info("socket")
        guest = _Guest(self._registry, writer, self)
        try:
            if protocol.peer(connection)[1] == os.getuid():
                writer.write(
                    protocol.frame(protocol.Hello(protocol.PROTOCOL, __version__, os.getpid()))
                )
                await guest.listen(reader)
        except (ConnectionError, msgspec.MsgspecError, asyncio.CancelledError):
            pass  # cancelled only when this program ends
        finally:
            guest.gone()
            writer.close()

    def asked(self, count: int) -> None:
        self._asked += count
        self._last = time.monotonic()


class _Guest:
    """One connected client: its questions are answered side by side."""

    def __init__(
        self, registry: Registry, writer: asyncio.StreamWriter, supervisor: Supervisor
    ) -> None:
        self._registry = registry
        self._writer = writer
        self._supervisor = supervisor
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def listen(self, reader: asyncio.StreamReader) -> None:
        decoder = msgspec.msgpack.Decoder(protocol.Ask)
        while True:
            ask = decoder.decode(await protocol.read(reader))
            if ask.method == "cancel":
                if task := self._tasks.get(ask.number):
                    task.cancel()
            elif ask.method == "step_down":
                self._supervisor.over.set()
            else:
                task = asyncio.create_task(self._answer(ask))
                self._tasks[ask.number] = task
                task.add_done_callback(lambda _, number=ask.number: self._tasks.pop(number, None))

    async def _answer(self, ask: protocol.Ask) -> None:
        count = 0 if ask.method in _PATIENT else 1
        self._supervisor.asked(count)
        try:
            if ask.method == "attach":
                await self._stream(ask)
                answer = protocol.Answer(ask.number, "result")
            else:
                answer = protocol.Answer(ask.number, "result", await self._do(ask))
        except RekindleError as error:
            answer = protocol.Answer(ask.number, "error", protocol.failure(error))
        except Exception as error:  # one broken question must not end the others
            log.exception("%s failed", ask.method)
            said = f"the supervisor could not do it: {error!r}"
            answer = protocol.Answer(ask.number, "error", ("ProcessError", said))
        finally:
            self._supervisor.asked(-count)
        await self._send(answer)

    async def _do(self, ask: protocol.Ask) -> Any:
        if ask.method not in _TYPES:
            raise InvalidInput(f"{ask.method!r:.40} is nothing a supervisor can do")
        return await getattr(self._registry, ask.method)(**_arguments(ask, _TYPES[ask.method]))

    async def _stream(self, ask: protocol.Ask) -> None:
        chunks = self._registry.attach(**_arguments(ask, _ATTACH))
        try:
            async for chunk in chunks:
                await self._send(protocol.Answer(ask.number, "part", chunk))
        finally:
            await chunks.aclose()

    async def _send(self, answer: protocol.Answer) -> None:
        self._writer.write(protocol.frame(answer))
        with suppress(ConnectionError):
            await self._writer.drain()

    def gone(self) -> None:
        for task in self._tasks.values():
            task.cancel()


def _arguments(ask: protocol.Ask, types: dict[str, Any]) -> dict[str, Any]:
    try:
        return {name: msgspec.convert(value, types[name]) for name, value in ask.arguments.items()}
    except (KeyError, msgspec.ValidationError) as error:
        raise InvalidInput(f"{ask.method}: {error}") from None


async def supervise(folder: Path, limits: Limits, linger: float, revive: list[str]) -> None:
    """Keep the processes of a folder until nobody needs that any more."""
    where = protocol.sockets(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    protocol.prepare(where)
    lock = Lock.take(folder)
    keeping = Keeping.open(where / KEEPER, revive, os.environ)
    local = Local(keeping, files=_allow_files())

    def places(name: str) -> Place:
        return local if name == "local" else open_place(name)

    registry = await Registry.open(folder, limits=limits, places=places, lock=lock)
    local.let_go_of_the_rest()
    supervisor = Supervisor(registry, linger)
    server = await supervisor.serve(where / SOCKET)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.over.set)
    _mind(keeping)
    _say(READY)
    try:
        await supervisor.linger()
    finally:
        with suppress(OSError):
            (where / SOCKET).unlink()
        server.close()
        loop.remove_reader(keeping.fileno())
        keeping.bye()
        await asyncio.sleep(0)
        if not registry.live:  # the keeper has nothing to keep, and goes too
            with suppress(OSError):
                (where / KEEPER).unlink()
                if where != folder:
                    where.rmdir()
        await registry.aclose()


def _mind(keeping: Keeping) -> None:
    """Start another keeper when this one dies."""
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(keeping.fileno())
        keeping.renew()
        loop.add_reader(keeping.fileno(), gone)

    loop.add_reader(keeping.fileno(), gone)


def _say(word: str) -> None:
    """Tell who started us, and let go of the standard output."""
    with suppress(OSError):
        os.write(1, word.encode() + b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):
        os.dup2(null, file)
    os.close(null)


def _leave() -> None:
    """Become nobody's child, in nobody's session, and in no group that may be ended.

    What is changed here is passed on to every process: so signals are caught, not ignored.
    """
    if os.fork():
        os._exit(0)
    if "PYTHONPATH" in os.environ:
        paths = os.environ["PYTHONPATH"].split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths))
    os.chdir("/")
    os.environ.pop(MARK, None)
    cgroup.leave()
    signal.signal(signal.SIGHUP, _nothing)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


def _allow_files() -> int:
    """Allow this program as many open files as it may have; what was allowed before."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return few


def main(words: list[str]) -> int:
    folder = Path(words[0]).absolute()
    limits = msgspec.json.decode(words[1], type=Limits) if len(words) > 1 else Limits()
    linger = float(words[2]) if len(words) > 2 else LINGER
    revive = [
        sys.executable,
        "-m",
        __spec__.name if __spec__ else __name__,
        str(folder),
        *words[1:],
    ]
    _leave()
    try:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            logging.basicConfig(
                filename=folder / LOG, format="%(asctime)s %(levelname)s %(message)s"
            )
        asyncio.run(supervise(folder, limits, linger, revive))
    except SupervisorGone:
        _say(TAKEN)
        return 0
    except (RekindleError, OSError) as error:
        log.error("the supervisor cannot run: %s", error)
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
