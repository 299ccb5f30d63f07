"""The client: hand a hook's input to the helper of this home, and print its answer.

    python -I -S client.py HOME AGENT EVENT

An agent waits for this program with every event, so it imports nothing but modules in C, which load in
a moment. It prints a whole answer or nothing, exits with 0, and ends within a second, whatever happens.

A request is twenty digits, the lengths of its two parts, then the parts: first the version of this
protocol, the path of this file, agent, event, folder, size of the input and the settings of the
environment, with zero bytes between them; then the input. An answer is ten digits, its length, then
the answer; or RETRY, if the helper is outdated and exits.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportPrivateUsage=false
# The stubs do not know the module of signals in C.
from __future__ import annotations

import posix  # not os, which takes as long to load as all the rest
import sys
import time
from _signal import ITIMER_REAL, SIGALRM, setitimer, signal
from _socket import AF_UNIX, SOCK_STREAM, socket

PROTOCOL = b"1"
SOCKET = "helper.sock"
RETRY = b"retry....."
SECONDS = 0.9  # from start to end, whatever happens
MAX_INPUT = 4_000_000
# The settings of the environment that hooks need; others may be secret.
SETTINGS = (b"REKINDLE_STORE", b"REKINDLE_WARM_", b"REKINDLE_RETENTION_")
TROUBLES = "troubles.jsonl"
MAX_TROUBLES_BYTES = 100_000


def run_client(home: str, agent: str, event: str) -> None:
    """Read the input, ask the helper or start one, and print its answer."""
    end = time.monotonic() + SECONDS
    signal(SIGALRM, stop_waiting)
    setitimer(ITIMER_REAL, SECONDS, 0.02)
    folder = home + "/hooks"
    try:
        cwd = posix.getcwdb()
    except OSError:  # it was removed
        cwd = b""
    reason = "no answer"
    try:
        data, size = read_input()
        request = build_request(agent, event, cwd, data, size)
        posix.chdir(folder)  # the path of a socket must be short
        answer = ask_helper(request, end)
        if answer is None:
            answer = start_helper(home, request)
        setitimer(ITIMER_REAL, 0)
        posix.write(1, answer)
        return
    except OSError as error:
        reason = str(error)
    setitimer(ITIMER_REAL, 0.05)  # for the trouble as well
    record_trouble(folder, agent, event, reason)


def stop_waiting(*_: object) -> None:
    """End whatever the client waits for."""
    raise TimeoutError("no answer in time")


def read_input() -> tuple[bytes, int]:
    """Read the whole input, so that the agent can write it; return its beginning and its size."""
    parts: list[bytes] = []
    size = 0
    while part := posix.read(0, 1_000_000):
        if size < MAX_INPUT:
            parts.append(part)
        size += len(part)
    return b"".join(parts)[:MAX_INPUT], size


def build_request(agent: str, event: str, cwd: bytes, data: bytes, size: int) -> bytes:
    """Build the request."""
    settings = [b"%s=%s" % one for one in posix.environ.items() if one[0].startswith(SETTINGS)]
    words = [word.encode("utf-8", "surrogateescape") for word in (__file__, agent, event)]
    head = b"\0".join([PROTOCOL, *words, cwd, b"%d" % size, *settings])
    return b"%010d%010d%s%s" % (len(head), len(data), head, data)


def ask_helper(request: bytes, end: float) -> bytes | None:
    """Return the answer of the helper; None if there is none, or an outdated one."""
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.settimeout(max(0.01, end - time.monotonic()))
        connection.connect(SOCKET)
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65536):
            answer += part
            if is_complete(answer):
                return answer[10:]
        return None
    except TimeoutError:
        raise
    except OSError:  # there is none
        return None
    finally:
        connection.close()


def is_complete(answer: bytes) -> bool:
    """Return whether this is a whole answer."""
    return answer[:10].isdigit() and len(answer) == 10 + int(answer[:10])


def start_helper(home: str, request: bytes) -> bytes:
    """Start a helper that answers this request first, and return its answer."""
    input_end, our_input = posix.pipe()
    our_output, output_end = posix.pipe()
    if posix.fork() == 0:
        try:
            posix.setsid()  # it outlives the agent
            posix.dup2(input_end, 0)
            posix.dup2(output_end, 1)
            posix.dup2(posix.open("/dev/null", posix.O_RDWR), 2)
            posix.closerange(3, 256)
            entry = __file__.rpartition("/")[0] + "/entry.py"
            posix.execv(sys.executable, [sys.executable, "-I", entry, home])
        finally:
            posix._exit(0)
    posix.close(input_end)
    posix.close(output_end)
    while request:
        request = request[posix.write(our_input, request) :]
    posix.close(our_input)
    answer = b""
    while part := posix.read(our_output, 65536):
        answer += part
        if is_complete(answer):
            return answer[10:]
    raise OSError("the helper could not be started")


def record_trouble(folder: str, agent: str, event: str, reason: str) -> None:
    """Append a line to the troubles, which `rekindle doctor` shows."""
    text = "".join(letter if letter.isprintable() else " " for letter in reason[:200])
    text = text.replace("\\", "/").replace('"', "'")
    names = "".join(letter for letter in agent + " " + event if letter.isalnum() or letter in " -")
    line = '{"time":%.3f,"hook":"%s","reason":"%s"}\n' % (time.time(), names[:60], text)  # noqa: UP031
    file = posix.open(
        folder + "/" + TROUBLES, posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT, 0o600
    )
    if posix.fstat(file).st_size < MAX_TROUBLES_BYTES:
        posix.write(file, line.encode("utf-8", "replace"))


if __name__ == "__main__":
    try:
        run_client(*sys.argv[1:4])
    finally:
        posix._exit(0)
