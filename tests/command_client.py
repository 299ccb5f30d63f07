"""`rekindle` or `python3` on the PATH of a script, or a worker of xdist: asks the command server for it.

It starts with nothing but modules that are written in C, which halves its own start, and stays as
long as the command: signals are passed on to it, and its end is ours.
"""

import _signal
import _socket
import marshal
import os
import sys

is_worker = sys.argv[0].endswith("worker")
if is_worker:
    sys.argv.remove("-u")
is_python = is_worker or sys.argv[0].endswith("python3")
first = sys.argv[1] if len(sys.argv) > 1 else "-"
if is_python and first.startswith("-") and first not in ("-c", "-m"):
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
line = _socket.socket(_socket.AF_UNIX)
line.connect(ADDRESS)  # noqa: F821  # pyright: ignore  (put in when the script is written)
request = {
    "argv": sys.argv,
    "is_python": is_python,
    "env": dict(os.environ),
    "cwd": os.getcwd(),
    "terminal": False,
    "owned": False,
    "is_worker": is_worker,
}
text = marshal.dumps(request)
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
files = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)
line.sendmsg([len(text).to_bytes(4, "big")], [files])
line.sendall(text)
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1"):
    _signal.signal(getattr(_signal, name), lambda number, _: line.send(bytes([number])))
answer = line.recv(4, _socket.MSG_WAITALL)
code = int.from_bytes(answer, "big", signed=True) if len(answer) == 4 else 1
if code >= 0:
    os._exit(code)
_signal.signal(-code, _signal.SIG_DFL)
os.kill(os.getpid(), -code)
