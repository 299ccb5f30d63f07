"""`rekindle` or `python3` on the PATH of a shell script: asks the server of commands for a child.

It starts with nothing but the modules of the interpreter itself, and stays as long as the command:
signals are passed on to it, and its end is ours.
"""

import json
import os
import signal
import socket
import struct
import sys

is_python = sys.argv[0].endswith("python3")
first = sys.argv[1] if len(sys.argv) > 1 else "-"
if is_python and first.startswith("-") and first not in ("-c", "-m"):
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
line = socket.socket(socket.AF_UNIX)
line.connect(ADDRESS)  # noqa: F821  # pyright: ignore  (put in when the script is written)
request = {
    "argv": sys.argv,
    "is_python": is_python,
    "env": dict(os.environ),
    "cwd": os.getcwd(),
    "terminal": False,
    "owned": False,
}
text = json.dumps(request).encode()
socket.send_fds(line, [struct.pack("!I", len(text))], [0, 1, 2])
line.sendall(text)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, lambda number, _: line.send(bytes([number])))
(code,) = struct.unpack("!i", line.recv(4, socket.MSG_WAITALL))
if code >= 0:
    os._exit(code)
signal.signal(-code, signal.SIG_DFL)
os.kill(os.getpid(), -code)
