"""The keeper: holds copies of the pipes and terminals of all processes of one home.

Run by its path, with nothing but the standard library: it must be small, and it must not die with
the code of the supervisor. If a supervisor is killed, no pipe breaks and no terminal hangs up: its
successor asks the keeper for what it held. The keeper starts that successor itself, because a
process that writes into a pipe which nobody reads would soon stand still.

    keep <id> + files    shut <id> (its input)    drop <id>    hand (over everything)    bye
    revive <command>     what starts a supervisor, words apart by NUL

It goes when it holds nothing and nobody is connected.
"""

import array
import os
import resource
import select
import signal
import socket
import sys
import time

_MOST = 4  # files of one process
# Of its children, the supervisors it starts, it hears nothing: nobody waits for them.
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 30.0


class Keeper:
    def __init__(self, listening: socket.socket) -> None:
        self.listening = listening
        self.held: dict[bytes, list[int]] = {}
        self.guests: dict[int, socket.socket] = {}
        self.revive: list[bytes] = []
        self.pause = _FIRST_PAUSE
        self.due: float | None = None
        self.begun = time.monotonic()
        self.fresh = True  # nobody has come yet

    def run(self) -> None:
        poll = select.poll()
        poll.register(self.listening, select.POLLIN)
        while self.held or self.guests or (self.fresh and time.monotonic() < self.begun + 10):
            for file, _ in poll.poll(self.wait()):
                if file == self.listening.fileno():
                    self.welcome(poll)
                elif not self.hear(self.guests[file]):
                    poll.unregister(file)
                    self.guests.pop(file).close()
                    self.left()
            if self.due is not None and time.monotonic() >= self.due:
                self.start()

    def wait(self) -> float | None:
        if self.due is not None:
            return max(0.0, self.due - time.monotonic()) * 1000
        return None if self.held or self.guests else 1000.0

    def welcome(self, poll: select.poll) -> None:
        guest, _ = self.listening.accept()
        if _uid(guest) != os.getuid():
            guest.close()
            return
        self.fresh = False
        self.guests[guest.fileno()] = guest
        poll.register(guest, select.POLLIN)

    def hear(self, guest: socket.socket) -> bool:
        try:
            words, files = _receive(guest)
        except OSError:
            return False
        if not words:
            return False
        verb, _, rest = words.partition(b" ")
        if verb == b"keep":
            self.drop(rest)
            self.held[rest] = files
        elif verb == b"shut" and len(self.held.get(rest, ())) > 1:
            os.close(self.held[rest].pop())
        elif verb == b"drop":
            self.drop(rest)
        elif verb == b"hand":
            return self.hand(guest)
        elif verb == b"revive":
            self.revive, self.due, self.begun = rest.split(b"\0"), None, time.monotonic()
        elif verb == b"bye":
            self.revive = []
        return True

    def drop(self, id: bytes) -> None:
        for file in self.held.pop(id, ()):
            os.close(file)

    def hand(self, guest: socket.socket) -> bool:
        try:
            for id, files in self.held.items():
                rights = array.array("i", files)
                guest.sendmsg([id], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            guest.send(b".")
        except OSError:
            return False
        return True

    def left(self) -> None:
        """A supervisor is gone; if it did not say goodbye, another one is started."""
        if self.guests or not self.held or not self.revive:
            return
        # One that lived for long was killed; one that did not is broken: not again and again.
        lasted = time.monotonic() - self.begun > 10
        self.pause = _FIRST_PAUSE if lasted else min(self.pause * 2, _LONGEST_PAUSE)
        self.due = time.monotonic() + self.pause

    def start(self) -> None:
        self.due = time.monotonic() + max(self.pause, 5.0) if self.held else None
        try:
            # What is ignored here must not be ignored in everything that will be started there.
            os.posix_spawn(self.revive[0], self.revive, os.environ, setsid=True, setsigdef=_IGNORED)
        except OSError:
            pass


def _receive(guest: socket.socket) -> tuple[bytes, list[int]]:
    words, extra, _, _ = guest.recvmsg(65536, socket.CMSG_SPACE(_MOST * 4))
    files = array.array("i")
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % 4])
    for file in files:
        os.set_inheritable(file, False)
    return words, list(files)


def _uid(guest: socket.socket) -> int:
    credentials = guest.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def main() -> None:
    # The socket is listening already: it was made, and is handed down, by the supervisor.
    listening = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(listening.fileno(), False)
    listening.listen(64)  # again, so that who connects is told this process's id
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    Keeper(listening).run()


if __name__ == "__main__":
    main()
