"""`rekindle` on the PATH of a shell script, or `run-script`: asks the server of commands for a child.

It starts with nothing but the modules of the interpreter itself, and stays as long as the command:
signals are passed on to it, and its end is ours.
"""

import json
import os
import signal
import socket
import struct
import sys

line = socket.socket(socket.AF_UNIX)
line.connect(ADDRESS)  # noqa: F821  # pyright: ignore  (put in when the script is written)
is_script = sys.argv[0].endswith("run-script")
request = {
    "argv": sys.argv[is_script:],
    "script": sys.argv[1] if is_script else None,
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
