"""The fd keeper: holds copies of the pipes and terminals of all processes of one home.

It runs by its path with only the standard library, because it must be small and must not die with
the supervisor's code. If a supervisor is killed, no pipe breaks and no terminal hangs up: its
successor gets the descriptors from the keeper. The keeper starts that successor itself, because a
process that writes to a pipe without a reader would soon block.

    keep <id> + files    shut <id> (its input)    drop <id>    hand (over everything)    bye
    revive <command>     the command that starts a supervisor, separated by NUL

The keeper exits when it holds nothing and nobody is connected.
"""

import os
import resource
import select
import signal
import socket
import sys
import time

_MAX_FDS = 4  # descriptors per process
# SIGCHLD: started supervisors are reaped by the kernel.
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
_FIRST_RESTART_DELAY, _MAX_RESTART_DELAY = 0.05, 30.0


class FdKeeper:
    """Holds descriptors and restarts the supervisor when it was killed."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.held_fds: dict[bytes, list[int]] = {}
        self.connections: dict[int, socket.socket] = {}
        self.restart_command: list[bytes] = []
        self.restart_delay = _FIRST_RESTART_DELAY
        self.restart_at: float | None = None
        self.supervisor_started = time.monotonic()
        self.is_unused = True  # nobody has connected yet

    def run(self) -> None:
        poll = select.poll()
        poll.register(self.listener, select.POLLIN)
        while (
            self.held_fds
            or self.connections
            or (self.is_unused and time.monotonic() < self.supervisor_started + 10)
        ):
            for fd, _ in poll.poll(self.get_poll_timeout()):
                if fd == self.listener.fileno():
                    self.accept_connection(poll)
                elif not self.handle_message(self.connections[fd]):
                    poll.unregister(fd)
                    self.connections.pop(fd).close()
                    self.on_disconnect()
            if self.restart_at is not None and time.monotonic() >= self.restart_at:
                self.restart_supervisor()

    def get_poll_timeout(self) -> float | None:
        if self.restart_at is not None:
            return max(0.0, self.restart_at - time.monotonic()) * 1000
        return None if self.held_fds or self.connections else 1000.0

    def accept_connection(self, poll: select.poll) -> None:
        connection, _ = self.listener.accept()
        if _get_peer_uid(connection) != os.getuid():
            connection.close()
            return
        self.is_unused = False
        self.connections[connection.fileno()] = connection
        poll.register(connection, select.POLLIN)

    def handle_message(self, connection: socket.socket) -> bool:
        try:
            message, fds = receive_message(connection)
        except OSError:
            return False
        if not message:
            return False
        verb, _, rest = message.partition(b" ")
        if verb == b"keep":
            self.drop_fds(rest)
            self.held_fds[rest] = fds
        elif verb == b"shut" and len(self.held_fds.get(rest, ())) > 1:
            os.close(self.held_fds[rest].pop())
        elif verb == b"drop":
            self.drop_fds(rest)
        elif verb == b"hand":
            return self.hand_over(connection)
        elif verb == b"revive":
            self.restart_command, self.restart_at, self.supervisor_started = (
                rest.split(b"\0"),
                None,
                time.monotonic(),
            )
        elif verb == b"bye":
            self.restart_command = []
        return True

    def drop_fds(self, id: bytes) -> None:
        for fd in self.held_fds.pop(id, ()):
            os.close(fd)

    def hand_over(self, connection: socket.socket) -> bool:
        try:
            for id, fds in self.held_fds.items():
                socket.send_fds(connection, [id], fds)
            connection.send(b".")
        except OSError:
            return False
        return True

    def on_disconnect(self) -> None:
        """Schedule a new supervisor if the last one disconnected without a goodbye."""
        if self.connections or not self.held_fds or not self.restart_command:
            return
        # Back off if the supervisor died early: it is probably broken rather than killed.
        was_stable = time.monotonic() - self.supervisor_started > 10
        self.restart_delay = (
            _FIRST_RESTART_DELAY if was_stable else min(self.restart_delay * 2, _MAX_RESTART_DELAY)
        )
        self.restart_at = time.monotonic() + self.restart_delay

    def restart_supervisor(self) -> None:
        self.restart_at = time.monotonic() + max(self.restart_delay, 5.0) if self.held_fds else None
        try:
            # Reset ignored signals, which all processes started there would inherit.
            os.posix_spawn(
                self.restart_command[0],
                self.restart_command,
                os.environ,
                setsid=True,
                setsigdef=_IGNORED,
            )
        except OSError:
            pass


def receive_message(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Receive a message with at most _MAX_FDS descriptors."""
    message, fds, _, _ = socket.recv_fds(connection, 65536, _MAX_FDS)
    for fd in fds:
        os.set_inheritable(fd, False)
    return message, fds


def _get_peer_uid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def main() -> None:
    # The supervisor created the listening socket and passed it on.
    listener = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(listener.fileno(), False)
    listener.listen(64)  # again, so that peers see this process's id
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    FdKeeper(listener).run()


if __name__ == "__main__":
    main()
